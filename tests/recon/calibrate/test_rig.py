"""Calibration files: both kinds, several at once, and every way they can be wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recon.calibrate import find_calibration, load_rig
from recon.core.errors import CalibrationError, InputError
from recon.geometry.camera import Camera
from recon.geometry.pose import look_at
from recon.geometry.rig import Rig, rig_to_json


def camera(name: str, angle: float = 0.0) -> Camera:
    pose = look_at(np.array([2 * np.cos(angle), 2 * np.sin(angle), 1.0]), np.zeros(3))
    return Camera(name, 64, 48, 50.0, 51.0, 32.5, 23.5, cam_from_world=pose)


def meta(names: list[Any], times: int = 3) -> dict[str, Any]:
    """The Dynamic 3D Gaussians layout of `camera(name, index)` for each name."""
    cameras = [camera(str(n), float(k)) for k, n in enumerate(names)]
    return {
        "w": 64,
        "h": 48,
        "k": [[c.K.tolist() for c in cameras]] * times,
        "w2c": [[c.cam_from_world.tolist() for c in cameras]] * times,
        "fn": [[f"{n}/{t:06d}.jpg" for n in names] for t in range(times)],
        "cam_id": [list(names)] * times,
    }


def save(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data))
    return path


def test_our_rig_json(tmp_path: Path) -> None:
    path = save(tmp_path / "anything.json", rig_to_json(Rig({"a": camera("a"), "b": camera("b", 1.0)}, {"b": "test"})))
    rig = load_rig([path])
    assert rig.roles == {"a": "train", "b": "test"}
    assert np.array_equal(rig.cameras["b"].cam_from_world, camera("b", 1.0).cam_from_world)


def test_meta_files_are_told_by_content_and_the_test_one_by_name(tmp_path: Path) -> None:
    train = save(tmp_path / "train_meta.json", meta([4, 1, 7]))
    test = save(tmp_path / "test_meta.json", meta([0, 15]))
    rig = load_rig([train, test])
    assert list(rig.cameras) == ["4", "1", "7", "0", "15"]
    assert rig.roles == {"4": "train", "1": "train", "7": "train", "0": "test", "15": "test"}
    assert (rig.world_up, rig.units, rig.fps) == ("unknown", "unknown", None)
    first = rig.cameras["1"]
    # This layout and ours agree on pixel centres: nothing is shifted.
    assert (first.width, first.height, first.fx, first.fy, first.cx, first.cy) == (64, 48, 50.0, 51.0, 32.5, 23.5)
    assert np.allclose(first.cam_from_world, camera("1", 1.0).cam_from_world)


def test_cameras_may_change_places_between_times(tmp_path: Path) -> None:
    data = meta(["a", "b"])
    data["cam_id"] = [["a", "b"], ["b", "a"], ["a", "b"]]
    for key in ("k", "w2c"):
        data[key] = [data[key][0], data[key][0][::-1], data[key][0]]
    assert list(load_rig([save(tmp_path / "m.json", data)]).cameras) == ["a", "b"]


def moved(data: dict[str, Any]) -> None:
    data["w2c"] = json.loads(json.dumps(data["w2c"]))  # the times share their rows
    data["w2c"][2][1][0][3] += 0.01


def non_rigid(data: dict[str, Any]) -> None:
    data["w2c"] = [[(np.array(p) @ np.diag([1.1, 1, 1, 1])).tolist() for p in row] for row in data["w2c"]]


def mirrored(data: dict[str, Any]) -> None:
    data["w2c"] = [[(np.diag([-1, 1, 1, 1]) @ np.array(p)).tolist() for p in row] for row in data["w2c"]]


def leaving(data: dict[str, Any]) -> None:
    data["fn"] = [["../secret.jpg", "b/0.jpg"]] * 3


def short(data: dict[str, Any]) -> None:
    data["w2c"] = data["w2c"][:2]


def ragged(data: dict[str, Any]) -> None:
    data["k"] = [data["k"][0], data["k"][0][:1], data["k"][0]]


def twice(data: dict[str, Any]) -> None:
    data["cam_id"] = [["a", "a"]] * 3


def gone(data: dict[str, Any]) -> None:
    data["cam_id"] = [["a", "b"], ["a", "c"], ["a", "b"]]


def skewed(data: dict[str, Any]) -> None:
    data["k"] = [[(np.array(k) + np.diag([3.0, 0.0], k=1)).tolist() for k in row] for row in data["k"]]


def sized(data: dict[str, Any]) -> None:
    data["w"] = "64"


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (moved, CalibrationError, r"m\.json: camera b moves or zooms at time 2: only fixed cameras"),
        (non_rigid, CalibrationError, r"m\.json: camera a has a non-rigid pose at time 0"),
        (mirrored, CalibrationError, r"m\.json: camera a has a non-rigid pose at time 0"),
        (leaving, InputError, r"the file name '\.\./secret\.jpg' may lead outside the capture folder"),
        (short, CalibrationError, r"k, w2c and cam_id differ in length"),
        (ragged, CalibrationError, r"'k' is not a regular table of numbers"),
        (twice, CalibrationError, r"'cam_id' names a camera twice at time 0"),
        (gone, CalibrationError, r"camera b is missing at time 1"),
        (skewed, CalibrationError, r"camera a: K needs positive focal lengths and no skew"),
        (sized, CalibrationError, r"'w' must be a picture size in pixels, not '64'"),
    ],
)
def test_bad_meta_files_are_refused(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], None], error: type[Exception], message: str
) -> None:
    data = meta(["a", "b"])
    spoil(data)
    with pytest.raises(error, match=message):
        load_rig([save(tmp_path / "m.json", data)])


def test_a_non_finite_pose_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps(meta(["a"])).replace('"w2c": [[[[', '"w2c": [[[[NaN, ', 1))
    with pytest.raises(InputError, match=r"m\.json is not valid JSON: NaN is not a number"):
        load_rig([path])


def test_a_non_rigid_pose_in_rig_json_names_the_camera(tmp_path: Path) -> None:
    data = rig_to_json(Rig({"left": camera("left")}))
    data["cameras"]["left"]["cam_from_world"][0][0] += 0.5
    with pytest.raises(CalibrationError, match=r"rig\.json.*camera 'left'"):
        load_rig([save(tmp_path / "rig.json", data)])


def test_a_robot_path_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "capture" / "robot").mkdir(parents=True)
    (tmp_path / "outside.xml").write_text("<mujoco/>")
    (tmp_path / "capture" / "robot" / "robot.xml").symlink_to(tmp_path / "outside.xml")
    data = rig_to_json(Rig({"a": camera("a")}))
    data["robot"] = {"file": "robot/robot.xml", "format": "MJCF"}
    with pytest.raises(InputError, match=r"robot/robot\.xml.*a link leads outside the folder"):
        load_rig([save(tmp_path / "capture" / "rig.json", data)])
    data["robot"]["file"] = "../outside.xml"
    with pytest.raises(CalibrationError, match=r"a path inside the folder"):
        load_rig([save(tmp_path / "capture" / "rig.json", data)])


def test_one_camera_described_twice_must_agree(tmp_path: Path) -> None:
    one = save(tmp_path / "one.json", rig_to_json(Rig({"a": camera("a")})))
    same = save(tmp_path / "same.json", rig_to_json(Rig({"a": camera("a"), "b": camera("b", 1.0)}, {"a": "test"})))
    rig = load_rig([one, same])
    assert rig.roles == {"a": "test", "b": "train"}
    other = save(tmp_path / "other.json", rig_to_json(Rig({"a": camera("a", 0.1)})))
    with pytest.raises(CalibrationError, match=r"other\.json: camera a is also in another calibration"):
        load_rig([one, other])


@pytest.mark.parametrize("data", [{}, [], {"cameras": []}, {"frames": []}, 3])
def test_an_unknown_kind_lists_what_is_accepted(tmp_path: Path, data: Any) -> None:
    with pytest.raises(CalibrationError, match=r"not a calibration we know.*rig\.json.*Dynamic 3D Gaussians"):
        load_rig([save(tmp_path / "x.json", data)])
    with pytest.raises(CalibrationError, match=r"no calibration given.*Accepted"):
        load_rig([])


def test_find_calibration_looks_in_the_folder_then_its_parent(tmp_path: Path) -> None:
    cams = tmp_path / "cams"
    cams.mkdir()
    with pytest.raises(CalibrationError, match=r"no calibration found for .*cams.*Accepted: rig\.json"):
        find_calibration(cams)
    test = save(tmp_path / "test_meta.json", meta(["z"]))
    train = save(tmp_path / "train_meta.json", meta(["a"]))
    assert find_calibration(cams) == [train, test]
    above = save(tmp_path / "rig.json", {})
    assert find_calibration(cams) == [above]
    beside = save(cams / "rig.json", {})
    assert find_calibration(cams) == [beside]
