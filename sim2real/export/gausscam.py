"""The MuJoCo folder with `scene.ply` and `links/<body>.ply`, as the package gausscam reads them."""

from __future__ import annotations

from pathlib import Path

from recon.core.errors import InputError
from recon.scene.formats.ply import write_ply
from sim2real.export import mujoco
from sim2real.export.cargo import Cargo
from sim2real.export.folder import copy_scripts
from sim2real.export.header import write_header
from sim2real.export.skins import WORLD_SKIN

ABOUT = "the MuJoCo folder, `scene.ply` and a PLY per body named as the body, for gausscam"
LOSSES = ("view-dependent colour of bodies: gausscam draws degree 0 of them", "a camera's own colours")
HOW_TO_OPEN = "SceneSplat.load('{out}/scene.ply'), RobotSplat.load_dir('{out}/links'), poses from scene.xml"


def write(cargo: Cargo, folder: Path) -> None:
    """Write everything into the (staging) folder. InputError for a body whose name cannot be a file's."""
    mujoco.write(cargo, folder)
    (folder / "links").mkdir()
    files = {}
    for name, skin in cargo.skins.items():
        if len(skin.gaussians) == 0:
            continue
        if name != WORLD_SKIN and (name.startswith(".") or any(c in '/\\:*?"<>|' or ord(c) < 32 for c in name)):
            raise InputError(f"body {name!r} cannot be exported to gausscam", why="files there are named as bodies")
        files[name] = "scene.ply" if name == WORLD_SKIN else f"links/{name}.ply"
        write_ply(skin.gaussians, folder / files[name])
    write_header(cargo, folder, files)
    copy_scripts(folder, "draw.py")
