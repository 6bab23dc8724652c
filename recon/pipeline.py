"""`recon build`: videos and a calibration in, a published scene out. A generator of events, stage by stage.

    capture -> frames (undistorted, on disk) -> rig refined -> plates -> objects -> points -> static fit
            -> moving points -> joint fit -> scene

Everything on the way lies in a work folder beside the scene; running the same build again continues from there.
"""

from __future__ import annotations

import importlib.metadata
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import torch

from recon.calibrate.conventions import AS_WRITTEN
from recon.calibrate.sanity import agreement, refuse_if_contradicted, scale_warning
from recon.capture.check import check_capture, refuse_unusable
from recon.capture.store import FrameStore, build_store, open_store
from recon.config import BuildConfig
from recon.core.config import to_dict
from recon.core.device import device_notes, resolve_device, set_strict_precision
from recon.core.errors import UsageError
from recon.core.events import Artifact, Event, Message, StageFinished, StageStarted
from recon.core.files import inside, locked, read_json, write_json, writing
from recon.core.seeding import numpy_generator
from recon.draw import SceneCamera
from recon.fit.bodies import BodyMotion
from recon.fit.carve import FreeSpace, robot_depths
from recon.fit.colour import ColourModel
from recon.fit.data import Frames, StoredFrames
from recon.fit.fit import NEAR, Fit, Stage
from recon.fit.hull import search_volume
from recon.fit.links import link_bodies, link_gaussians
from recon.fit.model import Model
from recon.fit.moving import instants, moving_points
from recon.fit.outlined import OutlinedFrames
from recon.fit.plate import Plate, make_plate
from recon.fit.poses import CameraPoses
from recon.fit.robot import KnownRobot, RobotFrames
from recon.fit.sampler import JointSampler, StaticSampler
from recon.fit.seed import residual_gaussians, scene_extent, static_gaussians
from recon.fit.settings import FitSettings
from recon.geometry.pose import carried
from recon.geometry.rig import Rig
from recon.inputs import Inputs, build_key, first_pictures, open_inputs
from recon.locate import locate_robot
from recon.objects.body import FoundBody, body_gaussians, scene_body
from recon.objects.frames import BodyFrames
from recon.objects.search import find_objects
from recon.points import FirstPoints, find_points
from recon.refine import refine_rig, with_cameras
from recon.render.backends import select_name
from recon.report.write import BuildRecord, write_report
from recon.scene.folder import save_scene
from recon.scene.gaussians import Gaussians
from recon.scene.scene import Body, Scene

T = TypeVar("T")
HULL_CELLS = 256  # along the longest side of the searched volume


@dataclass
class Fitted:
    """What the fit gives."""

    frames: Frames
    model: Model
    colour: ColourModel
    near: float  # metres, of the rasteriser
    bodies: list[Body]
    robot: KnownRobot | None = None  # as it was found
    things: list[FoundBody] = field(default_factory=list)  # the objects among the bodies


