"""Meshes as files other programs read: GLB with materials or vertex colours, OBJ with one colour per piece."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import trimesh
from numpy.typing import NDArray

from recon.core.files import write_bytes
from sim2real.export.parts import Mesh, Shape
from sim2real.export.things import vertex_colours

if TYPE_CHECKING:
    from recon.robot.meshes import LinkMesh

Array = NDArray[np.float64]


def write_obj(path: Path, vertices: Array, faces: NDArray[np.int32]) -> None:
    """A plain OBJ: positions with 0.1 um, triangles."""
    lines = [f"v {x:.7f} {y:.7f} {z:.7f}" for x, y, z in np.asarray(vertices, float).tolist()]
    lines += [f"f {a} {b} {c}" for a, b, c in (np.asarray(faces) + 1).tolist()]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, ("\n".join(lines) + "\n").encode("ascii"))


def by_colour(meshes: Sequence[LinkMesh]) -> list[tuple[Array, NDArray[np.int32], tuple[float, float, float, float]]]:
    """(vertices, faces, rgba) with meshes of one colour joined, in the order in which colours first appear."""
    groups: dict[tuple[float, float, float, float], list[LinkMesh]] = {}
    for mesh in meshes:
        groups.setdefault(mesh.rgba, []).append(mesh)
    return [(*joined([(m.vertices, m.faces) for m in group]), rgba) for rgba, group in groups.items()]


def joined(meshes: Sequence[Mesh]) -> Mesh:
    """Several meshes as one."""
    starts = np.cumsum([0, *(len(v) for v, _ in meshes)])
    vertices = np.concatenate([v for v, _ in meshes])
    faces = np.concatenate([f + s for (_, f), s in zip(meshes, starts, strict=False)]).astype(np.int32)
    return vertices, faces


def write_link_glb(path: Path, meshes: Sequence[LinkMesh]) -> None:
    """One GLB per link: a mesh with a material of its own per colour. Axes as in the link, nothing is turned."""
    scene = trimesh.Scene()
    for number, (vertices, faces, rgba) in enumerate(by_colour(meshes)):
        colour = np.round(np.array(rgba) * 255).astype(np.uint8)
        material = trimesh.visual.material.PBRMaterial(baseColorFactor=colour, metallicFactor=0.0, roughnessFactor=0.8)
        mesh = trimesh.Trimesh(vertices, faces, process=False)
        mesh.visual = trimesh.visual.TextureVisuals(material=material)
        scene.add_geometry(mesh, node_name=f"part{number}", geom_name=f"part{number}")
    _write(path, cast(bytes, scene.export(file_type="glb")))


def write_surface_glb(path: Path, surface: trimesh.Trimesh) -> None:
    """A reconstructed surface with its vertex colours."""
    plain = trimesh.Trimesh(surface.vertices, surface.faces, process=False)
    colours = np.round(255 * vertex_colours(surface)).astype(np.uint8)
    plain.visual = trimesh.visual.ColorVisuals(plain, vertex_colors=colours)
    scene = trimesh.Scene()
    scene.add_geometry(plain, node_name="surface", geom_name="surface")
    _write(path, cast(bytes, scene.export(file_type="glb")))


def shapes_surface(shapes: Sequence[Shape]) -> trimesh.Trimesh:
    """Boxes and hulls as one coloured mesh, for a bench that was not meshed."""
    from recon.robot.meshes import box

    pieces, colours = [], []
    for shape in shapes:
        vertices, faces = shape.mesh if shape.mesh is not None else box(np.array(shape.size))
        pose = shape.part_from_shape
        pieces.append((vertices @ pose[:3, :3].T + pose[:3, 3], faces))
        colours += [np.round(np.array(shape.rgba) * 255)] * len(vertices)
    vertices, faces = joined(pieces)
    return trimesh.Trimesh(vertices, faces, vertex_colors=np.array(colours, np.uint8), process=False)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, data)
