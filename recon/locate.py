"""The stages of a build that find out when and where the robot is: the log's clock, its base, its joints' zeros."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace

import cv2
import numpy as np

from recon.core.errors import InputError
from recon.core.events import Event, Message, StageFinished, StageStarted
from recon.fit.changes import Sighting, alike
from recon.fit.clock import ClockOffset, find_clock_offset
from recon.fit.data import StoredFrames
from recon.fit.plate import make_plate
from recon.fit.robot import KnownRobot, RobotFrames
from recon.fit.stance import BaseFit, RobotView, find_base
from recon.fit.whereabouts import find_whereabouts, spread_views
from recon.geometry.pose import angle_between

SEARCH_CAMERAS, SEARCH_MOMENTS, SEARCH_WIDTH = 5, 12, 320  # of the search without a given base; pixels
LEAST_SCORE = 0.15  # share of what changes that the robot explains: other things move too
VIEWS = 4  # frames per camera in which the base is looked for
PLATE_FRAMES = 15  # of the still picture it stands out from
SEEN = 0.2  # weight of a plate's pixel that is known well enough
FAR_M, FAR_RAD = 0.01, np.radians(1.0)  # a base that was this far off spoilt the clock too


def locate_robot(
    stored: StoredFrames, robot: KnownRobot, refine: bool, level: bool = False
) -> Generator[Event, None, RobotFrames]:
    """The frames with the robot's silhouettes, its clock, base and joints set right by how it shows in the pictures.

    level: z is up and the table at z = 0, where a base that nobody has measured is looked for.
    """
    if robot.sought:
        robot = yield from _search_base(stored, robot, level)
        refine = True
    offset = yield from _find_clock(stored, robot)
    placed = robot
    if refine:
        found = yield from _find_base(RobotFrames(stored, robot.shifted(offset.seconds), offset.lags))
        if found is not None:
            placed = robot.placed(found.world_from_base, found.joint_offsets)
            if _far(robot.world_from_base, found.world_from_base):
                offset = yield from _find_clock(stored, placed)
    frames = RobotFrames(stored, placed.shifted(offset.seconds), offset.lags)
    yield from frames.draw_all()
    return frames


def _search_base(stored: StoredFrames, robot: KnownRobot, level: bool) -> Generator[Event, None, KnownRobot]:
    """The robot where it explains best what changes in the pictures; InputError when nothing does."""
    yield StageStarted("whereabouts")
    started = time.monotonic()
    found, _ = find_whereabouts(robot.model, alike(sightings_of(stored, robot)), level)
    metrics = {"explained": found.score, "elsewhere": found.second}
    yield StageFinished("whereabouts", time.monotonic() - started, metrics)
    if found.score < LEAST_SCORE:
        raise InputError(
            "the robot is not found in the recordings",
            why=f"the best place for its base explains {100 * found.score:.0f} % of what changes",
            fix="measure the base roughly: world_from_base in the `robot` entry of the calibration; or --robot none",
        )
    x, y, z = found.world_from_base[:3, 3]
    yield Message("info", f"the robot's base was found at ({x:.2f}, {y:.2f}, {z:.2f}) m; no one had said where it is")
    return robot.placed(found.world_from_base, {})


def sightings_of(stored: StoredFrames, robot: KnownRobot) -> list[Sighting]:
    """Small pictures of a few cameras at a few moments, with the joint positions of the log's own clock."""
    first, last = robot.joints.times[[0, -1]]
    count = len(stored.cameras)
    chosen = np.unique(np.linspace(0, count - 1, min(SEARCH_CAMERAS, count)).round().astype(int))
    moments: list[tuple[int, int]] = []
    known: list[Sighting] = []
    for c in chosen:
        times = stored.times[c]
        covered = np.nonzero((times >= first) & (times <= last))[0]
        camera = stored.cameras[c].scaled(min(1.0, SEARCH_WIDTH / stored.cameras[c].width))
        picked = covered[np.linspace(0, len(covered) - 1, min(SEARCH_MOMENTS, len(covered))).round().astype(int)]
        for k in np.unique(picked):
            moments.append((int(c), int(k)))
            known.append(Sighting(camera, robot.joints.at(float(times[k])), np.empty((0, 0, 3), np.float32)))
    found = []
    for index in spread_views(known):
        (c, k), sighting = moments[index], known[index]
        size = (sighting.camera.width, sighting.camera.height)
        small = cv2.resize(stored.picture(c, k), size, interpolation=cv2.INTER_AREA).astype(np.float32) / 255.0
        found.append(replace(sighting, picture=small))
    if len(found) < 2:
        raise InputError("the joint log does not cover the recordings", fix="check its clock, or --robot none")
    return found


