"""nerfstudio's transforms.json: frames with world_from_cam in OpenGL axes, intrinsics per frame or shared.

Pixels are ours: the first one's centre is (0.5, 0.5). `applied_transform` is what nerfstudio did to the world of the
poses it was given: it is undone, so that the rig lies in the world of the calibration it came from. Scale unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recon.calibrate.readers.draft import Document, Draft, Reading, Size, bad, matrix_of, numbers, rigid, whole
from recon.calibrate.readers.pictures import one_per_camera
from recon.core.errors import CalibrationError
from recon.geometry.convert import opencv_from_opengl_pose
from recon.geometry.lens import BROWN, COEFFICIENTS, FISHEYE, Distortion
from recon.geometry.pose import invert_pose

LENSES = {
    "SIMPLE_PINHOLE": BROWN, "PINHOLE": BROWN, "SIMPLE_RADIAL": BROWN, "RADIAL": BROWN, "OPENCV": BROWN,
    "PERSPECTIVE": BROWN, "OPENCV_FISHEYE": FISHEYE,
}  # fmt: skip
MAX_FRAMES = 100_000


def is_ours(data: Any) -> bool:
    """Whether parsed JSON has this layout."""
    frames = data.get("frames") if isinstance(data, dict) else None
    return (
        isinstance(frames, list)
        and len(frames) > 0
        and all(isinstance(frame, dict) for frame in frames)
        and any("transform_matrix" in frame for frame in frames)
    )


def read(documents: Sequence[Document]) -> Reading:
    """All frames of one file, one camera each or one per folder of pictures."""
    if len(documents) > 1:
        raise CalibrationError(f"{documents[1].path}: two transforms.json were given", fix="Give one.")
    data, where = documents[0].data, str(documents[0].path)
    frames = data["frames"]
    if len(frames) > MAX_FRAMES:
        raise bad(where, f"it lists {len(frames)} frames, at most {MAX_FRAMES} are accepted")
    applied = np.eye(4)
    if data.get("applied_transform") is not None:
        label = f"{where}: applied_transform"
        applied = rigid(numbers(data["applied_transform"], label), label)
    drafts = [_draft(data, frame, applied, f"{where}: frame {k}") for k, frame in enumerate(frames)]
    return Reading(where, one_per_camera(drafts, where))


def _draft(shared: Mapping[str, Any], frame: Mapping[str, Any], applied: np.ndarray, where: str) -> Draft:
    name = frame.get("file_path")
    if not isinstance(name, str) or not name:
        raise bad(where, "it has no file_path")
    where = f"{where} ({name[:80]})"
    values = {**shared, **frame}
    model = values.get("camera_model", "OPENCV")
    if model not in LENSES:
        raise bad(where, f"its camera_model is {str(model)[:40]}", f"Read are {', '.join(LENSES)}.")
    # x_world' = applied x_world, and the file's pose is world'_from_cam with OpenGL camera axes.
    world_from_cam = rigid(numbers(frame.get("transform_matrix"), f"{where}: transform_matrix"), where)
    cam_from_world = opencv_from_opengl_pose(invert_pose(world_from_cam) @ applied)
    size = _size(values, where)
    return Draft(name, _matrix(values, size, where), cam_from_world, size, *_lens(values, LENSES[model], where))


def _size(values: Mapping[str, Any], where: str) -> Size | None:
    if values.get("w") is None or values.get("h") is None:
        return None
    return whole(values["w"], f"{where}: w"), whole(values["h"], f"{where}: h")


def _matrix(values: Mapping[str, Any], size: Size | None, where: str) -> np.ndarray:
    if values.get("fl_x") is not None:
        fx = _number(values, "fl_x", where)
        fy = _number(values, "fl_y", where) if values.get("fl_y") is not None else fx
    elif values.get("camera_angle_x") is not None and size is not None:
        # the angle spans the picture's width: tan(angle / 2) = w / (2 f)
        fx = fy = size[0] / (2.0 * float(np.tan(_number(values, "camera_angle_x", where) / 2.0)))
    else:
        raise bad(where, "it has neither fl_x nor camera_angle_x with w and h")
    centre = []
    for key, side in (("cx", 0), ("cy", 1)):
        if values.get(key) is None and size is None:
            raise bad(where, f"it has no {key}")
        centre.append(_number(values, key, where) if values.get(key) is not None else size[side] / 2.0)  # type: ignore[index]
    return matrix_of(fx, fy, *centre)


def _lens(values: Mapping[str, Any], lens: str, where: str) -> tuple[Distortion, str]:
    names = COEFFICIENTS[lens]
    rest = sorted({"k1", "k2", "k3", "k4", "k5", "k6", "p1", "p2"} - set(names))
    for key in rest:
        if values.get(key) is not None and _number(values, key, where) != 0.0:
            raise bad(where, f"its lens uses {key}", f"Read are {' '.join(names)}.")
    return tuple(_number(values, key, where) if values.get(key) is not None else 0.0 for key in names), lens


def _number(values: Mapping[str, Any], key: str, where: str) -> float:
    return float(numbers(values[key], f"{where}: {key}", ()))
