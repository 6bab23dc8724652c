"""One SPZ file per carrier in its own frame: a tenth of the PLYs' size, for programs that read no robots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from recon.scene.formats import spz
from recon.scene.formats.axes import rotation, turned
from sim2real.export.cargo import Cargo
from sim2real.export.folder import SPLATS
from sim2real.export.header import file_names, write_header
from sim2real.export.skins import write_skins

ABOUT = "Gaussians alone, one SPZ per link and body in its own frame, and scene.json with where they are"
LOSSES = (
    "physics: masses and joints are in scene.json, shapes are not there",
    "exact numbers: SPZ rounds positions to 1/4096 m and the rest to bytes",
    "the way up: SPZ files are y up by definition, so every frame is turned by a quarter about x",
)
HOW_TO_OPEN = "any viewer of SPZ files: {out}/splats/world.spz"
SCENE_AXES = "rfu"


def write(cargo: Cargo, folder: Path) -> None:
    """Write everything into the (staging) folder."""
    turn = rotation(spz.AXES, SCENE_AXES)
    skins = {name: replace(skin, gaussians=turned(skin.gaussians, turn)) for name, skin in cargo.skins.items()}
    files = write_skins(skins, folder / SPLATS, file_names(cargo), ".spz")
    write_header(cargo, folder, {name: f"{SPLATS}/{file}" for name, file in files.items()}, splat_axes=spz.AXES)
