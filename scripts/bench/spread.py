"""Several runs as one: the median of every number, and how far apart they lie."""

from __future__ import annotations

import numpy as np


def merged(runs: list[dict[str, object]]) -> dict[str, object]:
    """Medians of what every run has as a number (others as in the first), `spread` {key: [min, max]} and `runs`."""
    if len(runs) == 1:
        return runs[0]
    result: dict[str, object] = {}
    spread: dict[str, list[float]] = {}
    for key, first in runs[0].items():
        values = [run.get(key) for run in runs]
        numbers = [float(v) for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
        if key != "seed" and len(numbers) == len(runs):
            result[key] = float(np.median(numbers))
            spread[key] = [min(numbers), max(numbers)]
        elif not isinstance(first, (dict, list)) and key != "seed":
            result[key] = first
    return {**result, "seeds": [run.get("seed") for run in runs], "spread": spread, "runs": runs}
