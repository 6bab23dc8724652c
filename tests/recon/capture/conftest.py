"""A small moving scene, recorded by several cameras into a temporary folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import pytest

from recon.capture.video import write_mp4
from recon.geometry.rig import Rig
from tests.recon.capture.recordings import FPS, FRAMES, camera, picture


@pytest.fixture
def rig() -> Rig:
    return Rig({f"cam{k:02d}": camera(k) for k in range(4)})


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Path]:
    """record(count=4, frames=12): a folder cams/ of mp4 files."""

    def make(count: int = 4, frames: int = FRAMES) -> Path:
        folder = tmp_path / "cams"
        folder.mkdir(exist_ok=True)
        for k in range(count):
            write_mp4(folder / f"cam{k:02d}.mp4", (picture(k, t) for t in range(frames)), FPS)
        return folder

    return make


@pytest.fixture
def record_pictures(tmp_path: Path) -> Callable[..., Path]:
    """record_pictures(count=3, frames=6): a folder ims/ of one folder of PNG files per camera, named by number."""

    def make(count: int = 3, frames: int = 6) -> Path:
        for k in range(count):
            folder = tmp_path / "ims" / f"cam{k:02d}"
            folder.mkdir(parents=True)
            for t in range(frames):
                cv2.imwrite(str(folder / f"{t:06d}.png"), picture(k, t)[..., ::-1])
        return tmp_path / "ims"

    return make
