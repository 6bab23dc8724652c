"""Frames of a capture whose bodies are known: where they show is part of every frame's mask, as a known robot is."""

from __future__ import annotations

import numpy as np

from recon.fit.data import Frames
from recon.fit.outlined import OutlinedFrames
from recon.fit.robot import RobotFrames
from recon.objects.body import FoundBody
from recon.objects.splats import silhouette


class BodyFrames(OutlinedFrames):
    """`Frames` whose masks hold the bodies' outlines, and the robot's, beside the masks that were given."""

    def __init__(self, frames: Frames, robot: RobotFrames | None, bodies: list[FoundBody]) -> None:
        super().__init__(frames)
        self.robot, self.bodies = robot, bodies

    def _outline(self, camera: int, frame: int) -> np.ndarray:
        view, t = self.cameras[camera], float(self.times[camera][frame])
        mask = np.zeros((view.height, view.width), bool)
        for body in self.bodies:
            mask |= silhouette(body.splats, view, body.pose_at(t))
        return mask if self.robot is None else mask | self.robot.silhouette(camera, frame)
