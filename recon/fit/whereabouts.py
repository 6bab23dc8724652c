"""Where a robot stands, from nothing: poses of its base are drawn, the best are bred, the winner is honed.

Poses are drawn either before one camera, in every direction and distance, or upright on a plane; each is worth what its
silhouettes explain of the changes between pictures (`changes.py`). A generation keeps the better half of its poses,
each replaced by the best of a few neighbours, ever nearer; distinct survivors are then honed by the cross-entropy
method: a normal distribution over (turn, shift), drawn again from its best fifth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recon.core.seeding import numpy_generator
from recon.fit.changes import Evidence, Sighting, pose_points
from recon.geometry.camera import Camera
from recon.geometry.pose import angle_between, invert_pose, se3_exp
from recon.geometry.quaternion import quat_to_matrix
from recon.robot.description import RobotModel

DRAWN = 60_000
KEPT = 500
GENERATIONS = ((0.2, 300), (0.12, 200), (0.1, 120), (0.07, 80), (0.05, 60))  # (spread, survivors)
BROOD = 10
MODES = 4  # distinct survivors that are honed
APART, APART_RAD = 0.15, np.radians(15.0)  # of the distance: what makes them distinct
COARSE, FINE = 40, 80  # cells along a picture's longer side
VIEWS = 4  # pictures per camera in the first search
ELEVATION = (-30.0, 80.0)  # degrees of a camera above a robot that stands upright
ROLL = 12.0  # degrees, one standard deviation
NEAREST, FARTHEST = 0.6, 5.0  # distance from the camera, in the robot's own radii
SHIFT = 0.4  # radians and shares of the distance are drawn alike up to this factor
ALL_FREE = np.ones(6)  # turn about x, y, z; shift along x, y, z, in the world
ON_PLANE = np.array([0.05, 0.05, 1.0, 1.0, 1.0, 0.3])
MOUNT_M = 0.15  # how far above the plane or below a base is looked for
ELITE = 5  # one in so many
SETTLE = 0.3  # of the old covariance that stays

Rng = np.random.Generator


@dataclass(frozen=True, eq=False)
class Whereabouts:
    """world_from_base [4, 4]; score: share of the changes it explains; second: that of the best pose elsewhere."""

    world_from_base: np.ndarray
    score: float
    second: float


@dataclass(frozen=True, eq=False)
class Body:
    """The robot's middle [3] and radius (m) over all its postures, in its base's frame."""

    middle: np.ndarray
    radius: float

    @staticmethod
    def around(points: np.ndarray) -> Body:
        """Of surface points [V, N, 3]."""
        every = points.reshape(-1, 3).astype(np.float64)
        middle = every.mean(axis=0)
        return Body(middle, float(np.linalg.norm(every - middle, axis=1).max()))


def find_whereabouts(
    model: RobotModel, sightings: Sequence[Sighting], plane: bool, seed: int = 0
) -> tuple[Whereabouts, Evidence]:
    """The base pose that explains best what changes in the pictures, and the evidence of all pictures.

    sightings: made `alike`. plane: the robot stands upright near z = 0 of the cameras' world; else it is looked for
    before the first picture's camera, first as if it stood upright there, then in any attitude.
    """
    points = pose_points(model, [s.q for s in sightings])
    body, chosen = Body.around(points), spread_views(sightings)
    coarse = Evidence([sightings[k] for k in chosen], points[chosen, ::2], COARSE)
    fine = Evidence(sightings, points, FINE)
    rng = numpy_generator(seed, 0, "whereabouts")
    if plane:
        return _searched(coarse, fine, draw_on_plane(coarse.cameras, body, rng), ON_PLANE, body, rng), fine
    found = None
    for upright in (True, False):
        drawn = draw_before(coarse.cameras[0], body, upright, DRAWN if upright else 3 * DRAWN, rng)
        other = _searched(coarse, fine, drawn, ALL_FREE, body, rng)
        found = other if found is None or other.score > 1.2 * found.score else found
        if found.score > 0.35:
            break
    assert found is not None
    return found, fine


def spread_views(sightings: Sequence[Sighting], per_camera: int = VIEWS) -> list[int]:
    """Indices of a few pictures per camera whose joint positions are far from each other's."""
    chosen: list[int] = []
    for name in dict.fromkeys(s.camera.name for s in sightings):
        own = [k for k, s in enumerate(sightings) if s.camera.name == name]
        q = np.array([list(sightings[k].q.values()) for k in own])
        picked = [int(np.linalg.norm(q - q.mean(axis=0), axis=1).argmax())]
        while len(picked) < min(per_camera, len(own)):
            gap = np.linalg.norm(q[:, None] - q[picked], axis=2).min(axis=1)
            picked.append(int(gap.argmax()))
        chosen += [own[k] for k in sorted(set(picked))]
    return chosen


