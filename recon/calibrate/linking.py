"""Placing cameras one after the other through instants at which two of them saw the board.

A flat board seen from afar has two poses that look almost alike; both are kept until other views decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from recon.calibrate.sightings import Views
from recon.geometry.camera import Camera, project, unproject
from recon.geometry.pose import invert_pose, so3_exp

MAX_TRIED = 24  # shared instants from which a relative pose is tried
CLEARLY = 0.5  # the second pose is dropped when its error is this many pixels larger and twice as large
CAP = 20.0  # pixels: an error beyond counts as this


@dataclass(frozen=True, eq=False)
class Sight:
    """One view: points [N, 3] and uv [N, 2] of its corners, and the poses cam_from_board it allows, best first."""

    points: np.ndarray
    uv: np.ndarray
    poses: list[np.ndarray]


def sights(views: Views, points: np.ndarray, cameras: Sequence[Camera]) -> dict[tuple[int, int], Sight]:
    """Every view with its possible board poses. points: [N, 3] metres, the board's corners by number."""
    found = {}
    for (camera, instant), corners in views.items():
        poses = board_poses(points[corners.ids], corners.uv, cameras[camera])
        if poses:
            found[camera, instant] = Sight(points[corners.ids], corners.uv, poses)
    return found


def board_poses(points: np.ndarray, uv: np.ndarray, camera: Camera) -> list[np.ndarray]:
    """cam_from_board [4, 4] under which points [N, 3] appear at uv [N, 2], one or two, best first."""
    xy = unproject(camera, uv)[:, :2]
    good = np.isfinite(xy).all(1)
    if good.sum() < 4:
        return []
    try:
        _, turns, shifts, _ = cv2.solvePnPGeneric(points[good], xy[good], np.eye(3), None, flags=cv2.SOLVEPNP_IPPE)
    except cv2.error:  # corners on one line
        return []
    found = []
    for turn, shift in zip(turns, shifts, strict=True):
        turn, shift = cv2.solvePnPRefineLM(points[good], xy[good], np.eye(3), None, turn.copy(), shift.copy())
        pose = np.eye(4)
        pose[:3, :3] = so3_exp(turn)
        pose[:3, 3] = np.ravel(shift)
        if np.isfinite(pose).all() and ((points @ pose[:3, :3].T + pose[:3, 3])[:, 2] > 0).all():
            found.append((view_error(pose, points, uv, camera), pose))
    found.sort(key=lambda entry: entry[0])
    if len(found) == 2 and found[1][0] > max(2 * found[0][0], found[0][0] + CLEARLY):
        found.pop()
    return [pose for _, pose in found]


def view_error(cam_from_board: np.ndarray, points: np.ndarray, uv: np.ndarray, camera: Camera) -> float:
    """Median pixels between points under a pose and where they were seen; CAP at most. The camera's own is not used."""
    predicted = project(camera.with_pose(np.eye(4)), points @ cam_from_board[:3, :3].T + cam_from_board[:3, 3])[0]
    error = float(np.median(np.linalg.norm(predicted - uv, axis=1)))
    return min(error, CAP) if np.isfinite(error) else CAP


def shared_counts(views: Views, cameras: int) -> np.ndarray:
    """[C, C] int: at how many instants both saw the board; on the diagonal, at how many one did."""
    seen = np.zeros((cameras, 1 + max((t for _, t in views), default=0)), bool)
    for camera, instant in views:
        seen[camera, instant] = True
    counts = seen.astype(np.int64)
    return counts @ counts.T


def groups(counts: np.ndarray) -> list[list[int]]:
    """Cameras that shared instants link, directly or through others: largest group first."""
    left, found = list(range(len(counts))), []
    while left:
        group = [left.pop(0)]
        for camera in group:  # grows while it is walked through
            near = [other for other in left if counts[camera, other] > 0]
            group += near
            left = [other for other in left if other not in near]
        found.append(sorted(group))
    return sorted(found, key=len, reverse=True)


def spanning_tree(counts: np.ndarray) -> list[tuple[int, int]]:
    """(placed, next) pairs from the camera that shares most, always the pair that shares most (Prim's algorithm)."""
    off_diagonal = counts * (1 - np.eye(len(counts), dtype=np.int64))
    placed = [int(off_diagonal.sum(axis=1).argmax())]
    edges = []
    while len(placed) < len(counts):
        rest = [camera for camera in range(len(counts)) if camera not in placed]
        block = off_diagonal[np.ix_(placed, rest)]
        if block.max() == 0:
            break
        a, b = np.unravel_index(int(block.argmax()), block.shape)
        edges.append((placed[a], rest[b]))
        placed.append(rest[b])
    return edges


def place(
    seen: Mapping[tuple[int, int], Sight], counts: np.ndarray, cameras: Sequence[Camera], instants: int
) -> tuple[list[Camera], np.ndarray]:
    """(cameras with poses, world_from_board [T, 4, 4]): along the spanning tree, then boards where cameras see them.

    Boards that no camera saw stand at the identity; they take no part in the adjustment.
    """
    poses = {0: np.eye(4)}
    edges = spanning_tree(counts)
    if edges:
        poses = {edges[0][0]: np.eye(4)}
    for a, b in edges:
        poses[b] = _relative(seen, a, b, cameras[b]) @ poses[a]
    placed = [camera.with_pose(poses.get(k, np.eye(4))) for k, camera in enumerate(cameras)]
    boards = np.tile(np.eye(4), (instants, 1, 1))
    for instant in range(instants):
        here = {c: sight for (c, t), sight in seen.items() if t == instant}
        tried = [invert_pose(placed[c].cam_from_world) @ pose for c, sight in here.items() for pose in sight.poses]
        if tried:
            boards[instant] = min(tried, key=lambda pose: _instant_error(here, pose, placed))
    return placed, boards


def _relative(seen: Mapping[tuple[int, int], Sight], a: int, b: int, camera: Camera) -> np.ndarray:
    """b_from_a: of those that single shared instants give, the one that fits best at all of them."""
    shared = [t for c, t in seen if c == a and (b, t) in seen]
    step = max(1, -(-len(shared) // MAX_TRIED))
    tried = [q @ invert_pose(p) for t in shared[::step] for p in seen[a, t].poses for q in seen[b, t].poses]

    def error(b_from_a: np.ndarray) -> float:
        """Sum of the median errors at all shared instants, pixels."""
        total = 0.0
        for t in shared:
            sight = seen[b, t]
            total += min(view_error(b_from_a @ p, sight.points, sight.uv, camera) for p in seen[a, t].poses)
        return total

    return min(tried, key=error)


def _instant_error(here: Mapping[int, Sight], world_from_board: np.ndarray, cameras: Sequence[Camera]) -> float:
    return sum(
        view_error(cameras[c].cam_from_world @ world_from_board, sight.points, sight.uv, cameras[c])
        for c, sight in here.items()
    )
