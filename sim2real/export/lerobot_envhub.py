"""A folder that is a LeRobot EnvHub repository: `env.py` with `make_env`, and the scene."""

from __future__ import annotations

from pathlib import Path

from sim2real.export.bundle import write_bundle
from sim2real.export.cargo import Cargo
from sim2real.export.folder import copy_scripts, write_splats
from sim2real.export.header import write_header

ABOUT = "`env.py` with `make_env` and the scene, for LeRobot's EnvHub and lerobot-eval"
LOSSES = ("nothing of the environment: it is this one, and needs recon4d where it runs",)
HOW_TO_OPEN = "upload {out} to a hub repository, then lerobot-eval with --env.hub_path"


def write(cargo: Cargo, folder: Path) -> None:
    """Write everything into the (staging) folder."""
    write_bundle(cargo, folder)
    write_header(cargo, folder, write_splats(cargo, folder))
    copy_scripts(folder, "env.py")
    (folder / "requirements.txt").write_text("recon4d[sim]\n", encoding="utf-8")
