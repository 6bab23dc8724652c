"""Captures as data sets in other people's layouts, read back by our readers and by COLMAP itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pycolmap
import pytest
import trimesh

from recon.calibrate.rig import load_calibration
from recon.capture.session import open_capture
from recon.core.errors import UsageError
from recon.core.events import Message
from recon.dataset import export_dataset
from recon.geometry.camera import Camera, project
from recon.geometry.lens import FISHEYE
from recon.geometry.pose import look_at
from recon.geometry.rig import Rig
from recon.scene.scene import Scene
from tests.recon.capture.recordings import HEIGHT, WIDTH, picture
from tests.recon.scene.make import scene as made

BROWN = {"pinhole": (0.0,) * 5, "opencv": (-0.1, 0.02, 0.001, -0.002, 0.0), "full": (-0.1, 0.02, 0.001, -0.002, 0.01)}


def scene_of(lens: str) -> Scene:
    cameras = {}
    for k, name in enumerate(("cam00", "cam01", "cam02")):
        pose = look_at(np.array([1.5 * np.cos(k), 1.5 * np.sin(k), 0.8]), np.array([0.0, 0.1, 0.2]))
        more = (BROWN[lens], pose) if lens in BROWN else ((-0.01, 0.003, -0.002, 0.0004), pose, FISHEYE)
        cameras[name] = Camera(name, WIDTH, HEIGHT, 50.0 + k, 51.0 + k, 31.3, 24.9, *more)
    s = made()
    return replace(s, rig=Rig(cameras, {"cam02": "test"}, fps=30.0), colour={}, frame_times={})


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    import cv2

    for k in range(3):
        folder = tmp_path / "videos" / f"cam{k:02d}"
        folder.mkdir(parents=True)
        for frame in range(4):
            cv2.imwrite(str(folder / f"{frame:06d}.png"), cv2.cvtColor(picture(k, frame), cv2.COLOR_RGB2BGR))
    return tmp_path / "videos"


SIZES = {f"cam{k:02d}": (WIDTH, HEIGHT) for k in range(3)}
Check = Callable[[Path], None]


@pytest.mark.parametrize("lens", ["pinhole", "opencv", "full", "fisheye"])
@pytest.mark.parametrize(("layout", "file"), [("nerfstudio", "transforms.json"), ("colmap", "sparse/0")])
def test_cameras_and_frames_come_back(tmp_path: Path, videos: Path, lens: str, layout: str, file: str) -> None:
    s = scene_of(lens)
    events = list(export_dataset(s, layout, videos, tmp_path / "out", None, 2))
    assert any("cannot carry" in e.text for e in events if isinstance(e, Message))
    found = load_calibration([tmp_path / "out" / file], SIZES).rig
    expected = s.rig.transformed(s.scene_from_rig)
    assert found.cameras.keys() == expected.cameras.keys()
    for name, camera in expected.cameras.items():
        other = found.cameras[name]
        assert other.lens == camera.lens and other.distortion == camera.distortion
        np.testing.assert_array_equal(other.K, camera.K)
        np.testing.assert_allclose(other.cam_from_world, camera.cam_from_world, atol=1e-12)
    with open_capture(videos, None) as before, open_capture(tmp_path / "out" / "images", found) as after:
        for name, stream in after.cameras.items():
            np.testing.assert_array_equal(stream.times, before.cameras[name].times[::2])
            np.testing.assert_array_equal(stream.read(1), before.cameras[name].read(2))


def test_colmap_reads_the_model_and_projects_alike(tmp_path: Path, videos: Path) -> None:
    s = scene_of("full")
    list(export_dataset(s, "colmap", videos, tmp_path / "out", 0.04, 1))
    model = pycolmap.Reconstruction(str(tmp_path / "out" / "sparse" / "0"))
    rig = s.rig.transformed(s.scene_from_rig)
    assert sorted(image.name for image in model.images.values()) == [f"cam{k:02d}/000001.png" for k in range(3)]
    points = np.array([[0.0, 0.1, 0.2], [0.1, 0.0, 0.3]])
    for image in model.images.values():
        camera = rig.cameras[image.name[:5]]
        theirs = [image.project_point(point) for point in points]
        np.testing.assert_allclose(theirs, project(camera, points)[0], atol=1e-6)
    assert len(model.points3D) == int((s.gaussians.logit_opacities[:4] > 0).sum())


def test_nerfstudio_gets_roles_times_and_points(tmp_path: Path, videos: Path) -> None:
    s = scene_of("opencv")
    list(export_dataset(s, "nerfstudio", videos, tmp_path / "out", None, 1))
    data = json.loads((tmp_path / "out" / "transforms.json").read_text())
    assert len(data["frames"]) == 12 and len(data["train_filenames"]) == 8
    assert data["test_filenames"] == [f"images/cam02/{k:06d}.png" for k in range(4)]
    assert [round(f["time"] * 30) for f in data["frames"][:4]] == [0, 1, 2, 3]
    pose = np.array(data["frames"][0]["transform_matrix"])
    np.testing.assert_allclose(-pose[:3, 2], s.rig.cameras["cam00"].cam_from_world[2, :3], atol=1e-12)  # looks along -z
    cloud = trimesh.load(tmp_path / "out" / data["ply_file_path"])
    np.testing.assert_array_equal(cloud.vertices, s.gaussians.means[:4][s.gaussians.logit_opacities[:4] >= 0])


def test_what_is_missing_or_in_the_way_is_said(tmp_path: Path, videos: Path) -> None:
    s = scene_of("pinhole")
    with pytest.raises(UsageError, match="needs the recordings"):
        list(export_dataset(s, "colmap", None, tmp_path / "out", None, 1))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="exists already"):
        list(export_dataset(s, "colmap", videos, tmp_path / "out", None, 1))
    assert (tmp_path / "out" / "mine.txt").read_text() == "x"
