"""A known robot is part of every frame's mask, and of nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recon.core.errors import InputError
from recon.core.files import data_file
from recon.fit.plate import make_plate, moving_mask
from recon.fit.robot import RobotFrames, open_robot
from recon.geometry.rig import RobotEntry
from recon.robot.description import load_robot
from recon.robot.silhouettes import silhouette
from tests.recon.fit.tiny import TinyFrames


@pytest.fixture
def robot_folder(tmp_path: Path) -> tuple[Path, RobotEntry]:
    """The bundled arm with a two-second joint log that turns its first joint."""
    source = data_file("robots/arm/arm.xml")
    (tmp_path / "arm.xml").write_bytes(source.read_bytes())
    model = load_robot(tmp_path / "arm.xml")
    names = list(model.joints)[:6]
    rows = ["time_s," + ",".join(names)]
    for t in np.linspace(-0.2, 1.8, 21):
        rows.append(",".join([f"{t:.3f}", f"{0.8 * t:.4f}"] + ["0.1"] * 5))
    (tmp_path / "joints.csv").write_text("\n".join(rows) + "\n")
    base = np.eye(4)
    return tmp_path, RobotEntry("arm.xml", "MJCF", None, "joints.csv", base)


def test_masks_hold_the_silhouette_and_what_was_given(robot_folder: tuple[Path, RobotEntry]) -> None:
    robot = open_robot(*robot_folder, np.eye(4))
    plain, given = TinyFrames(6, masks=False), TinyFrames(6, masks=True)
    camera, frame = 2, 3
    view, t = plain.cameras[camera], float(plain.times[camera][frame])
    exact = silhouette(robot.model, robot.joints.at(t), view, robot.world_from_base)
    found = RobotFrames(plain, robot).mask(camera, frame)
    assert exact.sum() > 50
    assert (found & exact).sum() / (found | exact).sum() > 0.7  # drawn at half the resolution of a 64 x 48 picture
    ball = given.mask(camera, frame)
    assert ball is not None
    assert np.array_equal(RobotFrames(given, robot).mask(camera, frame), found | ball)


def test_the_base_is_placed_in_the_scenes_world(robot_folder: tuple[Path, RobotEntry]) -> None:
    scene_from_rig = np.eye(4)
    scene_from_rig[:3, 3] = [0.3, 0.0, 0.0]
    moved = open_robot(*robot_folder, scene_from_rig)
    assert np.allclose(moved.world_from_base[:3, 3], [0.3, 0, 0])


def test_the_robot_is_taken_out_of_the_plate(robot_folder: tuple[Path, RobotEntry]) -> None:
    frames = RobotFrames(TinyFrames(6, masks=False), open_robot(*robot_folder, np.eye(4)))
    covered = np.all([frames.mask(0, i) for i in range(6)], axis=0)
    assert covered.any()
    assert (make_plate(frames, 0).weight[covered] == 0).all()


def test_motion_beside_the_robot_still_counts(robot_folder: tuple[Path, RobotEntry]) -> None:
    frames = RobotFrames(TinyFrames(6, masks=False), open_robot(*robot_folder, np.eye(4)))
    motion = np.zeros((48, 64), dtype=bool)
    motion[:4, :4] = True
    assert np.array_equal(moving_mask(frames, 0, 1, motion), frames.mask(0, 1) | motion)


def test_what_is_missing_is_named(robot_folder: tuple[Path, RobotEntry]) -> None:
    root, entry = robot_folder
    with pytest.raises(InputError, match="joint log"):
        open_robot(root, replace(entry, joint_log=None), np.eye(4))
    assert open_robot(root, replace(entry, world_from_base=None), np.eye(4)).sought
