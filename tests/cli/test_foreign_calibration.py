"""Builds from other people's calibrations: contradicted, unsized and unitless ones, as a person meets them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from recon.capture.session import open_capture
from recon.config import BuildConfig, RenderConfig
from recon.core.errors import UsageError
from recon.core.events import Message
from recon.core.files import write_json
from recon.draw import given_rig
from recon.geometry.pose import invert_pose
from recon.geometry.rig import Rig, rig_to_json
from recon.info import facts
from recon.inputs import Inputs, open_inputs
from recon.pipeline import _check_calibration
from tests.cli.commands import Outcome, here
from tests.cli.conftest import blob_scene
from tests.recon.calibrate import textured
from tests.recon.calibrate.readers import written

Capsys = pytest.CaptureFixture[str]
CAMERAS = textured.rig(4)


@pytest.fixture(scope="module")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """cams/c0/000000.png ... of a board that stands still."""
    root = tmp_path_factory.mktemp("filmed")
    for name, picture in textured.plates(CAMERAS).items():
        (root / "cams" / name).mkdir(parents=True)
        for k in range(3):
            cv2.imwrite(str(root / "cams" / name / f"{k:06d}.png"), picture[..., ::-1])
    return root


def build(capsys: Capsys, filmed: Path, rig: Path, *more: str | Path) -> Outcome:
    out = rig.parent / "scene"
    return here(capsys, "build", "--videos", filmed / "cams", "--rig", rig, "--out", out, "--console", "json", *more)


def opened(filmed: Path, rig: Path, **more: object) -> Inputs:
    inputs = open_inputs(BuildConfig(filmed / "cams", (rig,), out=rig.parent / "scene", **more))  # type: ignore[arg-type]
    inputs.capture.close()
    return inputs


def posed(change: Callable[[np.ndarray], np.ndarray]) -> Rig:
    return Rig({name: camera.with_pose(change(camera.cam_from_world)) for name, camera in CAMERAS.items()})


def test_inverse_extrinsics_are_refused_and_named(filmed: Path, tmp_path: Path, capsys: Capsys) -> None:
    write_json(tmp_path / "lab.json", rig_to_json(posed(invert_pose)))
    run = build(capsys, filmed, tmp_path / "lab.json")
    assert run.code == 4
    assert "lab.json look like world_from_camera poses" in run.text and "--rig-poses inverted" in run.text
    assert "frames" not in run.stages and not (tmp_path / "scene").exists()


def test_a_mirrored_calibration_is_refused_and_named(filmed: Path, tmp_path: Path, capsys: Capsys) -> None:
    mirror = np.diag([1.0, 1.0, -1.0, 1.0])
    write_json(tmp_path / "lab.json", rig_to_json(posed(lambda t: mirror @ t @ mirror)))
    run = build(capsys, filmed, tmp_path / "lab.json")
    assert run.code == 4 and "mirrored" in run.text and "right-handed" in run.text


def test_what_rig_poses_says_is_believed(filmed: Path, tmp_path: Path) -> None:
    write_json(tmp_path / "lab.json", rig_to_json(posed(invert_pose)))
    inputs = opened(filmed, tmp_path / "lab.json", rig_poses="inverted")
    for name, camera in CAMERAS.items():
        np.testing.assert_allclose(inputs.cameras[name].cam_from_world, camera.cam_from_world, atol=1e-12)
    assert inputs.poses == "inverted"


def test_the_pictures_decide_a_direction_that_is_not_said(filmed: Path, tmp_path: Path) -> None:
    inputs = opened(filmed, written.by_serial(tmp_path / "all.yml", Rig(CAMERAS)))
    assert inputs.poses == "inverted"
    assert any("lead from the camera to the world" in note.text for note in inputs.notes)
    for name, camera in CAMERAS.items():
        np.testing.assert_allclose(inputs.cameras[name].cam_from_world, camera.cam_from_world, atol=1e-9)


def test_wrong_units_are_warned_of_and_can_be_told(filmed: Path, tmp_path: Path) -> None:
    write_json(tmp_path / "lab.json", rig_to_json(posed(in_millimetres)))
    assert any("--rig-unit mm" in text for text in check_warnings(opened(filmed, tmp_path / "lab.json")))
    inputs = opened(filmed, tmp_path / "lab.json", rig_unit="mm")
    assert inputs.metric and not check_warnings(inputs)
    for name, camera in CAMERAS.items():
        np.testing.assert_allclose(inputs.cameras[name].center, camera.center, atol=1e-9)
    squares = opened(filmed, tmp_path / "lab.json", rig_unit=0.054)
    np.testing.assert_allclose(squares.cameras["c1"].center, 54.0 * CAMERAS["c1"].center)


def check_warnings(inputs: Inputs) -> list[str]:
    """Warnings of the calibration's check, which passes."""
    with open_capture(inputs.capture.root, inputs.rig) as capture:
        events = list(_check_calibration(replace(inputs, capture=capture), believed=False))
    return [event.text for event in events if isinstance(event, Message) and event.level == "warning"]


def in_millimetres(pose: np.ndarray) -> np.ndarray:
    scaled = pose.copy()
    scaled[:3, 3] *= 1000.0
    return scaled


def test_a_unit_is_not_given_twice(filmed: Path, tmp_path: Path) -> None:
    write_json(tmp_path / "lab.json", rig_to_json(Rig(CAMERAS, units="metres")))
    with pytest.raises(UsageError, match=r"lab\.json says its unit"):
        opened(filmed, tmp_path / "lab.json", rig_unit="mm")
    assert opened(filmed, tmp_path / "lab.json", rig_unit="m").metric
    for unit in (0.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="not a length"):
            opened(filmed, tmp_path / "lab.json", rig_unit=unit)


def test_info_says_that_the_scale_is_unknown() -> None:
    scene = blob_scene()
    assert facts(scene)["unit"] == "metres"
    assert "scale unknown" in facts(replace(scene, metric=False))["unit"]


@pytest.mark.parametrize("write", [written.colmap, written.middlebury])
def test_a_listed_picture_that_does_not_exist(
    write: Callable[[Path, Rig], Path], filmed: Path, tmp_path: Path, capsys: Capsys
) -> None:
    ghost = replace(CAMERAS["c0"], name="ghost")
    path = write(tmp_path / "calibration", Rig({**CAMERAS, "ghost": ghost}))
    run = build(capsys, filmed, path)
    assert run.code == 3
    assert "ghost" in run.text and "without a recording" in run.text and "--cams" in run.text
    assert opened(filmed, path, cams="c0,c1,c2").capture.cameras.keys() == {"c0", "c1", "c2"}


def test_render_takes_names_and_sizes_from_the_scene(tmp_path: Path) -> None:
    scene = replace(blob_scene(), provenance={"rig_poses": "inverted"})
    path = written.by_serial(tmp_path / "all.yml", scene.rig)
    rig = given_rig(RenderConfig(tmp_path, (path,)), scene)
    for name, camera in scene.rig.cameras.items():
        assert (rig.cameras[name].width, rig.cameras[name].height) == (camera.width, camera.height)
        np.testing.assert_allclose(rig.cameras[name].cam_from_world, camera.cam_from_world, atol=1e-9)
