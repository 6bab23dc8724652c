"""Whether a calibration speaks of these pictures in the conventions it was read with.

Features are matched between pictures without believing any pose. A rig that is right puts most matches near each
other's epipolar line, and in front of both cameras. Poses that lead the wrong way, OpenGL axes and left-handed axes are
other rigs, each tried the same way: with the camera axes flipped by D = diag(+-1, +-1, +-1) and T = cam_from_world or its
inverse, the pose between two cameras is D T_b T_a^-1 D. For rays a, b = R a + t / depth and E = [t]_x R:
    distance = |b.E a| / sqrt((E a)_x^2 + (E a)_y^2 + (E^T b)_x^2 + (E^T b)_y^2)        (Sampson, focal lengths)
    depth_a = -(b x R a).(b x t) / |b x R a|^2,   depth_b = (R a x b).(R a x t) / |b x R a|^2
The sign of D is seen by the depths only, so they count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, product

import cv2
import numpy as np

from recon.calibrate.matches import find_features, match_freely
from recon.calibrate.neighbours import neighbours
from recon.geometry.camera import Camera, unproject
from recon.geometry.pose import invert_pose

LONG_SIDE = 800  # pictures are made at most this wide or high
FEATURES = 1500
ALL_PAIRS = 8  # cameras up to which every pair is matched
NEIGHBOURS = 4  # of each of more cameras, by their centres as written and as inverted
THRESHOLD = 0.004  # of the longer side: an inlier's distance
MIN_PARALLAX = 0.5  # degrees below which depths say nothing
MIN_MATCHES = 40
MIN_INLIERS = 25
CLEARLY = 3.0  # times as many inliers as the rig as written
GOOD_SHARE = 0.5  # a rig with this share of inliers is right whatever else is possible


@dataclass(frozen=True)
class Convention:
    """One way in which written poses may be meant. flip: signs of x, y, z; inverse: they lead to the world."""

    flip: tuple[int, int, int]
    inverse: bool

    @property
    def words(self) -> str:
        """What the poses then are."""
        way = "world_from_camera" if self.inverse else "camera_from_world"
        if self.flip == (1, 1, 1):
            return f"{way} poses"
        if self.flip == (1, -1, -1):
            return f"{way} poses in OpenGL camera axes (y up, -z forward)"
        if np.prod(self.flip) < 0:
            return f"mirrored, left-handed {way} poses"
        return f"{way} poses of cameras turned by 180 degrees"

    def meant(self, pose: np.ndarray) -> np.ndarray:
        """The cam_from_world [4, 4] that `pose`, read as cam_from_world, was meant to be; mirrored if the flip is."""
        return np.diag([*self.flip, 1.0]) @ (invert_pose(pose) if self.inverse else pose)


AS_WRITTEN = Convention((1, 1, 1), False)
CONVENTIONS = [Convention(flip, inverse) for inverse in (False, True) for flip in product((1, -1), repeat=3)]


@dataclass(frozen=True)
class Agreement:
    """How a rig agrees with pictures. inliers: of `matches`, by convention. error: median distance [px] as written."""

    matches: int
    inliers: Mapping[Convention, int]
    error: float

    def share(self, convention: Convention) -> float:
        """Inliers over matches; NaN without any."""
        return self.inliers[convention] / self.matches if self.matches else float("nan")

    @property
    def best(self) -> Convention:
        """The convention with most inliers; as written when others are no better."""
        return max(self.inliers, key=lambda c: (self.inliers[c], c == AS_WRITTEN))

    @property
    def verdict(self) -> Convention | None:
        """A convention that is clearly the right one instead; None when the rig is right or nothing can be said."""
        given, best = self.inliers[AS_WRITTEN], self.inliers[self.best]
        enough = self.matches >= MIN_MATCHES and best >= MIN_INLIERS
        clear = best >= CLEARLY * max(given, 1) and self.share(AS_WRITTEN) < GOOD_SHARE
        return self.best if enough and clear else None


@dataclass(frozen=True)
class _Pair:
    """Rays [M, 3] of matches in two cameras, the focal length and threshold [px] that distances are measured by."""

    first: Camera
    second: Camera
    a: np.ndarray
    b: np.ndarray
    focal: float
    limit: float


def agreement(cameras: Mapping[str, Camera], pictures: Mapping[str, np.ndarray]) -> Agreement:
    """Match the pictures (uint8 [H, W, 3], as recorded, one per camera) and count inliers under every convention.

    Deterministic; a few seconds for eight cameras.
    """
    pairs = _matched(cameras, pictures)
    total = sum(len(pair.a) for pair in pairs)
    inliers = {convention: sum(int(_good(pair, convention).sum()) for pair in pairs) for convention in CONVENTIONS}
    errors = [_distance(pair, _between(pair, AS_WRITTEN)) for pair in pairs]
    near = [error[error < pair.limit] for error, pair in zip(errors, pairs, strict=True)]
    together = np.concatenate(near) if near else np.empty(0)
    return Agreement(total, inliers, float(np.median(together)) if len(together) else float("nan"))


def _matched(cameras: Mapping[str, Camera], pictures: Mapping[str, np.ndarray]) -> list[_Pair]:
    names = list(cameras)
    features, scales = {}, {}
    for name in names:
        camera = cameras[name]
        scale = min(1.0, LONG_SIDE / max(camera.width, camera.height))
        size = max(1, round(camera.width * scale)), max(1, round(camera.height * scale))
        small = cv2.resize(pictures[name], size, interpolation=cv2.INTER_AREA) if scale < 1 else pictures[name]
        features[name] = find_features(small, limit=FEATURES)
        scales[name] = np.array([camera.width / size[0], camera.height / size[1]])
    pairs = []
    for one, two in _pairs(cameras):
        found = match_freely(features[one], features[two])
        a = unproject(cameras[one], features[one].uv[found[:, 0]] * scales[one])
        b = unproject(cameras[two], features[two].uv[found[:, 1]] * scales[two])
        seen = np.isfinite(a).all(1) & np.isfinite(b).all(1)
        first, second = cameras[one], cameras[two]
        limit = THRESHOLD * max(first.width, first.height, second.width, second.height)
        focal = (first.fx + first.fy + second.fx + second.fy) / 4.0
        pairs.append(_Pair(first, second, a[seen], b[seen], focal, limit))
    return pairs


def _pairs(cameras: Mapping[str, Camera]) -> list[tuple[str, str]]:
    """Which cameras to match: all, or each with those that stand near it under either direction of the poses."""
    names = list(cameras)
    if len(names) <= ALL_PAIRS:
        return list(combinations(names, 2))
    turned = {name: camera.with_pose(invert_pose(camera.cam_from_world)) for name, camera in cameras.items()}
    chosen = set()
    for rig in (cameras, turned):
        for name, others in neighbours(rig, NEIGHBOURS, max_angle=180.1).items():
            chosen |= {tuple(sorted((name, other), key=names.index)) for other in others}
    return sorted(chosen, key=lambda pair: (names.index(pair[0]), names.index(pair[1])))  # type: ignore[arg-type,return-value]


def _between(pair: _Pair, convention: Convention) -> np.ndarray:
    """b_from_a [4, 4] as the convention means it."""
    a, b = (convention.meant(camera.cam_from_world) for camera in (pair.first, pair.second))
    return b @ np.linalg.inv(a)


def _distance(pair: _Pair, b_from_a: np.ndarray) -> np.ndarray:
    """[M] Sampson distance in pixels."""
    x, y, z = b_from_a[:3, 3]
    essential = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]]) @ b_from_a[:3, :3]
    line_b, line_a = pair.a @ essential.T, pair.b @ essential
    slope = np.sqrt((line_b[:, :2] ** 2).sum(1) + (line_a[:, :2] ** 2).sum(1))
    return np.asarray(pair.focal * np.abs((pair.b * line_b).sum(1)) / np.maximum(slope, 1e-12))


def _good(pair: _Pair, convention: Convention) -> np.ndarray:
    """[M] bool: near the epipolar line and in front of both cameras."""
    b_from_a = _between(pair, convention)
    turned = pair.a @ b_from_a[:3, :3].T
    normal = np.cross(pair.b, turned)
    t = np.broadcast_to(b_from_a[:3, 3], turned.shape)
    depth_a = -(normal * np.cross(pair.b, t)).sum(1)
    depth_b = -(normal * np.cross(turned, t)).sum(1)
    sine = np.linalg.norm(normal, axis=1) / (np.linalg.norm(turned, axis=1) * np.linalg.norm(pair.b, axis=1))
    ahead = ((depth_a > 0) & (depth_b > 0)) | (sine < np.sin(np.radians(MIN_PARALLAX)))
    return np.asarray(ahead & (_distance(pair, b_from_a) < pair.limit))
