"""Coloured 3D points, how they are thinned, and how a picture is sampled."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np


@dataclass(frozen=True)
class Points:
    """xyz: float64 [M, 3] world. rgb: uint8 [M, 3]. views: int64 [M] cameras. error: [M] pixels, the largest."""

    xyz: np.ndarray
    rgb: np.ndarray
    views: np.ndarray
    error: np.ndarray

    def __len__(self) -> int:
        return len(self.xyz)

    def select(self, index: np.ndarray) -> Points:
        """The points at `index` (bool mask or integers)."""
        return Points(self.xyz[index], self.rgb[index], self.views[index], self.error[index])


def join_points(parts: list[Points]) -> Points:
    """All points of all parts, in order."""
    return Points(
        np.concatenate([p.xyz for p in parts]),
        np.concatenate([p.rgb for p in parts]),
        np.concatenate([p.views for p in parts]),
        np.concatenate([p.error for p in parts]),
    )


def thin(points: Points, most: int) -> Points:
    """At most `most` points: the one with the least error of each cell of a grid that is as fine as that allows."""
    if len(points) <= most:
        return points
    extent = np.percentile(points.xyz, [2, 98], axis=0)
    low, high = 1e-5, 1.0
    for _ in range(20):
        size = float(np.sqrt(low * high))
        kept = _one_per_cell(points, size * float(np.linalg.norm(extent[1] - extent[0])))
        low, high = (size, high) if len(kept) > most else (low, size)
    return points.select(_one_per_cell(points, high * float(np.linalg.norm(extent[1] - extent[0]))))


def _one_per_cell(points: Points, size: float) -> np.ndarray:
    order = np.argsort(points.error, kind="stable")
    cells = np.floor(points.xyz[order] / size).astype(np.int64)
    first = np.unique(cells, axis=0, return_index=True)[1]
    return np.sort(order[first])


def sample(picture: np.ndarray, uv: np.ndarray) -> np.ndarray:
    """Bilinear values of uint8 or float [H, W, ...] at `uv` [N, 2] (first centre at 0.5), as float32 [N, ...]."""
    if len(uv) == 0:
        return np.zeros((0, *picture.shape[2:]), np.float32)
    at = (uv - 0.5).astype(np.float32)
    values = picture.astype(np.float32)
    out = []
    for start in range(0, len(at), 30_000):  # cv2.remap takes at most 32767 rows
        part = at[start : start + 30_000]
        flat = cv2.remap(values, part[:, :1], part[:, 1:], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        out.append(flat.reshape(len(part), *picture.shape[2:]))
    return np.concatenate(out)
