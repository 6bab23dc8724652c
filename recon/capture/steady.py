"""Whether a camera stood still: features of one picture, found again in a later one, and how far they have gone."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

FEATURES = 400
WINDOW = 21  # px, of the tracker
BACK = 0.5  # px, a feature tracked there and back must land this close
FEWEST = 24  # features that must be found again to say anything
TOGETHER = 0.6  # of the features must move as one
STRAY = 1.0  # px, from the common motion


@dataclass(frozen=True)
class Shift:
    """How the still part of a picture moved. pixels: of the pictures given, median of the features that move as one."""

    pixels: float
    features: int


def shift(before: np.ndarray, after: np.ndarray) -> Shift | None:
    """Motion of the whole picture between two grey pictures uint8 [H, W]; None when most features do not move as one.

    What moves in front of a still background is outvoted; a change of brightness does not matter.
    """
    corners = cv2.goodFeaturesToTrack(before, FEATURES, 0.01, 7)
    if corners is None or len(corners) < FEWEST:
        return None
    level = float(np.median(before)) / max(1.0, float(np.median(after)))
    even = cv2.convertScaleAbs(after, alpha=min(level, 4.0))
    size = (WINDOW, WINDOW)
    there, found, _ = cv2.calcOpticalFlowPyrLK(before, even, corners, None, winSize=size, maxLevel=4)
    back, again, _ = cv2.calcOpticalFlowPyrLK(even, before, there, None, winSize=size, maxLevel=4)
    kept = (found & again).ravel().astype(bool) & (np.linalg.norm((back - corners)[:, 0], axis=1) < BACK)
    if kept.sum() < FEWEST:
        return None
    a, b = corners[kept, 0], there[kept, 0]
    model, inliers = cv2.estimateAffinePartial2D(a, b, method=cv2.RANSAC, ransacReprojThreshold=STRAY)
    if model is None or inliers.mean() < TOGETHER:
        return None
    moved = np.linalg.norm(b - a, axis=1)[inliers.ravel() > 0]
    return Shift(float(np.median(moved)), int(inliers.sum()))
