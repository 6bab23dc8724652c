"""The exported folder is what plain MuJoCo loads: same robot, same bench, cameras that see the same points."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

from recon.core.errors import InputError, UsageError
from recon.geometry.camera import project, unproject
from recon.render.api import rasterize
from recon.scene.folder import save_scene
from sim2real.config import ExportOptions
from sim2real.export import export


@pytest.fixture(scope="module")
def exported(scene, robot, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    save_scene(scene, folder / "made")
    list(export(ExportOptions(str(folder / "made"), "mujoco", folder / "out", robot)))
    return folder / "out"


def test_folder_is_self_contained_and_loads_elsewhere(exported: Path, tmp_path: Path) -> None:
    import shutil

    moved = tmp_path / "moved"
    shutil.copytree(exported, moved)
    model = mujoco.MjModel.from_xml_path(str(moved / "scene.xml"))
    assert model.ncam == 3 and model.nkey == 1 and model.nu == 7 or model.nu == 8
    text = (moved / "scene.xml").read_text()
    assert str(exported.parent) not in text and 'file="/' not in text
    assert "python -m mujoco.viewer --mjcf=./scene.xml" in (moved / "README.md").read_text()


def test_rest_pose_is_at_rest(exported: Path) -> None:
    model = mujoco.MjModel.from_xml_path(str(exported / "scene.xml"))
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    start = data.qpos.copy()
    for _ in range(500):
        mujoco.mj_step(model, data)
    assert np.abs(data.qpos - start).max() < 0.01


def _rays(model: mujoco.MjModel, camera: int, uv: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """World origin and directions of pixel positions from the compiled camera (signs proven by its renderer below)."""
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_forward(model, data)
    fx, fy, cx, cy = model.cam_intrinsic[camera]
    width, height = model.cam_resolution[camera]
    sensor = model.cam_sensorsize[camera]
    x = (uv[:, 0] / width - 0.5) * sensor[0] + cx
    y = (0.5 - uv[:, 1] / height) * sensor[1] - cy
    local = np.stack([x / fx, y / fy, -np.ones(len(uv))], axis=1)
    return data.cam_xpos[camera], local @ data.cam_xmat[camera].reshape(3, 3).T


def test_cameras_project_as_the_rig_does(scene, exported: Path) -> None:
    model = mujoco.MjModel.from_xml_path(str(exported / "scene.xml"))
    uv = np.array([[10.0, 20.0], [160.5, 120.5], [300.0, 30.0], [50.0, 230.0]])
    for name, camera in scene.rig.cameras.items():
        index = model.camera(name).id
        assert tuple(model.cam_resolution[index]) == (camera.width, camera.height)
        origin, directions = _rays(model, index, uv)
        assert origin == pytest.approx(camera.center, abs=1e-6)
        back, _ = project(camera, origin + 2.0 * directions)
        assert back == pytest.approx(uv, abs=0.02)


def test_depth_agrees_with_the_splats_on_the_table(scene, exported: Path) -> None:
    model = mujoco.MjModel.from_xml_path(str(exported / "scene.xml"))
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_forward(model, data)
    camera = scene.rig.cameras["cam02"]  # a test camera
    posed = scene.posed({})
    picture = rasterize(
        posed.means, posed.quats, posed.scales, posed.opacities, posed.sh,
        torch.tensor(camera.cam_from_world[None], dtype=torch.float32),
        torch.tensor(camera.K[None], dtype=torch.float32),
        camera.width, camera.height, sh_degree=0,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    pixels = np.stack([rng.integers(0, camera.width, 400), rng.integers(0, camera.height, 400)], axis=1)
    rays = unproject(camera, pixels + 0.5)
    world = rays @ camera.cam_from_world[:3, :3]
    errors = []
    hit = np.zeros(1, np.int32)
    for (u, v), direction in zip(pixels, world, strict=True):
        length = np.linalg.norm(direction)
        distance = mujoco.mj_ray(model, data, camera.center, direction / length, None, 1, -1, hit)
        if distance > 0 and model.geom(int(hit[0])).name == "bench_top":
            errors.append(abs(distance / length - float(picture.depth[0, v, u])))
    assert len(errors) > 50 and np.median(errors) < 0.010


def test_mujocos_own_renderer_puts_things_where_the_rig_does(scene, exported: Path) -> None:
    """In a process of its own, because the GL platform is chosen on import; needs EGL, else there is nothing to ask."""
    script = """
import sys, numpy as np, mujoco
model = mujoco.MjModel.from_xml_path(sys.argv[1])
data = mujoco.MjData(model)
mujoco.mj_resetDataKeyframe(model, data, 0)
mujoco.mj_forward(model, data)
try:
    renderer = mujoco.Renderer(model, 240, 320)
except Exception as error:
    print("no renderer:", error)
    sys.exit(77)
renderer.enable_depth_rendering()
renderer.update_scene(data, "cam02")
np.save(sys.argv[2], renderer.render())
"""
    depth_file = exported.parent / "depth.npy"
    command = [sys.executable, "-c", script, str(exported / "scene.xml"), str(depth_file)]
    done = subprocess.run(command, env={**os.environ, "MUJOCO_GL": "egl"}, capture_output=True, text=True, timeout=120)
    if done.returncode == 77 or "egl" in done.stderr.lower() and done.returncode:
        pytest.skip(f"MuJoCo cannot draw here: {done.stdout} {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    depth = np.load(depth_file, allow_pickle=False)
    camera = scene.rig.cameras["cam02"]
    table = mujoco.MjModel.from_xml_path(str(exported / "scene.xml"))
    top = float(table.geom("bench_top").pos[2] + table.geom("bench_top").size[2])
    v, u = np.mgrid[0:240, 0:320]
    world = unproject(camera, np.stack([u, v], axis=-1).reshape(-1, 2) + 0.5) @ camera.cam_from_world[:3, :3]
    expected = (top - camera.center[2]) / world[:, 2]  # depth of the table's plane along the optical axis
    half, middle = table.geom("bench_top").size, table.geom("bench_top").pos
    offset = np.abs(camera.center + expected[:, None] * world - middle)[:, :2]
    seen = np.abs(depth.ravel() - expected) < 0.003
    assert seen.sum() > 10000
    # a wrong sign of the principal point would shift the table's edges by 16 or 12 pixels: some 5 cm
    assert (offset[seen] < half[:2] + 0.005).all()
    inside = (offset < half[:2] - 0.01).all(axis=1)
    assert seen[inside].mean() > 0.75  # the robot and the block hide the rest


def test_what_cannot_be_exported_is_refused(scene, tmp_path: Path, monkeypatch) -> None:
    save_scene(scene, tmp_path / "made")
    with pytest.raises(InputError, match="was not found"):
        list(export(ExportOptions(str(tmp_path / "made"), "mujoco", tmp_path / "out")))
    assert not (tmp_path / "out").exists()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no export to 'mujocco'.*Did you mean 'mujoco'"):
        list(export(ExportOptions("made", "mujocco")))
    with pytest.raises(InputError, match="there is no scene 'maed'"):
        list(export(ExportOptions("maed")))
