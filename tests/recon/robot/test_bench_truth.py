"""Against a rendered capture with exact truth: link poses and silhouettes of a Panda (needs RECON_CAPTURES)."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from recon.geometry.rig import Rig, rig_from_json
from recon.robot import JointLog, RobotModel, draw_robot, link_ids, load_robot, read_joint_log

CAPTURE = Path(os.environ.get("RECON_CAPTURES", "/nonexistent")) / "bench01"
pytestmark = pytest.mark.skipif(not CAPTURE.is_dir(), reason="RECON_CAPTURES names no folder with this capture")


def truth(name: str) -> Any:
    return json.loads((CAPTURE / "truth" / name).read_text())


@pytest.fixture(scope="module")
def panda() -> RobotModel:
    return load_robot(CAPTURE / "robot" / "robot.xml", base_body="link0")


@pytest.fixture(scope="module")
def log() -> JointLog:
    return read_joint_log(CAPTURE / "robot" / "joints.csv")


@pytest.fixture(scope="module")
def rig() -> Rig:
    return rig_from_json(truth("rig_true.json"), "rig_true.json")


@pytest.fixture(scope="module")
def base() -> np.ndarray:
    return np.array(truth("robot_base.json")["world_from_base"])


def test_link_poses(panda: RobotModel, log: JointLog, base: np.ndarray) -> None:
    log.check_against(panda)
    offset, links = truth("timing.json")["robot_clock_offset_s"], truth("robot_links.json")
    for k, t in enumerate(links["times_s"]):
        poses = panda.link_poses(log.at(t + offset), base)
        for name, track in links["links"].items():
            true = np.array(track[k])
            assert np.linalg.norm(poses[name][:3, 3] - true[:3, 3]) < 1e-3
            cosine = (np.trace(poses[name][:3, :3].T @ true[:3, :3]) - 1) / 2
            assert np.arccos(np.clip(cosine, -1, 1)) < 1e-3


@pytest.mark.parametrize("name", ["cam00", "cam05", "cam08", "cam09"])
def test_silhouettes(panda: RobotModel, log: JointLog, rig: Rig, base: np.ndarray, name: str) -> None:
    timing, values = truth("timing.json"), truth("masks/ids.json")["ids"]
    clock = timing["cameras"][name]
    painted = np.zeros(len(panda.links) + 1, int)
    for link, index in link_ids(panda).items():
        painted[index] = values[f"link:{link}"]
    for path in sorted((CAPTURE / "truth" / "masks" / name).glob("*.png")):
        t = clock["offset_s"] + clock["pts_s"][int(path.stem)]
        mask = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        picture = draw_robot(panda, log.at(t + timing["robot_clock_offset_s"]), rig.cameras[name], base)
        ours = picture.mask & ((mask == 0) | (mask >= 100))  # objects may hide the robot
        true = mask >= 100
        assert (ours & true).sum() / (ours | true).sum() >= 0.97
        assert (painted[picture.links] == mask)[ours & true].mean() >= 0.97


@pytest.mark.parametrize("name", ["cam00", "cam03", "cam09"])  # cam03 has lens distortion
def test_a_panda_takes_little_time(panda: RobotModel, log: JointLog, rig: Rig, base: np.ndarray, name: str) -> None:
    q, best = log.at(1.0), np.inf
    for _ in range(5):
        start = time.process_time()
        draw_robot(panda, q, rig.cameras[name], base)
        best = min(best, time.process_time() - start)
    assert best < 0.6  # 0.3 s on an idle core; a shared one is slower
