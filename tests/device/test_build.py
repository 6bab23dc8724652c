"""`recon build --device musa --backend reference`: a scene with the bytes of one built on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from recon.capture.video import write_mp4
from recon.core.checkpoint import latest_checkpoint
from recon.core.files import write_json
from recon.fit.colour import ColourModel
from recon.fit.fit import Fit
from recon.geometry.rig import Rig, rig_to_json
from recon.trials.fitting import tiny_fit
from recon.trials.recording import ray_trace, ring_of_cameras
from tests.device.building import build

FRAMES = 6
SETTINGS = (
    "--fit.iterations-static 8 --fit.iterations-joint 6 --fit.budget 200 --fit.budget-residual 80 --fit.patch 32 "
    "--fit.relocate-every 4 --fit.relocate-from 4"
).split()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """rig.json and cams/ with four videos of six frames."""
    root = tmp_path_factory.mktemp("recorded")
    (root / "cams").mkdir()
    cameras = ring_of_cameras(4)
    for camera in cameras:
        write_mp4(root / "cams" / f"{camera.name}.mp4", (ray_trace(camera, k / FRAMES)[0] for k in range(FRAMES)), 10.0)
    write_json(root / "rig.json", rig_to_json(Rig({camera.name: camera for camera in cameras}, units="metres")))
    return root


def test_a_build_gives_the_bytes_of_the_cpus(
    recording: Path, musa: torch.device, no_float64: None, capfd: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = build(recording, "musa", SETTINGS), build(recording, "cpu", SETTINGS)
    for name in ("gaussians.safetensors", "colour.safetensors", "tracks.safetensors", "rig.json"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
    said = capfd.readouterr().err
    assert "warning [1]: the device musa is simulated on the CPU" in said
    for out, label in ((ours, "musa (simulated)"), (theirs, "cpu")):
        report = json.loads((out / "report" / "report.json").read_text())
        assert (report["device"], report["simulated"], report["config"]["device"]) == (label, label != "cpu", out.name)
        page = (out / "report" / "index.html").read_text()
        assert f" ms on {label}, seed" in page
        assert ("musa (simulated): this device is simulated on the CPU" in page) == (label != "cpu")


def state_of(fit: Fit) -> dict[str, torch.Tensor]:
    return {**fit.model.tensors(), **fit.colour.tensors(), "scores": fit.scores}


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, torch.Tensor]:
    """The state after four iterations on the CPU."""
    fit = tiny_fit(torch.device("cpu"))
    for _ in range(4):
        fit.advance()
    return state_of(fit)


@pytest.mark.parametrize(("first", "then"), [("musa", "cpu"), ("cpu", "musa"), ("musa", "musa")])
def test_a_checkpoint_of_one_device_is_continued_on_another(
    first: str, then: str, tmp_path: Path, musa: torch.device, undisturbed: dict[str, torch.Tensor], same
) -> None:
    begun = tiny_fit(torch.device(first))
    for _ in range(2):
        begun.advance()
    begun.save(tmp_path)
    saved = latest_checkpoint(tmp_path)
    assert saved is not None and all(tensor.device.type == "cpu" for tensor in saved.tensors.values())
    continued = tiny_fit(torch.device(then))
    continued.restore(tmp_path)
    for _ in range(2):
        continued.advance()
    same(undisturbed, state_of(continued))


def test_faint_rows_wander_and_are_reborn_alike(on_both, same) -> None:
    """What an opaque start never reaches: noise on nearly transparent rows, relocation of dead ones."""

    def work(device: torch.device):
        fit = tiny_fit(device)
        start = fit.model.gaussians["means"].detach().clone()
        for part, view in fit.views.items():
            assert part in ("static", "residual")
            view["logit_opacities"][:3] = -7.0  # dead
            view["logit_opacities"][3:9] = -4.0
        fit.advance()
        fit.scores += torch.linspace(0.0, 1.0, len(fit.scores), device=device)
        moved = fit.relocate()
        fit.advance()
        return moved, state_of(fit), (fit.model.gaussians["means"].detach() - start)[3:9]

    cpu, simulated = on_both(work)
    same(cpu, simulated)
    assert cpu[0] == 6 and bool((cpu[2] != 0).any())


def test_colour_moments_return_to_the_device(musa: torch.device) -> None:
    """Found by this suite: a resumed colour model kept its moments on the CPU."""
    one = ColourModel(["a", "b"], musa)
    one.apply(torch.ones(2, 3, device=musa), 0, torch.ones(2, device=musa)).sum().backward()
    one.step()
    other = ColourModel(["a", "b"], musa)
    other.load({key: value.cpu() for key, value in one.tensors().items()})
    for model in (one, other):
        model.apply(torch.ones(2, 3, device=musa), 0, torch.ones(2, device=musa)).sum().backward()
        model.step()
    assert torch.equal(one.matrices, other.matrices)
    assert torch.equal(one.vignetting, other.vignetting)
