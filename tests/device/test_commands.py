"""Every command that takes --device, on the simulated device: the CPU's files, byte for byte."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recon import config
from recon.cli import main
from recon.core.files import data_root
from recon.scene.folder import load_scene, save_scene
from recon.scene.formats.registry import FORMATS
from sim2real import config as sim_config
from sim2real.cli import main as sim2real
from sim2real.env import make_vec
from sim2real.workcell import Workcell, open_workcell
from tests.recon.scene.make import scene as recorded_scene
from tests.sim2real.conftest import made_up_scene

CPU = torch.device("cpu")
ROBOT = data_root() / "robots" / "arm" / "arm.xml"
UNLIKE = ("name", "seconds")  # of a verdict: where the policy lies, how long it took
TOY = """
size: 16
num_envs: 2
demos: {episodes: 4, noise: 0.2}
net: {image_size: 16, channels: 8, hidden: [16]}
bc: {steps: 6, minibatch: 16, report_every: 3, checkpoint_every: 3}
ppo: {minibatch: 16, epochs: 1, value_epochs: 1, warmup_iterations: 1}
run: {total_steps: 32, horizon: 8, checkpoint_every: 1}
"""


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def run(*arguments: object) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*map(str, arguments), "--console", "plain"])
    assert stop.value.code == 0


def with_a_device(module: Any) -> set[str]:
    """Names of a module's command configurations that have a field `device`."""
    kinds = [kind for kind in vars(module).values() if dataclasses.is_dataclass(kind)]
    return {kind.__name__ for kind in kinds if "device" in {field.name for field in dataclasses.fields(kind)}}


def test_no_command_with_a_device_is_left_out() -> None:
    """build: test_build; doctor: test_doctor; mesh: test_raster; the others here. check, whose option has no effect,
    calibrate, export and convert compute on the CPU alone."""
    commands = "Build Check Doctor Info Mesh Render".split()
    assert with_a_device(config) == {f"{name}Config" for name in commands}
    assert with_a_device(sim_config) == {"TrainOptions", "EvalOptions", "CollectOptions"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scene with bodies and residuals, saved."""
    save_scene(recorded_scene(), made := tmp_path_factory.mktemp("scenes") / "lab")
    return made


def test_render_writes_the_same_pictures(folder: Path, tmp_path: Path, musa: torch.device, no_float64: None) -> None:
    for device in ("musa", "cpu"):
        run("render", folder, "--out", tmp_path / device, "--times", "0,0.5", "--device", device,
            "--backend", "reference")  # fmt: skip
    ours = files_of(tmp_path / "musa")
    assert ours == files_of(tmp_path / "cpu") and sum(name.endswith(".png") for name in ours) >= 2


def test_info_says_the_same(folder: Path, musa: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for device in ("musa", "cpu"):
        run("info", folder, "--device", device)
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


def test_a_scene_on_the_device_is_saved_as_one_of_the_cpu(folder: Path, tmp_path: Path, musa: torch.device) -> None:
    save_scene(load_scene(folder).to(musa), tmp_path / "again")
    ours, theirs = files_of(tmp_path / "again"), files_of(folder)
    assert ours["gaussians.safetensors"] == theirs["gaussians.safetensors"]


@pytest.mark.parametrize("name", sorted(name for name, one in FORMATS.items() if one.write is not None))
def test_gaussians_on_the_device_are_written_as_those_of_the_cpu(
    name: str, folder: Path, tmp_path: Path, musa: torch.device, no_float64: None
) -> None:
    write = FORMATS[name].write
    assert write is not None
    scene = load_scene(folder)
    for place in (CPU, musa):
        write(scene.to(place).frozen(0.5), tmp_path / place.type)
    assert (tmp_path / "musa").read_bytes() == (tmp_path / "cpu").read_bytes()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a made-up bench."""
    save_scene(made_up_scene(600), made := tmp_path_factory.mktemp("scenes") / "made")
    return made


@pytest.fixture(scope="module")
def cell(bench: Path) -> Workcell:
    """The bench with the bundled arm, its splats on the CPU."""
    return open_workcell(bench, "reach", robot=ROBOT)


def test_a_training_ends_in_the_same_policies_and_verdict(
    bench: Path, cell: Workcell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, musa: torch.device, no_float64: None
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in ("train", "judge", "lerobot.collect"):
        monkeypatch.setattr(f"sim2real.{module}.open_workcell", lambda *_, **__: cell)
    (tmp_path / "toy.yaml").write_text(TOY)
    verdicts = []
    for device in ("musa", "cpu"):
        common = ["--scene", str(bench), "--device", device, "--console", "quiet"]
        assert sim2real(["train", *common, "--preset", "toy.yaml", "--out", device]) == 0
        judge = ["eval", *common, "--policy", f"{device}/ppo", "--baseline", "none", "--episodes", "2", "--videos", "0"]
        assert sim2real([*judge, "--out", f"{device}/eval"]) == 0
        collect = ["collect", *common, "--policy", f"{device}/bc", "--episodes", "2", "--failures", "--size", "16"]
        assert sim2real([*collect, "--out", f"{device}/set"]) == 0
        verdicts.append(json.loads((tmp_path / device / "eval" / "report.json").read_text())["policies"])
    for stage in ("bc", "ppo"):
        name = f"{stage}/weights.safetensors"
        assert (tmp_path / "musa" / name).read_bytes() == (tmp_path / "cpu" / name).read_bytes(), stage
    assert files_of(tmp_path / "musa" / "set" / "data") == files_of(tmp_path / "cpu" / "set" / "data") != {}
    for ours, theirs in zip(*verdicts, strict=True):
        assert {k: v for k, v in ours.items() if k not in UNLIKE} == {
            k: v for k, v in theirs.items() if k not in UNLIKE
        }


def test_an_environment_on_the_device_draws_the_same(
    bench: Path, cell: Workcell, musa: torch.device, no_float64: None
) -> None:
    there = open_workcell(bench, "reach", robot=ROBOT, backend="reference", device=str(musa))
    assert there.static.means.device.type == "musa"
    seen = []
    for place in (there, replace(cell, backend="reference", _painters={})):
        env = make_vec(place, num_envs=2, cameras=["cam00"], size=24)
        first, _ = env.reset(seed=2)
        second, *_ = env.step(env.expert_action())
        seen.append([first["rgb"]["cam00"].copy(), second["rgb"]["cam00"].copy()])
    assert all(np.array_equal(a, b) for a, b in zip(*seen, strict=True))
    assert not np.array_equal(*seen[1])
