"""`recon doctor`: complete, truthful about what is missing, and readable by a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from recon import doctor as module
from recon.config import DoctorConfig
from recon.core.errors import UnavailableError
from recon.core.events import Message
from recon.doctor import PACKAGES, Check, doctor, measure_speed, memory_bytes


@pytest.fixture(autouse=True)
def _short_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small picture."""
    monkeypatch.setattr(module, "PROBE_SECONDS", 0.0)
    monkeypatch.setattr(module, "PROBE_GAUSSIANS", 50)
    monkeypatch.setattr(module, "PROBE_WIDTH", 32)
    monkeypatch.setattr(module, "PROBE_HEIGHT", 16)


def lines(config: DoctorConfig) -> list[str]:
    return [event.text for event in doctor(config) if isinstance(event, Message)]


def test_every_check_is_a_line() -> None:
    found = lines(DoctorConfig(device="cpu"))
    text = "\n".join(found)
    for piece in ("system python", "package torch", "system threads", "system memory", "system disk", "device cpu"):
        assert f"{piece}: " in text
    for package in PACKAGES:
        assert f"package {package}: " in text
    assert "backend cpu" in text and "backend reference" in text and "codec decoders" in text
    assert "ms forward" in found[-1] and "ms backward" in found[-1]
    assert "device musa" not in text  # only the device asked for


def test_auto_describes_every_vendor() -> None:
    text = "\n".join(lines(DoctorConfig(backend="reference")))
    assert all(f"device {name}" in text for name in ("cpu", "cuda", "musa"))


def test_json_is_one_object_on_standard_output_and_no_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(doctor(DoctorConfig(device="cpu", json=True))) == []
    data = json.loads(capsys.readouterr().out)
    assert data["format"] == "recon-doctor" and data["ok"] is True and data["error"] is None
    by_name = {(check["group"], check["name"]): check for check in data["checks"]}
    assert by_name["package", "torch"]["facts"]["version"] == torch.__version__
    assert by_name["speed", "rasteriser"]["facts"]["forward_ms"] > 0
    assert by_name["system", "memory"]["facts"]["total_bytes"] > 2**28


def test_a_missing_device_is_an_error_after_the_whole_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nowhere(name: str) -> torch.device:
        raise UnavailableError(f"device {name!r} is not available", why="none here", fix="Use --device cpu.")

    monkeypatch.setattr(module, "resolve_device", nowhere)
    with pytest.raises(UnavailableError, match="not available"):
        list(doctor(DoctorConfig(device="musa", json=True, out=tmp_path)))
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False and "none here" in data["error"]
    assert {check["group"] for check in data["checks"]} >= {"system", "package", "device", "backend", "codec"}


def test_a_missing_backend_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recon.render.backends.native_unavailable", lambda: "no compiler was found")
    shown: list[str] = []
    with pytest.raises(UnavailableError, match="no compiler was found"):
        shown.extend(str(event) for event in doctor(DoctorConfig(device="cpu", backend="cpu")))
    assert any("MISSING backend cpu" in line and "libhwy-dev" in line for line in shown)


def test_a_missing_package_comes_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "no_such_module", ("no-such", "nothing", "pip install no-such"))
    found = [line for line in lines(DoctorConfig(device="cpu")) if "no_such_module" in line]
    assert found == ["MISSING package no_such_module: not installed, for nothing. Fix: pip install no-such"]


def test_missing_codecs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("av.codecs_available", {"h264", "vp9"})
    decoders, encoder = module._codecs()
    assert not decoders.ok and "hevc" in decoders.text and "vp9" not in decoders.text
    assert not encoder.ok and "libx264" in str(encoder) and "pip install" in str(encoder)


def test_little_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "memory_bytes", lambda: (2**30, 2**29))
    (line,) = [line for line in lines(DoctorConfig(device="cpu")) if "system memory" in line]
    assert line.startswith("MISSING") and "1.0 GiB, 0.5 GiB free" in line and "--fit.budget" in line


def test_memory_is_plausible() -> None:
    total, free = memory_bytes()
    assert 0 < free <= total


def test_a_check_that_is_fine_shows_no_fix() -> None:
    assert str(Check("a", "b", True, "text", "fix")) == "ok      a b: text"


def test_the_speed_is_measured_with_the_backend_named() -> None:
    facts = measure_speed("cpu", "reference", 0.0).facts
    assert facts["backend"] == "reference" and facts["pictures"] >= 1 and facts["backward_ms"] > 0
