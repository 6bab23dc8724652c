"""The composed model: the robot stands where the rig says, rests in peace, and the bench stops it."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

from recon.core.errors import InputError
from sim2real.bench import Bench, Box
from sim2real.physics import CLEARANCE, Marker, compose, geom_bounds, rest

FLAT = Bench(Box((0.0, 0.0, -0.02), (0.6, 0.5, 0.02)), ())
ANYWHERE = np.array([[0.8, -0.6, 0, -0.25], [0.6, 0.8, 0, 0.1], [0, 0, 1, 0.0], [0, 0, 0, 1]])

URDF = """<robot name="two">
  <link name="base"><inertial><mass value="2"/>
    <inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><geometry><box size="0.1 0.1 0.1"/></geometry></visual></link>
  <link name="upper"><inertial><origin xyz="0 0 0.15"/><mass value="1"/>
    <inertia ixx="0.01" iyy="0.01" izz="0.002" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><origin xyz="0 0 0.15"/><geometry><box size="0.04 0.04 0.3"/></geometry></visual></link>
  <link name="lower"><inertial><origin xyz="0 0 0.1"/><mass value="0.5"/>
    <inertia ixx="0.004" iyy="0.004" izz="0.001" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><origin xyz="0 0 0.1"/><geometry><box size="0.03 0.03 0.2"/></geometry></visual></link>
  <joint name="a" type="revolute"><parent link="base"/><child link="upper"/><origin xyz="0 0 0.06"/><axis xyz="0 1 0"/>
    <limit lower="-2" upper="2" effort="50" velocity="3"/></joint>
  <joint name="b" type="revolute"><parent link="upper"/><child link="lower"/><origin xyz="0 0 0.31"/><axis xyz="0 1 0"/>
    <limit lower="0.2" upper="2.4" effort="50" velocity="3"/></joint>
</robot>"""


def test_base_stands_where_the_rig_says(robot: Path) -> None:
    world = compose(robot, ANYWHERE, FLAT)
    data = rest(world.model, world.arm)
    body = world.model.body("base").id
    assert data.xpos[body] == pytest.approx(ANYWHERE[:3, 3], abs=1e-9)
    assert data.xmat[body].reshape(3, 3) == pytest.approx(ANYWHERE[:3, :3], abs=1e-9)


def test_mounting_rotates_the_whole_robot_rigidly(robot: Path) -> None:
    here, there = compose(robot, np.eye(4), FLAT), compose(robot, ANYWHERE, FLAT)
    a, b = rest(here.model, here.arm), rest(there.model, there.arm)
    moved = a.site_xpos[here.arm.tcp] @ ANYWHERE[:3, :3].T + ANYWHERE[:3, 3]
    assert b.site_xpos[there.arm.tcp] == pytest.approx(moved, abs=1e-9)


def test_arm_is_found_without_its_gripper(robot: Path) -> None:
    arm = compose(robot, np.eye(4), FLAT).arm
    assert arm.joints == tuple(f"joint{i}" for i in range(1, 7)) and arm.site == "tcp"
    assert (arm.low < arm.home_qpos[arm.qpos]).all() and (arm.home_qpos[arm.qpos] < arm.high).all()


def test_at_rest_nothing_moves(robot: Path) -> None:
    world = compose(robot, np.eye(4), FLAT, [Marker("target", 0.02, (1, 0, 0))])
    data = rest(world.model, world.arm)
    for _ in range(500):
        mujoco.mj_step(world.model, data)
    assert np.abs(data.qpos - world.arm.home_qpos).max() < 0.01
    assert data.ncon == 0


def test_the_table_stops_the_arm(robot: Path) -> None:
    world = compose(robot, np.eye(4), FLAT)
    data = rest(world.model, world.arm)
    for _ in range(1500):
        data.ctrl[world.arm.ctrl[1]] = min(1.9, data.ctrl[world.arm.ctrl[1]] + 0.002)
        mujoco.mj_step(world.model, data)
    assert data.ncon > 0 and data.site_xpos[world.arm.tcp, 2] > -0.05


def test_boxes_in_the_robots_place_are_carved_and_others_stay(robot: Path) -> None:
    boxes = (Box((0.0, 0.0, 0.1), (0.05, 0.05, 0.1)), Box((0.0, 0.4, 0.1), (0.05, 0.05, 0.1)))
    world = compose(robot, np.eye(4), Bench(FLAT.table, boxes))
    assert world.bench.boxes == boxes[1:]
    data = rest(world.model, world.arm)
    kept = world.model.geom("bench_thing_000").id
    low, high = geom_bounds(world.model, data, kept)
    for geom in range(world.model.ngeom):
        if world.model.geom_bodyid[geom] not in (0, world.model.geom_bodyid[kept]):
            if world.model.body(world.model.geom_bodyid[geom]).name == "bench_table":
                continue
            a, b = geom_bounds(world.model, data, geom)
            assert (a > high + CLEARANCE - 1e-9).any() or (b < low - CLEARANCE + 1e-9).any()


def test_a_urdf_without_servos_gets_them_and_holds_its_pose(tmp_path: Path) -> None:
    path = tmp_path / "two.urdf"
    path.write_text(URDF)
    world = compose(path, np.eye(4), Bench(Box((0, 0, -0.3), (1, 1, 0.02)), ()))
    assert world.arm.joints == ("a", "b") and world.arm.servos == ("a_servo", "b_servo")
    data = rest(world.model, world.arm)
    for _ in range(500):
        mujoco.mj_step(world.model, data)
    assert np.abs(data.qpos - world.arm.home_qpos).max() < 0.01
    data.ctrl[world.arm.ctrl] = [0.5, 1.0]
    for _ in range(500):
        mujoco.mj_step(world.model, data)
    assert data.qpos[world.arm.qpos] == pytest.approx([0.5, 1.0], abs=0.01)


def test_what_cannot_be_simulated_is_refused(tmp_path: Path, robot: Path) -> None:
    path = tmp_path / "rock.xml"
    path.write_text("<mujoco><worldbody><body name='rock'><geom size='0.1'/></body></worldbody></mujoco>")
    with pytest.raises(InputError, match="has no arm"):
        compose(path, np.eye(4), FLAT)
    with pytest.raises(InputError, match="no body 'bsae'"):
        compose(robot, np.eye(4), FLAT, base_body="bsae")
    motor = tmp_path / "motor.xml"
    motor.write_text(
        "<mujoco><worldbody><body name='b'><geom size='0.1'/><body name='c' pos='0 0 .3'><joint name='j' axis='0 1 0'/>"
        "<geom size='0.05'/></body></body></worldbody><actuator><motor joint='j'/></actuator></mujoco>"
    )
    with pytest.raises(InputError, match="cannot be commanded by position"):
        compose(motor, np.eye(4), FLAT)
