"""Dense points by plane sweep: a depth map per camera, kept where depth maps of other cameras agree.

For a plane z = d in camera a, x_b ~ K_b (R + t n^T / d) K_a^-1 x_a with n = (0, 0, 1) and x_b = R x_a + t. For every
inverse depth the neighbours are warped by that homography and compared with a in small windows by

    ZNCC = cov(a, b) / sqrt((var a + e) (var b + e)),

which ignores brightness and contrast of a camera; e keeps plain areas from matching by their noise. The score of a
depth is the mean of the best two neighbours, so that a surface hidden from one of them still wins. The depth with the
best score is refined by a parabola, and is kept when it stands out and when other cameras' maps meet it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import cv2
import numpy as np

from recon.calibrate.cloud import Points, join_points, sample, thin
from recon.calibrate.neighbours import neighbours
from recon.capture.coverage import focus_point
from recon.geometry.camera import Camera

WINDOW = 7  # pixels of the reduced picture
NOISE = 0.7  # grey levels: e = NOISE^2; a plate is a median of many frames, so little noise is left
MIN_SCORE = 0.6
MIN_MARGIN = 0.03  # over the best score elsewhere along the ray
PLANES = (48, 192)  # fewest, most
STEP = 1.0  # pixels between neighbouring planes in the farthest neighbour
AGREE_PIXELS = 1.0  # of the reduced picture
AGREE_DEPTH = 0.02  # relative
NEAR_SHARE, FAR_SHARE = 0.7, 1.5  # the depth range is that of the matches, widened
TEXTURE = 0.5  # grey levels, standard deviation in the window


@dataclass(frozen=True)
class DepthMap:
    """depth: float32 [h, w], 0 where unknown. score: float32 [h, w]. camera: the reduced camera."""

    depth: np.ndarray
    score: np.ndarray
    camera: Camera


def sweep_points(
    plates: Mapping[str, np.ndarray],
    cameras: Mapping[str, Camera],
    valid: Mapping[str, np.ndarray] | None = None,
    *,
    seeds: Points | None = None,
    width: int = 320,
    count: int = 4,
    agree: int = 2,
    max_points: int = 100_000,
) -> Points:
    """Coloured points on everything textured that at least `agree` + 1 depth maps place alike.

    plates: uint8 [H, W, 3] per camera. cameras: the ideal pinhole camera of each. valid: bool [H, W], where a plate
    shows something. seeds: matched points that give each camera's depth range (else the rig's geometry does).
    width: of the reduced pictures, pixels. count: neighbours per camera. Points.error is 1 - score here.
    """
    maps = depth_maps(plates, cameras, valid, seeds=seeds, width=width, count=count)
    found = []
    for name, one in maps.items():
        xyz, pixels = lift(one)
        votes = _votes(xyz, pixels, one.camera, [other for n, other in maps.items() if n != name])
        keep = votes >= agree
        full = cameras[name]
        uv = (pixels[keep] + 0.5) * [full.width / one.camera.width, full.height / one.camera.height]
        score = one.score[pixels[keep, 1], pixels[keep, 0]]
        found.append(Points(xyz[keep], _rounded(sample(plates[name], uv)), votes[keep] + 1, 1.0 - score))
    return thin(join_points(found), max_points)


def depth_maps(
    plates: Mapping[str, np.ndarray],
    cameras: Mapping[str, Camera],
    valid: Mapping[str, np.ndarray] | None = None,
    *,
    seeds: Points | None = None,
    width: int = 320,
    count: int = 4,
) -> dict[str, DepthMap]:
    """One depth map per camera that has a neighbour, before any two of them are compared."""
    small = {n: cameras[n].scaled(min(1.0, width / cameras[n].width)) for n in plates}
    grey = {n: reduced(plates[n], small[n]) for n in plates}
    seen = {n: reduced_mask(valid[n] if valid else None, small[n]) for n in plates}
    near = neighbours(small, count)
    maps = {}
    for name, others in near.items():
        if others:
            span = depth_range(small[name], list(small.values()), seeds)
            rest = [(small[o], grey[o], seen[o]) for o in others]
            maps[name] = _sweep(small[name], grey[name], seen[name], rest, span)
    return maps


def depth_range(camera: Camera, rig: list[Camera], seeds: Points | None) -> tuple[float, float]:
    """(near, far) along the optical axis: that of the seeds the camera sees, else from the rig's own size."""
    if seeds is not None and len(seeds):
        local = seeds.xyz @ camera.cam_from_world[:3, :3].T + camera.cam_from_world[:3, 3]
        with np.errstate(divide="ignore", invalid="ignore"):
            uv = local[:, :2] / local[:, 2:] * [camera.fx, camera.fy] + [camera.cx, camera.cy]
        inside = (local[:, 2] > 0) & (uv >= 0).all(axis=1) & (uv <= [camera.width, camera.height]).all(axis=1)
        if inside.sum() >= 30:
            low, high = np.percentile(local[inside, 2], [1, 99])
            return NEAR_SHARE * float(low), FAR_SHARE * float(high)
    distance = float(np.linalg.norm(camera.center - focus_point(rig)))
    return 0.25 * distance, 4.0 * distance


