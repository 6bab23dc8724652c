"""The device suite: on the SIMULATED musa device, in a process of its own: torch's device can be named only once.

    PYTHONPATH=tests/musa_sim/plugin python -m pytest tests/device       (`scripts/test` does it)

Without that path nothing here is collected, so a real torch_musa is never mistaken for the simulated one.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from tests.musa_sim.build import unsupported_reason

T = TypeVar("T")
PLUGIN = Path(__file__).resolve().parents[1] / "musa_sim" / "plugin"
CPU = torch.device("cpu")
RECORD = os.environ.get("MUSA_SIM_RECORD", "")
_found = importlib.util.find_spec("torch_musa")
_simulated = _found is not None and _found.origin is not None and Path(_found.origin).is_relative_to(PLUGIN)
if not _simulated or unsupported_reason():  # `absent_reason` says it
    collect_ignore_glob = ["test_*.py"]


def absent_reason() -> str:
    """Why nothing here is collected, "" when it is."""
    if not _simulated:
        return "not collected (tests/musa_sim/plugin is not on PYTHONPATH)"
    return f"not collected ({reason})" if (reason := unsupported_reason()) else ""


def pytest_report_header() -> str:
    """Say what the results are worth."""
    return f"device suite: {absent_reason() or 'SIMULATED musa device on host memory, not Moore Threads hardware'}"


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail, saying why, where this suite was asked for and is not here.

    With MUSA_SIM_RECORD=file: write what the device was asked for, one JSON object per line, for `recon doctor`.
    """
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and (reason := absent_reason()):
        print(f"\nerror: device suite: {reason}", file=sys.stderr)
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
    if RECORD and not absent_reason():
        lines = torch.ops.musa_sim.signatures()
        Path(RECORD).write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="session")
def musa() -> torch.device:
    """The simulated device, found as the packages find a real one."""
    from recon.core.device import describe_device, resolve_device

    device = resolve_device("musa")
    torch.ops.musa_sim.record(bool(RECORD))
    assert "simulated" in describe_device("musa").description
    return device


@pytest.fixture
def no_float64(musa: torch.device) -> Iterator[None]:
    """Refuse float64 on the device while a test runs."""
    torch.ops.musa_sim.forbid_float64(True)
    yield
    torch.ops.musa_sim.forbid_float64(False)


@pytest.fixture
def on_both(musa: torch.device, no_float64: None) -> Callable[[Callable[[torch.device], T]], tuple[T, T]]:
    """Run a function of the device on the CPU and on the simulated one; refuses a run that left the device unused."""

    def run(work: Callable[[torch.device], T]) -> tuple[T, T]:
        cpu = work(CPU)
        before = calls()
        simulated = work(musa)
        assert calls() > before + 10, "the simulated device did next to nothing"
        return cpu, simulated

    return run


def calls() -> int:
    """Operators that the simulated device has run."""
    return sum(int(line.split()[1]) for line in torch.ops.musa_sim.calls())


def assert_same(one: Any, other: Any, where: str = "") -> None:
    """Equal bit for bit: tensors (on any device), numbers, and dicts and sequences of them."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one.detach().cpu(), other.detach().cpu()), where
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), where
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same(a, b, f"{where}/{index}")
    else:
        assert one == other, where


@pytest.fixture
def same() -> Callable[..., None]:
    """`assert_same`."""
    return assert_same
