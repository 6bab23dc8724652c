"""`recon build`: videos and a calibration in, a published scene out. A generator of events, stage by stage.

    capture -> frames (undistorted, on disk) -> plates -> points -> static fit -> moving points -> joint fit -> scene

Everything on the way lies in a work folder beside the scene; running the same build again continues from there.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from recon.calibrate.points import initial_points
from recon.calibrate.rig import find_calibration, load_rig
from recon.capture.check import check_capture
from recon.capture.session import Capture, open_capture
from recon.capture.store import FrameStore, build_store, fingerprint, open_store
from recon.config import BuildConfig
from recon.core.config import to_dict
from recon.core.device import resolve_device, set_strict_precision
from recon.core.errors import CalibrationError, InputError, UsageError
from recon.core.events import Artifact, Event, Message, StageFinished, StageStarted
from recon.core.files import locked, read_json, write_json
from recon.core.seeding import numpy_generator
from recon.fit.colour import ColourModel
from recon.fit.data import StoredFrames
from recon.fit.fit import Fit, Stage
from recon.fit.hull import search_volume
from recon.fit.model import Model
from recon.fit.moving import moving_points
from recon.fit.plate import Plate, make_plate
from recon.fit.sampler import JointSampler, StaticSampler
from recon.fit.seed import residual_gaussians, scene_extent, static_gaussians
from recon.fit.settings import FitSettings
from recon.geometry.camera import Camera
from recon.geometry.rig import Rig
from recon.scene.folder import save_scene
from recon.scene.gaussians import Gaussians
from recon.scene.scene import Scene

HULL_CELLS = 256  # along the longest side of the searched volume
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
    out: Path
    work: Path


def default_out(videos: Path) -> Path:
    """scenes/<name of the videos' parent folder>."""
    return Path("scenes") / videos.resolve().parent.name


def open_inputs(config: BuildConfig) -> Inputs:
    """Read calibration and recordings; every refusal of bad input that needs no decoding happens here."""
    if not config.videos.is_dir():
        raise InputError(f"{config.videos} is not a folder", why="--videos takes a folder of videos or picture folders")
    paths = list(config.rig) or find_calibration(config.videos)
    rig = load_rig(paths)
    scene_from_rig = np.eye(4)
    if config.up != "rig":
        scene_from_rig[:3, :3] = UP_ROTATIONS[config.up]
    cams = [name.strip() for name in config.cams.split(",") if name.strip()] or None
    capture = open_capture(config.videos, rig, cams, fps=config.fps, masks=config.masks)
    out = config.out or default_out(config.videos)
    placed = rig.transformed(scene_from_rig)
    cameras = {name: placed.cameras[name] for name in capture.cameras}
    up = "z" if config.up != "rig" or rig.world_up == "z" else "unknown"
    return Inputs(rig, cameras, up, capture, scene_from_rig, out, out.parent / f".{out.name}.work")


def build(config: BuildConfig) -> Iterator[Event]:
    """Run or resume a build; yields events, the last one the scene's `Artifact`."""
    started = time.monotonic()
    device = resolve_device(config.device)
    set_strict_precision()
    inputs = open_inputs(config)
    yield from inputs.capture.messages
    settings = replace(config.fit, seed=config.seed)
    key = build_key(inputs, settings)
    if _already_built(inputs.out, key, config.overwrite):
        yield Message("info", f"{inputs.out} is up to date: built from the same recordings with the same settings")
        yield Artifact("scene", inputs.out)
        return
    inputs.work.mkdir(parents=True, exist_ok=True)
    with locked(inputs.work):
        yield from _prepare_work(inputs.work, key)
        yield from _check(inputs.capture)
        store = yield from _open_frames(inputs)
        frames = StoredFrames(store)
        model, colour, plates = yield from _fit(frames, settings, inputs.work, device, config.backend)
        yield StageStarted("publish")
        scene = assemble(inputs, frames, model, colour, key)
        save_scene(scene, inputs.out)
        yield StageFinished("publish", 0.0)
        store.close()
        if not config.keep_work:
            shutil.rmtree(inputs.work)
    yield StageFinished("build", time.monotonic() - started, {"gaussians": float(len(scene.gaussians))})
    yield Artifact("scene", inputs.out)


