"""Whether cameras run on one clock: how much moves, over time, is much the same from everywhere.

For every two cameras the shift at which their motion signals agree best; then the offsets that explain all shifts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

REACH = 1.0  # s, largest shift that is looked for
FINER = 8  # grid points per frame of the fastest camera
AGREE = 0.7  # least correlation of two cameras that say something
SHORTEST = 1.5  # s of signal, and
FRAMES = 12  # at least so many frames
SPREAD = 0.12  # frames: the shifts against the other cameras may scatter this much (median)


@dataclass(frozen=True)
class Signal:
    """How much a camera's picture changes. times [R] s; motion [R] grey levels per frame."""

    times: np.ndarray
    motion: np.ndarray


@dataclass(frozen=True)
class Offset:
    """seconds to add to a camera's times; correlation with the others then; sure: whether the signals tell."""

    seconds: float
    correlation: float
    sure: bool


def offsets(signals: Mapping[str, Signal]) -> dict[str, Offset]:
    """How far each camera's clock is from the others' (their median is zero); nothing for cameras without a signal."""
    usable = {name: s for name, s in signals.items() if len(s.times) >= FRAMES}
    if len(usable) < 2:
        return {}
    start = max(float(s.times[0]) for s in usable.values())
    end = min(float(s.times[-1]) for s in usable.values())
    frame = min(float(np.median(np.diff(s.times))) for s in usable.values())
    if end - start < SHORTEST:
        return {}
    grid = np.arange(start, end, frame / FINER)
    curves = np.stack([_curve(s, grid, frame) for s in usable.values()])
    lags, scores = _pairwise(curves, int(min(REACH, (end - start) / 3) / frame * FINER))
    lags = lags * frame / FINER
    return dict(zip(usable, _solved(lags, scores, frame), strict=True))


def _curve(signal: Signal, grid: np.ndarray, frame: float) -> np.ndarray:
    """The signal on the grid, smoothed over two frames, its slow part taken out; differences lie between two frames."""
    middle = signal.times - np.median(np.diff(signal.times)) / 2
    value = np.interp(grid, middle, np.sqrt(np.maximum(signal.motion, 0.0)))
    width = 2 * FINER
    kernel = np.hanning(width + 2)[1:-1]
    return np.asarray(np.convolve(value - value.mean(), kernel / kernel.sum(), mode="same"))


def _pairwise(curves: np.ndarray, reach: int) -> tuple[np.ndarray, np.ndarray]:
    """(lags [C, C] grid steps, correlation [C, C]): curve b, moved by lags[a, b], agrees best with curve a."""
    count, length = curves.shape
    lags, scores = np.zeros((count, count)), np.zeros((count, count))
    steps = np.arange(-reach, reach + 1)
    for a, b in combinations(range(count), 2):
        values = np.array([_correlation(curves[a], curves[b], int(step)) for step in steps])
        k = int(np.argmax(values))
        lags[a, b] = steps[k] + _vertex(values, k)
        lags[b, a] = -lags[a, b]
        inner = 0 < k < len(steps) - 1  # a peak at the end of the search is none
        scores[a, b] = scores[b, a] = values[k] if inner else 0.0
    return lags, scores


def _correlation(a: np.ndarray, b: np.ndarray, step: int) -> float:
    """Normalised correlation of a(t) and b(t - step) where both are known."""
    first, second = (a[step:], b[: len(b) - step]) if step >= 0 else (a[:step], b[-step:])
    first, second = first - first.mean(), second - second.mean()
    scale = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / scale if scale > 0 else 0.0


def _vertex(values: np.ndarray, k: int) -> float:
    """Where between grid points the parabola through three values around k peaks, -0.5 to 0.5."""
    if not 0 < k < len(values) - 1:
        return 0.0
    left, middle, right = values[k - 1 : k + 2]
    bend = left - 2 * middle + right
    return float(np.clip(0.5 * (left - right) / bend, -0.5, 0.5)) if bend < 0 else 0.0


def _solved(lags: np.ndarray, scores: np.ndarray, frame: float) -> list[Offset]:
    """Offsets o with o_b - o_a = lags[a, b] in the sense of medians, over pairs that agree."""
    count = len(lags)
    good = scores >= AGREE
    seconds = np.zeros(count)
    for _ in range(20):  # each camera against the others, until nothing changes
        for b in range(count):
            if good[b].any():
                seconds[b] = np.median((seconds + lags[:, b])[good[b]])
        seconds -= np.median(seconds[good.any(1)]) if good.any() else 0.0
    result = []
    for b in range(count):
        rest = (seconds + lags[:, b] - seconds[b])[good[b]]
        sure = good[b].sum() >= max(1, (count - 1) // 2) and float(np.median(np.abs(rest))) <= SPREAD * frame
        result.append(Offset(float(seconds[b]), float(np.median(np.delete(scores[b], b))), bool(sure)))
    return result
