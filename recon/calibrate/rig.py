"""Reading calibrations: our rig.json and the Dynamic 3D Gaussians meta files, told apart by content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recon.core.errors import CalibrationError, InputError
from recon.core.files import inside, read_json
from recon.geometry.camera import Camera
from recon.geometry.pose import is_rigid
from recon.geometry.rig import Rig, rig_from_json

ACCEPTED = "rig.json (ours), or train_meta.json and test_meta.json (Dynamic 3D Gaussians layout)"
TEST_META = "test_meta.json"
_META_KEYS = {"w", "h", "k", "w2c"}
MAX_META_CAMERAS = 1000


def load_rig(paths: Sequence[Path]) -> Rig:
    """Read one or several calibration files into one rig.

    A file called test_meta.json marks its cameras with the role 'test', as that layout means it; the other kinds are
    told apart by what they contain. Paths inside rig.json are relative to it and may not leave its folder.

    Raises CalibrationError for no file, an unknown kind, a camera that moves, a non-finite or non-rigid pose, or a
    camera that two files describe differently; InputError for a file that cannot be read.
    """
    if not paths:
        raise CalibrationError("no calibration given", fix=f"Accepted with --rig: {ACCEPTED}.")
    merged = _load_one(Path(paths[0]))
    for path in paths[1:]:
        merged = _merge(merged, _load_one(Path(path)), Path(path))
    return merged


def find_calibration(videos: Path) -> list[Path]:
    """Calibration files in the folder of the recordings or its parent, for `load_rig`.

    A rig.json wins over meta files; the folder wins over its parent. Raises CalibrationError listing what is accepted.
    """
    for folder in (videos, videos.resolve().parent):
        if (folder / "rig.json").is_file():
            return [folder / "rig.json"]
        metas = sorted(folder.glob("*_meta.json"), key=lambda p: (p.name == TEST_META, p.name))
        if metas:
            return metas
    raise CalibrationError(
        f"no calibration found for {videos}",
        why=f"looked for rig.json and *_meta.json in {videos} and {videos.resolve().parent}",
        fix=f"Give one with --rig. Accepted: {ACCEPTED}.",
    )


def _load_one(path: Path) -> Rig:
    data = read_json(path)
    if isinstance(data, dict) and isinstance(data.get("cameras"), dict):
        rig = rig_from_json(data, str(path))
        _check_robot_paths(rig, path)
        return rig
    if isinstance(data, dict) and data.keys() >= _META_KEYS:
        return _rig_from_meta(data, path)
    raise CalibrationError(f"{path}: not a calibration we know", fix=f"Accepted: {ACCEPTED}.")


def _check_robot_paths(rig: Rig, path: Path) -> None:
    if rig.robot is not None:
        for name in (rig.robot.file, rig.robot.joint_log):
            if name:
                inside(path.resolve().parent, str(name))


def _rig_from_meta(data: dict[str, Any], path: Path) -> Rig:
    """Dynamic 3D Gaussians layout: k [T][C] 3x3, w2c [T][C] 4x4 (OpenCV axes), fn [T][C], cam_id [T][C]."""
    width, height = (_size(data, key, path) for key in ("w", "h"))
    first = data["k"][0] if isinstance(data["k"], list) and data["k"] else None
    if not isinstance(first, list) or not 0 < len(first) <= MAX_META_CAMERAS:
        raise CalibrationError(f"{path}: 'k' must be a list [times][cameras] of 3x3 matrices")
    count = len(first)
    matrices = _numbers(data["k"], (count, 3, 3), "k", path)  # [T, C, 3, 3]
    poses = _numbers(data["w2c"], (count, 4, 4), "w2c", path)  # [T, C, 4, 4]
    names = _camera_names(data, count, path)
    _check_file_names(data, path)
    if len(poses) != len(matrices) or len(names) not in (1, len(poses)):
        raise CalibrationError(f"{path}: k, w2c and cam_id differ in length")
    role = "test" if path.name == TEST_META else "train"
    cameras = {}
    for column, name in enumerate(names[0]):
        for t in range(len(poses)):
            at = column if len(names) == 1 else names[t].index(name) if name in names[t] else -1
            if at < 0:
                raise CalibrationError(f"{path}: camera {name} is missing at time {t}")
            _check_pose(poses[t, at], path, name, t)
            if not (
                np.allclose(poses[t, at], poses[0, column], rtol=0, atol=1e-5)
                and np.allclose(matrices[t, at], matrices[0, column], rtol=1e-6, atol=1e-4)
            ):
                raise CalibrationError(
                    f"{path}: camera {name} moves or zooms at time {t}",
                    why="only fixed cameras can be reconstructed",
                    fix="Leave it out with --cams, or record with fixed cameras.",
                )
        cameras[name] = _camera(name, width, height, matrices[0, column], poses[0, column], path)
    return Rig(
        cameras=cameras, roles=dict.fromkeys(cameras, role), robot=None, fps=None, world_up="unknown", units="unknown"
    )


def _camera(name: str, width: int, height: int, k: np.ndarray, pose: np.ndarray, path: Path) -> Camera:
    if not (k[0, 0] > 0 and k[1, 1] > 0) or abs(k[0, 1]) > 1e-6 * k[0, 0]:
        raise CalibrationError(f"{path}: camera {name}: K needs positive focal lengths and no skew")
    return Camera(
        name=name,
        width=width,
        height=height,
        fx=float(k[0, 0]),
        fy=float(k[1, 1]),
        cx=float(k[0, 2]),
        cy=float(k[1, 2]),
        cam_from_world=pose.copy(),
    )


def _size(data: dict[str, Any], key: str, path: Path) -> int:
    value = data[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 16384:
        raise CalibrationError(f"{path}: {key!r} must be a picture size in pixels, not {value!r}")
    return value


def _numbers(value: Any, shape: tuple[int, ...], key: str, path: Path) -> np.ndarray:
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise CalibrationError(f"{path}: {key!r} is not a regular table of numbers") from error
    if array.shape[1:] != shape:
        raise CalibrationError(f"{path}: {key!r} has the shape {array.shape}, expected [times, {shape}]")
    return array


def _camera_names(data: dict[str, Any], count: int, path: Path) -> list[list[str]]:
    """Names per time: [T][C]. Without cam_id, cameras are numbered."""
    rows = data.get("cam_id", [list(range(count))])
    if not isinstance(rows, list) or not rows or not all(isinstance(r, list) and len(r) == count for r in rows):
        raise CalibrationError(f"{path}: 'cam_id' must be a list [times][{count} cameras]")
    names = [[str(cell) for cell in row] for row in rows]
    for t, row in enumerate(names):
        if len(set(row)) != count:
            raise CalibrationError(f"{path}: 'cam_id' names a camera twice at time {t}")
    return names


def _check_file_names(data: dict[str, Any], path: Path) -> None:
    for row in data.get("fn", []):
        for name in row if isinstance(row, list) else [row]:
            if not isinstance(name, str) or name.startswith("/") or ".." in name.split("/") or "\\" in name:
                raise InputError(
                    f"{path}: the file name {name!r} may lead outside the capture folder",
                    fix="Names must be relative, such as 1/000000.jpg.",
                )


def _check_pose(pose: np.ndarray, path: Path, name: str, t: int) -> None:
    if not np.isfinite(pose).all():
        raise CalibrationError(f"{path}: camera {name} has a non-finite pose at time {t}")
    if not is_rigid(pose):
        raise CalibrationError(
            f"{path}: camera {name} has a non-rigid pose at time {t}",
            why="the upper left 3x3 of w2c must be a rotation",
            fix="Calibrate again, or leave it out with --cams.",
        )


def _merge(a: Rig, b: Rig, path: Path) -> Rig:
    for name in a.cameras.keys() & b.cameras.keys():
        if not _same_camera(a.cameras[name], b.cameras[name]):
            raise CalibrationError(f"{path}: camera {name} is also in another calibration, with other values")
    roles = {**a.roles, **b.roles}
    roles.update({n: "test" for rig in (a, b) for n, role in rig.roles.items() if role == "test"})
    return replace(
        a,
        cameras={**a.cameras, **b.cameras},
        roles=roles,
        robot=a.robot if a.robot is not None else b.robot,
        fps=a.fps if a.fps is not None else b.fps,
        world_up=a.world_up if a.world_up == b.world_up else "unknown",
        units=a.units if a.units == b.units else "unknown",
    )


def _same_camera(a: Camera, b: Camera) -> bool:
    return (
        (a.width, a.height) == (b.width, b.height)
        and np.allclose([a.fx, a.fy, a.cx, a.cy, *a.distortion], [b.fx, b.fy, b.cx, b.cy, *b.distortion], rtol=1e-6)
        and np.allclose(a.cam_from_world, b.cam_from_world, rtol=0, atol=1e-6)
    )
