"""Points for plain areas, where nothing can be matched: depth interpolated from the surface points round them.

The inverse depth of a plane is linear in the picture, so that is what is interpolated: known values are averaged into
ever coarser pictures and unknown pixels take the finest average that exists (push and pull). A fill point in front of
a surface that another camera measured would hang in the air there, and is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

import cv2
import numpy as np

from recon.calibrate.cloud import Points, join_points, sample
from recon.calibrate.sweep import depth_range
from recon.geometry.camera import Camera

WIDTH = 160  # pixels of the reduced picture: one fill point per pixel at most
CLEARANCE = 0.95  # of a measured depth: nearer is in front of that surface
COVER = 3  # pixels of the reduced picture round a surface point that need no fill
FILL_ERROR = 1.0  # as Points.error: worse than any measured point


def fill_points(
    plates: Mapping[str, np.ndarray],
    cameras: Mapping[str, Camera],
    valid: Mapping[str, np.ndarray] | None,
    surface: Points,
    most: int,
    rng: np.random.Generator,
) -> Points:
    """At most `most` points with views = 1 where a camera sees no surface point; see the module's text.

    A camera that sees no surface point at all takes a constant depth from the rig's geometry.
    """
    small = {n: c.scaled(min(1.0, WIDTH / c.width)) for n, c in cameras.items()}
    inverse = {n: splat_inverse_depth(c, surface.xyz) for n, c in small.items()}
    parts = []
    for name, camera in small.items():
        known = inverse[name] > 0
        if known.any():
            depth = 1.0 / push_pull(inverse[name], known)
        else:
            near, far = depth_range(camera, list(small.values()), None)
            depth = np.full(known.shape, np.sqrt(near * far))
        empty = cv2.dilate(known.astype(np.uint8), np.ones((COVER, COVER), np.uint8)) == 0
        if valid is not None:
            size = (camera.width, camera.height)
            empty &= cv2.resize(valid[name].astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0
        row, column = np.nonzero(empty)
        uv = np.stack([column, row], axis=1) + 0.5
        xyz = _lift(camera, uv, depth[row, column])
        keep = np.ones(len(xyz), dtype=bool)
        for other, other_camera in small.items():
            if other != name:
                keep &= ~_in_front(other_camera, inverse[other], xyz)
        full = cameras[name]
        rgb = sample(plates[name], uv[keep] * [full.width / camera.width, full.height / camera.height])
        colour = np.clip(np.rint(rgb), 0, 255).astype(np.uint8)
        count = int(keep.sum())
        parts.append(Points(xyz[keep], colour, np.ones(count, np.int64), np.full(count, FILL_ERROR)))
    points = join_points(parts)
    if len(points) > most:
        points = points.select(np.sort(rng.choice(len(points), most, replace=False)))
    return points


def splat_inverse_depth(camera: Camera, xyz: np.ndarray) -> np.ndarray:
    """float64 [h, w]: the largest inverse depth of the points in each pixel, 0 where there is none."""
    uv, z = _into(camera, xyz)
    inside = (z > 0) & (uv >= 0).all(axis=1) & (uv < [camera.width, camera.height]).all(axis=1)
    column, row = uv[inside].astype(np.int64).T
    image = np.zeros((camera.height, camera.width))
    np.maximum.at(image, (row, column), 1.0 / z[inside])
    return image


def push_pull(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """[h, w] with unknown pixels filled by ever coarser averages of the known ones, of which there must be one."""
    weight = known.astype(np.float64)
    if weight.all():
        return values
    height, width = values.shape
    if height == 1 and width == 1:
        raise ValueError("no known pixel")
    grown = ((0, height % 2), (0, width % 2))
    shape = ((height + 1) // 2, 2, (width + 1) // 2, 2)
    total = np.pad(values * weight, grown).reshape(shape).sum(axis=(1, 3))
    count = np.pad(weight, grown).reshape(shape).sum(axis=(1, 3))
    coarse = push_pull(total / np.maximum(count, 1.0), count > 0)
    back = cv2.resize(coarse, (coarse.shape[1] * 2, coarse.shape[0] * 2), interpolation=cv2.INTER_LINEAR)
    return np.where(known, values, back[:height, :width])


def _in_front(camera: Camera, inverse: np.ndarray, xyz: np.ndarray) -> np.ndarray:
    """bool [M]: nearer to the camera than a surface measured along the same ray."""
    uv, z = _into(camera, xyz)
    inside = (z > 0) & (uv >= 0).all(axis=1) & (uv < [camera.width, camera.height]).all(axis=1)
    column, row = np.where(inside[:, None], uv, 0.0).astype(np.int64).T
    return inside & (inverse[row, column] > 0) & (z * inverse[row, column] < CLEARANCE)


def _into(camera: Camera, xyz: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(pixels [M, 2], z [M]) of world points in a pinhole camera."""
    local = xyz @ camera.cam_from_world[:3, :3].T + camera.cam_from_world[:3, 3]
    with np.errstate(divide="ignore", invalid="ignore"):
        return local[:, :2] / local[:, 2:] * [camera.fx, camera.fy] + [camera.cx, camera.cy], local[:, 2]


def _lift(camera: Camera, uv: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """World points [M, 3] at `depth` [M] along the optical axis behind pixels [M, 2]."""
    local = np.c_[(uv - [camera.cx, camera.cy]) / [camera.fx, camera.fy], np.ones(len(uv))] * depth[:, None]
    return (local - camera.cam_from_world[:3, 3]) @ camera.cam_from_world[:3, :3]
