"""A folder for Genesis 1.4: URDF of robot, bench and bodies, Gaussians of every carrier, scripts."""

from __future__ import annotations

from pathlib import Path

from sim2real.export.cargo import Cargo
from sim2real.export.folder import copy_scripts, write_splats
from sim2real.export.header import write_header
from sim2real.export.urdf import write_urdfs

ABOUT = (
    "URDF of robot, bench and bodies and a static light field of the bench, for Genesis 1.4 (gs-nyx draws it on a GPU)"
)
LOSSES = (
    "Gaussians of links and bodies in Genesis' own pictures: its light fields stand still; draw.py draws all of them",
    "shape and softness of contacts: friction is kept, contacts are Genesis' own",
)
HOW_TO_OPEN = "python {out}/genesis_scene.py"


def write(cargo: Cargo, folder: Path) -> None:
    """Write everything into the (staging) folder."""
    write_urdfs(cargo, folder, "obj")  # Genesis turns GLB files upright itself
    write_header(cargo, folder, write_splats(cargo, folder))
    copy_scripts(folder, "genesis_scene.py", "described.py", "draw.py")
