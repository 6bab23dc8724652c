"""Shows events to a person (rich or plain lines) or to a program (JSON lines)."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal, TextIO

from recon.core.errors import ReconError
from recon.core.events import Artifact, Event, Message, Progress, StageFinished, StageStarted, event_to_dict

Mode = Literal["auto", "rich", "plain", "json", "quiet"]
_PLAIN_INTERVAL = 5.0  # seconds between progress lines that cannot be overwritten


class Console:
    """Consumes events. Use as a context manager, so that a live line is always cleared.

    Args:
        mode: "rich" (live line), "plain" (a line now and then), "json" (one object per
            line), "quiet" (warnings and errors only), or "auto": rich on a terminal, else plain.
        stream: Where to write; standard error by default, so that results can be piped.
        clock: Monotonic seconds; for tests.
    """

    def __init__(
        self, mode: Mode = "auto", stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.stream = stream if stream is not None else sys.stderr
        self.mode: Mode = _pick(self.stream) if mode == "auto" else mode
        self._clock = clock
        self._rates: dict[str, StageRate] = {}
        self._warnings: dict[str, int] = {}  # text -> how often
        self._last_line = -_PLAIN_INTERVAL
        self._live = _LiveLine(self.stream) if self.mode == "rich" else None
        self.broken: OSError | None = None  # the terminal or pipe went away; the work goes on

    def __enter__(self) -> Console:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def consume(self, event: Event) -> None:
        """Show one event. Never raises because the stream is gone."""
        if self.mode == "json":
            self._write(json.dumps(event_to_dict(event), allow_nan=False))
        elif isinstance(event, Message):
            self._message(event)
        elif self.mode != "quiet":
            self._show(event)

    def error(self, error: ReconError) -> None:
        """Show a failure as "error: what: why. fix" (or as a JSON line)."""
        self.clear()
        if self.mode == "json":
            record = {"event": "Error", "kind": type(error).__name__, "exit_code": error.exit_code}
            self._write(json.dumps({**record, "what": error.what, "why": error.why, "fix": error.fix}))
        else:
            self._write(f"error: {error}")

    def clear(self) -> None:
        """Remove the live line, if there is one."""
        if self._live is not None:
            self._live.stop()

    def close(self) -> None:
        """Clear the live line and list the warnings once more."""
        self.clear()
        if self.mode != "json" and self._warnings:
            self._write(f"{len(self._warnings)} warning(s):")
            for number, (text, times) in enumerate(self._warnings.items(), 1):
                self._write(f"  [{number}] {text}" + (f" ({times} times)" if times > 1 else ""))
        self._warnings.clear()

    def _message(self, event: Message) -> None:
        if event.level == "warning":
            self._warnings[event.text] = self._warnings.get(event.text, 0) + 1
            if self._warnings[event.text] == 1:
                self._write(f"warning [{len(self._warnings)}]: {event.text}")
        elif event.level == "error" or self.mode != "quiet":
            self._write(f"error: {event.text}" if event.level == "error" else event.text)

    def _show(self, event: StageStarted | Progress | StageFinished | Artifact) -> None:
        now = self._clock()
        if isinstance(event, StageStarted):
            self._rates[event.stage] = StageRate(now)
            self._last_line = now - _PLAIN_INTERVAL  # the first step is worth a line
            if self._live is None:
                self._write(f"{event.stage} ...")
        elif isinstance(event, Progress):
            rate = self._rates.setdefault(event.stage, StageRate(now))
            rate.update(event.step, now)
            line = progress_line(event, rate)
            if self._live is not None:
                self._guarded(self._live.update, line)
            elif now - self._last_line >= _PLAIN_INTERVAL or (event.total and event.step >= event.total):
                self._last_line = now
                self._write(line)
        elif isinstance(event, StageFinished):
            self._rates.pop(event.stage, None)
            self.clear()
            self._write(_join(f"{event.stage} done in {_duration(event.seconds)}", _metrics(event.metrics)))
        else:
            self._write(f"{event.name}: {event.path}")

    def _write(self, text: str) -> None:
        self._guarded(self._live.print if self._live is not None else self._print, text)

    def _print(self, text: str) -> None:
        self.stream.write(text + "\n")
        self.stream.flush()

    def _guarded(self, output: Callable[[str], None], text: str) -> None:
        if self.broken is None:
            try:
                output(text)
            except OSError as error:  # closed pipe, full disk: a log is not worth the work
                self.broken = error


class StageRate:
    """Steps per second of one stage, smoothed over about ten seconds."""

    _WINDOW = 10.0  # seconds

    def __init__(self, start: float) -> None:
        self._time = start
        self._step = 0
        self._rate: float | None = None

    def update(self, step: int, now: float) -> None:
        """Note that `step` was reached at time `now` [s]."""
        seconds, steps = now - self._time, step - self._step
        if seconds <= 0 or steps < 0:
            self._step = step
            return
        current = steps / seconds
        weight = min(1.0, seconds / self._WINDOW)
        self._rate = current if self._rate is None else self._rate + weight * (current - self._rate)
        self._time, self._step = now, step

    @property
    def per_second(self) -> float | None:
        """Steps per second, None before the first measurement."""
        return self._rate

    def remaining(self, step: int, total: int) -> float | None:
        """Seconds until `total`, None when unknown."""
        return (total - step) / self._rate if self._rate and total > step else None


def progress_line(event: Progress, rate: StageRate) -> str:
    """Return e.g. "fit 1200/3000 | 41.7 it/s | ETA 0:43 | psnr 27.31"."""
    counter = f"{event.stage} {event.step}/{event.total}" if event.total else f"{event.stage} {event.step}"
    speed = rate.per_second
    parts = [counter]
    if speed:
        parts.append(f"{speed:.3g} it/s" if speed >= 1 else f"{1 / speed:.3g} s/it")
    seconds = rate.remaining(event.step, event.total)
    if seconds is not None:
        parts.append(f"ETA {_duration(seconds)}")
    return _join(*parts, _metrics(event.metrics))


def _join(*parts: str) -> str:
    return " | ".join(part for part in parts if part)


def _metrics(metrics: Mapping[str, float]) -> str:
    return " | ".join(f"{name} {_number(float(value))}" for name, value in metrics.items())


def _number(value: float) -> str:
    if value == int(value) if abs(value) < 1e15 else False:
        return str(int(value))
    return f"{value:.2f}" if 0.1 <= abs(value) < 1e5 else f"{value:.3g}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _pick(stream: TextIO) -> Mode:
    """Rich only where a line can be overwritten."""
    terminal = hasattr(stream, "isatty") and stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return "rich" if terminal else "plain"


class _LiveLine:
    """One line at the bottom of a terminal, rewritten in place; other lines scroll above it."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console as RichConsole

        self._console: Any = RichConsole(file=stream, highlight=False, soft_wrap=True)
        self._live: Any = None

    def update(self, text: str) -> None:
        """Show `text` as the live line."""
        from rich.live import Live
        from rich.text import Text

        line = Text(text, no_wrap=True, overflow="ellipsis", style="cyan")
        if self._live is None:
            self._live = Live(line, console=self._console, refresh_per_second=8, transient=True)
            self._live.start(refresh=True)
        else:
            self._live.update(line)

    def print(self, text: str) -> None:
        """Print a lasting line above the live one."""
        from rich.text import Text

        self._console.print(Text(text))

    def stop(self) -> None:
        """Take the live line away."""
        if self._live is not None:
            self._live.stop()
            self._live = None
