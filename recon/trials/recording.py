"""A tiny recording that is made up on the spot: cameras round a checkered floor, with a ball that crosses it."""

from __future__ import annotations

import numpy as np

from recon.calibrate.dense import DepthPrior
from recon.geometry.camera import Camera
from recon.geometry.pose import look_at

SIZE = (64, 48)
BALL = 0.12  # metres, radius
LIGHT, DARK = (0.8, 0.75, 0.6), (0.25, 0.35, 0.3)


def ring_of_cameras(count: int = 6) -> list[Camera]:
    """Cameras on a circle that look at the origin, z up."""
    found = []
    for k in range(count):
        angle = 2 * np.pi * k / count
        eye = np.array([1.4 * np.cos(angle), 1.4 * np.sin(angle), 0.9])
        pose = look_at(eye, np.zeros(3), np.array([0.0, 0.0, 1.0]))
        found.append(Camera(f"c{k}", *SIZE, 60.0, 60.0, SIZE[0] / 2 + 1.5, SIZE[1] / 2 - 1.0, cam_from_world=pose))
    return found


def ball_center(t: float) -> np.ndarray:
    """Where the ball is at t in [0, 1] s."""
    return np.array([-0.3 + 0.6 * t, 0.1, BALL])


def _rays(camera: Camera) -> np.ndarray:
    """Viewing directions in the world [H, W, 3], their depth along the axis 1."""
    v, u = np.mgrid[: camera.height, : camera.width] + 0.5
    local = np.stack([(u - camera.cx) / camera.fx, (v - camera.cy) / camera.fy, np.ones_like(u)], -1)
    return np.asarray(local @ camera.cam_from_world[:3, :3])


def ray_trace(camera: Camera, t: float | None) -> tuple[np.ndarray, np.ndarray]:
    """(uint8 [H, W, 3], bool [H, W] ball mask): a checkered floor at z = 0 and, with a time, a red ball."""
    rays, origin = _rays(camera), camera.center
    floor = np.where(rays[..., 2] < -1e-6, -origin[2] / np.minimum(rays[..., 2], -1e-6), np.inf)
    hit = origin + rays * np.where(np.isfinite(floor), floor, 0)[..., None]
    check = (np.floor(hit[..., 0] * 4) + np.floor(hit[..., 1] * 4)) % 2
    picture = np.where(check[..., None] > 0, LIGHT, DARK)
    picture[~np.isfinite(floor) | (np.abs(hit[..., :2]).max(-1) > 1)] = 0.0  # nothing, as where no Gaussian is
    mask = np.zeros(floor.shape, dtype=bool)
    if t is not None:
        offset = origin - ball_center(t)
        a, b, c = (rays**2).sum(-1), rays @ offset, offset @ offset - BALL**2
        mask = b * b - a * c > 0
        picture[mask] = [0.85, 0.15, 0.1]
    return np.round(picture * 255).astype(np.uint8), mask


def floor_points(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(positions [count, 3] metres, colours [count, 3] in 0..1) near the floor."""
    points = np.concatenate([rng.uniform(-1, 1, (count, 2)), rng.normal(0, 0.01, (count, 1))], axis=1)
    check = (np.floor(points[:, 0] * 4) + np.floor(points[:, 1] * 4)) % 2
    return points, np.where(check[:, None] > 0, LIGHT, DARK)


def floor_prior(camera: Camera) -> DepthPrior:
    """The exact depth of the floor, not believed above the horizon."""
    down = -_rays(camera)[..., 2]
    inverse = np.maximum(down / camera.center[2], 0.05).astype(np.float32)
    return DepthPrior(inverse, (down > 0).astype(np.float32), camera)


class TinyFrames:
    """`recon.fit.data.Frames` over the made-up recording."""

    def __init__(self, num_frames: int = 12, masks: bool = True) -> None:
        self.cameras = ring_of_cameras()
        self.names = [camera.name for camera in self.cameras]
        self.times = [np.linspace(0.0, 1.0, num_frames) for _ in self.cameras]
        self.with_masks = masks
        self.masks_are_whole = True

    def num_frames(self, camera: int) -> int:
        """The same for every camera."""
        return len(self.times[camera])

    def picture(self, camera: int, frame: int) -> np.ndarray:
        """uint8 [H, W, 3]."""
        return ray_trace(self.cameras[camera], float(self.times[camera][frame]))[0]

    def mask(self, camera: int, frame: int) -> np.ndarray | None:
        """bool [H, W], the ball; None without masks."""
        return ray_trace(self.cameras[camera], float(self.times[camera][frame]))[1] if self.with_masks else None

    def valid(self, camera: int) -> np.ndarray:
        """bool [H, W], all True."""
        return np.ones((SIZE[1], SIZE[0]), dtype=bool)
