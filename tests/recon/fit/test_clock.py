"""The robot's clock and a late camera are found from how the robot moves in the pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recon.core.files import data_file
from recon.fit.clock import find_clock_offset
from recon.fit.links import link_bodies, link_gaussians
from recon.fit.robot import KnownRobot, open_robot
from recon.geometry.camera import Camera
from recon.geometry.pose import look_at
from recon.geometry.rig import RobotEntry
from recon.robot.description import load_robot
from recon.scene.gaussians import RIGID

LATE = 2  # this camera's recording starts 30 ms late


class ArmFrames:
    """Pictures of an arm, white before grey, whose joint log runs `ahead` seconds before the cameras' clock."""

    def __init__(self, robot: KnownRobot, ahead: float, moving: bool = True) -> None:
        self.robot, self.ahead, self.moving = robot, ahead, moving
        self.cameras = []
        for k in range(4):
            angle = 0.4 + 1.5 * k
            eye = np.array([1.3 * np.cos(angle), 1.3 * np.sin(angle), 0.9])
            pose = look_at(eye, np.array([0.0, 0.0, 0.3]), np.array([0.0, 0.0, 1.0]))
            self.cameras.append(Camera(f"c{k}", 160, 120, 130.0, 130.0, 80.0, 60.0, cam_from_world=pose))
        self.names = [camera.name for camera in self.cameras]
        self.times = [np.arange(31) / 15.0 for _ in self.cameras]
        self.masks_are_whole = True

    def num_frames(self, camera: int) -> int:
        return len(self.times[camera])

    def picture(self, camera: int, frame: int) -> np.ndarray:
        t = float(self.times[camera][frame]) + (0.03 if camera == LATE else 0.0) + self.ahead if self.moving else 1.0
        mask = self.robot.mask(self.cameras[camera], t)
        return np.where(mask[..., None], np.uint8(220), np.uint8(90)).repeat(3, axis=2)

    def mask(self, camera: int, frame: int) -> np.ndarray | None:
        return None

    def valid(self, camera: int) -> np.ndarray:
        return np.ones((120, 160), dtype=bool)


@pytest.fixture
def robot(tmp_path: Path) -> KnownRobot:
    """The bundled arm, swinging to and fro."""
    (tmp_path / "arm.xml").write_bytes(data_file("robots/arm/arm.xml").read_bytes())
    names = list(load_robot(tmp_path / "arm.xml").joints)[:6]
    rows = ["time_s," + ",".join(names)]
    for t in np.linspace(-0.5, 2.7, 161):
        swing = [0.9 * np.sin(2.4 * t), 0.3 + 0.4 * np.sin(1.7 * t), 0.5, 0.1, 0.2, 0.0]
        rows.append(",".join([f"{t:.4f}"] + [f"{q:.5f}" for q in swing]))
    (tmp_path / "joints.csv").write_text("\n".join(rows) + "\n")
    return open_robot(tmp_path, RobotEntry("arm.xml", "MJCF", None, "joints.csv", np.eye(4)), np.eye(4))


@pytest.mark.parametrize("ahead", [-0.11, 0.05])
def test_the_clock_and_the_late_camera_are_found(robot: KnownRobot, ahead: float) -> None:
    found = find_clock_offset(robot, ArmFrames(robot, ahead))
    assert found.sure
    assert found.seconds == pytest.approx(ahead, abs=0.01)
    assert found.lags[LATE] == pytest.approx(0.03, abs=0.01)
    assert not np.delete(found.lags, LATE).any()
    late = robot.shifted(found.seconds)
    assert late.joints.times[0] == pytest.approx(robot.joints.times[0] - found.seconds)


def test_a_robot_that_stands_in_the_pictures_tells_no_time(robot: KnownRobot) -> None:
    found = find_clock_offset(robot, ArmFrames(robot, 0.0, moving=False))
    assert not found.sure and found.seconds == 0.0 and not found.lags.any()


def test_links_follow_forward_kinematics(robot: KnownRobot) -> None:
    bodies = link_bodies(robot, 0.0, 2.0)
    links = link_gaussians(robot, bodies, 500, 1, 0).validate()
    assert (links.kind == RIGID).all() and len(links) == 500
    assert set(links.object_id.tolist()) == {body.id for body in bodies}
    t = 0.737
    poses = robot.model.link_poses(robot.joints.at(t), robot.world_from_base)
    for body in bodies:
        assert body.track is not None and body.kind == "link"
        rotation, position, _ = body.track.at(t)
        np.testing.assert_allclose(rotation.numpy(), poses[body.name][:3, :3], atol=2e-4)
        np.testing.assert_allclose(position.numpy(), poses[body.name][:3, 3], atol=2e-4)
