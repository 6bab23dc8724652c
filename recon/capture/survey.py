"""What the capture check looks at: a bounded number of frames per camera, each reduced to a few small things.

A short recording is looked at whole. Of one that would take too long to decode, some stills (whole frames of a video
that need no other frame) and one stretch of consecutive frames that all cameras share are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import cv2
import numpy as np

from recon.capture.plate import evenly
from recon.capture.steady import Shift, shift
from recon.capture.stream import CameraStream
from recon.capture.sync import Signal

BUDGET = 1.2e9  # pixels decoded in all: about 20 s on two cores
MAX_RUN = 900  # frames of a stretch per camera
STILLS = 9
THUMB = (64, 48)
LONG_SIDE = 640  # px, of the pictures that are compared for a moving camera
SHOWN = 320  # px, of those that may be shown
SHARP_SIDE = 1280  # px, of the middle of a picture in which sharpness is measured
WHITE = 254


@dataclass(frozen=True)
class Plan:
    """stills, run: frame indices in increasing order; the run is consecutive. whole: the run is the recording."""

    stills: list[int]
    run: list[int]
    whole: bool


@dataclass(frozen=True, eq=False)
class Look:
    """What the frames of one camera look like.

    plan: which. thumbs [S, 48, 64] float32 grey levels, sharpness, mean, clipped [S] and shown (JPEG) of the stills.
    bright: 99th percentile of the brightest still. gain [R]: brightness of the run's frames relative to their median,
    on what stands still. motion [R]: mean change from the frame before, in grey levels (0 for the first).
    repeated: frames of the run equal to the one before. shifts [S]: of the still part against the first still, in
    pixels of the recording (None: cannot be told). jitter: median shift between consecutive frames, likewise.
    """

    plan: Plan
    thumbs: np.ndarray
    sharpness: list[float]
    mean: list[float]
    clipped: list[float]
    bright: float
    gain: np.ndarray
    signal: Signal
    repeated: list[int]
    shifts: list[float | None]
    jitter: float | None
    shown: dict[int, bytes]


def plans(streams: Mapping[str, CameraStream], budget: float = BUDGET) -> dict[str, Plan]:
    """What to look at in each camera so that about `budget` pixels are decoded in all."""
    pixels = {name: s.width * s.height for name, s in streams.items()}
    if sum(len(s) * pixels[name] for name, s in streams.items()) <= budget and all(
        len(s) <= MAX_RUN for s in streams.values()
    ):
        return {name: Plan(_even(len(s), STILLS), list(range(len(s))), True) for name, s in streams.items()}
    start = max(float(s.times[0]) for s in streams.values())
    end = min(float(s.times[-1]) for s in streams.values())
    number = int(np.clip(budget / 3 / sum(pixels.values()), 3, STILLS))
    share = 2 / 3 * budget / len(streams)
    # the longest stretch [s] that every camera's share affords, decoded from the keyframe before it
    middle = (start + end) / 2
    length = end - start
    for name, stream in streams.items():
        frames = min(share / pixels[name], MAX_RUN)
        length = min(length, frames * float(np.median(np.diff(stream.times))) if len(stream) > 1 else 0.0)
    chosen = {}
    for name, stream in streams.items():
        first, last = np.searchsorted(stream.times, [middle - length / 2, middle + length / 2])
        first = _affordable(stream, int(first), int(share / pixels[name]))
        run = list(range(first, min(max(int(last), first + 2), len(stream))))
        stills = sorted({_keyframe(stream, i) for i in _even(len(stream), number)} | {run[0], run[-1]})
        chosen[name] = Plan(stills, run, False)
    return chosen


def _even(count: int, number: int) -> list[int]:
    return [int(i) for i in evenly(count, number)]


def _keyframe(stream: CameraStream, index: int) -> int:
    """The last frame up to `index` that can be decoded by itself."""
    keys = stream.keyframes
    return int(keys[max(0, int(np.searchsorted(keys, index, side="right")) - 1)])


def _affordable(stream: CameraStream, index: int, frames: int) -> int:
    """`index`, or the keyframe before it when decoding from there would cost more than half of `frames`."""
    key = _keyframe(stream, index)
    return index if index - key <= frames // 2 else key


def look_at_camera(stream: CameraStream, plan: Plan) -> Look:
    """Read the frames of a plan, once, in order. Raises InputError where a frame cannot be decoded."""
    stills, run = set(plan.stills), set(plan.run)
    thumbs: dict[int, np.ndarray] = {}
    grey: dict[int, np.ndarray] = {}
    rows: dict[int, tuple[float, float, float, float]] = {}
    shown: dict[int, bytes] = {}
    repeated: list[int] = []
    before: np.ndarray | None = None
    for i in sorted(stills | run):
        image = stream.read(i)
        if i in run and i - 1 in run and before is not None and np.array_equal(image, before):
            repeated.append(i)
        before = image
        full = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        thumbs[i] = cv2.resize(full, THUMB, interpolation=cv2.INTER_AREA).astype(np.float32)
        if i in stills:
            rows[i] = _measured(image, full)
            shown[i] = jpeg(image)
        if i in stills or i - 1 in stills:
            grey[i] = _fitted(full, LONG_SIDE)
    signal, gain = _over_time(stream, plan.run, thumbs)
    scale = max(1.0, max(stream.width, stream.height) / LONG_SIDE)
    first = grey[plan.stills[0]]
    shifts = [_pixels(shift(first, grey[i]), scale) if i != plan.stills[0] else 0.0 for i in plan.stills]
    steps = [_pixels(shift(grey[i], grey[i + 1]), scale) for i in plan.stills if i + 1 in grey]
    known = [step for step in steps if step is not None]
    sharpness, mean, bright, clipped = zip(*(rows[i] for i in plan.stills), strict=True)
    return Look(
        plan=plan,
        thumbs=np.stack([thumbs[i] for i in plan.stills]),
        sharpness=list(sharpness),
        mean=list(mean),
        clipped=list(clipped),
        bright=max(bright),
        gain=gain,
        signal=signal,
        repeated=repeated,
        shifts=shifts,
        jitter=float(np.median(known)) if known else None,
        shown=shown,
    )


def _measured(image: np.ndarray, grey: np.ndarray) -> tuple[float, float, float, float]:
    """(sharpness, mean level, 99th percentile, share of white pixels)."""
    white = float((image >= WHITE).all(axis=2).mean())
    return sharpness(grey), float(grey.mean()), float(np.percentile(grey[::2, ::2], 99)), white


def sharpness(grey: np.ndarray) -> float:
    """Energy of the Laplacian over that of a coarse one: falls with blur, and little with contrast or noise level."""
    top, left = (max(0, (side - SHARP_SIDE) // 2) for side in grey.shape)
    part = grey[top : top + SHARP_SIDE, left : left + SHARP_SIDE]
    fine = cv2.Laplacian(cv2.GaussianBlur(part, (0, 0), 0.7), cv2.CV_32F)
    coarse = cv2.Laplacian(cv2.GaussianBlur(part, (0, 0), 3.0), cv2.CV_32F)
    return float(fine.var() / max(float(coarse.var()), 1e-3))


def jpeg(image: np.ndarray) -> bytes:
    """A small JPEG of a picture uint8 [H, W, 3] RGB."""
    small = cv2.cvtColor(_fitted(image, SHOWN), cv2.COLOR_RGB2BGR)
    return bytes(cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, 80])[1].tobytes())


def _fitted(image: np.ndarray, side: int) -> np.ndarray:
    scale = side / max(image.shape[:2])
    if scale >= 1:
        return image.copy()
    size = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def _pixels(found: Shift | None, scale: float) -> float | None:
    return None if found is None else found.pixels * scale


def _over_time(stream: CameraStream, run: list[int], thumbs: dict[int, np.ndarray]) -> tuple[Signal, np.ndarray]:
    """How much moves and how bright the still part is, frame by frame of the run."""
    stack = np.stack([thumbs[i] for i in run])  # [R, 48, 64]
    usual = np.median(stack[:: max(1, len(run) // 60)], axis=0)
    lit = usual > 16.0  # darker places tell noise
    ratio = stack[:, lit] / usual[lit] if lit.any() else np.ones((len(run), 1), np.float32)
    gain = np.median(ratio, axis=1).astype(np.float64)
    level = stack / np.maximum(gain, 0.05)[:, None, None]
    motion = np.zeros(len(run))
    motion[1:] = np.abs(np.diff(level, axis=0)).mean(axis=(1, 2))
    return Signal(stream.times[run], motion), gain
