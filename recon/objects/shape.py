"""A body's first shape and colours, and what its motion teaches about them.

The first shape is the visual hull of a part's outlines in one pose. Once the body moves, every cell of it is carried
along: a cell that lands where nothing moved, in some camera at some instant, is not of the body,

    keep cell j  where  sum_{i,c} [T_i x_j in M_ci] >= KEPT sum_{i,c} [T_i x_j seen in c]

which is the same hull, of as many cameras as there are poses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from recon.fit.hull import Volume, hull_surface, surface_colours, visual_hull
from recon.geometry.camera import Camera
from recon.objects.splats import Splats

CELLS = 26  # along the longest side of a part
MISS = 0.2
MOST = 4000  # surface cells of a body
KEPT = 0.8


@dataclass(frozen=True)
class Shape:
    """Cells of a body: centres [N, 3] in its frame, size: m."""

    cells: np.ndarray
    size: float

    def surface(self) -> np.ndarray:
        """Centres [M, 3] of the cells on the surface."""
        return self.cells[hull_surface(self.cells, self.size)]


def first_shape(
    masks: list[np.ndarray], hidden: list[np.ndarray], cameras: list[Camera], low: np.ndarray, high: np.ndarray
) -> Shape | None:
    """The hull of the masks inside a box [3], [3]; None when nothing of a sensible size is left.

    masks, hidden: bool [H, W] of every camera. Cells are in the world.
    """
    side = float((high - low).max())
    size = side / CELLS
    room = 0.1 * side
    box = Volume(low - room, high + room)
    cells = largest_part(visual_hull(masks, cameras, box, size, MISS, hidden), size)
    return None if len(cells) < 27 else Shape(cells, size)


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


def coloured(
    shape: Shape, pose: np.ndarray, pictures: list[np.ndarray], usable: list[np.ndarray], cameras: list[Camera]
) -> Splats:
    """Surface Gaussians with the colours that the cameras see of the shape at `pose` [4, 4].

    pictures: uint8 [H, W, 3]; usable: bool [H, W], pixels that may be believed.
    """
    surface = shape.surface()
    world = surface @ pose[:3, :3].T + pose[:3, 3]
    colours, count = surface_colours(world, shape.size, pictures, usable, cameras)
    if (count == 0).any() and (count > 0).any():
        colours[count == 0] = np.median(colours[count > 0], axis=0)
    return Splats(surface, colours, shape.size)
