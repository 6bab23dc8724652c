"""Moments at which several cameras are looked at: frames paired by their time stamps, never by their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

APART = 0.5  # frame distances: a camera's frame further from an instant is not of it
SLACK = 1e-3  # seconds, for rounded time stamps


@dataclass(frozen=True, eq=False)
class Instants:
    """times: [T] seconds. frames: [C, T] int64, each camera's frame, -1 where it has none. late: [C, T] seconds that
    the frame was taken after the instant (0 where there is none)."""

    times: np.ndarray
    frames: np.ndarray
    late: np.ndarray


def pair_frames(times: Sequence[np.ndarray], limit: int) -> Instants:
    """At most `limit` instants spread over the recordings. times: per camera [N] seconds, increasing, on one clock.

    The instants are the frames of the slowest camera, and of the next where it does not run; each other camera adds
    its nearest frame, at most half its frame distance away. So no frame belongs to two instants.
    """
    steps = np.array([float(np.median(np.diff(t))) if len(t) > 1 else np.inf for t in times])
    finite = steps[np.isfinite(steps)]
    longest = float(finite.max()) if len(finite) else 1.0
    chosen = np.empty(0)
    for camera in sorted(range(len(times)), key=lambda c: -steps[c] if np.isfinite(steps[c]) else 0.0):
        own = np.asarray(times[camera], dtype=np.float64)
        apart = np.abs(own[:, None] - chosen[None]).min(axis=1) if len(chosen) else np.full(len(own), np.inf)
        chosen = np.sort(np.concatenate([chosen, _thinned(own[apart > 0.75 * longest], longest)]))
    if len(chosen) > limit:
        chosen = chosen[np.unique(np.linspace(0, len(chosen) - 1, limit).astype(int))]
    frames = np.full((len(times), len(chosen)), -1, np.int64)
    late = np.zeros((len(times), len(chosen)))
    for camera, own in enumerate(times):
        near = np.abs(np.asarray(own)[:, None] - chosen[None]).argmin(axis=0)
        off = np.asarray(own)[near] - chosen
        step = steps[camera] if np.isfinite(steps[camera]) else longest
        good = np.abs(off) <= APART * step + SLACK
        frames[camera, good], late[camera, good] = near[good], off[good]
    return Instants(chosen, frames, late)


def _thinned(times: np.ndarray, step: float) -> np.ndarray:
    """Those at least 3/4 of a step apart."""
    kept: list[float] = []
    for t in times:
        if not kept or t - kept[-1] > 0.75 * step:
            kept.append(float(t))
    return np.array(kept)
