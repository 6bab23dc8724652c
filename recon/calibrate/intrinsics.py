"""One camera's lens: a start from its own views of the board, and how much of a lens model its data can carry.

Models, each with the unknowns of the one before: `pinhole`, `k1 k2`, `k1 k2 p1 p2`, `k1 k2 p1 p2 k3`; and `fisheye`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np

from recon.calibrate.bundle import Problem, Solution, adjust
from recon.calibrate.corners import Corners
from recon.calibrate.linking import CAP, board_poses, sights, view_error
from recon.calibrate.sightings import CAMERA, LENS, Sightings, State
from recon.geometry.camera import Camera
from recon.geometry.convert import integer_centres_from_pixels, pixels_from_integer_centres
from recon.geometry.lens import FISHEYE

Lens = Literal["auto", "pinhole", "brown", "fisheye"]
MODELS = {"pinhole": 0, "k1 k2": 2, "k1 k2 p1 p2": 4, "k1 k2 p1 p2 k3": 5, FISHEYE: 4}  # coefficients that are free
GROUPS = (("k1 k2 p1 p2 k3", (8,)), ("k1 k2 p1 p2", (6, 7)), ("k1 k2", (4, 5)))  # columns that a model adds
START_VIEWS = 16
MIN_START = 10  # corners of a view for the start
FOCAL = (0.3, 12.0)  # of the longer side: focal lengths a camera may have
FISHEYE_FOCAL = np.geomspace(0.18, 1.0, 12)  # of the longer side: tried as a start
GUESS = 1.2  # of the longer side, where its own views do not tell
BAD_VIEW = 3.0  # times the median error
WELL = 1.5  # pixels: a start with a smaller error is believed
WIDE = 0.75  # of the longer side: with a shorter focal length a fisheye is tried
BETTER = 0.9  # of Brown-Conrady's noise: a fisheye that fits as well as this is one


@dataclass(frozen=True)
class Start:
    """A camera at the identity pose; error: RMS pixels of its views; sure: whether the views told its lens."""

    camera: Camera
    error: float
    sure: bool


def start_camera(
    name: str, size: tuple[int, int], views: Sequence[Corners], points: np.ndarray, lens: Lens = "auto"
) -> Start:
    """A lens from the camera's own views; a guess when they are too few or do not agree on one.

    points: [N, 3] metres, the board's corners by number. size: width, height.
    """
    chosen = spread_views([view for view in views if len(view) >= MIN_START], START_VIEWS)
    guess = Start(_camera(name, size, GUESS * max(size)), np.inf, False)
    brown = guess if lens == FISHEYE or len(chosen) < 2 else _brown_start(guess, chosen, points)
    if lens in ("pinhole", "brown") or len(chosen) < 3:
        return brown
    if lens == "auto" and brown.sure and brown.camera.fx > WIDE * max(size):
        return brown
    fisheye = _fisheye_start(guess, chosen, points)
    if lens == FISHEYE:
        return fisheye
    rivals = [_settled(start, chosen, points) for start in (brown, fisheye)]
    return rivals[1] if rivals[1].error < BETTER * rivals[0].error else brown


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


def choose_models(solution: Solution, sightings: Sightings) -> list[str]:
    """The lens model of each camera whose last unknowns its data insist on.

    Coefficients d with covariance S stay when dropping them would raise the Bayesian information criterion:
    d^T S^-1 d > (number of coefficients) ln(number of corners), the change of -2 log likelihood to second order.
    """
    names = []
    for camera in range(len(solution.state.lens)):
        name = FISHEYE if solution.state.fisheye[camera] else "pinhole"
        used = solution.used & (sightings.camera == camera)
        for model, columns in GROUPS if name == "pinhole" else ():
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


def _tilt(view: Corners) -> tuple[float, float]:
    """Correlation of u and v, and how the corner numbers run: cheap signs of the board's attitude."""
    spread = np.cov(view.uv.T)
    along = np.polyfit(np.arange(len(view)), view.uv, 1)[0]
    return float(np.cbrt(spread[0, 1])), float(np.arctan2(along[1], along[0]))


def _camera(name: str, size: tuple[int, int], focal: float, lens: str = "brown") -> Camera:
    bent = (0.0,) * (4 if lens == FISHEYE else 5)
    return Camera(name, *size, focal, focal, size[0] / 2, size[1] / 2, bent, np.eye(4), lens)