def build_key(inputs: Inputs, settings: FitSettings) -> str:
    """Hash of everything the result depends on: recordings, cameras, settings."""
    parts = [fingerprint(inputs.capture, inputs.cameras, 1), to_dict(settings), inputs.scene_from_rig.tolist()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


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
            f"{out} was built from other recordings or settings", why="it would be replaced", fix="pass --overwrite or another --out"
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


def _check(capture: Capture) -> Iterator[Event]:
    yield StageStarted("check")
    started = time.monotonic()
    findings = check_capture(capture)
    for finding in findings:
        yield Message(finding.level, str(finding))
    yield StageFinished("check", time.monotonic() - started)
    hard = [finding for finding in findings if finding.level == "error"]
    if hard:
        raise InputError(str(hard[0]), why=f"{len(hard)} problem(s) found in the recordings before the long work")


def _open_frames(inputs: Inputs) -> Iterator[Event]:
    folder = inputs.work / "frames"
    store = open_store(folder, inputs.capture, inputs.cameras)
    if store is None:
        yield from build_store(folder, inputs.capture, inputs.cameras)
        store = open_store(folder, inputs.capture, inputs.cameras)
    assert store is not None
    return store


def _fit(
    frames: StoredFrames, settings: FitSettings, work: Path, device: torch.device, backend: str
) -> Iterator[Event]:
    """Plates, points, static fit, moving points, joint fit -> (model, colour, plates)."""
    count = len(frames.cameras)
    started = time.monotonic()
    yield StageStarted("plates", count)
    plates: list[Plate] = [make_plate(frames, camera) for camera in range(count)]
    yield StageFinished("plates", time.monotonic() - started)

    started = time.monotonic()
    yield StageStarted("points")
    points, colours = initial_points(plates_as_uint8(plates), frames.cameras, [p.weight > 0 for p in plates], seed=settings.seed)
    yield StageFinished("points", time.monotonic() - started, {"points": float(len(points))})
    extent = scene_extent(frames.cameras)
    rng = numpy_generator(settings.seed, 0, "seed static")
    table = static_gaussians(points, colours / 255.0, frames.cameras, settings.budget, settings.sh_degree, rng)
    colour = ColourModel(frames.names, device)
    model = Model.from_table(table.to(device))
    sampler = StaticSampler(
        frames.cameras, plates, settings.seed, settings.patch, int(settings.coarse_share * settings.iterations_static)
    )
    stage = Stage("static", settings.iterations_static, 0, (1.0, 0.1))
    fit = Fit(model, sampler, colour, settings, stage, extent=extent, device=device, backend=backend)
    yield from fit.run(work / "static")
    if settings.iterations_joint == 0:
        return model, colour, plates

    started = time.monotonic()
    yield StageStarted("moving")
    volume = search_volume(frames.cameras, points)
    cell = float((volume.high - volume.low).max()) / HULL_CELLS
    moving = moving_points(frames, plates, volume, cell, settings.keyframe_gap_s)
    rng = numpy_generator(settings.seed, 0, "seed residual")
    residual = residual_gaussians(moving, settings.budget_residual, settings.sh_degree, rng)
    yield StageFinished("moving", time.monotonic() - started, {"points": float(len(moving.positions))})
    model = Model.from_table(Gaussians.concat([model.to_table(), residual.to(device)]))
    joint = JointSampler(
        frames, plates, settings.seed, settings.patch, settings.foreground_share, settings.foreground_weight
    )
    stage = Stage("joint", settings.iterations_joint, settings.iterations_static, (0.1, 0.01))
    fit = Fit(model, joint, colour, settings, stage, extent=extent, device=device, backend=backend)
    yield from fit.run(work / "joint")
    return model, colour, plates


def plates_as_uint8(plates: list[Plate]) -> list[np.ndarray]:
    """The plates' pictures as uint8 [H, W, 3]."""
    return [(plate.picture * 255.0).round().astype(np.uint8) for plate in plates]


def assemble(inputs: Inputs, frames: StoredFrames, model: Model, colour: ColourModel, key: str) -> Scene:
    """The scene of a finished fit; rows that never show are dropped."""
    table = model.to_table().to("cpu")
    shown = torch.sigmoid(table.logit_opacities) >= 1.0 / 255.0
    start = min(float(t[0]) for t in frames.times)
    end = max(float(t[-1]) for t in frames.times)
    return Scene(
        gaussians=table.select(shown),
        bodies=[],
        rig=inputs.rig,
        time_range=(start, end),
        scene_from_rig=inputs.scene_from_rig,
        up=inputs.up,
        metric=inputs.rig.units == "metres",
        colour={name: (m.numpy(), b.numpy()) for name, (m, b) in colour.table().items()},
        provenance={"key": key},
        frame_times={name: [float(t) for t in times] for name, times in zip(frames.names, frames.times)},
    )
