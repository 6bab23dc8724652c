"""A robot's base and a joint's zero are found by its outline; an outline that tells nothing changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recon.core.files import data_file
from recon.fit.stance import BaseFit, RobotView, find_base, moved
from recon.geometry.camera import Camera
from recon.geometry.pose import look_at
from recon.locate import apart
from recon.robot.description import RobotModel, load_robot
from recon.robot.silhouettes import silhouette

SEEN = np.ones((240, 320), dtype=bool)


@pytest.fixture(scope="module")
def arm() -> RobotModel:
    path = data_file("robots/arm/arm.xml")
    return load_robot(path, root=path.parent)


def views(arm: RobotModel, base: np.ndarray, bend: float = 0.0) -> list[RobotView]:
    """What four cameras see of the arm in three poses; the second joint stands `bend` rad off what q says."""
    names = list(arm.joints)[:6]
    found = []
    for k in range(4):
        angle = 0.4 + 1.5 * k
        eye = np.array([1.3 * np.cos(angle), 1.3 * np.sin(angle), 0.9])
        pose = look_at(eye, np.array([0.0, 0.0, 0.3]))
        camera = Camera(f"c{k}", 320, 240, 260.0, 260.0, 160.0, 120.0, cam_from_world=pose)
        for turn in (-0.7, 0.1, 0.8):
            q = dict(zip(names, [turn, 0.3 + 0.4 * turn, 0.5, 0.1, 0.2, 0.0], strict=True))
            mask = silhouette(arm, {**q, names[1]: q[names[1]] + bend}, camera, base)
            found.append(RobotView(camera, q, 0.3 * mask.astype(np.float32), SEEN))
    return found


def found_from(arm: RobotModel, base: np.ndarray, bend: float = 0.0) -> BaseFit:
    turned = moved(base, np.r_[0.02, -0.015, 0.025, 0.012, -0.01, 0.008])
    found = find_base(arm, views(arm, base, bend), turned, list(arm.joints)[:6])
    assert found is not None and found.error < found.before
    return found


def test_the_base_is_found(arm: RobotModel) -> None:
    base = moved(np.eye(4), np.r_[0.0, 0.0, 0.3, 0.05, 0.02, 0.01])
    found = found_from(arm, base)
    millimetres, degrees = apart(base, found.world_from_base)
    assert millimetres < 1.0 and degrees < 0.15
    assert (found.sigma > 0).all()


def test_a_joint_that_stands_off_is_found(arm: RobotModel) -> None:
    name, bend = list(arm.joints)[1], np.radians(1.2)
    found = found_from(arm, np.eye(4), float(bend))
    assert found.joint_offsets[name] == pytest.approx(bend, abs=np.radians(0.4))


def test_pictures_without_the_robot_tell_nothing(arm: RobotModel) -> None:
    blank = [replace(view, difference=np.zeros_like(view.difference)) for view in views(arm, np.eye(4))]
    assert find_base(arm, blank, np.eye(4)) is None
    noise = np.random.default_rng(0).random((240, 320), np.float32)
    assert find_base(arm, [replace(view, difference=noise) for view in blank], np.eye(4)) is None
