"""What a file of Gaussians gives and takes, and the byte encodings several formats share."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from recon.core.errors import InputError, UsageError
from recon.geometry.sh import SH_C0
from recon.scene.formats.axes import UNSTATED
from recon.scene.gaussians import STATIC, Gaussians
from recon.scene.motion import freeze
from recon.scene.scene import Body

BLOCK = 1 << 14  # rows handled at once: what lies between file and table stays small and in the cache
MAX_FILE = 16 * 1024**3  # bytes
MAX_COUNT = 2**28  # Gaussians
MAX_INFLATION = 1032  # bytes out of one compressed byte: deflate cannot do more
ALWAYS_LOG_SCALE = -20.0  # of a linear scale of zero, which has no logarithm
ANTIALIASED = "it was trained with antialiasing, which scenes here are drawn without"
AGAIN = "Export it again with the tool that made it."


@dataclass(frozen=True, eq=False)
class Splats:
    """Gaussians as a file held them. axes: what the file says of its axes (UNSTATED: nothing).

    Files of most formats hold static ones; those of a few hold bodies on their tracks, and rows that live in time.
    """

    gaussians: Gaussians
    axes: str = UNSTATED
    notes: tuple[str, ...] = ()  # what a person should know of the reading
    bodies: tuple[Body, ...] = ()
    time_range: tuple[float, float] = (0.0, 0.0)  # seconds
    frame_times: tuple[float, ...] = ()  # seconds, of the pictures it was made from
    metric: bool = False  # whether the unit is known to be the metre

    @property
    def moves(self) -> bool:
        """Whether it holds anything but static rows."""
        return bool((self.gaussians.kind != STATIC).any())

    def frozen(self, t: float) -> Gaussians:
        """Static rows of the world: where everything is at `t` seconds."""
        return freeze(self.gaussians, {body.id: body.pose_at(t) for body in self.bodies}, t)


def unreadable(path: Path, kind: str, why: str, fix: str = AGAIN) -> InputError:
    """The error for `path`, which was taken for a file of that kind."""
    return InputError(f"{path} is not a {kind} file", why=why, fix=fix)


def require_static(gaussians: Gaussians, path: Path, kind: str) -> Gaussians:
    """The validated table; UsageError when it moves, which files of that kind cannot say."""
    if bool((gaussians.kind != STATIC).any()):
        raise UsageError(
            f"cannot write {path}", why=f"{kind} files know no motion", fix="Freeze the scene at one time first."
        )
    return gaussians.validate("the Gaussians to write")


def blocks(count: int) -> Iterator[slice]:
    """Row ranges that cover `count` rows."""
    for start in range(0, count, BLOCK):
        yield slice(start, min(start + BLOCK, count))


class Columns:
    """A static table being filled block by block; rows that are not finite are left out and counted."""

    def __init__(self, count: int, degree: int) -> None:
        """All memory is taken here: check `count` against the file's size before."""
        self.count, self.at = count, 0
        self.means = np.empty((count, 3), np.float32)
        self.log_scales = np.empty((count, 3), np.float32)
        self.quats = np.empty((count, 4), np.float32)
        self.logit_opacities = np.empty(count, np.float32)
        self.sh = np.empty((count, (degree + 1) ** 2, 3), np.float32)

    def block(self, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Views of the next `size` rows to fill: means, log_scales, quats (wxyz), logit_opacities, sh."""
        rows = slice(self.at, self.at + size)
        return self.means[rows], self.log_scales[rows], self.quats[rows], self.logit_opacities[rows], self.sh[rows]

    def take(self, size: int) -> None:
        """Keep the rows of the block just filled that are finite."""
        views = self.block(size)
        # A sum carries any NaN or infinity with it; float64 so that it does not overflow itself.
        if np.isfinite([view.sum(dtype=np.float64) for view in views]).all():
            self.at += size
            return
        finite = np.all([np.isfinite(view.reshape(size, -1)).all(1) for view in views], axis=0)
        kept = int(finite.sum())
        for view in views:
            view[:kept] = view[finite]
        self.at += kept

    def table(self, path: Path) -> Gaussians:
        """The rows taken. Warns of the ones left out; InputError when none is left."""
        if self.at == 0:
            raise InputError(f"{path} holds no usable Gaussian", why=f"none of its {self.count} rows is finite")
        if self.at < self.count:
            dropped = self.count - self.at
            warnings.warn(f"{path}: dropped {dropped} of {self.count} Gaussians that are not finite", stacklevel=3)
        kept = (self.means, self.log_scales, self.quats, self.logit_opacities, self.sh)
        means, log_scales, quats, logits, sh = (torch.from_numpy(column[: self.at]) for column in kept)
        return Gaussians.static(means, log_scales, quats, logits, sh)


def arrays(g: Gaussians, rows: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows of a table as float32: means, log_scales, unit quats (wxyz), logit_opacities, sh."""
    columns = (g.means, g.log_scales, g.quats, g.logit_opacities, g.sh)
    means, log_scales, quats, logits, sh = (c[rows].detach().cpu().float().numpy() for c in columns)
    return means, log_scales, unit(quats), logits, sh


def doubles(column: torch.Tensor) -> np.ndarray:
    """A column as float64, on the CPU."""
    result: np.ndarray = column.detach().cpu().numpy().astype(np.float64)
    return result


def unit(quats: np.ndarray) -> np.ndarray:
    """Unit quaternions [N, 4] along `quats`; zero becomes no rotation."""
    norm = np.sqrt((quats.astype(np.float64) ** 2).sum(1, keepdims=True))
    still = norm[:, 0] == 0
    result: np.ndarray = (quats / np.where(norm == 0, 1, norm)).astype(np.float32)
    result[still] = [1, 0, 0, 0]
    return result


# byte -> logit of byte / 255. The ends stand for a quarter step inside, as their logits would be infinite.
_SHARES = np.clip(np.arange(256), 0.25, 254.75) / 255.0
LOGIT_OF_BYTE = np.log(_SHARES / (1 - _SHARES)).astype(np.float32)
SH0_OF_BYTE = ((np.arange(256) / 255.0 - 0.5) / SH_C0).astype(np.float32)  # byte -> f_dc of the colour byte / 255


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow."""
    result: np.ndarray = 0.5 * np.tanh(0.5 * x) + 0.5
    return result


def logit(share: np.ndarray) -> np.ndarray:
    """float32 log(x / (1 - x)); 0 and 1 stand for what is a little inside."""
    x = np.clip(share.astype(np.float64), 1e-9, 1.0 - 2.0**-25)
    result: np.ndarray = np.log(x / (1.0 - x)).astype(np.float32)
    return result


def to_byte(share: np.ndarray) -> np.ndarray:
    """uint8 of values in 0..1, rounded and clamped."""
    return np.clip(np.rint(share * 255.0), 0, 255).astype(np.uint8)


def log_scale(linear: np.ndarray) -> np.ndarray:
    """Logarithms of linear scales; zero and less become exp(-20), NaN stays."""
    with np.errstate(invalid="ignore", divide="ignore"):
        result = np.where(linear <= math.exp(ALWAYS_LOG_SCALE), np.float32(ALWAYS_LOG_SCALE), np.log(linear))
    return result.astype(np.float32)
