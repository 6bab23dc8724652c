"""A PolaRiS environment: `scene.usda`, `assets/<name>/{mesh.usd, splat.ply}`, `initial_conditions.json`.

PolaRiS brings the robot itself and stands its base at the origin: all poses here are in the frame of the base. Children
of /World are cameras and rigid bodies; the bench is the body `bench_static`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from numpy.typing import NDArray

from recon.core.files import write_json
from recon.geometry.pose import invert_pose
from recon.geometry.quaternion import matrix_to_quat
from recon.scene.formats.ply import write_ply
from sim2real.export.cargo import Cargo
from sim2real.export.header import file_names
from sim2real.export.parts import Shape
from sim2real.export.skins import WORLD_SKIN
from sim2real.export.surfaces import shapes_surface
from sim2real.export.things import vertex_colours
from sim2real.export.usd import StageWriter, modules, write_camera

Array = NDArray[np.float64]

ABOUT = "scene.usda, assets with meshes and Gaussians, initial_conditions.json, for PolaRiS"
LOSSES = (
    "the robot: PolaRiS stands its own (DROID) at the origin, so poses are relative to this robot's base",
    "the task's success rule: PolaRiS wants a rubric in Python",
    "view-dependent colour, and cameras that are not 1280 x 720",
)
HOW_TO_OPEN = "copy {out} into PolaRiS-assets and pass its scene.usda"
BENCH = "bench_static"


def write(cargo: Cargo, folder: Path) -> None:
    """Write everything into the (staging) folder. UnavailableError without usd-core."""
    u = modules(folder / "scene.usda")
    base_from_world = invert_pose(np.asarray(cargo.rig.robot.world_from_base, float))  # type: ignore[union-attr]
    stage = u.Usd.Stage.CreateNew(str(folder / "scene.usda"))
    u.UsdGeom.SetStageUpAxis(stage, u.UsdGeom.Tokens.z)
    u.UsdGeom.SetStageMetersPerUnit(stage, 1.0)
    stage.SetDefaultPrim(u.UsdGeom.Xform.Define(stage, "/World").GetPrim())
    writer = StageWriter(u, stage, "")
    surface = cargo.bench_surface if cargo.bench_surface is not None else shapes_surface(cargo.fixed)
    _asset(u, folder, BENCH, surface, cargo.fixed)
    bench = _body(writer, BENCH, base_from_world)
    u.UsdPhysics.RigidBodyAPI.Apply(bench).CreateKinematicEnabledAttr(True)
    write_ply(cargo.skins[WORLD_SKIN].gaussians, folder / "assets" / BENCH / "splat.ply")
    names, poses = file_names(cargo), {}
    for thing in cargo.things:
        name, pose = names[thing.name], base_from_world @ thing.world_from_thing
        rgba = (*thing.colour, 1.0)
        shapes = [Shape("", "hull", (), np.eye(4), thing.friction, rgba, piece) for piece in thing.pieces]
        _asset(u, folder, name, thing.surface, shapes)
        body = _body(writer, name, pose)
        u.UsdPhysics.RigidBodyAPI.Apply(body)
        writer.mass(body, thing.mass, thing.center, *thing.principal)
        poses[name] = [*pose[:3, 3].tolist(), *matrix_to_quat(pose[:3, :3]).tolist()]
        if thing.name in cargo.skins:
            write_ply(cargo.skins[thing.name].gaussians, folder / "assets" / name / "splat.ply")
    for camera in cargo.rig.cameras.values():
        write_camera(writer, "/World", camera, base_from_world)
    stage.GetRootLayer().Save()
    start = f"Move the {cargo.things[0].name}." if cargo.things else "Reach the table."
    write_json(folder / "initial_conditions.json", {"instruction": start, "poses": [poses]})


def _asset(u: Any, folder: Path, name: str, surface: trimesh.Trimesh, shapes: Sequence[Shape]) -> None:
    """assets/<name>/mesh.usd: surface and shapes under one default prim."""
    (folder / "assets" / name).mkdir(parents=True)
    stage = u.Usd.Stage.CreateNew(str(folder / "assets" / name / "mesh.usd"))
    u.UsdGeom.SetStageUpAxis(stage, u.UsdGeom.Tokens.z)
    u.UsdGeom.SetStageMetersPerUnit(stage, 1.0)
    root = u.UsdGeom.Xform.Define(stage, f"/{name}")
    stage.SetDefaultPrim(root.GetPrim())
    writer = StageWriter(u, stage, f"/{name}/materials")
    colours = vertex_colours(surface)
    writer.mesh(f"/{name}/surface", surface.vertices, surface.faces, colours)
    for number, shape in enumerate(shapes):
        writer.shape(f"/{name}/shape_{number:03d}", shape)
    stage.GetRootLayer().Save()


def _body(writer: StageWriter, name: str, pose: Array) -> Any:
    prim = writer.xform(f"/World/{name}", pose)
    prim.GetReferences().AddReference(f"./assets/{name}/mesh.usd")
    return prim
