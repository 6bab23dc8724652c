"""OpenCV's numbers in YAML or JSON, as cv::FileStorage or a script writes them, under the names people use.

Three layouts: a camera per file; all cameras in one file, by name; and EasyMocap's intri.yml with extri.yml (K_<name>,
R_<name>, T_<name>). Pixels are OpenCV's: the first one's centre is (0, 0). R and T (or rvec and tvec) lead from world
to camera. A 4x4 pose whose name does not say where it leads leaves the direction open. No unit is said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recon.calibrate.readers.draft import (
    MAX_CAMERAS,
    Document,
    Draft,
    Reading,
    Size,
    bad,
    from_integer_centres,
    numbers,
    opencv_distortion,
    pose_of,
    rigid,
    whole,
)  # fmt: skip
from recon.core.config import parse_yaml
from recon.core.errors import CalibrationError, UsageError
from recon.geometry.pose import invert_pose

MATRIX = ("camera_matrix", "cameraMatrix", "Camera_Matrix", "intrinsic_matrix", "intrinsics", "mtx", "K", "M")
LENS = (
    "distortion_coefficients", "Distortion_Coefficients", "distCoeffs", "dist_coeffs", "distortion", "distortions",
    "dist", "D",
)  # fmt: skip
ROTATION = ("rotation_matrix", "rotation", "R", "Rot", "rvec", "rotation_vector")
TRANSLATION = ("translation", "translation_vector", "tvec", "T", "t")
SIZE = ("image_size", "imageSize", "img_size", "size", "resolution")
SIDES = (("image_width", "image_height"), ("image_Width", "image_Height"), ("width", "height"), ("w", "h"))
TO_CAMERA = ("cam_from_world", "camera_from_world", "world_to_camera", "world_to_cam", "world2cam", "w2c", "T_cw")
TO_WORLD = (
    "world_from_cam", "world_from_camera", "camera_to_world", "cam_to_world", "cam2world", "c2w", "T_wc",
    "camera_to_master", "cam_to_master",
)  # fmt: skip
EITHER = ("extrinsics", "extrinsic", "extrinsic_matrix", "camera_pose", "pose", "transform", "RT")
NAME = ("camera_name", "camera", "name", "serial")
MODEL = ("camera_model", "distortion_model", "model", "fisheye_model")
FISHEYE_WORDS = ("fisheye", "equidistant", "kannala_brandt", "opencv_fisheye")
HEADER = re.compile(rb"\A(\xef\xbb\xbf)?%YAML[ :][^\n]*\n")
TAG = re.compile(rb"!!opencv-(nd-)?matrix\b")


def parse(data: bytes, where: str) -> dict[str, Any]:
    """The mapping in FileStorage's YAML, or in any plain YAML. Its two tags say what the keys show; others are refused.

    Raises CalibrationError naming the line.
    """
    plain = TAG.sub(b"", HEADER.sub(b"", data, count=1))
    try:
        return parse_yaml(plain, where, number_keys=True)
    except UsageError as error:
        raise CalibrationError(
            error.what, why=error.why, fix="Write it with cv::FileStorage, or as plain YAML."
        ) from error


def is_ours(data: Any) -> bool:
    """Whether parsed YAML or JSON has one of the three layouts."""
    return isinstance(data, dict) and (_is_camera(data) or bool(_members(data)) or _is_easymocap(data))


def read(documents: Sequence[Document]) -> Reading:
    """All cameras of the files: each holds one, or several by name; EasyMocap's two files are read as one."""
    where = str(documents[0].path if len(documents) == 1 else documents[0].path.parent)
    if any(_is_easymocap(document.data) for document in documents):
        cameras = _easymocap(documents, where)
    else:
        cameras = []
        for document in documents:
            if _is_camera(document.data):
                cameras.append((_own_name(document, documents), document.data, str(document.path)))
            else:
                cameras += [(name, entry, str(document.path)) for name, entry in _members(document.data)]
    if not 0 < len(cameras) <= MAX_CAMERAS:
        raise bad(where, f"it holds {len(cameras)} cameras")
    drafts, open_ones = [], []
    for name, entry, file in cameras:
        draft, is_open = _draft(name, entry, f"{file}: camera {name}")
        drafts.append(draft)
        open_ones.append(is_open)
    return Reading(where, drafts, direction_open=all(open_ones))


def _is_camera(entry: Mapping[str, Any]) -> bool:
    return _intrinsics(entry) is not None


