"""How well pictures match over a plane of the world: warped by its homography, compared in windows (ZNCC).

A plane n . x = h of the world is m . x = d with m = R n and d = h - n . c in the axes of a camera with centre c. Planes
of the surface's own slant allow larger windows than the planes before a camera that `sweep` uses, and those are rarely
alike by chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recon.calibrate.sweep import box, likeness, plane_homography, reached, reduced, reduced_mask, warped
from recon.geometry.camera import Camera, pixel_rays

WIDTH = 320  # pixels of the reduced pictures
WINDOW = 15  # pixels of the reduced picture
TEXTURE = 5.0  # grey levels, standard deviation in the window
NOISE = 2.0**0.5  # grey levels
MATCH, SLACK = 0.85, 0.03  # least score of a match; how far below its pixel's best it may be


@dataclass(frozen=True)
class View:
    """A reduced picture: camera, grey float32 [h, w], seen uint8 [h, w], window mean and variance, rays [h, w, 3]."""

    camera: Camera
    grey: np.ndarray
    seen: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    rays: np.ndarray


def view_of(plate: np.ndarray, camera: Camera, valid: np.ndarray) -> View:
    """A plate uint8 [H, W, 3] of a pinhole camera, valid bool [H, W], at most WIDTH pixels wide."""
    camera = camera.scaled(min(1.0, WIDTH / camera.width))
    grey = reduced(plate, camera)
    mean = box(grey, WINDOW)
    variance = np.maximum(box(grey * grey, WINDOW) - mean * mean, 0.0)
    rays = pixel_rays(camera)
    return View(camera, grey, reduced_mask(valid, camera), mean, variance, rays.reshape(camera.height, camera.width, 3))


def support(views: list[View], normal: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """[D]: textured pixels of all views that match another view over the plane at each offset, near their best."""
    total = np.zeros(len(offsets))
    for view in views:
        total += matched(view, views, normal, offsets).sum(axis=(1, 2))
    return total


def matched(view: View, views: list[View], normal: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """bool [D, h, w]: textured pixels of a view that match another over the plane at each offset, near their best."""
    found = np.zeros((len(offsets), *view.grey.shape), dtype=bool)
    textured = (view.variance > TEXTURE**2) & (view.seen > 0) & (view.rays @ normal > 1e-3)
    if not textured.any():
        return found
    top, bottom, left, right = _bounds(textured)
    scores = np.full((len(offsets), bottom - top, right - left), -1.0, np.float32)
    for k, offset in enumerate(offsets):
        for other in views:
            if other is not view and float(normal @ other.camera.center) < offset:
                score = match(view, other, normal, float(offset))
                if score is not None:
                    np.maximum(scores[k], score[top:bottom, left:right], out=scores[k])
    good = (scores > MATCH) & (scores >= scores.max(axis=0) - SLACK)
    found[:, top:bottom, left:right] = good & textured[top:bottom, left:right]
    return found


def _bounds(mask: np.ndarray) -> tuple[int, int, int, int]:
    rows, columns = np.nonzero(mask.any(axis=1))[0], np.nonzero(mask.any(axis=0))[0]
    return int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1


def match(view: View, other: View, normal: np.ndarray, offset: float) -> np.ndarray | None:
    """ZNCC [h, w] over the plane, -1 where the other does not reach; None where it reaches next to nothing."""
    away = offset - float(normal @ view.camera.center)
    warp = plane_homography(view.camera, other.camera, view.camera.cam_from_world[:3, :3] @ normal, away)
    reach = reached(other.seen, warp, view.grey.shape)
    if not reach.any():
        return None
    # a homography also maps what lies behind the other camera
    along = view.rays @ normal
    t = away / np.where(along > 1e-3, along, np.inf)
    axis = other.camera.cam_from_world[2]
    ahead = t * (view.rays @ axis[:3]) + float(axis[:3] @ view.camera.center + axis[3])
    reach &= (t > 0) & (ahead > 0)
    if np.count_nonzero(reach) < WINDOW * WINDOW:
        return None
    score = likeness(view.grey, view.mean, view.variance, warped(other.grey, warp, view.grey.shape), WINDOW, NOISE)
    return np.where(reach, score, np.float32(-1.0))
