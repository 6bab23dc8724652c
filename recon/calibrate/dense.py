"""How far every pixel of every plate sees: plane sweep, smoothing along paths, agreement between cameras, fill.

`sweep_points` keeps only what stands out, which leaves plain walls empty. Here semi-global matching (`sgm`) carries
depth into them; a point counts as confirmed when the maps of other cameras hold it too and fewer look through it; and
what is left is filled by interpolating inverse depth, which is linear on a plane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import cv2
import numpy as np
from scipy.spatial import cKDTree

from recon.calibrate.cloud import Points, join_points, thin
from recon.calibrate.fill import push_pull
from recon.calibrate.neighbours import neighbours
from recon.calibrate.room import Room
from recon.calibrate.sgm import semi_global
from recon.calibrate.shell import Shell, fit_shell
from recon.calibrate.sweep import DepthMap, box, homography, lift, plane_count, reduced, reduced_mask, zncc
from recon.calibrate.table import Table
from recon.capture.coverage import focus_point
from recon.geometry.camera import Camera, pixel_cells

WIDTH = 320  # pixels of the reduced pictures
COUNT = 6  # neighbours per camera
MAX_PLANES = 96
NEAR_SHARE, FAR_SHARE = 0.3, 4.0  # of the distance to what the cameras look at
ONE_VIEW = 0.9  # a score that rests on a single neighbour counts a little less
AGREE = 0.03  # relative depth difference
THROUGH = 0.06  # a map looks through a point that is nearer by more than this share
CONFIRMED_VIEWS = 3
LONELY = 3.0  # times the median distance to the 16th neighbour: a point further from its like is a stray
WEIGHTS = {"own": 1.0, "seen": 0.8, "filled": 0.15}  # how far each kind of depth is believed
SPECK = 60  # pixels of the reduced picture
FILL_REACH = 6.0  # pixels of the reduced picture, over which a measured depth is carried on
BONUS, SHARING = 0.2, 2.0  # of the matching cost, on a known plane; planes of the sweep on either side that share it
PUSH = (1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0)  # a filled point in free space is moved back by these factors


@dataclass(frozen=True)
class DepthPrior:
    """inverse: float32 [h, w] 1 / depth, always above 0. weight: float32 [h, w] in 0..1. camera: the reduced one."""

    inverse: np.ndarray
    weight: np.ndarray
    camera: Camera


def dense_depths(
    plates: Mapping[str, np.ndarray],
    cameras: Mapping[str, Camera],
    valid: Mapping[str, np.ndarray],
    room: Room | None = None,
    table: Table | None = None,
) -> dict[str, DepthMap]:
    """One full depth map (0 only where the plate is not valid) per camera that has a neighbour.

    plates: uint8 [H, W, 3]; cameras: their ideal pinhole cameras; valid: bool [H, W]. `score` of a map is the plain
    matching score at the chosen depth: near 0 in plain areas. On the walls of a known room and on a known table a match
    costs a little less: plain parts then lie there, and not where their noise matches by chance.
    """
    small = {n: cameras[n].scaled(min(1.0, WIDTH / cameras[n].width)) for n in plates}
    grey = {n: reduced(plates[n], small[n]) for n in plates}
    seen = {n: reduced_mask(valid[n], small[n]) for n in plates}
    focus = focus_point(list(small.values()))
    maps = {}
    for name, others in neighbours(small, COUNT).items():
        if others:
            distance = float(np.linalg.norm(small[name].center - focus))
            span = (NEAR_SHARE * distance, FAR_SHARE * distance)
            inverse, volume = _scores(small[name], grey[name], [(small[o], grey[o], seen[o]) for o in others], span)
            cost = 1.0 - np.maximum(volume, 0.0)
            if room is not None:
                _favour(cost, inverse, room.inverse_depth(small[name]))
            if table is not None:
                _favour(cost, inverse, table.inverse_depth(small[name]))
            total = semi_global(cost, grey[name])
            top = total.argmin(axis=0)
            depth = 1.0 / _between(total, top, inverse)
            score = np.take_along_axis(volume, top[None], axis=0)[0]
            maps[name] = DepthMap(np.where(seen[name] > 0, depth, 0.0).astype(np.float32), score, small[name])
    return maps


def _scores(
    camera: Camera, grey: np.ndarray, others: list[tuple[Camera, np.ndarray, np.ndarray]], span: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """(inverse depths [D], matching scores [D, h, w] in [-1, 1]) of one camera against its neighbours."""
    planes = min(MAX_PLANES, plane_count(camera, [o[0] for o in others], span))
    inverse = np.linspace(1 / span[1], 1 / span[0], planes)
    mean = box(grey)
    variance = np.maximum(box(grey * grey) - mean * mean, 0.0)
    volume = np.empty((planes, camera.height, camera.width), np.float32)
    scores = np.empty((len(others), camera.height, camera.width), np.float32)
    for p, depth in enumerate(1 / inverse):
        for k, (other, picture, other_seen) in enumerate(others):
            scores[k] = zncc(grey, mean, variance, picture, other_seen, homography(camera, other, depth))
        volume[p] = _best_two_reached(scores)
    return inverse, volume


def _best_two_reached(scores: np.ndarray) -> np.ndarray:
    """Mean of the two best of [K, h, w], or the best where one neighbour reaches (score > -1), or 0 where none does."""
    count = (scores > -1.0).sum(axis=0)
    first = np.full(scores.shape[1:], -1.0, np.float32)
    second = first.copy()
    for score in scores:
        second = np.maximum(second, np.minimum(first, score))
        first = np.maximum(first, score)
    return np.where(count >= 2, 0.5 * (first + second), np.where(count == 1, ONE_VIEW * first, 0.0)).astype(np.float32)


def _favour(cost: np.ndarray, inverse: np.ndarray, wall: np.ndarray) -> None:
    """Lower `cost` [D, h, w] round the planes nearest to the inverse depth `wall` [h, w] (0 = none)."""
    step = inverse[1] - inverse[0]
    for p, value in enumerate(inverse):
        near = np.maximum(0.0, 1.0 - np.abs(value - wall) / (step * SHARING))
        cost[p] -= BONUS * near * (wall > 0)


def _between(total: np.ndarray, top: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """Inverse depth [h, w] of the least path cost, refined by a parabola through its neighbours."""
    planes = len(total)
    here = np.take_along_axis(total, top[None], axis=0)[0]
    before = np.take_along_axis(total, np.maximum(top - 1, 0)[None], axis=0)[0]
    after = np.take_along_axis(total, np.minimum(top + 1, planes - 1)[None], axis=0)[0]
    curve = before - 2 * here + after
    shift = np.clip(np.where(curve > 1e-6, 0.5 * (before - after) / np.maximum(curve, 1e-6), 0.0), -0.5, 0.5)
    shift[(top == 0) | (top == planes - 1)] = 0.0
    return inverse[top] + shift * (inverse[1] - inverse[0])


def vote(maps: Mapping[str, DepthMap], name: str, xyz: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(agree [M], through [M]): how many maps but `name`'s hold a world point, and how many look through its place."""
    agree = np.zeros(len(xyz), dtype=np.int32)
    through = np.zeros(len(xyz), dtype=np.int32)
    for other_name, other in maps.items():
        if other_name == name:
            continue
        inside, column, row, z = pixel_cells(other.camera, xyz)
        held = other.depth[row, column]
        inside &= held > 0
        ratio = np.where(inside, z / np.maximum(held, 1e-9), 1.0)
        agree += inside & (np.abs(ratio - 1) < AGREE)
        through += inside & (ratio < 1 - THROUGH)
    return agree, through