def _intrinsics(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The mapping that holds K: the entry itself, or one within it (`intrinsics: {K: ..., D: ...}`)."""
    key = next((key for key in MATRIX if key in entry), None)
    if key is None:
        return None
    inner = entry[key]
    if isinstance(inner, dict) and "data" not in inner:
        return inner if any(name in inner for name in MATRIX) else None
    return entry


def _members(data: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """(name, camera) of all cameras by name, at the top or below `cameras`; a list gives its own names or numbers."""
    entries: Any = data.get("cameras", data)
    rows: list[tuple[str, Any]] = []
    if isinstance(entries, dict):
        rows = [(str(key), row) for key, row in entries.items() if isinstance(row, dict)]
    elif isinstance(entries, list):
        rows = [(str(_first(row, NAME) or k), row) for k, row in enumerate(entries) if isinstance(row, dict)]
    return [(name, row) for name, row in rows if _is_camera(row)]


def _is_easymocap(data: Mapping[str, Any]) -> bool:
    names = data.get("names")
    return isinstance(names, list) and any(f"{key}_{name}" in data for name in names[:1] for key in ("K", "R", "Rot"))


def _easymocap(documents: Sequence[Document], where: str) -> list[tuple[str, Mapping[str, Any], str]]:
    """K_<name> and dist_<name> of one file, R_<name> or Rot_<name>, and T_<name> of the other, by camera."""
    merged: dict[str, Any] = {}
    for document in documents:
        merged.update({key: value for key, value in document.data.items() if key != "names"})
    cameras: list[tuple[str, Mapping[str, Any], str]] = []
    for name in documents[0].data.get("names") or []:
        entry = {key: merged[f"{key}_{name}"] for key in ("K", "dist", "Rot", "R", "T") if f"{key}_{name}" in merged}
        for short, key in (("W", "width"), ("H", "height")):
            if f"{short}_{name}" in merged:
                entry[key] = merged[f"{short}_{name}"]
        if "K" not in entry:
            raise bad(f"{where}: camera {name}", "no K_<name> is given", "Give intri.yml and extri.yml.")
        cameras.append((str(name), entry, where))
    return cameras


def _own_name(document: Document, documents: Sequence[Document]) -> str:
    """Of a file that holds one camera: the name it says, else the file's, else its folder's."""
    said = _first(document.data, NAME)
    if isinstance(said, (str, int)) and not isinstance(said, bool):
        return str(said)
    stems = [other.path.stem for other in documents]
    return document.path.stem if stems.count(document.path.stem) == 1 else document.path.parent.name


def _draft(name: str, entry: Mapping[str, Any], label: str) -> tuple[Draft, bool]:
    """(the camera, whether its pose's direction is open)."""
    inner = _intrinsics(entry)
    assert inner is not None
    k = _array(_first(inner, MATRIX), f"{label}: K")
    values = _first(inner, LENS) if _first(inner, LENS) is not None else _first(entry, LENS)
    lens = _array([] if values is None else values, f"{label}: distortion")
    words = str(_first(inner, MODEL) or _first(entry, MODEL) or "").lower()
    bent = opencv_distortion(lens, f"{label}: distortion", words in FISHEYE_WORDS)
    pose, is_open = _pose(entry, label)
    if k.shape != (3, 3):
        raise bad(f"{label}: K", f"its shape is {list(k.shape)}, [3, 3] is needed")
    return Draft(name, from_integer_centres(k), pose, _size(inner, label) or _size(entry, label), *bent), is_open


def _pose(entry: Mapping[str, Any], label: str) -> tuple[np.ndarray, bool]:
    """(cam_from_world [4, 4], whether that direction was only assumed)."""
    for keys, inverse in ((TO_CAMERA, False), (TO_WORLD, True), (EITHER, False)):
        value = _first(entry, keys)
        if isinstance(value, dict) and "data" not in value:
            return _pose(value, label)
        if value is not None:
            pose = rigid(_array(value, f"{label}: pose"), label)
            return (invert_pose(pose) if inverse else pose), keys is EITHER
    rotation, translation = _first(entry, ROTATION), _first(entry, TRANSLATION)
    if rotation is None or translation is None:
        known = f"R and T, {', '.join(TO_CAMERA[:3])}, {', '.join(TO_WORLD[2:4])}, {EITHER[0]}"
        raise bad(label, "it has no pose, only a lens", f"Poses are read from {known}.")
    if "Rot" in entry:  # EasyMocap's matrix beside its vector R
        rotation = entry["Rot"]
    return pose_of(_array(rotation, f"{label}: R"), _array(translation, f"{label}: T"), label), False


def _size(entry: Mapping[str, Any], label: str) -> Size | None:
    for across, down in SIDES:
        if across in entry and down in entry:
            return whole(entry[across], f"{label}: width"), whole(entry[down], f"{label}: height")
    value = _first(entry, SIZE)
    if value is None:
        return None
    pair = _array(value, f"{label}: size").ravel()
    if pair.size != 2:
        raise bad(f"{label}: size", "width and height are needed")
    return whole(float(pair[0]), f"{label}: width"), whole(float(pair[1]), f"{label}: height")


def _array(value: Any, label: str) -> np.ndarray:
    """An opencv-matrix node {rows, cols, dt, data} (or {sizes, dt, data}), or nested lists, as numbers."""
    if not isinstance(value, dict):
        return numbers(value, label)
    data = numbers(value.get("data"), label)
    shape = value.get("sizes", [value.get("rows"), value.get("cols")])
    if not isinstance(shape, list) or not all(isinstance(side, int) and 0 <= side <= 4096 for side in shape):
        raise bad(label, "a matrix needs rows, cols and data")
    if data.ndim != 1 or data.size != int(np.prod(shape)):
        raise bad(label, f"its {' x '.join(map(str, shape))} entries are {data.size}")
    return data.reshape(shape)


def _first(entry: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((entry[key] for key in keys if entry.get(key) is not None), None)
