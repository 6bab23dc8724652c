"""Forward kinematics against a slow twin, couplings, and the strict joint log."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.core.errors import InputError
from recon.geometry.quaternion import quat_to_matrix
from recon.robot import JointLog, RobotModel, load_robot, read_joint_log
from recon.robot.kinematics import Coupling


def chain_twin(model: RobotModel, q: dict[str, float]) -> dict[str, np.ndarray]:
    """Link poses by multiplying offsets and joint motions down the tree."""
    compiled, poses = model.mj_model, {}
    for name, link in model.links.items():
        offset = np.eye(4)
        offset[:3, :3] = quat_to_matrix(np.array(compiled.body_quat[link.body]))
        offset[:3, 3] = compiled.body_pos[link.body]
        pose = (poses[link.parent] if link.parent else np.eye(4)) @ offset
        for joint in model.joints.values():
            if joint.link != name:
                continue
            axis = np.array(compiled.jnt_axis[compiled.joint(joint.name).id])
            move = np.eye(4)
            if joint.kind == "prismatic":
                move[:3, 3] = q[joint.name] * axis
            else:
                x, y, z = axis
                cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
                angle = q[joint.name]
                move[:3, :3] = np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
            pose = pose @ move
        poses[name] = pose
    return poses


@given(st.lists(st.floats(-1, 1), min_size=8, max_size=8))
def test_link_poses_equal_the_product_of_transforms(arm: RobotModel, values: list[float]) -> None:
    q = dict(zip(arm.joints, values, strict=True))
    twin = chain_twin(arm, q)
    for name, pose in arm.link_poses(q).items():
        np.testing.assert_allclose(pose, twin[name], atol=1e-12)


def test_the_base_is_where_it_is_said_to_be(arm: RobotModel, arm_folder: Path) -> None:
    world_from_base = np.eye(4)
    world_from_base[:3, :3] = quat_to_matrix(np.array([0.9, 0.1, -0.3, 0.2]))
    world_from_base[:3, 3] = [1, 2, 3]
    q = {"joint1": 0.4, "joint2": -0.7}
    plain, moved = arm.link_poses(q), arm.link_poses(q, world_from_base)
    np.testing.assert_allclose(moved["base"], world_from_base, atol=1e-12)
    np.testing.assert_allclose(moved["hand"], world_from_base @ plain["hand"], atol=1e-12)
    by_hand = load_robot(arm_folder / "arm.xml", base_body="hand").link_poses(q, world_from_base)
    np.testing.assert_allclose(by_hand["hand"], world_from_base, atol=1e-12)
    np.testing.assert_allclose(
        np.linalg.inv(by_hand["hand"]) @ by_hand["base"], np.linalg.inv(plain["hand"]) @ plain["base"], atol=1e-12
    )


def test_joints_left_out_follow_their_coupling_or_rest_at_home(arm: RobotModel) -> None:
    full = dict(arm.home, finger_joint1=0.01, finger_joint2=0.01, joint1=0.3)
    short = arm.link_poses({"finger_joint1": 0.01, "joint1": 0.3})
    for name, pose in arm.link_poses(full).items():
        np.testing.assert_array_equal(pose, short[name])
    apart = arm.link_poses({"finger_joint1": 0.01, "finger_joint2": 0.03})  # measured positions win over the coupling
    assert apart["right_finger"][1, 3] != pytest.approx(short["right_finger"][1, 3])


def test_a_coupling_is_a_polynomial_about_its_zeros() -> None:
    coupling = Coupling("f", "l", (0.5, 2.0, 0.0, 3.0, 0.0), follower_zero=0.1, leader_zero=0.2)
    assert coupling.position(0.4) == pytest.approx(0.1 + 0.5 + 2 * 0.2 + 3 * 0.2**3)


def test_unknown_joints_and_bad_numbers_are_refused(arm: RobotModel) -> None:
    with pytest.raises(InputError, match="Did you mean 'joint1'"):
        arm.link_poses({"joint_1": 0.0})
    with pytest.raises(InputError, match="not a finite number"):
        arm.link_poses({"joint1": float("nan")})
    with pytest.raises(InputError, match="has no site 'tpc'"):
        arm.site_pose("tpc", {})


def log_file(folder: Path, text: str) -> Path:
    path = folder / "joints.csv"
    path.write_text(text)
    return path


def test_a_log_is_read_and_interpolated(tmp_path: Path) -> None:
    log = read_joint_log(log_file(tmp_path, "\ufefftime_s, a ,b\n0,1,2\n0.1,2,4\n\n0.2,4,0\n"))
    assert log.names == ("a", "b")
    assert log.at(0.15) == pytest.approx({"a": 3.0, "b": 2.0})
    assert log.at(-0.3) == {"a": 1.0, "b": 2.0} and log.at(0.6) == {"a": 4.0, "b": 0.0}
    for t in (-0.6, 0.8, float("nan")):
        with pytest.raises(InputError, match="clock offset"):
            log.at(t)


@given(st.integers(2, 30), st.integers(0, 2**32 - 1))
def test_interpolation_stays_between_its_neighbours(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    times, values = np.cumsum(rng.uniform(0.01, 0.4, count)), rng.normal(size=(count, 2))
    log = JointLog(times, ("a", "b"), values)
    t = float(rng.uniform(times[0], times[-1]))
    k = int(np.clip(np.searchsorted(times, t, side="right") - 1, 0, count - 2))
    low, high = np.minimum(values[k], values[k + 1]), np.maximum(values[k], values[k + 1])
    now = np.array(list(log.at(t).values()))
    assert np.all(now >= low - 1e-12) and np.all(now <= high + 1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no header"),
        ("a,b\n0,1\n1,2\n", "no header"),
        ("time_s\n0\n", "no header"),
        ("time_s,a,a\n0,1,1\n0.1,1,1\n", "empty, repeated"),
        ("time_s,a\n0,1\n", "1 samples"),
        ("time_s,a\n0,1\n0.1\n", "line 3: 1 values where the header has 2"),
        ("time_s,a\n0,1\n0.1,x\n", "line 3: could not convert"),
        ("time_s,a\n0,1\n0.1,nan\n", "line 3: a value is not finite"),
        ("time_s,a\n0,1\n0.1,1\n0.1,2\n", "sample 3: its time is not later"),
        ("time_s,a\n0,1\n0.2,1\n0.1,2\n", "sample 3: its time is not later"),
        ("time_s,a\n0,1\n0.1,1\n0.8,2\n", "gap of 0.70 s at 0.100 s"),
    ],
)
def test_bad_logs_are_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_joint_log(log_file(tmp_path, text))
    assert "joints.csv" in str(caught.value)


def test_a_log_is_checked_against_the_robot(arm: RobotModel) -> None:
    JointLog(np.arange(2.0), ("joint1",), np.zeros((2, 1))).check_against(arm)
    with pytest.raises(InputError, match="column 'elbow'"):
        JointLog(np.arange(2.0), ("elbow",), np.zeros((2, 1))).check_against(arm)
    with pytest.raises(InputError, match="cannot be read"):
        read_joint_log("/nonexistent/joints.csv")
