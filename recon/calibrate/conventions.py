"""Ways in which a calibration's poses may be meant, and the way from each to cam_from_world in OpenCV axes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from recon.geometry.pose import invert_pose
from recon.geometry.rig import Rig


@dataclass(frozen=True)
class Convention:
    """One way to mean poses. flip: signs of the camera's x, y, z; inverse: they lead to the world."""

    flip: tuple[int, int, int]
    inverse: bool

    @property
    def mirrored(self) -> bool:
        """Whether its axes are left-handed: no camera of ours has such a pose."""
        return self.flip[0] * self.flip[1] * self.flip[2] < 0

    @property
    def words(self) -> str:
        """What the poses are called."""
        way = "world_from_camera" if self.inverse else "camera_from_world"
        if self.flip == (1, 1, 1):
            return f"{way} poses"
        if self.flip == (1, -1, -1):
            return f"{way} poses in OpenGL camera axes (y up, z backward)"
        if self.mirrored:
            return f"mirrored {way} poses, in left-handed axes"
        return f"{way} poses of cameras turned by 180 degrees"

    def meant(self, pose: np.ndarray) -> np.ndarray:
        """The cam_from_world [4, 4] that `pose`, read as cam_from_world, was meant to be; mirrored if the axes are."""
        return np.diag([*self.flip, 1.0]) @ (invert_pose(pose) if self.inverse else pose)


AS_WRITTEN = Convention((1, 1, 1), False)
INVERTED = Convention((1, 1, 1), True)
CONVENTIONS = [
    Convention((x, y, z), inverse) for inverse in (False, True) for x, y, z in product((1, -1), repeat=3)
]  # as written first
BY_NAME = {  # of --rig-poses
    "as-written": AS_WRITTEN,
    "inverted": INVERTED,
    "opengl": Convention((1, -1, -1), False),
    "inverted-opengl": Convention((1, -1, -1), True),
}


def meant(rig: Rig, convention: Convention) -> Rig:
    """The rig whose written poses are meant in another convention, one that is not mirrored."""
    if convention == AS_WRITTEN:
        return rig
    cameras = {n: camera.with_pose(convention.meant(camera.cam_from_world)) for n, camera in rig.cameras.items()}
    return replace(rig, cameras=cameras)
