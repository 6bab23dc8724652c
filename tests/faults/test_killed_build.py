"""A build that is killed, or interrupted, and run again ends in the same bytes as one that was left alone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recon.capture.video import write_mp4
from recon.core.files import write_json
from recon.geometry.rig import Rig, rig_to_json
from tests.recon.fit.tiny import ray_trace, ring_of_cameras

ROOT = Path(__file__).resolve().parents[2]
FRAMES, FPS = 8, 8.0
KILLS = int(os.environ.get("RECON_KILLS", "4"))  # random instants


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """rig.json and cams/: four small videos of a ball that crosses a checkered floor."""
    root = tmp_path_factory.mktemp("recording")
    (root / "cams").mkdir()
    cameras = ring_of_cameras(4)
    for camera in cameras:
        write_mp4(root / "cams" / f"{camera.name}.mp4", (ray_trace(camera, t / FRAMES)[0] for t in range(FRAMES)), FPS)
    write_json(root / "rig.json", rig_to_json(Rig({camera.name: camera for camera in cameras}, units="metres")))
    return root


def start(recording: Path, out: Path) -> subprocess.Popen[bytes]:
    options = {
        "budget": 300,
        "budget-residual": 100,
        "iterations-static": 120,
        "iterations-joint": 120,
        "checkpoint-every": 20,
        "relocate-every": 25,
        "relocate-from": 25,
    }
    arguments = [x for key, value in options.items() for x in (f"--fit.{key}", str(value))]
    command = [
        sys.executable,
        "-m",
        "recon.cli",
        "build",
        "--videos",
        str(recording / "cams"),
        "--out",
        str(out),
        *arguments,
    ]
    return subprocess.Popen(
        [*command, "--console", "json"], cwd=ROOT, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


def finish(process: subprocess.Popen[bytes]) -> int:
    process.communicate(timeout=300)
    return process.returncode


def results(scene: Path) -> dict[str, bytes]:
    return {
        name: (scene / name).read_bytes()
        for name in ("gaussians.safetensors", "tracks.safetensors", "colour.safetensors", "scene.json")
    }


def test_killed_and_interrupted_builds_end_in_the_same_bytes(recording: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    assert finish(start(recording, tmp_path / "whole")) == 0
    seconds = time.monotonic() - began
    rng = random.Random(0)
    out = tmp_path / "broken"
    kinds = [signal.SIGKILL] * KILLS + [signal.SIGINT]
    for kind in kinds:
        process = start(recording, out)
        time.sleep(rng.uniform(0.3, 1.0) * seconds)
        process.send_signal(kind)
        process.communicate(timeout=300)
        if (out / "scene.json").exists():
            break
    assert finish(start(recording, out)) == 0
    assert results(out) == results(tmp_path / "whole")
    assert not list(tmp_path.glob(".broken*"))


def test_ctrl_c_saves_says_so_and_exits_with_130(recording: Path, tmp_path: Path) -> None:
    process = start(recording, tmp_path / "scene")
    assert process.stderr is not None
    for line in process.stderr:
        event = json.loads(line)
        if event["event"] == "Progress" and event["stage"] == "static":
            process.send_signal(signal.SIGINT)
            break
    rest = process.stderr.read().decode()
    assert process.wait(timeout=300) == 130
    assert "the state was saved" in rest
    assert not (tmp_path / "scene").exists()
    assert list((tmp_path / ".scene.work" / "static").glob("step_*"))