def draw_before(camera: Camera, body: Body, upright: bool, count: int, rng: Rng) -> np.ndarray:
    """[count, 4, 4] world_from_base: the robot's middle anywhere in the picture or a little outside, at any distance.

    upright: the camera looks at it from the side or from above, held level within some degrees.
    """
    ray = np.stack([
        (rng.uniform(-0.1, 1.1, count) * camera.width - camera.cx) / camera.fx,
        (rng.uniform(-0.1, 1.1, count) * camera.height - camera.cy) / camera.fy,
        np.ones(count),
    ], axis=1)  # fmt: skip
    ray /= np.linalg.norm(ray, axis=1, keepdims=True)
    distance = body.radius * np.exp(rng.uniform(np.log(NEAREST), np.log(FARTHEST), count))
    if upright:
        azimuth, elevation = rng.uniform(0, 2 * np.pi, count), np.radians(rng.uniform(*ELEVATION, count))
        roll = np.radians(rng.normal(0, ROLL, count))
        forward = -np.stack([np.cos(azimuth) * np.cos(elevation), np.sin(azimuth) * np.cos(elevation),
                             np.sin(elevation)], axis=1)  # fmt: skip
        right = np.stack([-np.sin(azimuth), np.cos(azimuth), np.zeros(count)], axis=1)
        level = np.stack([right, np.cross(forward, right), forward], axis=1)
        # turned so that what was straight ahead lies on the ray
        across = np.cross([0.0, 0.0, 1.0], ray)
        lean = np.arccos(np.clip(ray[:, 2], -1.0, 1.0)) / np.maximum(np.linalg.norm(across, axis=1), 1e-12)
        rotation = turns(across * lean[:, None]) @ turns(roll[:, None] * [0.0, 0.0, 1.0]) @ level
    else:
        rotation = quat_to_matrix(rng.normal(size=(count, 4)))
    poses = np.tile(np.eye(4), (count, 1, 1))
    poses[:, :3, :3] = rotation
    poses[:, :3, 3] = ray * distance[:, None] - rotation @ body.middle
    return invert_pose(camera.cam_from_world) @ poses


def draw_on_plane(cameras: Sequence[Camera], body: Body, rng: Rng) -> np.ndarray:
    """[DRAWN, 4, 4] world_from_base: upright near z = 0, where the cameras stand or look."""
    ground = []
    for camera in cameras:
        forward = camera.cam_from_world[2, :3]
        ahead = -camera.center[2] / forward[2] if abs(forward[2]) > 0.05 else FARTHEST
        ground += [camera.center, camera.center + forward * np.clip(ahead, 0.0, FARTHEST)]
    low, high = np.min(ground, axis=0)[:2] - body.radius, np.max(ground, axis=0)[:2] + body.radius
    poses = np.tile(np.eye(4), (DRAWN, 1, 1))
    poses[:, :3, :3] = turns(rng.uniform(-np.pi, np.pi, DRAWN)[:, None] * [0.0, 0.0, 1.0])
    poses[:, :2, 3] = rng.uniform(low, high, (DRAWN, 2))
    poses[:, 2, 3] = rng.uniform(-MOUNT_M, MOUNT_M, DRAWN)
    return poses


def _searched(
    coarse: Evidence, fine: Evidence, drawn: np.ndarray, free: np.ndarray, body: Body, rng: Rng
) -> Whereabouts:
    """The best pose, bred from those that were drawn."""
    scores = coarse.score(drawn)
    best = np.argsort(-scores)[:KEPT]
    poses, scores = drawn[best], scores[best]
    for spread, survivors in GENERATIONS:
        poses, scores = _bred(coarse, poses, scores, spread * free, body, rng)
        best = np.argsort(-scores)[:survivors]
        poses, scores = poses[best], scores[best]
    honed = []
    for pose in _distinct(poses, coarse.cameras, body)[:MODES]:
        rough, _ = hone(coarse, pose, 0.05 * free, body, rng, rounds=12)
        honed.append(hone(fine, rough, 0.03 * free, body, rng, rounds=8))
    honed.sort(key=lambda pair: -pair[1])
    pose, score = hone(fine, honed[0][0], 0.03 * free, body, rng, rounds=20)
    others = [other for place, other in honed[1:] if _far(place, pose, coarse.cameras, body)]
    return Whereabouts(pose, score, max(others, default=0.0))


