from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.core.errors import CalibrationError
from recon.geometry.camera import project
from recon.geometry.pose import look_at, se3_exp
from recon.geometry.rig import Rig, rig_from_json, rig_to_json


def document() -> dict[str, Any]:
    """A rig file as calibration tools write them: rounded poses, distortion of four terms, free notes."""
    poses = {
        "left": look_at(np.array([1.0, -1, 1]), np.zeros(3)),
        "right": look_at(np.array([-1.0, -1, 1]), np.zeros(3)),
    }
    cameras = {
        name: {
            "model": "pinhole_opencv",
            "width": 640,
            "height": 480,
            "fx": 601.2,
            "fy": 601.5,
            "cx": 323.6,
            "cy": 235.6,
            "distortion": {"k1": -0.14, "k2": 0.03, "p1": 0.0, "p2": 0.001},
            "cam_from_world": np.round(pose, 9).tolist(),
        }
        for name, pose in poses.items()
    }
    return {
        "conventions": {"units": "metres", "world": "z up, z = 0 is the table top"},
        "note": "measured on a Tuesday",
        "fps": 15,
        "cameras": cameras,
        "robot": {
            "file": "robot/robot.xml",
            "format": "MJCF",
            "base_body": "link0",
            "joint_log": "robot/joints.csv",
            "world_from_base": np.eye(4).tolist(),
            "note": "by hand",
        },
    }


def test_reads_a_rig_and_its_conventions() -> None:
    rig = rig_from_json(document(), "rig.json")
    assert list(rig.cameras) == ["left", "right"]
    assert rig.roles == {"left": "train", "right": "train"}
    assert rig.cameras["left"].distortion == (-0.14, 0.03, 0.0, 0.001, 0.0)
    assert (rig.fps, rig.world_up, rig.units) == (15.0, "z", "metres")
    assert rig.robot is not None
    assert (rig.robot.file, rig.robot.base_body, rig.robot.joint_log) == (
        "robot/robot.xml",
        "link0",
        "robot/joints.csv",
    )


def test_round_trip_through_text_is_exact() -> None:
    data = document()
    data["cameras"]["right"]["role"] = "test"
    first = rig_from_json(data, "rig.json")
    second = rig_from_json(json.loads(json.dumps(rig_to_json(first))), "rig.json")
    assert rig_to_json(second) == rig_to_json(first)
    assert second.named("test") == ["right"]
    assert second.named("train") == ["left"]
    for name, camera in first.cameras.items():
        np.testing.assert_array_equal(camera.cam_from_world, second.cameras[name].cam_from_world)


def test_a_rig_that_says_nothing_of_its_world_is_unknown() -> None:
    data = {"cameras": document()["cameras"]}
    rig = rig_from_json(data, "rig.json")
    assert (rig.world_up, rig.units, rig.fps, rig.robot) == ("unknown", "unknown", None, None)


