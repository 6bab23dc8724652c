"""The trainable table: every Gaussian of a fit in one set of leaf tensors, static rows first, residual rows after.

At time t a row is drawn at

    x(t)     = mu + v (t - t_c)                                   (v = 0 for static rows)
    alpha(t) = sigmoid(o) exp(-1/2 ((t - t_c) / sigma_t)^2)       (factor 1 for static rows)

Rows whose temporal factor is below `PHI_MIN` get opacity 0, which the rasteriser culls before it does any other work.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from recon.scene.gaussians import RESIDUAL, STATIC, Gaussians

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

    gaussians: dict of [N, ...] leaves, the rows [0, num_static) static, the rest residual.
    time: dict of [N - num_static, ...] leaves (seconds, log seconds, metres per second).
    """

    def __init__(self, gaussians: dict[str, Tensor], time: dict[str, Tensor]) -> None:
        self.gaussians = {
            key: gaussians[key].detach().clone().contiguous().requires_grad_(True) for key in GAUSSIAN_KEYS
        }
        self.time = {key: time[key].detach().clone().contiguous().requires_grad_(True) for key in TIME_KEYS}

    @classmethod
    def from_table(cls, table: Gaussians) -> Model:
        """Static rows of `table` first, residual rows after; other kinds are not trained here."""
        static = table.select(table.kind == STATIC)
        residual = table.select(table.kind == RESIDUAL)
        both = Gaussians.concat([static, residual])
        return cls(
            {key: getattr(both, key) for key in GAUSSIAN_KEYS},
            {key: getattr(residual, key) for key in TIME_KEYS},
        )

    def take(self, rows: Tensor) -> Model:
        """The rows `rows` (int64 [M], ascending) as a model with leaves of its own."""
        part = Model.__new__(Model)
        residual = rows[rows >= self.num_static] - self.num_static
        part.gaussians = {k: v.detach().index_select(0, rows).requires_grad_(True) for k, v in self.gaussians.items()}
        part.time = {k: v.detach().index_select(0, residual).requires_grad_(True) for k, v in self.time.items()}
        return part

    @property
    def num_rows(self) -> int:
        """Static and residual rows together."""
        return self.gaussians["means"].shape[0]

    @property
    def num_static(self) -> int:
        """Rows that do not move; they come first."""
        return self.num_rows - self.time["time_centers"].shape[0]

    def temporal_factor(self, t: float) -> Tensor:
        """exp(-1/2 ((t - t_c) / sigma)^2) of the residual rows, [N - num_static]."""
        offset = (t - self.time["time_centers"]) * torch.exp(-self.time["log_durations"])
        return torch.exp(-0.5 * offset * offset)

    def means_at(self, t: float) -> Tensor:
        """Positions [N, 3] at time t [s]."""
        means, split = self.gaussians["means"], self.num_static
        moved = means[split:] + self.time["velocities"] * (t - self.time["time_centers"])[:, None]
        return torch.cat([means[:split], moved])

    def at(self, t: float | None) -> Posed:
        """The table at time t [s]; None draws the static rows alone."""
        g = self.gaussians
        means = g["means"]
        opacities = torch.sigmoid(g["logit_opacities"])
        split = self.num_static
        if split < self.num_rows:
            if t is None:
                factor = torch.zeros(self.num_rows - split, device=means.device)
            else:
                factor = self.temporal_factor(t)
                factor = torch.where(factor < PHI_MIN, torch.zeros_like(factor), factor)
                means = self.means_at(t)
            opacities = torch.cat([opacities[:split], opacities[split:] * factor])
        return Posed(means, g["quats"], torch.exp(g["log_scales"]), opacities, g["sh"])

    def to_table(self) -> Gaussians:
        """A detached `Gaussians` table of the present values."""
        g = {key: value.detach() for key, value in self.gaussians.items()}
        rows, split, device = self.num_rows, self.num_static, g["means"].device
        kind = torch.full((rows,), STATIC, dtype=torch.uint8, device=device)
        kind[split:] = RESIDUAL
        centers, durations = torch.zeros(rows, device=device), torch.zeros(rows, device=device)
        velocities = torch.zeros(rows, 3, device=device)
        centers[split:] = self.time["time_centers"].detach()
        durations[split:] = self.time["log_durations"].detach()
        velocities[split:] = self.time["velocities"].detach()
        return Gaussians(
            **g,
            object_id=torch.zeros(rows, dtype=torch.int32, device=device),
            kind=kind,
            time_centers=centers,
            log_durations=durations,
            velocities=velocities,
        )

    def tensors(self) -> dict[str, Tensor]:
        """All leaves by name, for a checkpoint."""
        return {**self.gaussians, **self.time}
