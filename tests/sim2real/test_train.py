"""The whole chain at toy size through the command line: train, continue, evaluate, refuse."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recon.core.errors import UsageError
from recon.core.events import StageFinished
from recon.core.files import sha256_file
from recon.scene.folder import save_scene
from sim2real.cli import main
from sim2real.config import TrainOptions
from sim2real.train import load_preset, train

TOY = """
size: 32
num_envs: 4
demos: {episodes: 6, noise: 0.2}
net: {image_size: 32, channels: 8, hidden: [32]}
bc: {steps: 20, minibatch: 32, report_every: 10, checkpoint_every: 10}
ppo: {minibatch: 64, epochs: 1, value_epochs: 1, warmup_iterations: 1}
run: {total_steps: 96, horizon: 8, checkpoint_every: 1}
"""


@pytest.fixture(scope="module")
def place(scene, tmp_path_factory) -> Path:
    """A working directory with scenes/made and a toy preset."""
    folder = tmp_path_factory.mktemp("place")
    save_scene(scene, folder / "scenes" / "made")
    (folder / "toy.yaml").write_text(TOY)
    return folder


def _train(place: Path, robot: Path, *extra: str) -> int:
    return main(
        ["train", "--scene", "made", "--preset", "toy.yaml", "--robot", str(robot), "--console", "quiet", *extra]
    )


def test_train_then_eval_then_the_same_again(place: Path, robot: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(place)
    assert _train(place, robot) == 0
    run = place / "runs" / "made-reach"
    assert (run / "bc" / "policy.json").is_file() and (run / "ppo" / "weights.safetensors").is_file()
    meta = json.loads((run / "ppo" / "policy.json").read_text())["meta"]
    assert meta["stage"] == "ppo" and meta["task"]["task"] == "reach" and len(meta["scene_hash"]) == 16
    # the default report: the run's policy against its own clone
    assert main(["eval", "--scene", "made", "--episodes", "6", "--videos", "1", "--console", "quiet"]) == 0
    twin = json.loads((run / "eval" / "report.json").read_text())
    assert [p["name"] for p in twin["policies"]] == ["ppo", "bc"] and twin["paired"]["n"] == 6
    assert twin["protocol"]["image_size"] == 32 and (run / "eval" / "index.html").is_file()
    before = sha256_file(run / "ppo" / "weights.safetensors")
    assert _train(place, robot) == 0  # complete: nothing is done again
    assert sha256_file(run / "ppo" / "weights.safetensors") == before
    assert _train(place, robot, "--seed", "1") == 2
    assert "holds a run with another" in capsys.readouterr().err


def test_an_interrupted_training_ends_with_the_same_weights(place: Path, robot: Path, monkeypatch) -> None:
    monkeypatch.chdir(place)
    options = TrainOptions("made", preset="toy.yaml", robot=robot, out=place / "whole")
    for _ in train(options):
        pass
    broken = TrainOptions("made", preset="toy.yaml", robot=robot, out=place / "broken")
    for stop in ("clone", "ppo", None):
        events = train(broken)
        for event in events:
            if stop == "clone" and isinstance(event, StageFinished) and event.stage == "clone":
                events.close()
                break
            if stop == "ppo" and getattr(event, "stage", "") == "ppo" and getattr(event, "step", 0) >= 32:
                events.close()
                break
    for stage in ("bc", "ppo"):
        a, b = (place / name / stage / "weights.safetensors" for name in ("whole", "broken"))
        assert sha256_file(a) == sha256_file(b), stage


def test_policies_of_different_tasks_are_not_compared(place: Path, robot: Path, monkeypatch, capsys) -> None:
    from recon.core.files import data_root

    monkeypatch.chdir(place)
    text = (data_root() / "tasks" / "reach.yaml").read_text()
    (place / "other.yaml").write_text(text.replace("horizon: ", "horizon: 1"))
    run = ["--policy", "whole/ppo"] if (place / "whole").is_dir() else ["--policy", "runs/made-reach/ppo"]
    assert main(["eval", "--scene", "made", *run, "--task", "other.yaml", "--console", "quiet"]) == 2
    assert "made for different tasks" in capsys.readouterr().err
    assert main(["eval", "--scene", "made", "--policy", "nobody", "--console", "quiet"]) == 3
    assert "there is no policy 'nobody'" in capsys.readouterr().err


def test_presets_are_strict() -> None:
    assert load_preset("default").num_envs >= 1
    with pytest.raises(UsageError, match="no training preset 'defualt'.*Did you mean 'default'"):
        load_preset("defualt")


def test_help_is_quick_and_starts_with_examples() -> None:
    began = time.process_time()
    done = subprocess.run([sys.executable, "-m", "sim2real.cli", "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "sim2real train --scene lab" in done.stdout
    assert time.process_time() - began < 5
    heavy = "import sys, sim2real.cli; print(sorted({'torch', 'mujoco', 'numpy', 'gymnasium'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True).stdout.strip() == "[]"