@given(st.integers(0, 10**6), st.floats(0.1, 10))
def test_pictures_do_not_change_when_the_world_does(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    rig = rig_from_json(document(), "rig.json")
    scene_from_rig = se3_exp(rng.normal(size=6))
    scene_from_rig[:3, :3] *= scale
    moved = rig.transformed(scene_from_rig)
    points = rng.uniform(-0.3, 0.3, (20, 3))
    moved_points = points @ scene_from_rig[:3, :3].T + scene_from_rig[:3, 3]
    for name in rig.cameras:
        uv, z = project(rig.cameras[name], points)
        uv_moved, z_moved = project(moved.cameras[name], moved_points)
        np.testing.assert_allclose(uv_moved, uv, atol=1e-7)
        np.testing.assert_allclose(z_moved, scale * z)
    assert moved.robot is not None
    assert moved.robot.world_from_base is not None
    np.testing.assert_allclose(moved.robot.world_from_base[:3, 3], scene_from_rig[:3, 3])
    np.testing.assert_allclose(moved.robot.world_from_base[:3, :3], scene_from_rig[:3, :3] / scale, atol=1e-12)


def change(path: str, value: Any) -> dict[str, Any]:
    """The document with the field at `path` (slashes) set, or removed when the value is KeyError."""
    data = copy.deepcopy(document())
    *parents, last = path.split("/")
    place = data
    for key in parents:
        place = place[key]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return data


BAD_POSE = np.diag([1.0, 1.0, 1.01, 1.0]).tolist()
NAN_POSE = [[float("nan")] * 4] * 4
LEFT = "cameras/left"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            f"{LEFT}/cam_from_world",
            BAD_POSE,
            "rig.json: camera 'left' cannot be used: cam_from_world is not a rotation",
        ),
        (f"{LEFT}/cam_from_world", NAN_POSE, "rig.json: camera 'left': cam_from_world is nan: a finite number"),
        (f"{LEFT}/cam_from_world", [[1, 0], [0, 1]], "camera 'left': cam_from_world is not a 4x4 matrix"),
        (f"{LEFT}/fx", KeyError, "camera 'left' cannot be used: it lacks fx"),
        (f"{LEFT}/fx", "601", "camera 'left': fx is '601'"),
        (f"{LEFT}/fx", True, "camera 'left': fx is True"),
        (f"{LEFT}/width", 640.5, "camera 'left': width is 640.5: a whole number"),
        (f"{LEFT}/width", -640, "camera 'left' cannot be used: its width is -640"),
        (f"{LEFT}/model", "fisheye", "camera 'left': model is 'fisheye'"),
        (f"{LEFT}/role", "tset", "camera 'left' has the role 'tset'"),
        (f"{LEFT}/distorsion", {}, "camera 'left': unknown field 'distorsion'. Did you mean 'distortion'"),
        (f"{LEFT}/distortion", {"k4": 0.1}, "camera 'left': distortion: unknown field 'k4'"),
        (f"{LEFT}/distortion", [0.1], "camera 'left': distortion is missing or not a JSON object"),
        (LEFT, 3, "camera 'left' is missing or not a JSON object"),
        ("cameras", {}, "it lists 0 cameras"),
        ("cameras", KeyError, "cameras is missing"),
        ("cameras/..", {}, "camera name '..'"),
        ("cameras/a\\b", {}, "must be usable as a folder's name"),
        ("version", 2, "version 2: this program reads recon-rig version 1"),
        ("format", "other", "format 'other'"),
        ("fps", 0, "fps is 0"),
        ("world_up", "y", "world_up is 'y'"),
        ("units", "feet", "units is 'feet'"),
        ("camera", {}, "unknown field 'camera'. Did you mean 'cameras'"),
        ("robot/file", "../robot.xml", "robot: file is '../robot.xml': it must be a path inside"),
        ("robot/file", "/etc/passwd", "robot: file is '/etc/passwd'"),
        ("robot/joint_log", "C:\\log.csv", "robot: joint_log is"),
        ("robot/format", "SDF", "robot: format is 'SDF'"),
        ("robot/world_from_base", BAD_POSE, "robot: world_from_base is not a rotation"),
    ],
)
def test_bad_rigs_are_refused_with_the_place(path: str, value: Any, message: str) -> None:
    with pytest.raises(CalibrationError) as caught:
        rig_from_json(change(path, value), "rig.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith("rig.json") or path.endswith("role")


def test_a_document_that_is_no_object() -> None:
    with pytest.raises(CalibrationError, match="not a JSON object"):
        rig_from_json([1, 2], "rig.json")


def test_roles_name_cameras_that_exist() -> None:
    rig = rig_from_json(document(), "rig.json")
    with pytest.raises(CalibrationError, match="no such camera"):
        Rig(rig.cameras, roles={"top": "test"})
    with pytest.raises(CalibrationError, match="calls itself 'left'"):
        Rig({"other": rig.cameras["left"]})
