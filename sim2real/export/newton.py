"""A folder for Newton 1.8: the USD of `usd.py`, whose bodies carry their Gaussians, and a script for its CPU device."""

from __future__ import annotations

from pathlib import Path

from sim2real.export import usd
from sim2real.export.cargo import Cargo
from sim2real.export.folder import copy_scripts

ABOUT = "OpenUSD whose bodies carry their Gaussians and a script that steps and draws them, for Newton 1.8"
LOSSES = (
    "couplings of joints (a gripper's second finger): each finger has a drive of its own",
    "view-dependent colour and soft edges: Newton draws the mean colour, and a pixel is opaque or empty",
    "a camera's own colours",
)
HOW_TO_OPEN = "python {out}/newton_scene.py   (pip install newton[sim] usd-core newton-usd-schemas)"


def write(cargo: Cargo, folder: Path) -> None:
    """Write everything into the (staging) folder. UnavailableError without usd-core."""
    usd.write(cargo, folder)
    copy_scripts(folder, "newton_scene.py", "described.py")
