"""The Gaussian table: row-aligned tensors, stored the way they are optimised (logs and logits)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch

from recon.core.errors import InputError
from recon.geometry.sh import sh_degree

STATIC, RIGID, RESIDUAL = 0, 1, 2  # values of `kind`
WORLD = 0  # the object_id of everything that belongs to no body

_ROW_SHAPES: dict[str, tuple[int, ...]] = {
    "means": (3,),
    "log_scales": (3,),
    "quats": (4,),
    "logit_opacities": (),
    "object_id": (),
    "kind": (),
    "time_centers": (),
    "log_durations": (),
    "velocities": (3,),
}


@dataclass(frozen=True, eq=False)
class Gaussians:
    """N Gaussians in metres and seconds.

    `means` are in the frame of the row's body (`object_id`; the world for 0). `quats` are raw wxyz. Static rows stand
    still; rigid rows move with their body; residual rows fly at `velocities` (m/s) and fade around `time_centers` with
    a standard deviation of exp(`log_durations`) seconds. The time fields of other rows are not used.
    """

    means: torch.Tensor  # [N, 3] f32
    log_scales: torch.Tensor  # [N, 3] f32
    quats: torch.Tensor  # [N, 4] f32
    logit_opacities: torch.Tensor  # [N] f32
    sh: torch.Tensor  # [N, K, 3] f32, K = (degree + 1)^2
    object_id: torch.Tensor  # [N] int32
    kind: torch.Tensor  # [N] uint8
    time_centers: torch.Tensor  # [N] f32
    log_durations: torch.Tensor  # [N] f32
    velocities: torch.Tensor  # [N, 3] f32

    @classmethod
    def static(
        cls,
        means: torch.Tensor,
        log_scales: torch.Tensor,
        quats: torch.Tensor,
        logit_opacities: torch.Tensor,
        sh: torch.Tensor,
    ) -> Gaussians:
        """A table of static rows of the world."""
        count, device, dtype = len(means), means.device, means.dtype
        return cls(
            means=means,
            log_scales=log_scales,
            quats=quats,
            logit_opacities=logit_opacities,
            sh=sh,
            object_id=torch.full((count,), WORLD, dtype=torch.int32, device=device),
            kind=torch.full((count,), STATIC, dtype=torch.uint8, device=device),
            time_centers=torch.zeros(count, dtype=dtype, device=device),
            log_durations=torch.zeros(count, dtype=dtype, device=device),
            velocities=torch.zeros(count, 3, dtype=dtype, device=device),
        )

    @classmethod
    def empty(cls, degree: int = 0, device: torch.device | str = "cpu") -> Gaussians:
        """A table of no rows with spherical harmonics of `degree`."""
        shapes = [(0, 3), (0, 3), (0, 4), (0,), (0, (degree + 1) ** 2, 3)]
        return cls.static(*(torch.zeros(shape, device=device) for shape in shapes))

    @classmethod
    def concat(cls, tables: Sequence[Gaussians]) -> Gaussians:
        """All rows of `tables`, in order; colours of lower degree are padded with zeros."""
        if not tables:
            return cls.empty()
        width = max(table.sh.shape[1] for table in tables)
        columns = {name: [getattr(table, name) for table in tables] for name in table_fields() if name != "sh"}
        sh = [torch.nn.functional.pad(table.sh, (0, 0, 0, width - table.sh.shape[1])) for table in tables]
        return cls(sh=torch.cat(sh), **{name: torch.cat(parts) for name, parts in columns.items()})

    def __len__(self) -> int:
        return len(self.means)

    @property
    def degree(self) -> int:
        """Degree of the spherical harmonics, 0 to 3."""
        return sh_degree(self.sh.shape[1])

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.means.device

    def tensors(self) -> dict[str, torch.Tensor]:
        """The columns by name."""
        return {name: getattr(self, name) for name in table_fields()}

    def to(self, device: torch.device | str) -> Gaussians:
        """The same table on another device."""
        return Gaussians(**{name: column.to(device) for name, column in self.tensors().items()})

    def select(self, rows: torch.Tensor) -> Gaussians:
        """The rows named by a boolean mask [N] or an index [M], in that order."""
        return Gaussians(**{name: column[rows] for name, column in self.tensors().items()})

    def of_body(self, object_id: int) -> Gaussians:
        """The rows of one body."""
        return self.select(self.object_id == object_id)

    def validate(self, where: str = "the Gaussian table") -> Gaussians:
        """Itself, after checking shapes, types, one device, finite numbers and known kinds; InputError otherwise."""
        count = len(self.means)
        for name, tail in _ROW_SHAPES.items():
            if tuple(getattr(self, name).shape) != (count, *tail):
                raise InputError(f"{where}: {name} has shape {list(getattr(self, name).shape)}, not {[count, *tail]}")
        if self.sh.ndim != 3 or self.sh.shape[0] != count or self.sh.shape[2] != 3:
            raise InputError(f"{where}: sh has shape {list(self.sh.shape)}, not [{count}, K, 3]")
        sh_degree(self.sh.shape[1])
        for name, column in self.tensors().items():
            integer = {"object_id": torch.int32, "kind": torch.uint8}.get(name)
            if column.dtype != (integer or self.means.dtype) or (integer is None and not column.is_floating_point()):
                raise InputError(f"{where}: {name} has the type {column.dtype}", why="float32, int32 ids, uint8 kinds")
            if column.device != self.device:
                raise InputError(f"{where}: {name} is on {column.device}, means on {self.device}")
            if integer is None and not _all_finite(column):
                bad = int((~torch.isfinite(column.detach().reshape(count, -1))).any(1).sum())
                raise InputError(f"{where}: {name} is not finite in {bad} of {count} rows")
        if bool((self.kind > RESIDUAL).any()):
            raise InputError(f"{where}: kind holds {int(self.kind.max())}", why="only 0, 1 and 2 are known")
        if bool((self.object_id < 0).any()):
            raise InputError(f"{where}: object_id holds {int(self.object_id.min())}", why="ids start at 0")
        if bool(((self.kind == RIGID) & (self.object_id == WORLD)).any()):
            raise InputError(f"{where}: a rigid row has object_id 0", why="0 is the world, which does not move")
        return self


def _all_finite(column: torch.Tensor) -> bool:
    # One pass without a temporary: the extremes carry any NaN or infinity with them.
    if column.numel() == 0:
        return True
    low, high = torch.aminmax(column.detach())
    return bool(torch.isfinite(low) & torch.isfinite(high))


def table_fields() -> tuple[str, ...]:
    """Names of the table's columns."""
    return tuple(field.name for field in fields(Gaussians))
