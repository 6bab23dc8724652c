"""Scene folders: a JSON header, safetensors beside it, published atomically and verified on reading.

    scene.json gaussians.safetensors tracks.safetensors colour.safetensors rig.json manifest.json

Schemas are in ARCHITECTURE.md. Other parts of the program may put further files in the folder.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recon.core.errors import CorruptError, InputError, ReconError, did_you_mean
from recon.core.files import publishing, read_json, verify_folder, write_json
from recon.core.tensors import read_tensors, write_tensors
from recon.geometry.rig import rig_from_json, rig_to_json
from recon.scene.gaussians import Gaussians, table_fields
from recon.scene.motion import Track
from recon.scene.scene import Affine, Body, Scene

FORMAT, VERSION = "recon-scene", 1
FILES = ("scene.json", "gaussians.safetensors", "tracks.safetensors", "colour.safetensors", "rig.json")

# field -> (accepted types, how to say so). All are required.
_HEADER: dict[str, tuple[tuple[type, ...], str]] = {
    "format": ((str,), "text"),
    "version": ((int,), "a whole number"),
    "metric": ((bool,), "true or false"),
    "up": ((str,), "text"),
    "scene_from_rig": ((list,), "a list"),
    "time_range": ((list,), "a list"),
    "gaussians": ((dict,), "an object"),
    "bodies": ((list,), "a list"),
    "colour": ((list,), "a list"),
    "frame_times": ((dict,), "an object"),
    "provenance": ((dict,), "an object"),
}
_BODY: dict[str, tuple[tuple[type, ...], str]] = {
    "name": ((str,), "text"),
    "id": ((int,), "a whole number"),
    "kind": ((str,), "text"),
    "parent": ((str, type(None)), "text or null"),
    "track": ((bool,), "true or false"),
}
_COUNTS: dict[str, tuple[tuple[type, ...], str]] = {
    "count": ((int,), "a whole number"),
    "sh_degree": ((int,), "a whole number"),
}


def find_scene(name: str | Path) -> Path:
    """A scene folder by path or by name: NAME itself, then scenes/NAME. InputError, naming those there are."""
    places = [Path(name), Path("scenes") / name]
    for path in (*(place for place in places if (place / "scene.json").is_file()), *places):
        if path.exists():
            return path
    found = [path.parent.name for path in sorted(Path("scenes").glob("*/scene.json"))]
    raise InputError(
        f"there is no scene '{name}'",
        why=f"neither {places[0]} nor {places[1]} is there",
        fix=did_you_mean(str(name), found) if found else "make one with recon build",
    )


def save_scene(
    scene: Scene, path: Path, *, extras: Callable[[Path], None] | None = None, overwrite: bool = True
) -> None:
    """Publishes `scene` as the folder `path`, all or nothing; an older scene there is replaced.

    `extras(staging)` may write further files (report, collision meshes) that the manifest is to cover.
    Raises InputError for a scene that does not hold together, StorageError when it cannot be written.
    """
    scene.validate()
    g = scene.gaussians
    header = {
        "format": FORMAT,
        "version": VERSION,
        "metric": scene.metric,
        "up": scene.up,
        "scene_from_rig": np.asarray(scene.scene_from_rig, dtype=np.float64).tolist(),
        "time_range": [float(t) for t in scene.time_range],
        "gaussians": {"count": len(g), "sh_degree": g.degree},
        "bodies": [
            {"name": b.name, "id": b.id, "kind": b.kind, "parent": b.parent, "track": b.track is not None}
            for b in scene.bodies
        ],
        "colour": list(scene.colour),
        "frame_times": {name: [float(t) for t in times] for name, times in scene.frame_times.items()},
        "provenance": scene.provenance,
    }
    with publishing(path, overwrite=overwrite) as stage:
        write_json(stage / "scene.json", header)
        write_json(stage / "rig.json", rig_to_json(scene.rig))
        write_tensors(stage / "gaussians.safetensors", g.tensors())
        write_tensors(stage / "tracks.safetensors", _track_tensors(scene.bodies))
        write_tensors(stage / "colour.safetensors", _colour_tensors(scene.colour, scene.vignetting))
        if extras is not None:
            extras(stage)


def load_scene(path: Path | str) -> Scene:
    """The scene in the folder `path`, on the CPU, after checking every file's hash and every field.

    Raises InputError when there is no scene or it is of another version, CorruptError naming the file that changed
    since it was written.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a scene", why="there is no such folder")
    listed = verify_folder(folder)
    header = _header(folder)
    for name in FILES:
        if name not in listed:
            raise CorruptError(f"{folder / name} is damaged", why="the manifest does not list it")
    columns = read_tensors(folder / "gaussians.safetensors")
    g = _gaussians(columns, header["gaussians"], folder / "gaussians.safetensors")
    bodies = _bodies(header["bodies"], read_tensors(folder / "tracks.safetensors"), folder)
    colour, vignetting = _colour(header["colour"], read_tensors(folder / "colour.safetensors"), folder)
    where = str(folder / "scene.json")
    scene = Scene(
        gaussians=g,
        rig=rig_from_json(read_json(folder / "rig.json"), str(folder / "rig.json")),
        time_range=_range(header["time_range"], where),
        bodies=bodies,
        scene_from_rig=np.array([_numbers(row, 4, f"{where}: scene_from_rig") for row in header["scene_from_rig"]]),
        up=header["up"],
        metric=header["metric"],
        colour=colour,
        vignetting=vignetting,
        provenance=header["provenance"],
        frame_times={
            name: _numbers(times, None, f"{where}: frame_times of '{name}'")
            for name, times in header["frame_times"].items()
        },
    )
    try:
        return scene.validate()
    except ReconError as error:
        raise InputError(f"{folder} is not a usable scene", why=str(error)) from error


