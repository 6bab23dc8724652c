"""glTF 2.0 with KHR_gaussian_splatting, out, as one binary file (.glb).

    12 bytes     "glTF" u32 version 2  u32 length
    chunks       u32 length  u32 "JSON" (spaces to a multiple of 4), then "BIN\\0": the columns one after the other
    primitive    mode 0, POSITION f32x3, COLOR_0 u8x4 (for viewers without the extension), and of the extension
                 ROTATION f32x4 (x y z w, unit), SCALE f32x3 (linear), OPACITY f32 (0..1), SH_DEGREE_l_COEF_n f32x3
    node         one mesh of the world; one per body, animated: translation f32x3, rotation f32x4, input f32 seconds

Axes are luf (x left, y up, z forward) by definition. Static: what lives in time only is frozen before. Times count from
the first; `extras.recon` of the scene and of the bodies' nodes keeps what glTF has no word for.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from recon.core.errors import InputError
from recon.core.files import replacing
from recon.geometry.convert import xyzw_from_wxyz
from recon.geometry.quaternion import quat_normalize
from recon.geometry.sh import sh0_to_rgb
from recon.geometry.srgb import to_linear
from recon.scene.formats.splats import Splats, arrays, blocks, doubles, sigmoid, to_byte
from recon.scene.gaussians import RESIDUAL, RIGID, Gaussians
from recon.scene.motion import Track
from recon.scene.scene import Body

AXES = "luf"
KIND = "glTF"
STEPS = "rotations are made unit, scales and opacities are stored linear"
EXTENSION = "KHR_gaussian_splatting"
MAGIC, VERSION, JSON_CHUNK, BIN_CHUNK = 0x46546C67, 2, 0x4E4F534A, 0x004E4942
FLOAT, BYTE, ARRAY_BUFFER = 5126, 5121, 34962
WIDTHS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4}
SAYS = {
    "kernel": "ellipse", "colorSpace": "srgb_rec709_display", "sortingMethod": "cameraDistance",
    "projection": "perspective",
}  # fmt: skip

Column = Callable[[Gaussians, slice], np.ndarray]  # table, rows -> what is written of them


@dataclass
class _Document:
    """The JSON part being made, and the binary part as a list of things to write."""

    accessors: list[dict[str, Any]] = field(default_factory=list)
    views: list[dict[str, Any]] = field(default_factory=list)
    parts: list[Callable[[BinaryIO], None]] = field(default_factory=list)
    size: int = 0

    def add(self, kind: str, count: int, write: Callable[[BinaryIO], None], **more: Any) -> int:
        """An accessor of its own view; returns its index."""
        component = more.pop("componentType", FLOAT)
        length = count * WIDTHS[kind] * (4 if component == FLOAT else 1)
        view = {"buffer": 0, "byteOffset": self.size, "byteLength": length}
        self.views.append(view | ({"target": ARRAY_BUFFER} if more.pop("vertex", False) else {}))
        self.accessors.append(
            {"bufferView": len(self.views) - 1, "componentType": component, "count": count, "type": kind, **more}
        )
        self.parts.append(write)
        self.size += length
        return len(self.accessors) - 1


def write_gltf(splats: Splats, path: Path) -> None:
    """Writes a .glb (atomically), whose world is taken to be in `luf` axes already.

    What lives in time only is written as it is at the first time. InputError for more than 4 GiB.
    """
    start = splats.time_range[0]
    g = splats.gaussians.validate("the Gaussians to write")
    document = _Document()
    world = g.select(g.kind != RIGID)
    if bool((world.kind == RESIDUAL).any()):
        world = Splats(world).frozen(start)
    meshes: list[Any] = []
    nodes: list[Any] = []
    channels: list[Any] = []
    samplers: list[Any] = []
    if len(world):
        meshes.append({"primitives": [_primitive(document, world)]})
        nodes.append({"name": "world", "mesh": 0})
    for body in splats.bodies:
        rows = g.select((g.kind == RIGID) & (g.object_id == body.id))
        node: dict[str, Any] = {"name": body.name, "extras": {"recon": _words(body)}}
        if len(rows):
            node["mesh"] = len(meshes)
            meshes.append({"primitives": [_primitive(document, rows)]})
        if body.track is not None:
            _place(document, node, len(nodes), body.track, start, channels, samplers)
        nodes.append(node)
    words = {"start": start, "end": splats.time_range[1], "metric": splats.metric}
    top: dict[str, Any] = {
        "asset": {"version": "2.0", "generator": "recon"},
        "extensionsUsed": [EXTENSION],
        "scene": 0,
        "scenes": [{"nodes": list(range(len(nodes))), "extras": {"recon": words}}],
        "nodes": nodes,
        "meshes": meshes,
        "accessors": document.accessors,
        "bufferViews": document.views,
        "buffers": [{"byteLength": document.size}],
    }
    if channels:
        top["animations"] = [{"name": "motion", "channels": channels, "samplers": samplers}]
    _write(path, {key: value for key, value in top.items() if value != []}, document)


def _write(path: Path, top: dict[str, Any], document: _Document) -> None:
    text = json.dumps(top, allow_nan=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    length = 12 + 8 + len(text) + 8 + document.size
    if length >= 2**32:
        raise InputError(f"cannot write {path}", why=f"it would have {length} bytes; a .glb has less than 4 GiB")
    with replacing(path) as file:
        file.write(struct.pack("<III", MAGIC, VERSION, length))
        file.write(struct.pack("<II", len(text), JSON_CHUNK) + text)
        file.write(struct.pack("<II", document.size, BIN_CHUNK))
        for part in document.parts:
            part(file)


def _words(body: Body) -> dict[str, Any]:
    return {"kind": body.kind, "parent": body.parent, "track": body.track is not None}


def _place(
    document: _Document, node: dict[str, Any], index: int, track: Track, start: float, channels: list[Any],
    samplers: list[Any],
) -> None:  # fmt: skip
    """Where the node is at its first knot, and an animation when there are more."""
    positions = track.positions.detach().cpu().float().numpy()
    quats = xyzw_from_wxyz(quat_normalize(doubles(track.quats)).astype(np.float32))
    # Before the scene's start there is no time in glTF: what a track says earlier is left out but for the start itself.
    times = (track.times - start).astype(np.float32)
    if times[0] < 0:
        _, p, q = track.at(start)
        later = times > 0
        times = np.concatenate([[np.float32(0)], times[later]])
        positions = np.concatenate([p.detach().cpu().float().numpy()[None], positions[later]])
        quats = np.concatenate([xyzw_from_wxyz(q.detach().cpu().float().numpy())[None], quats[later]])
    keep = np.concatenate([[True], np.diff(times) > 0])  # apart in 64 bits, together in 32
    times, positions, quats = times[keep], positions[keep], quats[keep]
    node["translation"] = positions[0].astype(float).tolist()
    node["rotation"] = quats[0].astype(float).tolist()
    if len(times) == 1:
        node["extras"]["recon"]["at"] = float(track.times[0])
        return
    limits = {"min": [float(times[0])], "max": [float(times[-1])]}
    when = document.add("SCALAR", len(times), _array(times), **limits)
    for name, kind, values in (("translation", "VEC3", positions), ("rotation", "VEC4", quats)):
        output = document.add(kind, len(times), _array(values))
        channels.append({"sampler": len(samplers), "target": {"node": index, "path": name}})
        samplers.append({"input": when, "output": output, "interpolation": "LINEAR"})


def _array(values: np.ndarray) -> Callable[[BinaryIO], None]:
    return lambda file: (file.write(np.ascontiguousarray(values, "<f4").data), None)[1]


def _primitive(document: _Document, g: Gaussians) -> dict[str, Any]:
    attributes = {}
    for name, kind, column, more in _columns(g):
        attributes[name] = document.add(kind, len(g), _blocks(g, column), vertex=True, **more)
    return {"attributes": attributes, "mode": 0, "extensions": {EXTENSION: dict(SAYS)}}


def _blocks(g: Gaussians, column: Column) -> Callable[[BinaryIO], None]:
    def write(file: BinaryIO) -> None:
        for rows in blocks(len(g)):
            file.write(np.ascontiguousarray(column(g, rows)).data)

    return write


def _columns(g: Gaussians) -> Iterator[tuple[str, str, Column, dict[str, Any]]]:
    means = doubles(g.means)
    limits = {"min": means.min(0).tolist(), "max": means.max(0).tolist()}
    yield "POSITION", "VEC3", lambda g, rows: arrays(g, rows)[0].astype("<f4"), limits
    yield "COLOR_0", "VEC4", _fallback, {"componentType": BYTE, "normalized": True}
    yield f"{EXTENSION}:ROTATION", "VEC4", lambda g, rows: xyzw_from_wxyz(arrays(g, rows)[2]).astype("<f4"), {}
    yield f"{EXTENSION}:SCALE", "VEC3", lambda g, rows: np.exp(arrays(g, rows)[1].astype(float)).astype("<f4"), {}
    yield f"{EXTENSION}:OPACITY", "SCALAR", lambda g, rows: sigmoid(arrays(g, rows)[3].astype(float)).astype("<f4"), {}
    for degree in range(g.degree + 1):
        for n in range(2 * degree + 1):
            name = f"{EXTENSION}:SH_DEGREE_{degree}_COEF_{n}"
            yield name, "VEC3", _coefficient(degree * degree + n), {}


def _coefficient(k: int) -> Column:
    return lambda g, rows: arrays(g, rows)[4][:, k].astype("<f4")


def _fallback(g: Gaussians, rows: slice) -> np.ndarray:
    """Colour and opacity as bytes; glTF's vertex colours are linear."""
    _, _, _, logits, sh = arrays(g, rows)
    srgb = np.clip(sh0_to_rgb(sh[:, 0]), 0, 1)
    return to_byte(np.concatenate([to_linear(srgb), sigmoid(logits)[:, None]], 1))