def _sweep(
    camera: Camera,
    grey: np.ndarray,
    seen: np.ndarray,
    others: list[tuple[Camera, np.ndarray, np.ndarray]],
    span: tuple[float, float],
) -> DepthMap:
    inverse = np.linspace(1 / span[1], 1 / span[0], plane_count(camera, [o[0] for o in others], span))
    mean = box(grey)
    deviation = np.maximum(box(grey * grey) - mean * mean, 0.0)
    volume = np.empty((len(inverse), camera.height, camera.width), np.float32)
    scores = np.empty((len(others), camera.height, camera.width), np.float32)
    for p, depth in enumerate(1 / inverse):
        for k, (other, picture, other_seen) in enumerate(others):
            scores[k] = zncc(grey, mean, deviation, picture, other_seen, homography(camera, other, depth))
        volume[p] = _best_two(scores)
    depth, best, margin = _peak(volume, inverse)
    good = (best > MIN_SCORE) & (margin > MIN_MARGIN) & seen & (deviation > TEXTURE**2)
    return DepthMap(np.where(good, depth, 0.0).astype(np.float32), best, camera)


def zncc(
    grey: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    picture: np.ndarray,
    seen: np.ndarray,
    homography: np.ndarray,
) -> np.ndarray:
    """ZNCC [h, w] of the windows with the warped other picture; -1 where that picture does not reach."""
    score = likeness(grey, mean, variance, warped(picture, homography, grey.shape))
    score[~reached(seen, homography, grey.shape)] = -1.0
    return score


