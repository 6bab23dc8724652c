"""Many worlds that share the Gaussians that never move, drawn natively: by one fixed camera, or each by its own.

A world is a table of rigid bodies; what moves with them is one `MoverSet` for all. What is drawn is bit for bit what
`rasterize` draws of the still Gaussians followed by the movers, whichever way and however many worlds at a time.
Float32 tensors on the CPU only: elsewhere callers put the sets together and call `rasterize`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from recon.core.errors import UsageError
from recon.geometry.sh import SH_C1
from recon.render.backends.cpu import native_arrays, native_module, native_options
from recon.render.types import RasterConfig

Floats = NDArray[np.float32]
Array = NDArray[np.float64]


class Gaussians(NamedTuple):
    """Tensors as `rasterize` takes them; `colors` [N, 3] RGB, or SH coefficients [N, K, 3] of degree `sh_degree`."""

    means: torch.Tensor
    quats: torch.Tensor
    scales: torch.Tensor
    opacities: torch.Tensor
    colors: torch.Tensor
    sh_degree: int | None = None


class Pinhole(NamedTuple):
    """viewmat [4, 4] cam_from_world, K [3, 3], eye [3] m: the camera's centre, float32; width, height px."""

    viewmat: Floats
    K: Floats
    eye: Floats
    width: int
    height: int


class Worlds(NamedTuple):
    """The bodies of E worlds: positions [E, B, 3] m, quats [E, B, 4] wxyz, matrices [E, B, 9]."""

    positions: Array
    quats: Array
    matrices: Array

    def __len__(self) -> int:
        return len(self.positions)

    def arrays(self) -> tuple[Array, Array, Array]:
        """The tables, laid out row after row."""
        return tuple(np.ascontiguousarray(table, np.float64) for table in self)  # type: ignore[return-value]


class Pictures(NamedTuple):
    """Of E worlds: rgb uint8 [E, H, W, 3] as the camera shows it; color float32 [E, H, W, 3], alpha [E, H, W] and
    depth [E, H, W] m as `Rendering` has them. None where not asked for."""

    rgb: NDArray[np.uint8] | None = None
    color: Floats | None = None
    alpha: Floats | None = None
    depth: Floats | None = None


KINDS = Pictures._fields


class MoverSet:
    """M Gaussians in the frames of bodies; the last rows, as many as `sh` [m, 3, 3] has, carry their light in it.

    body int [M]; means [M, 3] m, quats [M, 4], normals [M, 3], scales [M, 3] m, opacities [M], rgb [M, 3]. ambient:
    share of the others' light that does not depend on where they face.
    """

    def __init__(
        self, body: NDArray[np.int64], means: Floats, quats: Floats, normals: Floats, scales: Floats,
        opacities: Floats, rgb: Floats, sh: Floats, ambient: float,
    ) -> None:  # fmt: skip
        rows = {len(a) for a in (body, means, quats, normals, scales, opacities, rgb)}
        if len(rows) != 1 or len(sh) > len(body) or (len(body) and int(np.min(body)) < 0):
            raise UsageError("movers: the arrays do not belong together", why=f"they have {sorted(rows)} rows")
        arrays = [np.ascontiguousarray(a, np.float32) for a in (means, quats, normals, scales, opacities, rgb, sh)]
        self.native: Any = native_module().Movers(
            np.ascontiguousarray(body, np.int32), *arrays, ambient, 1 - ambient, SH_C1
        )


class Backdrop:
    """What a fixed camera sees of still Gaussians, worked out once; movers are blended into it where they are.

    gain: the camera's colour response (M [3, 3], b [3]) for `rgb`, None for none.
    """

    def __init__(
        self, still: Gaussians, camera: Pinhole, config: RasterConfig, gain: tuple[Array, Array] | None = None
    ) -> None:
        self.camera = camera
        response = None if gain is None else np.concatenate([np.ravel(gain[0]), gain[1]]).astype(np.float32)
        self._native = native_module().Backdrop(
            *native_arrays(*still[:5]), _degree(still), camera.viewmat, camera.K, camera.width, camera.height,
            native_options(config), np.zeros(3, np.float32), response,
        )  # fmt: skip

    @property
    def kept(self) -> int:
        """How many of the still Gaussians can matter in this picture."""
        return int(self._native.kept)

    def draw(self, movers: MoverSet, worlds: Worlds, *kinds: str) -> Pictures:
        """Pictures of all worlds of these kinds (`KINDS`). Raises UsageError for another kind."""
        made = _blank(len(worlds), self.camera, kinds)
        self._native.draw(self.camera.eye, movers.native, *worlds.arrays(), *made)
        return made


def draw_anew(
    still: Gaussians, movers: MoverSet, worlds: Worlds, cameras: list[Pinhole], config: RasterConfig, *kinds: str
) -> Pictures:
    """Pictures of world i through cameras[i], all of one size, everything drawn. Raises UsageError like `Backdrop`."""
    size = {(camera.width, camera.height) for camera in cameras}
    if len(cameras) != len(worlds) or len(size) > 1:
        raise UsageError(f"{len(worlds)} worlds and {len(cameras)} cameras of {len(size)} sizes", fix="one each, alike")
    made = _blank(len(worlds), cameras[0], kinds)
    stacked = [np.stack([getattr(camera, field) for camera in cameras]) for field in ("viewmat", "K", "eye")]
    native_module().draw_anew(
        *native_arrays(*still[:5]), _degree(still), movers.native, *worlds.arrays(), *stacked, cameras[0].width,
        cameras[0].height, native_options(config), np.zeros(3, np.float32), *made,
    )  # fmt: skip
    return made


def view_colors(means: torch.Tensor, sh: torch.Tensor, degree: int, viewmat: Floats) -> torch.Tensor:
    """[N, 3] colours of Gaussians with SH [N, K, 3] as this camera sees them: the very bits that drawing them uses."""
    return torch.from_numpy(native_module().view_colors(*native_arrays(means, sh), degree, viewmat))


def _degree(still: Gaussians) -> int:
    rows = {len(column) for column in still[:5]}
    if len(rows) != 1:
        raise UsageError("the still Gaussians' tensors do not belong together", why=f"they have {sorted(rows)} rows")
    return -1 if still.sh_degree is None else still.sh_degree


def _blank(count: int, camera: Pinhole, kinds: tuple[str, ...]) -> Pictures:
    unknown = set(kinds) - set(KINDS)
    if unknown or not kinds:
        raise UsageError(f"no such pictures: {', '.join(sorted(unknown))}", fix="some of " + ", ".join(KINDS))
    shape = (count, camera.height, camera.width)
    return Pictures(
        np.empty((*shape, 3), np.uint8) if "rgb" in kinds else None,
        np.empty((*shape, 3), np.float32) if "color" in kinds else None,
        np.empty(shape, np.float32) if "alpha" in kinds else None,
        np.empty(shape, np.float32) if "depth" in kinds else None,
    )
