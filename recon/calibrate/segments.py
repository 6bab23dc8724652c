"""Straight edges of a picture, and what a calibrated camera knows of the lines that they show.

The camera's centre and an edge span a plane with the unit normal m; a line of direction d in the world can be the edge
only if m . d = 0. For level lines, d = (cos a, sin a, 0), that is tan a = -m_x / m_y: one edge tells its heading.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from recon.geometry.camera import Camera, unproject

MIN_LENGTH = 20.0  # pixels
SAMPLES = 9  # along an edge, at which it must be valid
MARGIN = 7  # pixels: an edge of the valid part is none of the world's


@dataclass(frozen=True)
class Segments:
    """ends: [N, 2, 2] pixels. length: [N] pixels. normal: unit [N, 3], world. middle: [N, 3], ray to its middle."""

    ends: np.ndarray
    length: np.ndarray
    normal: np.ndarray
    middle: np.ndarray

    def heads(self, direction: np.ndarray, tolerance: float) -> np.ndarray:
        """bool [N]: may show a line of the unit `direction` [3], within `tolerance` (radians) and a pixel."""
        close: np.ndarray = np.abs(self.normal @ direction) < tolerance + 1.0 / self.length
        return close


def find_segments(plate: np.ndarray, valid: np.ndarray, camera: Camera) -> Segments:
    """Edges of a picture uint8 [H, W, 3] of a pinhole camera, where it is `valid` (bool [H, W])."""
    grey = cv2.cvtColor(plate, cv2.COLOR_RGB2GRAY)
    found = cv2.createLineSegmentDetector(cv2.LSD_REFINE_STD).detect(grey)[0]
    ends = np.zeros((0, 2, 2)) if found is None else found.reshape(-1, 2, 2).astype(np.float64) + 0.5
    inner = cv2.erode(valid.astype(np.uint8), np.ones((MARGIN, MARGIN), np.uint8), borderValue=1) > 0
    share = np.linspace(0.0, 1.0, SAMPLES)[:, None]
    at = (ends[:, :1] * (1 - share) + ends[:, 1:] * share).astype(np.int64)  # [N, SAMPLES, 2]
    column, row = at[..., 0].clip(0, grey.shape[1] - 1), at[..., 1].clip(0, grey.shape[0] - 1)
    length = np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
    ends = ends[inner[row, column].all(axis=1) & (length >= MIN_LENGTH)]
    rays = (unproject(camera, ends.reshape(-1, 2)) @ camera.cam_from_world[:3, :3]).reshape(-1, 2, 3)
    normal = np.cross(rays[:, 0], rays[:, 1])
    return Segments(
        ends,
        np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1),
        normal / np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-12),
        rays.mean(axis=1),
    )