def warped(picture: np.ndarray, homography: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A float32 picture in a grid of `shape` [h, w] that the homography leads into it; its border goes on outside."""
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return cv2.warpPerspective(picture, homography, shape[::-1], flags=flags, borderMode=cv2.BORDER_REPLICATE)


def reached(seen: np.ndarray, homography: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """bool [h, w]: where the homography leads, from a grid of that shape, to what another camera has `seen` (uint8)."""
    flags = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
    found: np.ndarray = cv2.warpPerspective(seen, homography, shape[::-1], flags=flags) > 0
    return found


def likeness(
    grey: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    other: np.ndarray,
    window: int = WINDOW,
    noise: float = NOISE,
) -> np.ndarray:
    """ZNCC [h, w] of the windows of two pictures [h, w]; mean, variance: those of `grey` in the same windows."""
    other_mean = box(other, window)
    other_variance = np.maximum(box(other * other, window) - other_mean * other_mean, 0.0)
    covariance = box(grey * other, window) - mean * other_mean
    floor = np.float32(noise**2)
    score: np.ndarray = covariance / np.sqrt((variance + floor) * (other_variance + floor))
    return score


def _best_two(scores: np.ndarray) -> np.ndarray:
    """Mean of the two largest over the first axis of [K, h, w]; with a single neighbour, its score."""
    if len(scores) == 1:
        return scores[0]
    first, second = np.maximum(scores[0], scores[1]), np.minimum(scores[0], scores[1])
    for score in scores[2:]:
        second = np.maximum(second, np.minimum(first, score))
        first = np.maximum(first, score)
    return 0.5 * (first + second)


def _peak(volume: np.ndarray, inverse: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(depth, score, margin) [h, w] of the best plane, refined between planes.

    margin: over the best score more than 2 planes away from the peak. Peaks on the first or last plane have none.
    """
    planes = len(volume)
    top = volume.argmax(axis=0)[None]  # [1, h, w]
    best = np.take_along_axis(volume, top, axis=0)[0]
    before = np.take_along_axis(volume, np.maximum(top - 1, 0), axis=0)[0]
    after = np.take_along_axis(volume, np.minimum(top + 1, planes - 1), axis=0)[0]
    curve = before - 2 * best + after
    shift = np.clip(np.where(curve < -1e-6, 0.5 * (before - after) / np.minimum(curve, -1e-6), 0.0), -0.5, 0.5)
    elsewhere = np.full(best.shape, -1.0, np.float32)
    for p in range(planes):
        np.maximum(elsewhere, volume[p], out=elsewhere, where=np.abs(top[0] - p) > 2)
    inner = (top[0] > 0) & (top[0] < planes - 1)
    step = inverse[1] - inverse[0]
    depth = 1.0 / (inverse[top[0]] + shift * step)
    return depth, best, np.where(inner, best - elsewhere, -1.0)


def plane_count(camera: Camera, others: list[Camera], span: tuple[float, float]) -> int:
    """Planes so that a pixel moves at most STEP pixels in any neighbour from one to the next."""
    corners = np.array([[0.5, 0.5], [0.1, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.9]]) * [camera.width, camera.height]
    rays = np.c_[(corners - [camera.cx, camera.cy]) / [camera.fx, camera.fy], np.ones(5)]
    depth = 1 / np.linspace(1 / span[1], 1 / span[0], 33)
    world_from_cam = np.linalg.inv(camera.cam_from_world)
    points = (rays[None] * depth[:, None, None]) @ world_from_cam[:3, :3].T + world_from_cam[:3, 3]  # [33, 5, 3]
    longest = 0.0
    for other in others:
        local = points @ other.cam_from_world[:3, :3].T + other.cam_from_world[:3, 3]
        with np.errstate(divide="ignore", invalid="ignore"):
            uv = local[..., :2] / local[..., 2:] * [other.fx, other.fy] + [other.cx, other.cy]
        inside = (local[..., 2] > 0) & (uv >= 0).all(-1) & (uv <= [other.width, other.height]).all(-1)
        moved = np.linalg.norm(np.diff(uv, axis=0), axis=-1)
        longest = max(longest, float(np.where(inside[1:] & inside[:-1], moved, 0.0).max()))
    return int(np.clip(32 * longest / STEP, *PLANES))


def homography(camera: Camera, other: Camera, depth: float) -> np.ndarray:
    """cv2 pixels of `other` from cv2 pixels of `camera` for the plane z = depth of `camera`."""
    return plane_homography(camera, other, np.array([0.0, 0.0, 1.0]), depth)


def plane_homography(camera: Camera, other: Camera, normal: np.ndarray, distance: float) -> np.ndarray:
    """The same for the plane normal . x = distance, both in the axes of `camera`: K' (R + t n^T / d) K^-1."""
    other_from_cam = other.cam_from_world @ np.linalg.inv(camera.cam_from_world)
    plane = other_from_cam[:3, :3] + np.outer(other_from_cam[:3, 3], normal) / distance
    half = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]])  # ours from cv2's
    return np.linalg.inv(half) @ other.K @ plane @ np.linalg.inv(camera.K) @ half


