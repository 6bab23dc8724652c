"""A plate unrolled round the vertical through its camera: every upright line of the world is a column.

With z up, a ray (x, y, z) has the azimuth atan2(y, x) and the rise z / sqrt(x^2 + y^2). An upright line at the ground
distance r shows at one azimuth, and its point of height h at the rise (h - camera's height) / r.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from recon.geometry.camera import Camera, pixel_rays, project

COLUMN, ROW = 0.5, 2.0  # pixels of the plate, at its middle, per column and row
STEEP = 2.0  # rise beyond which azimuths mean little


@dataclass(frozen=True)
class Unrolled:
    """picture: float32 [R, C, 3] in [0, 1]. valid: bool [R, C]. azimuths: [C], rising. rises: [R], falling."""

    camera: Camera
    picture: np.ndarray
    valid: np.ndarray
    azimuths: np.ndarray
    rises: np.ndarray

    def column(self, azimuth: float) -> float:
        """The column, fractional, at which an azimuth shows; it may lie outside."""
        turn = (azimuth - self.azimuths[0] + np.pi) % (2 * np.pi) - np.pi
        return float(turn / (self.azimuths[1] - self.azimuths[0]))


def unroll(plate: np.ndarray, valid: np.ndarray, camera: Camera) -> Unrolled | None:
    """A plate uint8 [H, W, 3] of a pinhole camera, valid bool [H, W]; None for one that looks straight down or up."""
    rays = pixel_rays(camera)
    rays /= np.maximum(np.linalg.norm(rays[:, :2], axis=1, keepdims=True), 1e-9)
    ahead = camera.cam_from_world[2, :2]
    use = np.abs(rays[:, 2]) < STEEP
    if not use.any() or np.linalg.norm(ahead) < 0.2:
        return None
    middle = np.arctan2(ahead[1], ahead[0])
    turn = (np.arctan2(rays[use, 1], rays[use, 0]) - middle + np.pi) % (2 * np.pi) - np.pi
    azimuths = middle + np.arange(turn.min(), turn.max(), COLUMN / camera.fx)
    rises = np.arange(rays[use, 2].max(), rays[use, 2].min(), -ROW / camera.fy)
    if len(azimuths) < 2 or len(rises) < 2:
        return None
    directions = np.empty((len(rises), len(azimuths), 3))
    directions[..., 0], directions[..., 1], directions[..., 2] = np.cos(azimuths), np.sin(azimuths), rises[:, None]
    uv, depth = project(camera, camera.center + directions.reshape(-1, 3))
    u, v = (part.reshape(directions.shape[:2]) for part in uv.T)
    inside = (depth.reshape(u.shape) > 0) & (u >= 0.5) & (u <= camera.width - 0.5)
    inside &= (v >= 0.5) & (v <= camera.height - 0.5)
    at = [np.where(inside, part, 0.5).astype(np.float32) - 0.5 for part in (u, v)]
    picture = cv2.remap(plate, *at, cv2.INTER_LINEAR).astype(np.float32) / 255.0
    seen = cv2.remap(valid.astype(np.uint8), *at, cv2.INTER_NEAREST) > 0
    return Unrolled(camera, picture, seen & inside, azimuths, rises)
