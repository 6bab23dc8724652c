"""What a build starts from: calibration, recordings and robot, read and refused before anything is decoded."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from recon.calibrate.conventions import AS_WRITTEN, BY_NAME, INVERTED, meant
from recon.calibrate.rig import Calibration, find_calibration, load_calibration, load_rig
from recon.calibrate.sanity import Agreement, agreement
from recon.capture.session import Capture, PictureSizes, open_capture
from recon.capture.store import fingerprint
from recon.config import BuildConfig
from recon.core.config import to_dict
from recon.core.errors import CalibrationError, InputError, UsageError
from recon.core.events import Message
from recon.core.files import sha256_file
from recon.fit.robot import KnownRobot, open_robot
from recon.fit.seed import scene_extent
from recon.fit.settings import FitSettings
from recon.geometry.camera import Camera
from recon.geometry.pose import angle_between
from recon.geometry.rig import Rig, RobotEntry
from recon.objects.hints import BodyHint, read_hints

METRES = {"mm": 1e-3, "cm": 1e-2, "m": 1.0}  # of --rig-unit
NO_ROBOT = "none"  # --robot none
SAME_PLACE, SAME_TURN_DEG = 0.02, 2.0  # share of the extent; degrees: as far as two calibrations of one rig may differ
UP_ROTATIONS = {
    "z": np.eye(3),
    "-z": np.diag([1.0, -1.0, -1.0]),
    "y": np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]]),
    "-y": np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]]),
    "x": np.array([[0.0, 0, -1], [0, 1, 0], [1, 0, 0]]),
    "-x": np.array([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]]),
}


@dataclass
class Inputs:
    """What a build starts from: the rig in its own world, its cameras placed in the scene's."""

    rig: Rig
    cameras: dict[str, Camera]  # of the recordings, in the scene's world
    up: str
    capture: Capture
    scene_from_rig: np.ndarray
    robot: KnownRobot | None
    out: Path
    work: Path
    calibration: str  # its files
    poses: str  # how its poses were read: a name of --rig-poses
    metric: bool  # whether the scene's unit is the metre
    hints: list[BodyHint] = field(default_factory=list)
    notes: list[Message] = field(default_factory=list)


def default_out(videos: Path) -> Path:
    """scenes/<name of the videos' parent folder>."""
    return Path("scenes") / videos.resolve().parent.name


def open_inputs(config: BuildConfig) -> Inputs:
    """Read calibration and recordings; every refusal of bad input that needs no decoding happens here."""
    if not config.videos.is_dir():
        raise InputError(f"{config.videos} is not a folder", why="--videos takes a folder of videos or picture folders")
    paths = list(config.rig) or find_calibration(config.videos)
    calibration = load_calibration(paths, PictureSizes(config.videos))
    where = ", ".join(map(str, paths))
    scale = unit_in_metres(config.rig_unit, calibration.rig, where)
    scene_from_rig = np.eye(4)
    if config.up != "rig":
        scene_from_rig[:3, :3] = UP_ROTATIONS[config.up]
    scene_from_rig[:3, :3] *= scale
    cams = [name.strip() for name in config.cams.split(",") if name.strip()] or None
    if calibration.unsized and cams is None:
        raise InputError(
            f"{where} lists cameras without a recording: {', '.join(calibration.unsized)}",
            fix="Add the missing recordings, or choose cameras with --cams.",
        )
    capture = open_capture(config.videos, calibration.rig, cams, fps=config.fps, masks=config.masks)
    poses, notes = _poses(config.rig_poses, calibration, capture, where)
    rig = meant(calibration.rig, BY_NAME[poses])
    if calibration.renamed:
        pairs = ", ".join(f"{old} is {new}" for old, new in calibration.renamed.items())
        notes.append(Message("info", f"cameras of {where} by their recordings: {pairs}"))
    metric = config.rig_unit is not None or rig.units == "metres"
    out = config.out or default_out(config.videos)
    placed = rig.transformed(scene_from_rig)
    cameras = {name: placed.cameras[name] for name in capture.cameras}
    up = "z" if config.up != "rig" or rig.world_up == "z" else "unknown"
    found = robot_entry(config, rig, paths)
    if found is not None and config.robot is None and rig.robot is None:
        text = f"the robot is the one that {found[0] / 'rig.json'} names; --robot {NO_ROBOT} leaves it out"
        notes.append(Message("info", text))
    robot = None if found is None else open_robot(*found, scene_from_rig)
    if robot is not None and robot.sought and not metric:
        raise InputError(
            "the robot's base cannot be looked for", why=f"nothing says the unit of {where}",
            fix="give --rig-unit, or the base roughly as world_from_base in the calibration's `robot` entry",
        )  # fmt: skip
    if found is not None:
        rig = replace(rig, robot=found[1])
    work = out.parent / f".{out.name}.work"
    hints = [] if config.bodies is None else read_hints(config.bodies)
    return Inputs(rig, cameras, up, capture, scene_from_rig, robot, out, work, where, poses, metric, hints, notes)


def unit_in_metres(unit: str | float | None, rig: Rig, where: str) -> float:
    """Metres of one unit of the rig: 1 when none is given. UsageError for no length, or a rig that says its own."""
    if unit is None:
        return 1.0
    metres = METRES[unit] if isinstance(unit, str) else float(unit)
    if not 1e-6 <= metres <= 1e6:
        raise UsageError(f"--rig-unit {unit} is not a length", fix="give mm, cm, m or the metres of one unit")
    if rig.units == "metres" and metres != 1.0:
        raise UsageError(
            f"--rig-unit {unit}: {where} says its unit, and its lengths were read in metres",
            fix="leave --rig-unit out, or correct the calibration",
        )
    return metres


