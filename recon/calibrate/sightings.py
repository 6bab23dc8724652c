"""What the cameras of a rig saw of a board, where they would see it, and how that changes with every unknown.

Unknowns are the lens (fx fy cx cy k1 k2 p1 p2 k3) and pose of each camera, and the pose of the board at each instant.
A pose T changes by a twist (rho, phi) on its left, T <- exp(twist) T. With x_w = T_b X, x_c = T_c x_w:
    d x_c / d twist_c = [I, -[x_c]x],     d x_c / d twist_b = R_c [I, -[x_w]x]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recon.geometry.pose import se3_exp

LENS = 9  # fx fy cx cy k1 k2 p1 p2 k3
POSE = 6
CAMERA = LENS + POSE


@dataclass(frozen=True, eq=False)
class Sightings:
    """Corners seen: camera, instant, corner [N] int64; point [N, 3] metres on the board; uv [N, 2] pixels.

    Sorted by camera, then instant.
    """

    camera: np.ndarray
    instant: np.ndarray
    corner: np.ndarray
    point: np.ndarray
    uv: np.ndarray

    def __len__(self) -> int:
        return len(self.camera)

    def select(self, chosen: np.ndarray) -> Sightings:
        """Those that the bool or index array picks."""
        return Sightings(*(a[chosen] for a in (self.camera, self.instant, self.corner, self.point, self.uv)))

    def views(self) -> list[slice]:
        """Runs of rows of one camera at one instant."""
        if len(self) == 0:
            return []
        new = (np.diff(self.camera) != 0) | (np.diff(self.instant) != 0)
        edges = np.r_[0, np.flatnonzero(new) + 1, len(self)]
        return [slice(int(a), int(b)) for a, b in zip(edges[:-1], edges[1:], strict=True)]


@dataclass(frozen=True, eq=False)
class State:
    """lens [C, 9]; cam_from_world [C, 4, 4]; world_from_board [T, 4, 4]."""

    lens: np.ndarray
    cam_from_world: np.ndarray
    world_from_board: np.ndarray

    def moved(self, step: np.ndarray) -> State:
        """The state after a step [15 C + 6 T] in all unknowns."""
        count = len(self.lens)
        cameras, boards = step[: CAMERA * count].reshape(count, CAMERA), step[CAMERA * count :].reshape(-1, POSE)
        return State(
            self.lens + cameras[:, :LENS],
            se3_exp(cameras[:, LENS:]) @ self.cam_from_world,
            se3_exp(boards) @ self.world_from_board,
        )


def project(state: State, s: Sightings) -> np.ndarray:
    """[N, 2] pixels where the state puts the corners; NaN behind a camera."""
    in_world = _transformed(state.world_from_board[s.instant], s.point)
    in_camera = _transformed(state.cam_from_world[s.camera], in_world)
    z = np.where(in_camera[:, 2:] > 0, in_camera[:, 2:], np.nan)
    return through_lens(state.lens[s.camera], in_camera[:, :2] / z)[0]


def through_lens(lens: np.ndarray, xy: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(uv [N, 2], d uv / d xy [N, 2, 2], d uv / d lens [N, 2, 9]) of ideal positions `xy` [N, 2], lens [N, 9]."""
    fx, fy, cx, cy, k1, k2, p1, p2, k3 = lens.T
    x, y = xy.T
    s = x * x + y * y
    radial = 1 + s * (k1 + s * (k2 + s * k3))
    slope = 2 * (k1 + s * (2 * k2 + 3 * s * k3))  # d radial / dx = slope x
    bent_x = x * radial + 2 * p1 * x * y + p2 * (s + 2 * x * x)
    bent_y = y * radial + p1 * (s + 2 * y * y) + 2 * p2 * x * y
    uv = np.stack([fx * bent_x + cx, fy * bent_y + cy], 1)
    by_xy = np.empty((len(x), 2, 2))
    mixed = slope * x * y + 2 * p1 * x + 2 * p2 * y
    by_xy[:, 0, 0] = fx * (radial + slope * x * x + 2 * p1 * y + 6 * p2 * x)
    by_xy[:, 0, 1] = fx * mixed
    by_xy[:, 1, 0] = fy * mixed
    by_xy[:, 1, 1] = fy * (radial + slope * y * y + 6 * p1 * y + 2 * p2 * x)
    by_lens = np.zeros((len(x), 2, LENS))
    by_lens[:, 0, 0], by_lens[:, 1, 1] = bent_x, bent_y
    by_lens[:, 0, 2], by_lens[:, 1, 3] = 1.0, 1.0
    for column, power in ((4, s), (5, s * s), (8, s * s * s)):
        by_lens[:, 0, column], by_lens[:, 1, column] = fx * x * power, fy * y * power
    by_lens[:, 0, 6], by_lens[:, 1, 6] = fx * 2 * x * y, fy * (s + 2 * y * y)
    by_lens[:, 0, 7], by_lens[:, 1, 7] = fx * (s + 2 * x * x), fy * 2 * x * y
    return uv, by_xy, by_lens


def jacobian(state: State, s: Sightings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(uv [N, 2], d uv / d camera [N, 2, 15], d uv / d board [N, 2, 6])."""
    in_world = _transformed(state.world_from_board[s.instant], s.point)
    rotation = state.cam_from_world[s.camera, :3, :3]
    in_camera = _transformed(state.cam_from_world[s.camera], in_world)
    z = in_camera[:, 2]
    xy = in_camera[:, :2] / z[:, None]
    uv, by_xy, by_lens = through_lens(state.lens[s.camera], xy)
    # d xy / d x_c = 1/z [1 0 -x; 0 1 -y]
    flatten = np.zeros((len(z), 2, 3))
    flatten[:, 0, 0] = flatten[:, 1, 1] = 1 / z
    flatten[:, :, 2] = -xy / z[:, None]
    by_point = by_xy @ flatten  # [N, 2, 3]
    by_camera = np.concatenate([by_lens, by_point, -by_point @ cross_matrix(in_camera)], axis=2)
    by_point = by_point @ rotation
    return uv, by_camera, np.concatenate([by_point, -by_point @ cross_matrix(in_world)], axis=2)


def _transformed(pose: np.ndarray, points: np.ndarray) -> np.ndarray:
    return np.einsum("nij,nj->ni", pose[:, :3, :3], points) + pose[:, :3, 3]


def cross_matrix(v: np.ndarray) -> np.ndarray:
    """[N, 3, 3] of vectors [N, 3], with cross_matrix(v) @ w = v x w."""
    zero = np.zeros(len(v))
    x, y, z = v.T
    return np.stack([zero, -z, y, z, zero, -x, -y, x, zero], 1).reshape(-1, 3, 3)
