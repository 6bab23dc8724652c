"""A room for tests: a box with posters on its walls, a floor of another shade, a table, seen by a ring of cameras."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from recon.geometry.camera import Camera, pixel_centres, unproject
from recon.geometry.pose import look_at
from tests.recon.calibrate.textured import texture

FLOOR = -0.7
TABLE = (0.6, 0.4)  # half sides, metres; its top is z = 0
HALF = (2.0, 1.7)  # half sides of the room
SHADES = ((176, 170, 160), (150, 160, 170), (180, 180, 176), (165, 158, 150))
POSTERS = ((-1.25, 0.1), (-0.4, 0.2), (0.45, 0.05), (1.2, 0.25))  # along the wall, over the table: metres, middle
SIZE = (0.3, 0.22)  # half sides of a poster
POLE, BEHIND = 0.012, 0.03  # radius of a camera's pole; how far behind the camera it stands, metres


@dataclass(frozen=True)
class BoxRoom:
    """heading: radians, of its first wall. closed: with walls and a floor, or just a table in the open. stands: whether
    the cameras stand on poles."""

    heading: float
    closed: bool = True
    stands: bool = False

    def cameras(self) -> dict[str, Camera]:
        """Six, 1 m from the middle, looking across the table."""
        found = {}
        for k in range(6):
            angle = 2 * np.pi * k / 6 + 0.1
            center = np.array([np.cos(angle), np.sin(angle), 0.6 + 0.08 * (k % 3)])
            pose = look_at(center, np.array([0.0, 0.0, 0.1]))
            width, height = 240 + 8 * (k % 2), 180 + 6 * (k % 3)  # no two neighbours of one size
            found[f"c{k}"] = Camera(f"c{k}", width, height, 170.0, 170.0, 120.0, 90.0, cam_from_world=pose)
        return found

    def wall(self, k: int) -> tuple[np.ndarray, float]:
        """(outward normal [3] in the world, offset) of wall k."""
        angle = self.heading + k * np.pi / 2
        return np.array([np.cos(angle), np.sin(angle), 0.0]), HALF[k % 2]

    def picture(self, camera: Camera) -> np.ndarray:
        """uint8 [H, W, 3], averaged from 3 x 3 samples per pixel."""
        fine = camera.scaled(3.0)
        rays = unproject(fine, pixel_centres(fine.width, fine.height)) @ fine.cam_from_world[:3, :3]
        best = np.full(len(rays), np.inf)
        colour = np.zeros((len(rays), 3), np.uint8)
        c, s = np.cos(self.heading), np.sin(self.heading)
        own = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])  # room from world
        origin, rays = own @ camera.center, rays @ own.T
        for k in range(4 if self.closed else 0):
            axis, sign = k % 2, 1.0 if k < 2 else -1.0
            at, nearer, t = _hits(origin, rays, axis, sign * HALF[axis], best)
            nearer &= at[:, 2] > FLOOR
            shade = np.tile(np.array(SHADES[k], np.uint8), (len(at), 1))
            for p, (u, z) in enumerate(POSTERS):
                inside = (np.abs(at[:, 1 - axis] - u) < SIZE[0]) & (np.abs(at[:, 2] - z) < SIZE[1])
                shade[inside] = _textured(10 * k + p, at[inside][:, [1 - axis, 2]] / 0.02)
            colour[nearer], best[nearer] = shade[nearer], t[nearer]
        level = ((FLOOR, HALF, None), (0.0, TABLE, 77))
        for z, half, seed in level if self.closed else level[1:]:
            at, nearer, t = _hits(origin, rays, 2, z, best)
            nearer &= (np.abs(at[:, 0]) < half[0]) & (np.abs(at[:, 1]) < half[1])
            colour[nearer] = (70, 72, 80) if seed is None else _textured(seed, at[nearer][:, :2] / 0.01)
            best[nearer] = t[nearer]
        if self.stands:
            for other in self.cameras().values():
                if other.name != camera.name:
                    t = _pole(camera.center, rays @ own, stand_of(other), float(other.center[2]))
                    colour[t < best], best = (44, 42, 40), np.minimum(t, best)
        drawn = colour.reshape(fine.height, fine.width, 3)
        return cv2.resize(drawn, (camera.width, camera.height), interpolation=cv2.INTER_AREA)

    def seen(self) -> tuple[dict[str, np.ndarray], dict[str, Camera], dict[str, np.ndarray]]:
        """(pictures, cameras, where they are valid)."""
        cameras = self.cameras()
        noise = np.random.default_rng(4)
        pictures = {}
        for name, camera in cameras.items():
            drawn = self.picture(camera).astype(np.float64)
            pictures[name] = np.clip(drawn + noise.normal(scale=1.0, size=drawn.shape), 0, 255).round().astype(np.uint8)
        return pictures, cameras, {n: np.ones(p.shape[:2], dtype=bool) for n, p in pictures.items()}


def stand_of(camera: Camera) -> np.ndarray:
    """x and y [2] of the pole of a camera: a little behind it."""
    ahead = camera.cam_from_world[2, :2]
    place: np.ndarray = camera.center[:2] - BEHIND * ahead / np.linalg.norm(ahead)
    return place


def _pole(origin: np.ndarray, rays: np.ndarray, place: np.ndarray, top: float) -> np.ndarray:
    """[N]: how far along each ray the pole is met, inf where it is not."""
    a, b = (rays[:, :2] ** 2).sum(axis=1), rays[:, :2] @ (origin[:2] - place)
    inside = b * b - a * (((origin[:2] - place) ** 2).sum() - POLE**2)
    t = (-b - np.sqrt(np.maximum(inside, 0.0))) / a
    z = origin[2] + t * rays[:, 2]
    return np.where((inside > 0) & (t > 0) & (z < top) & (z > FLOOR), t, np.inf)


def _hits(
    origin: np.ndarray, rays: np.ndarray, axis: int, value: float, best: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(points [N, 3] where the rays meet the plane, whether nearer than `best`, how far)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (value - origin[axis]) / rays[:, axis]
    ahead = np.isfinite(t) & (t > 0)
    t = np.where(ahead, t, 1e9)
    return origin + t[:, None] * rays, ahead & (t < best), t


def _textured(seed: int, at: np.ndarray) -> np.ndarray:
    """uint8 [N, 3] of a texture, one unit of `at` [N, 2] per texel."""
    if len(at) == 0:
        return np.zeros((0, 3), np.uint8)
    picture = texture(seed, 256)
    place = np.floor(at).astype(np.int64) % 256
    found: np.ndarray = picture[place[:, 1], place[:, 0]]
    return found