def _header(folder: Path) -> dict[str, Any]:
    where = folder / "scene.json"
    header = read_json(where)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f"{where} is not the header of a scene", why=f'it has no "format": "{FORMAT}"')
    if header.get("version") != VERSION:
        raise InputError(
            f"{where} has version {header.get('version')!r}",
            why=f"this program reads version {VERSION}",
            fix="Build the scene again, or use the program that wrote it.",
        )
    _check(header, _HEADER, str(where))
    _check(header["gaussians"], _COUNTS, f"{where}: gaussians")
    for index, body in enumerate(header["bodies"]):
        _check(body, _BODY, f"{where}: bodies[{index}]")
    return header


def _check(value: Any, schema: dict[str, tuple[tuple[type, ...], str]], where: str) -> None:
    if not isinstance(value, dict):
        raise InputError(f"{where} is not a JSON object")
    for key in value:
        if key not in schema:
            raise InputError(f"{where}: unknown field '{key}'", fix=did_you_mean(key, schema))
    for key, (types, words) in schema.items():
        if key not in value:
            raise InputError(f"{where}: the field '{key}' is missing")
        if not isinstance(value[key], types) or (isinstance(value[key], bool) and bool not in types):
            raise InputError(f"{where}: {key} is {str(value[key])[:60]!r}", why=f"it must be {words}")


def _gaussians(columns: dict[str, torch.Tensor], counts: dict[str, Any], where: Path) -> Gaussians:
    if set(columns) != set(table_fields()):
        odd = sorted(set(columns) ^ set(table_fields()))
        raise InputError(f"{where} does not hold the columns of a scene", why=f"missing or unknown: {', '.join(odd)}")
    g = Gaussians(**columns).validate(str(where))
    if g.means.dtype != torch.float32 or len(g) != counts["count"] or g.degree != counts["sh_degree"]:
        raise InputError(
            f"{where} holds {len(g)} Gaussians of degree {g.degree}, {g.means.dtype}",
            why=f"scene.json says {counts['count']} of degree {counts['sh_degree']}, float32",
        )
    return g


