"""A folder for PyBullet: URDF of robot, bench and bodies, Gaussians per link and body, two scripts."""

from __future__ import annotations

from pathlib import Path

from sim2real.export.cargo import Cargo
from sim2real.export.folder import copy_scripts, write_splats
from sim2real.export.header import write_header
from sim2real.export.urdf import write_urdfs

ABOUT = "URDF of robot, bench and bodies for PyBullet, Gaussians beside them"
LOSSES = (
    "joint armature: URDF has no word for it",
    "gains of servos: Bullet's own hold stiffly, with the robot's force limits, and carry the arm's weight",
    "a millimetre: Bullet grows convex meshes by that much, so bodies rest 1 mm higher than in MuJoCo",
    "shape and softness of contacts: friction is kept, contacts are Bullet's own",
    "colours of bodies and bench in Bullet's pictures: each has its mean colour; draw.py draws the Gaussians",
)
HOW_TO_OPEN = "python {out}/pybullet_scene.py --gui"


def write(cargo: Cargo, folder: Path) -> None:
    """Write everything into the (staging) folder."""
    write_urdfs(cargo, folder, "obj")
    write_header(cargo, folder, write_splats(cargo, folder))
    copy_scripts(folder, "pybullet_scene.py", "described.py", "draw.py")
