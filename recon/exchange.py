"""`recon export` and `recon convert`: scenes and Gaussian files to other people's formats, and what is lost said."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from recon.config import ConvertConfig, ExportConfig
from recon.core.errors import StorageError, UsageError
from recon.core.events import Artifact, Event, Message, StageFinished, StageStarted
from recon.scene.folder import find_scene, load_scene
from recon.scene.formats.axes import rotation, spelled, turned
from recon.scene.formats.registry import (
    HABIT,
    Format,
    cannot_carry,
    format_of,
    named_format,
    read_splats,
)
from recon.scene.gaussians import RESIDUAL, RIGID, Gaussians
from recon.scene.scene import Scene

SCENE_AXES = "rfu"  # of a scene whose up axis is known
SEQUENCE = "-sequence"  # of --to: one file per frame time


def export(config: ExportConfig) -> Iterator[Event]:
    """Write a scene as another format, after saying what that cannot carry."""
    path = find_scene(config.scene)
    scene = load_scene(path)
    sequence = config.to.endswith(SEQUENCE)
    one = _writable(named_format(config.to.removesuffix(SEQUENCE)))
    times = _frame_times(scene) if sequence else [scene.time_range[0] if config.time is None else config.time]
    if sequence and config.time is not None:
        raise UsageError("--time with a sequence", why="a sequence holds every frame time", fix="Leave one out.")
    source = SCENE_AXES if scene.up == "z" else HABIT
    target, text = _target_axes(config.axes, one, source if scene.up == "z" else "")
    yield Message("info", f"axes: {text}")
    for lost in (*_lost_of_scene(scene, times, sequence), *cannot_carry(one, scene.gaussians)):
        yield Message("warning", f"{one.name} cannot carry {lost}")
    if scene.up != "z":
        yield Message("warning", "the scene does not know which way is up: its axes are written as they are")
        target = source
    started = time.monotonic()
    yield StageStarted("export", len(times))
    turn = rotation(target, source)
    for k, t in enumerate(times):
        out = config.out / f"{k:06d}{one.suffix}" if sequence else config.out
        _write(one, turned(scene.frozen(t), turn), out)
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
    g = splats.gaussians
    for lost in cannot_carry(target, g):
        yield Message("warning", f"{target.name} cannot carry {lost}")
    _write(target, turned(g, rotation(to, axes)), config.target)
    yield Message("info", f"{len(g)} Gaussians of SH degree {g.degree}")
    yield Artifact("splats", config.target)


def _writable(one: Format) -> Format:
    if one.write is None:
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
    return source, f"kept in {spelled(source)}, which {one.name} files do not state; --axes turns them"


def _lost_of_scene(scene: Scene, times: list[float], sequence: bool) -> Iterator[str]:
    """What a file of static Gaussians leaves out of a scene."""
    kinds = set(scene.gaussians.kind.unique().tolist())
    if kinds & {RIGID, RESIDUAL}:
        yield f"motion: {len(times)} instants, frozen" if sequence else f"motion: frozen at {times[0]:.3f} s"
    if scene.bodies:
        yield f"bodies: {', '.join(body.name for body in scene.bodies)} are part of the whole"
    if scene.colour:
        yield "the cameras' own colours"
    yield f"the {len(scene.rig.cameras)} cameras"
    yield "units" if scene.metric else "units, which the scene does not know either"


def _frame_times(scene: Scene) -> list[float]:
    """The frame times of the camera that has most."""
    times = max(scene.frame_times.values(), key=len, default=[])
    if not times:
        raise UsageError("the scene has no frame times", fix="Export one instant with --time.")
    return times


def _write(one: Format, g: Gaussians, out: Path) -> None:
    assert one.write is not None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot write to {out.parent}", why=error.strerror or str(error)) from error
    one.write(g, out)
