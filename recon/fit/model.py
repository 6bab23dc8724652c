"""The trainable table: every Gaussian of a fit in one set of leaf tensors, static rows first, then those of bodies,
then residual ones.

At time t a row is drawn at

    static    x(t) = mu                    alpha(t) = sigmoid(o)
    rigid     x(t) = R_b(t) mu + p_b(t)    alpha(t) = sigmoid(o), turned by R_b; its colours do not depend on direction
    residual  x(t) = mu + v (t - t_c)      alpha(t) = sigmoid(o) exp(-1/2 ((t - t_c) / sigma_t)^2)

Rows whose temporal factor is below `PHI_MIN` get opacity 0, which the rasteriser culls before it does any other work.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from recon.fit.bodies import BodyMotion
from recon.geometry.quaternion import quat_multiply
from recon.scene.gaussians import RESIDUAL, RIGID, STATIC, WORLD, Gaussians

PHI_MIN = 0.02
GAUSSIAN_KEYS = ("means", "log_scales", "quats", "logit_opacities", "sh")
TIME_KEYS = ("time_centers", "log_durations", "velocities")


@dataclass
class Posed:
    """Activated Gaussians at one instant, ready for the rasteriser."""

    means: Tensor  # [N, 3] metres
    quats: Tensor  # [N, 4] wxyz, raw
    scales: Tensor  # [N, 3] metres
    opacities: Tensor  # [N]
    sh: Tensor  # [N, K, 3]


class Model:
    """Leaf tensors of a fit.

    gaussians: dict of [N, ...] leaves: the rows [0, num_static) static, then num_rigid of bodies, the rest residual.
    time: dict of [N - num_static - num_rigid, ...] leaves (seconds, log seconds, metres per second).
    bodies: int64 [num_rigid], which body of `motion` (from 0) a rigid row belongs to; its `means` and `quats` are in
    that body's frame.
    """

    def __init__(
        self, gaussians: dict[str, Tensor], time: dict[str, Tensor], bodies: Tensor | None = None,
        motion: BodyMotion | None = None,
    ) -> None:  # fmt: skip
        self.gaussians = {
            key: gaussians[key].detach().clone().contiguous().requires_grad_(True) for key in GAUSSIAN_KEYS
        }
        self.time = {key: time[key].detach().clone().contiguous().requires_grad_(True) for key in TIME_KEYS}
        device = self.gaussians["means"].device
        self.bodies = torch.zeros(0, dtype=torch.int64, device=device) if bodies is None else bodies
        self.motion = motion

    @classmethod
    def from_table(cls, table: Gaussians, motion: BodyMotion | None = None) -> Model:
        """Static rows of `table` first, then rigid ones (body b of `motion` has the object_id b + 1), then residual."""
        static, rigid, residual = (table.select(table.kind == kind) for kind in (STATIC, RIGID, RESIDUAL))
        every = Gaussians.concat([static, rigid, residual])
        return cls(
            {key: getattr(every, key) for key in GAUSSIAN_KEYS},
            {key: getattr(residual, key) for key in TIME_KEYS},
            rigid.object_id.long() - 1,
            motion,
        )

    def take(self, rows: Tensor) -> Model:
        """The rows `rows` (int64 [M], ascending) as a model with leaves of its own."""
        part = Model.__new__(Model)
        split, last = self.num_static, self.num_static + self.num_rigid
        residual = rows[rows >= last] - last
        part.gaussians = {k: v.detach().index_select(0, rows).requires_grad_(True) for k, v in self.gaussians.items()}
        part.time = {k: v.detach().index_select(0, residual).requires_grad_(True) for k, v in self.time.items()}
        part.bodies = self.bodies[rows[(rows >= split) & (rows < last)] - split]
        part.motion = self.motion
        return part

    @property
    def num_rows(self) -> int:
        """All rows together."""
        return self.gaussians["means"].shape[0]

    @property
    def num_rigid(self) -> int:
        """Rows that move with a body."""
        return self.bodies.shape[0]

    @property
    def num_static(self) -> int:
        """Rows that do not move; they come first."""
        return self.num_rows - self.num_rigid - self.time["time_centers"].shape[0]

    @property
    def parts(self) -> dict[str, slice]:
        """The rows of each kind that has any."""
        split, last, end = self.num_static, self.num_static + self.num_rigid, self.num_rows
        found = {"static": slice(0, split), "rigid": slice(split, last), "residual": slice(last, end)}
        return {kind: rows for kind, rows in found.items() if rows.stop > rows.start or kind == "static"}

    def temporal_factor(self, t: float) -> Tensor:
        """exp(-1/2 ((t - t_c) / sigma)^2) of the residual rows."""
        offset = (t - self.time["time_centers"]) * torch.exp(-self.time["log_durations"])
        return torch.exp(-0.5 * offset * offset)

    def means_at(self, t: float) -> Tensor:
        """Positions [N, 3] at time t [s]."""
        means, split, last = self.gaussians["means"], self.num_static, self.num_static + self.num_rigid
        parts = [means[:split]]
        if last > split:
            assert self.motion is not None
            rotations, positions, _ = self.motion.at(t, means.device)
            parts.append((rotations[self.bodies] @ means[split:last, :, None])[..., 0] + positions[self.bodies])
        if self.num_rows > last:
            parts.append(means[last:] + self.time["velocities"] * (t - self.time["time_centers"])[:, None])
        return torch.cat(parts) if len(parts) > 1 else means

    def quats_at(self, t: float) -> Tensor:
        """Rotations [N, 4] at time t [s]."""
        quats, split, last = self.gaussians["quats"], self.num_static, self.num_static + self.num_rigid
        if last == split:
            return quats
        assert self.motion is not None
        turned = quat_multiply(self.motion.at(t, quats.device)[2][self.bodies], quats[split:last])
        return torch.cat([quats[:split], turned, quats[last:]])

    def at(self, t: float | None) -> Posed:
        """The table at time t [s]; None draws the static rows alone."""
        g, split, last = self.gaussians, self.num_static, self.num_static + self.num_rigid
        opacities = torch.sigmoid(g["logit_opacities"])
        if t is None:
            hidden = opacities.new_zeros(self.num_rows - split)
            opacities = torch.cat([opacities[:split], hidden]) if split < self.num_rows else opacities
            return Posed(g["means"], g["quats"], torch.exp(g["log_scales"]), opacities, g["sh"])
        if last < self.num_rows:
            factor = self.temporal_factor(t)
            factor = torch.where(factor < PHI_MIN, torch.zeros_like(factor), factor)
            opacities = torch.cat([opacities[:last], opacities[last:] * factor])
        return Posed(self.means_at(t), self.quats_at(t), torch.exp(g["log_scales"]), opacities, g["sh"])

    def to_table(self) -> Gaussians:
        """A detached `Gaussians` table of the present values."""
        g = {key: value.detach() for key, value in self.gaussians.items()}
        rows, device = self.num_rows, g["means"].device
        kind = torch.full((rows,), STATIC, dtype=torch.uint8, device=device)
        object_id = torch.full((rows,), WORLD, dtype=torch.int32, device=device)
        split, last = self.num_static, self.num_static + self.num_rigid
        kind[split:last], kind[last:] = RIGID, RESIDUAL
        object_id[split:last] = self.bodies.to(torch.int32) + 1
        centers, durations = torch.zeros(rows, device=device), torch.zeros(rows, device=device)
        velocities = torch.zeros(rows, 3, device=device)
        centers[last:] = self.time["time_centers"].detach()
        durations[last:] = self.time["log_durations"].detach()
        velocities[last:] = self.time["velocities"].detach()
        return Gaussians(
            **g,
            object_id=object_id,
            kind=kind,
            time_centers=centers,
            log_durations=durations,
            velocities=velocities,
        )

    def tensors(self) -> dict[str, Tensor]:
        """All leaves by name, for a checkpoint."""
        return {**self.gaussians, **self.time}
