"""A scene that can leave alone: its folder, meshes and robot in one place, no path of this machine inside."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from recon.geometry.rig import RobotEntry
from recon.mesh.folder import MESHES
from recon.robot.source import load_spec
from recon.scene.folder import save_scene
from sim2real.export.cargo import Cargo
from sim2real.export.mujoco import copy_assets

SCENE = "scene"
ROBOT = "robot/robot.xml"


def write_bundle(cargo: Cargo, folder: Path) -> None:
    """`scene/` in `folder`: what `recon.load_scene` and `sim2real.make_vec` take."""
    assert cargo.rig.robot is not None  # there is no cargo without
    given = cargo.scene.rig.robot
    base = given.world_from_base if given is not None else None
    entry = RobotEntry(ROBOT, "MJCF", cargo.base, None, base)
    # where the scene came from says nothing elsewhere, and may name folders of this machine
    kept = {key: value for key, value in cargo.scene.provenance.items() if not _is_path(value)}
    scene = replace(cargo.scene, rig=replace(cargo.scene.rig, robot=entry), provenance=kept)
    save_scene(scene, folder / SCENE)
    spec = load_spec(cargo.robot_file)
    place = folder / SCENE / "robot"
    place.mkdir()
    copy_assets(spec, place, Path(spec.modelfiledir or "."))
    spec.compile()
    (folder / SCENE / ROBOT).write_text(spec.to_xml(), encoding="utf-8")
    if (cargo.folder / MESHES).is_dir():
        shutil.copytree(cargo.folder / MESHES, folder / SCENE / MESHES)


def _is_path(value: object) -> bool:
    return isinstance(value, str) and ("/" in value or "\\" in value)