def _find_clock(stored: StoredFrames, robot: KnownRobot) -> Generator[Event, None, ClockOffset]:
    yield StageStarted("clock")
    started = time.monotonic()
    offset = find_clock_offset(robot, stored)
    lags = {name: lag for name, lag in zip(stored.names, offset.lags, strict=True) if lag != 0.0}
    if offset.sure:
        late = "".join(f"; camera {name} lags by {1000 * lag:.0f} ms" for name, lag in lags.items())
        yield Message("info", f"the robot's clock is {1000 * offset.seconds:+.0f} ms against the cameras'{late}")
    else:
        yield Message("warning", "the pictures do not tell the robot's clock from the cameras'; taken to be the same")
    yield StageFinished("clock", time.monotonic() - started, {"offset_s": offset.seconds, "agreement": offset.score})
    return offset


def _find_base(frames: RobotFrames) -> Generator[Event, None, BaseFit | None]:
    """The base near the given one; None where the pictures do not tell, or tell of the one that was given."""
    yield StageStarted("base")
    started = time.monotonic()
    robot = frames.robot
    given = robot.world_from_base
    found = find_base(robot.model, robot_views(frames), given, robot.revolute)
    better = found is not None and found.error < found.before
    metrics: dict[str, float] = {}
    if found is None:
        yield Message("warning", "the robot's outline does not tell where its base is; used as given")
    elif better:
        millimetres, degrees = apart(given, found.world_from_base)
        metrics = {"base_mm": millimetres, "base_deg": degrees}
        metrics |= {f"{name}_deg": float(np.degrees(offset)) for name, offset in found.joint_offsets.items()}
        yield Message(
            "info",
            f"the robot's base was moved by {millimetres:.1f} mm and {degrees:.2f} degrees: its outline is "
            f"{found.error:.2f} px off instead of {found.before:.2f} px",
        )
    else:
        yield Message("info", f"the robot's base holds: its outline is {found.before:.2f} px off")
    if found is not None:
        metrics |= {"before_px": found.before, "after_px": found.error, "points": float(found.points)}
    yield StageFinished("base", time.monotonic() - started, metrics)
    return found if better else None


def robot_views(frames: RobotFrames) -> list[RobotView]:
    """A few pictures per camera, spread over what the joint log covers, against the camera's still picture."""
    first, last = frames.robot.joints.times[[0, -1]]
    views = []
    for c, camera in enumerate(frames.cameras):
        plate = make_plate(frames, c, PLATE_FRAMES)
        times = frames.times[c]
        covered = np.nonzero((times >= first) & (times <= last))[0]
        for k in np.unique(covered[np.linspace(0, len(covered) - 1, min(VIEWS, len(covered))).round().astype(int)]):
            difference = np.abs(frames.picture(c, int(k)).astype(np.float32) / 255.0 - plate.picture).max(axis=-1)
            q = frames.robot.joints.at(float(times[k]))
            views.append(RobotView(camera, q, difference, plate.weight > SEEN))
    return views


def apart(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Millimetres and degrees between two poses."""
    turn = angle_between(a[:3, :3], b[:3, :3])
    return 1000.0 * float(np.linalg.norm(b[:3, 3] - a[:3, 3])), float(np.degrees(turn))


def _far(a: np.ndarray, b: np.ndarray) -> bool:
    millimetres, degrees = apart(a, b)
    return millimetres > 1000.0 * FAR_M or degrees > np.degrees(FAR_RAD)
