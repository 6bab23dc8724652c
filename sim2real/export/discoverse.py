"""The MuJoCo folder with one PLY per body in its own frame, as DISCOVERSE and the package gaussian-renderer read them.

`gs_model_dict.json` maps the MJCF's body names to files; what stands still is `background`.
"""

from __future__ import annotations

from pathlib import Path

from recon.core.files import write_json
from sim2real.export import mujoco
from sim2real.export.cargo import Cargo
from sim2real.export.folder import copy_scripts
from sim2real.export.header import file_names, write_header
from sim2real.export.skins import WORLD_SKIN, write_skins

ABOUT = "the MuJoCo folder and a PLY per body in its own frame, for DISCOVERSE (and gaussian-renderer)"
LOSSES = (
    "view-dependent colour of what turns: the renderer leaves a body's harmonics where they were",
    "a camera's own colours",
)
HOW_TO_OPEN = "gs_model_dict.json is the renderer's models_dict, scene.xml its mj_model; both in {out}"
FOLDER, BACKGROUND = "3dgs", "background"


def write(cargo: Cargo, folder: Path) -> None:
    """Write everything into the (staging) folder."""
    mujoco.write(cargo, folder)
    names = file_names(cargo) | {WORLD_SKIN: BACKGROUND}
    files = {name: f"{FOLDER}/{file}" for name, file in write_skins(cargo.skins, folder / FOLDER, names).items()}
    write_header(cargo, folder, files)
    models = {BACKGROUND if name == WORLD_SKIN else name: file for name, file in files.items()}
    write_json(folder / "gs_model_dict.json", models)
    copy_scripts(folder, "draw.py")
