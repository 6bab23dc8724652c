"""The bench as things a robot can hit: a table slab and upright boxes, from what the cameras see of the static set.

World: metres, +z up, table top near z = 0. A place belongs to the table when most of what is seen over it lies at the
table's height; what hangs in the air without anything below it is left out, so that floaters never block an arm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recon.core.errors import InputError

Array = NDArray[np.float64]

CELL = 0.02  # m, side of a grid cell
THICKNESS = 0.04  # m, of the table slab
LOWEST = 0.03  # m above the table: lower things are the table's own roughness
HIGHEST = 1.0  # m above the table
GAP = 0.05  # m, largest vertical gap inside one standing thing
LEVEL = 0.02  # m, the table's surface lies within this of its top
SHARE = 0.5  # of what is seen over a cell must belong to a thing
MAX_BOXES = 160


@dataclass(frozen=True)
class Box:
    """An upright box: centre [3] m, half extents [3] m, yaw rad about +z."""

    center: tuple[float, float, float]
    half: tuple[float, float, float]
    yaw: float = 0.0

    def contains(self, points: Array, margin: float | Array = 0.0) -> NDArray[np.bool_]:
        """Whether points [N, 3] lie in the box grown by `margin` metres (one, or one per axis)."""
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        d = points - np.asarray(self.center)
        local = np.stack([c * d[:, 0] + s * d[:, 1], -s * d[:, 0] + c * d[:, 1], d[:, 2]], axis=1)
        return np.all(np.abs(local) <= np.asarray(self.half) + margin, axis=1)


@dataclass(frozen=True)
class Bench:
    """What collides: the table slab (its top is `top` m high) and the boxes that stand on it."""

    table: Box
    boxes: tuple[Box, ...]

    @property
    def top(self) -> float:
        """Height of the table's top, m."""
        return self.table.center[2] + self.table.half[2]


def find_bench(points: Array, near: tuple[float, float] = (0.0, 0.0)) -> Bench:
    """Find the table that lies nearest to `near` (x, y) and what stands on it.

    Args:
        points: [N, 3] m, world, z up: the visible surface (see surface.py).
        near: A point the table is known to lie under or beside, e.g. the robot's base.

    Raises:
        InputError: no horizontal surface was found near z = 0.
    """
    points = points[np.isfinite(points).all(axis=1)]
    top = _top_height(points, near)
    yaw, low, high = _table_rectangle(points, top, near)
    middle = _rotate((low + high)[None] / 2, yaw)[0]
    half = (high - low) / 2
    table = Box(
        (float(middle[0]), float(middle[1]), top - THICKNESS / 2), (float(half[0]), float(half[1]), THICKNESS / 2), yaw
    )
    heights = _height_map(points, top, yaw, low, high)
    return Bench(table, tuple(_boxes(heights, top, yaw, low)))


def carve(bench: Bench, low: Array, high: Array) -> Bench:
    """The bench without the boxes that reach into the axis-aligned volume low..high [3] m."""
    middle, half = (np.asarray(low) + high) / 2, (np.asarray(high) - low) / 2
    kept = [box for box in bench.boxes if not _overlaps(box, middle, half)]
    return Bench(bench.table, tuple(kept))


def _overlaps(box: Box, middle: Array, half: Array) -> bool:
    # conservative: the box's own bounding box, axis by axis
    c, s = abs(math.cos(box.yaw)), abs(math.sin(box.yaw))
    reach = np.array([c * box.half[0] + s * box.half[1], s * box.half[0] + c * box.half[1], box.half[2]])
    return bool(np.all(np.abs(np.asarray(box.center) - middle) <= reach + half))


