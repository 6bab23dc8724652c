"""The still part of a recording: the temporal median of each pixel, and how far frames stray from it."""

from __future__ import annotations

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
    middle = (len(stack) - 1) // 2
    height, width = stack.shape[1:3]
    median = np.empty((height, width, 3), np.uint8)
    mad = np.empty((height, width), np.float32)
    for top in range(0, height, ROWS):
        # Pixel-major, so that each small sort runs on contiguous bytes.
        block = np.ascontiguousarray(np.moveaxis(stack[:, top : top + ROWS], 0, -1))  # [R, W, 3, S]
        low = np.partition(block, middle, axis=-1)[..., middle]
        apart = np.abs(block.astype(np.int16) - low[..., None]).sum(axis=2)  # [R, W, S]
        median[top : top + ROWS] = low
        mad[top : top + ROWS] = np.partition(apart, middle, axis=-1)[..., middle] / np.float32(3 * 255)
    return median, mad


def evenly(total: int, most: int) -> np.ndarray:
    """At most `most` evenly spaced indices of range(total), first and last included when there are two."""
    return np.unique(np.linspace(0, total - 1, min(total, most)).round().astype(np.int64))
