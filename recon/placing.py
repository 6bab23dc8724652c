"""`recon locate`: where a robot stands before a fixed camera, from pictures, intrinsics and joint positions alone."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from recon.calibrate.readers.draft import from_integer_centres
from recon.calibrate.rig import load_calibration
from recon.capture.images import ImageFolder
from recon.config import LocateConfig
from recon.core.errors import InputError, UsageError
from recon.core.events import Artifact, Event, Message, StageFinished, StageStarted
from recon.core.files import write_json, writing
from recon.core.seeding import numpy_generator
from recon.fit.changes import Evidence, Sighting, alike
from recon.fit.late import Alternatives
from recon.fit.posture import Posture, refine_posture
from recon.fit.uncovered import reposed, robot_views
from recon.fit.whereabouts import ALL_FREE, Body, find_whereabouts, hone
from recon.geometry.camera import Camera, undistort_map
from recon.robot.description import RobotModel, load_robot
from recon.robot.poses import read_positions
from recon.robot.silhouettes import silhouette

MAX_PICTURES = 24  # looked at, spread over those that there are
LEAST_SCORE = 0.2  # share of the changes that a robot found explains
MAX_ERROR_PX, LEAST_SHARE = 2.0, 0.5  # of the outline: its distance, and how much of it shows
ROUNDS = ((14, (20.0, 20.0)), (10, (12.0, 10.0)), (6, (8.0, 6.0)), (4, (5.0, 5.0)))  # (margin px, bands px)
TURNS_LATE = 4  # joint positions and base in turn
LATE_GAIN = 1.03  # of the score: less is no reason to doubt the log
FORMAT, VERSION = "recon-robot-pose", 1


@dataclass(frozen=True, eq=False)
class Placed:
    """posture: as found. score: share of the changes it explains. late: per picture whether its joints were moved."""

    posture: Posture
    score: float
    late: list[bool]


def place(config: LocateConfig) -> Iterator[Event]:
    """Find the robot, write pose.json, masks and overlays; yields events."""
    started = time.monotonic()
    yield StageStarted("locate")
    model = load_robot(config.robot, base_body=config.base_body or None)
    if not config.images.is_dir():
        raise InputError(f"{config.images} is not a folder", why="--images takes a folder of one camera's pictures")
    folder = ImageFolder(config.images)
    camera = read_camera(config.intrinsics, folder.width, folder.height)
    names = [name.strip() for name in config.joint_names.split(",") if name.strip()]
    qs = read_positions(config.joints, model, len(folder), names)
    chosen = np.unique(np.linspace(0, len(folder) - 1, min(MAX_PICTURES, len(folder))).round().astype(int))
    if len(chosen) < 2:
        raise InputError(
            f"{config.images} holds one picture", why="the robot is told from what stands still by what changes",
            fix="give pictures of several postures, taken by a camera that does not move",
        )  # fmt: skip
    ideal, pictures = _ideal(camera, [folder.read(int(k)) for k in chosen])
    sightings = [Sighting(ideal, qs[k], picture) for k, picture in zip(chosen, pictures, strict=True)]
    placed = yield from place_robot(model, alike(sightings), config.seed, config.late == "auto")
    files = [folder.files[k] for k in chosen]
    write_places(config.out, model, camera, files, placed, [qs[k] for k in chosen])
    found = placed.posture
    yield StageFinished("locate", time.monotonic() - started, {"outline_px": found.error, "score": placed.score})
    yield Artifact("pose", config.out / "pose.json")


def place_robot(
    model: RobotModel, sightings: Sequence[Sighting], seed: int, may_be_late: bool
) -> Generator[Event, None, Placed]:
    """Search, doubt about the joint positions, outlines; InputError when the robot is not found in the pictures."""
    where, evidence = find_whereabouts(model, sightings, plane=False, seed=seed)
    base, score = where.world_from_base, where.score
    qs, late = [dict(s.q) for s in sightings], [False] * len(sightings)
    if may_be_late and len(sightings) > 2:
        moved, better, taken, chosen = _doubted(model, sightings, evidence, base, seed)
        if better > LATE_GAIN * score:
            base, score, qs, late = moved, better, taken, [k > 0 for k in chosen]
    if score < LEAST_SCORE:
        raise InputError(
            "the robot is not found in the pictures",
            why=f"the best place explains {100 * score:.0f} % of what changes between them",
            fix="Check that it is in view and moves, that the camera does not, and --robot, --joints, --intrinsics.",
        )
    posture: Posture | None = None
    for margin, bands in ROUNDS:
        views = robot_views(model, reposed(sightings, qs), base, margin)
        posture = refine_posture(model, views, base, any(late), bands)
        if posture is None:
            break
        base, qs = posture.world_from_base, posture.qs
    if posture is None or posture.error > MAX_ERROR_PX or posture.share < LEAST_SHARE:
        off = "does not show" if posture is None else f"is {posture.error:.1f} px off"
        raise InputError(
            f"the robot's outline {off} where the pictures change",
            fix="Check --robot (the right hand?), --joints and --intrinsics.",
        )
    if any(late):
        yield Message("warning", _told(late, len(sightings)))
    yield Message("info", f"the robot's outline is {posture.error:.2f} px off; {100 * posture.share:.0f} % of it shows")
    return Placed(posture, score, late)


def _doubted(
    model: RobotModel, sightings: Sequence[Sighting], evidence: Evidence, base: np.ndarray, seed: int
) -> tuple[np.ndarray, float, list[dict[str, float]], list[int]]:
    """(base, score, joint positions, alternatives) when pictures may have been taken at other moments than logged."""
    alternatives = Alternatives(model, [s.q for s in sightings])
    chosen, rng = [0] * len(sightings), numpy_generator(seed, 1, "late")
    qs, points = alternatives.taken(chosen)
    score = 0.0
    for turn in range(TURNS_LATE):
        chosen = alternatives.choose(evidence, chosen, base)
        qs, points = alternatives.taken(chosen)
        spread = (0.04 if turn < TURNS_LATE // 2 else 0.02) * ALL_FREE
        base, score = hone(evidence.with_points(points), base, spread, Body.around(points), rng, rounds=8)
    return base, score, qs, chosen


def _told(late: Sequence[bool], count: int) -> str:
    pictures = ", ".join(str(k) for k, moved in enumerate(late) if moved)
    return (
        f"the joint positions do not fit {sum(late)} of {count} pictures (numbers {pictures}): taken while the robot "
        "moved, or logged at another moment. Theirs were found from the pictures; --late off believes the log"
    )


def read_camera(path: Path, width: int, height: int) -> Camera:
    """A camera at the origin from a text file of K (3 x 3, OpenCV's pixels) or a calibration with one camera."""
    try:
        words = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"intrinsics {path} cannot be read", why=str(error)) from error
    if len(words) != 9:
        cameras = load_calibration([path]).rig.cameras
        if len(cameras) != 1:
            raise UsageError(f"{path} holds {len(cameras)} cameras", fix="give the calibration of this one camera")
        camera = next(iter(cameras.values())).with_pose(np.eye(4))
        if (camera.width, camera.height) != (width, height):
            raise InputError(
                f"{path} is for pictures of {camera.width}x{camera.height}", why=f"these are {width}x{height}"
            )
        return camera
    try:
        k = from_integer_centres(np.array([float(word) for word in words]).reshape(3, 3))
    except ValueError as error:
        raise InputError(f"intrinsics {path} are not numbers", why=str(error)) from error
    if not np.isfinite(k).all() or abs(k[2] - [0, 0, 1]).max() > 1e-6 or not (0 < k[0, 2] < width < 20 * k[0, 0]):
        raise InputError(f"intrinsics {path} do not fit pictures of {width}x{height}", fix="give fx 0 cx 0 fy cy 0 0 1")
    return Camera("camera", width, height, k[0, 0], k[1, 1], k[0, 2], k[1, 2])


