"""Reading robot descriptions: what is kept, what is drawn, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from recon.core.errors import InputError, UnavailableError
from recon.robot import RobotModel, load_robot
from recon.robot.meshes import box, cylinder, ellipsoid

TRIANGLE_OBJ = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


def mjcf(body: str, asset: str = "", extra: str = "") -> str:
    return f'<mujoco><asset>{asset}</asset><worldbody><body name="a">{body}</body></worldbody>{extra}</mujoco>'


def urdf(mesh: str) -> str:
    visual = f'<visual><geometry><mesh filename="{mesh}"/></geometry></visual>'
    return f'<robot name="r"><link name="l">{visual}</link></robot>'


def written(folder: Path, text: str, name: str = "robot.xml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_arm_has_its_links_joints_and_site(arm: RobotModel) -> None:
    assert list(arm.links)[:3] == ["base", "link1", "link2"]
    assert arm.links["left_finger"].parent == "hand" and arm.links["base"].parent is None
    assert [j.name for j in arm.joints.values() if j.kind == "prismatic"] == ["finger_joint1", "finger_joint2"]
    assert (arm.joints["joint2"].lower, arm.joints["joint2"].upper) == (-1.9, 1.9)
    assert arm.home["joint3"] == 1.5 and arm.home["finger_joint1"] == 0.04
    assert arm.sites["tcp"].link == "hand"
    assert all(len(link.triangles) for link in arm.links.values())


def test_urdf_and_mjcf_of_the_arm_agree(arm: RobotModel, arm_folder: Path) -> None:
    twin = load_robot(arm_folder / "arm.urdf")
    assert set(twin.links) == {*arm.links, "tcp"}
    assert twin.couplings == arm.couplings
    rng = np.random.default_rng(0)
    for _ in range(5):
        q = {joint.name: float(rng.uniform(joint.lower, joint.upper)) for joint in arm.joints.values()}
        ours, theirs = arm.link_poses(q), twin.link_poses(q)
        for name, pose in ours.items():
            np.testing.assert_allclose(pose, theirs[name], atol=1e-7)
        np.testing.assert_allclose(arm.site_pose("tcp", q), theirs["tcp"], atol=1e-7)
    for name, link in arm.links.items():
        other = twin.links[name]
        np.testing.assert_allclose(link.triangles.min((0, 1)), other.triangles.min((0, 1)), atol=1e-6)
        np.testing.assert_allclose(link.triangles.max((0, 1)), other.triangles.max((0, 1)), atol=1e-6)
        assert {mesh.rgba for mesh in link.meshes} == {mesh.rgba for mesh in other.meshes}


@pytest.mark.parametrize(
    ("mesh", "volume"),
    [
        (box(np.array([0.1, 0.2, 0.3])), 8 * 0.006),
        (ellipsoid(np.array([0.1, 0.2, 0.3])), 4 / 3 * np.pi * 0.006),
        (cylinder(0.1, 0.2), np.pi * 0.01 * 0.4),
    ],
)
def test_primitives_are_closed_wound_outwards_and_of_the_right_volume(mesh: tuple, volume: float) -> None:
    vertices, faces = mesh
    edges = {(int(f[i]), int(f[(i + 1) % 3])) for f in faces for i in range(3)}
    assert len(edges) == 3 * len(faces) and all((b, a) in edges for a, b in edges)
    v = vertices[faces]
    measured = np.einsum("fi,fi->f", v[:, 0], np.cross(v[:, 1], v[:, 2])).sum() / 6
    assert volume * 0.97 < measured <= volume * 1.0000001


def test_a_capsule_and_a_rotated_geom_are_placed(tmp_path: Path) -> None:
    text = mjcf('<geom type="capsule" size="0.1 0.3" pos="1 2 3" quat="0.70710678 0 0.70710678 0"/>')
    link = load_robot(written(tmp_path, text)).links["a"]
    np.testing.assert_allclose(link.triangles.min((0, 1)), [0.6, 1.9, 2.9], atol=2e-3)
    np.testing.assert_allclose(link.triangles.max((0, 1)), [1.4, 2.1, 3.1], atol=2e-3)


def test_mesh_geoms_come_back_where_the_file_puts_them(tmp_path: Path) -> None:
    written(tmp_path, TRIANGLE_OBJ, "meshes/t.obj")
    text = mjcf('<geom type="mesh" mesh="t" pos="0 0 5"/>', '<mesh name="t" file="meshes/t.obj" scale="2 2 2"/>')
    triangles = load_robot(written(tmp_path, text)).links["a"].triangles
    np.testing.assert_allclose(triangles.min((0, 1)), [0, 0, 5], atol=1e-6)
    np.testing.assert_allclose(triangles.max((0, 1)), [2, 2, 7], atol=1e-6)


def test_visual_geoms_are_preferred_link_by_link(tmp_path: Path) -> None:
    text = mjcf(
        '<geom type="sphere" size="0.1" group="2" contype="0" conaffinity="0" rgba="1 0 0 1"/>'
        '<geom type="box" size="1 1 1" group="3"/><geom type="box" size="1 1 1"/>'
        '<body name="b"><geom type="box" size=".2 .2 .2"/><geom type="box" size="3 3 3" rgba="1 1 1 0"/></body>'
    )
    links = load_robot(written(tmp_path, text)).links
    assert [mesh.rgba for mesh in links["a"].meshes] == [(1.0, 0.0, 0.0, 1.0)]
    assert np.abs(links["b"].triangles).max() == pytest.approx(0.2)
    hidden = mjcf('<geom type="box" size="1 1 1" group="3"/>')
    assert len(load_robot(written(tmp_path, hidden)).links["a"].triangles) == 12


def test_colour_is_the_geoms_own_before_its_materials(tmp_path: Path) -> None:
    asset = '<material name="m" rgba="0 0 1 1"/>'
    text = mjcf(
        '<geom type="box" size="1 1 1" material="m"/><geom type="box" size="1 1 1" material="m" rgba="1 1 0 1"/>', asset
    )
    meshes = load_robot(written(tmp_path, text)).links["a"].meshes
    assert [mesh.rgba for mesh in meshes] == [(0.0, 0.0, 1.0, 1.0), (1.0, 1.0, 0.0, 1.0)]
    assert meshes[0].trimesh().visual.face_colors[0].tolist() == [0, 0, 255, 255]


def test_loose_objects_and_scenery_are_left_out(tmp_path: Path) -> None:
    text = (
        '<mujoco><worldbody><geom type="plane" size="1 1 1"/><body name="a"><geom type="box" size="1 1 1"/></body>'
        '<body name="cup"><freejoint/><geom type="box" size="1 1 1"/></body></worldbody></mujoco>'
    )
    assert list(load_robot(written(tmp_path, text)).links) == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<mujoco><worldbody/></mujoco>", "has no links"),
        ("<sdf/>", "root element is <sdf>"),
        ("not xml", "is not XML"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><mujoco/>', "declares XML entities"),
        (mjcf('<joint type="ball" name="j"/><geom size="1"/>'), "ball joint 'j'"),
        (mjcf('<joint/><geom size="1"/>'), "joint without a name"),
        (mjcf('<geom type="mesh" mesh="nothing"/>'), "cannot be read"),
        (mjcf("", '<mesh name="m" file="absent.obj"/>'), "no such file"),
    ],
)
def test_bad_descriptions_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_robot(written(tmp_path, text))
    assert "robot.xml" in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda out: mjcf("", f'<mesh name="m" file="{out}"/>'),
        lambda out: mjcf("", '<mesh name="m" file="../outside.obj"/>'),
        lambda out: mjcf("", '<mesh name="m" file="link.obj"/>'),
        lambda out: mjcf("", '<texture type="2d" name="t" file="../outside.obj"/>'),
        lambda out: '<mujoco><compiler meshdir=".."/><asset><mesh name="m" file="outside.obj"/></asset></mujoco>',
        lambda out: '<mujoco><include file="../outside.xml"/></mujoco>',
        lambda out: '<mujoco><include file="inner.xml"/></mujoco>',
        lambda out: urdf(f"file://{out}"),
        lambda out: urdf("package://p/../../outside.obj"),
    ],
)
def test_no_file_outside_the_folder_is_read(tmp_path: Path, make: Callable[[Path], str]) -> None:
    outside = written(tmp_path, TRIANGLE_OBJ, "outside.obj")
    written(tmp_path, "<mujoco/>", "outside.xml")
    folder = tmp_path / "robot"
    folder.mkdir()
    (folder / "link.obj").symlink_to(outside)
    written(folder, '<mujoco><asset><mesh name="m" file="../outside.obj"/></asset></mujoco>', "inner.xml")
    path = written(folder, make(outside))
    with pytest.raises(InputError, match="leaves the robot's folder"):
        load_robot(path)


def test_a_wider_root_allows_neighbouring_folders(tmp_path: Path) -> None:
    written(tmp_path, TRIANGLE_OBJ, "robot/meshes/t.obj")
    text = mjcf('<geom type="mesh" mesh="t"/>', '<mesh name="t" file="../meshes/t.obj"/>')
    path = written(tmp_path, text, "robot/mjcf/robot.xml")
    with pytest.raises(InputError, match="leaves"):
        load_robot(path)
    assert len(load_robot(path, root=tmp_path / "robot").links["a"].triangles) == 4
    with pytest.raises(InputError, match="lies outside"):
        load_robot(path, root=tmp_path / "elsewhere")


def test_urdf_meshes_are_found_by_package_and_by_relative_name(tmp_path: Path) -> None:
    written(tmp_path, TRIANGLE_OBJ, "meshes/t.obj")
    for name in ("package://some_robot/meshes/t.obj", "meshes/t.obj"):
        assert len(load_robot(written(tmp_path, urdf(name), "r.urdf")).links["l"].triangles) == 4
    written(tmp_path, "x", "meshes/t.dae")
    text = urdf("meshes/t.dae")
    with pytest.raises(InputError, match="Convert it to OBJ or STL"):
        load_robot(written(tmp_path, text, "r.urdf"))


def test_an_unknown_base_body_is_answered_with_a_suggestion(arm_folder: Path) -> None:
    with pytest.raises(InputError, match="Did you mean 'base'"):
        load_robot(arm_folder / "arm.xml", base_body="bsae")


def test_without_mujoco_the_message_says_what_to_install(arm_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(UnavailableError, match="Install the sim extra"):
        load_robot(arm_folder / "arm.xml")