def _track_tensors(bodies: list[Body]) -> dict[str, torch.Tensor]:
    tensors = {}
    for body in bodies:
        if body.track is not None:
            tensors[f"{body.id}.times"] = torch.from_numpy(body.track.times.copy())
            tensors[f"{body.id}.positions"] = body.track.positions.detach().float()
            tensors[f"{body.id}.quats"] = body.track.quats.detach().float()
    return tensors


def _bodies(entries: list[dict[str, Any]], tensors: dict[str, torch.Tensor], folder: Path) -> list[Body]:
    bodies = []
    for entry in entries:
        track = None
        if entry["track"]:
            names = [f"{entry['id']}.{part}" for part in ("times", "positions", "quats")]
            if any(name not in tensors for name in names):
                raise InputError(f"{folder / 'tracks.safetensors'} lacks the track of body '{entry['name']}'")
            times, positions, quats = (tensors[name] for name in names)
            if not (_is_double(times) and positions.dtype == quats.dtype == torch.float32):
                raise InputError(f"{folder / 'tracks.safetensors'}: body '{entry['name']}' has odd number types")
            try:
                track = Track(times.numpy(), positions, quats)
            except InputError as error:
                where = f"{folder / 'tracks.safetensors'}: body '{entry['name']}'"
                raise InputError(f"{where}: {error.what}", why=error.why, fix=error.fix) from error
        bodies.append(Body(entry["name"], entry["id"], entry["kind"], entry["parent"], track))
    expected = {f"{b.id}.{part}" for b in bodies if b.track is not None for part in ("times", "positions", "quats")}
    if set(tensors) - expected:
        raise InputError(f"{folder / 'tracks.safetensors'} holds {min(set(tensors) - expected)!r} of no body")
    return bodies


def _is_double(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.element_size() == 8


def _colour_tensors(colour: dict[str, Affine], vignetting: dict[str, float]) -> dict[str, torch.Tensor]:
    count = len(colour)
    matrices = np.array([matrix for matrix, _ in colour.values()], dtype=np.float64).reshape(count, 3, 3)
    offsets = np.array([offset for _, offset in colour.values()], dtype=np.float64).reshape(count, 3)
    falloff = np.array([vignetting.get(name, 0.0) for name in colour], dtype=np.float64)
    return {
        name: torch.from_numpy(x) for name, x in (("matrix", matrices), ("offset", offsets), ("vignetting", falloff))
    }


def _colour(
    names: list[Any], tensors: dict[str, torch.Tensor], folder: Path
) -> tuple[dict[str, Affine], dict[str, float]]:
    """(affine maps, vignetting) by camera; scenes of earlier versions have no vignetting."""
    where, count = folder / "colour.safetensors", len(names)
    tensors = {"vignetting": torch.from_numpy(np.zeros(count)), **tensors}
    if not all(isinstance(name, str) for name in names) or len(set(names)) != count:
        raise InputError(f"{folder / 'scene.json'}: colour must list different camera names")
    for key, shape in (("matrix", (count, 3, 3)), ("offset", (count, 3)), ("vignetting", (count,))):
        tensor = tensors.get(key)
        if tensor is None or tuple(tensor.shape) != shape or not _is_double(tensor):
            raise InputError(f"{where}: {key} is missing or not float64 of shape {list(shape)}")
    matrix, offset = tensors["matrix"].numpy(), tensors["offset"].numpy()
    affine = {name: (matrix[i], offset[i]) for i, name in enumerate(names)}
    return affine, dict(zip(names, tensors["vignetting"].tolist(), strict=True))


def _range(value: list[Any], where: str) -> tuple[float, float]:
    start, end = _numbers(value, 2, f"{where}: time_range")
    return start, end


def _numbers(value: Any, count: int | None, where: str) -> list[float]:
    numeric = isinstance(value, list) and all(
        isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x) for x in value
    )
    if not numeric or (count is not None and len(value) != count):
        raise InputError(f"{where} is not a list of {'' if count is None else f'{count} '}numbers")
    return [float(x) for x in value]