def _top_height(points: Array, near: tuple[float, float]) -> float:
    band = points[np.abs(points[:, 2]) < 0.03]
    if len(band) < 50:
        raise InputError(
            "no table surface was found near z = 0",
            why=f"only {len(band)} visible points lie within 3 cm of it",
            fix="Build the scene with its world up axis along +z and the table top at z = 0.",
        )
    # the nearer half: what is seen at that height far away may be another surface
    distance = np.linalg.norm(band[:, :2] - np.asarray(near), axis=1)
    return float(np.median(band[distance <= np.median(distance), 2]))


def _rotate(xy: Array, yaw: float) -> Array:
    c, s = math.cos(yaw), math.sin(yaw)
    return np.stack([c * xy[:, 0] - s * xy[:, 1], s * xy[:, 0] + c * xy[:, 1]], axis=1)


def _table_rectangle(points: Array, top: float, near: tuple[float, float]) -> tuple[float, Array, Array]:
    """The yaw and the corners (in axes turned by it) of the surface patch at `near`."""
    from scipy import ndimage

    level = np.abs(points[:, 2] - top) < LEVEL
    origin = points[level, :2].min(axis=0) - 3 * CELL
    extent = np.minimum(((points[level, :2].max(axis=0) - origin) / CELL).astype(int) + 4, 2000)
    edges = [origin[k] + CELL * np.arange(extent[k] + 1) for k in (0, 1)]
    seen = np.histogram2d(points[:, 0], points[:, 1], edges)[0]
    flat = np.histogram2d(points[level, 0], points[level, 1], edges)[0]
    grid = flat > 0.5 * seen
    grid = ndimage.binary_closing(grid, iterations=3)
    grid = ndimage.binary_opening(grid, iterations=2)  # walls cross z = 0 as thin lines
    labels, count = ndimage.label(grid)
    if count == 0:
        raise InputError(
            "no table surface was found near z = 0",
            why="the Gaussians there form no patch wider than 10 cm",
            fix="Check the world's up axis and height, and that the cameras see the table.",
        )
    cells = np.argwhere(labels > 0)
    sizes = np.bincount(labels.ravel())
    distance = np.linalg.norm((cells + 0.5) * CELL + origin - np.asarray(near), axis=1)
    large = sizes[labels[cells[:, 0], cells[:, 1]]] >= max(25, 0.1 * sizes[1:].max())
    nearest = cells[np.argmin(np.where(large, distance, np.inf))]
    patch = (np.argwhere(labels == labels[nearest[0], nearest[1]]) + 0.5) * CELL + origin
    return _tightest_rectangle(patch)


def _tightest_rectangle(patch: Array) -> tuple[float, Array, Array]:
    best: tuple[float, float, Array, Array] | None = None
    for degrees in range(-45, 45, 3):
        turned = _rotate(patch, -math.radians(degrees))
        low, high = np.quantile(turned, 0.005, axis=0) - CELL / 2, np.quantile(turned, 0.995, axis=0) + CELL / 2
        area = float(np.prod(high - low)) * (1 + 1e-6 * abs(degrees))
        if best is None or area < best[0]:
            best = (area, math.radians(degrees), low, high)
    assert best is not None
    return best[1], best[2], best[3]


def _height_map(points: Array, top: float, yaw: float, low: Array, high: Array) -> Array:
    """Height above the table of what stands on each cell, 0 where nothing does. [X, Y] m."""
    shape = np.maximum(np.ceil((high - low) / CELL).astype(int), 1)
    first, standing = np.zeros(shape), np.zeros(shape, bool)
    cell = np.floor((_rotate(points[:, :2], -yaw) - low) / CELL).astype(int)
    z = points[:, 2] - top
    keep = np.all((cell >= 0) & (cell < shape), axis=1) & (z > LOWEST / 2) & (z < HIGHEST)
    inside = np.all((cell >= 0) & (cell < shape), axis=1) & (z > -GAP) & (z < HIGHEST)
    seen = np.bincount(cell[inside, 0] * shape[1] + cell[inside, 1], minlength=int(np.prod(shape)))
    cell, z = cell[keep], z[keep]
    flat = cell[:, 0] * shape[1] + cell[:, 1]
    order = np.lexsort((z, flat))
    flat, z = flat[order], z[order]
    for start, stop in _runs(flat):
        # the lowest thing over this cell: climb while gaps stay small
        column = z[start:stop]
        breaks = np.flatnonzero(np.diff(column) > GAP)
        last = int(breaks[0]) + 1 if len(breaks) else len(column)
        if last >= max(2.0, SHARE * seen[flat[start]]) and column[last - 1] >= LOWEST:
            place = flat[start] // shape[1], flat[start] % shape[1]
            first[place], standing[place] = column[last - 1], column[0] <= GAP
    return _drop_specks(np.where(_supported(first, standing), first, 0.0))


