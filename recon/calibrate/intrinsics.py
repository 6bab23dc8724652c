"""One camera's lens: a start from its own views of the board, and how much of a lens model its data can carry.

Models, each with the unknowns of the one before: `pinhole`, `k1 k2`, `k1 k2 p1 p2`, `k1 k2 p1 p2 k3`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from recon.calibrate.bundle import Solution
from recon.calibrate.sightings import CAMERA, LENS, Sightings
from recon.calibrate.corners import Corners
from recon.geometry.convert import integer_centres_from_pixels, pixels_from_integer_centres

MODELS = {"pinhole": 0, "k1 k2": 2, "k1 k2 p1 p2": 4, "k1 k2 p1 p2 k3": 5}  # how many of k1 k2 p1 p2 k3 are free
GROUPS = (("k1 k2 p1 p2 k3", (8,)), ("k1 k2 p1 p2", (6, 7)), ("k1 k2", (4, 5)))  # columns that a model adds
START_VIEWS = 16
MIN_START = 10  # corners of a view for the start
FOCAL = (0.3, 12.0)  # of the longer side: focal lengths a camera may have
GUESS = 1.2  # of the longer side, where its own views do not tell
BAD_VIEW = 3.0  # times the median error
WELL = 1.5  # pixels: a start with a smaller error is believed


@dataclass(frozen=True)
class Start:
    """lens: [9] fx fy cx cy k1 k2 p1 p2 k3 in our pixel grid. error: RMS pixels. sure: whether the views told it."""

    lens: np.ndarray
    error: float
    sure: bool


def start_lens(views: Sequence[Corners], points: np.ndarray, size: tuple[int, int]) -> Start:
    """Focal length and k1 from a camera's views; a guess when they are too few or do not agree on a lens.

    points: [N, 3] metres, the board's corners by number. size: width, height.
    """
    chosen = spread_views([view for view in views if len(view) >= MIN_START], START_VIEWS)
    guess = _lens(GUESS * max(size), size)
    if len(chosen) < 2:
        return Start(guess, np.inf, False)
    best = Start(guess, np.inf, False)
    for _ in range(3):
        fit = _calibrated(chosen, points, size)
        if fit is None:
            break
        lens, errors = fit
        error = float(np.sqrt((errors**2).mean()))
        plausible = FOCAL[0] < lens[0] / max(size) < FOCAL[1]
        if plausible and error < best.error:
            best = Start(lens, error, len(chosen) >= 3 and error < WELL)
        kept = errors < max(BAD_VIEW * float(np.median(errors)), 0.3)
        if kept.all() or kept.sum() < 3:
            break
        chosen = [view for view, keep in zip(chosen, kept, strict=True) if keep]
    return best


def spread_views(views: Sequence[Corners], count: int) -> list[Corners]:
    """At most `count` views that differ most in where and how large the board is: farthest point sampling."""
    if len(views) <= count:
        return list(views)
    shape = np.array([[*v.uv.mean(0), *v.uv.std(0), *_tilt(v)] for v in views])
    shape /= np.maximum(shape.std(0), 1e-9)
    chosen = [int(np.argmax([len(v) for v in views]))]
    nearest = np.full(len(views), np.inf)
    for _ in range(count - 1):
        nearest = np.minimum(nearest, np.linalg.norm(shape - shape[chosen[-1]], axis=1))
        chosen.append(int(nearest.argmax()))
    return [views[i] for i in sorted(chosen)]


def _tilt(view: Corners) -> tuple[float, float]:
    """Correlation of u and v, and how the corner numbers run: cheap signs of the board's attitude."""
    spread = np.cov(view.uv.T)
    along = np.polyfit(np.arange(len(view)), view.uv, 1)[0]
    return float(np.cbrt(spread[0, 1])), float(np.arctan2(along[1], along[0]))


def _lens(focal: float, size: tuple[int, int]) -> np.ndarray:
    return np.array([focal, focal, size[0] / 2, size[1] / 2, 0, 0, 0, 0, 0], dtype=np.float64)


def _calibrated(
    views: Sequence[Corners], points: np.ndarray, size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray] | None:
    """(lens [9], RMS error per view) of OpenCV's calibration with only focal length and k1 free; None if it fails."""
    places = [points[v.ids].astype(np.float32) for v in views]
    seen = [integer_centres_from_pixels(v.uv).astype(np.float32) for v in views]
    matrix = np.array([[GUESS * max(size), 0, size[0] / 2 - 0.5], [0, GUESS * max(size), size[1] / 2 - 0.5], [0, 0, 1]])
    flags = cv2.CALIB_FIX_ASPECT_RATIO | cv2.CALIB_FIX_PRINCIPAL_POINT | cv2.CALIB_ZERO_TANGENT_DIST
    flags |= cv2.CALIB_FIX_K2 | cv2.CALIB_FIX_K3 | cv2.CALIB_USE_INTRINSIC_GUESS
    try:
        _, matrix, bent, *_, errors = cv2.calibrateCameraExtended(places, seen, size, matrix, np.zeros(5), flags=flags)
    except cv2.error:  # degenerate views
        return None
    bent = np.ravel(bent)
    if not (np.isfinite(matrix).all() and np.isfinite(bent).all()):
        return None
    centre = pixels_from_integer_centres(matrix[:2, 2])
    lens = np.array([matrix[0, 0], matrix[1, 1], *centre, bent[0], 0, 0, 0, 0], dtype=np.float64)
    return lens, np.ravel(errors)


def choose_models(solution: Solution, sightings: Sightings, cameras: int) -> list[str]:
    """The lens model of each camera whose last unknowns its data insist on.

    Coefficients d with covariance S stay when dropping them would raise the Bayesian information criterion:
    d^T S^-1 d > (number of coefficients) ln(number of corners), the change of -2 log likelihood to second order.
    """
    names = []
    for camera in range(cameras):
        used = solution.used & (sightings.camera == camera)
        name = "pinhole"
        for model, columns in GROUPS:
            at = CAMERA * camera + np.array(columns)
            spread = solution.covariance[np.ix_(at, at)]
            d = solution.state.lens[camera, list(columns)]
            if not np.diag(spread).all():  # held
                continue
            gain = float(d @ np.linalg.solve(spread, d))
            if gain > len(columns) * np.log(max(int(used.sum()), 2)):
                name = model
                break
        names.append(name)
    return names


def free_unknowns(models: Sequence[str]) -> np.ndarray:
    """[C, 9] bool: lens unknowns that the models leave free."""
    free = np.zeros((len(models), LENS), bool)
    free[:, :4] = True
    for row, model in zip(free, models, strict=True):
        row[4 : 4 + MODELS[model]] = True
    return free
