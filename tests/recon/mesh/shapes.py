"""Scenes of things whose surface is known: flat Gaussians on meshes, seen by a ring of cameras."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
import trimesh

from recon.geometry.camera import Camera
from recon.geometry.pose import look_at
from recon.geometry.quaternion import matrix_to_quat
from recon.geometry.rig import Rig
from recon.scene.gaussians import RIGID, Gaussians
from recon.scene.motion import Track
from recon.scene.scene import Body, Scene

SPACING = 0.004  # m, between Gaussians


def splats(
    mesh: trimesh.Trimesh, colour: tuple[float, float, float], seed: int = 0, spacing: float = SPACING
) -> Gaussians:
    """Flat, opaque Gaussians evenly over the surface of a mesh."""
    count = int(mesh.area / spacing**2 * 1.6)
    points, faces = trimesh.sample.sample_surface_even(mesh, count, seed=seed)
    third = mesh.face_normals[faces]
    helper = np.where(np.abs(third[:, :1]) < 0.7, [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]])
    first = np.cross(helper, third)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    quats = matrix_to_quat(np.stack([first, np.cross(third, first), third], axis=-1))
    n = len(points)
    sh = np.tile((np.array(colour) - 0.5) / 0.28209479177387814, (n, 1, 1))
    return Gaussians.static(
        torch.tensor(points, dtype=torch.float32),
        torch.tensor(np.log([0.6 * spacing, 0.6 * spacing, 0.0005]), dtype=torch.float32).repeat(n, 1),
        torch.tensor(quats, dtype=torch.float32),
        torch.full((n,), 4.0),
        torch.tensor(sh, dtype=torch.float32),
    )


def ring(count: int = 5, radius: float = 0.9, height: float = 0.7) -> Rig:
    """Cameras all around, that look down at the origin."""
    cameras = {}
    for k in range(count):
        angle = 2 * np.pi * k / count
        pose = look_at(np.array([radius * np.cos(angle), radius * np.sin(angle), height]), np.zeros(3))
        cameras[f"cam{k}"] = Camera(f"cam{k}", 320, 240, 300.0, 300.0, 160.0, 120.0, cam_from_world=pose)
    return Rig(cameras, units="metres", world_up="z")


def with_body(mesh: trimesh.Trimesh, name: str = "thing", *, still: bool = False) -> Scene:
    """`mesh`, in its own frame with its lowest point at z = 0, as a body that slides over a table and turns, or not."""
    own = splats(mesh, (0.8, 0.3, 0.2))
    rows = len(own)
    body = replace(
        own, kind=torch.full((rows,), RIGID, dtype=torch.uint8), object_id=torch.ones(rows, dtype=torch.int32)
    )
    board = trimesh.creation.box((0.5, 0.5, 0.02))
    board.apply_translation([0, 0, -0.01])
    parts = [body, splats(board, (0.6, 0.6, 0.5), seed=1, spacing=0.01)]
    turn = [[np.cos(a / 2), 0.0, 0.0, np.sin(a / 2)] for a in (0.0, 0.6)]
    track = Track(np.array([0.0, 1.0]), torch.tensor([[0.0, 0.0, 0.0], [0.06, 0.03, 0.0]]), torch.tensor(turn).float())
    return Scene(
        gaussians=Gaussians.concat(parts), rig=ring(), time_range=(0.0, 1.0),
        bodies=[Body(name, 1, "object", None, None if still else track)], up="z", metric=True,
    )  # fmt: skip


def cube(side: float = 0.06) -> trimesh.Trimesh:
    """A cube that stands on z = 0."""
    mesh = trimesh.creation.box((side, side, side))
    mesh.apply_translation([0, 0, side / 2])
    return mesh
