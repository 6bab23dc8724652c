"""Free space: where no static surface can be, because cameras look through it at a surface behind.

Gaussians that hang close to a camera explain its pictures cheaply and ruin every other view. The depth priors say how
far each camera sees; a static Gaussian that is clearly nearer than that in several cameras is taken away and reborn
elsewhere. A known robot says so too: what a camera sees of it is never behind anything still that other cameras look
through. What is nearer to a camera than it can see (its near plane) is for the others to judge: it may be the wall
that the camera is mounted in.
"""

from __future__ import annotations

import cv2
import numpy as np

from recon.calibrate.dense import DepthPrior
from recon.fit.robot import KnownRobot
from recon.geometry.camera import Camera, pixel_cells, project

CLEARANCE = 0.88  # of the seen depth
SURE = 0.75  # of a measured depth: one camera that sees this far past a place is enough
MIN_CAMERAS = 2
BEFORE_ROBOT = 0.97  # of the depth of the robot's near side
CELLS = 80  # of a picture's width, in which the robot's near side is kept
BESIDE = 0.01  # of a picture's width: how far beyond its edge a surface may lie that shows in it


def robot_depths(robot: KnownRobot, cameras: list[Camera], times: np.ndarray) -> list[np.ndarray]:
    """Per camera [h, w], coarse: the furthest that the robot's near side was at any of `times` [s], 0 if it never was.

    Cells at its rim, which it may not fill, are left out.
    """
    found = []
    for camera in cameras:
        small = camera.scaled(min(1.0, CELLS / camera.width))
        furthest = np.zeros((small.height, small.width))
        for t in times:
            inside, column, row, z = pixel_cells(small, robot.points_at(float(t)))
            inside &= z > 0
            nearest = np.full(furthest.shape, np.inf)
            np.minimum.at(nearest, (row[inside], column[inside]), z[inside])
            filled = cv2.erode(np.isfinite(nearest).astype(np.uint8), np.ones((3, 3), np.uint8), borderValue=1) > 0
            furthest = np.where(filled, np.maximum(furthest, nearest), furthest)
        found.append(furthest)
    return found


class FreeSpace:
    """How far each camera sees, from its depth prior and from what it saw of a robot (`robot_depths`).

    near: metres, from where on.
    """

    def __init__(self, priors: list[DepthPrior], near: float, robot: list[np.ndarray] | None = None) -> None:
        self.near = near
        self.robot = robot or []
        self.cameras: list[Camera] = [prior.camera for prior in priors]
        self.depths = [1.0 / prior.inverse for prior in priors]
        self.measured = [prior.weight > 0.5 for prior in priors]

    def violations(self, positions: np.ndarray) -> np.ndarray:
        """int [N]: how many cameras look through each position ([N, 3], world).

        A camera that measured a depth far behind counts twice.
        """
        count = np.zeros(len(positions), dtype=np.int32)
        for camera, seen, measured in zip(self.cameras, self.depths, self.measured, strict=True):
            inside, column, row, z = pixel_cells(camera, positions)
            inside &= z > self.near
            behind = seen[row, column]
            count += inside & (z < CLEARANCE * behind)
            count += inside & (z < SURE * behind) & measured[row, column]
        for camera, furthest in zip(self.cameras, self.robot, strict=False):
            rows, columns = furthest.shape
            inside, column, row, z = pixel_cells(camera, positions)
            behind = furthest[row * rows // camera.height, column * columns // camera.width]
            count += inside & (z > self.near) & (z < BEFORE_ROBOT * behind)
        return count

    def unseen(self, positions: np.ndarray) -> np.ndarray:
        """bool [N]: positions ([N, 3], world) that lie in no camera's picture.

        What is drawn there comes from the flanks of Gaussians alone, with whatever colour makes the edge of a picture
        right; the backdrop has better colours for it.
        """
        seen = np.zeros(len(positions), dtype=bool)
        for camera in self.cameras:
            uv, depth = project(camera, positions)
            margin, size = BESIDE * camera.width, (camera.width, camera.height)
            seen |= (depth > self.near) & ((uv > -margin) & (uv < np.add(size, margin))).all(axis=1)
        return ~seen

    def in_the_way(self, positions: np.ndarray) -> np.ndarray:
        """bool [N]: positions where no static Gaussian may be."""
        return self.violations(positions) >= MIN_CAMERAS
