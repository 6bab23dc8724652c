"""`recon export` and `recon convert`: scenes and Gaussian files to other people's formats, and what is lost said."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from recon.config import ConvertConfig, ExportConfig
from recon.core.errors import StorageError, UsageError
from recon.core.events import Artifact, Event, Message, StageFinished, StageStarted
from recon.core.files import write_bytes
from recon.dataset import LAYOUTS, export_dataset
from recon.scene.folder import find_scene, load_scene
from recon.scene.formats.axes import rotation, spelled, turned, turned_bodies
from recon.scene.formats.registry import (
    HABIT,
    Format,
    cannot_carry,
    format_of,
    named_format,
    read_splats,
)
from recon.scene.formats.splats import Splats
from recon.scene.gaussians import RESIDUAL, RIGID
from recon.scene.scene import Scene

SCENE_AXES = "rfu"  # of a scene whose up axis is known
SEQUENCE = "-sequence"  # of --to: one file per frame time


def export(config: ExportConfig) -> Iterator[Event]:
    """Write a scene as another format, after saying what that cannot carry."""
    path = find_scene(config.scene)
    scene = load_scene(path)
    if config.to in LAYOUTS:
        yield from export_dataset(scene, config.to, config.videos, config.out, config.time, config.every)
        return
    sequence = config.to.endswith(SEQUENCE)
    one = _writable(named_format(config.to.removesuffix(SEQUENCE)))
    times = _frame_times(scene) if sequence else [scene.time_range[0] if config.time is None else config.time]
    if sequence and config.time is not None:
        raise UsageError("--time with a sequence", why="a sequence holds every frame time", fix="Leave one out.")
    source = SCENE_AXES if scene.up == "z" else HABIT
    target, text = _target_axes(config.axes, one, source if scene.up == "z" else "")
    yield Message("info", f"axes: {text}")
    if scene.up != "z":
        yield Message("warning", "the scene does not know which way is up: its axes are written as they are")
        target = source
    moving = one.write_moving is not None and not sequence and config.time is None
    for lost in (*_lost_of_scene(scene, one, times, sequence, moving), *cannot_carry(one, scene.gaussians)):
        yield Message("warning", f"{one.name} cannot carry {lost}")
    started = time.monotonic()
    yield StageStarted("export", len(times))
    turn = rotation(target, source)
    frames = tuple(_frame_times(scene)) if moving and scene.frame_times else ()
    for k, t in enumerate(times):
        out = config.out / f"{k:06d}{one.suffix}" if sequence else config.out
        g = scene.gaussians if moving else scene.frozen(t)
        bodies, span = (tuple(scene.bodies), scene.time_range) if moving else ((), (t, t))
        whole = Splats(turned(g, turn), target, (), turned_bodies(bodies, turn), span, frames, scene.metric)
        _write(one, whole, out)
    if sequence:
        rows = [f"{k:06d}{one.suffix},{t!r}" for k, t in enumerate(times)]
        write_bytes(config.out / "timestamps.csv", "\n".join(["file,time_s", *rows, ""]).encode())
    yield StageFinished("export", time.monotonic() - started, {"files": float(len(times))})
    yield Artifact("splats", config.out)


def convert(config: ConvertConfig) -> Iterator[Event]:
    """A file of Gaussians as another format, after saying what that cannot carry."""
    target = _writable(named_format(config.to) if config.to else format_of(config.target))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        source, splats = read_splats(config.source)
    for text in (*(str(warning.message) for warning in caught), *splats.notes):
        yield Message("warning", text)
    axes = config.axes_in or splats.axes
    if not axes:
        axes = HABIT
        yield Message(
            "info", f"{config.source} does not state its axes: taken as {spelled(axes)}; --axes-in says others"
        )
    to, text = _target_axes(config.axes, target, axes)
    yield Message("info", f"axes: {spelled(axes)} read as {source.name}; {text}")
    g, turn = splats.gaussians, rotation(to, axes)
    for lost in (*_lost_motion(target, splats), *cannot_carry(target, g)):
        yield Message("warning", f"{target.name} cannot carry {lost}")
    if target.write_moving is None and splats.moves:
        g = splats.frozen(splats.time_range[0])
    _write(
        target,
        replace(splats, gaussians=turned(g, turn), axes=to, bodies=turned_bodies(splats.bodies, turn)),
        config.target,
    )
    yield Message("info", f"{len(g)} Gaussians of SH degree {g.degree}")
    yield Artifact("splats", config.target)


def _writable(one: Format) -> Format:
    if not one.writable:
        raise UsageError(f"{one.name} files are read, not written", fix="Choose another format with --to.")
    return one


def _target_axes(asked: str, one: Format, source: str) -> tuple[str, str]:
    """(axes to write, how to say why)."""
    if one.axes:
        if asked and asked != one.axes:
            raise UsageError(f"--axes {asked}", why=f"{one.name} files are in {spelled(one.axes)} by definition")
        return one.axes, f"written in {spelled(one.axes)}, as {one.name} prescribes"
    if asked:
        return asked, f"written in {spelled(asked)}, as asked"
    if not source:
        return HABIT, "written as the scene has them"
    if one.states_axes:
        return source, f"kept in {spelled(source)}, as the file will say"
    return source, f"kept in {spelled(source)}, which {one.name} files do not state; --axes turns them"


def _lost_motion(one: Format, splats: Splats) -> Iterator[str]:
    """What a format leaves out of the motion of other Gaussians."""
    start = splats.time_range[0]
    if one.write_moving is None and splats.moves:
        yield f"motion: frozen at {start:.3f} s"
    elif not one.holds_time and RESIDUAL in splats.gaussians.kind:
        yield f"what lives in time only: as it is at {start:.3f} s"


def _lost_of_scene(scene: Scene, one: Format, times: list[float], sequence: bool, moving: bool) -> Iterator[str]:
    """What a file of Gaussians leaves out of a scene."""
    kinds = set(scene.gaussians.kind.unique().tolist())
    if not moving:
        if kinds & {RIGID, RESIDUAL}:
            yield f"motion: {len(times)} instants, frozen" if sequence else f"motion: frozen at {times[0]:.3f} s"
        if scene.bodies:
            yield f"bodies: {', '.join(body.name for body in scene.bodies)} are part of the whole"
    elif RESIDUAL in kinds and not one.holds_time:
        yield f"what lives in time only: as it is at {scene.time_range[0]:.3f} s"
    if scene.colour:
        yield "the cameras' own colours"
    yield f"the {len(scene.rig.cameras)} cameras"
    if not (moving and scene.metric):
        yield "units" if scene.metric else "units, which the scene does not know either"


def _frame_times(scene: Scene) -> list[float]:
    """The frame times of the camera that has most."""
    times = max(scene.frame_times.values(), key=len, default=[])
    if not times:
        raise UsageError("the scene has no frame times", fix="Export one instant with --time.")
    return times


def _write(one: Format, splats: Splats, out: Path) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot write to {out.parent}", why=error.strerror or str(error)) from error
    one.save(splats, out)
