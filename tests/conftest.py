"""Settings of the whole suite: one thread, no network, deterministic hypothesis."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Two threads on a busy machine spin at barriers; tests are faster with one. Set before torch loads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("deep", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return ROOT


@pytest.fixture(scope="session", autouse=True)
def _single_thread() -> None:
    """Keep torch to one thread, as the environment variable asks of OpenMP."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


@pytest.fixture(scope="session", autouse=True)
def _offline() -> Iterator[None]:
    """Refuse connections to anywhere but this machine: nothing we do needs a network."""
    connect = socket.socket.connect

    def local_only(self: socket.socket, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) else "localhost"
        if self.family != socket.AF_UNIX and host not in ("localhost", "127.0.0.1", "::1"):
            raise OSError(f"tests are offline, refusing a connection to {host}")
        connect(self, address)

    socket.socket.connect = local_only  # type: ignore[method-assign]
    yield
    socket.socket.connect = connect  # type: ignore[method-assign]
