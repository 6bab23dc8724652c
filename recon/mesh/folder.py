"""The folder of a scene's solid things: `bodies/meshes.json` and, per thing, surface, pieces, mass and audit.

    meshes.json   <name>/visual.glb   <name>/collision/00.obj ...   <name>/inertia.json   manifest.json

Schemas are in ARCHITECTURE.md.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import trimesh

from recon.core.errors import CorruptError, InputError
from recon.core.files import publishing, read_json, verify_folder, write_bytes, write_json
from recon.mesh.inertia import MassProperties
from recon.mesh.solid import Solid, SolidSettings

MESHES = "bodies"  # in a scene's folder
FORMAT, VERSION = "recon-meshes", 1
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RESERVED = {"meshes.json", "manifest.json"}


@dataclass(frozen=True, eq=False)
class Made:
    """One thing to write. kind: 'bench', 'object' or 'link'; the bench has no mass."""

    solid: Solid
    kind: str
    settings: SolidSettings
    mass: MassProperties | None


def write_meshes(out: Path, made: list[Made], scene_key: str) -> None:
    """Publishes the folder `out`, all or nothing. Raises StorageError when it cannot be written.

    scene_key: of the build the scene came from, so that older meshes of a newer scene can be told.
    """
    entries = []
    taken: set[str] = set(RESERVED)
    with publishing(out) as stage:
        for index, thing in enumerate(made):
            folder = folder_name(thing.solid.name, index, taken)
            taken.add(folder)
            _write_solid(stage / folder, thing.solid)
            if thing.mass is not None:
                write_json(stage / folder / "inertia.json", thing.mass.to_json())
            entries.append(describe(thing) | {"folder": folder})
        write_json(
            stage / "meshes.json", {"format": FORMAT, "version": VERSION, "scene_key": scene_key, "bodies": entries}
        )


def folder_name(name: str, index: int, taken: set[str]) -> str:
    """The body's own name where that makes a plain, free folder name on any system; else `body-<index>`."""
    if PLAIN_NAME.fullmatch(name) and name.lower() not in {other.lower() for other in taken}:
        return name
    return f"body-{index}"


def _write_solid(folder: Path, solid: Solid) -> None:
    (folder / "collision").mkdir(parents=True)
    write_bytes(folder / "visual.glb", cast(bytes, solid.surface.export(file_type="glb")))
    for number, piece in enumerate(solid.pieces):
        plain = trimesh.Trimesh(piece.vertices, piece.faces)
        text = cast(str, plain.export(file_type="obj", header=None, digits=7))
        write_bytes(folder / "collision" / f"{number:02d}.obj", text.encode("ascii"))


def describe(thing: Made) -> dict[str, Any]:
    """The thing's entry of meshes.json, without its folder."""
    solid, mass = thing.solid, thing.mass
    return {
        "name": solid.name,
        "kind": thing.kind,
        "faces": len(solid.surface.faces),
        "closed": bool(solid.surface.is_watertight),
        "never_seen": solid.never_seen,
        "pieces": len(solid.pieces),
        "mass": None if mass is None else mass.mass,
        "density_source": None if mass is None else mass.source,
        "gap": solid.gap.to_json(),
        "spread_mm": solid.spread_mm,
        "settings": asdict(thing.settings),
    }


def read_meshes(folder: Path) -> list[dict[str, Any]]:
    """The entries of `meshes.json` in a folder that `write_meshes` made, after checking every file's hash.

    Raises InputError when it is no such folder or of another version, CorruptError naming a file that changed.
    """
    listed = verify_folder(folder)
    header = read_json(folder / "meshes.json")
    if not isinstance(header, dict) or header.get("format") != FORMAT or header.get("version") != VERSION:
        raise InputError(f"{folder / 'meshes.json'} is not of this version", fix="Run `recon mesh` again.")
    entries = header.get("bodies")
    if not isinstance(entries, list):
        raise InputError(f"{folder / 'meshes.json'}: bodies must be a list")
    for entry in entries:
        if f"{entry['folder']}/visual.glb" not in listed:
            raise CorruptError(f"{folder} is not complete", why=f"{entry['folder']}/visual.glb is not listed")
    return entries


@dataclass(frozen=True, eq=False)
class Published:
    """One thing of a published folder. pieces: convex, vertices [V, 3] m each. mass: inertia.json, or None."""

    name: str
    kind: str
    folder: Path
    pieces: tuple[np.ndarray, ...]
    mass: dict[str, Any] | None

    def surface(self) -> trimesh.Trimesh:
        """As it was reconstructed, with vertex colours."""
        return _mesh(self.folder / "visual.glb")


def read_published(scene_folder: Path, scene_key: str) -> dict[str, Published]:
    """What `recon mesh` published for a scene, by name; nothing where it did not run.

    Raises InputError when it belongs to another build of the scene or lacks pieces, and like `read_meshes`.
    """
    home = scene_folder / MESHES
    if not (home / "meshes.json").is_file():
        return {}
    again = "Run `recon mesh` again."
    entries = read_meshes(home)
    header = read_json(home / "meshes.json")
    if isinstance(header, dict) and header.get("scene_key") != scene_key:
        raise InputError(
            f"{home} belongs to another build of this scene", why="its bodies may lie elsewhere", fix=again
        )
    found = {}
    for entry in entries:
        folder = home / entry["folder"]
        pieces = tuple(np.asarray(_mesh(file).vertices, float) for file in sorted((folder / "collision").glob("*.obj")))
        mass = read_json(folder / "inertia.json") if (folder / "inertia.json").is_file() else None
        if not pieces or not all(len(piece) >= 4 for piece in pieces):
            raise InputError(f"{folder} has no pieces to collide with", fix=again)
        if entry["kind"] == "object" and not isinstance(mass, dict):
            raise InputError(f"{folder} has no mass", fix=again)
        found[entry["name"]] = Published(entry["name"], entry["kind"], folder, pieces, cast("dict[str, Any]", mass))
    return found


def _mesh(file: Path) -> trimesh.Trimesh:
    return cast(trimesh.Trimesh, trimesh.load(file, force="mesh", process=False))


def summary(entry: dict[str, Any]) -> str:
    """What a person wants to know of one entry of meshes.json, in one line."""
    gap = entry["gap"]
    mass = "" if entry["mass"] is None else f", {entry['mass']:.3g} kg (density {entry['density_source']})"
    return (
        f"{entry['name']}: {entry['faces']} faces, {100 * entry['never_seen']:.0f} % never seen, {entry['pieces']} "
        f"collision pieces, gap p95 {gap['p95_mm']:.1f} mm, {100 * gap['beyond_5mm']:.1f} % beyond 5 mm{mass}"
    )
