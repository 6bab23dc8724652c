"""A given calibration set right by what the pictures themselves say: bundle adjustment over matched features.

Unknown are a small motion d_c of each camera, cam_from_world <- exp(d_c) cam_from_world, a factor exp(s_c) of its focal
lengths, a shift of its principal point, and the points X. Minimised is

    sum_obs rho(|project(camera, X) - uv|^2) + sum_c |d_c / sigma_d|^2 + (s_c / sigma_s)^2 + |shift_c / sigma_p|^2

with Cauchy's rho, by Gauss-Newton steps whose points are eliminated (Schur complement):

    (A - B C^-1 B^T) x_cameras = a - B C^-1 c,    x_points = C^-1 (c - B^T x_cameras).

The second line keeps every camera near where it was given, which also fixes world and scale: a still scene tells
focal lengths from distances badly. The sigmas are such that each alone explains e pixels, the error that the given
calibration is seen to have. Lens distortion stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from recon.calibrate.matches import find_features
from recon.calibrate.tracks import Tracks, find_tracks, triangulate
from recon.capture.coverage import focus_point
from recon.geometry.camera import Camera
from recon.geometry.pose import angle_between, se3_exp

ROUNDS = ((12.0, 4.0), (4.0, 1.0))  # (pixels of a match's band, of Cauchy's scale), wide to narrow
STEPS = 8  # Gauss-Newton steps per round
PIXEL = 4.0  # each match weighs as if it were off by this: many err together (reflections, lens, a thing that moved)
LEAST = 0.5  # pixels, taken for the error of any given calibration
MIN_TRACKS = 100
GOOD = 0.5  # pixels: a rig whose median error is no larger is left as it is
GAIN = 0.85  # the median error has to fall below this share of what it was


@dataclass(frozen=True)
class Moved:
    """How far the refinement moved a camera: millimetres if the world is metric, degrees, percent, pixels."""

    millimetres: float
    degrees: float
    focal_percent: float
    centre_px: float


@dataclass(frozen=True)
class Refinement:
    """cameras: by name, refined or as given. before, after: median reprojection error in pixels. moved: by name, empty
    when the given calibration was kept."""

    cameras: dict[str, Camera]
    tracks: int
    before: float
    after: float
    moved: dict[str, Moved]


def refine_cameras(
    pictures: Mapping[str, np.ndarray], cameras: Mapping[str, Camera], valid: Mapping[str, np.ndarray]
) -> Refinement:
    """Refined pinhole `cameras` of the undistorted `pictures` (uint8 [H, W, 3]) of one scene; valid: bool [H, W] each.

    They are returned as given with too few matches, with errors that are small already, or without a clear gain.
    """
    names = list(cameras)
    given = [cameras[n] for n in names]
    features = [find_features(pictures[n], valid[n]) for n in names]
    rig = given
    tracks = Tracks(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 2)))
    error = 0.0
    for band, scale in ROUNDS:
        tracks = find_tracks(features, rig, max_error=band, band=band)
        if tracks.count < MIN_TRACKS:
            return Refinement(dict(cameras), tracks.count, np.nan, np.nan, {})
        error = error or max(LEAST, float(np.median(reprojection_error(tracks, given))))
        rig = adjust(tracks, given, rig, scale, error)
    before, after = (float(np.median(reprojection_error(tracks, r))) for r in (given, rig))
    if before <= GOOD or after > GAIN * before:
        return Refinement(dict(cameras), tracks.count, before, before, {})
    moved = {n: _moved(a, b) for n, a, b in zip(names, given, rig, strict=True)}
    return Refinement(dict(zip(names, rig, strict=True)), tracks.count, before, after, moved)


def reprojection_error(tracks: Tracks, rig: list[Camera]) -> np.ndarray:
    """Pixels [O]: each observation's distance from its track's triangulated point."""
    xyz = triangulate(tracks.camera, tracks.uv, tracks.track, tracks.count, rig)
    residual, _, _ = _linearised(tracks, rig, xyz)
    return np.nan_to_num(np.linalg.norm(residual, axis=1), nan=np.inf)


def adjust(tracks: Tracks, given: list[Camera], rig: list[Camera], scale: float, error: float) -> list[Camera]:
    """The cameras of least cost, started from `rig` and held to `given`.

    scale: pixels, of Cauchy's rho. error: pixels, by which `given` may well be off.
    """
    xyz = triangulate(tracks.camera, tracks.uv, tracks.track, tracks.count, rig)
    usable = np.isfinite(xyz).all(axis=1)
    tracks, xyz = tracks.select(usable), xyz[usable]
    distance = float(np.median(np.linalg.norm(np.stack([c.center for c in given]) - focus_point(given), axis=1)))
    angle = error / float(np.median([c.fx for c in given]))
    half = 0.5 * float(np.median([c.width for c in given]))
    sigma = np.array([angle] * 3 + [angle * distance] * 3 + [error / half] + [error] * 2)
    start = [(c.fx, c.cx, c.cy) for c in given]
    change = np.zeros((len(rig), 9))
    for _ in range(STEPS):
        residual, of_camera, of_point = _linearised(tracks, rig, xyz)
        weight = 1.0 / (1.0 + (residual**2).sum(axis=1) / scale**2) / PIXEL**2
        weight[~np.isfinite(weight)] = 0.0
        residual, of_camera, of_point = (np.nan_to_num(x) for x in (residual, of_camera, of_point))
        step, shift = _solve(tracks, residual, of_camera, of_point, weight, change, sigma)
        change, xyz = change + step, xyz + shift
        rig = [_changed(c, d) for c, d in zip(rig, step, strict=True)]
        change[:, 6:] = [(np.log(c.fx / f), c.cx - x, c.cy - y) for c, (f, x, y) in zip(rig, start, strict=True)]
    return rig


def _linearised(tracks: Tracks, rig: list[Camera], xyz: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(uv - projection [O, 2], its derivatives by the camera [O, 2, 9] and by the point [O, 2, 3], of the projection).

    With y = R X + t and (u, v) = (fx y_x / y_z + cx, ...):
    d y / d(rotation) = -[y]_x, d y / d(translation) = 1, d(u, v) / d(log focal) = (u - cx, v - cy).
    """
    pose = np.stack([c.cam_from_world for c in rig])[tracks.camera]
    focal = np.array([(c.fx, c.fy) for c in rig])[tracks.camera]
    centre = np.array([(c.cx, c.cy) for c in rig])[tracks.camera]
    y = np.einsum("oij,oj->oi", pose[:, :3, :3], xyz[tracks.track]) + pose[:, :3, 3]
    with np.errstate(divide="ignore", invalid="ignore"):
        ray = np.where(y[:, 2:] > 0, y[:, :2] / y[:, 2:], np.nan)  # NaN behind the camera
        by_y = np.zeros((len(y), 2, 3))
        by_y[:, 0, 0], by_y[:, 1, 1] = focal[:, 0] / y[:, 2], focal[:, 1] / y[:, 2]
        by_y[:, :, 2] = -focal * ray / y[:, 2:]
    cross = np.zeros((len(y), 3, 3))  # -[y]_x
    cross[:, 0, 1], cross[:, 0, 2], cross[:, 1, 2] = y[:, 2], -y[:, 1], y[:, 0]
    cross -= cross.transpose(0, 2, 1)
    of_camera = np.zeros((len(y), 2, 9))
    of_camera[:, :, _ROTATION] = by_y @ cross
    of_camera[:, :, _TRANSLATION] = by_y
    of_camera[:, :, 6] = focal * ray
    of_camera[:, 0, 7] = of_camera[:, 1, 8] = 1.0
    return tracks.uv - (focal * ray + centre), of_camera, by_y @ pose[:, :3, :3]


