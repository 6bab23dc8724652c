"""What changes between pictures of one camera while a robot moves, and how well a pose of the robot explains it.

In a pair of pictures i, j of one camera a cell of the picture has changed by c in [0, 1]. With M_i, M_j the cells that
a posed robot covers, the cell changes with the probability

    P_none = 0.05  outside both,    P_one = 0.7  in one of them,    P_both = 0.4  in both

(inside both the robot may look alike). Relative to no robot at all a pose is thus worth, summed over pairs and cells,

    w(p) = c log(p / P_none) + (1 - c) log((1 - p) / (1 - P_none)),    p = P_one or P_both,

which is linear in M_i, M_j and their product. No picture of the empty scene is needed, and a part that never moved
counts for little. Scores are given as a share of what would explain every change and claim none beside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np

from recon.geometry.camera import Camera
from recon.robot.description import RobotModel
from recon.robot.surface import sample_surface

P_NONE, P_ONE, P_BOTH = 0.05, 0.7, 0.4
CHANGED = 0.12  # sRGB: a change that is surely one
NOISE = 8.0  # medians of what differs in still places: as much again
POINTS = 800  # on the robot's surface: enough to fill the cells
NEAR_M = 0.05
CHUNK = 256  # poses at once
ROUNDS = 20  # of reweighting

Floats = np.ndarray


@dataclass(frozen=True, eq=False)
class Sighting:
    """A picture with the robot in it.

    camera: an ideal one; pictures whose cameras share a name were taken from one place. q: joint positions.
    picture: float32 [H, W, 3] in [0, 1].
    """

    camera: Camera
    q: Mapping[str, float]
    picture: np.ndarray


def alike(sightings: Sequence[Sighting]) -> list[Sighting]:
    """The same with the light of each camera's pictures made alike.

    Per channel, a picture I becomes I (a + b x + c y) + d, fitted to the median of the camera's pictures; Cauchy's
    weights leave out what moved.
    """
    found = list(sightings)
    for name in {sighting.camera.name for sighting in sightings}:
        own = [k for k, sighting in enumerate(sightings) if sighting.camera.name == name]
        middle = np.median(np.stack([sightings[k].picture for k in own]), axis=0).astype(np.float32)
        for k in own:
            found[k] = replace(sightings[k], picture=_matched(sightings[k].picture, middle))
    return found


def _matched(picture: np.ndarray, target: np.ndarray) -> np.ndarray:
    height, width = picture.shape[:2]
    y, x = np.mgrid[:height, :width].astype(np.float32)
    x, y = x / width - 0.5, y / height - 0.5
    step = max(1, min(height, width) // 120)
    thin = (slice(None, None, step), slice(None, None, step))
    found = np.empty_like(picture)
    for c in range(3):
        a, b = picture[thin][..., c].ravel(), target[thin][..., c].ravel()
        basis = np.stack([a, a * x[thin].ravel(), a * y[thin].ravel(), np.ones_like(a)], axis=1).astype(np.float64)
        weight, p = np.ones(len(a)), np.array([1.0, 0.0, 0.0, 0.0])
        for _ in range(ROUNDS):
            weighted = basis * weight[:, None]
            p = np.linalg.solve(weighted.T @ basis + 1e-6 * np.eye(4), weighted.T @ b)
            off = b - basis @ p
            scale = 2.0 * (1.4826 * float(np.median(np.abs(off))) + 0.003)
            weight = (1.0 + (off / scale) ** 2) ** -2
        found[..., c] = picture[..., c] * (p[0] + p[1] * x + p[2] * y) + p[3]
    return found


def change(a: np.ndarray, b: np.ndarray, width: int, height: int) -> np.ndarray:
    """float32 [height, width] in [0, 1]: how much each cell has changed between two pictures [H, W, 3]."""
    difference = np.abs(a - b).max(axis=-1)
    sure = max(CHANGED, NOISE * float(np.median(difference)))
    return cv2.resize(np.clip(difference / sure, 0.0, 1.0), (width, height), interpolation=cv2.INTER_AREA)


def pose_points(model: RobotModel, qs: Sequence[Mapping[str, float]], count: int = POINTS) -> np.ndarray:
    """float32 [V, N, 3]: points of the robot's surface in its base's frame at each of `qs`."""
    surface = sample_surface(model, count)
    posed = []
    for q in qs:
        poses = model.link_poses(q, np.eye(4))
        posed.append(
            np.concatenate([s.points @ poses[name][:3, :3].T + poses[name][:3, 3] for name, s in surface.items()])
        )
    return np.stack(posed).astype(np.float32)


class Evidence:
    """Scores of base poses against the changes in pictures, at one resolution.

    cameras: of the V pictures, scaled to cells. xor, both: float32 [V, V, cells], 0 for pictures of other cameras.
    """

    def __init__(self, sightings: Sequence[Sighting], points: np.ndarray, across: int) -> None:
        """points: [V, N, 3] from `pose_points`. across: cells along a picture's longer side."""
        self.points = points
        self.cameras = [s.camera.scaled(across / max(s.camera.width, s.camera.height)) for s in sightings]
        self.cells = max(camera.width * camera.height for camera in self.cameras)
        count = len(sightings)
        self.xor, self.both = np.zeros((2, count, count, self.cells), np.float32)
        self.pairs = [
            (i, j) for i in range(count) for j in range(i) if sightings[i].camera.name == sightings[j].camera.name
        ]  # fmt: skip
        for i, j in self.pairs:
            small = self.cameras[i]
            c = change(sightings[i].picture, sightings[j].picture, small.width, small.height).ravel()
            for weights, p in ((self.xor, P_ONE), (self.both, P_BOTH)):
                worth = c * np.log(p / P_NONE) + (1.0 - c) * np.log((1.0 - p) / (1.0 - P_NONE))
                weights[i, j, : c.size] = weights[j, i, : c.size] = worth
        best = sum(float(np.maximum(self.xor[i, j], self.both[i, j]).clip(0.0).sum()) for i, j in self.pairs)
        self.whole = max(best, 1e-6)

    def shown(self, view: int, points: np.ndarray, world_from_base: np.ndarray) -> np.ndarray:
        """float32 [B, cells] of 0 and 1: the cells that points cover in a view.

        points: [N, 3] or [B, N, 3] in the base's frame. world_from_base: [B, 4, 4] or [4, 4].
        """
        camera = self.cameras[view]
        cam_from_base = (camera.cam_from_world @ world_from_base).astype(np.float32)
        K = camera.K.astype(np.float32)
        rotation, shift = K @ cam_from_base[..., :3, :3], (K @ cam_from_base[..., :3, 3:])
        at = rotation @ np.swapaxes(points, -1, -2) + shift  # [B, 3, N]
        z = np.maximum(at[:, 2], NEAR_M)
        u, v = at[:, 0] / z, at[:, 1] / z
        inside = (at[:, 2] > NEAR_M) & (u >= 0) & (u < camera.width) & (v >= 0) & (v < camera.height)
        row = np.broadcast_to(np.arange(len(at))[:, None], inside.shape)[inside]
        covered = np.zeros((len(at), self.cells), np.float32)
        covered[row, v[inside].astype(np.int32) * camera.width + u[inside].astype(np.int32)] = 1.0
        return covered

    def score(self, world_from_base: np.ndarray) -> np.ndarray:
        """[B] of poses [B, 4, 4]: 1 where every change is explained and nothing else claimed, 0 as without a robot."""
        found = np.empty(len(world_from_base))
        for start in range(0, len(world_from_base), CHUNK):
            poses = world_from_base[start : start + CHUNK]
            masks = [self.shown(v, self.points[v], poses) for v in range(len(self.cameras))]
            total = sum((mask @ self.xor[v].sum(axis=0) for v, mask in enumerate(masks)), np.zeros(len(poses)))
            for i, j in self.pairs:  # A xor B = A + B - 2 A B
                total += (masks[i] * masks[j]) @ (self.both[i, j] - 2.0 * self.xor[i, j])
            found[start : start + CHUNK] = total / self.whole
        return found

    def against(self, view: int, mask: np.ndarray, others: np.ndarray) -> np.ndarray:
        """[B]: what masks [B, cells] of one view are worth beside the masks [V, cells] of all."""
        total = np.zeros(len(mask))
        for i, j in self.pairs:
            if view in (i, j):
                other = others[j if view == i else i]
                both = mask * other
                total += (mask + other - 2.0 * both) @ self.xor[i, j] + both @ self.both[i, j]
        return total / self.whole

    def with_points(self, points: np.ndarray) -> Evidence:
        """The same pictures with the robot posed otherwise."""
        other = object.__new__(Evidence)
        other.__dict__.update(self.__dict__, points=points)
        return other
