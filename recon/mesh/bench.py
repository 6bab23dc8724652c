"""What stands still around the place the cameras look at, as one solid thing: the table and what is fixed to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import trimesh
from numpy.typing import NDArray

from recon.core.errors import InputError
from recon.geometry.camera import Camera, pixel_cells
from recon.geometry.pose import look_at
from recon.mesh.depth import Array, bending, look
from recon.mesh.fuse import Fusion
from recon.mesh.gap import Audit, spread
from recon.mesh.hulls import fitting_pieces
from recon.mesh.solid import NEAR_SURFACE, Solid, SolidSettings, faces_seen, largest, vertex_colours
from recon.mesh.views import Sighting, training_cameras
from recon.render.types import RasterConfig
from recon.scene.gaussians import STATIC
from recon.scene.scene import Scene

BENCH = "bench"
WIDTH = 640  # px, most of a depth picture
SHARED = 0.6  # of the cameras must have a place in their picture for it to belong to the workspace
BELOW = 0.06  # m under the table's top, where it is known: deeper things cannot be reached
NEIGHBOURS = 3
LEVEL = 0.9  # cosine: faces that look up
SPECK = 5.0  # voxels: smaller things are noise
COARSE = (6.0,)  # concavity that is tried, in errors: a bench is large
MOST_OF_ONE = 16  # pieces of one thing
THINGS = 20  # that are looked at, the largest first
SMOOTHING = 10  # iterations of Taubin's filter, which does not shrink
ROOM = 0.03  # m around what is seen


def bench_solid(scene: Scene, settings: SolidSettings, backend: str = "auto") -> Solid:
    """The static set of the scene inside the workspace, in the scene's world.

    Raises InputError when the cameras see nothing solid there.
    """
    cameras = [_small(camera) for camera in training_cameras(scene)]
    near = float(scene.provenance.get("near", RasterConfig().near))
    rows = torch.nonzero(scene.gaussians.kind == STATIC)[:, 0]
    splats = Scene(scene.gaussians.select(rows), scene.rig, scene.time_range).at(scene.time_range[0])
    views = [look(splats, camera, near=near, backend=backend) for camera in cameras]
    points = np.concatenate([view.points(bending(view.depth) < settings.voxel) for view in views])
    low, high = workspace(cameras, points, scene.up)
    more = [look(splats, camera, near=near, backend=backend) for camera in between(cameras, (low + high) / 2)]
    fusion = Fusion([*views, *more], low, high, settings.voxel)
    surface = largest(fusion.surface(box_planes(low, high)))
    trimesh.smoothing.filter_taubin(surface, iterations=SMOOTHING)
    reach = NEAR_SURFACE * settings.voxel
    was_seen = faces_seen(surface, [Sighting(view.camera, view) for view in views], reach)
    surface.visual = vertex_colours(surface, views, reach)
    top = table_top(surface, was_seen)
    low[2] = top.height + 2 * settings.voxel
    pieces = [top.slab, *_things(fusion.surface(box_planes(low, high)), cameras, settings)]
    gap = Audit(surface, was_seen, cameras).gap(pieces)
    return Solid(BENCH, surface, was_seen, pieces, gap, spread(surface, views, settings.voxel))


def between(cameras: list[Camera], target: Array) -> list[Camera]:
    """Cameras halfway between each and its NEIGHBOURS nearest, as far from `target` [3] as they, aimed at it.

    The static set was fitted to pictures from all sides: what lies between them is as good, and averages more.
    """
    centres = np.stack([camera.center for camera in cameras])
    pairs = set()
    for k, centre in enumerate(centres):
        order = np.argsort(np.linalg.norm(centres - centre, axis=1), kind="stable")
        pairs |= {tuple(sorted((k, int(other)))) for other in order[order != k][:NEIGHBOURS]}
    made = []
    for a, b in sorted(pairs):
        away = (centres[a] + centres[b]) / 2 - target
        distance = (np.linalg.norm(centres[a] - target) + np.linalg.norm(centres[b] - target)) / 2
        length = float(np.linalg.norm(away))
        if length > 0.5 * distance:  # not between cameras that face each other
            up = (0.0, 0.0, 1.0) if abs(away[2]) < 0.95 * length else (0.0, 1.0, 0.0)
            made.append(cameras[a].with_pose(look_at(target + away * distance / length, target, up)))
    return made


def _small(camera: Camera) -> Camera:
    ideal = camera.pinhole()
    return ideal.scaled(min(1.0, WIDTH / ideal.width))


def workspace(cameras: list[Camera], points: Array, up: str) -> tuple[Array, Array]:
    """(low [3], high [3]) m: the box around those seen `points` [N, 3] that most cameras have in their pictures.

    With a known up axis it ends a little under the table's top, z = 0. Raises InputError when there are none.
    """
    shares = sum(pixel_cells(camera, points)[0].astype(float) for camera in cameras) / len(cameras)
    common = points[shares >= SHARED]
    if up == "z":
        common = common[common[:, 2] > -BELOW]
    if len(common) == 0:
        raise InputError("there is no bench to mesh", why="no place with a surface is seen by most cameras")
    low, high = np.percentile(common, [1, 99], axis=0)
    low, high = low - ROOM, high + ROOM
    if up == "z":
        low[2] = -BELOW
    return low, high


@dataclass(frozen=True, eq=False)
class TableTop:
    """height: m. slab: a convex piece from the workspace's floor up to it."""

    height: float
    slab: trimesh.Trimesh


def table_top(surface: trimesh.Trimesh, seen: NDArray[np.bool_]) -> TableTop:
    """The level surface at z = 0. Raises InputError when none was seen."""
    level = seen & (surface.face_normals[:, 2] > LEVEL) & (np.abs(surface.triangles_center[:, 2]) < BELOW / 2)
    if level.sum() < 100:
        raise InputError("there is no bench to mesh", why="no level surface is seen at z = 0, where a table's top is")
    middles, areas = surface.triangles_center[level], surface.area_faces[level]
    order = np.argsort(middles[:, 2])
    height = float(middles[order, 2][np.searchsorted(np.cumsum(areas[order]), areas.sum() / 2)])
    flat = middles[np.abs(middles[:, 2] - height) < BELOW / 6, :2]
    corners = np.concatenate([np.c_[flat, np.full(len(flat), z)] for z in (-BELOW, height)])
    return TableTop(height, trimesh.convex.convex_hull(corners))


def _things(mesh: trimesh.Trimesh, cameras: list[Camera], settings: SolidSettings) -> list[trimesh.Trimesh]:
    """Convex pieces of what stands on the table, each thing in as many as it needs; specks are left out."""
    pieces: list[trimesh.Trimesh] = []
    for thing in sorted(mesh.split(only_watertight=True), key=lambda part: -part.area)[:THINGS]:
        if max(thing.extents) < SPECK * settings.voxel or thing.volume <= 0:
            continue
        left = settings.pieces - len(pieces)
        if left <= 0:
            break
        audit = Audit(thing, np.ones(len(thing.faces), bool), cameras)
        pieces += fitting_pieces(thing, audit.gap, settings.error, min(left, MOST_OF_ONE), COARSE)[0]
    return pieces


def box_planes(low: Array, high: Array) -> Array:
    """[6, 4] half-spaces n . x + d <= 0 of an axis-aligned box."""
    return np.concatenate([np.c_[np.eye(3), -high], np.c_[-np.eye(3), low]])
