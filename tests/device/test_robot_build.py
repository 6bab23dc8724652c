"""A whole build with a robot, from a shrunken copy of the demo's recordings, on the second simulated device.

On the second, so that whatever keeps a device's type and drops its index meets a tensor of the first.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import pytest
import torch

from recon.calibrate.rig import load_rig
from recon.capture.video import VideoFile, write_mp4
from recon.core.files import data_root, write_json
from recon.geometry.rig import rig_to_json
from recon.render import api
from recon.render.backends import Backend
from recon.scene.folder import load_scene
from recon.scene.gaussians import RIGID
from tests.device.building import build

DEMO = data_root() / "demo"
CAMERAS = ("cam00", "cam02", "cam04", "cam06")
SCALE, EVERY, FRAMES, FPS = 0.25, 5, 8, 15.0
SETTINGS = (
    "--fit.iterations-static 8 --fit.iterations-joint 12 --fit.budget 300 --fit.budget-residual 100 "
    "--fit.budget-robot 200 --fit.patch 48 --fit.relocate-every 4 --fit.relocate-from 4"
).split()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """rig.json, cams/ and robot/ of four of the demo's cameras: eight frames of 80 x 60 pixels each."""
    root = tmp_path_factory.mktemp("demo")
    shutil.copytree(DEMO / "robot", root / "robot")
    (root / "cams").mkdir()
    rig = load_rig([DEMO / "rig.json"])
    small = {name: rig.cameras[name].scaled(SCALE) for name in CAMERAS}
    for name, camera in small.items():
        reader = VideoFile(DEMO / "cams" / f"{name}.mp4")
        size = (camera.width, camera.height)
        frames = [cv2.resize(reader.read(EVERY * k), size, interpolation=cv2.INTER_AREA) for k in range(FRAMES)]
        reader.close()
        write_mp4(root / "cams" / f"{name}.mp4", frames, FPS / EVERY)
    write_json(root / "rig.json", rig_to_json(replace(rig, cameras=small, roles={})))
    return root


def test_a_build_with_a_robot_gives_the_bytes_of_the_cpus(
    recording: Path, musa: torch.device, no_float64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn_on: set[str] = set()
    choose = api.select

    def watched(name: str, device: torch.device, dtype: torch.dtype, **options: Any) -> Backend:
        drawn_on.add(str(device))
        return choose(name, device, dtype, **options)

    monkeypatch.setattr(api, "select", watched)
    ours = build(recording, "musa:1", SETTINGS)
    assert drawn_on == {"musa:1"}  # the fit's pictures and the report's
    theirs = build(recording, "cpu", SETTINGS)
    for name in ("gaussians.safetensors", "colour.safetensors", "tracks.safetensors", "rig.json"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
    scene = load_scene(ours)
    links = [body for body in scene.bodies if body.kind != "object"]
    assert len(links) > 5 and int((scene.gaussians.kind == RIGID).sum()) > 50
    stages = {stage["name"] for stage in json.loads((ours / "report" / "report.json").read_text())["stages"]}
    assert {"robot", "static", "joint"} <= stages
