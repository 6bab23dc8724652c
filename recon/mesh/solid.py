"""One solid thing: its closed surface, which parts of it a camera ever saw, its convex pieces and how well they fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import trimesh
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError

from recon.core.errors import InputError
from recon.geometry.camera import pixel_cells
from recon.mesh.depth import View, bending
from recon.mesh.fuse import Fusion
from recon.mesh.gap import Audit, Gap, spread
from recon.mesh.hulls import fitting_pieces
from recon.mesh.views import Sighting, body_views, seen
from recon.scene.scene import Body, Scene

NEAR_SURFACE = 2.5  # voxels: what a camera sees this close to the surface is the surface
GREY = 0.5


@dataclass(frozen=True)
class SolidSettings:
    """voxel: m, of the depth fusion. error: m, that the gap's p95 is to keep below. pieces: at most so many."""

    voxel: float = 0.003
    error: float = 0.004
    pieces: int = 32


@dataclass(frozen=True, eq=False)
class Solid:
    """A closed surface with vertex colours, in its own frame (m).

    seen: bool per face. pieces: convex. gap: between the two. spread_mm: p95 of what single views show from it.
    """

    name: str
    surface: trimesh.Trimesh
    seen: NDArray[np.bool_]
    pieces: list[trimesh.Trimesh]
    gap: Gap
    spread_mm: float

    @property
    def never_seen(self) -> float:
        """Share of the surface's area that no training camera ever saw."""
        areas = self.surface.area_faces
        return float(areas[~self.seen].sum() / areas.sum())


def body_solid(scene: Scene, body: Body, settings: SolidSettings, backend: str = "auto") -> Solid:
    """The body of a scene as a solid in its own frame. Raises InputError when cameras see no surface of it."""
    views, sightings = body_views(scene, body, backend)
    points = np.concatenate([view.points(bending(view.depth) < settings.voxel) for view in views])
    lattice = settings.voxel / 4
    try:
        # on a lattice, which spares the hull of a round thing thousands of facets
        bound = ConvexHull((points / lattice).round() * lattice).equations
    except (QhullError, ValueError) as error:
        raise InputError(f"body '{body.name}' has no surface", why="no camera sees anything solid of it") from error
    surface = largest(Fusion(views, points.min(0), points.max(0), settings.voxel).surface(bound))
    reach = NEAR_SURFACE * settings.voxel
    was_seen = faces_seen(surface, sightings, reach)
    surface.visual = vertex_colours(surface, views, reach)
    audit = Audit(surface, was_seen, [view.camera for view in views])
    pieces, gap = fitting_pieces(surface, audit.gap, settings.error, settings.pieces)
    return Solid(body.name, surface, was_seen, pieces, gap, spread(surface, views, settings.voxel))


def largest(mesh: trimesh.Trimesh) -> trimesh.Trimesh:
    """The connected part of the greatest area; the others are specks."""
    labels = trimesh.graph.connected_component_labels(mesh.face_adjacency, node_count=len(mesh.faces))
    areas = np.bincount(labels, weights=mesh.area_faces)
    kept = mesh.submesh([np.flatnonzero(labels == int(np.argmax(areas)))], append=True)
    assert isinstance(kept, trimesh.Trimesh)
    return kept


def faces_seen(mesh: trimesh.Trimesh, sightings: list[Sighting], tolerance: float) -> NDArray[np.bool_]:
    """[F] bool: faces whose middle at least one camera saw."""
    found = np.zeros(len(mesh.faces), bool)
    for sighting in sightings:
        found |= seen(mesh.triangles_center, mesh.face_normals, sighting, tolerance)
    return found


def vertex_colours(mesh: trimesh.Trimesh, views: list[View], tolerance: float) -> trimesh.visual.ColorVisuals:
    """The mean of what the views show at each vertex; vertices none shows take the nearest shown one's, else grey."""
    total, count = np.zeros((len(mesh.vertices), 3)), np.zeros(len(mesh.vertices))
    for view in views:
        inside, column, row, z = pixel_cells(view.camera, mesh.vertices)
        with np.errstate(invalid="ignore"):
            shown = inside & (np.abs(view.depth[row, column] - z) < tolerance)
        total[shown] += view.color[row[shown], column[shown]]
        count += shown
    colours = np.where(count[:, None] > 0, total / np.maximum(count, 1)[:, None], GREY)
    if 0 < (count > 0).sum() < len(count):
        from scipy.spatial import cKDTree

        nearest = cKDTree(mesh.vertices[count > 0]).query(mesh.vertices[count == 0])[1]
        colours[count == 0] = colours[count > 0][nearest]
    return trimesh.visual.ColorVisuals(mesh, vertex_colors=(255 * colours).round().astype(np.uint8))
