"""How well a scene matches its recordings: PSNR and SSIM of a bounded number of frames of every camera.

    PSNR = -10 log10 mean((photo - render)^2), values in [0, 1], over the pixels that the real picture covers.

Pictures are compared as uint8 in the ideal (undistorted) grid of the camera, in that camera's own colours.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from recon.capture.plate import evenly
from recon.core.errors import UsageError
from recon.render.losses import WINDOW, l1_ssim

MAX_FRAMES = 60  # compared in all
MAX_BINS = 12  # of the course over time
MAX_PSNR = 100.0  # dB, what equal pictures get: JSON has no infinity

Draw = Callable[[int, float], np.ndarray]  # (camera index, seconds) -> uint8 [H, W, 3] in the camera's colours


@dataclass(frozen=True)
class FrameScore:
    """One compared frame. camera: index. t: seconds on the common clock. psnr in dB. NaN: not to be had."""

    camera: int
    frame: int
    t: float
    psnr: float
    ssim: float


def choose_frames(counts: Sequence[int], most: int = MAX_FRAMES) -> list[tuple[int, int]]:
    """(camera, frame) pairs to compare: at most `most`, evenly over cameras and time, ordered by camera and frame.

    counts: frames of each camera. Every chosen camera has its middle frame; the cameras' other frames are staggered,
    so that together they cover the time more densely. With more than `most` cameras, evenly chosen ones are compared.
    """
    usable = [camera for camera, count in enumerate(counts) if count > 0]
    if not usable:
        return []
    cameras = [usable[i] for i in evenly(len(usable), most)]
    each = max(1, most // len(cameras))
    chosen = []
    for place, camera in enumerate(cameras):
        count, phase = counts[camera], (place + 0.5) / len(cameras)
        frames = {int((j + phase) * count / each) for j in range(each)} if each < count else set(range(count))
        middle = count // 2
        if middle not in frames:
            frames.remove(min(frames, key=lambda frame: (abs(frame - middle), frame)))
            frames.add(middle)
        chosen += [(camera, frame) for frame in sorted(frames)]
    return chosen


def checked_draw(draw: Draw, camera: int, t: float, like: np.ndarray) -> np.ndarray:
    """The render of a camera; UsageError when it is not a picture like the photo."""
    drawn = draw(camera, t)
    if drawn.shape != like.shape or drawn.dtype != np.uint8:
        raise UsageError(
            f"camera {camera} was drawn as {drawn.dtype} {list(drawn.shape)}",
            why=f"its photo is uint8 {list(like.shape)}",
        )
    return drawn


def score_frame(
    photo: np.ndarray, drawn: np.ndarray, valid: np.ndarray, device: torch.device, backend: str = "auto"
) -> tuple[float, float]:
    """(PSNR [dB], SSIM) of two pictures uint8 [H, W, 3] over the pixels where `valid` bool [H, W] is set.

    SSIM windows count when their centre is valid. A value that cannot be had (nothing valid, a picture smaller than
    the SSIM window) is NaN.
    """
    if not valid.any():
        return math.nan, math.nan
    difference = photo[valid].astype(np.float32) - drawn[valid].astype(np.float32)
    error = float(np.mean(np.square(difference / 255.0), dtype=np.float64))
    psnr = MAX_PSNR if error == 0.0 else min(MAX_PSNR, -10.0 * math.log10(error))
    margin = WINDOW // 2
    if min(valid.shape) < WINDOW or not valid[margin:-margin, margin:-margin].any():
        return psnr, math.nan
    a, b = (torch.tensor(picture, dtype=torch.float32, device=device) / 255.0 for picture in (drawn, photo))
    weight = torch.tensor(valid, dtype=torch.float32, device=device)
    with torch.no_grad():
        ssim = 1.0 - float(l1_ssim(a, b, weight, 1.0, backend=backend))
    return psnr, ssim


def per_camera(scores: Sequence[FrameScore], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """camera name -> {"psnr", "ssim", "frames"}: means over its compared frames, in the order of `names`."""
    found = {}
    for camera, name in enumerate(names):
        own = [score for score in scores if score.camera == camera]
        if own:
            mean = {"psnr": mean_of([s.psnr for s in own]), "ssim": mean_of([s.ssim for s in own])}
            found[name] = {**mean, "frames": float(len(own))}
    return found


def over_time(scores: Sequence[FrameScore], bins: int = MAX_BINS) -> list[dict[str, float]]:
    """[{"t", "psnr"}] by time: the mean over all frames, plus the mean over a bin of (frame - mean of its camera).

    Different cameras are seen at different times; taking each camera's own level out keeps a good camera from looking
    like a good moment. t is the mean time of a bin's frames, in seconds.
    """
    finite = [score for score in scores if math.isfinite(score.psnr)]
    if not finite:
        return []
    by_camera: dict[int, list[float]] = defaultdict(list)
    for score in finite:
        by_camera[score.camera].append(score.psnr)
    level = {camera: mean_of(values) for camera, values in by_camera.items()}
    overall = mean_of([score.psnr for score in finite])
    first, last = min(s.t for s in finite), max(s.t for s in finite)
    width = (last - first) / min(bins, len({s.t for s in finite}))
    groups: dict[int, list[FrameScore]] = defaultdict(list)
    for score in finite:
        groups[min(bins - 1, int((score.t - first) / width)) if width > 0 else 0].append(score)
    return [
        {
            "t": mean_of([s.t for s in group]),
            "psnr": overall + mean_of([s.psnr - level[s.camera] for s in group]),
        }
        for _, group in sorted(groups.items())
    ]


def worst_frames(scores: Sequence[FrameScore], most: int) -> list[FrameScore]:
    """The frames of lowest PSNR, worst first."""
    finite = [score for score in scores if math.isfinite(score.psnr)]
    return sorted(finite, key=lambda score: (score.psnr, score.camera, score.frame))[:most]


def mean_of(values: Sequence[float]) -> float:
    """Mean of the finite values, NaN when there is none."""
    finite = [value for value in values if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else math.nan