def _ideal(camera: Camera, pictures: Sequence[np.ndarray]) -> tuple[Camera, list[np.ndarray]]:
    """The camera without its lens, and what it would have seen, float32."""
    floats = [picture.astype(np.float32) / 255.0 for picture in pictures]
    if not camera.distorted:
        return camera, floats
    ideal = camera.pinhole()
    where = undistort_map(camera, ideal) - np.float32(0.5)
    return ideal, [cv2.remap(p, where, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE) for p in floats]


def write_places(
    out: Path, model: RobotModel, camera: Camera, files: Sequence[Path], placed: Placed,
    logged: Sequence[dict[str, float]],
) -> None:  # fmt: skip
    """pose.json, and per picture a mask of the robot and the picture with its outline."""
    found = placed.posture
    with writing(out):
        for folder in ("masks", "overlays"):
            (out / folder).mkdir(parents=True, exist_ok=True)
        for file, q in zip(files, found.qs, strict=True):
            mask = silhouette(model, q, camera, found.world_from_base).astype(np.uint8)
            picture = cv2.imread(str(file), cv2.IMREAD_COLOR)
            outlines, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
            cv2.drawContours(picture, outlines, -1, (0, 0, 255), 1)
            cv2.imwrite(str(out / "masks" / f"{file.stem}.png"), 255 * mask)
            cv2.imwrite(str(out / "overlays" / f"{file.stem}.png"), picture)
    pictures = [
        {"file": file.name, "late": late, "joints": q, "logged": dict(log)}
        for file, late, q, log in zip(files, placed.late, found.qs, logged, strict=True)
    ]
    data = {
        "format": FORMAT, "version": VERSION, "base_body": model.base, "cam_from_base": found.world_from_base.tolist(),
        "sigma": found.sigma.tolist(), "outline_px": found.error, "outline_share": found.share, "score": placed.score,
        "pictures": pictures,
    }  # fmt: skip
    write_json(out / "pose.json", data)