def first_pictures(capture: Capture) -> dict[str, np.ndarray]:
    """Each camera's first frame, uint8 [H, W, 3]."""
    return {name: stream.read(0) for name, stream in capture.cameras.items()}


def _poses(asked: str, calibration: Calibration, capture: Capture, where: str) -> tuple[str, list[Message]]:
    """(how to read the poses, a name of --rig-poses; what to tell of it). Pictures decide what a format leaves open."""
    if asked != "auto":
        return asked, []
    if not calibration.direction_open:
        return "as-written", []
    found = agreement({name: calibration.rig.cameras[name] for name in capture.cameras}, first_pictures(capture))
    if found.verdict == INVERTED:
        return "inverted", [Message("info", f"the poses in {where} lead from the camera to the world: {_fit(found)}")]
    if found.inliers[AS_WRITTEN] > found.inliers[INVERTED] and found.sure:
        return "as-written", []
    text = f"{where} does not say whether its poses lead to the camera or to the world, and the pictures do not tell"
    fix = "Taken as camera_from_world; --rig-poses inverted is the other way"
    return "as-written", [Message("warning", f"{text}: {_fit(found)}. {fix}")]


def _fit(found: Agreement) -> str:
    fit = {way: found.inliers[way] for way in (AS_WRITTEN, INVERTED)}
    return f"of {found.matches} matches {fit[INVERTED]} fit so, {fit[AS_WRITTEN]} the other way"


def robot_entry(config: BuildConfig, rig: Rig, paths: list[Path]) -> tuple[Path, RobotEntry] | None:
    """(folder, entry) of the robot: from --robot and --joints, else from the calibration or the recordings' own.

    --robot may also be a calibration file whose `robot` entry is meant.
    """
    if str(config.robot) == NO_ROBOT:
        if config.joints is not None:
            raise UsageError(f"--joints with --robot {NO_ROBOT}", fix="give one of the two")
        return None
    for file in (config.robot, config.joints):
        if file is not None and not file.is_file():
            raise InputError(f"{file}: no such file", fix="check --robot and --joints")
    if config.robot is None:
        if config.joints is not None:
            raise UsageError("--joints without a robot", fix="give --robot FILE too")
        if rig.robot is None:
            return recorded_robot(config.videos, rig, paths)
        root = next(path.resolve().parent for path in paths if load_rig([path]).robot is not None)
        return root, rig.robot
    if config.robot.suffix.lower() == ".json":
        entry = load_rig([config.robot]).robot
        if entry is None:
            raise InputError(f"{config.robot} has no `robot` entry", fix="give the robot's MJCF or URDF file")
        return config.robot.resolve().parent, entry
    files = [config.robot.resolve()] + ([config.joints.resolve()] if config.joints is not None else [])
    root = Path(os.path.commonpath([file.parent for file in files]))
    relative = [file.relative_to(root).as_posix() for file in files]
    kind = "URDF" if config.robot.suffix.lower() == ".urdf" else "MJCF"
    known = rig.robot
    base, body = (known.world_from_base, known.base_body) if known is not None else (None, None)
    return root, RobotEntry(relative[0], kind, body, relative[1] if len(relative) > 1 else None, base)


def recorded_robot(videos: Path, rig: Rig, paths: list[Path]) -> tuple[Path, RobotEntry] | None:
    """(folder, entry) of the robot that the recordings' own calibration file names, when another one was given.

    Only when that file places the same cameras where `rig` does: then both speak of one world.
    """
    try:
        found = find_calibration(videos)
    except CalibrationError:
        return None
    if len(found) != 1 or found[0].resolve() in {path.resolve() for path in paths}:
        return None
    own = load_rig(found)
    entry = own.robot
    if entry is None or entry.joint_log is None or entry.world_from_base is None or not same_world(own, rig):
        return None
    return found[0].resolve().parent, entry


def same_world(a: Rig, b: Rig) -> bool:
    """Whether two rigs place at least three cameras of the same names alike, up to errors of calibration."""
    names = sorted(a.cameras.keys() & b.cameras.keys())
    if len(names) < 3:
        return False
    size = scene_extent([a.cameras[name] for name in names])
    for name in names:
        one, two = a.cameras[name], b.cameras[name]
        turned = np.degrees(angle_between(one.cam_from_world[:3, :3], two.cam_from_world[:3, :3]))
        if np.linalg.norm(one.center - two.center) > SAME_PLACE * size or turned > SAME_TURN_DEG:
            return False
    return True


def build_key(inputs: Inputs, settings: FitSettings) -> str:
    """Hash of everything the result depends on: recordings, cameras, settings."""
    robot = None
    if inputs.robot is not None:
        files = [name for name in (inputs.robot.entry.file, inputs.robot.entry.joint_log) if name is not None]
        place = None if inputs.robot.sought else inputs.robot.world_from_base.tolist()
        robot = [place, [sha256_file(inputs.robot.root / name) for name in files]]
    hints = [[hint.name, hint.seed.tolist(), hint.time] for hint in inputs.hints]
    parts = [
        fingerprint(inputs.capture, inputs.cameras, 1), to_dict(settings), inputs.scene_from_rig.tolist(), robot, hints,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
