"""A body's shape and colours: the visual hull of what was cut out of the pictures in one pose, finer in a second pass,
and what the cameras see on its surface."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy import ndimage
from scipy.spatial import cKDTree

from recon.fit.hull import Volume, hull_surface, visual_hull
from recon.geometry.camera import Camera, pixel_cells
from recon.objects.splats import OPACITY, Splats

CELLS = 28  # along the longest side of a part
MISS = 0.0  # share of the cameras whose outline may miss a cell
FEWEST = 27  # cells of a body
CUT = 0.86  # of the cameras must show a cell inside what they cut out, or all of them,
WHOLE = 0.6  # where that leaves as much of the shape: then no outline has a part missing
TABLE = -0.002  # m, of the table top's height: what it is known to
STANDS = 0.6  # of a body's cells are above the table, if it stands there
INWARD = 0.35  # of a cell, that Gaussians lie under the surface of its outer cells, for they reach beyond their centres


@dataclass(frozen=True)
class Shape:
    """Cells of a body: centres [N, 3] in its frame, size: m."""

    cells: np.ndarray
    size: float

    def surface(self) -> np.ndarray:
        """Centres [M, 3] of the cells on the surface."""
        return self.cells[hull_surface(self.cells, self.size)]

    def standing(self) -> Shape:
        """Of cells in a world with z up, table top at z = 0: what is above the table, of a body that stands on it.

        Cameras that all look down see every cell of a cone under a body as the body.
        """
        above = self.cells[:, 2] > TABLE
        return Shape(self.cells[above], self.size) if above.mean() >= STANDS else self

    def sunk(self) -> np.ndarray:
        """The same, moved a little towards the inside: [M, 3]."""
        outer = self.surface()
        around = cKDTree(self.cells).query_ball_point(outer, 2.6 * self.size)
        inward = np.stack([self.cells[near].mean(0) for near in around]) - outer
        length = np.linalg.norm(inward, axis=1, keepdims=True)
        return np.asarray(outer + INWARD * self.size * inward / np.maximum(length, 1e-9))


def first_shape(
    masks: list[np.ndarray], sure: list[np.ndarray], hidden: list[np.ndarray], cameras: list[Camera],
    low: np.ndarray, high: np.ndarray,
) -> Shape | None:  # fmt: skip
    """The hull of the masks inside a box [3], [3]; None when nothing of a sensible size is left.

    masks: bool [H, W] of every camera, where anything changed: a cell is in all of them; sure: what was cut out there,
    a cell is in almost all of them; hidden: what says nothing. Cells are in the world.
    """
    for _ in range(2):  # the second time in the box of what the first has found, so that cells are as fine
        side = float((high - low).max())
        size = side / CELLS
        room = 0.1 * side
        box = Volume(low - room, high + room)
        cells = visual_hull(masks, cameras, box, size, MISS, hidden)
        if len(cells) == 0:
            return None
        seen, votes = np.zeros(len(cells)), np.zeros(len(cells))
        for camera, mask, nothing in zip(cameras, sure, hidden, strict=True):
            inside, column, row, _ = pixel_cells(camera, cells)
            inside[inside] &= ~nothing[row[inside], column[inside]]
            seen += inside
            votes[inside] += mask[row[inside], column[inside]]
        strict = largest_part(cells[votes >= seen], size)
        cells = largest_part(cells[votes >= CUT * seen], size)
        cells = strict if len(strict) >= WHOLE * len(cells) else cells
        if len(cells) < FEWEST:
            return None
        low, high = cells.min(0) - size / 2, cells.max(0) + size / 2
    return Shape(cells, size)


def largest_part(cells: np.ndarray, size: float) -> np.ndarray:
    """The cells [M, 3] of the largest connected part."""
    if len(cells) == 0:
        return cells
    index = np.round((cells - cells.min(0)) / size).astype(np.int64)
    grid = np.zeros(index.max(0) + 1, bool)
    grid[tuple(index.T)] = True
    labels, count = ndimage.label(grid)
    if count <= 1:
        return cells
    own = labels[tuple(index.T)]
    return cells[own == 1 + np.argmax(np.bincount(own)[1:])]


def samples(
    points: np.ndarray, size: float, pictures: list[np.ndarray], usable: list[np.ndarray], cameras: list[Camera]
) -> np.ndarray:
    """float32 [C, N, 3], in [0, 1]: the colour each camera sees at points [N, 3] of a surface; NaN where it does not.

    The points themselves, drawn as squares of a cell's size into a depth buffer, hide each other.
    """
    found = np.full((len(cameras), len(points), 3), np.nan, np.float32)
    for c, (camera, picture, mask) in enumerate(zip(cameras, pictures, usable, strict=True)):
        inside, column, row, depth = pixel_cells(camera, points)
        inside &= depth > 1e-3
        if not inside.any():
            continue
        block = max(1, int(np.ceil(1.5 * camera.fx * size / float(np.median(depth[inside])))))
        x, y = column // block, row // block
        key = np.where(inside, y * (camera.width // block + 1) + x, 0)
        buffer = np.full((camera.height // block + 1) * (camera.width // block + 1), np.inf)
        np.minimum.at(buffer, key[inside], depth[inside])
        front = inside & (depth <= buffer[key] + 2.0 * size)
        front[front] &= mask[row[front], column[front]]
        found[c, front] = picture[row[front], column[front]].astype(np.float32) / 255.0
    return found


def _balanced(colours: np.ndarray) -> np.ndarray:
    """The samples [C, N, 3] with each camera's own exposure divided out."""
    bright = colours.sum(-1)
    middle = np.nanmedian(bright, axis=0, keepdims=True)
    gain = np.nanmedian((bright + 0.1) / (middle + 0.1), axis=1)
    gain = np.where(np.isfinite(gain), np.clip(gain, 0.7, 1.4), 1.0)
    return np.asarray(colours / gain[:, None, None])


def coloured(
    shape: Shape, pose: np.ndarray, pictures: list[np.ndarray], usable: list[np.ndarray], cameras: list[Camera]
) -> Splats:
    """Surface Gaussians with the colours that the cameras see of the shape at `pose` [4, 4].

    pictures: uint8 [H, W, 3]; usable: bool [H, W], pixels that may be believed.
    """
    surface = shape.surface()
    world = surface @ pose[:3, :3].T + pose[:3, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        colours = np.nanmedian(_balanced(samples(world, shape.size, pictures, usable, cameras)), axis=0)
    blind = np.isnan(colours).any(-1)
    if blind.all():
        colours[:] = 0.5
    elif blind.any():  # what no camera sees looks as its nearest neighbour that one does
        _, nearest = cKDTree(surface[~blind]).query(surface[blind])
        colours[blind] = colours[~blind][nearest]
    opacities = np.full(len(surface), OPACITY, np.float32)
    return Splats(shape.sunk(), np.clip(colours, 0.0, 1.0).astype(np.float32), shape.size, opacities)


def thinned(splats: Splats, factor: int = 2) -> Splats:
    """Fewer, larger Gaussians that look alike from afar."""
    size = factor * splats.size
    voxel = np.floor(splats.points / size).astype(np.int64)
    _, inverse, count = np.unique(voxel, axis=0, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    sums = np.zeros((len(count), 7))
    np.add.at(sums, inverse, np.concatenate([splats.points, splats.colours, splats.opacities[:, None]], axis=1))
    points, colours, opacities = np.split(sums / count[:, None], [3, 6], axis=1)
    return Splats(points, colours.astype(np.float32), size, opacities[:, 0].astype(np.float32))
