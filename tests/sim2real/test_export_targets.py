"""What every exported folder holds, held against the MuJoCo model it came from, with no target installed."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
import trimesh

from recon.core.errors import InputError, UsageError
from recon.core.files import read_json, verify_folder
from recon.geometry.camera import project
from recon.geometry.quaternion import quat_to_matrix
from recon.robot import load_robot
from recon.robot.source import compile_spec, load_spec
from recon.scene.folder import load_scene, save_scene
from recon.scene.formats.registry import read_splats
from recon.scene.gaussians import Gaussians
from sim2real.config import ExportOptions
from sim2real.export import TARGETS, export
from sim2real.export.cargo import Cargo, load_cargo
from sim2real.export.parts import moved, robot_parts, segments

# ------------------------------------------------------------------ every target


@pytest.mark.parametrize("name", TARGETS)
def test_a_folder_is_whole_says_what_it_lacks_and_names_no_path_of_this_machine(name: str, exports: Path) -> None:
    listed = verify_folder(exports / name)
    text = (exports / name / "README.md").read_text()
    assert "Not carried:" in text and "- lens distortion" in text
    for file in listed:
        content = (exports / name / file).read_bytes()
        assert str(exports.parent).encode() not in content and b"/data/robots" not in content, file
        if Path(file).suffix == ".py":
            compile(content, file, "exec")


def test_the_same_scene_gives_the_same_bytes(bodies_folder: Path, robot: Path, exports: Path, tmp_path: Path) -> None:
    list(export(ExportOptions(str(bodies_folder), ",".join(TARGETS), tmp_path / "again", robot)))
    for name in TARGETS:
        assert verify_folder(tmp_path / "again" / name) == verify_folder(exports / name), name


def test_the_header_knows_robot_bodies_cameras_and_gaussians(cargo: Cargo, exports: Path) -> None:
    header = read_json(exports / "pybullet" / "scene.json")
    assert (header["format"], header["version"], header["up"]) == ("recon-export", 1, "z")
    assert [link["name"] for link in header["robot"]["links"]] == [part.name for part in cargo.parts]
    assert {thing["name"]: thing["plain"] for thing in header["things"]} == {"red cup": "red_cup", "wedge": "wedge"}
    assert all("assumed" in thing["friction_source"] for thing in header["things"])
    assert header["things"][0]["mass"] == pytest.approx(0.08 * 700 * 24 / 2 * 0.03**2 * np.sin(2 * np.pi / 24))
    assert set(header["cameras"]) == {"cam00", "cam01", "cam02"}
    for entry in header["splats"].values():
        assert (exports / "pybullet" / entry["file"]).is_file()


def test_bodies_start_just_above_the_table_they_were_recorded_in(cargo: Cargo) -> None:
    data = mujoco.MjData(cargo.model)
    data.qpos[:] = cargo.rest_qpos
    mujoco.mj_forward(cargo.model, data)
    assert all(thing.lift > 0.002 for thing in cargo.things)
    depths = [c.dist for c in data.contact[: data.ncon] if cargo.model.geom_bodyid[c.geom].max() >= 10]
    assert min(depths, default=0) > -2e-4


def test_to_list_names_all_targets_with_one_line_each() -> None:
    lines = [event.text for event in export(ExportOptions(None, "list"))]
    assert [line.split(":")[0] for line in lines] == list(TARGETS)
    assert all(20 < len(line) < 160 and "\n" not in line for line in lines)


def test_what_cannot_leave_is_refused(bodies_folder: Path, robot: Path, scene, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    with pytest.raises(UsageError, match="holds something else"):
        list(export(ExportOptions(str(bodies_folder), "usd", tmp_path / "mine", robot)))
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years"
    with pytest.raises(UsageError, match="no export to 'newtn'"):
        list(export(ExportOptions(str(bodies_folder), "usd,newtn", tmp_path / "out", robot)))
    with pytest.raises(UsageError, match="no scene is given"):
        list(export(ExportOptions(None, "usd")))
    save_scene(replace(scene, metric=False), tmp_path / "unknown")
    with pytest.raises(InputError, match="scale"):
        list(export(ExportOptions(str(tmp_path / "unknown"), "pybullet", tmp_path / "out", robot)))
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------ robots


AWKWARD = """
<mujoco><compiler angle="radian"/><worldbody><body name="base" pos="0.1 0.2 0.3" quat="0.8 0 0.6 0">
  <geom type="box" size="0.1 0.1 0.1"/>
  <body name="two" pos="0 0 0.2" quat="0.6 0.8 0 0">
    <joint name="a" type="hinge" axis="0 0.6 0.8" pos="0.02 0.01 0" ref="0.3" range="-1 2"/>
    <joint name="b" type="slide" axis="1 0 0" ref="0.05" range="-0.1 0.2"/>
    <geom type="capsule" size="0.03 0.1"/>
    <body name="off" pos="0.1 0 0.1"><joint name="c" axis="0 1 0" pos="0 0 -0.05"/><geom type="sphere" size="0.02"/>
    </body></body></body></worldbody></mujoco>"""


@pytest.fixture(scope="module")
def awkward(tmp_path_factory) -> tuple:
    path = tmp_path_factory.mktemp("awkward") / "robot.xml"
    path.write_text(AWKWARD)
    model = compile_spec(load_spec(path), path)
    return model, robot_parts(model, load_robot(path), model.qpos0)


def test_joints_off_the_origin_two_to_a_link_and_with_a_reference_keep_their_motion(awkward) -> None:
    model, parts = awkward
    data = mujoco.MjData(model)
    for seed in range(4):
        q = dict(zip("abc", np.random.default_rng(seed).uniform(-0.1, 0.2, 3), strict=True))
        for name, value in q.items():
            data.qpos[model.joint(name).qposadr[0]] = value
        mujoco.mj_kinematics(model, data)
        poses = {None: np.eye(4)}
        for part in parts:
            for s in segments(part):
                move = np.eye(4) if s.joint is None else moved(s.joint, q[s.joint.name])
                poses[s.child] = poses[s.parent] @ s.origin @ move
            body = model.body(part.name).id
            assert poses[part.name][:3, 3] == pytest.approx(data.xpos[body], abs=1e-12)
            assert poses[part.name][:3, :3].ravel() == pytest.approx(data.xmat[body], abs=1e-12)


GRIPPER = """
<mujoco><worldbody><body name="hand"><geom type="box" size="0.1 0.1 0.1"/>
  <body name="left"><joint name="l" type="slide" axis="0 1 0" range="0 0.04"/><geom type="sphere" size="0.01"/></body>
  <body name="right"><joint name="r" type="slide" axis="0 -1 0" range="0 0.04"/><geom type="sphere" size="0.01"/></body>
  </body></worldbody>
  <tendon><fixed name="split"><joint joint="l" coef="0.5"/><joint joint="r" coef="0.5"/></fixed></tendon>
  <equality><joint joint1="l" joint2="r"/></equality>
  <actuator><general tendon="split" ctrlrange="0 255" gainprm="0.0157 0 0" biastype="affine" biasprm="0 -100 -10"
    forcerange="-100 100"/></actuator></mujoco>"""


def test_a_servo_on_a_tendon_is_shared_by_its_fingers(tmp_path: Path) -> None:
    path = tmp_path / "gripper.xml"
    path.write_text(GRIPPER)
    model = compile_spec(load_spec(path), path)
    joints = [joint for part in robot_parts(model, load_robot(path), model.qpos0) for joint in part.joints]
    # together they feel what the tendon gives at equal openings: F = -100 q - 10 v, half of it each
    assert [(j.name, j.kp, j.kv, j.force, j.command) for j in joints] == [
        ("l", 50.0, 5.0, 50.0, (0.0, 0.04)), ("r", 50.0, 5.0, 50.0, (0.0, 0.04))
    ]  # fmt: skip


def test_the_urdf_moves_and_weighs_as_the_model_does(made, cargo: Cargo, exports: Path) -> None:
    robot = load_robot(exports / "pybullet" / "robot.urdf")
    for seed in range(5):
        q = made.random_joints(cargo, seed)
        expected, found = made.mujoco_poses(cargo, q), robot.link_poses(q)
        for part in cargo.parts:
            assert found[part.name] == pytest.approx(expected[part.name], abs=1e-9), part.name
    for part in cargo.parts:
        body = robot.mj_model.body(part.name).id
        assert robot.mj_model.body_mass[body] == pytest.approx(part.mass, rel=1e-9)
        read = made.tensor(quat_to_matrix(robot.mj_model.body_iquat[body]), robot.mj_model.body_inertia[body])
        assert read == pytest.approx(made.tensor(part.axes, part.moments), abs=1e-6 * part.moments.max()), part.name
        assert robot.mj_model.body_ipos[body] == pytest.approx(part.center, abs=1e-9)
    for joint in (j for part in cargo.parts for j in part.joints):
        found = robot.joints[joint.name]
        assert (found.kind, found.lower, found.upper) == (joint.kind, joint.lower, joint.upper)
    assert [(c.follower, c.leader) for c in robot.couplings] == [("finger_joint2", "finger_joint1")]


def test_the_urdf_of_a_body_has_its_mass_and_every_piece(made, cargo: Cargo, exports: Path) -> None:
    for thing in cargo.things:
        name = {"red cup": "red_cup"}.get(thing.name, thing.name)
        model = compile_spec(load_spec(exports / "pybullet" / f"{name}.urdf"), exports)
        body = model.body(name).id
        ours = cargo.model.body(thing.name).id
        assert model.body_mass[body] == pytest.approx(thing.mass, rel=1e-9)
        read = made.tensor(quat_to_matrix(model.body_iquat[body]), model.body_inertia[body])
        assert read == pytest.approx(thing.inertia, abs=1e-6 * thing.inertia.max())
        assert made.tensor(
            quat_to_matrix(cargo.model.body_iquat[ours]), cargo.model.body_inertia[ours]
        ) == pytest.approx(thing.inertia, abs=1e-6 * thing.inertia.max())
        solid = [g for g in range(model.ngeom) if model.geom_contype[g]]
        assert len(solid) == len(thing.pieces) == {"red cup": 1, "wedge": 2}[thing.name]


def test_glb_surfaces_keep_place_and_colour(cargo: Cargo, exports: Path) -> None:
    folder = exports / "maniskill" / "meshes"
    cup = trimesh.load(folder / "red_cup.glb", force="mesh", process=False)
    expected = next(thing for thing in cargo.things if thing.name == "red cup").surface
    assert cup.bounds == pytest.approx(expected.bounds, abs=1e-6)
    assert np.asarray(cup.visual.vertex_colors)[0].tolist() == [200, 30, 30, 255]
    link = trimesh.load(folder / "link2.glb")
    part = next(part for part in cargo.parts if part.name == "link2")
    points = np.concatenate([mesh.vertices for mesh in part.meshes])
    assert link.bounds == pytest.approx(np.stack([points.min(0), points.max(0)]), abs=1e-6)
    colours = {tuple(g.visual.material.baseColorFactor.tolist()) for g in link.geometry.values()}
    assert colours == {tuple(np.round(np.array(mesh.rgba) * 255).astype(int).tolist()) for mesh in part.meshes}


# ------------------------------------------------------------------ USD


@pytest.fixture(scope="module")
def stage(exports: Path):
    from pxr import Usd

    return Usd.Stage.Open(str(exports / "usd" / "scene.usdc"))


def _frame(position, quat) -> np.ndarray:
    from sim2real.export.parts import pose_of

    return pose_of(np.array(position), np.array([quat.GetReal(), *quat.GetImaginary()]))


def test_usd_states_its_units_and_applies_the_physics_schemas(made, cargo: Cargo, stage) -> None:
    from pxr import UsdGeom, UsdPhysics

    assert UsdGeom.GetStageMetersPerUnit(stage) == 1.0 and UsdGeom.GetStageUpAxis(stage) == "Z"
    assert UsdPhysics.GetStageKilogramsPerUnit(stage) == 1.0
    assert stage.GetPrimAtPath("/World/robot").HasAPI(UsdPhysics.ArticulationRootAPI)
    bodies = [p for p in stage.Traverse() if p.HasAPI(UsdPhysics.RigidBodyAPI)]
    assert len(bodies) == len(cargo.parts) + len(cargo.things)
    solid = [p for p in stage.Traverse() if p.HasAPI(UsdPhysics.CollisionAPI)]
    assert len(solid) == sum(len(part.shapes) for part in cargo.parts) + len(cargo.fixed) + 3
    assert all(p.GetAttribute("physics:approximation").Get() == "convexHull" for p in solid if p.IsA(UsdGeom.Mesh))
    for part in cargo.parts:
        mass = UsdPhysics.MassAPI(stage.GetPrimAtPath(f"/World/robot/links/{part.name}"))
        assert mass.GetMassAttr().Get() == pytest.approx(part.mass, rel=1e-6)
        axes = mass.GetPrincipalAxesAttr().Get()
        read = made.tensor(_frame([0, 0, 0], axes)[:3, :3], np.array(mass.GetDiagonalInertiaAttr().Get()))
        assert read == pytest.approx(made.tensor(part.axes, part.moments), abs=1e-6 * part.moments.max()), part.name


def _findings(stage) -> list:
    from pxr import UsdValidation

    validators = UsdValidation.ValidationRegistry().GetOrLoadAllValidators()
    return UsdValidation.ValidationContext(validators).Validate(stage)


def test_usds_own_validators_find_nothing(exports: Path) -> None:
    from pxr import Usd, UsdPhysics

    for file in ("usd/scene.usdc", "polaris/scene.usda"):
        assert not _findings(Usd.Stage.Open(str(exports / file))), file
    broken = Usd.Stage.Open(str(exports / "usd" / "scene.usdc"))
    broken.SetEditTarget(broken.GetSessionLayer())
    UsdPhysics.RigidBodyAPI.Apply(broken.GetPrimAtPath("/World/robot/joints"))
    assert [finding.GetName() for finding in _findings(broken)] == ["RigidBodyNonXformable"]


def test_usd_joints_lead_where_the_models_do(made, cargo: Cargo, stage) -> None:
    from pxr import UsdPhysics

    q = made.random_joints(cargo, 7)
    expected = made.mujoco_poses(cargo, q)
    poses = {"": np.eye(4)}
    for prim in stage.GetPrimAtPath("/World/robot/joints").GetChildren():
        joint = UsdPhysics.Joint(prim)
        parent, child = ([str(t) for t in rel.GetTargets()] for rel in (joint.GetBody0Rel(), joint.GetBody1Rel()))
        move = np.eye(4)
        if prim.IsA(UsdPhysics.RevoluteJoint):
            c, s = np.cos(q[prim.GetName()]), np.sin(q[prim.GetName()])
            move[1:3, 1:3] = [[c, -s], [s, c]]  # about x
            assert prim.GetAttribute("physics:upperLimit").Get() == pytest.approx(
                np.degrees(next(j.upper for part in cargo.parts for j in part.joints if j.name == prim.GetName()))
            )
        elif prim.IsA(UsdPhysics.PrismaticJoint):
            move[0, 3] = q[prim.GetName()]
        first = _frame(joint.GetLocalPos0Attr().Get(), joint.GetLocalRot0Attr().Get())
        second = _frame(joint.GetLocalPos1Attr().Get(), joint.GetLocalRot1Attr().Get())
        poses[child[0]] = poses[parent[0] if parent else ""] @ first @ move @ np.linalg.inv(second)
    for part in cargo.parts:
        assert poses[f"/World/robot/links/{part.name}"] == pytest.approx(expected[part.name], abs=2e-6), part.name


def test_usd_drives_are_the_servos_per_degree(cargo: Cargo, stage) -> None:
    from pxr import UsdPhysics

    joint = next(j for part in cargo.parts for j in part.joints if j.name == "joint2")
    drive = UsdPhysics.DriveAPI(stage.GetPrimAtPath("/World/robot/joints/joint2"), "angular")
    assert drive.GetStiffnessAttr().Get() == pytest.approx(joint.kp * np.pi / 180)
    assert drive.GetDampingAttr().Get() == pytest.approx((joint.kv + joint.damping) * np.pi / 180)
    assert drive.GetMaxForceAttr().Get() == pytest.approx(joint.force)


def test_usd_cameras_project_as_the_rig_does(cargo: Cargo, stage) -> None:
    from pxr import Gf, UsdGeom

    for name, camera in cargo.rig.cameras.items():
        frustum = UsdGeom.Camera(stage.GetPrimAtPath(f"/World/cameras/{name}")).GetCamera(0).frustum
        both = frustum.ComputeViewMatrix() * frustum.ComputeProjectionMatrix()
        for point in ([0.1, -0.2, 0.0], [0.3, 0.28, 0.1]):
            x, y, _ = both.Transform(Gf.Vec3d(*point))
            uv = np.array([(x + 1) / 2 * camera.width, (1 - y) / 2 * camera.height])
            assert uv == pytest.approx(project(camera, np.array([point]))[0][0], abs=1e-3)


def test_usd_bodies_carry_their_gaussians(cargo: Cargo, stage) -> None:
    for place, name in (("/World/still", "world"), ("/World/things/red_cup/gaussians", "red cup")):
        prim = stage.GetPrimAtPath(place)
        assert prim.GetTypeName() == "ParticleField3DGaussianSplat"
        g = cargo.skins[name].gaussians
        np.testing.assert_array_equal(np.array(prim.GetAttribute("positions").Get()), g.means.numpy())
        opacities = np.array(prim.GetAttribute("opacities").Get())
        np.testing.assert_allclose(opacities, g.logit_opacities.sigmoid().numpy(), atol=1e-6)


def test_polaris_finds_cameras_and_bodies_in_the_frame_of_the_base(cargo: Cargo, exports: Path) -> None:
    from pxr import Usd, UsdGeom, UsdPhysics

    stage = Usd.Stage.Open(str(exports / "polaris" / "scene.usda"))
    children = stage.GetPrimAtPath("/World").GetChildren()
    assert {c.GetName() for c in children if not c.IsA(UsdGeom.Camera)} == {"bench_static", "red_cup", "wedge"}
    start = json.loads((exports / "polaris" / "initial_conditions.json").read_text())
    assert start["instruction"] and len(start["poses"]) == 1
    base = np.linalg.inv(cargo.rig.robot.world_from_base)
    for thing in cargo.things:
        name = thing.name.replace(" ", "_")
        prim = stage.GetPrimAtPath(f"/World/{name}")
        expected = (base @ thing.world_from_thing)[:3, 3]
        assert np.array(prim.GetAttribute("xformOp:translate").Get()) == pytest.approx(expected)
        assert start["poses"][0][name][:3] == pytest.approx(expected)
        assert prim.HasAPI(UsdPhysics.RigidBodyAPI) and prim.GetChild("surface")  # through the reference
        assert (exports / "polaris" / "assets" / name / "splat.ply").is_file()


# ------------------------------------------------------------------ Gaussians


def test_gaussians_leave_bit_for_bit_in_the_frames_of_their_carriers(bodies_folder: Path, exports: Path) -> None:
    scene = load_scene(bodies_folder)
    for target, file in (("pybullet", "splats/red_cup.ply"), ("discoverse", "3dgs/red_cup.ply"),
                         ("gausscam", "links/red cup.ply")):  # fmt: skip
        read = read_splats(exports / target / file)[1].gaussians
        kept = scene.gaussians.of_body(1)
        for column in ("means", "log_scales", "quats", "logit_opacities", "sh"):
            assert torch.equal(getattr(read, column), getattr(kept, column)), (target, column)


def test_spz_frames_are_turned_upright_as_the_format_demands(bodies_folder: Path, exports: Path) -> None:
    read = read_splats(exports / "spz" / "splats" / "red_cup.spz")[1].gaussians.means
    kept = load_scene(bodies_folder).gaussians.of_body(1).means
    # x right, y up, z back: y and z of the scene become -z and y
    assert torch.allclose(read, torch.stack([kept[:, 0], kept[:, 2], -kept[:, 1]], dim=1), atol=2 / 4096)


def test_warps_arrays_are_linear_and_in_carrier_frames(made, cargo: Cargo, exports: Path) -> None:
    script = made.load(exports / "mujoco-warp" / "mjwarp_scene.py", "mjwarp_scene")
    splats = script.Splats(exports / "mujoco-warp")
    data = mujoco.MjData(cargo.model)
    data.qpos[:] = cargo.rest_qpos
    mujoco.mj_kinematics(cargo.model, data)
    with zipfile.ZipFile(exports / "mujoco-warp" / "splats.npz") as archive:  # no hour in it: the same bytes every time
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    arrays = splats.at(cargo.model, data)
    rows = splats.group == splats.carriers.index("red cup")
    pose, g = made.mujoco_poses(cargo, {})["red cup"], cargo.skins["red cup"].gaussians
    expected = g.means.numpy() @ pose[:3, :3].T + pose[:3, 3]
    np.testing.assert_allclose(arrays["splat_position"][rows], expected, atol=1e-6)
    np.testing.assert_allclose(arrays["splat_scale"][rows], g.log_scales.exp().numpy(), rtol=1e-6)
    assert splats.rgba.min() >= 0 and splats.rgba.max() <= 1


def test_the_drawing_script_draws_what_we_draw(made, cargo: Cargo, exports: Path) -> None:
    from recon.render.api import rasterize
    from recon.scene.motion import pose_gaussians

    script = made.load(exports / "pybullet" / "draw.py", "exported_draw")
    q = made.random_joints(cargo, 3)
    poses = made.mujoco_poses(cargo, q)
    picture = script.Pictures(exports / "pybullet").draw("cam00", poses)
    # ours: carriers one by one, each moved on its own
    parts = []
    for name, skin in cargo.skins.items():
        pose = poses.get(name, np.eye(4))
        rigid = replace(skin.gaussians, object_id=torch.ones(len(skin.gaussians), dtype=torch.int32),
                        kind=torch.ones(len(skin.gaussians), dtype=torch.uint8))  # fmt: skip
        quat = torch.tensor(np.linalg.eigh(_bar_itzhack(pose))[1][:, -1][[3, 0, 1, 2]], dtype=torch.float32)
        parts.append(pose_gaussians(rigid, {1: (quat, torch.tensor(pose[:3, 3], dtype=torch.float32))}, None))
    camera = cargo.rig.cameras["cam00"]
    width = max(part.sh.shape[1] for part in parts)
    sh = torch.cat([torch.nn.functional.pad(p.sh, (0, 0, 0, width - p.sh.shape[1])) for p in parts])
    columns = [torch.cat([getattr(p, c) for p in parts]) for c in ("means", "quats", "scales", "opacities")]
    view, matrix = (torch.tensor(m[None], dtype=torch.float32) for m in (camera.cam_from_world, camera.K))
    ours = rasterize(*columns, sh, view, matrix, camera.width, camera.height, sh_degree=1)
    difference = np.abs(picture / 255 - ours.color[0].clamp(0, 1).numpy())
    assert difference.max() < 0.02 and difference.mean() < 0.003
    assert picture[150:, :, 0].max() > 150  # the red cup is there


def test_the_drawing_script_needs_no_pose_for_what_is_at_rest(made, cargo: Cargo, exports: Path) -> None:
    pictures = made.load(exports / "pybullet" / "draw.py", "exported_draw").Pictures(exports / "pybullet")
    home = {j.name: j.home for part in cargo.parts for j in part.joints}
    np.testing.assert_array_equal(pictures.draw("cam01", {}), pictures.draw("cam01", made.mujoco_poses(cargo, home)))


def _bar_itzhack(pose: np.ndarray) -> np.ndarray:
    (a, b, c), (d, e, f), (g, h, i) = pose[:3, :3]
    return np.array([[a - e - i, b + d, c + g, h - f], [b + d, e - a - i, f + h, c - g],
                     [c + g, f + h, i - a - e, d - b], [h - f, c - g, d - b, a + e + i]]) / 3  # fmt: skip


def test_a_body_without_meshes_stays_in_the_world(made, scene, robot: Path, tmp_path: Path) -> None:
    import shutil

    folder = made.write_scene(scene, tmp_path / "bench")
    shutil.rmtree(folder / "bodies")
    whole = load_cargo(folder, robot)
    assert whole.things == () and len(whole.skins["world"].gaussians) == len(scene.gaussians) + 800
    stuck: Gaussians = whole.skins["world"].gaussians.select(
        torch.arange(len(scene.gaussians), len(scene.gaussians) + 400)
    )
    middle = stuck.means.mean(0)
    assert middle[:2].numpy() == pytest.approx(made.PLACES["red cup"][:2], abs=0.01)
