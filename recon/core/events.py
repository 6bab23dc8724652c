"""What long work tells the outside: a stream of small typed events.

Work is a generator of events. The console, the JSON log, the viewer and the
tests are consumers; the work knows none of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Level = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class StageStarted:
    """A stage begins; `total` steps are expected (0: unknown)."""

    stage: str
    total: int = 0


@dataclass(frozen=True)
class Progress:
    """Step `step` of `total` is done. Metrics are plain numbers, e.g. {"psnr": 27.3}."""

    stage: str
    step: int
    total: int
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Message:
    """Something a person should read once."""

    level: Level
    text: str


@dataclass(frozen=True)
class StageFinished:
    """A stage ended after `seconds` of wall time."""

    stage: str
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Artifact:
    """A file or folder is complete and may be opened."""

    name: str
    path: Path


Event = StageStarted | Progress | Message | StageFinished | Artifact


def event_to_dict(event: Event) -> dict[str, Any]:
    """Return the event as plain JSON values with its class name under "event".

    Numbers that JSON cannot hold (NaN, Inf) become None.
    """
    fields = {f.name: _plain(getattr(event, f.name)) for f in dataclasses.fields(event)}
    return {"event": type(event).__name__, **fields}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bool) or value is None or isinstance(value, (str, int)):
        return value
    number = float(value)  # numpy and torch scalars too
    return number if math.isfinite(number) else None
