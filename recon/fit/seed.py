"""First values of the Gaussians: static ones from points, residual ones from the hulls of what moves."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from recon.calibrate.shell import Backdrop
from recon.capture.coverage import rig_extent
from recon.geometry.camera import Camera
from recon.geometry.sh import rgb_to_sh0
from recon.scene.gaussians import RESIDUAL, STATIC, Gaussians

NEW_OPACITY = 0.5
SPARE_OPACITY = 0.02
BACKDROP_OPACITY = 0.9
THICKNESS = 0.2  # of a static Gaussian, across the surface it lies on


@dataclass(frozen=True)
class MovingPoints:
    """Surface of what moves: positions [M, 3] m, colours [M, 3] in [0, 1], times [M] s, velocities [M, 3] m/s."""

    positions: np.ndarray
    colours: np.ndarray
    times: np.ndarray
    velocities: np.ndarray
    size: float  # metres, side of the hull cell each point stands for
    gap: float  # seconds between the instants


def scene_extent(cameras: list[Camera]) -> float:
    """1.1 times the extent of the rig, metres."""
    return 1.1 * rig_extent(cameras)


def neighbour_distance(points: np.ndarray, count: int = 3) -> np.ndarray:
    """Root mean square distance [M] of each point to its `count` nearest others."""
    if len(points) <= count:
        return np.full(len(points), 0.01)
    distance, _ = cKDTree(points).query(points, k=count + 1)
    return np.sqrt((distance[:, 1:] ** 2).mean(axis=1))


def surface_quats(points: np.ndarray, count: int = 12) -> np.ndarray:
    """Rotations [M, 4] (wxyz) whose z axis is the normal of the surface through each point and its neighbours."""
    quats = np.tile([1.0, 0.0, 0.0, 0.0], (len(points), 1))
    if len(points) <= count:
        return quats
    _, index = cKDTree(points).query(points, k=count + 1)
    for start in range(0, len(points), 50_000):
        part = slice(start, start + 50_000)
        around = points[index[part]] - points[index[part]].mean(axis=1, keepdims=True)
        _, axes = np.linalg.eigh(np.einsum("mki,mkj->mij", around, around))
        normal = axes[:, :, 0] * np.where(axes[:, 2:3, 0] < 0, -1.0, 1.0)
        # the shortest rotation from z to the normal
        half = np.stack([1.0 + normal[:, 2], -normal[:, 1], normal[:, 0], np.zeros(len(normal))], axis=1)
        quats[part] = half / np.linalg.norm(half, axis=1, keepdims=True)
    return quats


def thin_out(points: np.ndarray, count: int, rng: np.random.Generator, cell: float) -> np.ndarray:
    """Indices of `count` points, drawn with weight 1 / sqrt(points in the same voxel): dense places do not take all."""
    if len(points) <= count:
        return np.arange(len(points))
    voxel = np.floor(points / cell).astype(np.int64)
    _, inverse, sizes = np.unique(voxel, axis=0, return_inverse=True, return_counts=True)
    weight = 1.0 / np.sqrt(sizes[inverse.reshape(-1)])
    return np.sort(rng.choice(len(points), size=count, replace=False, p=weight / weight.sum()))


def _table(
    means: np.ndarray, sizes: np.ndarray, colours: np.ndarray, opacity: np.ndarray, kind: int, k: int,
    quats: np.ndarray | None = None, thickness: float = 1.0,
) -> Gaussians:  # fmt: skip
    """Gaussians of radius `sizes` [M] in their own x and y, and of `thickness` times that in z."""
    rows = len(means)
    turned = np.tile([1.0, 0.0, 0.0, 0.0], (rows, 1)) if quats is None else quats
    axes = np.log([1.0, 1.0, thickness])
    sh = torch.zeros(rows, k, 3, device="cpu")
    sh[:, 0] = rgb_to_sh0(torch.from_numpy(colours.astype(np.float32)))
    odds = np.clip(opacity, 1e-4, 1 - 1e-4)
    return Gaussians(
        means=torch.from_numpy(means.astype(np.float32)),
        log_scales=torch.from_numpy((np.log(sizes)[:, None] + axes).astype(np.float32)),
        quats=torch.from_numpy(turned.astype(np.float32)),
        logit_opacities=torch.from_numpy(np.log(odds / (1 - odds)).astype(np.float32)),
        sh=sh,
        object_id=torch.zeros(rows, dtype=torch.int32, device="cpu"),
        kind=torch.full((rows,), kind, dtype=torch.uint8, device="cpu"),
        time_centers=torch.zeros(rows, device="cpu"),
        log_durations=torch.zeros(rows, device="cpu"),
        velocities=torch.zeros(rows, 3, device="cpu"),
    )


def static_gaussians(
    points: np.ndarray,
    colours: np.ndarray,
    cameras: list[Camera],
    budget: int,
    sh_degree: int,
    rng: np.random.Generator,
    backdrop: Backdrop | None = None,
) -> Gaussians:
    """`budget` static Gaussians at the points ([M, 3], colours [M, 3] in [0, 1]), and one at each of the backdrop's.

    With fewer points than the budget, the rest are nearly transparent copies scattered round them: relocation finds
    them a place.
    """
    extent = scene_extent(cameras)
    keep = thin_out(points, budget, rng, extent / 100)
    points, colours = points[keep], colours[keep]
    sizes = np.clip(neighbour_distance(points), 1e-4 * extent, 0.05 * extent)
    quats = surface_quats(points)
    opacity = np.full(len(points), NEW_OPACITY)
    spare = budget - len(points)
    if spare > 0:
        source = rng.integers(0, len(points), spare)
        jitter = rng.normal(size=(spare, 3)) * sizes[source, None]
        points = np.concatenate([points, points[source] + jitter])
        colours = np.concatenate([colours, colours[source]])
        sizes, quats = np.concatenate([sizes, sizes[source]]), np.concatenate([quats, quats[source]])
        opacity = np.concatenate([opacity, np.full(spare, SPARE_OPACITY)])
    sizes = 0.7 * sizes
    if backdrop is not None and len(backdrop.points) > 0:
        behind = backdrop.points
        points, colours = np.concatenate([points, behind.xyz]), np.concatenate([colours, behind.rgb / 255.0])
        sizes = np.concatenate([sizes, 0.8 * neighbour_distance(backdrop.surface)[backdrop.bare]])
        quats = np.concatenate([quats, surface_quats(backdrop.surface)[backdrop.bare]])
        opacity = np.concatenate([opacity, np.full(len(behind), BACKDROP_OPACITY)])
    return _table(points, sizes, colours, opacity, STATIC, (sh_degree + 1) ** 2, quats, THICKNESS)


def residual_gaussians(moving: MovingPoints, budget: int, sh_degree: int, rng: np.random.Generator) -> Gaussians:
    """`budget` residual Gaussians from the hull surfaces, an equal share for each instant."""
    if len(moving.positions) == 0:
        return _table(np.zeros((0, 3)), np.zeros(0), np.zeros((0, 3)), np.zeros(0), RESIDUAL, (sh_degree + 1) ** 2)
    again = len(moving.positions) < budget
    chosen = np.sort(rng.choice(len(moving.positions), size=budget, replace=again))
    positions = moving.positions[chosen]
    density = min(1.0, budget / len(moving.positions))
    size = moving.size * 0.6 / math.sqrt(density)
    if again:
        positions = positions + rng.normal(size=positions.shape) * 0.3 * moving.size
    table = _table(
        positions,
        np.full(budget, size),
        moving.colours[chosen],
        np.full(budget, NEW_OPACITY),
        RESIDUAL,
        (sh_degree + 1) ** 2,
    )
    jitter = rng.uniform(-0.5, 0.5, budget) * moving.gap
    times = moving.times[chosen] + jitter
    velocities = moving.velocities[chosen]
    return replace(
        table,
        means=table.means + torch.from_numpy((velocities * jitter[:, None]).astype(np.float32)),
        time_centers=torch.from_numpy(times.astype(np.float32)),
        velocities=torch.from_numpy(velocities.astype(np.float32)),
        log_durations=torch.full((budget,), math.log(moving.gap), device="cpu"),
    )


def point_velocities(
    positions: np.ndarray,
    colours: np.ndarray,
    next_positions: np.ndarray,
    next_colours: np.ndarray,
    gap: float,
    reach: float,
) -> np.ndarray:
    """m/s [M, 3]: mean displacement to the 3 nearest points of the next instant, near in space and in colour."""
    if len(positions) == 0 or len(next_positions) < 3:
        return np.zeros_like(positions)
    # one colour unit counts as `reach` metres
    here = np.concatenate([positions, reach * colours], axis=1)
    there = np.concatenate([next_positions, reach * next_colours], axis=1)
    _, index = cKDTree(there).query(here, k=3)
    moved = next_positions[index].mean(axis=1) - positions
    length = np.linalg.norm(moved, axis=1, keepdims=True)
    return moved * np.minimum(1.0, reach / np.maximum(length, 1e-9)) / gap


def as_tensor(values: np.ndarray, device: torch.device) -> Tensor:
    """float32 tensor on `device`."""
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).to(device, torch.float32)