@dataclass
class Log:
    """Collects what the report tells of the stages as their events pass."""

    started: float = field(default_factory=time.monotonic)
    stages: list[tuple[str, float, dict[str, float]]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def watch(self, events: Generator[Event, None, T]) -> Generator[Event, None, T]:
        """Pass events on, remembering stages and warnings."""
        while True:
            try:
                event = next(events)
            except StopIteration as stop:
                return cast(T, stop.value)
            if isinstance(event, StageFinished):
                self.stages.append((event.stage, event.seconds, dict(event.metrics)))
            elif isinstance(event, Message) and event.level != "info":
                self.findings.append(event.text)
            yield event

    def seconds_of(self, *stages: str) -> float:
        """Wall time of the named stages."""
        return sum(seconds for name, seconds, _ in self.stages if name in stages)


def build(config: BuildConfig) -> Iterator[Event]:
    """Run or resume a build; yields events, the last one the scene's `Artifact`."""
    log = Log()
    settings = replace(config.fit.checked(), seed=config.seed)
    device = resolve_device(config.device)
    select_name(config.backend, device, torch.float32)
    set_strict_precision()
    yield from device_notes(device)
    inputs = open_inputs(config)
    yield from inputs.capture.messages
    yield from inputs.notes
    key = build_key(inputs, settings)
    if _already_built(inputs.out, key, config.overwrite):
        yield Message("info", f"{inputs.out} is up to date: built from the same recordings with the same settings")
        yield Artifact("scene", inputs.out)
        return
    _check_writable(inputs.out)
    yield from log.watch(_check(inputs))
    yield from log.watch(_check_calibration(inputs, believed=config.rig_poses != "auto"))
    with writing(inputs.work):
        inputs.work.mkdir(parents=True, exist_ok=True)
    with locked(inputs.work):
        yield from _prepare_work(inputs.work, key)
        store = yield from log.watch(_open_frames(inputs))
        frames = StoredFrames(store)
        if settings.refine_rig:
            inputs = yield from log.watch(refine_rig(frames, inputs))
        before = dict(zip(frames.names, frames.cameras, strict=True))
        fitted = yield from log.watch(_fit(frames, inputs, settings, device, config.backend))
        inputs = with_cameras(inputs, before, dict(zip(frames.names, frames.cameras, strict=True)))
        yield StageStarted("publish")
        scene = assemble(inputs, fitted, key)
        extras = partial(_write_extras, config, inputs, fitted, scene, settings, log, device)
        save_scene(scene, inputs.out, extras=extras)
        yield StageFinished("publish", 0.0)
        store.close()
        if not config.keep_work:
            shutil.rmtree(inputs.work)
    yield StageFinished("build", time.monotonic() - log.started, {"gaussians": float(len(scene.gaussians))})
    yield Artifact("scene", inputs.out)


def _write_extras(
    config: BuildConfig, inputs: Inputs, fitted: Fitted, scene: Scene, settings: FitSettings, log: Log,
    device: torch.device, stage: Path,
) -> None:  # fmt: skip
    """Into the scene's folder: the robot's files, so that the folder stands alone, and the report."""
    if inputs.robot is not None:
        copy_robot(inputs.robot, stage)
    drawers = [SceneCamera(scene.to(device), camera, device, config.backend) for camera in fitted.frames.cameras]
    iterations = settings.iterations_static + settings.iterations_joint
    record = BuildRecord(
        config=to_dict(settings) | {"device": str(device), "backend": config.backend},
        stages=log.stages,
        iterations=iterations,
        ms_per_iteration=1000.0 * log.seconds_of("static", "joint") / max(1, iterations),
        seconds=time.monotonic() - log.started,
        peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        seed=settings.seed,
        findings=log.findings,
        versions=versions(),
    )
    write_report(
        stage / "report", scene, fitted.frames, record, device=device, draw=lambda camera, t: drawers[camera].draw(t)[0]
    )


def copy_robot(robot: KnownRobot, stage: Path) -> None:
    """The robot's description, meshes and joint log, at the same relative paths as in the capture."""
    names = {robot.entry.file, robot.entry.joint_log} - {None}
    for name in names:
        target = inside(stage, str(name))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(robot.root / str(name), target)
    for folder in ("meshes", "assets"):
        source = (robot.root / robot.entry.file).parent / folder
        if source.is_dir():
            shutil.copytree(source, (stage / robot.entry.file).parent / folder, dirs_exist_ok=True, symlinks=False)


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    found = {"python": sys.version.split()[0]}
    for name in ("torch", "numpy", "opencv-python", "av", "scipy"):
        found[name] = importlib.metadata.version(name)
    return found


def _already_built(out: Path, key: str, overwrite: bool) -> bool:
    if not out.exists():
        return False
    header = out / "scene.json"
    if not header.is_file():
        raise UsageError(f"{out} exists and is not a scene", why="it would be replaced", fix="choose another --out")
    built = read_json(header).get("provenance", {}).get("key")
    if built == key:
        return True
    if not overwrite:
        raise UsageError(
            f"{out} was built from other recordings or settings",
            why="it would be replaced",
            fix="pass --overwrite or another --out",
        )
    return False


def _prepare_work(work: Path, key: str) -> Iterator[Event]:
    """Keep what an interrupted run of the same build left; throw away anything else."""
    marker = work / "build.json"
    if marker.is_file() and read_json(marker).get("key") == key:
        yield Message("info", f"continuing the build in {work}")
        return
    for entry in work.iterdir():
        if entry.name.startswith("."):  # the lock
            continue
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    write_json(marker, {"key": key})


def _check_writable(out: Path) -> None:
    """StorageError before the long work when the scene's folder could not be made."""
    parent = out.resolve().parent
    with writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix=f".{out.name}."):
            return


def _check(inputs: Inputs) -> Generator[Event, None, None]:
    yield StageStarted("check")
    started = time.monotonic()
    findings = check_capture(inputs.capture, inputs.rig)
    for finding in findings:
        yield Message("warning" if finding.level == "error" else finding.level, str(finding))
    yield StageFinished("check", time.monotonic() - started)
    refuse_unusable(findings)


