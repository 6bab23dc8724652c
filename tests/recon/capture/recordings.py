"""Made-up pictures and cameras for capture tests."""

from __future__ import annotations

import cv2
import numpy as np

from recon.geometry.camera import Camera
from recon.geometry.pose import look_at

WIDTH, HEIGHT, FRAMES, FPS = 96, 64, 12, 10.0


def picture(camera: int, frame: int, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """uint8 [H, W, 3]: smooth random colours that differ by camera, and a bright square that moves with the frame."""
    rng = np.random.default_rng(camera)
    small = rng.integers(30, 200, (6, 8, 3), dtype=np.uint8)
    image = cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)
    x = 4 + 5 * frame % (width - 20)
    image[20:32, x : x + 12] = 240
    return image


def camera(k: int, count: int = 4) -> Camera:
    angle = 2 * np.pi * k / count
    pose = look_at(np.array([2 * np.cos(angle), 2 * np.sin(angle), 1.0]), np.zeros(3))
    return Camera(f"cam{k:02d}", WIDTH, HEIGHT, 80.0, 80.0, WIDTH / 2, HEIGHT / 2, cam_from_world=pose)
