"""The first Ctrl-C asks, the second insists."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from recon.core.interrupt import deferred_interrupt


@pytest.fixture(autouse=True)
def terminal() -> Iterator[None]:
    """Ctrl-C as at a terminal: a process that a shell started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_ctrl_c_only_asks() -> None:
    with deferred_interrupt() as stop:
        assert not stop.asked
        press()
        assert stop.asked


def test_the_second_ctrl_c_insists_and_the_old_handler_comes_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), deferred_interrupt():
        press()
        press()
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_are_left_alone() -> None:
    found = []

    def work() -> None:
        with deferred_interrupt() as stop:
            found.append(stop.asked)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]