def confirmed_points(
    maps: Mapping[str, DepthMap], plates: Mapping[str, np.ndarray]
) -> tuple[Points, dict[str, np.ndarray]]:
    """(points that at least CONFIRMED_VIEWS maps hold, per map bool [h, w] of its own confirmed pixels)."""
    parts: list[Points] = []
    masks: dict[str, np.ndarray] = {}
    places: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name, one in maps.items():
        xyz, pixels = lift(one)
        agree, through = vote(maps, name, xyz)
        keep = (agree >= 1) & (through <= agree)
        small = cv2.resize(plates[name], (one.camera.width, one.camera.height), interpolation=cv2.INTER_AREA)
        xyz, pixels, views = xyz[keep], pixels[keep], agree[keep].astype(np.int64) + 1
        rgb, score = small[pixels[:, 1], pixels[:, 0]], one.score[pixels[:, 1], pixels[:, 0]]
        parts.append(Points(xyz, rgb, views, 1.0 - score.astype(np.float64)))
        places[name] = (xyz, pixels)
    points = join_points(parts)
    points = points.select((points.views >= CONFIRMED_VIEWS) & ~_lonely(points.xyz))
    tree = cKDTree(points.xyz)
    spacing = float(np.median(tree.query(points.xyz[::50], k=17)[0][:, -1])) if len(points) > 1000 else np.inf
    for name, (xyz, pixels) in places.items():
        mask = np.zeros(maps[name].depth.shape, np.uint8)
        near = tree.query(xyz)[0] < 2 * spacing if len(points) else np.zeros(len(xyz), bool)
        mask[pixels[near, 1], pixels[near, 0]] = 1
        masks[name] = cv2.morphologyEx(mask, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8)) > 0
    return points, masks


def _lonely(xyz: np.ndarray, count: int = 16, factor: float = LONELY) -> np.ndarray:
    """bool [M]: points much further from their 16th neighbour than is usual."""
    if len(xyz) <= count:
        return np.zeros(len(xyz), dtype=bool)
    distance = cKDTree(xyz).query(xyz, k=count + 1)[0][:, -1]
    return distance > factor * np.median(distance)


