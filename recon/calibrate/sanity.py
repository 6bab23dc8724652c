"""Whether a calibration speaks of these pictures in the conventions it was read with.

Features are matched between pictures without believing any pose. A rig that is right puts most matches near each
other's epipolar line, and in front of both cameras. Poses that lead the wrong way, OpenGL axes and left-handed axes are
other rigs, each tried the same way: with the camera axes flipped by D = diag(+-1, +-1, +-1) and T = cam_from_world or
its inverse, the pose between two cameras is D T_b T_a^-1 D. For rays a, b = R a + t / depth and E = [t]_x R:
    distance = |b.E a| / sqrt((E a)_x^2 + (E a)_y^2 + (E^T b)_x^2 + (E^T b)_y^2)        (Sampson, focal lengths)
    depth_a = -(b x R a).(b x t) / |b x R a|^2,   depth_b = (R a x b).(R a x t) / |b x R a|^2
The sign of D is seen by the depths only, so they count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import cv2
import numpy as np

from recon.calibrate.conventions import AS_WRITTEN, BY_NAME, CONVENTIONS, Convention
from recon.calibrate.matches import find_features, match_freely
from recon.calibrate.neighbours import neighbours
from recon.core.errors import CalibrationError
from recon.geometry.camera import Camera, unproject
from recon.geometry.pose import invert_pose

LONG_SIDE = 800  # pictures are made at most this wide or high
FEATURES = 1500
ALL_PAIRS = 8  # cameras up to which every pair is matched
NEIGHBOURS = 4  # of each of more cameras, by their centres as written and as inverted
THRESHOLD = 0.004  # of the longer side: an inlier's distance, at first
FINER, FINEST = 3.0, 0.125  # then in medians of what the best convention leaves, and at least this share of the first
MIN_PARALLAX = 0.5  # degrees below which depths say nothing
TOGETHER = 1e-4  # of the cameras' distances from the world's origin: closer centres are one place
MIN_MATCHES = 40
MIN_INLIERS = 25
CLEARLY = 3.0  # times as many inliers as the rig as written
ALONE = 1.5  # times as many as any third convention: when several fit alike, matches between lookalikes deceive
SAME_PLACE = 0.01  # of the longer side: a match this near in both pictures is an overlay, or symmetry of room and rig
GOOD_SHARE = 0.5  # a rig with this share of inliers is right whatever else is possible
FARTHEST, NEAREST = 200.0, 0.01  # metres between the two cameras farthest apart: beyond, the unit is another one


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
    def sure(self) -> bool:
        """Whether there are enough matches to say anything."""
        return self.matches >= MIN_MATCHES and self.inliers[self.best] >= MIN_INLIERS

    @property
    def verdict(self) -> Convention | None:
        """A convention that is clearly the right one instead; None when the rig is right or nothing can be said."""
        given, best = self.inliers[AS_WRITTEN], self.inliers[self.best]
        third = max(count for c, count in self.inliers.items() if c not in (self.best, AS_WRITTEN))
        clear = best >= max(CLEARLY * given, ALONE * third) and self.share(AS_WRITTEN) < GOOD_SHARE
        return self.best if self.sure and clear else None


def refuse_if_contradicted(found: Agreement, where: str) -> None:
    """Raise CalibrationError when the pictures clearly speak for another convention than the poses in `where` have."""
    verdict = found.verdict
    if verdict is None:
        return
    option = next((name for name, convention in BY_NAME.items() if convention == verdict), None)
    if option is not None:
        fix = f"If so, pass --rig-poses {option}; --rig-poses as-written builds from them as they are."
    elif verdict.mirrored:
        fix = "Export them again with right-handed axes; --rig-poses as-written builds from them as they are."
    else:
        fix = "Check that pictures and calibration have the same rotation; --rig-poses as-written builds nevertheless."
    raise CalibrationError(
        f"the poses in {where} look like {verdict.words}",
        why=f"of {found.matches} matches between the pictures, {found.inliers[verdict]} fit them then, "
        f"and {found.inliers[AS_WRITTEN]} as they were read",
        fix=fix,
    )


def scale_warning(cameras: Mapping[str, Camera], where: str) -> str | None:
    """What to tell of a rig whose extent in metres no bench has; None for one that may be in metres."""
    centres = np.stack([camera.center for camera in cameras.values()])
    extent = float(np.linalg.norm(centres[:, None] - centres[None], axis=-1).max())
    if NEAREST <= extent <= FARTHEST or extent == 0.0:
        return None
    guess = "mm (--rig-unit mm)" if extent > FARTHEST else "km, or a world scaled to fit"
    return (
        f"the cameras in {where} are {extent:.4g} m apart if its unit is the metre: it may be {guess}. "
        "Pass --rig-unit mm, cm, m or the metres of one unit, such as the side of a checkerboard's square"
    )


@dataclass(frozen=True)
class Pair:
    """Rays a, b [M, 3] of matches in two cameras; the focal length and limit [px] that distances are measured by."""

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
    return agreed(matched(cameras, pictures))


def agreed(pairs: list[Pair]) -> Agreement:
    """Count the inliers of matches under every convention of their cameras' poses."""
    total = sum(len(pair.a) for pair in pairs)
    inliers = {convention: _inliers(pairs, convention) for convention in CONVENTIONS}
    # Cameras on one level nearly fit other conventions too: they are told apart at the scale of the best one's errors.
    best = max(CONVENTIONS, key=lambda convention: len(inliers[convention]))
    scale = float(np.clip(FINER * _median(inliers[best]), FINEST, 1.0)) if len(inliers[best]) else 1.0
    counts = {convention: int((errors < scale).sum()) for convention, errors in inliers.items()}
    limits = [pair.limit for pair in pairs]
    return Agreement(total, counts, _median(inliers[AS_WRITTEN]) * float(np.median(limits)) if limits else float("nan"))


