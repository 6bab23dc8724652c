"""The gap audit: how far the visual surface and what collides lie apart, where cameras look.

Both directions count. A visible place without a collision surface near it can be reached into; a collision surface that
a camera would see with nothing visible near it pushes against air.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import trimesh
from numpy.typing import NDArray

from recon.core.errors import InputError
from recon.geometry.camera import Camera, pixel_rays
from recon.mesh.depth import Array, View, bending
from recon.mesh.fuse import open3d

WIDE = 0.005  # m: gaps beyond are counted
RAYS = 0.5  # of a picture's resolution, at which the collision surface is looked at
SAMPLES = 20_000  # points of a surface that are measured, at most


@dataclass(frozen=True)
class Gap:
    """Millimetres, and shares in 0..1. chamfer: mean of the two mean distances; p95 and beyond: the worse direction."""

    chamfer_mm: float
    p95_mm: float
    beyond_5mm: float
    visual_to_collision_p95_mm: float
    collision_to_visual_p95_mm: float

    def to_json(self) -> dict[str, float]:
        """Plain values."""
        return asdict(self)


class Surface:
    """A triangle mesh that points and rays are compared with."""

    def __init__(self, mesh: trimesh.Trimesh) -> None:
        """Raises UnavailableError when Open3D is missing."""
        self._o3d = open3d()
        self._scene = self._o3d.t.geometry.RaycastingScene()
        vertices, faces = mesh.vertices.astype(np.float32), mesh.faces.astype(np.uint32)
        self._scene.add_triangles(self._o3d.core.Tensor(vertices), self._o3d.core.Tensor(faces))

    def distances(self, points: Array) -> Array:
        """[N] m from points [N, 3] to the surface."""
        found = self._scene.compute_distance(self._o3d.core.Tensor(points.astype(np.float32)))
        return np.asarray(found.numpy(), dtype=np.float64)

    def hits(self, camera: Camera) -> Array:
        """[M, 3] m: where the pinhole camera's rays first meet the surface."""
        rays = pixel_rays(camera)
        origins = np.broadcast_to(camera.center, rays.shape)
        cast = self._scene.cast_rays(self._o3d.core.Tensor(np.concatenate([origins, rays], 1).astype(np.float32)))
        t = cast["t_hit"].numpy().astype(np.float64)
        hit = np.isfinite(t)
        return np.asarray(origins[hit] + rays[hit] * t[hit, None])


class Audit:
    """A surface and the cameras that look at it, ready to be compared with collision pieces."""

    def __init__(self, surface: trimesh.Trimesh, seen: NDArray[np.bool_], cameras: list[Camera]) -> None:
        """seen: bool per face; what no camera has seen has nothing drawn and is left out. cameras: pinholes."""
        if not seen.any():
            raise InputError("a surface cannot be compared", why="no camera has seen any of it")
        self.surface = Surface(surface)
        self.cameras = [camera.scaled(RAYS) for camera in cameras]
        areas = np.where(seen, surface.area_faces, 0.0)
        self.points = trimesh.sample.sample_surface(surface, SAMPLES, face_weight=areas, seed=0)[0]

    def gap(self, pieces: list[trimesh.Trimesh]) -> Gap:
        """Between the seen surface and the union of convex `pieces`, where the cameras see that."""
        vertices = np.cumsum([0, *(len(piece.vertices) for piece in pieces)])
        faces = np.concatenate([piece.faces + first for piece, first in zip(pieces, vertices[:-1], strict=True)])
        joined = trimesh.Trimesh(np.concatenate([piece.vertices for piece in pieces]), faces, process=False)
        collision = Surface(joined)
        hits = _thinned(np.concatenate([collision.hits(camera) for camera in self.cameras]), SAMPLES)
        return _summary(collision.distances(self.points), self.surface.distances(hits))


def spread(surface: trimesh.Trimesh, views: list[View], bend: float) -> float:
    """p95, in mm, of how far what single views show inside the surface's box lies from it: how much they disagree.

    bend: m, pixels that lie further off their neighbours' plane mix two surfaces and are left out.
    """
    drawn = np.concatenate([view.points(bending(view.depth) < bend) for view in views])
    low, high = surface.bounds
    inside = _thinned(drawn[((drawn > low) & (drawn < high)).all(1)], SAMPLES)
    return 1000 * float(np.percentile(Surface(surface).distances(inside), 95)) if len(inside) else float("nan")


def _thinned(points: Array, most: int) -> Array:
    return points[:: max(1, -(-len(points) // most))]


def _summary(to_collision: Array, to_visual: Array) -> Gap:
    both = (to_collision, to_visual)
    p95 = [1000 * float(np.percentile(distances, 95)) for distances in both]
    return Gap(
        chamfer_mm=1000 * float(np.mean([distances.mean() for distances in both])),
        p95_mm=max(p95),
        beyond_5mm=max(float((distances > WIDE).mean()) for distances in both),
        visual_to_collision_p95_mm=p95[0],
        collision_to_visual_p95_mm=p95[1],
    )
