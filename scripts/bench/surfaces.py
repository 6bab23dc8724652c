"""Meshes of the scene's objects against the true ones, where the surface was seen.

Mesh and true mesh are put where the body's track and the truth have them at the object's usual place. Points are spread
over the mesh; one counts as seen when it faces a train camera at some instant of the track and nothing of the mesh
itself is between the two. What other things hide counts as seen: it is asked for too much rather than too little.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import trimesh

from recon.geometry.camera import Camera
from recon.geometry.pose import invert_pose
from recon.mesh.folder import read_meshes
from scripts.bench.tracks import Followed

SAMPLES = 4000  # points over the whole mesh
INSTANTS = 8  # of the track
GRAZING = 0.2  # cosine below which a surface is looked at too flatly
CLEAR = 1e-3  # metres off the surface at which a ray starts


def seen(mesh: trimesh.Trimesh, points: np.ndarray, normals: np.ndarray, eyes: np.ndarray) -> np.ndarray:
    """bool [N]: points [N, 3] of the mesh with outward normals that some eye [E, 3] sees past the mesh itself."""
    found = np.zeros(len(points), bool)
    for eye in eyes:
        away = eye - points
        away /= np.linalg.norm(away, axis=1, keepdims=True)
        ask = np.nonzero(~found & ((away * normals).sum(1) > GRAZING))[0]
        if len(ask):
            found[ask] = ~mesh.ray.intersects_any(points[ask] + CLEAR * normals[ask], away[ask])
    return found


def surface_error(
    mesh: trimesh.Trimesh, true: trimesh.Trimesh, true_from_body: np.ndarray, eyes: np.ndarray
) -> tuple[float, float]:
    """(p95 in mm of the seen surface's distance from the true one, share of the surface that is seen).

    mesh in the body's frame, true in its own; true_from_body [4, 4]; eyes [E, 3]: camera centres in the body's frame.
    """
    points, faces = trimesh.sample.sample_surface(mesh, SAMPLES, seed=0)[:2]
    shown = seen(mesh, points, mesh.face_normals[faces], eyes)
    if not shown.any():
        return float("inf"), 0.0
    moved = trimesh.transform_points(points[shown], true_from_body)
    distance = trimesh.proximity.closest_point(true, moved)[1]
    return 1000.0 * float(np.percentile(distance, 95)), float(shown.mean())


def score_meshes(scene: Path, truth: Path, followed: dict[str, Followed], cameras: list[Camera]) -> dict[str, object]:
    """gap_p95_mm of the worst thing, mesh_truth_p95_mm of the worst object that was found; both by name.

    cameras: train cameras in the scene's world.
    """
    entries = {entry["name"]: entry for entry in read_meshes(scene / "bodies")}
    files = {o["name"]: o["mesh"] for o in json.loads((truth / "objects.json").read_text())["objects"]}
    gaps = {name: float(entry["gap"]["p95_mm"]) for name, entry in entries.items()}
    errors: dict[str, float] = {}
    shares: dict[str, float] = {}
    for name, track in followed.items():
        mesh = trimesh.load(scene / "bodies" / entries[track.body]["folder"] / "visual.glb", force="mesh")
        true = trimesh.load(truth / files[name], force="mesh", process=False)
        chosen = np.unique(np.linspace(0, len(track.times) - 1, INSTANTS).round().astype(int))
        eyes = [(invert_pose(track.scene_from_body[k]) @ np.r_[c.center, 1.0])[:3] for k in chosen for c in cameras]
        scene_from_body, scene_from_object = track.usual
        true_from_body = invert_pose(scene_from_object) @ scene_from_body
        errors[name], shares[name] = surface_error(mesh, true, true_from_body, np.array(eyes))
    result: dict[str, object] = {"gap_p95_mm": max(gaps.values()), "gap_p95_mm_by_thing": gaps}
    if errors:
        result |= {
            "mesh_truth_p95_mm": max(errors.values()),
            "mesh_truth_p95_mm_by_object": errors,
            "mesh_seen_share": shares,
        }
    return result
