"""glTF 2.0 with KHR_gaussian_splatting, in: .glb, or .gltf with its buffers inside or beside it.

Nodes that move (or that we named bodies) become bodies, everything else is placed in the world. Numbers may be
floats or integers, normalised or not, with strides; sparse and compressed ones are refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recon.geometry.convert import wxyz_from_xyzw
from recon.geometry.quaternion import quat_multiply, quat_to_matrix
from recon.geometry.sh import sh_rotations, turn_sh
from recon.scene.formats.gltf import AXES, EXTENSION, KIND
from recon.scene.formats.gltf_data import Buffers, open_gltf
from recon.scene.formats.gltf_nodes import Place, Tree
from recon.scene.formats.splats import MAX_COUNT, Columns, Splats, log_scale, logit, unreadable
from recon.scene.gaussians import RIGID, Gaussians
from recon.scene.motion import Track
from recon.scene.scene import BODY_KINDS, Body

INSTANCES = 16  # a file's bytes may be used so often: nodes can share meshes
BYTES = 13  # of the smallest Gaussian there can be: its position alone has 12


def read_gltf(path: Path) -> Splats:
    """The Gaussians of a glTF file, in `luf` axes; bodies for nodes that move.

    InputError, in one line, for a file that is none, is damaged, or holds no Gaussians that can be read.
    """
    top, data = open_gltf(path)
    tree = Tree(path, top, data)
    reader = _Reader(path, data, top)
    tables: list[Gaussians] = []
    bodies: list[Body] = []
    names: set[str] = set()
    for index in tree.reached:
        node = tree.nodes[index]
        parts = reader.mesh(node.get("mesh"))
        words = tree.words(index)
        moving = tree.moves(index) or words is not None
        if not parts and words is None:
            continue
        times, places = tree.placed(index)
        if not moving:
            tables += [put(part, places[0]) for part in parts]
            continue
        name = str(node.get("name", f"node {index}"))[:150] or f"node {index}"
        name = name if name.isprintable() and name not in names else f"node {index}"
        names.add(name)
        size = places[0].scale
        for part in parts:
            part = put(part, Place(np.array([1.0, 0, 0, 0]), np.zeros(3), size))
            ids = torch.full_like(part.object_id, len(bodies) + 1)
            tables.append(replace(part, object_id=ids, kind=torch.full_like(part.kind, RIGID)))
        bodies.append(_body(name, len(bodies) + 1, words, times, places))
    if not tables:
        raise unreadable(path, KIND, f"it holds no Gaussians (no {EXTENSION})")
    known = {body.name for body in bodies}
    kept = tuple(body if body.parent in known else replace(body, parent=None) for body in bodies)
    scene = tree.scene_words
    end = max([body.track.times[-1] for body in kept if body.track is not None], default=tree.start)
    return Splats(
        Gaussians.concat(tables) if len(tables) > 1 else tables[0], AXES, (*reader.notes(), *tree.notes()), kept,
        (tree.start, max(tree.start, float(end), tree.number(scene.get("end"), tree.start))),
        metric=scene.get("metric") is True,
    )  # fmt: skip


def _body(name: str, number: int, words: dict[str, Any] | None, times: np.ndarray, places: list[Place]) -> Body:
    words = words or {}
    kind, parent = words.get("kind"), words.get("parent")
    track = None
    if words.get("track") is not False:
        positions = floats([place.position for place in places])
        quats = floats([place.quat for place in places])
        track = Track(times, positions, quats)
    parent = parent if isinstance(parent, str) and parent != name else None
    return Body(name, number, kind if kind in BODY_KINDS else "object", parent, track)


def floats(values: Any) -> torch.Tensor:
    """float32 of numbers."""
    return torch.from_numpy(np.asarray(values, dtype=np.float32))


def put(g: Gaussians, place: Place) -> Gaussians:
    """The rows where `place` has them; as they are, to the bit, when that is nowhere else."""
    if place.scale != 1.0:
        g = replace(g, means=g.means * place.scale, log_scales=g.log_scales + math.log(place.scale))
    if not np.array_equal(place.quat, [1.0, 0, 0, 0]):
        quat = floats(place.quat)
        rotation = quat_to_matrix(quat)
        sh = turn_sh(g.sh, sh_rotations(g.degree, rotation)) if g.degree else g.sh
        g = replace(g, means=g.means @ rotation.T, quats=quat_multiply(quat.expand_as(g.quats), g.quats), sh=sh)
    if place.position.any():
        g = replace(g, means=g.means + floats(place.position))
    return g


@dataclass
class _Reader:
    """Meshes into tables, all together bounded by the file's size."""

    path: Path
    data: Buffers
    top: dict[str, Any]
    count: int = 0
    other: int = 0
    linear: bool = False

    def notes(self) -> list[str]:
        """What a person should know of what was read."""
        found = ["its colours are declared linear; they are taken as they are"] if self.linear else []
        return found + ([f"{self.other} primitives that are no Gaussians are left out"] if self.other else [])

    def mesh(self, index: Any) -> list[Gaussians]:
        """The tables of a mesh's primitives."""
        if index is None:
            return []
        mesh = self.data.entry("meshes", index)
        primitives = mesh.get("primitives")
        if not isinstance(primitives, list):
            raise unreadable(self.path, KIND, "a mesh has no primitives")
        found = []
        for primitive in primitives:
            extensions = primitive.get("extensions") if isinstance(primitive, dict) else None
            if isinstance(extensions, dict) and isinstance(extensions.get(EXTENSION), dict):
                found.append(self._table(primitive, extensions[EXTENSION]))
            else:
                self.other += 1
        return found

    def _table(self, primitive: dict[str, Any], words: dict[str, Any]) -> Gaussians:
        if primitive.get("mode") != 0:
            raise unreadable(self.path, KIND, "a primitive of Gaussians is not made of points")
        if words.get("kernel") != "ellipse":
            raise unreadable(self.path, KIND, f"its kernel is {str(words.get('kernel'))[:20]}, ellipse is read")
        self.linear |= words.get("colorSpace") == "lin_rec709_display"
        attributes = primitive.get("attributes")
        if not isinstance(attributes, dict):
            raise unreadable(self.path, KIND, "a primitive has no attributes")

        def column(name: str, kind: str) -> np.ndarray:
            if name not in attributes:
                packed = ", which may be compressed" if "extensions" in words else ""
                raise unreadable(self.path, KIND, f"its Gaussians have no {name}{packed}")
            return self.data.floats(attributes[name], kind, f"its {name}")

        means = column("POSITION", "VEC3")
        count = len(means)
        self.count += count
        if self.count > MAX_COUNT or self.count * BYTES > INSTANCES * self.data.size:
            raise unreadable(self.path, KIND, f"it declares {self.count} Gaussians, which it cannot hold")
        degree = max(d for d in range(4) if d == 0 or f"{EXTENSION}:SH_DEGREE_{d}_COEF_0" in attributes)
        columns = Columns(count, degree)

        def fill(target: np.ndarray, values: np.ndarray, name: str) -> None:
            if len(values) != count:
                raise unreadable(self.path, KIND, f"it has {count} positions, but {len(values)} of {name}")
            target[:] = values.reshape(target.shape)

        columns.means[:] = means
        fill(columns.quats, wxyz_from_xyzw(column(f"{EXTENSION}:ROTATION", "VEC4")), "rotations")
        fill(columns.log_scales, log_scale(column(f"{EXTENSION}:SCALE", "VEC3")), "scales")
        fill(columns.logit_opacities, logit(column(f"{EXTENSION}:OPACITY", "SCALAR")), "opacities")
        for d in range(degree + 1):
            for n in range(2 * d + 1):
                values = column(f"{EXTENSION}:SH_DEGREE_{d}_COEF_{n}", "VEC3")
                fill(columns.sh[:, d * d + n], values, "colours")
        columns.take(count)
        return columns.table(self.path)
