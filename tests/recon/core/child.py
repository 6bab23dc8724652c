"""Run a piece of work in a forked child: to kill it, to limit it, to make it somebody else."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

# Calls after which the state on disk may have changed; a kill is tried at each of them.
STEPS = {"mkdir", "open", "fsync", "rename", "replace", "unlink", "rmdir", "flock", "write", "fsencode"}


def outcome(work: Callable[[], object]) -> str:
    """Run `work` in a child and return "ok", or "ErrorClass: message"."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = "ok"
        try:
            work()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode()[:60000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        text = file.read().decode()
    os.waitpid(pid, 0)
    return text


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Run `work` in a child that gets SIGKILL at its `step`-th file operation; False if it finished before."""
    pid = os.fork()
    if pid == 0:
        count = 0

        def profile(_frame: object, event: str, function: object) -> None:
            nonlocal count
            if event == "c_call" and getattr(function, "__name__", "") in STEPS:
                count += 1
                if count == step:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(profile)
        work()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def become_nobody() -> None:
    """Give up root, for which no folder is read-only."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


def left_over(folder: Path) -> list[str]:
    """Names of hidden files and folders that a clean end must not leave."""
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]
