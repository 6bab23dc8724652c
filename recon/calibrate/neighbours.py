"""Which cameras see much the same from not quite the same place, and the geometry between two of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from recon.geometry.camera import Camera

MAX_AXIS_ANGLE = 100.0  # degrees between optical axes; beyond, hardly any surface is seen by both
MIN_BASELINE = 1e-3  # of the largest distance between two cameras; closer ones give no depth


def neighbours(cameras: Mapping[str, Camera], count: int, max_angle: float = MAX_AXIS_ANGLE) -> dict[str, list[str]]:
    """Per camera up to `count` others, nearest centre first, with optical axes less than `max_angle` degrees apart.

    Cameras in the same place as each other are not neighbours: two pictures from one point hold no depth.
    """
    names = list(cameras)
    centres = np.stack([cameras[n].center for n in names])
    axes = np.stack([cameras[n].cam_from_world[2, :3] for n in names])
    distance = np.linalg.norm(centres[:, None] - centres[None], axis=-1)  # [C, C]
    together = distance <= MIN_BASELINE * distance.max()
    apart = (axes @ axes.T) < np.cos(np.radians(max_angle))
    distance[together | apart] = np.inf
    order = np.argsort(distance, axis=1, kind="stable")[:, :count]
    return {n: [names[j] for j in order[i] if np.isfinite(distance[i, j])] for i, n in enumerate(names)}


def fundamental(a: Camera, b: Camera) -> np.ndarray:
    """F [3, 3] with [u_b, v_b, 1] F [u_a, v_a, 1]^T = 0 for pinhole cameras: K_b^-T [t]_x R K_a^-1, x_b = R x_a + t."""
    b_from_a = b.cam_from_world @ np.linalg.inv(a.cam_from_world)
    x, y, z = b_from_a[:3, 3]
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.linalg.inv(b.K).T @ cross @ b_from_a[:3, :3] @ np.linalg.inv(a.K)


def line_distance(matrix: np.ndarray, points: np.ndarray, others: np.ndarray) -> np.ndarray:
    """[N, M] distance in pixels of `others` [M, 2] from the lines that `matrix` [3, 3] makes of `points` [N, 2]."""
    lines = np.c_[points, np.ones(len(points))] @ matrix.T  # [N, 3]
    lines = lines / np.maximum(np.linalg.norm(lines[:, :2], axis=1, keepdims=True), 1e-12)
    return np.abs(lines.astype(np.float32) @ np.c_[others, np.ones(len(others))].astype(np.float32).T)
