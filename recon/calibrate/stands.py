"""The stands that carry the cameras: thin upright things, which show in the pictures of other cameras.

A stand a few pixels wide is too thin for dense matching, which paints it on the wall behind, at another place from
every camera. But where it is is nearly known: under its own camera. In a picture unrolled round the vertical it is a
column, darker (or brighter) than what is to its left and to its right:

    ridge(row, column) = max over widths of  min(left - middle, right - middle) - unevenness / 2

A stand is claimed where such a column goes down from its camera's height, or from where the picture ends, without a
gap. Several pictures place it by least squares of their bearings, with the camera's own place as a weak prior; one
picture alone places it along its bearing, nearest to under the camera.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import cv2
import numpy as np

from recon.calibrate.cloud import Points, join_points
from recon.calibrate.dense import WEIGHTS, DepthPrior
from recon.calibrate.unrolled import Unrolled, unroll
from recon.geometry.camera import Camera, project

WIDTHS = (2.0, 3.0, 4.0, 6.0, 8.0, 11.0, 15.0, 20.0)  # columns
GAP = 2.0  # columns between a stand and what it is compared with
REACH = 40  # columns: half the longest filter
ROWS = 9  # averaged
CONTRAST = 0.02  # of the brightness range: least ridge
CLEAR_CONTRAST = 0.04  # its median over a whole stand
BESIDE = 0.08  # metres: how far from under its camera a stand may be
BEARING_SIGMA, PLACE_SIGMA = 0.002, 0.04  # metres
MIN_ROWS, MIN_LENGTH = 20, 0.12  # rows of the unrolled picture; metres
TOP_SLACK = 0.06  # metres that the head of a stand may hide of it
SKIP = 4  # rows that a mark or a cable may interrupt it
NEAR_COLUMNS = 3
WANDER = 1.5  # columns: an upright thing keeps to its column
MAX_WIDTH = 0.06  # metres
COLOUR_STEP = 0.02  # metres
SAME = 0.006  # radians: one thing in one picture
ALIKE, ALIKE_SIGMA = 2, 0.008  # stands that tell how the others stand; metres
IN_FRONT = 0.04  # share of its depth by which a stand must be nearer than what was seen
ROUND = 12  # points round a stand
RING = 2  # pixels of the reduced picture round a stand, of which the depth is not known


@dataclass(frozen=True)
class Stand:
    """place: [2] x and y, metres. radius: metres. low, high: heights. seen: how many cameras show it.

    colours: float [K, 3] in [0, 1] at heights evenly spaced from low to high.
    """

    camera: str
    place: np.ndarray
    radius: float
    low: float
    high: float
    seen: int
    colours: np.ndarray


@dataclass(frozen=True)
class _Sight:
    """How one picture shows a stand.

    azimuth: radians. beside: metres to the left of where it was expected, `left` the unit vector [2] that way. width:
    metres. colours: [M, 3] at falling heights [M].
    """

    azimuth: float
    beside: float
    left: np.ndarray
    width: float
    heights: np.ndarray
    colours: np.ndarray


def find_stands(
    plates: Mapping[str, np.ndarray], cameras: Mapping[str, Camera], valid: Mapping[str, np.ndarray]
) -> list[Stand]:
    """Stands of the cameras in a world whose z axis is up; plates uint8 [H, W, 3], valid bool [H, W]."""
    views = {name: view for name in plates if (view := unroll(plates[name], valid[name], cameras[name])) is not None}
    ridges = {name: _ridges(view) for name, view in views.items()}
    sights = {
        name: {o: s for o, view in views.items() if o != name and (s := _sight(view, *ridges[o], camera.center))}
        for name, camera in cameras.items()
    }
    sights = _claimed_once(sights)
    placed = {n: _placed(cameras[n], list(s.values()), np.zeros(2), PLACE_SIGMA) for n, s in sights.items()}
    # the stands of a rig are alike: where several pictures place some, the others stand as they do to their cameras
    sure = [_heading(cameras[n]).T @ (one.place - cameras[n].center[:2]) for n, one in placed.items() if one.seen > 1]
    if len(sure) < ALIKE:
        return list(placed.values())
    usual = np.median(sure, axis=0)
    return [_placed(cameras[n], list(s.values()), _heading(cameras[n]) @ usual, ALIKE_SIGMA) for n, s in sights.items()]


def _claimed_once(sights: dict[str, dict[str, _Sight]]) -> dict[str, dict[str, _Sight]]:
    """Each column of a picture for one camera only: for that which more pictures give a stand, then for the nearest."""
    order = sorted(sights, key=lambda n: (-len(sights[n]), min((abs(s.beside) for s in sights[n].values()), default=0)))
    taken: list[tuple[str, float]] = []
    left: dict[str, dict[str, _Sight]] = {}
    for name in order:
        free = {
            other: sight
            for other, sight in sights[name].items()
            if all(o != other or abs(sight.azimuth - azimuth) > SAME for o, azimuth in taken)
        }
        taken += [(other, sight.azimuth) for other, sight in free.items()]
        if free:
            left[name] = free
    return left


def _ridges(view: Unrolled) -> tuple[np.ndarray, np.ndarray]:
    """(ridge float32 [R, C], above 0 where something upright is darker, below where brighter; its width, columns)."""
    inside = view.valid.astype(np.float32)
    share = cv2.boxFilter(inside, -1, (1, ROWS))
    total = cv2.boxFilter(view.picture.mean(axis=-1) * inside, -1, (1, ROWS))
    grey = total / np.maximum(share, 1e-3)
    good = cv2.erode((share > 0.5).astype(np.uint8), np.ones((1, 2 * ROWS + 1), np.uint8), borderValue=0) > 0
    ridge, width = np.zeros_like(grey), np.zeros_like(grey)
    for wide in WIDTHS:
        side = max(3.0, 0.6 * wide)
        apart = wide / 2 + GAP + side / 2
        middle, left, right = _band(grey, wide, 0.0), _band(grey, side, -apart), _band(grey, side, apart)
        uneven = np.sqrt(np.maximum(_band(grey * grey, wide, 0.0) - middle * middle, 0.0))
        darker, brighter = np.minimum(left, right) - middle, middle - np.maximum(left, right)
        strength = np.maximum(darker, brighter) - 0.5 * uneven
        better = good & (strength > np.abs(ridge))
        ridge[better] = np.where(darker >= brighter, strength, -strength)[better]
        width[better] = wide
    return ridge, width


def _band(values: np.ndarray, width: float, shift: float) -> np.ndarray:
    """Mean over `width` columns round each column + `shift`; the outermost columns go on for ever."""
    count = values.shape[1]
    padded = np.pad(values.astype(np.float64), ((0, 0), (REACH, REACH)), mode="edge")
    total = np.pad(np.cumsum(padded, axis=1), ((0, 0), (1, 0)))  # total[:, k] is the integral up to the edge k
    ends = []
    for end in (shift - width / 2, shift + width / 2):
        whole = int(np.floor(end + 0.5))
        part, first = end + 0.5 - whole, REACH + whole
        ends.append((1 - part) * total[:, first : first + count] + part * total[:, first + 1 : first + 1 + count])
    return ((ends[1] - ends[0]) / width).astype(np.float32)


def _sight(view: Unrolled, ridge: np.ndarray, width: np.ndarray, head: np.ndarray) -> _Sight | None:
    """The stand under the camera at `head` [3] in one picture; None where it does not stand out there."""
    center = view.camera.center
    away = head[:2] - center[:2]
    distance = float(np.linalg.norm(away))
    rows = np.nonzero(center[2] + distance * view.rises <= head[2])[0]  # below the camera
    if distance < BESIDE or len(rows) < MIN_ROWS:
        return None
    pitch, step = (float(abs(values[1] - values[0])) for values in (view.azimuths, view.rises))
    expected = view.column(float(np.arctan2(away[1], away[0])))
    reach = BESIDE / distance / pitch
    columns = np.arange(max(0, int(expected - reach)), min(len(view.azimuths), int(expected + reach) + 2))
    runs = {c: _run(ridge[rows, c], view.valid[rows, c], int(TOP_SLACK / (distance * step))) for c in columns}
    column = max(runs, key=lambda c: np.abs(ridge[rows, c][runs[c]]).sum(), default=None)
    if column is None:
        return None
    chosen = rows[runs[column]]
    metres = float(np.median(width[chosen, column])) * pitch * distance if len(chosen) else 0.0
    heights = center[2] + distance * view.rises[chosen]
    if len(chosen) < MIN_ROWS or heights[0] - heights[-1] < MIN_LENGTH or metres > MAX_WIDTH:
        return None
    near = np.arange(max(0, column - NEAR_COLUMNS), min(ridge.shape[1], column + NEAR_COLUMNS + 1))
    weight = np.abs(ridge[np.ix_(chosen, near)])
    at = (weight * near).sum(axis=1) / weight.sum(axis=1)
    if np.median(np.abs(ridge[chosen, column])) < CLEAR_CONTRAST or np.abs(at - np.median(at)).mean() > WANDER:
        return None
    beside = (float(np.median(at)) - expected) * pitch * distance
    left = np.array([-away[1], away[0]]) / distance
    azimuth = float(view.azimuths[0]) + float(np.median(at)) * pitch
    return _Sight(azimuth, beside, left, metres, heights, view.picture[chosen, column])


def _run(ridge: np.ndarray, valid: np.ndarray, slack: int) -> slice:
    """The rows of one column [R], from the top, along which a ridge of one sign goes on; empty where none begins."""
    usable = np.nonzero(valid)[0]
    if len(usable) == 0:
        return slice(0, 0)
    best = slice(0, 0)
    for sign in (1.0, -1.0):
        strong = np.nonzero(sign * ridge > CONTRAST)[0]
        if len(strong) == 0 or strong[0] - usable[0] > slack:
            continue
        breaks = np.nonzero(np.diff(strong) > SKIP)[0]
        end = strong[breaks[0]] if len(breaks) else strong[-1]
        if end + 1 - strong[0] > best.stop - best.start:
            best = slice(int(strong[0]), int(end) + 1)
    return best


def _placed(camera: Camera, sights: list[_Sight], usual: np.ndarray, sigma: float) -> Stand:
    """min over p of sum ((left_i . p - beside_i) / BEARING_SIGMA)^2 + |(p - usual) / sigma|^2, p from the camera."""
    rows = np.stack([sight.left for sight in sights]) / BEARING_SIGMA
    values = np.array([sight.beside for sight in sights]) / BEARING_SIGMA
    beside = np.linalg.solve(rows.T @ rows + np.eye(2) / sigma**2, rows.T @ values + usual / sigma**2)
    top, low = float(camera.center[2]), min(float(sight.heights[-1]) for sight in sights)
    levels = np.linspace(low, top, max(2, int((top - low) / COLOUR_STEP)))
    colours = [[np.interp(levels, sight.heights[::-1], part[::-1]) for part in sight.colours.T] for sight in sights]
    radius = float(np.median([sight.width for sight in sights])) / 2
    return Stand(camera.name, camera.center[:2] + beside, radius, low, top, len(sights), np.mean(colours, axis=0).T)


def _heading(camera: Camera) -> np.ndarray:
    """[2, 2], columns: level unit vectors ahead of the camera and to its left."""
    ahead = camera.cam_from_world[2, :2] / max(float(np.linalg.norm(camera.cam_from_world[2, :2])), 1e-9)
    return np.array([[ahead[0], -ahead[1]], [ahead[1], ahead[0]]])


def standing(stands: list[Stand], spacing: float) -> Points:
    """Points on the stands, about `spacing` metres apart."""
    parts = []
    for stand in stands:
        levels = np.linspace(stand.low, stand.high, max(2, int((stand.high - stand.low) / spacing)))
        around = 2 * np.pi * np.arange(ROUND) / ROUND
        circle = stand.place + stand.radius * np.stack([np.cos(around), np.sin(around)], axis=1)
        xyz = np.concatenate([np.c_[circle, np.full(ROUND, level)] for level in levels])
        at = np.linspace(stand.low, stand.high, len(stand.colours))
        rgb = np.stack([np.interp(xyz[:, 2], at, part) for part in stand.colours.T], axis=1)
        parts.append(
            Points(xyz, (255 * rgb).round().astype(np.uint8), np.full(len(xyz), stand.seen), np.zeros(len(xyz)))
        )
    return join_points(parts)


def with_stands(prior: DepthPrior, stands: list[Stand]) -> DepthPrior:
    """The prior with the stands that stand before what it holds; round them the depth is not known."""
    camera, inverse, weight = prior.camera, prior.inverse.copy(), prior.weight.copy()
    own = [stand for stand in stands if stand.camera != camera.name]
    for stand in own:
        levels = np.arange(stand.low, stand.high, 0.25 * stand.radius)
        axis = np.c_[np.tile(stand.place, (len(levels), 1)), levels]
        uv, depth = project(camera, axis)
        use = depth > 1e-3
        for (u, v), z in zip(uv[use], depth[use], strict=True):
            row, half = int(v), camera.fx * stand.radius / z
            first, last = int(np.floor(u - half)), int(np.floor(u + half))
            if not 0 <= row < camera.height or last < 0 or first >= camera.width:
                continue
            core = np.arange(max(0, first), min(camera.width, last + 1))
            core = core[prior.inverse[row, core] * (1 + IN_FRONT) < 1 / z]
            ring = np.arange(max(0, first - RING), min(camera.width, last + RING + 1))
            if len(core):
                weight[row, ring[inverse[row, ring] == prior.inverse[row, ring]]] = 0.0
                inverse[row, core], weight[row, core] = 1 / z, WEIGHTS["seen"]
    return DepthPrior(inverse, weight, camera)