def lift(one: DepthMap) -> tuple[np.ndarray, np.ndarray]:
    """(world points [M, 3], pixels [M, 2] as column, row) of the known depths."""
    row, column = np.nonzero(one.depth)
    z = one.depth[row, column].astype(np.float64)
    camera = one.camera
    local = np.stack([(column + 0.5 - camera.cx) / camera.fx * z, (row + 0.5 - camera.cy) / camera.fy * z, z], axis=1)
    world_from_cam = np.linalg.inv(camera.cam_from_world)
    return local @ world_from_cam[:3, :3].T + world_from_cam[:3, 3], np.stack([column, row], axis=1)


def _votes(xyz: np.ndarray, pixels: np.ndarray, camera: Camera, others: list[DepthMap]) -> np.ndarray:
    """[M] how many other maps hold a point that lands on the same pixel of `camera` at the same depth."""
    votes = np.zeros(len(xyz), dtype=np.int64)
    mine = (xyz @ camera.cam_from_world[:3, :3].T + camera.cam_from_world[:3, 3])[:, 2]
    for other in others:
        there, cell, _ = _into(other.camera, xyz)
        depth = other.depth[cell[:, 1], cell[:, 0]].astype(np.float64)
        rays = np.c_[
            (cell + 0.5 - [other.camera.cx, other.camera.cy]) / [other.camera.fx, other.camera.fy], np.ones(len(cell))
        ]
        # The other map's own point in that cell, taken back to this camera. It was measured at the cell's centre: the
        # half pixel it may be off there is part of the tolerance.
        world_from_other = np.linalg.inv(other.camera.cam_from_world)
        back = (rays * depth[:, None]) @ world_from_other[:3, :3].T + world_from_other[:3, 3]
        local = back @ camera.cam_from_world[:3, :3].T + camera.cam_from_world[:3, 3]
        with np.errstate(divide="ignore", invalid="ignore"):
            uv = local[:, :2] / local[:, 2:] * [camera.fx, camera.fy] + [camera.cx, camera.cy]
            near = np.linalg.norm(uv - pixels - 0.5, axis=1) < AGREE_PIXELS
            alike = np.abs(local[:, 2] - mine) < AGREE_DEPTH * mine
        votes += there & (depth > 0) & near & alike
    return votes


def _into(camera: Camera, xyz: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(inside bool [M], pixel cell [M, 2] clipped into the picture, z [M]) of world points."""
    local = xyz @ camera.cam_from_world[:3, :3].T + camera.cam_from_world[:3, 3]
    with np.errstate(divide="ignore", invalid="ignore"):
        uv = local[:, :2] / local[:, 2:] * [camera.fx, camera.fy] + [camera.cx, camera.cy]
    inside = (local[:, 2] > 0) & (uv >= 0).all(axis=1) & (uv < [camera.width, camera.height]).all(axis=1)
    cell = np.where(inside[:, None], uv, 0.0).astype(np.int64)
    return inside, cell, local[:, 2]


def box(image: np.ndarray, window: int = WINDOW) -> np.ndarray:
    """Mean over the matching window, float32 [h, w]."""
    return cv2.boxFilter(image, cv2.CV_32F, (window, window), borderType=cv2.BORDER_REFLECT_101)


def reduced(plate: np.ndarray, camera: Camera) -> np.ndarray:
    """Grey float32 [h, w] in 0..255 of an RGB plate uint8 [H, W, 3], at the size of `camera`."""
    grey = cv2.cvtColor(plate, cv2.COLOR_RGB2GRAY).astype(np.float32)
    return cv2.resize(grey, (camera.width, camera.height), interpolation=cv2.INTER_AREA)


def reduced_mask(valid: np.ndarray | None, camera: Camera) -> np.ndarray:
    """uint8 [h, w], 1 where `valid` (bool [H, W]; None = everywhere) holds, at the size of `camera`."""
    if valid is None:
        return np.ones((camera.height, camera.width), np.uint8)
    return cv2.resize(valid.astype(np.uint8), (camera.width, camera.height), interpolation=cv2.INTER_NEAREST)


def _rounded(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)
