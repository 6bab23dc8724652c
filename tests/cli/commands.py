"""Running the `recon` command: in this process for speed, or in one of its own where that is what matters."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from recon.cli import main

ROOT = Path(__file__).resolve().parents[2]
LONG_STAGES = {"plates", "points", "static", "moving", "joint", "publish"}


@dataclass(frozen=True)
class Outcome:
    """code: exit code. events: JSON lines of standard error. seconds: CPU time, user and system."""

    code: int
    output: str
    errors: str
    seconds: float = 0.0

    @property
    def events(self) -> list[dict[str, Any]]:
        """Events, with --console json."""
        return [json.loads(line) for line in self.errors.splitlines() if line.startswith("{")]

    @property
    def error(self) -> dict[str, Any]:
        """The one error, with --console json."""
        (found,) = [event for event in self.events if event["event"] == "Error"]
        return found

    @property
    def text(self) -> str:
        """Everything the error says."""
        return " | ".join(str(self.error[key]) for key in ("what", "why", "fix"))

    @property
    def stages(self) -> set[str]:
        """Stages that began."""
        return {event["stage"] for event in self.events if event["event"] == "StageStarted"}


def here(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Outcome:
    """Run the command in this process."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    code = stop.value.code
    return Outcome(code if isinstance(code, int) else 0 if code is None else 1, shown.out, shown.err)


def obey_permissions() -> None:
    """For `before`: give up root's right to write where the permissions forbid it; others never had it."""
    drop, dac_override = 24, 1  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE: the program started next does not get it back
    if os.geteuid() == 0 and ctypes.CDLL(None, use_errno=True).prctl(drop, dac_override, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def process(
    *arguments: str | Path, folder: Path | None = None, before: Callable[[], None] | None = None, timeout: float = 300
) -> Outcome:
    """Run `python -m recon.cli` as a person does; `before` runs in the child just before the program starts."""
    start = os.times()
    result = subprocess.run(
        [sys.executable, "-m", "recon.cli", *map(str, arguments)],
        cwd=folder or ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=timeout,
        preexec_fn=before,
    )
    end = os.times()
    seconds = end.children_user - start.children_user + end.children_system - start.children_system
    return Outcome(result.returncode, result.stdout, result.stderr, seconds)
