"""Drawn pictures against recorded ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np

MOVING = 0.08  # RMS RGB difference from the camera's temporal median

Regions = Mapping[str, Mapping[int, np.ndarray]]  # key of a score -> frame -> bool [H, W]


def ssim(a: np.ndarray, b: np.ndarray) -> float:
    """11x11 Gaussian window, sigma 1.5, data range 1, valid windows, mean over channels."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    blur = lambda x: cv2.GaussianBlur(x, (11, 11), 1.5)[5:-5, 5:-5]  # noqa: E731
    ma, mb = blur(a), blur(b)
    va, vb, cov = blur(a * a) - ma * ma, blur(b * b) - mb * mb, blur(a * b) - ma * mb
    c1, c2 = 0.01**2, 0.03**2
    return float((((2 * ma * mb + c1) * (2 * cov + c2)) / ((ma**2 + mb**2 + c1) * (va + vb + c2))).mean())


def psnr(error: np.ndarray) -> float:
    """-10 log10 of the mean of squared differences in [0, 1]."""
    return float(-10 * np.log10(max(float(error.mean()), 1e-12)))


def affine_to_truth(drawn: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """One camera's least-squares affine colour map [4, 3] from drawn to true pixels, both [F, H, W, 3]."""
    x = drawn[::3, ::4, ::4].reshape(-1, 3)
    x = np.concatenate([x, np.ones((len(x), 1), np.float32)], axis=1)
    return np.linalg.lstsq(x, truth[::3, ::4, ::4].reshape(-1, 3), rcond=None)[0].astype(np.float32)


def read_rgb(path: Path) -> np.ndarray:
    """uint8 [H, W, 3] of a picture file."""
    return cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)


def score_camera(drawn: np.ndarray, truth: np.ndarray, regions: Regions) -> dict[str, float]:
    """Scores of one camera's pictures, float32 [F, H, W, 3] in [0, 1], means over frames.

    `_cc` and the regions are after the best affine colour map; a region's mean is over its frames that hold a pixel.
    """
    squared = (drawn - truth) ** 2
    colour = affine_to_truth(drawn, truth)
    squared_cc = (np.clip(drawn @ colour[:3] + colour[3], 0, 1) - truth) ** 2
    moving = np.sqrt(((truth - np.median(truth, axis=0)) ** 2).mean(-1)) > MOVING
    still = truth.mean(axis=0)
    result = {
        "test_psnr": float(np.mean([psnr(e) for e in squared])),
        "test_psnr_cc": float(np.mean([psnr(e) for e in squared_cc])),
        "test_ssim": float(np.mean([ssim(d, t) for d, t in zip(drawn, truth, strict=True)])),
        "mean_picture_psnr": float(np.mean([psnr((still - t) ** 2) for t in truth])),
    }
    frames = [k for k in range(len(truth)) if moving[k].any()]
    if frames:
        result["moving_psnr"] = float(np.mean([psnr(squared[k][moving[k]]) for k in frames]))
    for key, masks in regions.items():
        values = [psnr(squared_cc[k][mask]) for k, mask in masks.items() if mask.any()]
        if values:
            result[key] = float(np.mean(values))
    return result


def mean_scores(per_camera: dict[str, dict[str, float]]) -> dict[str, object]:
    """Means over the cameras that have a score, and every camera's."""
    keys = sorted({key for result in per_camera.values() for key in result})
    means = {key: float(np.mean([r[key] for r in per_camera.values() if key in r])) for key in keys}
    return {**means, "per_camera": per_camera}