def _supported(heights: Array, standing: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Cells that stand on the table, and cells beside them of like height: a box shows its top but not its inside."""
    supported = standing.copy()
    while True:
        grown = supported.copy()
        for axis, step in ((0, 1), (0, -1), (1, 1), (1, -1)):
            beside, height = np.roll(supported, step, axis), np.roll(heights, step, axis)
            edge: list[slice | int] = [slice(None), slice(None)]
            edge[axis] = 0 if step == 1 else -1
            beside[tuple(edge)] = False
            grown |= beside & (heights > 0) & (np.abs(heights - height) < GAP)
        if np.array_equal(grown, supported):
            return supported
        supported = grown


def _runs(sorted_keys: NDArray[np.int64]) -> list[tuple[int, int]]:
    if len(sorted_keys) == 0:
        return []
    cuts = np.flatnonzero(np.diff(sorted_keys)) + 1
    edges = [0, *cuts.tolist(), len(sorted_keys)]
    return list(zip(edges[:-1], edges[1:], strict=True))


def _drop_specks(heights: Array) -> Array:
    from scipy import ndimage

    labels, _ = ndimage.label(heights > 0, structure=np.ones((3, 3)))
    sizes = np.bincount(labels.ravel())
    return np.where((labels > 0) & (sizes[labels] >= 4), heights, 0.0)


def _boxes(heights: Array, top: float, yaw: float, low: Array) -> list[Box]:
    """Cover the height map by few rectangles of equal height (rounded up to 2 cm), the largest first."""
    level = np.ceil(heights / CELL).astype(int)
    boxes: list[Box] = []
    while len(boxes) < MAX_BOXES and level.any():
        i, j = np.unravel_index(int(np.argmax(level)), level.shape)
        x0, x1, y0, y1 = _grow(level, int(i), int(j))
        height = float(level[x0:x1, y0:y1].max()) * CELL
        level[x0:x1, y0:y1] = 0
        corner = low + np.array([x0, y0]) * CELL
        size = np.array([x1 - x0, y1 - y0]) * CELL
        middle = _rotate((corner + size / 2)[None], yaw)[0]
        boxes.append(
            Box(
                (float(middle[0]), float(middle[1]), top + height / 2),
                (float(size[0]) / 2, float(size[1]) / 2, height / 2),
                yaw,
            )
        )
    return boxes


def _grow(level: NDArray[np.int64], i: int, j: int) -> tuple[int, int, int, int]:
    """Grow a rectangle from (i, j) over cells whose height is within 4 cm of the first one's."""
    near = (level > 0) & (level >= level[i, j] - 2)
    x0, x1, y0, y1 = i, i + 1, j, j + 1
    grown = True
    while grown:
        grown = False
        if y1 < level.shape[1] and near[x0:x1, y1].all():
            y1, grown = y1 + 1, True
        if y0 > 0 and near[x0:x1, y0 - 1].all():
            y0, grown = y0 - 1, True
        if x1 < level.shape[0] and near[x1, y0:y1].all():
            x1, grown = x1 + 1, True
        if x0 > 0 and near[x0 - 1, y0:y1].all():
            x0, grown = x0 - 1, True
    return x0, x1, y0, y1
