"""Device names are resolved, or refused with the reason and the fix."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from recon.core import device as devices
from recon.core.device import describe_device, describe_devices, resolve_device
from recon.core.errors import UnavailableError, UsageError


@pytest.fixture
def no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a CPU only."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delattr(torch, "musa", raising=False)
    monkeypatch.setitem(sys.modules, "torch_musa", None)
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: None)


def fake_runtime(count: int) -> SimpleNamespace:
    """A vendor's torch module that reports `count` devices."""
    return SimpleNamespace(
        is_available=lambda: count > 0, device_count=lambda: count, get_device_name=lambda index: "MTT S5000"
    )


def test_the_cpu_is_always_there() -> None:
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("cpu:0") == torch.device("cpu:0")


@pytest.mark.usefixtures("no_accelerator")
def test_auto_falls_back_to_the_cpu() -> None:
    assert resolve_device("auto") == resolve_device() == torch.device("cpu")


@pytest.mark.usefixtures("no_accelerator")
@pytest.mark.parametrize(
    ("name", "reason", "fix"),
    [
        ("cuda", "no such device", "CUDA"),
        ("musa", "torch_musa is not installed", "Moore Threads"),
        ("cuda:1", "no", "cpu"),
    ],
)
def test_a_missing_device_is_refused_with_reason_and_fix(name: str, reason: str, fix: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        resolve_device(name)
    assert reason in caught.value.why and fix in caught.value.fix


@pytest.mark.usefixtures("no_accelerator")
def test_a_hidden_device_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES='' hides them" in describe_device("cuda").reason


@pytest.mark.parametrize("name", ["gpu", "", "cud", "cuda:", "cuda:x", "cpu:-1"])
def test_an_unknown_name_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match="Known: auto, cpu, cuda, musa"):
        resolve_device(name)


def test_an_index_beyond_the_last_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "musa", fake_runtime(2), raising=False)
    assert describe_device("musa").description == "MTT S5000"
    with pytest.raises(UnavailableError, match="2 visible"):
        resolve_device("musa:2")
    with pytest.raises(UnavailableError, match="1 visible"):
        resolve_device("cpu:1")


def test_a_runtime_that_fails_is_reported_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> bool:
        raise RuntimeError("driver too old")

    monkeypatch.setattr(torch, "musa", SimpleNamespace(is_available=fail), raising=False)
    info = describe_device("musa")
    assert not info.available and "driver too old" in info.reason


def test_every_vendor_is_described() -> None:
    infos = {info.name: info for info in describe_devices()}
    assert set(infos) == {"cpu", "cuda", "musa"}
    assert all(info.available or (info.reason and info.fix) for info in infos.values())


def test_cpu_bookkeeping() -> None:
    cpu = torch.device("cpu")
    devices.synchronize(cpu)
    assert devices.peak_memory_bytes(cpu) == 0
    assert devices.collective_backend(cpu) == "gloo"


def test_strict_precision_turns_the_short_formats_off() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        devices.set_strict_precision()
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.backends.cudnn.allow_tf32
    finally:
        torch.set_float32_matmul_precision(before)