def depth_priors(
    plates: Mapping[str, np.ndarray],
    cameras: Mapping[str, Camera],
    valid: Mapping[str, np.ndarray],
    room: Room | None = None,
    table: Table | None = None,
) -> tuple[dict[str, DepthPrior], Shell | None]:
    """(a full depth prior of every camera, the far surface behind them; None where too little was confirmed for one).

    room, table: what was found of them; the walls are part of the far surface.

    A camera without neighbours, or a rig in which nothing was confirmed, gets the constant depth of what the cameras
    look at, hardly believed.
    """
    maps = dense_depths(plates, cameras, valid, room, table)
    if maps:
        points, masks = confirmed_points(maps, plates)
    else:
        points, masks = Points(np.zeros((0, 3)), np.zeros((0, 3), np.uint8), np.zeros(0, np.int64), np.zeros(0)), {}
    focus = focus_point(list(cameras.values()))
    shell = fit_shell(points.xyz, list(cameras.values()), room)
    priors = {}
    for name, camera in cameras.items():
        small = camera.scaled(min(1.0, WIDTH / camera.width))
        near = NEAR_SHARE * float(np.linalg.norm(camera.center - focus))
        own = masks.get(name, np.zeros((small.height, small.width), bool))
        inverse = np.zeros((small.height, small.width))
        inside, column, row, z = pixel_cells(small, points.xyz)
        inside &= z > near  # no camera looks at what it is mounted on
        np.maximum.at(inverse, (row[inside], column[inside]), 1.0 / z[inside])
        inverse = cv2.dilate(inverse, np.ones((3, 3), np.uint8))
        known = own | (inverse > 0)
        if name in maps:
            inverse = np.where(own, 1.0 / np.maximum(maps[name].depth, 1e-9), inverse)
        known &= ~_specks(known)
        own &= known
        if not known.any():
            inverse[:] = 1.0 / max(float(np.linalg.norm(camera.center - focus)), 1e-6)
        else:
            inverse = push_pull(inverse, known)
            if shell is not None:
                far = shell.inverse_depth(small.scaled(0.5), near)  # smooth: half the size is plenty
                inverse = _towards(inverse, known, cv2.resize(far, (small.width, small.height)))
        weight = np.where(own, WEIGHTS["own"], np.where(known, WEIGHTS["seen"], WEIGHTS["filled"]))
        priors[name] = DepthPrior(cv2.medianBlur(inverse.astype(np.float32), 5), weight.astype(np.float32), small)
    return priors, shell


def _specks(known: np.ndarray) -> np.ndarray:
    """bool [h, w]: islands of few pixels, which chance matches make."""
    _, labels, facts, _ = cv2.connectedComponentsWithStats(known.astype(np.uint8), connectivity=8)
    small: np.ndarray = (facts[labels, cv2.CC_STAT_AREA] < SPECK) & known
    return small


def _towards(inverse: np.ndarray, known: np.ndarray, far: np.ndarray) -> np.ndarray:
    """`inverse` near known pixels, `far` away from them."""
    apart = cv2.distanceTransform((~known).astype(np.uint8), cv2.DIST_L2, 3)
    share = np.exp(-apart / FILL_REACH)
    return share * inverse + (1.0 - share) * far


def fused_points(
    priors: Mapping[str, DepthPrior], plates: Mapping[str, np.ndarray], valid: Mapping[str, np.ndarray], most: int
) -> Points:
    """At most `most` points of all priors together, none where other cameras look through more than hold it.

    A filled point that hangs in free space is moved back along its ray until it does not; a measured one is dropped.
    """
    maps = {n: DepthMap(1.0 / p.inverse, p.weight, p.camera) for n, p in priors.items()}
    parts = []
    for name, prior in priors.items():
        seen = reduced_mask(valid[name], prior.camera) > 0
        seen[1::2], seen[:, 1::2] = False, False  # every second pixel is plenty
        one = DepthMap(np.where(seen, 1.0 / prior.inverse, 0.0).astype(np.float32), prior.weight, prior.camera)
        first, pixels = lift(one)
        center = prior.camera.center
        xyz, placed = first.copy(), np.zeros(len(first), dtype=bool)
        measured = prior.weight[pixels[:, 1], pixels[:, 0]] > WEIGHTS["filled"]
        for factor in PUSH:
            rows = np.nonzero(~placed & ~(measured & (factor > 1.0)))[0]
            moved = center + factor * (first[rows] - center)
            agree, through = vote(maps, name, moved)
            good = through <= np.maximum(0, agree - 1)
            xyz[rows[good]], placed[rows[good]] = moved[good], True
        small = cv2.resize(plates[name], (prior.camera.width, prior.camera.height), interpolation=cv2.INTER_AREA)
        at = pixels[placed]
        believed = prior.weight[at[:, 1], at[:, 0]].astype(np.float64)
        parts.append(Points(xyz[placed], small[at[:, 1], at[:, 0]], np.ones(len(at), np.int64), 1.0 - believed))
    points = join_points(parts)
    return thin(points.select(~_lonely(points.xyz, factor=4.0)), most)
