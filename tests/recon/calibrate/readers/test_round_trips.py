"""Every format gives back the rig it was written from: names, pixels, axes, direction, lens, size and unit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from recon.calibrate import find_calibration, load_rig
from recon.calibrate.conventions import INVERTED, meant
from recon.calibrate.rig import load_calibration
from recon.core.errors import CalibrationError
from recon.geometry.camera import project
from recon.geometry.rig import Rig
from tests.recon.calibrate.readers import written

SIZES = {f"cam{k:02d}": (640, 480) for k in range(3)}
FISH = (-0.0128, 0.0031, -0.0024, 0.0004)
PINHOLE = (0.0,) * 5


def same(found: Rig, expected: Rig, tolerance: float = 1e-9) -> None:
    assert found.cameras.keys() == expected.cameras.keys()
    for name, camera in expected.cameras.items():
        other = found.cameras[name]
        assert (other.width, other.height, other.lens) == (camera.width, camera.height, camera.lens)
        np.testing.assert_allclose(other.K, camera.K, atol=1e-6)
        np.testing.assert_allclose(other.distortion, camera.distortion, atol=1e-9)
        np.testing.assert_allclose(other.cam_from_world, camera.cam_from_world, atol=tolerance)


Write = Callable[[Path, Rig], Path]
FORMATS: dict[str, tuple[Write, str]] = {
    "colmap binary": (lambda root, rig: written.colmap(root / "sparse", rig), "unknown"),
    "colmap text": (lambda root, rig: written.colmap(root / "sparse", rig, text=True), "unknown"),
    "nerfstudio": (lambda root, rig: written.nerfstudio(root / "transforms.json", rig), "unknown"),
    "opencv yaml": (lambda root, rig: written.opencv_files(root / "yml", rig), "unknown"),
    "opencv json": (lambda root, rig: written.opencv_files(root / "json", rig, "json"), "unknown"),
    "easymocap": (lambda root, rig: written.easymocap(root / "easy", rig), "unknown"),
    "yaml, to master": (lambda root, rig: written.by_serial(root / "all.yml", rig, "camera_to_master"), "unknown"),
    "caliscope": (lambda root, rig: written.caliscope(root / "camera_array.toml", rig), "metres"),
    "qualisys": (lambda root, rig: written.qualisys(root / "Calib.qca.txt", rig), "metres"),
    "pairs": (lambda root, rig: written.pairs(root / "pairs", rig), "unknown"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_rig_comes_back(name: str, tmp_path: Path) -> None:
    write, units = FORMATS[name]
    rig = written.rig()
    calibration = load_calibration([write(tmp_path, rig)], SIZES)
    same(calibration.rig, rig, 1e-7)
    assert calibration.rig.units == units
    assert not calibration.direction_open and not calibration.unsized


@pytest.mark.parametrize("name", ["colmap binary", "colmap text", "nerfstudio", "opencv yaml", "caliscope"])
def test_a_fisheye_rig_comes_back(name: str, tmp_path: Path) -> None:
    rig = written.rig(FISH, "fisheye")
    same(load_rig([FORMATS[name][0](tmp_path, rig)], SIZES), rig, 1e-7)


def test_middlebury_has_no_distortion(tmp_path: Path) -> None:
    rig = written.rig(PINHOLE)
    same(load_rig([written.middlebury(tmp_path / "x_par.txt", rig)], SIZES), rig)


@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize(
    ("model", "params", "lens"),
    [
        ("SIMPLE_PINHOLE", [500, 320, 240], (0.0, 0, 0, 0, 0)),
        ("PINHOLE", [500, 501, 320, 240], (0.0, 0, 0, 0, 0)),
        ("SIMPLE_RADIAL", [500, 320, 240, -0.1], (-0.1, 0, 0, 0, 0)),
        ("RADIAL", [500, 320, 240, -0.1, 0.02], (-0.1, 0.02, 0, 0, 0)),
        ("OPENCV", [500, 501, 320, 240, -0.1, 0.02, 0.001, 0.002], (-0.1, 0.02, 0.001, 0.002, 0)),
        ("FULL_OPENCV", [500, 501, 320, 240, -0.1, 0.02, 0.001, 0, 0.01, 0, 0, 0], (-0.1, 0.02, 0.001, 0, 0.01)),
        ("OPENCV_FISHEYE", [500, 501, 320, 240, *FISH], FISH),
    ],
)  # fmt: skip
def test_colmap_itself_projects_alike(
    model: str, params: list[float], lens: tuple[float, ...], text: bool, tmp_path: Path
) -> None:
    import pycolmap

    theirs = pycolmap.Camera(model=model, width=640, height=480, params=params, camera_id=1)
    reconstruction = pycolmap.Reconstruction()
    reconstruction.add_camera_with_trivial_rig(theirs)
    image = pycolmap.Image(name="cam00.jpg", camera_id=1, image_id=1)
    reconstruction.add_image_with_trivial_frame(image, pycolmap.Rigid3d(np.eye(4)[:3]))
    (reconstruction.write_text if text else reconstruction.write_binary)(str(tmp_path))
    camera = load_rig([tmp_path]).cameras["cam00"]
    assert camera.distortion == pytest.approx(lens)
    points = np.random.default_rng(0).uniform([-0.5, -0.4, 1], [0.5, 0.4, 1.5], (20, 3))
    np.testing.assert_allclose(project(camera, points)[0], theirs.img_from_cam(points), atol=1e-6)


@pytest.mark.parametrize("model", ["FOV", "THIN_PRISM_FISHEYE", "SIMPLE_RADIAL_FISHEYE"])
@pytest.mark.parametrize("text", [True, False])
def test_colmaps_other_models_are_refused_by_name(model: str, text: bool, tmp_path: Path) -> None:
    import pycolmap

    reconstruction = pycolmap.Reconstruction()
    camera = pycolmap.Camera.create_from_model_name(1, model, 500.0, 640, 480)
    reconstruction.add_camera_with_trivial_rig(camera)
    image = pycolmap.Image(name="a.jpg", camera_id=1, image_id=1)
    reconstruction.add_image_with_trivial_frame(image, pycolmap.Rigid3d(np.eye(4)[:3]))
    (reconstruction.write_text if text else reconstruction.write_binary)(str(tmp_path))
    with pytest.raises(CalibrationError, match=rf"camera 1.*its model is {model}.*Read are SIMPLE_PINHOLE"):
        load_rig([tmp_path])


def test_pictures_in_folders_are_cameras_by_folder(tmp_path: Path) -> None:
    rig = written.rig()
    model = written.colmap(tmp_path / "m", rig, name="{}/000000.jpg".format)
    assert list(load_rig([model]).cameras) == list(rig.cameras)


def test_a_4x4_that_does_not_say_where_it_leads_is_left_open(tmp_path: Path) -> None:
    rig = written.rig()
    calibration = load_calibration([written.by_serial(tmp_path / "all.yml", rig)], SIZES)
    assert calibration.direction_open
    same(meant(calibration.rig, INVERTED), rig)


def test_two_given_files_make_one_model(tmp_path: Path) -> None:
    model = written.colmap(tmp_path / "m", written.rig(), text=True)
    same(load_rig([model / "images.txt", model / "cameras.txt"]), written.rig(), 1e-7)
    same(load_rig([model / "images.txt"]), written.rig(), 1e-7)
    (model / "cameras.txt").unlink()
    with pytest.raises(CalibrationError, match=r"cameras\.txt is missing beside it"):
        load_rig([model / "images.txt"])


def test_names_do_not_tell_the_format(tmp_path: Path) -> None:
    rig = written.rig()
    hidden = tmp_path / "calibration.txt"
    for write in (written.nerfstudio, written.caliscope, written.qualisys):
        write(hidden, rig)
        assert len(load_rig([hidden], SIZES).cameras) == 3


def test_cameras_are_named_as_their_recordings(tmp_path: Path) -> None:
    path = written.caliscope(tmp_path / "camera_array.toml", written.rig())
    calibration = load_calibration([path], {f"port_{k}": (640, 480) for k in range(3)})
    assert calibration.renamed == {"0": "port_0", "1": "port_1", "2": "port_2"}
    twice = load_calibration([path], {"left_0": (640, 480), "right_0": (640, 480), "x_1": (640, 480)})
    assert twice.renamed == {"1": "x_1"}  # which of the two is camera 0 is not guessed


def test_a_size_padded_to_whole_blocks_is_that_of_the_recording(tmp_path: Path) -> None:
    path = written.caliscope(tmp_path / "a.toml", written.rig())
    path.write_text(path.read_text().replace("[640, 480]", "[1920, 1088]"))
    cameras = load_rig([path], {"0": (1920, 1080), "1": (1920, 1070), "2": (1900, 1080)}).cameras
    assert [camera.height for camera in cameras.values()] == [1080, 1088, 1088]


@pytest.mark.parametrize("place", ["cams", ".", "calibration", "sparse/0"])
def test_a_calibration_beside_the_videos_is_found(place: str, tmp_path: Path) -> None:
    (tmp_path / "cams").mkdir()
    folder = tmp_path / place
    if place == "sparse/0":
        written.colmap(folder, written.rig())
    else:
        folder.mkdir(exist_ok=True)
        written.caliscope(folder / "camera_array.toml", written.rig())
        (folder / "charuco.toml").write_text("columns = 4\n")
        (folder / "notes.txt").write_text("to do: nothing\n")
        (folder / "broken.json").write_text("{")
    found = find_calibration(tmp_path / "cams")
    assert {path.parent for path in found} == {folder.resolve()}
    assert len(load_rig(found, SIZES).cameras) == 3


def test_two_calibrations_in_one_folder_are_asked_about(tmp_path: Path) -> None:
    written.caliscope(tmp_path / "camera_array.toml", written.rig())
    written.nerfstudio(tmp_path / "transforms.json", written.rig())
    with pytest.raises(CalibrationError, match=r"several calibrations.*--rig"):
        find_calibration(tmp_path)


def test_opencv_reads_what_we_take_for_its_yaml(tmp_path: Path) -> None:
    """The hand-written sample has the grammar of FileStorage: OpenCV gives the same numbers."""
    path = tmp_path / "cam00.yml"
    path.write_text(
        "%YAML:1.0\n---\nimage_size: [ 640, 480 ]\nK: !!opencv-matrix\n   rows: 3\n   cols: 3\n   dt: d\n"
        "   data: [ 5.0e+02, 0., 3.2e+02, 0., 5.01e+02,\n       2.4e+02, 0., 0., 1. ]\n"
        "D: !!opencv-matrix\n   rows: 1\n   cols: 4\n   dt: d\n   data: [ -.1, 1e-2, 0., 0. ]\n"
        "rvec: !!opencv-matrix\n   rows: 3\n   cols: 1\n   dt: d\n   data: [ 0., 0., 1.5707963267948966 ]\n"
        "tvec: [ 1., 2, 3.5 ]\n"
    )
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_READ)
    camera = load_rig([path]).cameras["cam00"]
    np.testing.assert_allclose(written.opencv_k(camera), storage.getNode("K").mat())
    assert camera.distortion == pytest.approx((-0.1, 0.01, 0.0, 0.0, 0.0))
    expected = [[0, -1, 0, 1], [1, 0, 0, 2], [0, 0, 1, 3.5], [0, 0, 0, 1]]
    np.testing.assert_allclose(camera.cam_from_world, expected, atol=1e-12)


def test_a_model_in_both_forms_is_read_once(tmp_path: Path) -> None:
    model = written.colmap(tmp_path / "m", written.rig())
    text = written.colmap(tmp_path / "t", replace(written.rig()), text=True)
    for name in ("cameras.txt", "images.txt"):
        shutil.copy(text / name, model / name)
    same(load_rig([model]), written.rig(), 1e-9)
