"""Matches between neighbouring cameras, linked to tracks and triangulated.

Direct linear transform: every observation (u, v) of a camera P = K [R | t] gives two rows u P_3 - P_1 and v P_3 - P_2
of A with A x = 0 for the homogeneous point x. Pictures are first normalised by K, so that rows of different cameras
weigh alike. x is the eigenvector of A^T A with the least eigenvalue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from recon.calibrate.cloud import Points, sample
from recon.calibrate.matches import BAND, Features, find_features, match_features
from recon.calibrate.neighbours import neighbours
from recon.geometry.camera import Camera

NEIGHBOURS = 5
MAX_ERROR = 1.5  # pixels, reprojection in every view
MIN_PARALLAX = 1.0  # degrees, largest angle between two of its rays
COMPANY = 0.04  # of the distance to the nearest camera


@dataclass(frozen=True)
class Tracks:
    """Which features are one point. Observations sorted by track: track [O], camera [O] (index), uv [O, 2]."""

    track: np.ndarray
    camera: np.ndarray
    uv: np.ndarray

    @property
    def count(self) -> int:
        """How many points."""
        return int(self.track[-1]) + 1 if len(self.track) else 0

    def select(self, tracks: np.ndarray) -> Tracks:
        """Only the tracks in the bool mask [count], renumbered."""
        keep = tracks[self.track]
        number = np.cumsum(tracks) - 1
        return Tracks(number[self.track[keep]], self.camera[keep], self.uv[keep])


def match_points(
    plates: Mapping[str, np.ndarray],
    cameras: Mapping[str, Camera],
    valid: Mapping[str, np.ndarray] | None = None,
    *,
    count: int = NEIGHBOURS,
    max_error: float = MAX_ERROR,
) -> Points:
    """Points seen by at least two of the cameras.

    plates: uint8 [H, W, 3] per camera, free of moving things. cameras: the ideal pinhole camera of each plate.
    valid: bool [H, W] per camera, where the plate shows something. count: neighbours each camera is matched with.
    Kept are points in front of their cameras, within `max_error` pixels in every view, with >= 1 degree of parallax.
    """
    names = list(plates)
    features = [find_features(plates[n], valid[n] if valid else None) for n in names]
    rig = [cameras[n] for n in names]
    tracks = find_tracks(features, rig, count, max_error)
    xyz = triangulate(tracks.camera, tracks.uv, tracks.track, tracks.count, rig)
    good, error = _judge(xyz, tracks, rig, max_error)
    rgb = _colours(tracks, [plates[n] for n in names])
    views = np.bincount(tracks.track, minlength=tracks.count)
    points = Points(xyz[good], rgb[good], views[good], error[good])
    return points.select(accompanied(points, rig))


def find_tracks(
    features: list[Features],
    rig: list[Camera],
    count: int = NEIGHBOURS,
    max_error: float = MAX_ERROR,
    band: float = BAND,
) -> Tracks:
    """Features of neighbouring cameras that triangulate to within `max_error` pixels, linked to tracks.

    features: of each camera's picture. band: pixels round the epipolar lines in which partners are looked for.
    """
    by_name = {camera.name: camera for camera in rig}
    near, names = neighbours(by_name, count), list(by_name)
    pairs = sorted({(min(i, j), max(i, j)) for i, n in enumerate(names) for j in map(names.index, near[n])})
    found = []
    for i, j in pairs:
        matches = match_features(features[i], features[j], rig[i], rig[j], band)
        found.append((i, j, matches[_two_view_good(matches, features[i], features[j], rig[i], rig[j], max_error)]))
    return _join_tracks(found, features)


def accompanied(points: Points, rig: list[Camera]) -> np.ndarray:
    """bool [M]: seen by three cameras, or with two other points nearby, so that lone wrong matches in mid-air go.

    Nearby means within 4 % of the distance to the nearest camera.
    """
    if len(points) < 4:
        return np.ones(len(points), dtype=bool)
    reach = np.linalg.norm(points.xyz[:, None] - np.stack([c.center for c in rig]), axis=-1).min(axis=1)
    third = cKDTree(points.xyz).query(points.xyz, k=3)[0][:, 2]  # the first is the point itself
    return (points.views >= 3) | (third < COMPANY * reach)


def triangulate(camera: np.ndarray, uv: np.ndarray, track: np.ndarray, count: int, rig: list[Camera]) -> np.ndarray:
    """Points [count, 3] from observations `uv` [O, 2] by camera index [O] and point index [O] (linear least squares).

    NaN where a point lies at infinity.
    """
    poses = np.stack([c.cam_from_world[:3] for c in rig])[camera]  # [O, 3, 4]
    focal = np.array([[c.fx, c.fy] for c in rig])[camera]
    centre = np.array([[c.cx, c.cy] for c in rig])[camera]
    ray = (uv - centre) / focal  # [O, 2]
    rows = ray[:, :, None] * poses[:, 2:3] - poses[:, :2]  # [O, 2, 4]
    normal = np.zeros((count, 4, 4))
    np.add.at(normal, track, np.einsum("oki,okj->oij", rows, rows))
    homogeneous = np.linalg.eigh(normal)[1][:, :, 0]  # [count, 4], least eigenvalue first
    weight = homogeneous[:, 3:]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.abs(weight) > 1e-9, homogeneous[:, :3] / weight, np.nan)


def _two_view_good(
    matches: np.ndarray, a: Features, b: Features, camera_a: Camera, camera_b: Camera, max_error: float
) -> np.ndarray:
    count = len(matches)
    if count == 0:
        return np.zeros(0, dtype=bool)
    tracks = Tracks(
        np.repeat(np.arange(count), 2),
        np.tile([0, 1], count),
        np.stack([a.uv[matches[:, 0]], b.uv[matches[:, 1]]], axis=1).reshape(-1, 2),
    )
    rig = [camera_a, camera_b]
    return _judge(triangulate(tracks.camera, tracks.uv, tracks.track, count, rig), tracks, rig, max_error)[0]


def _judge(xyz: np.ndarray, tracks: Tracks, rig: list[Camera], max_error: float) -> tuple[np.ndarray, np.ndarray]:
    """(good bool [M], largest reprojection error [M] px): in front, close to all observations, enough parallax."""
    poses = np.stack([c.cam_from_world[:3] for c in rig])[tracks.camera]
    focal = np.array([[c.fx, c.fy] for c in rig])[tracks.camera]
    middle = np.array([[c.cx, c.cy] for c in rig])[tracks.camera]
    point = xyz[tracks.track]  # [O, 3]
    local = np.einsum("oij,oj->oi", poses[:, :, :3], point) + poses[:, :, 3]
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.linalg.norm(local[:, :2] / local[:, 2:] * focal + middle - tracks.uv, axis=1)
        rays = point - np.stack([c.center for c in rig])[tracks.camera]
        rays = rays / np.linalg.norm(rays, axis=1, keepdims=True)
    apart[~(local[:, 2] > 0)] = np.inf  # behind a camera, or NaN
    error = np.zeros(tracks.count)
    np.maximum.at(error, tracks.track, np.nan_to_num(apart, nan=np.inf))
    # The mean of unit rays is shorter than 1 by about half the mean squared angle from it: |mean| < cos(angle / 2) for
    # two rays, and a safe estimate for more.
    total = np.zeros((tracks.count, 3))
    np.add.at(total, tracks.track, np.nan_to_num(rays))
    length = np.linalg.norm(total, axis=1) / np.maximum(np.bincount(tracks.track, minlength=tracks.count), 1)
    return (error < max_error) & (length < np.cos(np.radians(MIN_PARALLAX) / 2)), error


def _join_tracks(found: list[tuple[int, int, np.ndarray]], features: list[Features]) -> Tracks:
    """Features linked by matches, as tracks; one that meets a camera twice is split back into its pairs.

    A chain of matches that returns to a camera at another pixel has a wrong link somewhere. Its two-view pairs have
    each passed their own test, so they are kept as separate points.
    """
    base = np.cumsum([0] + [len(f.uv) for f in features])
    empty = np.empty((0, 2), dtype=np.int64)
    links = np.concatenate([empty] + [m + np.array([base[i], base[j]]) for i, j, m in found])
    total = int(base[-1])
    graph = coo_matrix((np.ones(len(links), bool), (links[:, 0], links[:, 1])), shape=(total, total))
    label = connected_components(graph, directed=False)[1]
    node = np.unique(links)
    camera = np.searchsorted(base, node, side="right") - 1
    seen, times = np.unique(np.stack([label[node], camera], axis=1), axis=0, return_counts=True)
    torn = np.unique(seen[times > 1, 0])
    whole = node[~np.isin(label[node], torn)]
    pairs = links[np.isin(label[links[:, 0]], torn)]
    track = np.concatenate([label[whole], total + np.repeat(np.arange(len(pairs)), 2)])
    node = np.concatenate([whole, pairs.reshape(-1)])
    order = np.argsort(track, kind="stable")
    track = np.unique(track[order], return_inverse=True)[1].reshape(-1)
    camera = np.searchsorted(base, node[order], side="right") - 1
    return Tracks(track, camera, np.concatenate([f.uv for f in features])[node[order]])


def _colours(tracks: Tracks, plates: list[np.ndarray]) -> np.ndarray:
    """uint8 [M, 3]: mean over its views of the picture at each point."""
    total = np.zeros((tracks.count, 3))
    for k, plate in enumerate(plates):
        mine = tracks.camera == k
        np.add.at(total, tracks.track[mine], sample(plate, tracks.uv[mine]))
    views = np.bincount(tracks.track, minlength=tracks.count)
    return np.clip(np.rint(total / np.maximum(views, 1)[:, None]), 0, 255).astype(np.uint8)
