"""Visual hull of what moves: the cells of space inside the moving-thing masks of (almost) all cameras that see them.

A cell of half diagonal r at depth z covers f r / z pixels; it may touch a mask when the distance from its centre's
pixel to the mask is not larger than that. Testing this on a coarse grid and splitting only the cells that survive gives
a fine hull without a fine grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from recon.capture.coverage import focus_point
from recon.geometry.camera import Camera, pixel_cells, project

COARSE_CELLS = 48  # along the longest side, before splitting
MIN_VIEWS = 3


@dataclass(frozen=True)
class Volume:
    """Axis-aligned box that is searched, metres."""

    low: np.ndarray  # [3]
    high: np.ndarray  # [3]


def search_volume(cameras: list[Camera], points: np.ndarray) -> Volume:
    """The box of the camera centres, of what they look at, and of the bulk of the static points ([M, 3])."""
    centers = np.stack([camera.center for camera in cameras])
    focus = focus_point(cameras)
    reach = 0.5 * np.median(np.linalg.norm(centers - focus, axis=1))
    low = np.minimum(centers.min(0), focus - reach)
    high = np.maximum(centers.max(0), focus + reach)
    if len(points):
        low = np.minimum(low, np.percentile(points, 2, axis=0))
        high = np.maximum(high, np.percentile(points, 98, axis=0))
    room = 0.05 * (high - low).max()
    return Volume(low - room, high + room)


def _votes(
    points: np.ndarray,
    reach: float,
    distances: list[np.ndarray],
    cameras: list[Camera],
    hidden: list[np.ndarray] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """How many cameras see each point, and in how many of them it touches the mask."""
    seen = np.zeros(len(points), dtype=np.int32)
    inside = np.zeros(len(points), dtype=np.int32)
    for k, (camera, distance) in enumerate(zip(cameras, distances, strict=True)):
        visible, column, row, depth = pixel_cells(camera, points)
        visible &= depth > 1e-3
        if hidden is not None:
            visible &= ~hidden[k][row, column]
        seen += visible
        at = distance[row[visible], column[visible]]
        inside[visible] += at <= camera.fx * reach / depth[visible] + 0.5
    return seen, inside


def visual_hull(
    masks: list[np.ndarray],
    cameras: list[Camera],
    volume: Volume,
    cell: float,
    miss_share: float = 0.1,
    hidden: list[np.ndarray] | None = None,
) -> np.ndarray:
    """Centres [M, 3] of the hull's cells of about `cell` metres.

    masks: bool [H, W] per camera. hidden: likewise, pixels that say nothing (a known robot is in front, or is what they
    show). A cell is kept when at least `MIN_VIEWS` cameras see it and all but `miss_share` of
    them (rounded down) have it inside their mask.
    """
    # distance, in pixels, of every pixel to the nearest mask pixel
    distances = [
        cv2.distanceTransform((~mask).astype(np.uint8), cv2.DIST_L2, 3)
        if mask.any()
        else np.full(mask.shape, 1e9, np.float32)
        for mask in masks
    ]
    side = float((volume.high - volume.low).max())
    splits = max(0, int(np.ceil(np.log2(max(side / COARSE_CELLS / cell, 1.0)))))
    size = cell * 2**splits
    counts = np.maximum(np.ceil((volume.high - volume.low) / size).astype(int), 1)
    axes = [volume.low[i] + (np.arange(counts[i]) + 0.5) * size for i in range(3)]
    centers = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    corner = np.stack(np.meshgrid(*[[-0.25, 0.25]] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    for level in range(splits + 1):
        # the last level tests the cell's centre, coarser ones anything the cell could hold
        reach = size * np.sqrt(3) / 2 if level < splits else 0.0
        seen, inside = _votes(centers, reach, distances, cameras, hidden)
        keep = (seen >= MIN_VIEWS) & (inside >= seen - np.floor(miss_share * seen))
        centers = centers[keep]
        if level < splits:
            centers = (centers[:, None] + corner[None] * size).reshape(-1, 3)
            size /= 2
    return centers


def hull_surface(centers: np.ndarray, cell: float) -> np.ndarray:
    """bool [M]: cells with at least one of their six neighbours empty."""
    if not len(centers):
        return np.zeros(0, dtype=bool)
    index = np.round((centers - centers.min(0)) / cell).astype(np.int64) + 1
    shape = index.max(0) + 2
    grid = np.zeros(shape, dtype=bool)
    grid[tuple(index.T)] = True
    full = np.ones(len(index), dtype=bool)
    for axis in range(3):
        for step in (-1, 1):
            neighbour = index.copy()
            neighbour[:, axis] += step
            full &= grid[tuple(neighbour.T)]
    return ~full


def surface_colours(
    centers: np.ndarray, cell: float, pictures: list[np.ndarray], masks: list[np.ndarray], cameras: list[Camera]
) -> tuple[np.ndarray, np.ndarray]:
    """Colour of each surface cell from the cameras that see it unoccluded.

    centers [M, 3]; pictures uint8 [H, W, 3]. Returns (colours float32 [M, 3] in [0, 1], number of cameras int [M]).
    The cells themselves, drawn as discs into a depth buffer, occlude each other.
    """
    samples = np.full((len(cameras), len(centers), 3), np.nan, dtype=np.float32)
    for k, (camera, picture, mask) in enumerate(zip(cameras, pictures, masks, strict=True)):
        pixels, depth = project(camera, centers)
        ahead = depth > 1e-3
        radius = np.where(ahead, camera.fx * cell / np.maximum(depth, 1e-3), 1.0)
        block = max(1.0, float(np.median(radius[ahead])) if ahead.any() else 1.0)  # buffer cell of about one hull cell
        column, row = np.floor(pixels[:, 0] / block), np.floor(pixels[:, 1] / block)
        width, height = int(np.ceil(camera.width / block)), int(np.ceil(camera.height / block))
        inside = ahead & (pixels >= 0).all(axis=1) & (pixels < [camera.width, camera.height]).all(axis=1)
        at = np.where(inside, row * width + column, 0).astype(np.int64)
        buffer = np.full(width * height, np.inf)
        np.minimum.at(buffer, at[inside], depth[inside])
        front = inside & (depth <= buffer[at] + 2.0 * cell)
        x, y = pixels[front, 0].astype(np.int64), pixels[front, 1].astype(np.int64)
        colour = picture[y, x].astype(np.float32) / 255.0
        colour[~mask[y, x]] = np.nan
        samples[k, front] = colour
    count = (~np.isnan(samples[..., 0])).sum(0)
    colours = np.full((len(centers), 3), 0.5, dtype=np.float32)
    some = count > 0
    if some.any():
        colours[some] = np.nanmedian(samples[:, some], axis=0)
    return colours, count
