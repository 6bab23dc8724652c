"""What the cameras of a rig saw of a board, where they would see it, and how that changes with every unknown.

Unknowns are the lens (fx fy cx cy, then k1 k2 p1 p2 k3, or k1 k2 k3 k4 of a fisheye and one that stays 0), the pose and
the lag of each camera, and the pose of the board at each instant. A camera may look later than the instant, by its lag
l: the board, with the velocity v and acceleration a of that instant, has gone on by S = exp(l v + l^2 a / 2), and goes
on at (rho, phi) = v + l a. A pose T changes by a twist on its left, T <- exp(twist) T. With x_b = T_b X, x_w = S x_b,
x_c = T_c x_w:
    d x_c / d twist_c = [I, -[x_c]x],   d x_c / d twist_b = R_c R_S [I, -[x_b]x],   d x_c / d l = R_c (rho + phi x x_w)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from recon.calibrate.corners import Corners
from recon.geometry.camera import Camera
from recon.geometry.lens import BROWN, COEFFICIENTS, FISHEYE
from recon.geometry.pose import invert_pose, se3_exp

Views = Mapping[tuple[int, int], Corners]  # (camera, instant) -> corners
LENS = 9  # fx fy cx cy and up to five coefficients
POSE = 6
CAMERA = LENS + POSE + 1  # the last is its lag


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

    @staticmethod
    def of(views: Views, points: np.ndarray) -> Sightings:
        """Those of all views. points: [N, 3] metres, the board's corners by number."""
        keys = sorted(views)
        count = [len(views[key]) for key in keys]
        camera, instant = (np.repeat(np.array([key[k] for key in keys], np.int64), count) for k in (0, 1))
        corner = np.concatenate([np.empty(0, np.int64), *(views[key].ids for key in keys)])
        uv = np.concatenate([np.empty((0, 2)), *(views[key].uv for key in keys)])
        return Sightings(camera, instant, corner, points[corner], uv)

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
    """lens [C, 9]; fisheye [C] bool; cam_from_world [C, 4, 4]; world_from_board [T, 4, 4].

    lag: [C] seconds that a camera looks later than the instant. velocity: [T, 6] twist of the board per second;
    acceleration: [T, 6] its change per second.
    """

    lens: np.ndarray
    fisheye: np.ndarray
    cam_from_world: np.ndarray
    world_from_board: np.ndarray
    lag: np.ndarray
    velocity: np.ndarray
    acceleration: np.ndarray

    @staticmethod
    def of(cameras: Sequence[Camera], world_from_board: np.ndarray) -> State:
        """The state in which the cameras are as given."""
        lens = np.zeros((len(cameras), LENS))
        for row, camera in zip(lens, cameras, strict=True):
            row[:4] = camera.fx, camera.fy, camera.cx, camera.cy
            row[4 : 4 + len(camera.distortion)] = camera.distortion
        fisheye = np.array([camera.lens == FISHEYE for camera in cameras])
        poses = np.stack([camera.cam_from_world for camera in cameras])
        still = np.zeros((len(world_from_board), POSE))
        return State(lens, fisheye, poses, world_from_board, np.zeros(len(lens)), still, still)

    def cameras(self, like: Sequence[Camera]) -> list[Camera]:
        """The cameras of this state, named and sized as `like`."""
        found = []
        for k, old in enumerate(like):
            kind = FISHEYE if self.fisheye[k] else BROWN
            fx, fy, cx, cy, *rest = (float(value) for value in self.lens[k])
            bent = tuple(rest[: len(COEFFICIENTS[kind])])
            found.append(Camera(old.name, old.width, old.height, fx, fy, cx, cy, bent, self.cam_from_world[k], kind))
        return found

    def moved(self, step: np.ndarray) -> State:
        """The state after a step [16 C + 6 T] in all unknowns."""
        count = len(self.lens)
        cameras, boards = step[: CAMERA * count].reshape(count, CAMERA), step[CAMERA * count :].reshape(-1, POSE)
        return State(
            self.lens + cameras[:, :LENS],
            self.fisheye,
            se3_exp(cameras[:, LENS : LENS + POSE]) @ self.cam_from_world,
            se3_exp(boards) @ self.world_from_board,
            self.lag + cameras[:, -1],
            self.velocity,
            self.acceleration,
        )

    def gone(self) -> np.ndarray:
        """[C, T, 4, 4]: how far the board has gone on when each camera looks."""
        lag = self.lag[:, None, None]
        return se3_exp(lag * self.velocity + 0.5 * lag * lag * self.acceleration)


