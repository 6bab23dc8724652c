"""Where the Gaussians are at one instant.

    static    x = mu                         opacity = sigmoid(o)
    rigid     x = R_b mu + p_b, q = q_b (x) q, colours turned with the body
    residual  x = mu + v (t - t_c)           opacity = sigmoid(o) exp(-((t - t_c) / sigma)^2 / 2), sigma = exp(l)

Everything is differentiable in the table and in the body poses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from recon.core.errors import InputError
from recon.geometry.quaternion import quat_multiply, quat_normalize, quat_slerp, quat_to_matrix
from recon.geometry.sh import sh_rotations, turn_sh
from recon.scene.gaussians import RESIDUAL, RIGID, STATIC, WORLD, Gaussians

FADED = 0.05  # residual rows whose temporal factor is below this may be dropped

BodyPoses = Mapping[int, tuple[torch.Tensor, torch.Tensor]]  # object_id -> (wxyz [4], position [3]), world from body


@dataclass(frozen=True, eq=False)
class Posed:
    """M plain Gaussians in the world at one instant, activated: what a rasteriser takes."""

    means: torch.Tensor  # [M, 3] metres
    quats: torch.Tensor  # [M, 4] wxyz, not normalised
    scales: torch.Tensor  # [M, 3] metres
    opacities: torch.Tensor  # [M] in 0..1
    sh: torch.Tensor  # [M, K, 3] in world directions
    rows: torch.Tensor | None = None  # [M] rows of the table they are, when some were dropped

    def __len__(self) -> int:
        return len(self.means)


@dataclass(frozen=True, eq=False)
class Track:
    """World-from-body poses at T knots; between them positions go straight and rotations along the shorter arc."""

    times: np.ndarray  # [T] float64 seconds on the common clock, increasing
    positions: torch.Tensor  # [T, 3] metres
    quats: torch.Tensor  # [T, 4] wxyz

    def __post_init__(self) -> None:
        times = np.array(self.times, dtype=np.float64)
        if times.ndim != 1 or len(times) == 0 or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
            raise InputError("a track has no usable times", why="at least one, finite and increasing, are needed")
        for name, width in (("positions", 3), ("quats", 4)):
            column = getattr(self, name)
            if tuple(column.shape) != (len(times), width) or not bool(torch.isfinite(column).all()):
                raise InputError(
                    f"a track's {name} of shape {list(column.shape)} cannot be used",
                    why=f"finite numbers of shape {[len(times), width]} are needed",
                )
        times.flags.writeable = False
        object.__setattr__(self, "times", times)

    def at(self, t: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(R [3, 3], position [3], quat [4]) at time `t` seconds; it stands still before and after its knots."""
        after = int(np.clip(np.searchsorted(self.times, t), 1, max(len(self.times) - 1, 1)))
        before, after = after - 1, min(after, len(self.times) - 1)
        span = self.times[after] - self.times[before]
        weight = float(np.clip((t - self.times[before]) / span, 0.0, 1.0)) if span > 0 else 0.0
        position = torch.lerp(self.positions[before], self.positions[after], weight)
        quat = quat_slerp(self.quats[before], self.quats[after], weight)
        return quat_to_matrix(quat), position, quat


def temporal_factor(g: Gaussians, t: float | None) -> torch.Tensor:
    """[N] what the opacity is multiplied by at `t`: 1 except for residual rows, which are 0 when there is no time."""
    residual = g.kind == RESIDUAL
    if t is None:
        return torch.where(residual, torch.zeros_like(g.time_centers), torch.ones_like(g.time_centers))
    z = (t - g.time_centers) * torch.exp(-g.log_durations)
    return torch.where(residual, torch.exp(-0.5 * z * z), torch.ones_like(z))


