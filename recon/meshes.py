"""`recon mesh`: the bench and the bodies of a scene as solid things, with an audit of how well they fit."""

from __future__ import annotations

import time
from collections.abc import Iterator

from recon.config import MeshConfig
from recon.core.device import device_notes, resolve_device, set_strict_precision
from recon.core.errors import InputError, UsageError, did_you_mean
from recon.core.events import Artifact, Event, Message, Progress, StageFinished, StageStarted
from recon.mesh.bench import BENCH, bench_solid
from recon.mesh.folder import MESHES, Made, describe, summary, write_meshes
from recon.mesh.fuse import open3d
from recon.mesh.hulls import coacd
from recon.mesh.inertia import mass_properties
from recon.mesh.solid import SolidSettings, body_solid
from recon.scene.folder import find_scene, load_scene
from recon.scene.scene import Body, Scene


def mesh(config: MeshConfig) -> Iterator[Event]:
    """Make and publish the meshes; yields progress, one message per thing, the folder's `Artifact` last."""
    open3d()  # refuse before the work
    coacd()
    path = find_scene(config.scene)
    scene = load_scene(path)
    if not scene.metric:
        raise InputError(
            f"{path} cannot be meshed", why="its scale is unknown, and voxels, masses and gaps are in metres",
            fix="Build it with --rig-unit.",
        )  # fmt: skip
    names = chosen(scene, config.only)
    _known_densities(config.densities, scene)
    device = resolve_device(config.device)
    set_strict_precision()
    yield from device_notes(device)
    moved = scene.to(device)
    bodies = {body.name: body for body in scene.bodies}
    made: list[Made] = []
    started = time.monotonic()
    yield StageStarted("mesh", len(names))
    for name in names:
        thing = _thing(moved, bodies.get(name), config)
        made.append(thing)
        yield Message("info", summary(describe(thing)))
        yield Progress("mesh", len(made), len(names))
    out = config.out or path / MESHES
    write_meshes(out, made, str(scene.provenance.get("key", "")))
    yield StageFinished("mesh", time.monotonic() - started, {"things": float(len(made))})
    yield Artifact("meshes", out)


def chosen(scene: Scene, only: str) -> list[str]:
    """Names of what to mesh: those asked for, else the bench (where up is known) and every object.

    A robot's links have meshes of their own. Raises UsageError for an unknown name, InputError for a body called bench.
    """
    known = [BENCH, *(body.name for body in scene.bodies)]
    if known.count(BENCH) > 1:
        raise InputError(f"a body of the scene is called '{BENCH}'", fix="Rename it: that is what still stands.")
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise UsageError(f"--only: the scene has no body {name!r}", fix=did_you_mean(name, known))
    standing = [BENCH] if scene.up == "z" else []  # a table's top is found at z = 0
    return names or [*standing, *(body.name for body in scene.bodies if body.kind == "object")]


def _known_densities(densities: dict[str, float], scene: Scene) -> None:
    names = [body.name for body in scene.bodies]
    for name in densities:
        if name not in names:
            raise UsageError(f"--densities: the scene has no body {name!r}", fix=did_you_mean(name, names))


def _thing(scene: Scene, body: Body | None, config: MeshConfig) -> Made:
    if body is None:
        settings = SolidSettings(config.bench_voxel, config.error, config.bench_pieces)
        return Made(bench_solid(scene, settings, config.backend), "bench", settings, None)
    settings = SolidSettings(config.voxel, config.error, config.pieces)
    solid = body_solid(scene, body, settings, config.backend)
    declared = config.densities.get(body.name, config.density)
    return Made(solid, body.kind, settings, mass_properties(solid.surface, solid.pieces, declared))