_ROTATION, _TRANSLATION = slice(0, 3), slice(3, 6)


def _solve(
    tracks: Tracks, residual: np.ndarray, of_camera: np.ndarray, of_point: np.ndarray, weight: np.ndarray,
    change: np.ndarray, sigma: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The step of the cameras [C, 9] and of the points [P, 3]."""
    count, points = len(change), tracks.count
    weighted = weight[:, None, None] * of_camera
    a = np.zeros((count, 9, 9))
    np.add.at(a, tracks.camera, np.einsum("oki,okj->oij", weighted, of_camera))
    a += np.diag(1.0 / sigma**2)
    right = np.zeros((count, 9))
    np.add.at(right, tracks.camera, np.einsum("oki,ok->oi", weighted, residual))
    right -= change / sigma**2
    c = np.zeros((points, 3, 3))
    np.add.at(c, tracks.track, np.einsum("oki,okj,o->oij", of_point, of_point, weight))
    c += 1e-9 * np.trace(c, axis1=1, axis2=2)[:, None, None] * np.eye(3) + 1e-12 * np.eye(3)
    force = np.zeros((points, 3))
    np.add.at(force, tracks.track, np.einsum("oki,ok,o->oi", of_point, residual, weight))
    b = np.zeros((count, points, 9, 3))
    np.add.at(b, (tracks.camera, tracks.track), np.einsum("oki,okj->oij", weighted, of_point))
    inverse = np.linalg.inv(c)
    bc = np.einsum("npij,pjk->npik", b, inverse)
    schur = -np.einsum("npik,mpjk->nimj", bc, b, optimize=True).reshape(9 * count, 9 * count)
    for k in range(count):
        schur[9 * k : 9 * k + 9, 9 * k : 9 * k + 9] += a[k]
    right_all = (right - np.einsum("npik,pk->ni", bc, force)).reshape(-1)
    step = np.linalg.solve(schur, right_all).reshape(count, 9)
    shift = np.einsum("pij,pj->pi", inverse, force - np.einsum("npij,ni->pj", b, step))
    return step, shift


def _changed(camera: Camera, step: np.ndarray) -> Camera:
    """`camera` after a step (rotation 3, translation 3, log focal, principal point 2)."""
    factor = float(np.exp(step[6]))
    twist = np.concatenate([step[_TRANSLATION], step[_ROTATION]])
    return replace(
        camera, fx=camera.fx * factor, fy=camera.fy * factor, cx=camera.cx + step[7], cy=camera.cy + step[8],
        cam_from_world=np.asarray(se3_exp(twist)) @ camera.cam_from_world,
    )  # fmt: skip


def _moved(before: Camera, after: Camera) -> Moved:
    return Moved(
        1000.0 * float(np.linalg.norm(after.center - before.center)),
        float(np.degrees(angle_between(before.cam_from_world[:3, :3], after.cam_from_world[:3, :3]))),
        100.0 * (after.fx / before.fx - 1.0),
        float(np.hypot(after.cx - before.cx, after.cy - before.cy)),
    )
