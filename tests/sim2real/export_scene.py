"""A scene folder to export: the made-up bench, the bundled arm, and two bodies with meshes, one of them lopsided."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import mujoco
import numpy as np
import torch
import trimesh

from recon.geometry.sh import rgb_to_sh0
from recon.mesh.folder import MESHES, Made, write_meshes
from recon.mesh.gap import Gap
from recon.mesh.inertia import mass_properties
from recon.mesh.solid import Solid, SolidSettings
from recon.scene.folder import save_scene
from recon.scene.gaussians import RIGID, Gaussians
from recon.scene.motion import Track
from recon.scene.scene import Body, Scene
from sim2real.export.cargo import Cargo

CUP, WEDGE = "red cup", "wedge"  # a name no file system or USD path takes as it is
PLACES = {CUP: (0.25, -0.25, 0.042), WEDGE: (0.12, -0.3, 0.035)}


def solids() -> dict[str, trimesh.Trimesh]:
    """In their own frames, which are not at their centres of mass."""
    cup = trimesh.creation.cylinder(radius=0.03, height=0.08, sections=24)
    cup.apply_translation([0.004, 0, 0])
    # a block with a step: two convex pieces, inertia off every axis
    moved = trimesh.transformations.translation_matrix
    low = trimesh.creation.box([0.06, 0.08, 0.03], transform=moved([0, 0, -0.015]))
    high = trimesh.creation.box([0.03, 0.05, 0.03], transform=moved([0.015, -0.015, 0.015]))
    wedge = trimesh.util.concatenate([low, high])
    for mesh, colour in ((cup, (200, 30, 30, 255)), (wedge, (40, 160, 60, 255))):
        mesh.visual.vertex_colors = np.tile(colour, (len(mesh.vertices), 1)).astype(np.uint8)
    return {CUP: cup, WEDGE: wedge}


def pieces(name: str) -> list[trimesh.Trimesh]:
    return solids()[name].split() if name == WEDGE else [solids()[name]]


def skin(mesh: trimesh.Trimesh, count: int, number: int) -> Gaussians:
    """Gaussians on a surface with some view-dependent colour."""
    points, faces = trimesh.sample.sample_surface(mesh, count, seed=number)
    rng = np.random.default_rng(number)
    colour = np.clip(mesh.visual.face_colors[faces][:, :3] / 255 + rng.normal(0, 0.05, (count, 3)), 0, 1)
    sh = np.zeros((count, 4, 3))
    sh[:, 0], sh[:, 1:] = rgb_to_sh0(colour), rng.normal(0, 0.05, (count, 3, 3))
    arrays = (points, np.full((count, 3), np.log(0.004)), rng.normal(size=(count, 4)), np.full(count, 2.0), sh)
    table = Gaussians.static(*(torch.from_numpy(np.asarray(a, np.float32)) for a in arrays))
    return replace(table, object_id=torch.full_like(table.object_id, number), kind=torch.full_like(table.kind, RIGID))


def load(path: Path, name: str) -> ModuleType:
    """A file as a module, e.g. a script of an exported folder."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def random_joints(cargo: Cargo, seed: int) -> dict[str, float]:
    """Random positions inside the limits, coupled ones coupled."""
    rng = np.random.default_rng(seed)
    q = {j.name: rng.uniform(max(j.lower, -3), min(j.upper, 3)) for part in cargo.parts for j in part.joints}
    return q | {c.follower: c.position(q[c.leader]) for c in cargo.couplings}


def mujoco_poses(cargo: Cargo, q: dict[str, float]) -> dict[str, np.ndarray]:
    """world_from_link and world_from_thing [4, 4] by MuJoCo, joints that are not named at rest."""
    data = mujoco.MjData(cargo.model)
    data.qpos[:] = cargo.rest_qpos
    for name, value in q.items():
        data.qpos[cargo.model.joint(name).qposadr[0]] = value
    mujoco.mj_kinematics(cargo.model, data)
    poses = {}
    for name in [*(part.name for part in cargo.parts), *(thing.name for thing in cargo.things)]:
        pose, body = np.eye(4), cargo.model.body(name).id
        pose[:3, :3], pose[:3, 3] = data.xmat[body].reshape(3, 3), data.xpos[body]
        poses[name] = pose
    return poses


def tensor(axes: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """The inertia [3, 3] of principal axes and moments."""
    return axes @ np.diag(moments) @ axes.T


def write_scene(scene: Scene, folder: Path) -> Path:
    """The scene with its two bodies, resting a little in the table as reconstructions do, and their meshes."""
    bodies, tables, made = [], [scene.gaussians], []
    for number, (name, mesh) in enumerate(solids().items(), start=1):
        turn = trimesh.transformations.quaternion_about_axis(0.7 * number, [0, 0, 1]).astype(np.float32)
        place = torch.tensor([PLACES[name]], dtype=torch.float32) - torch.tensor([[0.0, 0.0, 0.003]])
        bodies.append(Body(name, number, "object", None, Track(np.array([0.0]), place, torch.from_numpy(turn[None]))))
        tables.append(skin(mesh, 400, number))
        gap = Gap(0.0, 0.0, 0.0, 0.0, 0.0)
        solid = Solid(name, mesh, np.ones(len(mesh.faces), bool), pieces(name), gap, 0.0)
        made.append(Made(solid, "object", SolidSettings(), mass_properties(mesh, pieces(name), 700.0)))
    # what a build notes of where its pictures lay: it must not leave
    noted = {"capture": str(folder.parent / "cams"), "scale": "metres"}
    whole = replace(scene, gaussians=Gaussians.concat(tables), bodies=bodies, provenance=noted)
    save_scene(whole, folder)
    write_meshes(folder / MESHES, made, "")
    return folder
