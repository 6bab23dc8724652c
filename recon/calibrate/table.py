"""The table top that the cameras look at, as a level plane with an outline, where the pictures show it clearly.

Its height is where matched points lie densest below the cameras, set right by matching over level planes close to it;
its outline is the rectangle round what matches there: few corners of a table have texture of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import cv2
import numpy as np
from scipy import ndimage

from recon.calibrate.slanted import View, matched, support, view_of
from recon.calibrate.tracks import match_points
from recon.capture.coverage import rig_extent
from recon.geometry.camera import Camera, pixel_rays

DOWN = np.array([0.0, 0.0, -1.0])
BIN = 0.01  # of the rig's extent, of heights
MIN_SHARE, MIN_POINTS = 0.1, 50  # of the matched points below the cameras that lie on the table
NEARBY = np.linspace(-0.03, 0.03, 13)  # of the extent: heights looked at more closely
MIN_PIXELS = 2000  # of all views that match there
CELL, PER_CELL = 0.03, 3  # of the extent; matches that fill a cell
ROUND = 7  # pixels of the reduced picture: windows just beyond an edge match too


@dataclass(frozen=True)
class Table:
    """height: metres, z. outline: convex [K, 2] x and y, anticlockwise or clockwise."""

    height: float
    outline: np.ndarray

    def inverse_depth(self, camera: Camera) -> np.ndarray:
        """float32 [h, w], 1 / metres along the optical axis; 0 where a pixel's ray misses the table."""
        rays = pixel_rays(camera)
        drop = self.height - float(camera.center[2])
        inverse = np.where(rays[:, 2] * drop > 0, rays[:, 2] / drop, 0.0)
        at = camera.center[:2] + rays[:, :2] / np.where(inverse > 0, inverse, 1.0)[:, None]
        edge = np.roll(self.outline, -1, axis=0) - self.outline
        offset = at[:, None] - self.outline  # [N, K, 2]
        side = edge[:, 0] * offset[..., 1] - edge[:, 1] * offset[..., 0]
        inside = (side >= 0).all(axis=1) | (side <= 0).all(axis=1)
        return np.where(inside, inverse, 0.0).reshape(camera.height, camera.width).astype(np.float32)


def find_table(
    plates: Mapping[str, np.ndarray], cameras: Mapping[str, Camera], valid: Mapping[str, np.ndarray]
) -> Table | None:
    """The table of a world whose z axis is up; None where no level plane stands out.

    plates: uint8 [H, W, 3]; cameras: their pinhole cameras; valid: bool [H, W].
    """
    extent = rig_extent(cameras.values())
    z = match_points(plates, cameras, valid).xyz[:, 2]
    z = z[z < min(float(camera.center[2]) for camera in cameras.values())]
    if len(z) < MIN_POINTS:
        return None
    counts, edges = np.histogram(z, bins=np.arange(z.min(), z.max() + 2 * BIN * extent, BIN * extent))
    counts = np.convolve(counts, np.ones(3), "same")
    best = int(counts.argmax())
    if counts[best] < max(MIN_POINTS, MIN_SHARE * len(z)):
        return None
    views = [view_of(plates[name], cameras[name], valid[name]) for name in plates]
    heights = 0.5 * (edges[best] + edges[best + 1]) + NEARBY * extent
    found = support(views, DOWN, -heights)
    if found.max() < MIN_PIXELS:
        return None
    height = float(heights[found.argmax()])
    outline = _outline(views, height, CELL * extent)
    return None if outline is None else Table(height, outline)


def _outline(views: list[View], height: float, cell: float) -> np.ndarray | None:
    """Least rectangle [4, 2] round the largest connected part of what matches at that height."""
    places = []
    for view in views:
        good = matched(view, views, DOWN, np.array([-height]))[0]
        good = cv2.erode(good.astype(np.uint8), np.ones((ROUND, ROUND), np.uint8)) > 0
        t = (height - view.camera.center[2]) / view.rays[good][:, 2]
        places.append(view.camera.center[:2] + t[:, None] * view.rays[good][:, :2])
    at = np.concatenate(places)
    if len(at) < PER_CELL:
        return None
    cells = np.floor(at / cell).astype(np.int64)
    low = cells.min(axis=0)
    size = cells.max(axis=0) - low + 1
    if size.prod() > 10**6:  # towards the horizon
        return None
    counts = np.bincount(np.ravel_multi_index((cells - low).T, size), minlength=size.prod()).reshape(size)
    labels, parts = ndimage.label(counts >= PER_CELL)
    if parts == 0:
        return None
    largest = labels == 1 + int(np.argmax(ndimage.sum_labels(counts > 0, labels, np.arange(1, parts + 1))))
    corners = (np.argwhere(largest) + low + 0.5) * cell
    middle, sides, angle = cv2.minAreaRect(corners.astype(np.float32))
    grown = (sides[0] + 2 * cell, sides[1] + 2 * cell)  # windows that straddle the edge have not matched
    found: np.ndarray = cv2.boxPoints((middle, grown, angle)).astype(np.float64)
    return found