def _check_calibration(inputs: Inputs, believed: bool) -> Generator[Event, None, None]:
    """Refuse poses that the pictures clearly contradict, unless they are to be believed; warn of an odd scale."""
    yield StageStarted("calibration")
    started = time.monotonic()
    warning = scale_warning(inputs.cameras, inputs.calibration)
    if warning is not None:
        yield Message("warning", warning)
    found = agreement(
        {name: inputs.rig.cameras[name] for name in inputs.capture.cameras}, first_pictures(inputs.capture)
    )
    metrics = {"matches": float(found.matches)}
    if found.sure:
        metrics |= {"agree": found.share(AS_WRITTEN), "error_px": found.error}
    yield StageFinished("calibration", time.monotonic() - started, metrics)
    if not believed:
        refuse_if_contradicted(found, inputs.calibration)


def _open_frames(inputs: Inputs) -> Generator[Event, None, FrameStore]:
    folder = inputs.work / "frames"
    store = open_store(folder, inputs.capture, inputs.cameras)
    if store is None:
        yield from build_store(folder, inputs.capture, inputs.cameras)
        store = open_store(folder, inputs.capture, inputs.cameras)
    assert store is not None
    return store


def _fit(
    stored: StoredFrames, inputs: Inputs, settings: FitSettings, device: torch.device, backend: str
) -> Generator[Event, None, Fitted]:
    """Silhouettes, plates, objects, points, static fit, moving points, joint fit."""
    work = inputs.work
    frames: Frames = stored
    with_robot: RobotFrames | None = None
    if inputs.robot is not None:
        with_robot = yield from locate_robot(stored, inputs.robot, settings.refine_robot, inputs.up == "z")
        frames = with_robot
    robot = None if with_robot is None else with_robot.robot
    count = len(frames.cameras)
    started = time.monotonic()
    yield StageStarted("plates", count)
    plates: list[Plate] = [make_plate(frames, camera) for camera in range(count)]
    yield StageFinished("plates", time.monotonic() - started)
    things: list[FoundBody] = []
    if (settings.bodies or inputs.hints) and settings.iterations_joint > 0:
        frames, plates, things = yield from _objects(frames, plates, with_robot, inputs)

    first = yield from find_points(frames, plates, settings.budget, inputs.up == "z")
    priors, points = first.priors, first.fused.xyz
    extent = scene_extent(frames.cameras)
    passed = [] if robot is None else robot_depths(robot, frames.cameras, instants(frames, settings.keyframe_gap_s))
    free_space = FreeSpace(priors, NEAR * extent, passed)
    colour = ColourModel(frames.names, device)
    model, sampler = _still(frames, plates, first, settings, device)
    stage = Stage("static", settings.iterations_static, 0, (1.0, 0.1), settings.dropout, free=settings.budget)
    poses = CameraPoses(frames.cameras) if settings.refine_rig else None
    fit = Fit(
        model, sampler, colour, settings, stage, extent=extent, device=device, backend=backend, free_space=free_space,
        poses=poses,
    )  # fmt: skip
    yield from fit.run(work / "static")
    if poses is not None:
        # in place: all views of the frames share the list
        frames.cameras[:] = [poses.moved(index, camera) for index, camera in enumerate(frames.cameras)]
        yield Message("info", poses.told(frames.names))
    if settings.iterations_joint == 0:
        return Fitted(frames, model, colour, NEAR * extent, [], robot)

    started = time.monotonic()
    yield StageStarted("moving")
    volume = search_volume(frames.cameras, points)
    cell = float((volume.high - volume.low).max()) / HULL_CELLS
    bodies, solid, rigid, known = _rigid(frames, with_robot, things, settings)
    moving = moving_points(frames, plates, volume, cell, settings.keyframe_gap_s, known)
    rng = numpy_generator(settings.seed, 0, "seed residual")
    residual = residual_gaussians(moving, settings.budget_residual, settings.sh_degree, rng)
    yield StageFinished("moving", time.monotonic() - started, {"points": float(len(moving.positions))})
    every = Gaussians.concat([model.to_table(), rigid.to(device), residual.to(device)])
    model = Model.from_table(every, BodyMotion([body.track for body in bodies if body.track is not None]))
    joint = JointSampler(
        frames, plates, priors, settings.seed, settings.patch, settings.foreground_share, settings.foreground_weight
    )
    stage = Stage(
        "joint", settings.iterations_joint, settings.iterations_static, (0.1, 0.01), settles=True, free=settings.budget,
        solid=solid,
    )  # fmt: skip
    fit = Fit(
        model, joint, colour, settings, stage, extent=extent, device=device, backend=backend, free_space=free_space
    )
    yield from fit.run(work / "joint")
    return Fitted(frames, model, colour, NEAR * extent, bodies, robot, things)


