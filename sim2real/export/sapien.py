"""A folder for SAPIEN 3, on which RoboTwin and ManiSkill 3 run: URDF, GLB surfaces, Gaussians, two scripts.

`gsdf.json` lists the Gaussians the way wrappers of that family read them: per file its carrier and a 4x4.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from recon.core.files import write_json
from sim2real.export.cargo import Cargo
from sim2real.export.folder import copy_scripts, write_splats
from sim2real.export.header import file_names, write_header
from sim2real.export.urdf import write_urdfs

ABOUT = "URDF with GLB surfaces, Gaussians and a wrapper that draws them, for SAPIEN 3 (RoboTwin, ManiSkill 3)"
LOSSES = (
    "a coupled finger: SAPIEN's own mimic is left out where URDF's is not read; the script drives both fingers",
    "shape and softness of contacts: friction is kept, contacts are PhysX's own",
)
HOW_TO_OPEN = "python {out}/sapien_scene.py"


def write(cargo: Cargo, folder: Path) -> None:
    """Write everything into the (staging) folder."""
    write_urdfs(cargo, folder, "glb")
    files = write_splats(cargo, folder)
    write_header(cargo, folder, files)
    names = file_names(cargo)
    starts = {thing.name: thing.world_from_thing for thing in cargo.things}
    entries = [
        {"ply": file, "link": names.get(name, name), "kind": cargo.skins[name].kind,
         "transform": starts.get(name, np.eye(4)).tolist()}
        for name, file in files.items()
    ]  # fmt: skip
    write_json(folder / "gsdf.json", entries)
    copy_scripts(folder, "sapien_scene.py", "described.py", "draw.py")
