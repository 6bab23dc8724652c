"""Frames of a capture with a known robot: its silhouette, by forward kinematics, is part of every frame's mask."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np

from recon.core.errors import InputError
from recon.core.events import Event, Progress, StageFinished, StageStarted
from recon.fit.data import Frames
from recon.fit.outlined import OutlinedFrames
from recon.geometry.camera import Camera, pixel_cells
from recon.geometry.pose import carried
from recon.geometry.rig import RobotEntry
from recon.robot.description import RobotModel, load_robot
from recon.robot.kinematics import JointLog, read_joint_log
from recon.robot.surface import SurfaceSamples, sample_surface

SCALE = 0.5  # of pictures wider than SMALL: silhouettes are grown by a few pixels anyway
SMALL = 320
MAX_GAP = 8.0  # pixels between splatted points that are closed
POINTS = 20_000  # on the robot's surface, splatted: a tenth of the time that drawing detailed meshes takes


@dataclass(frozen=True)
class KnownRobot:
    """A robot whose base pose (in the scene's world) and joint positions over time are known.

    root: the folder its files lie in. entry: as in the rig. joints: on the common clock.
    """

    root: Path
    entry: RobotEntry
    model: RobotModel
    joints: JointLog
    world_from_base: np.ndarray  # [4, 4]
    sought: bool = False  # nobody has said where the base is: world_from_base means nothing yet

    def shifted(self, seconds: float) -> KnownRobot:
        """The same robot with a joint log whose clock was `seconds` ahead of the cameras'."""
        return replace(self, joints=replace(self.joints, times=self.joints.times - seconds))

    def placed(self, world_from_base: np.ndarray, joint_offsets: Mapping[str, float]) -> KnownRobot:
        """The same robot elsewhere, with offsets (rad or m) added to what the log says of some joints."""
        add = np.array([joint_offsets.get(name, 0.0) for name in self.joints.names])
        joints = replace(self.joints, values=self.joints.values + add)
        return replace(self, joints=joints, world_from_base=world_from_base, sought=False)

    @property
    def revolute(self) -> list[str]:
        """Joints of the log that turn."""
        return [name for name in self.joints.names if self.model.joints[name].kind == "revolute"]

    @property
    def surface(self) -> dict[str, SurfaceSamples]:
        """Points of every link that can be seen, in its frame."""
        return _surface(self.model)

    def points_at(self, t: float, every: int = 1) -> np.ndarray:
        """[N, 3]: every `every`-th point of the surface in the scene's world at t [s].

        InputError when the log does not cover t.
        """
        poses = self.model.link_poses(self.joints.at(t), self.world_from_base)
        return np.concatenate(
            [s.points[::every] @ poses[name][:3, :3].T + poses[name][:3, 3] for name, s in self.surface.items()]
        )

    def mask(self, camera: Camera, t: float) -> np.ndarray:
        """bool [H, W]: the robot in an ideal camera's picture at t [s]; InputError when the log does not cover t."""
        small = camera.scaled(SCALE) if camera.width > SMALL else camera
        drawn = splat_mask(small, self.points_at(t), max(s.spacing for s in self.surface.values()))
        grown = cv2.resize(drawn.astype(np.uint8), (camera.width, camera.height), interpolation=cv2.INTER_NEAREST)
        return grown > 0


@lru_cache(maxsize=4)
def _surface(model: RobotModel) -> dict[str, SurfaceSamples]:
    # kept per model, which shifted and placed robots share: sampling takes seconds
    return sample_surface(model, POINTS)


def splat_mask(camera: Camera, points: np.ndarray, spacing: float) -> np.ndarray:
    """bool [H, W]: where points [N, 3] about `spacing` metres apart show, the gaps between them closed."""
    inside, column, row, depth = pixel_cells(camera, points)
    inside &= depth > 1e-3
    mask = np.zeros((camera.height, camera.width), np.uint8)
    if not inside.any():
        return mask > 0
    mask[row[inside], column[inside]] = 1
    gap = spacing * camera.fx / float(np.median(depth[inside]))  # pixels
    side = 2 * int(np.ceil(min(gap, MAX_GAP))) + 1
    # closed beyond the border, so that what leaves the picture stays whole there
    wide = cv2.copyMakeBorder(mask, side, side, side, side, cv2.BORDER_REPLICATE)
    closed = cv2.morphologyEx(wide, cv2.MORPH_CLOSE, np.ones((side, side), np.uint8))
    return closed[side:-side, side:-side] > 0


def open_robot(root: Path, entry: RobotEntry, scene_from_rig: np.ndarray) -> KnownRobot:
    """Read description and joint log; InputError when the entry lacks what silhouettes need."""
    if entry.joint_log is None:
        raise InputError(
            "the robot has no joint log", fix="give --joints FILE.csv, or `joint_log` in the calibration's robot entry"
        )
    model = load_robot(root / entry.file, base_body=entry.base_body, root=root)
    joints = read_joint_log(root / entry.joint_log)
    joints.check_against(model)
    if entry.world_from_base is None:
        return KnownRobot(root, entry, model, joints, np.eye(4), sought=True)
    base = carried(scene_from_rig, np.asarray(entry.world_from_base, dtype=np.float64))
    return KnownRobot(root, entry, model, joints, base)


class RobotFrames(OutlinedFrames):
    """`Frames` whose masks hold the robot's silhouette, beside the masks that were given.

    lags: seconds [C] that are added to each camera's times; None: none.
    """

    def __init__(self, frames: Frames, robot: KnownRobot, lags: np.ndarray | None = None) -> None:
        super().__init__(frames)
        self.robot = robot
        if lags is not None:
            self.times = [times + lag for times, lag in zip(frames.times, lags, strict=True)]

    def _outline(self, camera: int, frame: int) -> np.ndarray:
        return self.robot.mask(self.cameras[camera], float(self.times[camera][frame]))

    def draw_all(self) -> Iterator[Event]:
        """Draw every silhouette once; yields progress."""
        started, done = time.monotonic(), 0
        total = sum(self.num_frames(c) for c in range(len(self.cameras)))
        yield StageStarted("robot", total)
        for camera in range(len(self.cameras)):
            for frame in range(self.num_frames(camera)):
                self.silhouette(camera, frame)
                done += 1
                if done % 8 == 0:
                    yield Progress("robot", done, total)
        yield StageFinished("robot", time.monotonic() - started)
