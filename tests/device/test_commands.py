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
from recon.core.errors import InputError
from recon.core.files import data_root
from recon.render import api
from recon.scene.folder import load_scene, save_scene
from recon.scene.formats.registry import FORMATS
from recon.scene.scene import Scene
from rl.nets import ActorCritic
from rl.types import Packed
from sim2real import config as sim_config
from sim2real.cli import main as sim2real
from sim2real.make import make_vec
from sim2real.place import Place, find_place
from sim2real.workcell import Workcell, open_workcell
from tests.recon.scene.make import scene as recorded_scene
from tests.sim2real.conftest import made_up_scene

CPU = torch.device("cpu")
ROBOT = data_root() / "robots" / "arm" / "arm.xml"
NOTE = "musa:1 (simulated): this device is simulated"
SECOND = "musa:1"
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
    """build: test_build; doctor: test_doctor; mesh: test_raster; the others here. check, info, calibrate, export and
    convert compute on the CPU alone, and offer no device."""
    commands = "Build Doctor Mesh Render".split()
    assert with_a_device(config) == {f"{name}Config" for name in commands}
    assert with_a_device(sim_config) == {"TrainOptions", "EvalOptions", "CollectOptions"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scene with bodies and residuals, saved."""
    save_scene(recorded_scene(), made := tmp_path_factory.mktemp("scenes") / "lab")
    return made


def test_render_writes_the_same_pictures(
    folder: Path, tmp_path: Path, musa: torch.device, no_float64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = api.select

    def watched(name: str, place: torch.device, *arguments: Any, **options: Any) -> Any:
        assert place.type == device  # the loop's: nothing is quietly drawn elsewhere
        return choose(name, place, *arguments, **options)

    monkeypatch.setattr(api, "select", watched)
    for device in ("musa", "cpu"):
        run("render", folder, "--out", tmp_path / device, "--times", "0,0.5", "--device", device,
            "--backend", "reference")  # fmt: skip
    ours = files_of(tmp_path / "musa")
    assert ours == files_of(tmp_path / "cpu") and sum(name.endswith(".png") for name in ours) >= 2


def test_mesh_takes_the_scene_to_the_device(folder: Path, monkeypatch: pytest.MonkeyPatch, musa: torch.device) -> None:
    """What it looks at there: test_raster. Open3D and CoACD, which need not be here, are not reached."""
    met: list[str] = []

    def thing(scene: Scene, *_: object) -> None:
        met.append(scene.gaussians.device.type)
        raise InputError("far enough")

    for name in ("open3d", "coacd"):
        monkeypatch.setattr(f"recon.meshes.{name}", lambda: None)
    monkeypatch.setattr("recon.meshes._thing", thing)
    scene = load_scene(folder)
    with pytest.raises(SystemExit):
        main(["mesh", str(folder), "--only", scene.bodies[0].name, "--device", "musa", "--console", "plain"])
    assert met == ["musa"]


@pytest.mark.parametrize("command", [["check", "--videos"], ["info"]])
def test_a_command_of_the_cpu_alone_takes_no_device(command: list[str], folder: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*command, str(folder), "--device", "cpu"])
    assert stop.value.code == 2


def test_a_scene_on_the_device_is_saved_as_one_of_the_cpu(folder: Path, tmp_path: Path, musa: torch.device) -> None:
    save_scene(load_scene(folder).to(musa), tmp_path / "again")
    ours, theirs = files_of(tmp_path / "again"), files_of(folder)
    assert ours["gaussians.safetensors"] == theirs["gaussians.safetensors"]


def test_bodies_placed_by_a_simulator(folder: Path, on_both, same) -> None:
    scene = load_scene(folder)
    pose = np.array([[0.0, -1, 0, 0.1], [1, 0, 0, 0.2], [0, 0, 1, 0.3], [0, 0, 0, 1]])

    def work(device: torch.device):
        placed = scene.to(device).posed({scene.bodies[0].name: pose}, 0.5)
        return placed.means, placed.quats, placed.opacities

    same(*on_both(work))


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
    colour = {"cam00": (1.1 * np.eye(3, dtype=np.float32), np.full(3, -0.02, dtype=np.float32))}
    scene = replace(made_up_scene(600), colour=colour)
    save_scene(scene, made := tmp_path_factory.mktemp("scenes") / "made")
    return made


@pytest.fixture(scope="module")
def cells(bench: Path, musa: torch.device) -> dict[str, Workcell]:
    """The bench with the bundled arm, its splats on the device of that name."""
    made = {}
    for name in (SECOND, "cpu"):  # so that whatever drops a device's index meets a tensor of the first
        made[name] = open_workcell(bench, "reach", robot=ROBOT, backend="reference", device=name)
    return made


def drawn(cell: Workcell) -> int:
    """Pictures' still parts that the cell's cameras have drawn, all of them on the cell's device."""
    stills = [painter._still.color for painter in cell._painters.values() if painter._still is not None]
    assert all(color.device.type == cell.static.means.device.type for color in stills)
    return len(stills)


def test_a_training_draws_on_the_device_and_ends_in_the_same_policies_and_verdict(
    bench: Path, cells: dict[str, Workcell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_float64: None,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)

    def opened(*_: object, backend: str, device: str, **__: object) -> Workcell:
        assert backend == "reference"
        return cells[device]

    for module in ("train", "judge", "lerobot.collect"):
        monkeypatch.setattr(f"sim2real.{module}.open_workcell", opened)
    thought_on: set[str] = set()
    features = ActorCritic.features

    def watched(net: ActorCritic, batch: Packed) -> torch.Tensor:
        thought_on.add(str(net.device))
        return features(net, batch)

    monkeypatch.setattr(ActorCritic, "features", watched)
    (tmp_path / "toy.yaml").write_text(TOY)
    verdicts = []
    for device in (SECOND, "cpu"):
        assert drawn(cells[device]) == 0
        thought_on.clear()
        run = device[:4]  # without a colon
        common = ["--scene", str(bench), "--device", device, "--backend", "reference", "--console", "quiet"]
        assert sim2real(["train", *common, "--preset", "toy.yaml", "--out", run]) == 0
        judge = ["eval", *common, "--policy", f"{run}/ppo", "--baseline", "none", "--episodes", "2", "--videos", "0"]
        assert sim2real([*judge, "--out", f"{run}/eval"]) == 0
        collect = ["collect", *common, "--policy", f"{run}/bc", "--episodes", "2", "--failures", "--size", "16"]
        assert sim2real([*collect, "--out", f"{run}/set"]) == 0
        assert drawn(cells[device]) > 0 and thought_on == {device}
        report = json.loads((tmp_path / run / "eval" / "report.json").read_text())
        verdicts.append(report["policies"])
        told_of_place(tmp_path / run, report, device == SECOND, capfd.readouterr().err)
    for stage in ("bc", "ppo"):
        name = f"{stage}/weights.safetensors"
        assert (tmp_path / "musa" / name).read_bytes() == (tmp_path / "cpu" / name).read_bytes(), stage
    assert files_of(tmp_path / "musa" / "set" / "data") == files_of(tmp_path / "cpu" / "set" / "data") != {}
    for ours, theirs in zip(*verdicts, strict=True):
        assert {k: v for k, v in ours.items() if k not in UNLIKE} == {
            k: v for k, v in theirs.items() if k not in UNLIKE
        }


def told_of_place(run: Path, report: dict[str, Any], simulated: bool, console: str) -> None:
    """Every report of a run and the console say whether its device was simulated."""
    label = f"{SECOND} (simulated)" if simulated else "cpu"
    place = {"device": label, "drawn_on": label, "renderer": "reference", "simulated": simulated}
    assert {key: report["protocol"][key] for key in place} == place
    page = (run / "eval" / "index.html").read_text()
    assert (NOTE in page) == simulated and f"&quot;device&quot;: &quot;{label}&quot;" in page
    assert json.loads((run / "train.json").read_text())["place"] == place
    assert json.loads((run / "ppo" / "policy.json").read_text())["meta"]["place"] == place
    assert json.loads((run / "set" / "meta" / "sim2real.json").read_text())["place"] == place
    assert console.count(f"warning [1]: the device {SECOND} is simulated") == (3 if simulated else 0)


def test_a_run_is_continued_on_another_device(
    bench: Path, cells: dict[str, Workcell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_float64: None
) -> None:
    """Where it was worked at is told, and is not part of what the run is."""
    monkeypatch.setattr("sim2real.train.open_workcell", lambda *_, device, **__: cells[device])
    (tmp_path / "toy.yaml").write_text(TOY)
    for device in (SECOND, "cpu"):
        options = ["--scene", str(bench), "--device", device, "--backend", "reference", "--console", "quiet"]
        preset = ["--preset", str(tmp_path / "toy.yaml"), "--out", str(tmp_path / "run")]
        assert sim2real(["train", *options, *preset]) == 0
        assert json.loads((tmp_path / "run" / "train.json").read_text())["place"]["device"].startswith(device)


def test_the_native_rasteriser_draws_on_the_cpu_whatever_the_networks_are_on(musa: torch.device) -> None:
    mixed = find_place("musa", "cpu")
    assert (mixed.device, mixed.drawing, mixed.backend) == (musa, CPU, "cpu")
    assert any(
        "musa (simulated)" in note.text and "drawn on cpu with backend cpu" in note.text for note in mixed.notes()
    )
    for backend in ("auto", "reference"):
        assert find_place("musa", backend) == Place(musa, musa, "reference")
    assert find_place("cpu", "auto").backend == "cpu" and list(find_place("cpu", "auto").notes()) == []


def test_an_environment_on_the_device_draws_the_same(cells: dict[str, Workcell], no_float64: None) -> None:
    assert cells[SECOND].static.means.device == torch.device(SECOND)
    seen = []
    for place in (replace(cell, _painters={}) for cell in cells.values()):
        env = make_vec(place, num_envs=2, cameras=["cam00"], size=24)
        first, _ = env.reset(seed=2)
        second, *_ = env.step(env.expert_action())
        seen.append([first["rgb"]["cam00"].copy(), second["rgb"]["cam00"].copy()])
    assert all(np.array_equal(a, b) for a, b in zip(*seen, strict=True))
    assert not np.array_equal(*seen[1])
