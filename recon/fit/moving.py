"""Surface points of all that moves, at regular instants: masks -> visual hull -> coloured points with velocities."""

from __future__ import annotations

import cv2
import numpy as np

from recon.fit.data import Frames
from recon.fit.hull import Volume, hull_surface, surface_colours, visual_hull
from recon.fit.outlined import OutlinedFrames
from recon.fit.plate import Plate, motion_mask, moving_mask
from recon.fit.seed import MovingPoints, point_velocities

MASK_MISS = 0.1  # share of the cameras that may miss a thing when masks are given
MOTION_MISS = 0.34  # ... when masks are only differences against the plate, which have holes
ROBOT_MARGIN = 4  # pixels round a known robot that its edge may be off
MAX_SPEED = 6.0  # metres per second, of a thrown ball


def instants(frames: Frames, gap: float) -> np.ndarray:
    """Times [s], `gap` apart or a little less, that cover what all cameras recorded."""
    start, end = max(t[0] for t in frames.times), min(t[-1] for t in frames.times)
    count = max(2, int(np.ceil((end - start) / gap)) + 1)
    return np.linspace(start, end, count)


def masks_at(
    frames: Frames, plates: list[Plate], t: float, known: OutlinedFrames | None = None
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray] | None]:
    """(masks, pictures, pixels of what is known) of all cameras at their frame nearest to t."""
    masks, pictures, hidden = [], [], []
    grow = np.ones((2 * ROBOT_MARGIN + 1,) * 2, np.uint8)
    for camera, times in enumerate(frames.times):
        frame = int(np.argmin(np.abs(times - t)))
        picture = frames.picture(camera, frame)
        mask = moving_mask(frames, camera, frame, motion_mask(picture, plates[camera]))
        if known is not None:
            hidden.append(cv2.dilate(known.silhouette(camera, frame).astype(np.uint8), grow) > 0)
            beside = (mask & ~hidden[-1]).astype(np.uint8)
            mask = cv2.morphologyEx(beside, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8)) > 0
        masks.append(mask)
        pictures.append(picture)
    return masks, pictures, None if known is None else hidden


def moving_points(
    frames: Frames, plates: list[Plate], volume: Volume, cell: float, gap: float, known: OutlinedFrames | None = None
) -> MovingPoints:
    """Coloured surface points of the hulls at every instant; empty when nothing moves.

    known: where what is drawn by Gaussians of its own (a known robot, bodies) shows; those pixels are left out.
    """
    whole = frames.masks_are_whole and frames.mask(0, 0) is not None
    times = instants(frames, gap)
    positions: list[np.ndarray] = []
    colours: list[np.ndarray] = []
    for t in times:
        masks, pictures, hidden = masks_at(frames, plates, float(t), known)
        cells = visual_hull(masks, frames.cameras, volume, cell, MASK_MISS if whole else MOTION_MISS, hidden)
        cells = cells[hull_surface(cells, cell)]
        colour, count = surface_colours(cells, cell, pictures, masks, frames.cameras)
        positions.append(cells[count > 0])
        colours.append(colour[count > 0])
    step = float(times[1] - times[0])
    velocities = []
    for k in range(len(times)):
        other = k + 1 if k + 1 < len(times) else k - 1
        signed = step if other > k else -step
        found = point_velocities(positions[k], colours[k], positions[other], colours[other], step, MAX_SPEED * step)
        velocities.append(found * (step / signed))
    stamps = [np.full(len(p), t) for p, t in zip(positions, times, strict=True)]
    return MovingPoints(
        np.concatenate(positions),
        np.concatenate(colours),
        np.concatenate(stamps),
        np.concatenate(velocities),
        cell,
        step,
    )
