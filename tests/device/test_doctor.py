"""`recon doctor --device musa --json` on the simulated device: every trial agrees, and it says what it ran on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from recon.cli import main
from recon.trials.operators import recorded

RECORDED_WITH = "2.13."


def test_the_doctor_tries_the_device_and_says_simulated(
    tmp_path: Path, musa: torch.device, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["doctor", "--device", "musa", "--json", "--out", str(tmp_path)])
    assert stop.value.code == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] and answer["simulated"]
    trials = {check["name"]: check for check in answer["checks"] if check["group"] == "trial"}
    assert {name: check["text"] for name, check in trials.items() if not check["ok"]} == {}
    assert trials["operators"]["facts"]["calls"] == len(recorded())
    for training in ("training fit", "training ppo"):
        assert trials[training]["facts"]["departure"] < 0.5
    page = (tmp_path / "doctor-musa.md").read_text()
    assert (
        page.startswith("# recon doctor on musa (simulated)\n")
        and "all is well" in page
        and "Nothing here was run on Moore Threads hardware" in page
    )
    assert json.loads((tmp_path / "doctor-musa.json").read_text()) == answer


def test_the_doctors_list_covers_what_this_suite_asked_for(musa: torch.device) -> None:
    """What the device was asked for up to here is among the calls that an owner's doctor replays."""
    if not torch.__version__.startswith(RECORDED_WITH):
        pytest.skip(f"recorded with torch {RECORDED_WITH}: another one composes a few calls of other operators")
    replayed = {call["op"] for call in recorded()}
    asked = {line.split()[0] for line in torch.ops.musa_sim.calls()}
    tested_only = {"aten::logical_not", "aten::sin", "aten::remainder.Scalar"}
    assert sorted(asked - replayed - tested_only) == []
