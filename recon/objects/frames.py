"""Frames of a capture whose bodies are known: where they show is part of every frame's mask, as a known robot is."""

from __future__ import annotations

import numpy as np

from recon.fit.data import Frames
from recon.fit.robot import RobotFrames
from recon.objects.body import FoundBody
from recon.objects.splats import silhouette


class BodyFrames:
    """`Frames` whose masks hold the bodies' outlines, and the robot's, beside the masks that were given."""

    def __init__(self, frames: Frames, robot: RobotFrames | None, bodies: list[FoundBody]) -> None:
        self.frames, self.robot, self.bodies = frames, robot, bodies
        self.names, self.cameras, self.times = frames.names, frames.cameras, frames.times
        self.masks_are_whole = frames.masks_are_whole and frames.mask(0, 0) is not None
        self._packed: dict[tuple[int, int], np.ndarray] = {}

    def num_frames(self, camera: int) -> int:
        """T_c."""
        return self.frames.num_frames(camera)

    def picture(self, camera: int, frame: int) -> np.ndarray:
        """uint8 [H, W, 3] RGB."""
        return self.frames.picture(camera, frame)

    def valid(self, camera: int) -> np.ndarray:
        """bool [H, W]."""
        return self.frames.valid(camera)

    def mask(self, camera: int, frame: int) -> np.ndarray:
        """bool [H, W]: the bodies, the robot, and what a given mask covers."""
        given, mask = self.frames.mask(camera, frame), self.silhouette(camera, frame)
        return mask if given is None else mask | given

    def silhouette(self, camera: int, frame: int) -> np.ndarray:
        """bool [H, W]: the bodies and the robot."""
        view = self.cameras[camera]
        key = (camera, frame)
        if key not in self._packed:
            t = float(self.times[camera][frame])
            mask = np.zeros((view.height, view.width), bool)
            for body in self.bodies:
                mask |= silhouette(body.splats, view, body.pose_at(t))
            self._packed[key] = np.packbits(mask)
        bits = np.unpackbits(self._packed[key], count=view.height * view.width)
        own = bits.reshape(view.height, view.width) > 0
        return own if self.robot is None else own | self.robot.silhouette(camera, frame)
