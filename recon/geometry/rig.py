"""All cameras of one capture in one world, and the robot among them; rig.json in and out (schema: ARCHITECTURE.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from recon.core.errors import CalibrationError, did_you_mean
from recon.geometry.camera import Camera
from recon.geometry.lens import BROWN, COEFFICIENTS, FISHEYE
from recon.geometry.pose import carried, is_rigid, split_similarity

FORMAT, VERSION = "recon-rig", 1
LENS_OF_MODEL = {"pinhole": BROWN, "pinhole_opencv": BROWN, "fisheye_opencv": FISHEYE}
ROLES = ("train", "test")
MAX_CAMERAS = 4096
TOP_KEYS = {
    "format", "version", "conventions", "note", "fps", "world_up", "units", "cameras", "robot"
}  # fmt: skip
CAMERA_KEYS = {
    "role", "model", "width", "height", "fx", "fy", "cx", "cy", "distortion", "cam_from_world", "note"
}  # fmt: skip
ROBOT_KEYS = {"file", "format", "base_body", "joint_log", "world_from_base", "note"}


@dataclass(frozen=True, eq=False)
class RobotEntry:
    """The robot a capture names: its files (paths relative to the rig's folder), and where its base is."""

    file: str
    format: str  # "MJCF" or "URDF"
    base_body: str | None = None
    joint_log: str | None = None
    world_from_base: np.ndarray | None = None  # [4, 4]; None when not measured


@dataclass(frozen=True, eq=False)
class Rig:
    """Cameras by name in one world, each with a role: pictures of 'test' cameras never enter a fit."""

    cameras: dict[str, Camera]
    roles: dict[str, str] = field(default_factory=dict)  # cameras not named are 'train'
    robot: RobotEntry | None = None
    fps: float | None = None
    world_up: str = "unknown"  # 'z': +z up and table top at z = 0
    units: str = "unknown"  # or 'metres'

    def __post_init__(self) -> None:
        for name, camera in self.cameras.items():
            _check_name(name)
            if camera.name != name:
                raise CalibrationError(f"camera '{name}' cannot be used", why=f"it calls itself '{camera.name}'")
        for name, role in self.roles.items():
            if name not in self.cameras:
                raise CalibrationError(f"the role of camera '{name}' is given", why="the rig has no such camera")
            if role not in ROLES:
                raise CalibrationError(f"camera '{name}' has the role {role!r}", fix="say 'train' or 'test'")
        object.__setattr__(self, "roles", {name: self.roles.get(name, "train") for name in self.cameras})

    def named(self, role: str) -> list[str]:
        """Names of the cameras of that role, in the rig's order."""
        return [name for name in self.cameras if self.roles[name] == role]

    def transformed(self, scene_from_rig: np.ndarray) -> Rig:
        """The same cameras and robot in the world that the similarity `scene_from_rig` [4, 4] leads to.

        Poses stay rigid: with x_scene = s R x + t a camera keeps its picture while distances grow by s. The new
        world's up axis and units are for the caller to say.
        """
        scale, rotation, translation = split_similarity(scene_from_rig)

        cameras = {}
        for name, camera in self.cameras.items():
            # R_c' = R_c R^T; the centre c moves to s R c + t; t_c' = -R_c' c' = s t_c - R_c' t
            pose = np.eye(4)
            pose[:3, :3] = camera.cam_from_world[:3, :3] @ rotation.T
            pose[:3, 3] = scale * camera.cam_from_world[:3, 3] - pose[:3, :3] @ translation
            cameras[name] = camera.with_pose(pose)
        robot = self.robot
        if robot is not None and robot.world_from_base is not None:
            robot = replace(robot, world_from_base=carried(scene_from_rig, robot.world_from_base))
        return replace(self, cameras=cameras, robot=robot)


def rig_from_json(data: Any, where: str) -> Rig:
    """The rig in the parsed JSON `data`; `where` (a file name) opens every message.

    Raises CalibrationError naming the camera and the field for anything missing, unknown, non-finite or non-rigid.
    """
    data = _mapping(data, where, TOP_KEYS)
    if data.get("format", FORMAT) != FORMAT or data.get("version", VERSION) != VERSION:
        raise CalibrationError(
            f"{where}: format {data.get('format')!r}, version {data.get('version')!r}",
            why=f"this program reads {FORMAT} version {VERSION}",
        )
    entries = _mapping(data.get("cameras"), f"{where}: cameras")
    if not 1 <= len(entries) <= MAX_CAMERAS:
        raise CalibrationError(f"{where}: it lists {len(entries)} cameras", why=f"1 to {MAX_CAMERAS} are accepted")
    cameras, roles = {}, {}
    for name, entry in entries.items():
        _check_name(name, where)
        label = f"{where}: camera '{name}'"
        entry = _mapping(entry, label, CAMERA_KEYS)
        cameras[name] = _camera(name, entry, label, where)
        roles[name] = entry.get("role", "train")
    conventions = data.get("conventions")
    words: Mapping[str, Any] = conventions if isinstance(conventions, Mapping) else {}
    z_up = str(words.get("world", "")).lower().startswith("z up")
    fps = data.get("fps")
    if fps is not None:
        fps = _number(fps, f"{where}: fps")
        if not 0 < fps <= 1e5:
            raise CalibrationError(f"{where}: fps is {fps:g}", fix="give frames per second above zero")
    return Rig(
        cameras=cameras,
        roles=roles,
        robot=None if data.get("robot") is None else _robot(data["robot"], f"{where}: robot"),
        fps=fps,
        world_up=_choice(data.get("world_up", "z" if z_up else "unknown"), ("z", "unknown"), f"{where}: world_up"),
        units=_choice(data.get("units", words.get("units", "unknown")), ("metres", "unknown"), f"{where}: units"),
    )


def rig_to_json(rig: Rig) -> dict[str, Any]:
    """Plain JSON data that rig_from_json reads back to equal numbers."""
    cameras = {}
    for name, camera in rig.cameras.items():
        cameras[name] = {
            "role": rig.roles[name],
            "model": "fisheye_opencv" if camera.lens == FISHEYE else "pinhole_opencv",
            "width": camera.width,
            "height": camera.height,
            "fx": float(camera.fx),
            "fy": float(camera.fy),
            "cx": float(camera.cx),
            "cy": float(camera.cy),
            "distortion": dict(zip(COEFFICIENTS[camera.lens], camera.distortion, strict=True)),
            "cam_from_world": camera.cam_from_world.tolist(),
        }
    data: dict[str, Any] = {"format": FORMAT, "version": VERSION, "world_up": rig.world_up, "units": rig.units}
    if rig.fps is not None:
        data["fps"] = float(rig.fps)
    data["cameras"] = cameras
    if rig.robot is not None:
        robot = {key: getattr(rig.robot, key) for key in ("file", "format", "base_body", "joint_log")}
        if rig.robot.world_from_base is not None:
            robot["world_from_base"] = rig.robot.world_from_base.tolist()
        data["robot"] = {key: value for key, value in robot.items() if value is not None}
    return data


def _camera(name: str, entry: Mapping[str, Any], label: str, where: str) -> Camera:
    model = _choice(entry.get("model", "pinhole_opencv"), tuple(LENS_OF_MODEL), f"{label}: model")
    lens = LENS_OF_MODEL[model]
    missing = [key for key in ("width", "height", "fx", "fy", "cx", "cy", "cam_from_world") if key not in entry]
    if missing:
        raise CalibrationError(f"{label} cannot be used", why=f"it lacks {', '.join(missing)}")
    coefficients = _mapping(entry.get("distortion") or {}, f"{label}: distortion", set(COEFFICIENTS[lens]))
    pose = _matrix(entry["cam_from_world"], f"{label}: cam_from_world")
    try:
        return Camera(
            name=name,
            width=_whole(entry["width"], f"{label}: width"),
            height=_whole(entry["height"], f"{label}: height"),
            fx=_number(entry["fx"], f"{label}: fx"),
            fy=_number(entry["fy"], f"{label}: fy"),
            cx=_number(entry["cx"], f"{label}: cx"),
            cy=_number(entry["cy"], f"{label}: cy"),
            distortion=tuple(_number(coefficients.get(k, 0.0), f"{label}: {k}") for k in COEFFICIENTS[lens]),
            cam_from_world=pose,
            lens=lens,
        )
    except CalibrationError as error:
        raise CalibrationError(f"{where}: {error.what}", why=error.why, fix=error.fix) from error


def _robot(entry: Any, label: str) -> RobotEntry:
    entry = _mapping(entry, label, ROBOT_KEYS)
    pose = entry.get("world_from_base")
    if pose is not None:
        pose = _matrix(pose, f"{label}: world_from_base")
        if not is_rigid(pose):
            raise CalibrationError(f"{label}: world_from_base is not a rotation and a translation")
    log, base = entry.get("joint_log"), entry.get("base_body")
    if base is not None and not isinstance(base, str):
        raise CalibrationError(f"{label}: base_body is {base!r}", why="it must be the name of a body")
    return RobotEntry(
        file=_relative(entry.get("file"), f"{label}: file"),
        format=_choice(str(entry.get("format", "")).upper(), ("MJCF", "URDF"), f"{label}: format"),
        base_body=base,
        joint_log=None if log is None else _relative(log, f"{label}: joint_log"),
        world_from_base=pose,
    )


def _check_name(name: object, where: str = "") -> None:
    """A camera's name becomes a folder: it must be one harmless path component."""
    prefix = f"{where}: " if where else ""
    if not isinstance(name, str) or not 0 < len(name) <= 100:
        raise CalibrationError(f"{prefix}the camera name {str(name)[:40]!r}", why="1 to 100 characters are accepted")
    if name.startswith(".") or any(c in '/\\:*?"<>|' or ord(c) < 32 for c in name):
        raise CalibrationError(f"{prefix}the camera name {name!r}", why="it must be usable as a folder's name")


def _relative(value: Any, label: str) -> str:
    path = PurePosixPath(value) if isinstance(value, str) and value else None
    if (
        path is None
        or path.is_absolute()
        or ".." in path.parts
        or "\\" in str(path)
        or ":" in str(path)
        or "\0" in value
    ):
        raise CalibrationError(f"{label} is {value!r}", why="it must be a path inside the folder of the rig file")
    return str(path)


def _mapping(value: Any, label: str, known: set[str] | None = None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise CalibrationError(f"{label} is missing or not a JSON object")
    if known is not None:
        for key in value:
            if key not in known:
                raise CalibrationError(f"{label}: unknown field '{key}'", fix=did_you_mean(str(key), known))
    return value


def _number(value: Any, label: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise CalibrationError(f"{label} is {value!r}", why="a finite number is needed")
    return float(value)


def _whole(value: Any, label: str) -> int:
    if not _number(value, label).is_integer():
        raise CalibrationError(f"{label} is {value!r}", why="a whole number is needed")
    return int(value)


def _matrix(value: Any, label: str) -> np.ndarray:
    rows = value if isinstance(value, (list, tuple)) else []
    if len(rows) != 4 or any(not isinstance(row, (list, tuple)) or len(row) != 4 for row in rows):
        raise CalibrationError(f"{label} is not a 4x4 matrix", fix="give four rows of four numbers")
    return np.array([[_number(x, label) for x in row] for row in rows])


def _choice(value: Any, allowed: tuple[str, ...], label: str) -> str:
    if value not in allowed:
        raise CalibrationError(f"{label} is {value!r}", why=f"accepted are {', '.join(allowed)}")
    return str(value)
