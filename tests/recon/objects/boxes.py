"""A made-up recording of a patterned floor and a box with a different colour on every face, ray cast."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from recon.geometry.camera import Camera
from recon.geometry.pose import look_at

SIZE = (160, 120)
HALF = np.array([0.07, 0.05, 0.06])  # m, half sides of the box
FACES = np.array(
    [[0.8, 0.15, 0.1], [0.15, 0.2, 0.75], [0.85, 0.75, 0.1], [0.2, 0.65, 0.2], [0.7, 0.2, 0.7], [0.1, 0.6, 0.7]]
)

Pose = Callable[[float], np.ndarray | None]


def turned(x: float, y: float, degrees: float, z: float = HALF[2]) -> np.ndarray:
    """World from box [4, 4]: upright, at (x, y, z) m, turned about z."""
    angle = np.radians(degrees)
    pose = np.eye(4)
    pose[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    pose[:3, 3] = [x, y, z]
    return pose


def ring(count: int = 6) -> list[Camera]:
    """Cameras round the origin, at two heights."""
    found = []
    for k in range(count):
        angle = 2 * np.pi * k / count
        eye = np.array([1.1 * np.cos(angle), 1.1 * np.sin(angle), 0.7 + 0.25 * (k % 2)])
        pose = look_at(eye, np.array([0.0, 0.0, 0.03]))
        found.append(Camera(f"c{k}", *SIZE, 190.0, 190.0, SIZE[0] / 2 + 0.5, SIZE[1] / 2 - 0.5, cam_from_world=pose))
    return found


class BoxFrames:
    """`recon.fit.data.Frames` of the floor and a box that is where `pose` says; `bend` makes it shear with time."""

    def __init__(self, pose: Pose, count: int = 16, bend: float = 0.0) -> None:
        self.pose, self.bend = pose, bend
        self.cameras = ring()
        self.names = [camera.name for camera in self.cameras]
        self.times = [np.linspace(0.0, 1.5, count) for _ in self.cameras]
        self.masks_are_whole = False
        self._rays = [self._floor(camera) for camera in self.cameras]
        noise = np.random.default_rng(0)
        self._pictures = [[self._drawn(c, float(t), noise) for t in self.times[c]] for c in range(len(self.cameras))]

    def num_frames(self, camera: int) -> int:
        """The same for every camera."""
        return len(self.times[camera])

    def picture(self, camera: int, frame: int) -> np.ndarray:
        """uint8 [H, W, 3]."""
        return self._pictures[camera][frame]

    def mask(self, camera: int, frame: int) -> np.ndarray | None:
        """None: no masks are given."""
        return None

    def valid(self, camera: int) -> np.ndarray:
        """bool [H, W], all True."""
        return np.ones((SIZE[1], SIZE[0]), bool)

    def _floor(self, camera: Camera) -> tuple[np.ndarray, np.ndarray]:
        v, u = np.mgrid[: camera.height, : camera.width] + 0.5
        local = np.stack([(u - camera.cx) / camera.fx, (v - camera.cy) / camera.fy, np.ones_like(u)], -1)
        rays = local @ camera.cam_from_world[:3, :3]
        hit = camera.center + rays * np.where(
            rays[..., 2:] < -1e-6, -camera.center[2] / np.minimum(rays[..., 2:], -1e-6), 9.0
        )
        wave = 0.5 + 0.12 * np.sin(9 * hit[..., :1]) + 0.1 * np.cos(13 * hit[..., 1:2] + 2 * hit[..., :1])
        return rays, wave * np.array([1.0, 0.92, 0.8])

    def _drawn(self, c: int, t: float, noise: np.random.Generator) -> np.ndarray:
        rays, floor = self._rays[c]
        picture = floor.copy()
        pose = self.pose(t)
        if pose is not None:
            body_from_world = np.linalg.inv(pose)
            shear = np.eye(3)
            shear[0, 2] = self.bend * t
            origin = shear @ (body_from_world[:3, :3] @ self.cameras[c].center + body_from_world[:3, 3])
            along = rays @ (shear @ body_from_world[:3, :3]).T
            with np.errstate(divide="ignore"):
                first, last = (-HALF - origin) / along, (HALF - origin) / along
            near, far = np.minimum(first, last), np.maximum(first, last)
            hit = (near.max(-1) < far.min(-1)) & (near.max(-1) > 0)
            axis = near.argmax(-1)
            side = np.take_along_axis(along, axis[..., None], -1)[..., 0] > 0
            picture[hit] = FACES[2 * axis + side][hit]
        return np.clip(np.round(255 * picture + noise.normal(0, 1.5, picture.shape)), 0, 255).astype(np.uint8)
