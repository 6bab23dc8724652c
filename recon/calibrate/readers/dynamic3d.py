"""The meta files of Dynamic 3D Gaussians: k [T][C] 3x3, w2c [T][C] 4x4 (OpenCV axes), fn [T][C], cam_id [T][C].

The first pixel's centre is (0.5, 0.5), as ours. Scale and up axis are not said.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from recon.calibrate.readers.draft import Document
from recon.core.errors import CalibrationError, InputError
from recon.geometry.camera import Camera
from recon.geometry.pose import is_rigid
from recon.geometry.rig import Rig

TEST_META = "test_meta.json"
META_KEYS = {"w", "h", "k", "w2c"}
MAX_META_CAMERAS = 1000


def is_ours(data: Any) -> bool:
    """Whether parsed JSON has this layout."""
    return isinstance(data, dict) and data.keys() >= META_KEYS


def read(document: Document) -> Rig:
    """The cameras of one file; one called test_meta.json marks them with the role 'test', as that layout means it."""
    data, path = document.data, document.path
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
