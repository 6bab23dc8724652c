"""Triangle meshes of what a robot looks like, link by link, in link frames.

Which geoms are drawn: those that MuJoCo's own viewer shows by default (groups 0-2, not transparent), and among them per
link the ones that do not collide, if there are any. A model that shows nothing falls back to all its geoms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recon.core.errors import InputError
from recon.geometry.quaternion import quat_to_matrix

if TYPE_CHECKING:
    import mujoco
    import trimesh

ROUND_SEGMENTS = 32  # facets around a sphere, capsule or cylinder
MAX_FACES = 2_000_000
_VISIBLE_GROUPS = 3  # groups 0, 1, 2
_UNSTATED_RGBA = (0.5, 0.5, 0.5, 1.0)  # the compiler's default

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class LinkMesh:
    """One coloured triangle mesh of a link.

    Attributes:
        vertices: [V, 3] float64 metres, link frame.
        faces: [F, 3] int32.
        rgba: four values in [0, 1], sRGB-encoded as in the description.
    """

    vertices: Floats
    faces: Ints
    rgba: tuple[float, float, float, float]

    def trimesh(self) -> trimesh.Trimesh:
        """Return a copy as a `trimesh.Trimesh` with its face colour."""
        from trimesh import Trimesh

        colour = np.round(np.array(self.rgba) * 255).astype(np.uint8)
        return Trimesh(self.vertices, self.faces, face_colors=np.tile(colour, (len(self.faces), 1)), process=False)


def visual_geoms(model: mujoco.MjModel) -> dict[int, list[int]]:
    """Return {body id: geom ids to draw}."""
    shown = [g for g in range(model.ngeom) if model.geom_group[g] < _VISIBLE_GROUPS and _rgba(model, g)[3] > 0]
    chosen: dict[int, list[int]] = {}
    for geom in shown or range(model.ngeom):
        chosen.setdefault(int(model.geom_bodyid[geom]), []).append(geom)
    for body, geoms in chosen.items():
        passive = [g for g in geoms if model.geom_contype[g] == 0 and model.geom_conaffinity[g] == 0]
        chosen[body] = passive or geoms
    return chosen


def geom_mesh(model: mujoco.MjModel, geom: int, kinds: Any) -> LinkMesh | None:
    """Return the mesh of one geom in its body's frame, or None for what has no surface of its own (plane, field).

    Args:
        model: Compiled model.
        geom: Geom index.
        kinds: The `mujoco.mjtGeom` enumeration (passed in, so that this file imports without mujoco).
    """
    kind, size = int(model.geom_type[geom]), model.geom_size[geom]
    if kind in (kinds.mjGEOM_MESH, kinds.mjGEOM_SDF):
        mesh = int(model.geom_dataid[geom])
        first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        vertices = np.array(model.mesh_vert[first : first + count], np.float64)
        first, count = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
        faces = np.array(model.mesh_face[first : first + count], np.int32)
    elif kind == kinds.mjGEOM_BOX:
        vertices, faces = box(size)
    elif kind == kinds.mjGEOM_SPHERE:
        vertices, faces = ellipsoid(np.full(3, size[0]))
    elif kind == kinds.mjGEOM_ELLIPSOID:
        vertices, faces = ellipsoid(size)
    elif kind == kinds.mjGEOM_CAPSULE:
        vertices, faces = ellipsoid(np.full(3, size[0]))
        vertices[:, 2] += np.where(vertices[:, 2] > 0, size[1], -size[1])
    elif kind == kinds.mjGEOM_CYLINDER:
        vertices, faces = cylinder(float(size[0]), float(size[1]))
    else:
        return None
    if len(faces) > MAX_FACES:
        raise InputError(f"a robot mesh has {len(faces)} triangles", fix=f"Decimate it below {MAX_FACES}.")
    rotation = quat_to_matrix(np.array(model.geom_quat[geom], np.float64))
    return LinkMesh(vertices @ rotation.T + model.geom_pos[geom], faces, _rgba(model, geom))


def _rgba(model: mujoco.MjModel, geom: int) -> tuple[float, float, float, float]:
    """Colour of a geom: its own when it states one, else its material's times the mean of the material's texture."""
    material = int(model.geom_matid[geom])
    rgba = np.array(model.geom_rgba[geom], np.float64)
    if material >= 0:
        if np.allclose(rgba, _UNSTATED_RGBA):
            rgba = np.array(model.mat_rgba[material], np.float64)
        texture = int(np.max(model.mat_texid[material]))
        if texture >= 0:
            channels = int(model.tex_nchannel[texture])
            first = int(model.tex_adr[texture])
            count = int(model.tex_height[texture]) * int(model.tex_width[texture]) * channels
            mean = model.tex_data[first : first + count].reshape(-1, channels).mean(axis=0) / 255
            rgba[:3] *= mean[:3] if channels >= 3 else mean[0]
    red, green, blue, alpha = np.clip(rgba, 0, 1).tolist()
    return red, green, blue, alpha


def box(half: Floats) -> tuple[Floats, Ints]:
    """Return the 12 triangles of a box with half extents [3], outward winding."""
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64) * half
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    return corners, np.array([t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))], np.int32)


def ellipsoid(radii: Floats, segments: int = ROUND_SEGMENTS) -> tuple[Floats, Ints]:
    """Return a latitude-longitude ellipsoid without a ring on the equator, so that a capsule's halves part cleanly."""
    rings = segments // 2 // 2 * 2 + 1  # bands; odd: the equator is the middle of one
    polar = np.pi * np.arange(1, rings) / rings
    around = 2 * np.pi * np.arange(segments) / segments
    ring = np.stack(
        [
            np.outer(np.sin(polar), np.cos(around)),
            np.outer(np.sin(polar), np.sin(around)),
            np.outer(np.cos(polar), np.ones(segments)),
        ],
        axis=-1,
    )
    vertices = np.concatenate([[[0.0, 0.0, 1.0]], ring.reshape(-1, 3), [[0.0, 0.0, -1.0]]]) * radii
    return vertices, _lathe(rings - 1, segments)


def cylinder(radius: float, half: float, segments: int = ROUND_SEGMENTS) -> tuple[Floats, Ints]:
    """Return a closed cylinder along z, from -half to half."""
    around = 2 * np.pi * np.arange(segments) / segments
    circle = np.stack([radius * np.cos(around), radius * np.sin(around)], axis=-1)
    top = np.column_stack([circle, np.full(segments, half)])
    bottom = np.column_stack([circle, np.full(segments, -half)])
    vertices = np.concatenate([[[0.0, 0.0, half]], top, bottom, [[0.0, 0.0, -half]]])
    return vertices, _lathe(2, segments)


def _lathe(rings: int, segments: int) -> Ints:
    """Faces of: top pole, `rings` circles of `segments` vertices from top to bottom, bottom pole."""
    i = np.arange(segments)
    j = (i + 1) % segments
    last = 1 + rings * segments
    faces = [np.column_stack([np.zeros_like(i), 1 + i, 1 + j])]
    for ring in range(rings - 1):
        upper, lower = 1 + ring * segments, 1 + (ring + 1) * segments
        faces.append(np.column_stack([upper + i, lower + i, lower + j]))
        faces.append(np.column_stack([upper + i, lower + j, upper + j]))
    bottom = 1 + (rings - 1) * segments
    faces.append(np.column_stack([np.full_like(i, last), bottom + j, bottom + i]))
    return np.concatenate(faces).astype(np.int32)