def _brown_start(guess: Start, chosen: Sequence[Corners], points: np.ndarray) -> Start:
    best = guess
    for _ in range(3):
        fit = _calibrated(chosen, points, guess.camera)
        if fit is None:
            break
        camera, errors = fit
        error = float(np.sqrt((errors**2).mean()))
        plausible = FOCAL[0] < camera.fx / max(camera.width, camera.height) < FOCAL[1]
        if plausible and error < best.error:
            best = Start(camera, error, len(chosen) >= 3 and error < WELL)
        kept = errors < max(BAD_VIEW * float(np.median(errors)), 0.3)
        if kept.all() or kept.sum() < 3:
            break
        chosen = [view for view, keep in zip(chosen, kept, strict=True) if keep]
    return best


def _calibrated(views: Sequence[Corners], points: np.ndarray, guess: Camera) -> tuple[Camera, np.ndarray] | None:
    """(camera, RMS error per view) of OpenCV's calibration with only focal length and k1 free; None if it fails."""
    places = [points[v.ids].astype(np.float32) for v in views]
    seen = [integer_centres_from_pixels(v.uv).astype(np.float32) for v in views]
    matrix = guess.K
    matrix[:2, 2] = integer_centres_from_pixels(matrix[:2, 2])
    flags = cv2.CALIB_FIX_ASPECT_RATIO | cv2.CALIB_FIX_PRINCIPAL_POINT | cv2.CALIB_ZERO_TANGENT_DIST
    flags |= cv2.CALIB_FIX_K2 | cv2.CALIB_FIX_K3 | cv2.CALIB_USE_INTRINSIC_GUESS
    size = (guess.width, guess.height)
    try:
        _, matrix, bent, *_, errors = cv2.calibrateCameraExtended(places, seen, size, matrix, np.zeros(5), flags=flags)
    except cv2.error:  # degenerate views
        return None
    bent = np.ravel(bent)
    if not (np.isfinite(matrix).all() and np.isfinite(bent).all() and matrix[0, 0] > 0):
        return None
    cx, cy = (float(value) for value in pixels_from_integer_centres(matrix[:2, 2]))
    focal, k1 = float(matrix[0, 0]), float(bent[0])
    return Camera(guess.name, *size, focal, focal, cx, cy, (k1, 0.0, 0.0, 0.0, 0.0)), np.ravel(errors)


def _fisheye_start(guess: Start, chosen: Sequence[Corners], points: np.ndarray) -> Start:
    """The focal length of an equidistant lens under which the views are most nearly those of a flat board."""
    size = (guess.camera.width, guess.camera.height)
    best = Start(_camera(guess.camera.name, size, 0.5 * max(size), FISHEYE), np.inf, False)
    for focal in FISHEYE_FOCAL * max(size):
        camera = _camera(guess.camera.name, size, float(focal), FISHEYE)
        error = float(np.median([_own_error(view, points, camera) for view in chosen]))
        if error < best.error:
            best = Start(camera, error, False)
    return _settled(best, chosen, points)


def _own_error(view: Corners, points: np.ndarray, camera: Camera) -> float:
    poses = board_poses(points[view.ids], view.uv, camera)
    return view_error(poses[0], points[view.ids], view.uv, camera) if poses else CAP


def _settled(start: Start, chosen: Sequence[Corners], points: np.ndarray) -> Start:
    """All of the lens adjusted to the camera's own views; its error is then their noise."""
    seen = sights({(0, k): view for k, view in enumerate(chosen)}, points, [start.camera])
    views = {(0, k): chosen[instant] for k, (_, instant) in enumerate(seen)}
    if len(views) < 3:
        return Start(start.camera, np.inf, False)
    boards = np.stack([sight.poses[0] for sight in seen.values()])
    model = FISHEYE if start.camera.lens == FISHEYE else "k1 k2 p1 p2 k3"
    size = np.array([[start.camera.width, start.camera.height]])
    problem = Problem(size, free_unknowns([model]), points)
    solution = adjust(State.of([start.camera], boards), Sightings.of(views, points), problem)
    noise = float(solution.trust.noise[0])
    return Start(solution.state.cameras([start.camera])[0], noise, noise < WELL)