def _bred(
    evidence: Evidence, poses: np.ndarray, scores: np.ndarray, spread: np.ndarray, body: Body, rng: Rng
) -> tuple[np.ndarray, np.ndarray]:
    """Each pose, or the best of its neighbours where that is better."""
    steps = rng.normal(size=(len(poses) * BROOD, 6)) * spread
    young = stepped(np.repeat(poses, BROOD, axis=0), steps, evidence.cameras, body)
    worth = evidence.score(young).reshape(-1, BROOD)
    best, pick = worth.argmax(axis=1), np.arange(len(poses))
    better = worth[pick, best] > scores
    poses = np.where(better[:, None, None], young.reshape(-1, BROOD, 4, 4)[pick, best], poses)
    return poses, np.maximum(scores, worth[pick, best])


def hone(
    evidence: Evidence, pose: np.ndarray, spread: np.ndarray, body: Body, rng: Rng, rounds: int, count: int = 150
) -> tuple[np.ndarray, float]:
    """(the best pose found near `pose`, its score) by the cross-entropy method; spread: [6] to begin with."""
    mean, covariance = np.zeros(6), np.diag(spread**2)
    best, score = pose, float(evidence.score(pose[None])[0])
    for _ in range(rounds):
        steps = rng.multivariate_normal(mean, covariance + 1e-12 * np.eye(6), count, method="cholesky")
        drawn = stepped(np.repeat(pose[None], count, axis=0), steps, evidence.cameras, body)
        worth = evidence.score(drawn)
        elite = steps[np.argsort(-worth)[: count // ELITE]]
        mean = elite.mean(axis=0)
        covariance = (1 - SETTLE) * np.cov(elite.T, bias=True) + SETTLE * covariance
        if worth.max() > score:
            best, score = drawn[int(worth.argmax())], float(worth.max())
    return best, score


def stepped(poses: np.ndarray, steps: np.ndarray, cameras: Sequence[Camera], body: Body) -> np.ndarray:
    """Poses [B, 4, 4] turned by steps [B, :3] about the robot's middle, which moves by [B, 3:] of its distance."""
    middle = poses[:, :3, :3] @ body.middle + poses[:, :3, 3]
    moved = poses.copy()
    moved[:, :3, :3] = turns(steps[:, :3]) @ poses[:, :3, :3]
    place = middle + SHIFT * steps[:, 3:] * _distance(middle, cameras)[:, None]
    moved[:, :3, 3] = place - moved[:, :3, :3] @ body.middle
    return moved


def turns(vectors: np.ndarray) -> np.ndarray:
    """Rotations [N, 3, 3] about vectors [N, 3] by their lengths."""
    return se3_exp(np.concatenate([np.zeros_like(vectors), vectors], axis=1))[:, :3, :3]


def _distance(middle: np.ndarray, cameras: Sequence[Camera]) -> np.ndarray:
    """[B] metres from places [B, 3] to the nearest camera."""
    centres = np.stack([camera.center for camera in cameras])
    found: np.ndarray = np.linalg.norm(middle[:, None] - centres, axis=2).min(axis=1)
    return found


def _far(a: np.ndarray, b: np.ndarray, cameras: Sequence[Camera], body: Body) -> bool:
    one, two = (pose[:3, :3] @ body.middle + pose[:3, 3] for pose in (a, b))
    apart = np.linalg.norm(one - two) > APART * _distance(two[None], cameras)[0]
    return bool(apart) or angle_between(a[:3, :3], b[:3, :3]) > APART_RAD


def _distinct(poses: np.ndarray, cameras: Sequence[Camera], body: Body) -> list[np.ndarray]:
    """Poses, best first, without those that are near a better one."""
    kept: list[np.ndarray] = []
    for pose in poses:
        if all(_far(pose, other, cameras, body) for other in kept):
            kept.append(pose)
    return kept
