"""The still part of a recording: the temporal median of each pixel, and how far frames stray from it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from recon.capture.store import FrameStore
from recon.capture.stream import CameraStream

MAX_FRAMES = 63
MAX_BYTES = 384 * 2**20  # of frames held at once when streaming
ROWS = 32


def temporal_plate(
    source: CameraStream | FrameStore, camera: str | None = None, *, max_frames: int = MAX_FRAMES
) -> tuple[np.ndarray, np.ndarray]:
    """(median uint8 [H, W, 3], mad float32 [H, W] in [0, 1]) over at most `max_frames` evenly spaced frames.

    source: a stream, or a store with the name of its camera. median: per channel, the lower one of an even number,
    so that it is a value that was seen. mad: median over time of the mean over channels of |frame - median| / 255.
    A store is read in blocks of rows; a stream holds its chosen frames, fewer of them when they are large.
    """
    if isinstance(source, FrameStore):
        if camera is None:
            raise ValueError("a store needs the camera's name")
        return _store_plate(source, camera, max_frames)
    fit = max(3, MAX_BYTES // (source.width * source.height * 3))
    return median_and_mad(source.read_many(evenly(len(source), min(max_frames, fit))))


def _store_plate(store: FrameStore, camera: str, max_frames: int) -> tuple[np.ndarray, np.ndarray]:
    ideal = store.cameras[camera].camera
    median = np.empty((ideal.height, ideal.width, 3), np.uint8)
    mad = np.empty((ideal.height, ideal.width), np.float32)
    chosen = evenly(store.num_frames(camera), max_frames)
    for top in range(0, ideal.height, ROWS):
        bottom = min(top + ROWS, ideal.height)
        block = np.stack([store.read(camera, int(i), (top, bottom, 0, ideal.width)) for i in chosen])  # [S, R, W, 3]
        median[top:bottom], mad[top:bottom] = median_and_mad(block)
    return median, mad


def median_and_mad(stack: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(lower median uint8 [H, W, 3], mad float32 [H, W]) over the first axis of uint8 [S, H, W, 3]."""
    height, width = stack.shape[1:3]
    median = np.empty((height, width, 3), np.uint8)
    mad = np.empty((height, width), np.float32)
    for top in range(0, height, ROWS):  # blocks of rows stay in the processor's cache
        block = stack[:, top : top + ROWS]
        low = lower_median(block)
        apart = np.maximum(block, low) - np.minimum(block, low)  # |block - low| without leaving uint8
        median[top : top + ROWS] = low
        mad[top : top + ROWS] = lower_median(apart.sum(axis=-1, dtype=np.uint16)) / np.float32(3 * 255)
    return median, mad


def lower_median(stack: np.ndarray) -> np.ndarray:
    """Lower median over the first axis of an integer array [S, ...].

    A selection network: the comparisons of a sorting network that can reach the middle, each one vectorised over all
    pixels. Ten times as fast as np.partition along the axis, and equal to it.
    """
    rows = [np.ascontiguousarray(row).copy() for row in stack]
    spare = np.empty_like(rows[0])
    for i, j in _selection_network(len(rows)):
        np.minimum(rows[i], rows[j], out=spare)
        np.maximum(rows[i], rows[j], out=rows[j])
        rows[i], spare = spare, rows[i]
    return rows[(len(rows) - 1) // 2]


@lru_cache(maxsize=64)
def _selection_network(count: int) -> list[tuple[int, int]]:
    """Compare-exchanges (i, j), i < j, after which position (count - 1) // 2 is right: Batcher's odd-even merge sort,
    less the comparisons nothing on the way to the middle depends on."""
    network = []
    p = 1
    while p < count:
        k = p
        while k >= 1:
            for start in range(k % p, count - k, 2 * k):
                for i in range(start, min(start + k, count - k)):
                    if i // (2 * p) == (i + k) // (2 * p):
                        network.append((i, i + k))
            k //= 2
        p *= 2
    needed = {(count - 1) // 2}
    pruned = []
    for i, j in reversed(network):
        if i in needed or j in needed:
            pruned.append((i, j))
            needed |= {i, j}
    return pruned[::-1]


def evenly(total: int, most: int) -> np.ndarray:
    """At most `most` evenly spaced indices of range(total), first and last included when there are two."""
    return np.unique(np.linspace(0, total - 1, min(total, most)).round().astype(np.int64))
