"""Statistics of features as LeRobot keeps them: mean, std, min, max, count and five quantiles, per value of a frame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
Summary = dict[str, NDArray[Any]]


def summarise(rows: NDArray[Any]) -> Summary:
    """Of numbers [rows, *shape]; every entry has the shape of a frame, count has [1]."""
    x = rows.astype(np.float64)
    summary = {"min": x.min(axis=0), "max": x.max(axis=0), "mean": x.mean(axis=0), "std": x.std(axis=0)}
    summary["count"] = np.array([len(x)])
    return summary | {name: np.quantile(x, q, axis=0) for name, q in QUANTILES.items()}


class Tones:
    """How often each of the 256 tones came in each colour: all that the statistics of pictures need, and it adds up.

    counts: int64 [3, 256]. frames: pictures counted.
    """

    def __init__(self) -> None:
        self.counts = np.zeros((3, 256), np.int64)
        self.frames = 0

    def add(self, frames: Iterable[NDArray[np.uint8]]) -> None:
        """Count pictures [H, W, 3]."""
        for frame in frames:
            for colour in range(3):
                self.counts[colour] += np.bincount(frame[..., colour].reshape(-1), minlength=256)
            self.frames += 1

    def merge(self, other: Tones) -> None:
        """Add what another one counted."""
        self.counts += other.counts
        self.frames += other.frames

    def summary(self) -> Summary:
        """Statistics [3, 1, 1] of tones from 0 to 1; count is the number of pictures."""
        tones, total = np.arange(256) / 255.0, np.maximum(self.counts.sum(axis=1, keepdims=True), 1)
        share = self.counts / total
        mean = share @ tones
        # E[(x - mean)^2], not E[x^2] - mean^2: that loses what it looks for in nearly even pictures
        std = np.sqrt((share * (tones - mean[:, None]) ** 2).sum(axis=1))
        seen = self.counts > 0
        low, high = tones[seen.argmax(axis=1)], tones[255 - seen[:, ::-1].argmax(axis=1)]
        reached = np.cumsum(share, axis=1)
        levels = {name: tones[(reached >= q - 1e-12).argmax(axis=1)] for name, q in QUANTILES.items()}
        entries = {"min": low, "max": high, "mean": mean, "std": std, **levels}
        return {name: value.reshape(3, 1, 1) for name, value in entries.items()} | {"count": np.array([self.frames])}
