"""The robot's clock against the cameras': the shift at which the robot moves where the pictures change.

For two frames of a camera at t_a and t_b, the pixels that change should be those of

    A xor B,   A, B the robot's silhouettes at t_a + s and t_b + s on the log's clock,

so the shift s is the one with the largest intersection over union of the two, summed over cameras and pairs of frames.
Silhouettes are splatted from surface points, in small pictures: hundreds of them are needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from recon.fit.data import Frames
from recon.fit.robot import KnownRobot, splat_mask
from recon.geometry.camera import Camera

REACH_S = 0.3  # shifts searched, either way
COARSE_S, FINE_S = 0.03, 0.006
LAG_S = 0.06  # of a camera against the others
LEAST_LAG_S = 0.008  # smaller ones are below what this can tell
PAIRS = 12  # pairs of frames per camera
APART_S = 0.2  # between the frames of a pair
WIDTH = 160  # pixels of the pictures it looks at
EVERY = 10  # of the surface points: few are enough for small pictures
CHANGED = 0.07  # sRGB
MIN_SCORE = 0.15  # below it the pictures do not show this robot moving
MIN_GAIN = 1.05  # of the best score over the median one: else the motion tells nothing of time


@dataclass(frozen=True)
class ClockOffset:
    """Log time = camera time + seconds. score: intersection over union there; sure: whether it stands out.

    lags: seconds [C] that each camera's recording starts later than the usual one; 0 where it cannot be told.
    """

    seconds: float
    score: float
    sure: bool
    lags: np.ndarray


def find_clock_offset(robot: KnownRobot, frames: Frames) -> ClockOffset:
    """The offset of the joint log's clock against the cameras', within 0.3 s either way, and the cameras' lags."""
    search = _Search(robot, frames)
    coarse = np.arange(-REACH_S, REACH_S + 1e-9, COARSE_S)
    counts = np.stack([search.counts(s) for s in coarse])  # [S, C, 2]
    scores = _iou(counts.sum(axis=1))
    best = float(coarse[int(scores.argmax())])
    fine = best + np.arange(-LAG_S, LAG_S + 1e-9, FINE_S)
    near = np.stack([search.counts(s) for s in fine])
    total = _iou(near.sum(axis=1))
    seconds = _peak(fine, total)
    score = float(total.max())
    sure = score >= MIN_SCORE and score >= MIN_GAIN * float(np.median(scores)) and abs(best) < REACH_S - 1e-9
    own = np.array([_peak(fine, _iou(near[:, c])) for c in range(near.shape[1])])
    lags = own - np.median(own)
    clear = np.array([_iou(near[:, c]).max() >= MIN_SCORE for c in range(near.shape[1])])
    lags[~clear | (np.abs(lags) < LEAST_LAG_S) | (np.abs(lags) > LAG_S)] = 0.0
    return ClockOffset(seconds if sure else 0.0, score, sure, lags if sure else np.zeros_like(lags))


def _iou(counts: np.ndarray) -> np.ndarray:
    """Intersection over union of [..., 2] counts."""
    ratio: np.ndarray = counts[..., 0] / np.maximum(counts[..., 1], 1)
    return ratio


def _peak(at: np.ndarray, scores: np.ndarray) -> float:
    """Where evenly spaced scores are largest, refined by a parabola through the neighbours two steps away."""
    k = int(scores.argmax())
    wide = 2
    if not wide <= k < len(at) - wide:
        return float(at[k])
    before, here, after = scores[k - wide], scores[k], scores[k + wide]
    bend = before - 2 * here + after
    shift = 0.5 * (before - after) / bend if bend < 0 else 0.0
    return float(at[k] + np.clip(shift, -1.0, 1.0) * wide * (at[1] - at[0]))


class _Search:
    """Changed pixels of chosen pairs of frames, and how well the robot's explain them at a shift."""

    def __init__(self, robot: KnownRobot, frames: Frames) -> None:
        self.robot = robot
        self.covered = robot.joints.times[[0, -1]]  # beyond it the robot is taken to stand still
        self.spacing = max(s.spacing for s in robot.surface.values()) * EVERY**0.5
        self.cameras = [camera.scaled(min(1.0, WIDTH / camera.width)) for camera in frames.cameras]
        self.pairs: list[tuple[int, float, float, np.ndarray]] = []
        for c, times in enumerate(frames.times):
            step = max(1, round(APART_S / max(float(np.median(np.diff(times))), 1e-6))) if len(times) > 1 else 1
            for a in np.unique(np.linspace(0, len(times) - 1 - step, PAIRS).round().astype(int)):
                if a < 0:
                    continue
                small = [self._small(frames.picture(c, int(k)), self.cameras[c]) for k in (a, a + step)]
                changed = np.abs(small[0] - small[1]).max(axis=-1) > CHANGED
                self.pairs.append((c, float(times[a]), float(times[a + step]), changed))

    @staticmethod
    def _small(picture: np.ndarray, camera: Camera) -> np.ndarray:
        shrunk = cv2.resize(picture, (camera.width, camera.height), interpolation=cv2.INTER_AREA)
        return shrunk.astype(np.float32) / 255.0

    def counts(self, shift: float) -> np.ndarray:
        """[C, 2]: per camera, pixels predicted to change that did, and pixels that were or did either."""
        found = np.zeros((len(self.cameras), 2), dtype=np.int64)
        placed: dict[float, np.ndarray] = {}
        for c, a, b, changed in self.pairs:
            for t in (a, b):
                if t not in placed:
                    placed[t] = self.robot.points_at(float(np.clip(t + shift, *self.covered)), EVERY)
            moved = np.logical_xor(*(splat_mask(self.cameras[c], placed[t], self.spacing) for t in (a, b)))
            found[c] += (moved & changed).sum(), (moved | changed).sum()
        return found
