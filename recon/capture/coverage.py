"""What the cameras of a rig can see together, and how well places there can be measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from recon.geometry.camera import Camera, pixel_cells

BALL = 0.3  # radius of the workspace, in median distances from the cameras to what they look at
GRID = 9  # points across the ball
MATCH_PX = 0.5  # px, how well a point is found in a picture
VIEWS = 3  # cameras that a place needs


@dataclass(frozen=True)
class Coverage:
    """Of a ball around the place the cameras look at.

    focus [3], radius, distance (median, of the cameras): units of the rig. shares: by camera, of the ball in its
    picture. views: mean number of cameras that see a place. shared: share of places that VIEWS cameras see.
    accuracy: standard deviation in the worst direction, median over places, of a point found to MATCH_PX in every
    picture; infinite where one camera alone sees most. pixel: size of a pixel there.
    """

    focus: np.ndarray
    radius: float
    distance: float
    shares: dict[str, float]
    views: float
    shared: float
    accuracy: float
    pixel: float


def coverage(cameras: Mapping[str, Camera]) -> Coverage:
    """Of at least two cameras; occlusion is not known here."""
    focus = focus_point(list(cameras.values()))
    distance = float(np.median([np.linalg.norm(camera.center - focus) for camera in cameras.values()]))
    axis = np.linspace(-1.0, 1.0, GRID)
    ball = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    points = focus + BALL * distance * ball[(ball**2).sum(1) <= 1.0]
    seen = np.stack([pixel_cells(camera, points)[0] for camera in cameras.values()])  # [C, N]
    count = seen.sum(0)
    spread = np.array([_spread(list(cameras.values()), seen[:, k], points[k]) for k in range(len(points))])
    footprints = [np.linalg.norm(camera.center - focus) / camera.fx for camera in cameras.values()]
    return Coverage(
        focus, BALL * distance, distance, dict(zip(cameras, seen.mean(1).tolist(), strict=True)),
        float(count.mean()), float((count >= VIEWS).mean()), float(np.median(spread)), float(np.median(footprints)),
    )  # fmt: skip


def rig_extent(cameras: Iterable[Camera]) -> float:
    """Largest distance of a camera from their mean centre, units of the rig."""
    centers = np.stack([camera.center for camera in cameras])
    return float(np.linalg.norm(centers - centers.mean(axis=0), axis=1).max())


def _spread(cameras: list[Camera], seen: np.ndarray, point: np.ndarray) -> float:
    """Standard deviation in the worst direction: with J = d(u, v)/dX per camera, covariance = s^2 (sum J^T J)^-1."""
    information = np.zeros((3, 3))
    for camera, visible in zip(cameras, seen, strict=True):
        if not visible:
            continue
        rotation = camera.cam_from_world[:3, :3]
        x, y, z = rotation @ point + camera.cam_from_world[:3, 3]
        jacobian = np.array([camera.fx / z, camera.fy / z])[:, None] * (
            rotation[:2] - np.array([x / z, y / z])[:, None] * rotation[2]
        )
        information += jacobian.T @ jacobian
    least = float(np.linalg.eigvalsh(information)[0])
    return MATCH_PX / np.sqrt(least) if least > 1e-9 * np.trace(information) > 0 else float("inf")


def focus_point(cameras: list[Camera]) -> np.ndarray:
    """The point [3] nearest to all optical axes: minimises sum |(I - d d^T)(x - c)|^2; robust to one wrong camera."""
    centres = np.stack([camera.center for camera in cameras])
    axes = np.stack([camera.cam_from_world[2, :3] for camera in cameras])
    weights = np.ones(len(cameras))
    point = centres.mean(axis=0)
    for _ in range(10):  # reweighted by distance, so that one stray axis does not pull the point away
        across = np.eye(3) - axes[:, :, None] * axes[:, None, :]  # [C, 3, 3]
        system = np.einsum("c,cij->ij", weights, across)
        right = np.einsum("c,cij,cj->i", weights, across, centres)
        point = np.linalg.solve(system + 1e-9 * np.eye(3), right + 1e-9 * centres.mean(axis=0))
        distance = np.linalg.norm(np.einsum("cij,cj->ci", across, point - centres), axis=1)
        weights = 1.0 / np.maximum(distance, 1e-3 * np.linalg.norm(centres - point, axis=1).mean())
    return point