def pose_gaussians(g: Gaussians, tracks: BodyPoses, t: float | None, *, drop_faded: bool = False) -> Posed:
    """The table at time `t`, bodies at `tracks`; `t` None leaves out what lives in time (its opacity is 0).

    `drop_faded` drops residual rows whose temporal factor is below 0.05; `rows` then tells which were kept.
    Raises InputError when a rigid row's body has no pose.
    """
    factor = temporal_factor(g, t)
    rows: torch.Tensor | None = None
    if drop_faded:
        rows = torch.nonzero((g.kind != RESIDUAL) | (factor >= FADED))[:, 0]
        g, factor = g.select(rows), factor[rows]
    means, quats, sh = _place(g, tracks, t)
    opacities = torch.sigmoid(g.logit_opacities) * factor
    return Posed(means, quats, torch.exp(g.log_scales), opacities, sh, rows)


def freeze(g: Gaussians, tracks: BodyPoses, t: float | None) -> Gaussians:
    """The table at time `t` as static rows of the world (for files that know no motion); faded rows are dropped.

    Static rows keep their exact bits.
    """
    factor = temporal_factor(g, t)
    rows = torch.nonzero((g.kind != RESIDUAL) | (factor >= FADED))[:, 0]
    g, factor = g.select(rows), factor[rows]
    means, quats, sh = _place(g, tracks, t)
    # logit(f sigmoid(o)) = log f + o - log(1 + (1 - f) e^o), which is o itself for f = 1
    faded = (
        torch.log(factor) + g.logit_opacities - torch.nn.functional.softplus(torch.log1p(-factor) + g.logit_opacities)
    )
    logits = torch.where(factor < 1, faded, g.logit_opacities)
    return replace(
        g,
        means=means,
        quats=quats,
        sh=sh,
        logit_opacities=logits,
        object_id=torch.full_like(g.object_id, WORLD),
        kind=torch.full_like(g.kind, STATIC),
        time_centers=torch.zeros_like(g.time_centers),
        log_durations=torch.zeros_like(g.log_durations),
        velocities=torch.zeros_like(g.velocities),
    )


def _place(g: Gaussians, tracks: BodyPoses, t: float | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(means [N, 3], quats [N, 4], sh [N, K, 3]) in the world."""
    means, quats, sh = g.means, g.quats, g.sh
    if t is not None:
        flown = means + g.velocities * (t - g.time_centers)[:, None]
        means = torch.where((g.kind == RESIDUAL)[:, None], flown, means)
    rigid = torch.nonzero(g.kind == RIGID)[:, 0]
    if len(rigid) == 0:
        return means, quats, sh
    body, body_quats, body_positions = _gather_poses(g.object_id[rigid], tracks, means)
    rotations = quat_to_matrix(body_quats)  # [B, 3, 3]
    row_rotations = rotations[body]  # [n, 3, 3]
    moved = (row_rotations * means[rigid][:, None, :]).sum(-1) + body_positions[body]
    turned = quat_multiply(body_quats[body], quats[rigid])
    means = means.index_copy(0, rigid, moved)
    quats = quats.index_copy(0, rigid, turned)
    if sh.shape[1] > 1:
        # One set of matrices per body, gathered to its rows: cheaper than one per row.
        matrices = [matrix[body] for matrix in sh_rotations(g.degree, rotations)]
        sh = sh.index_copy(0, rigid, turn_sh(sh[rigid], matrices))
    return means, quats, sh


def _gather_poses(
    ids: torch.Tensor, tracks: BodyPoses, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(index [n] into the bodies, unit quats [B, 4], positions [B, 3]) for rows with these object ids."""
    known = sorted(tracks)
    slots = torch.full((max([*known, int(ids.max())]) + 1,), -1, dtype=torch.int64, device=ids.device)
    slots[known] = torch.arange(len(known), device=ids.device)
    body = slots[ids.long()]
    if bool((body < 0).any()):
        missing = int(ids[body < 0][0])
        raise InputError(f"body {missing} has Gaussians but no pose", why=f"poses are given for bodies {known}")
    quats = torch.stack([torch.as_tensor(tracks[i][0], dtype=like.dtype, device=like.device) for i in known])
    positions = torch.stack([torch.as_tensor(tracks[i][1], dtype=like.dtype, device=like.device) for i in known])
    return body, quat_normalize(quats), positions
