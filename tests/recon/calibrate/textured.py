"""A textured floor and a textured raised board, drawn exactly by homographies."""

from __future__ import annotations

import cv2
import numpy as np

from recon.geometry.camera import Camera
from recon.geometry.pose import look_at

BOARD_HEIGHT = 0.25  # metres above the floor
BOARD = (-0.3, 0.2, -0.25, 0.3)  # x0, x1, y0, y1
FLOOR = (-1.5, 1.5, -1.5, 1.5)
WIDTH, HEIGHT = 240, 180


def rig(count: int = 6) -> dict[str, Camera]:
    """Cameras on an arc of 100 degrees, 2 m away, looking down at the board."""
    cameras = {}
    for k, angle in enumerate(np.radians(np.linspace(-50, 50, count))):
        eye = np.array([1.7 * np.sin(angle), -1.7 * np.cos(angle), 1.3])
        pose = look_at(eye, np.array([0.0, 0.0, 0.1]))
        width, height = WIDTH + 8 * (k % 2), HEIGHT + 6 * (k % 3)  # no two neighbours of one size
        cameras[f"c{k}"] = Camera(f"c{k}", width, height, 230.0, 228.0, 121.3, 88.1, cam_from_world=pose)
    return cameras


def texture(seed: int, size: int) -> np.ndarray:
    """uint8 [size, size, 3] with detail at all scales down to two texels."""
    rng = np.random.default_rng(seed)
    total = np.zeros((size, size, 3), np.float32)
    for cell, weight in ((16, 45.0), (6, 40.0), (2, 35.0)):
        coarse = rng.normal(size=(size // cell, size // cell, 3)).astype(np.float32)
        total += weight * cv2.resize(coarse, (size, size), interpolation=cv2.INTER_CUBIC)
    return np.clip(128 + total, 0, 255).astype(np.uint8)


def render(camera: Camera, gain: float = 1.0) -> np.ndarray:
    """uint8 [H, W, 3]: the board in front of the floor, with a gain on the brightness; antialiased by 3x3 samples."""
    fine = camera.scaled(3)
    image = np.zeros((fine.height, fine.width, 3), np.uint8)
    half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1.0]])
    for seed, texels, z, (x0, x1, y0, y1) in ((1, 256, 0.0, FLOOR), (2, 64, BOARD_HEIGHT, BOARD)):
        world_from_texel = np.array([[(x1 - x0) / texels, 0, x0], [0, (y1 - y0) / texels, y0], [0, 0, z], [0, 0, 1]])
        warp = np.linalg.inv(half) @ fine.K @ fine.cam_from_world[:3] @ world_from_texel @ half
        size = (fine.width, fine.height)
        drawn = cv2.warpPerspective(texture(seed, texels), warp, size, borderMode=cv2.BORDER_REPLICATE)
        mask = cv2.warpPerspective(np.full((texels, texels), 255, np.uint8), warp, size)
        image[mask > 127] = drawn[mask > 127]
    small = cv2.resize(image, (camera.width, camera.height), interpolation=cv2.INTER_AREA)
    return np.clip(small * gain, 0, 255).astype(np.uint8)


def plates(cameras: dict[str, Camera]) -> dict[str, np.ndarray]:
    """One picture per camera, each with its own exposure."""
    return {name: render(c, 0.75 + 0.08 * k) for k, (name, c) in enumerate(cameras.items())}


def distance_to_surface(xyz: np.ndarray) -> np.ndarray:
    """[N] metres from the nearer of floor and board."""
    x0, x1, y0, y1 = BOARD
    outside = np.stack([x0 - xyz[:, 0], xyz[:, 0] - x1, y0 - xyz[:, 1], xyz[:, 1] - y1], axis=1).clip(0).max(axis=1)
    return np.minimum(np.abs(xyz[:, 2]), np.hypot(xyz[:, 2] - BOARD_HEIGHT, outside))
