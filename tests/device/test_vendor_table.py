"""`recon.core.device` over the simulated device, through the same doors as a real one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from recon.core import device as devices
from recon.core.device import describe_device, resolve_device
from recon.core.errors import UnavailableError
from recon.doctor import _devices, measure_speed
from tests.musa_sim.build import unsupported_reason
from tests.musa_sim.operators import UNLISTED, allowed, offer_operators, vendor_list

ROOT = Path(__file__).resolve().parents[2]


def test_the_plugin_is_imported_when_the_device_is_asked_for(musa: torch.device) -> None:
    assert "torch_musa" in sys.modules and torch.musa.SIMULATED
    assert resolve_device("musa:1") == torch.device("musa:1")
    with pytest.raises(UnavailableError, match="not available"):
        resolve_device("musa:2")


def test_simulated_is_said_wherever_the_device_is_shown(musa: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "simulated" in describe_device("musa").description and describe_device("musa").simulated
    assert all("simulated" in str(check) for check in _devices("musa"))
    assert devices.device_label(torch.device("musa:1")) == "musa:1 (simulated)"
    assert [note.level for note in devices.device_notes(musa)] == ["warning"]
    speed = measure_speed("musa", seconds=0.0)
    assert "on musa (simulated) with backend reference" in speed.text and speed.facts["simulated"]
    for real in (torch.device("cpu"), musa):  # the vendor's own module holds no such name
        monkeypatch.delattr(torch.musa, "SIMULATED", raising=False)
        assert not devices.is_simulated(real) and devices.device_label(real) == str(real)
        assert not describe_device(real.type).simulated and list(devices.device_notes(real)) == []


def test_strict_precision_turns_the_vendors_tf32_off(musa: torch.device) -> None:
    torch.backends.mudnn.allow_tf32 = True  # the vendor's default
    devices.set_strict_precision()
    assert torch.backends.mudnn.allow_tf32 is False


def test_seeding_reaches_the_device(musa: torch.device) -> None:
    draws = []
    for _ in range(2):
        devices.seed_all(5)
        draws.append(torch.rand(4, device=musa))
    assert torch.equal(*draws)


def test_bookkeeping(musa: torch.device) -> None:
    devices.synchronize(musa)
    assert devices.collective_backend(musa) == "mccl"
    kept = torch.ones(1000, device=musa)
    memory = devices.memory_bytes(musa)
    assert 4000 <= kept.nbytes <= memory.allocated <= memory.peak == devices.peak_memory_bytes(musa)
    assert 0 < memory.free < memory.total


@pytest.mark.parametrize("error", [ImportError("no driver"), OSError("libmusa.so.1: cannot open")])
def test_a_plugin_that_does_not_load_is_reported(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, musa: torch.device
) -> None:
    (tmp_path / "broken_musa.py").write_text(f"raise {error!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    vendor = devices.Vendor("nowhere", "broken_musa", "", "", "Fix it.")
    monkeypatch.setitem(devices.VENDORS, "nowhere", vendor)
    info = describe_device("nowhere")
    assert not info.available and str(error) in info.reason and info.fix == "Fix it."


def test_the_operator_list_is_what_the_vendor_has() -> None:
    """Needs RECON_MUSA_OPERATORS: a file with torch_musa's operator names."""
    theirs = vendor_list()
    if theirs is None:
        pytest.skip("RECON_MUSA_OPERATORS names no file with torch_musa's operators")
    known = {name.partition(".")[0] for name in theirs}
    assert sorted(name for name in allowed() if name not in known and name not in UNLISTED) == []


def test_the_list_has_no_name_that_torch_does_not_know(musa: torch.device) -> None:
    known = {full.partition("::")[2].partition(".")[0] for full in torch._C._dispatch_get_all_op_names()}
    assert sorted(allowed() - known) == []
    assert offer_operators() == []  # all were given when the device was loaded


def test_another_torch_is_refused_plainly() -> None:
    assert unsupported_reason() == unsupported_reason("2.6.0+cu124") == unsupported_reason("2.15.0a0") == ""
    for version in ("2.5.1", "3.0.0"):
        assert f"torch 2.6 up to 3, this is {version}" in unsupported_reason(version)
    assert '"torch>=2.6,<3"' in (ROOT / "pyproject.toml").read_text()


def test_a_suite_that_cannot_run_fails_with_the_reason() -> None:
    """Not with pytest's 5, which also stands for a misspelled name."""
    code = (
        "import torch; torch.__version__ = '2.5.1'; import sys, pytest; sys.exit(pytest.main(['-q', 'tests/device']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR and "this is 2.5.1" in done.stderr