def _inliers(pairs: list[Pair], convention: Convention) -> np.ndarray:
    """[K] distances, in limits of their pairs, of the matches of all pairs that fit the convention."""
    found = [np.empty(0)]
    for pair in pairs:
        b_from_a = _between(pair, convention)
        distance = _distance(pair, b_from_a) / pair.limit
        found.append(distance[(distance < 1.0) & _ahead(pair, b_from_a)])
    return np.concatenate(found)


def _median(values: np.ndarray) -> float:
    return float(np.median(values)) if len(values) else float("nan")


def matched(cameras: Mapping[str, Camera], pictures: Mapping[str, np.ndarray]) -> list[Pair]:
    """Matches between the pictures of all cameras, or of those that stand near each other when there are many."""
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
        uv_a, uv_b = features[one].uv[found[:, 0]] * scales[one], features[two].uv[found[:, 1]] * scales[two]
        first, second = cameras[one], cameras[two]
        longer = max(first.width, first.height, second.width, second.height)
        a, b = unproject(first, uv_a), unproject(second, uv_b)
        seen = np.isfinite(a).all(1) & np.isfinite(b).all(1)
        seen &= np.linalg.norm(uv_a - uv_b, axis=1) > SAME_PLACE * longer
        limit = THRESHOLD * longer
        focal = (first.fx + first.fy + second.fx + second.fy) / 4.0
        pairs.append(Pair(first, second, a[seen], b[seen], focal, limit))
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
    return sorted(chosen, key=lambda pair: (names.index(pair[0]), names.index(pair[1])))  # type: ignore[arg-type]


def _between(pair: Pair, convention: Convention) -> np.ndarray:
    """b_from_a [4, 4] as the convention means it."""
    a, b = (convention.meant(camera.cam_from_world) for camera in (pair.first, pair.second))
    return b @ np.linalg.inv(a)


def _distance(pair: Pair, b_from_a: np.ndarray) -> np.ndarray:
    """[M] Sampson distance in pixels; without a baseline, the distance from where a rotation takes the match."""
    x, y, z = b_from_a[:3, 3]
    reach = sum(float(np.linalg.norm(camera.cam_from_world[:3, 3])) for camera in (pair.first, pair.second))
    if np.linalg.norm(b_from_a[:3, 3]) <= TOGETHER * reach:  # E = 0 would fit everything
        turned = pair.a @ b_from_a[:3, :3].T
        moved = turned[:, :2] / np.maximum(turned[:, 2:], 1e-12) - pair.b[:, :2] / pair.b[:, 2:]
        return np.asarray(pair.focal * np.linalg.norm(moved, axis=1))
    essential = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]]) @ b_from_a[:3, :3]
    line_b, line_a = pair.a @ essential.T, pair.b @ essential
    slope = np.sqrt((line_b[:, :2] ** 2).sum(1) + (line_a[:, :2] ** 2).sum(1))
    return np.asarray(pair.focal * np.abs((pair.b * line_b).sum(1)) / np.maximum(slope, 1e-12))


def _ahead(pair: Pair, b_from_a: np.ndarray) -> np.ndarray:
    """[M] bool: in front of both cameras, or too far away to tell."""
    turned = pair.a @ b_from_a[:3, :3].T
    normal = np.cross(pair.b, turned)
    t = np.broadcast_to(b_from_a[:3, 3], turned.shape)
    depth_a = -(normal * np.cross(pair.b, t)).sum(1)
    depth_b = -(normal * np.cross(turned, t)).sum(1)
    sine = np.linalg.norm(normal, axis=1) / (np.linalg.norm(turned, axis=1) * np.linalg.norm(pair.b, axis=1))
    return np.asarray(((depth_a > 0) & (depth_b > 0)) | (sine < np.sin(np.radians(MIN_PARALLAX))))
