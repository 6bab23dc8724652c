"""What people and programs see of long work."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest

from recon.core.console import Console, StageRate, progress_line
from recon.core.errors import InputError, ReconError, did_you_mean
from recon.core.events import Artifact, Message, Progress, StageFinished, StageStarted, event_to_dict


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run_stage(console: Console, clock: Clock, steps: int = 100, seconds: float = 0.5) -> None:
    """Feed a whole stage of `steps`, `seconds` apart."""
    console.consume(StageStarted("fit", steps))
    for step in range(1, steps + 1):
        clock.now += seconds
        console.consume(Progress("fit", step, steps, {"psnr": 20.0 + step / 10}))
    console.consume(StageFinished("fit", steps * seconds, {"psnr": 30.0}))


def test_plain_lines_tell_step_speed_time_left_and_quality() -> None:
    stream, clock = io.StringIO(), Clock()
    run_stage(Console("plain", stream, clock), clock)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "fit ..."
    assert lines[1] == "fit 1/100 | 2 it/s | ETA 50 s | psnr 20.10"
    assert lines[-2:] == ["fit 100/100 | 2 it/s | psnr 30", "fit done in 50 s | psnr 30"]
    assert 10 <= len(lines) <= 14, "one line per five seconds"


def test_json_lines_parse_and_hold_every_event() -> None:
    stream, clock = io.StringIO(), Clock()
    with Console("json", stream, clock) as console:
        run_stage(console, clock, steps=7)
        console.consume(Message("warning", 'dark "camera"\n3'))
        console.consume(Artifact("scene", Path("scenes/bench")))
        console.consume(Progress("fit", 8, 9, {"psnr": float("nan"), "n": np.float32(2)}))
        console.error(InputError("bad", why="so", fix="do"))
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [r["event"] for r in records].count("Progress") == 8
    assert records[0] == {"event": "StageStarted", "stage": "fit", "total": 7}
    assert records[-3] == {"event": "Artifact", "name": "scene", "path": "scenes/bench"}
    assert records[-2]["metrics"] == {"psnr": None, "n": 2.0}
    assert records[-1] == {
        "event": "Error", "kind": "InputError", "exit_code": 3, "what": "bad", "why": "so", "fix": "do",
    }  # fmt: skip


def test_quiet_shows_only_what_went_wrong() -> None:
    stream, clock = io.StringIO(), Clock()
    with Console("quiet", stream, clock) as console:
        run_stage(console, clock)
        console.consume(Message("info", "hello"))
        console.consume(Message("error", "broken"))
    assert stream.getvalue() == "error: broken\n"


def test_warnings_are_shown_once_and_listed_at_the_end() -> None:
    stream = io.StringIO()
    with Console("plain", stream) as console:
        for text in ("dark", "blurred", "dark", "dark"):
            console.consume(Message("warning", text))
    assert stream.getvalue().splitlines() == [
        "warning [1]: dark",
        "warning [2]: blurred",
        "2 warning(s):",
        "  [1] dark (3 times)",
        "  [2] blurred",
    ]


def test_auto_is_plain_where_a_line_cannot_be_rewritten() -> None:
    assert Console("auto", io.StringIO()).mode == "plain"


def _all_of(master: int) -> bytes:
    """What a terminal whose other end is closed still holds; one read may give a part only."""
    found = b""
    while True:
        try:
            part = os.read(master, 100_000)
        except OSError:  # EIO: nothing is left
            return found
        if not part:
            return found
        found += part


def test_the_live_line_is_rewritten_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    master, slave = os.openpty()
    clock = Clock()
    with os.fdopen(slave, "w") as stream, Console("auto", stream, clock) as console:
        assert console.mode == "rich"
        run_stage(console, clock, steps=5)
        console.consume(Message("warning", "dark"))
    text = _all_of(master).decode()
    os.close(master)
    assert "fit 1/5 | 2 it/s" in text
    assert "\x1b[2K" in text, "the line is erased"
    assert text.rstrip().endswith("[1] dark"), "nothing of the live line is left"
    assert "\x1b[?25h" in text, "the cursor is back"


def test_a_full_or_closed_log_does_not_stop_the_work() -> None:
    clock = Clock()
    with open("/dev/full", "w") as stream:
        console = Console("plain", stream, clock)
        run_stage(console, clock)
        assert console.broken is not None
        stream.buffer.raw.close()  # type: ignore[attr-defined]  # do not flush into it again


@pytest.mark.parametrize(
    ("step", "total", "expected"),
    [
        (10, 0, "s 10 | 10 it/s"),
        (1, 100, "s 1/100 | 1 it/s | ETA 1:39"),
        (1, 40000, "s 1/40000 | 1 it/s | ETA 11:06:39"),
    ],
)
def test_time_left_is_readable(step: int, total: int, expected: str) -> None:
    rate = StageRate(0.0)
    rate.update(step, 1.0)
    assert progress_line(Progress("s", step, total), rate) == expected


def test_slow_steps_are_told_in_seconds_each() -> None:
    rate = StageRate(0.0)
    rate.update(1, 4.0)
    assert "4 s/it" in progress_line(Progress("s", 1, 3), rate)


def test_events_become_plain_values() -> None:
    event = StageFinished("fit", 1.5, {"psnr": np.float64(3)})
    assert event_to_dict(event) == {"event": "StageFinished", "stage": "fit", "seconds": 1.5, "metrics": {"psnr": 3.0}}


def test_an_error_reads_what_why_fix() -> None:
    assert str(ReconError("cannot open a.mp4.", why="no moov atom.", fix="Record again.")) == (
        "cannot open a.mp4: no moov atom. Record again."
    )
    assert str(ReconError("stopped")) == "stopped"


def test_exit_codes_are_the_documented_ones() -> None:
    from recon.core import errors

    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, ReconError)]
    assert {kind.__name__: kind.exit_code for kind in classes} == {
        "ReconError": 1, "UsageError": 2, "InputError": 3, "CalibrationError": 4, "UnavailableError": 5,
        "StorageError": 6, "DivergedError": 7, "CorruptError": 8, "TrialError": 9, "Interrupted": 130,
    }  # fmt: skip


def test_did_you_mean_names_the_nearest_and_all() -> None:
    assert did_you_mean("camra", ["camera", "robot"]) == "Did you mean 'camera'? Known: camera, robot."
    assert did_you_mean("zzz", ["camera"]) == "Known: camera."
    assert did_you_mean("zzz", []) == "Known: none."
