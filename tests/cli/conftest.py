"""A tiny recording and a tiny scene, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from recon.capture.video import write_mp4
from recon.core.files import write_json
from recon.geometry.camera import Camera
from recon.geometry.pose import look_at
from recon.geometry.rig import Rig, rig_to_json
from recon.scene.folder import save_scene
from recon.scene.gaussians import Gaussians
from recon.scene.scene import Scene
from tests.recon.fit.tiny import ray_trace, ring_of_cameras

CAMERAS, FRAMES, FPS = 4, 6, 10.0


@pytest.fixture(scope="session")
def _recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """rig.json and cams/c0.mp4 ... c3.mp4: 6 frames of 64x48."""
    root = tmp_path_factory.mktemp("recorded")
    (root / "cams").mkdir()
    cameras = ring_of_cameras(CAMERAS)
    for camera in cameras:
        pictures = (ray_trace(camera, t / FRAMES)[0] for t in range(FRAMES))
        write_mp4(root / "cams" / f"{camera.name}.mp4", pictures, FPS)
    write_json(root / "rig.json", rig_to_json(Rig({camera.name: camera for camera in cameras}, units="metres")))
    return root


@pytest.fixture
def recording(_recorded: Path, tmp_path: Path) -> Path:
    """A copy to spoil: its folder holds rig.json and cams/."""
    return Path(shutil.copytree(_recorded, tmp_path / "capture"))


def blob_scene() -> Scene:
    """One opaque ball of 0.1 m at the origin, seen by two cameras from 2 m away; nothing else."""
    cameras = {
        name: Camera(name, 64, 48, 60.0, 60.0, 32.0, 24.0, distortion, look_at(eye, np.zeros(3)))
        for name, eye, distortion in (
            ("left", np.array([2.0, 0.0, 0.0]), (-0.1, 0.01, 0.0, 0.0, 0.0)),
            ("right", np.array([0.0, 2.0, 0.0]), (0.0,) * 5),
        )
    }
    ball = Gaussians.static(
        torch.zeros(1, 3),
        torch.full((1, 3), float(np.log(0.1))),
        torch.tensor([[1.0, 0.0, 0.0, 0.0]]),
        torch.full((1,), 6.0),
        torch.full((1, 1, 3), 1.0),
    )
    return Scene(
        gaussians=ball,
        rig=Rig(cameras, units="metres"),
        time_range=(0.0, 1.0),
        metric=True,
        frame_times={"left": [0.0, 0.5, 1.0], "right": [0.25, 0.75]},
    )


@pytest.fixture
def scene_folder(tmp_path: Path) -> Path:
    """The blob as a published folder."""
    save_scene(blob_scene(), tmp_path / "blob")
    return tmp_path / "blob"
