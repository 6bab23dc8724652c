"""SIFT features and matching along epipolar lines between calibrated pinhole pictures.

With known poses a partner can only lie in a narrow band round the epipolar line, so the ratio test compares a feature
with the few others in that band instead of with all features of the picture: repeated texture elsewhere no longer
costs matches, and several times as many survive.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from recon.calibrate.neighbours import fundamental, line_distance
from recon.geometry.camera import Camera

MAX_FEATURES = 6000
CONTRAST = 0.01  # SIFT's default, 0.04, finds little on plain tables
BAND = 2.0  # pixels round the epipolar line
RATIO = 0.75
MAX_DISTANCE = 0.75  # between unit descriptors
SAME_PLACE = 2.0  # pixels
CHUNK = 1024
RIVALS = 4  # best partners looked at: enough to have one at another place than the best


@dataclass(frozen=True)
class Features:
    """uv: [N, 2] float64 pixels, first pixel centre at (0.5, 0.5). descriptors: [N, 128] float32, unit length."""

    uv: np.ndarray
    descriptors: np.ndarray


def find_features(picture: np.ndarray, valid: np.ndarray | None = None, limit: int = MAX_FEATURES) -> Features:
    """The `limit` strongest SIFT features of uint8 [H, W, 3]; those outside `valid` bool [H, W] are left out.

    Descriptors are square-rooted.
    """
    grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    sift = cv2.SIFT_create(nfeatures=limit, contrastThreshold=CONTRAST, edgeThreshold=15)
    mask = None if valid is None else cv2.erode(valid.astype(np.uint8), np.ones((9, 9), np.uint8), borderValue=1) * 255
    points, descriptors = sift.detectAndCompute(grey, mask)
    if descriptors is None or len(points) == 0:  # which of the two says "nothing found" depends on OpenCV's version
        return Features(np.empty((0, 2)), np.empty((0, 128), np.float32))
    uv = np.array([p.pt for p in points], dtype=np.float64) + 0.5  # cv2 puts the first centre at (0, 0)
    # One place may carry several orientations; each is a feature of its own. Square roots of L1-normalised histograms
    # have unit length and compare better than the histograms themselves.
    root = np.sqrt(descriptors / np.maximum(descriptors.sum(axis=1, keepdims=True), 1e-7)).astype(np.float32)
    return Features(uv, root)


def match_features(a: Features, b: Features, camera_a: Camera, camera_b: Camera, band: float = BAND) -> np.ndarray:
    """[M, 2] indices of mutual best partners, at most `band` px off each other's lines, that pass the ratio test."""
    if len(a.uv) == 0 or len(b.uv) == 0:
        return np.empty((0, 2), dtype=np.int64)
    i, j, squared = _candidates(a, b, fundamental(camera_a, camera_b), band)
    forward = _distinct_best(i, j, squared, b.uv, len(a.uv))
    backward = _distinct_best(j, i, squared, a.uv, len(b.uv))
    index = np.flatnonzero(forward >= 0)
    mutual = index[backward[forward[index]] == index]
    return np.stack([mutual, forward[mutual]], axis=1)


def match_freely(a: Features, b: Features) -> np.ndarray:
    """[M, 2] indices of mutual best partners that pass the ratio test over the whole picture: no poses are believed."""
    if len(a.uv) == 0 or len(b.uv) == 0:
        return np.empty((0, 2), dtype=np.int64)
    similar = a.descriptors @ b.descriptors.T
    forward = _distinct_best(*_most_similar(similar), b.uv, len(a.uv))
    backward = _distinct_best(*_most_similar(similar.T), a.uv, len(b.uv))
    index = np.flatnonzero(forward >= 0)
    mutual = index[backward[forward[index]] == index]
    return np.stack([mutual, forward[mutual]], axis=1)


def _most_similar(similar: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each row's few best columns as pairs (i [K], j [K]) with their squared descriptor distances [K]."""
    left = np.array(similar, order="C")
    rows = np.arange(len(left))
    found = []
    for _ in range(min(RIVALS, left.shape[1])):  # several times as fast as a partial sort
        columns = left.argmax(axis=1)
        found.append((rows, columns, 2.0 - 2.0 * left[rows, columns]))
        left[rows, columns] = -np.inf
    return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))  # type: ignore[return-value]


def _candidates(a: Features, b: Features, matrix: np.ndarray, band: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs (i [K], j [K]) within each other's band, with their squared descriptor distances [K] float32."""
    found = []
    for start in range(0, len(a.uv), CHUNK):
        rows = slice(start, start + CHUNK)
        near = line_distance(matrix, a.uv[rows], b.uv) < band
        near &= band > line_distance(matrix.T, b.uv, a.uv[rows]).T
        i, j = np.nonzero(near)
        # |p - q|^2 = 2 - 2 p.q for unit vectors
        found.append((i + start, j, 2.0 - 2.0 * (a.descriptors[rows] @ b.descriptors.T)[i, j]))
    return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))  # type: ignore[return-value]


def _distinct_best(i: np.ndarray, j: np.ndarray, squared: np.ndarray, uv_j: np.ndarray, count: int) -> np.ndarray:
    """[count] the j nearest to each i, -1 where it is far or where another place in the band is almost as near."""
    order = np.lexsort((squared, i))
    i, j, squared = i[order], j[order], squared[order]
    first = np.flatnonzero(np.r_[True, i[1:] != i[:-1]]) if len(i) else np.empty(0, np.int64)
    best = np.full(count, -1, dtype=np.int64)
    lowest, partner = np.full(count, np.inf), np.zeros(count, np.int64)
    lowest[i[first]], partner[i[first]] = squared[first], j[first]
    # Other orientations of the partner itself, at the same pixel, are no rivals.
    rival = np.linalg.norm(uv_j[j] - uv_j[partner[i]], axis=1) > SAME_PLACE
    second = np.full(count, 2.0)
    np.minimum.at(second, i[rival], squared[rival])
    good = (lowest < MAX_DISTANCE**2) & (lowest < RATIO**2 * second)
    best[good] = partner[good]
    return best