def _still(
    frames: Frames, plates: list[Plate], first: FirstPoints, settings: FitSettings, device: torch.device
) -> tuple[Model, StaticSampler]:
    """First Gaussians of what does not move, and the plates they are to look like."""
    table = static_gaussians(
        first.fused.xyz, first.fused.rgb / 255.0, frames.cameras, settings.budget, settings.sh_degree,
        numpy_generator(settings.seed, 0, "seed static"), first.behind,
    )  # fmt: skip
    coarse = int(settings.coarse_share * settings.iterations_static)
    sampler = StaticSampler(frames.cameras, plates, first.priors, settings.seed, settings.patch, coarse)
    return Model.from_table(table.to(device)), sampler


def _rigid(
    frames: Frames, robot: RobotFrames | None, things: list[FoundBody], settings: FitSettings
) -> tuple[list[Body], int, Gaussians, OutlinedFrames | None]:
    """(bodies, how many of them, the first, are links; their Gaussians; frames that know where they show)."""
    bodies: list[Body] = []
    tables = [Gaussians.empty(settings.sh_degree)]
    if robot is not None and settings.budget_robot > 0:
        bodies = link_bodies(robot.robot, *_time_range(frames))
        tables.append(link_gaussians(robot.robot, bodies, settings.budget_robot, settings.sh_degree, settings.seed))
    links = len(bodies)
    known: OutlinedFrames | None = robot if bodies else None
    if things:
        known = BodyFrames(frames, robot if bodies else None, things)
    for number, thing in enumerate(things, links + 1):
        tables.append(body_gaussians(thing, number, settings.sh_degree))
        bodies.append(scene_body(thing, number))
    return bodies, links, Gaussians.concat(tables), known


def _objects(
    frames: Frames, plates: list[Plate], robot: RobotFrames | None, inputs: Inputs
) -> Generator[Event, None, tuple[Frames, list[Plate], list[FoundBody]]]:
    """(frames that know the bodies, plates with nothing of them, the bodies)."""
    near = NEAR * scene_extent(frames.cameras)
    found = yield from find_objects(frames, plates, robot, near, inputs.hints, inputs.up == "z")
    if not found:
        return frames, plates, found
    known = BodyFrames(frames, robot, found)
    return known, [make_plate(known, camera) for camera in range(len(known.cameras))], found


def _time_range(frames: Frames) -> tuple[float, float]:
    """First and last frame time, seconds."""
    return min(float(t[0]) for t in frames.times), max(float(t[-1]) for t in frames.times)


def rig_with(inputs: Inputs, robot: KnownRobot | None) -> Rig:
    """The rig, its robot where it was found."""
    if robot is None or inputs.rig.robot is None:
        return inputs.rig
    base = carried(np.linalg.inv(inputs.scene_from_rig), robot.world_from_base)
    return replace(inputs.rig, robot=replace(inputs.rig.robot, world_from_base=base))


def assemble(inputs: Inputs, fitted: Fitted, key: str) -> Scene:
    """The scene of a finished fit; rows that never show are dropped."""
    frames, table = fitted.frames, fitted.model.to_table().to("cpu")
    shown = torch.sigmoid(table.logit_opacities) >= 1.0 / 255.0
    return Scene(
        gaussians=table.select(shown),
        bodies=fitted.bodies,
        rig=rig_with(inputs, fitted.robot),
        time_range=_time_range(frames),
        scene_from_rig=inputs.scene_from_rig,
        up=inputs.up,
        metric=inputs.metric,
        colour={name: (m.numpy(), b.numpy()) for name, (m, b) in fitted.colour.table().items()},
        vignetting=dict(zip(fitted.colour.cameras, fitted.colour.vignetting.tolist(), strict=True)),
        provenance={
            "key": key,
            "near": fitted.near,
            "scale": "metres" if inputs.metric else "unknown",
            "rig_poses": inputs.poses,
            "objects": {thing.name: thing.summary() for thing in fitted.things},
        },
        frame_times={name: [float(t) for t in times] for name, times in zip(frames.names, frames.times, strict=True)},
    )
