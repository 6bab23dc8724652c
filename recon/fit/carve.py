"""Free space: where no static surface can be, because cameras look through it at a surface behind.

Gaussians that hang close to a camera explain its pictures cheaply and ruin every other view. The depth priors say how
far each camera sees; a static Gaussian that is clearly nearer than that in several cameras is taken away and reborn
elsewhere. What is nearer to a camera than it can see (its near plane) is for the others to judge: it may be the wall
that the camera is mounted in.
"""

from __future__ import annotations

import numpy as np

from recon.calibrate.dense import DepthPrior
from recon.geometry.camera import Camera, pixel_cells

CLEARANCE = 0.88  # of the seen depth
SURE = 0.75  # of a measured depth: one camera that sees this far past a place is enough
MIN_CAMERAS = 2


class FreeSpace:
    """How far each camera sees, from its depth prior; near: metres, from where on."""

    def __init__(self, priors: list[DepthPrior], near: float) -> None:
        self.near = near
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
        return count

    def in_the_way(self, positions: np.ndarray) -> np.ndarray:
        """bool [N]: positions where no static Gaussian may be."""
        return self.violations(positions) >= MIN_CAMERAS
