"""The clocks a build found against the true ones.

Times of the scene are those of a usual camera, the truth's are of a common clock; the two differ by

    shift = median over cameras of (scene time - true time) of the same frame,

which nobody can see and which is taken out of everything. Then a camera's lag is off by its own difference less the
shift, and the robot's log, log time = scene time + s, where truly log time = common time + r, by |s - (r - shift)|.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Clocks:
    """Seconds: shift = scene time - common time; lag_errors by camera; robot_error (None: no log was fitted)."""

    shift: float
    lag_errors: dict[str, float]
    robot_error: float | None


def true_times(timing: dict, camera: str) -> np.ndarray:
    """[F] seconds on the common clock of a camera's frames, from parsed timing.json."""
    entry = timing["cameras"][camera]
    return float(entry["offset_s"]) + np.array(entry["pts_s"], dtype=np.float64)


def compare_clocks(frame_times: Mapping[str, Sequence[float]], robot_offset: float | None, timing: dict) -> Clocks:
    """frame_times: scene seconds by camera. robot_offset: the s that was found. timing: parsed timing.json."""
    off = {}
    for name, times in frame_times.items():
        true = true_times(timing, name)
        count = min(len(times), len(true))
        off[name] = float(np.median(np.asarray(times[:count]) - true[:count]))
    shift = float(np.median(list(off.values())))
    robot = None
    if robot_offset is not None:
        robot = robot_offset - (float(timing["robot_clock_offset_s"]) - shift)
    return Clocks(shift, {name: value - shift for name, value in off.items()}, robot)


def found_clocks(scene: Path, timing: dict) -> Clocks:
    """Those of a scene's folder; the robot's offset is what the last `clock` stage of its report found."""
    header = json.loads((scene / "scene.json").read_text())
    stages = json.loads((scene / "report" / "report.json").read_text())["stages"]
    offsets = [stage["metrics"]["offset_s"] for stage in stages if stage["name"] == "clock"]
    return compare_clocks(header["frame_times"], offsets[-1] if offsets else None, timing)
