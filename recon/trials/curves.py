"""Training curves of a device against those stored from a CPU.

`data/doctor/curves.json`: {"format": "recon-curves", "version": 1, "made": {...}, "curves": {trial: {metric: [...]}}}.
It is written by `python -m recon.trials.curves FILE` on the CPU.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import torch

from recon.core.files import data_file, read_json, write_json
from recon.trials import fitting

Curve = dict[str, list[float]]
# metric -> largest difference to the stored curve that is put down to rounding; other metrics: RELATIVE of the value
ABSOLUTE = {"psnr": 0.1}  # dB
RELATIVE, FLOOR = 0.02, 2e-3


def trials() -> dict[str, Callable[[torch.device], Curve]]:
    """The fit, and what other installed packages offer under the entry point group "recon.trials"."""
    found: dict[str, Callable[[torch.device], Curve]] = {"fit": fitting.curve}
    for entry in entry_points(group="recon.trials"):
        found.setdefault(entry.name, entry.load())
    return found


def stored() -> dict[str, Curve]:
    """The curves of the CPU."""
    curves: dict[str, Curve] = read_json(data_file("doctor/curves.json"))["curves"]
    return curves


def departure(expected: Curve, found: Curve) -> tuple[float, str]:
    """Largest difference over the allowed one (at most 1 is fine), and where: "psnr 3" is the fourth value."""
    worst, where = 0.0, ""
    for metric, values in expected.items():
        mine = found.get(metric, [])
        if len(mine) != len(values):
            return float("inf"), f"{metric} has {len(mine)} values, not {len(values)}"
        for index, (a, b) in enumerate(zip(values, mine, strict=True)):
            allowed = ABSOLUTE.get(metric, max(FLOOR, RELATIVE * abs(a)))
            error = abs(a - b) / allowed if b == b else float("inf")
            if error > worst:
                worst, where = error, f"{metric} {index}"
    return worst, where


def store(path: Path) -> None:
    """Write the curves of this machine's CPU."""
    cpu = torch.device("cpu")
    made = {"torch": str(torch.__version__), "machine": platform.machine(), "device": "cpu"}
    curves = {name: trial(cpu) for name, trial in trials().items()}
    write_json(path, {"format": "recon-curves", "version": 1, "made": made, "curves": curves})


if __name__ == "__main__":
    store(Path(sys.argv[1]))