def project(state: State, s: Sightings) -> np.ndarray:
    """[N, 2] pixels where the state puts the corners; NaN behind a camera."""
    gone = state.gone()[s.camera, s.instant]
    in_world = _transformed(gone @ state.world_from_board[s.instant], s.point)
    in_camera = _transformed(state.cam_from_world[s.camera], in_world)
    z = np.where(in_camera[:, 2:] > 0, in_camera[:, 2:], np.nan)
    return through_lens(state.lens[s.camera], state.fisheye[s.camera], in_camera[:, :2] / z)[0]


def through_lens(lens: np.ndarray, fisheye: np.ndarray, xy: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(uv [N, 2], d uv / d xy [N, 2, 2], d uv / d lens [N, 2, 9]) of ideal positions `xy` [N, 2], lens [N, 9]."""
    bent, by_xy, by_coefficient = _brown(lens[:, 4:], xy)
    if fisheye.any():
        wide = _fisheye(lens[fisheye, 4:], xy[fisheye])
        bent[fisheye], by_xy[fisheye], by_coefficient[fisheye] = wide
    focal = lens[:, :2]
    by_lens = np.zeros((len(xy), 2, LENS))
    by_lens[:, 0, 0], by_lens[:, 1, 1] = bent.T
    by_lens[:, 0, 2] = by_lens[:, 1, 3] = 1.0
    by_lens[:, :, 4:] = focal[:, :, None] * by_coefficient
    return focal * bent + lens[:, 2:4], focal[:, :, None] * by_xy, by_lens


def _brown(k: np.ndarray, xy: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(bent [N, 2], by xy [N, 2, 2], by k1 k2 p1 p2 k3 [N, 2, 5]); the formula is in geometry/lens.py."""
    k1, k2, p1, p2, k3 = k.T
    x, y = xy.T
    s = x * x + y * y
    radial = 1 + s * (k1 + s * (k2 + s * k3))
    slope = 2 * (k1 + s * (2 * k2 + 3 * s * k3))  # d radial / dx = slope x
    bent = xy * radial[:, None]
    bent[:, 0] += 2 * p1 * x * y + p2 * (s + 2 * x * x)
    bent[:, 1] += p1 * (s + 2 * y * y) + 2 * p2 * x * y
    by_xy = np.empty((len(x), 2, 2))
    by_xy[:, 0, 0] = radial + slope * x * x + 2 * p1 * y + 6 * p2 * x
    by_xy[:, 0, 1] = by_xy[:, 1, 0] = slope * x * y + 2 * p1 * x + 2 * p2 * y
    by_xy[:, 1, 1] = radial + slope * y * y + 6 * p1 * y + 2 * p2 * x
    by_k = np.empty((len(x), 2, 5))
    for column, power in ((0, s), (1, s * s), (4, s * s * s)):
        by_k[:, :, column] = xy * power[:, None]
    by_k[:, 0, 2], by_k[:, 1, 2] = 2 * x * y, s + 2 * y * y
    by_k[:, 0, 3], by_k[:, 1, 3] = s + 2 * x * x, 2 * x * y
    return bent, by_xy, by_k


def _fisheye(k: np.ndarray, xy: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(bent [N, 2], by xy [N, 2, 2], by k1 k2 k3 k4 and nothing [N, 2, 5]).

    bent = g(r) xy, g = theta_d / r; d bent / d xy = g I + (g' / r) xy xy^T, g' = (theta_d' / (1 + r^2) - g) / r.
    """
    r = np.maximum(np.linalg.norm(xy, axis=1), 1e-4)  # nearer the axis nothing changes
    theta = np.arctan(r)
    powers = theta[:, None] ** np.array([2, 4, 6, 8])  # [N, 4]
    bent_angle = theta * (1 + (k[:, :4] * powers).sum(1))
    slope = 1 + (k[:, :4] * powers * np.array([3, 5, 7, 9])).sum(1)
    g = bent_angle / r
    inner = (slope / (1 + r * r) - g) / (r * r)
    by_xy = g[:, None, None] * np.eye(2) + inner[:, None, None] * xy[:, :, None] * xy[:, None, :]
    by_k = np.zeros((len(r), 2, 5))
    by_k[:, :, :4] = xy[:, :, None] * (powers * (theta / r)[:, None])[:, None, :]
    return xy * g[:, None], by_xy, by_k


def jacobian(state: State, s: Sightings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(uv [N, 2], d uv / d camera [N, 2, 16], d uv / d board [N, 2, 6])."""
    gone = state.gone()[s.camera, s.instant]
    velocity = state.velocity[s.instant] + state.lag[s.camera, None] * state.acceleration[s.instant]
    before = _transformed(state.world_from_board[s.instant], s.point)
    in_world = _transformed(gone, before)
    rotation = state.cam_from_world[s.camera, :3, :3]
    in_camera = _transformed(state.cam_from_world[s.camera], in_world)
    z = in_camera[:, 2]
    xy = in_camera[:, :2] / z[:, None]
    uv, by_xy, by_lens = through_lens(state.lens[s.camera], state.fisheye[s.camera], xy)
    # d xy / d x_c = 1/z [1 0 -x; 0 1 -y]
    flatten = np.zeros((len(z), 2, 3))
    flatten[:, 0, 0] = flatten[:, 1, 1] = 1 / z
    flatten[:, :, 2] = -xy / z[:, None]
    by_point = by_xy @ flatten  # [N, 2, 3]
    by_world = by_point @ rotation
    speed = velocity[:, :3] + np.cross(velocity[:, 3:], in_world)
    by_lag = by_world @ speed[..., None]
    by_camera = np.concatenate([by_lens, by_point, -by_point @ cross_matrix(in_camera), by_lag], axis=2)
    by_before = by_world @ gone[:, :3, :3]
    return uv, by_camera, np.concatenate([by_before, -by_before @ cross_matrix(before)], axis=2)


def motion(world_from_board: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(velocity [T, 6], acceleration [T, 6]) of a board, in twists per second (squared), by its poses [T, 4, 4].

    times: [T] seconds. A parabola through each instant and its neighbours in time; with one neighbour a line, with none
    the board rests.
    """
    steps = np.diff(times)
    near = steps < 1.5 * float(np.median(steps)) if len(steps) else np.zeros(0, bool)
    change = world_from_board[1:] @ invert_pose(world_from_board[:-1])
    rate = np.where(near[:, None], _twist(change) / np.maximum(steps, 1e-6)[:, None], 0.0)
    none = np.zeros((1, POSE))
    back, ahead = np.concatenate([none, rate]), np.concatenate([rate, none])
    has_back, has_ahead = np.r_[False, near], np.r_[near, False]
    both = (has_back & has_ahead)[:, None]
    t_back, t_ahead = np.r_[1.0, steps][:, None], np.r_[steps, 1.0][:, None]
    parabola = (back * t_ahead + ahead * t_back) / (t_back + t_ahead)
    velocity = np.where(both, parabola, back + ahead)
    return velocity, np.where(both, 2 * (ahead - back) / (t_back + t_ahead), 0.0)


def _twist(pose: np.ndarray) -> np.ndarray:
    """[N, 6] whose exponentials are the poses [N, 4, 4], turned by less than pi."""
    phi = Rotation.from_matrix(pose[:, :3, :3]).as_rotvec() if len(pose) else np.zeros((0, 3))
    angle = np.maximum(np.linalg.norm(phi, axis=1), 1e-6)
    # rho = V^-1 t, V^-1 = I - [phi] / 2 + (1 - (a / 2) cot(a / 2)) / a^2 [phi]^2
    skew = cross_matrix(phi)
    factor = (1 - 0.5 * angle / np.tan(0.5 * angle)) / angle**2
    inverse = np.eye(3) - 0.5 * skew + factor[:, None, None] * (skew @ skew)
    return np.concatenate([np.einsum("nij,nj->ni", inverse, pose[:, :3, 3]), phi], 1)


def _transformed(pose: np.ndarray, points: np.ndarray) -> np.ndarray:
    return np.einsum("nij,nj->ni", pose[:, :3, :3], points) + pose[:, :3, 3]


def adjoint(pose: np.ndarray) -> np.ndarray:
    """[N, 6, 6] of poses T [N, 4, 4]: Ad(T) = [R, [t]x R; 0, R], with exp(Ad(T) d) T = T exp(d)."""
    rotation = pose[:, :3, :3]
    found = np.zeros((len(pose), POSE, POSE))
    found[:, :3, :3] = found[:, 3:, 3:] = rotation
    found[:, :3, 3:] = cross_matrix(pose[:, :3, 3]) @ rotation
    return found


def cross_matrix(v: np.ndarray) -> np.ndarray:
    """[N, 3, 3] of vectors [N, 3], with cross_matrix(v) @ w = v x w."""
    zero = np.zeros(len(v))
    x, y, z = v.T
    return np.stack([zero, -z, y, z, zero, -x, -y, x, zero], 1).reshape(-1, 3, 3)
