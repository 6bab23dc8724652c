"""Whose robot it is when a calibration without one is given beside recordings that have their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from recon.calibrate.rig import load_rig
from recon.core.files import data_file
from recon.geometry.rig import Rig
from recon.inputs import recorded_robot, same_world

OWN = data_file("demo/rig.json")
VIDEOS = OWN.parent / "cams"
OTHER = [Path("elsewhere.json")]


def plain() -> Rig:
    return replace(load_rig([OWN]), robot=None)


def test_the_recordings_own_robot_is_found_when_the_cameras_stand_alike() -> None:
    found = recorded_robot(VIDEOS, plain(), OTHER)
    assert found is not None
    assert found[0] == OWN.parent.resolve() and found[1].joint_log is not None


def test_another_world_is_not_mixed_with_it() -> None:
    turned = np.eye(4)
    turned[:2, :2] = [[0.0, -1.0], [1.0, 0.0]]
    shifted = np.eye(4)
    shifted[0, 3] = 0.3
    for transform in (turned, shifted):
        moved = plain().transformed(transform)
        assert not same_world(plain(), moved)
        assert recorded_robot(VIDEOS, moved, OTHER) is None


def test_other_cameras_or_too_few_tell_nothing() -> None:
    rig = plain()
    two = replace(rig, cameras=dict(list(rig.cameras.items())[:2]), roles={})
    assert recorded_robot(VIDEOS, two, OTHER) is None
    renamed = {f"x{name}": replace(camera, name=f"x{name}") for name, camera in rig.cameras.items()}
    assert not same_world(rig, replace(rig, cameras=renamed, roles={}))


def test_the_same_file_is_not_looked_at_twice(tmp_path: Path) -> None:
    assert recorded_robot(VIDEOS, plain(), [OWN]) is None
    assert recorded_robot(tmp_path, plain(), OTHER) is None
