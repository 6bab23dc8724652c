"""What `recon doctor` puts a device through: each trial passes on the CPU, and each can fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from recon.cli import main
from recon.config import DoctorConfig
from recon.core.errors import TrialError, UnavailableError
from recon.doctor import doctor, wants_trials
from recon.trials import measures, operators, report
from recon.trials.curves import departure, stored, trials
from recon.trials.operators import Replay, recorded, replay, replay_all

CPU = torch.device("cpu")


def test_every_recorded_call_can_be_made_again() -> None:
    results = list(replay_all(CPU))
    assert len(results) == len(recorded()) > 100
    assert [result for result in results if not result.ok] == []


def test_a_replay_is_of_the_recorded_kind() -> None:
    tensor = {"tensor": "Float", "shape": [2, 3], "stride": [1, 2], "low": 2.0, "high": 3.0}
    made = operators._argument(tensor, CPU, torch.Generator().manual_seed(0))
    assert made.stride() == (1, 2) and bool(((made >= 2.0) & (made <= 3.0)).all())
    assert operators._argument({"dtype": "Long"}, CPU, torch.Generator()) == torch.int64


def test_a_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    call = {"op": "aten::exp", "args": [{"tensor": "Float", "shape": [4], "low": 0.0, "high": 1.0}]}
    assert replay(call, CPU).error == 0.0
    right = operators._run
    places: list[torch.device] = []

    def wrong_the_second_time(call, device, generator):
        places.append(device)
        return [tensor + 0.01 * (len(places) == 2) for tensor in right(call, device, generator)]

    monkeypatch.setattr(operators, "_run", wrong_the_second_time)
    assert not replay(call, CPU).ok
    missing = {"op": "aten::exp", "args": [{"unknown": "Stream"}]}
    monkeypatch.setattr(operators, "_run", right)
    assert "cannot be made again" in replay(missing, CPU).failure


@pytest.mark.parametrize(
    ("expected", "found", "error"),
    [
        (torch.ones(3), torch.ones(3) + 5e-5, 0.45),
        (torch.ones(3), torch.full((3,), float("nan")), float("inf")),
        (torch.ones(3), torch.ones(4), float("inf")),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), float("inf")),
        (torch.full((2,), float("inf")), torch.full((2,), float("inf")), 0.0),
    ],
)
def test_differences_are_measured_against_the_tolerance(expected, found, error: float) -> None:
    assert operators._error(expected, found) == pytest.approx(error, rel=0.05)


def test_a_departing_curve_is_found() -> None:
    expected = {"psnr": [10.0, 11.0], "loss": [0.5, 0.4]}
    assert departure(expected, {"psnr": [10.05, 11.0], "loss": [0.5, 0.4]})[0] == pytest.approx(0.5)
    assert departure(expected, {"psnr": [10.0, 11.2], "loss": [0.5, 0.4]}) == (pytest.approx(2.0), "psnr 1")
    assert departure(expected, {"psnr": [10.0, 11.0], "loss": [0.5, float("nan")]})[0] == float("inf")
    assert departure(expected, {"psnr": [10.0], "loss": [0.5, 0.4]})[0] == float("inf")


def test_both_trainings_have_stored_curves() -> None:
    assert set(stored()) == set(trials()) == {"fit", "ppo"}
    fit = stored()["fit"]
    assert fit["psnr"][-1] > fit["psnr"][0]


def test_a_coarse_product_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measures.product_error(CPU) < measures.FLOAT32_ERROR
    to = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda self, place: to(to(self, torch.bfloat16), torch.float32))
    assert measures.product_error(CPU) > 30 * measures.FLOAT32_ERROR


def test_named_accelerators_are_tried_with_json() -> None:
    assert wants_trials(DoctorConfig(device="musa", json=True)) and wants_trials(DoctorConfig(full=True))
    for config in (DoctorConfig(json=True), DoctorConfig(device="cpu", json=True), DoctorConfig(device="musa")):
        assert not wants_trials(config)


def test_the_whole_report_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("recon.doctor.PROBE_SECONDS", 0.0)
    monkeypatch.setattr(measures, "GEMM_SIDE", 64)
    # the device suite trains for real
    monkeypatch.setattr(report, "trials", lambda: {name: lambda _, curve=c: curve for name, c in stored().items()})
    monkeypatch.setattr(report, "checkpoint_returns", lambda device: "")
    monkeypatch.setattr(report, "replay_all", lambda device: iter([Replay("aten::add", 0.5), Replay("aten::mul", 9.0)]))
    with pytest.raises(SystemExit) as stop:
        main(["doctor", "--device", "cpu", "--full", "--json", "--out", str(tmp_path)])
    assert stop.value.code == TrialError.exit_code  # the planted operator
    printed = capsys.readouterr()
    assert "failed 1 of its trials: operators" in printed.err and "doctor-cpu.md" in printed.err
    answer = json.loads((tmp_path / "doctor-cpu.json").read_text())
    assert json.loads(printed.out) == answer and not answer["ok"] and not answer["simulated"]
    assert "failed 1 of its trials" in answer["error"]
    trial = {check["name"]: check for check in answer["checks"] if check["group"] == "trial"}
    assert set(trial) == {"precision", "operators", "checkpoint", "timings", "training fit", "training ppo", "memory"}
    assert [name for name, check in trial.items() if not check["ok"]] == ["operators"]
    assert trial["operators"]["facts"]["bad"] == [{"op": "aten::mul", "why": "9 times the allowed difference"}]
    page = (tmp_path / "doctor-cpu.md").read_text()
    assert "| **no** | trial | operators |" in page and "simulated" not in page


def test_a_training_that_nobody_offers_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "trials", dict)
    for name in ("precision", "operators", "checkpoint", "timings"):
        monkeypatch.setattr(report, f"_{name}", lambda device: (True, "", {}))
    found = {trial.name: trial for trial in report.run_trials(CPU)}
    assert not found["training ppo"].ok and "not tried" in found["training ppo"].text
    assert not found["training fit"].ok and found["precision"].ok


def test_the_exit_code_says_that_all_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("recon.doctor.PROBE_SECONDS", 0.0)
    monkeypatch.setattr("recon.doctor.run_trials", lambda device: iter([report.Trial("precision", True, "fine")]))
    with pytest.raises(SystemExit) as stop:
        main(["doctor", "--device", "cpu", "--full", "--json", "--out", str(tmp_path)])
    assert stop.value.code == 0 and json.loads(capsys.readouterr().out)["ok"]
    assert "all is well" in (tmp_path / "doctor-cpu.md").read_text()


def test_a_device_that_is_not_there_leaves_a_page_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def nowhere(name: str) -> torch.device:
        raise UnavailableError(f"device {name!r} is not available", why="none here")

    monkeypatch.setattr("recon.doctor.resolve_device", nowhere)
    with pytest.raises(UnavailableError):
        list(doctor(DoctorConfig(device="cpu", full=True, json=True, out=tmp_path)))
    assert json.loads((tmp_path / "doctor-cpu.json").read_text()) == json.loads(capsys.readouterr().out)
    assert "'cpu' is not available: none here" in (tmp_path / "doctor-cpu.md").read_text()


def test_the_help_says_what_the_exit_code_means(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Exit code 0: the device and backend asked for can be used and every trial that was made passed" in text
    assert "9: the device failed a trial" in text
