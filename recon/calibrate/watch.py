"""The board in the recordings of all cameras: found by its markers first, later where a calibrated rig predicts it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from recon.calibrate.board import Board
from recon.calibrate.corners import MIN_CORNERS, Corners, Finder
from recon.calibrate.instants import Instants
from recon.calibrate.sightings import Views
from recon.capture.stream import CameraStream
from recon.core.events import Event, Progress
from recon.geometry.camera import Camera, project

STAGE = "board"


@dataclass
class Watch:
    """What was seen. finders: one per camera, with what it read besides. views: (camera, instant) -> corners."""

    finders: list[Finder]
    views: dict[tuple[int, int], Corners] = field(default_factory=dict)

    def counts(self) -> list[int]:
        """Views of each camera."""
        return [sum(c == camera for c, _ in self.views) for camera in range(len(self.finders))]


def find_boards(
    streams: Sequence[CameraStream], instants: Instants, board: Board, inverted: bool
) -> Generator[Event, None, Watch]:
    """Look for the board in every camera's frames; yields progress."""
    watch = Watch([Finder(board, inverted) for _ in streams])
    total, done = int((instants.frames >= 0).sum()), 0
    for camera, stream in enumerate(streams):
        for instant in np.flatnonzero(instants.frames[camera] >= 0):
            corners = watch.finders[camera].find(stream.read(int(instants.frames[camera, instant])))
            if len(corners):
                watch.views[camera, int(instant)] = corners
            done += 1
            yield Progress(STAGE, done, total, {"found": float(len(watch.views))})
    return watch


def find_predicted(
    streams: Sequence[CameraStream],
    instants: Instants,
    watch: Watch,
    cameras: Sequence[Camera],
    world_from_board: Mapping[int, np.ndarray],
) -> Generator[Event, None, Views]:
    """The views again, with all corners that show where the calibrated rig says; also where no marker was read.

    world_from_board: instant -> pose. A view is taken when it has more corners than before.
    """
    better = dict(watch.views)
    work = [(c, t) for c in range(len(streams)) for t in sorted(world_from_board) if instants.frames[c, t] >= 0]
    for done, (camera, instant) in enumerate(work):
        board = watch.finders[camera].board
        before = len(better.get((camera, instant), ()))
        mapping = _Predicted(cameras[camera], world_from_board[instant])
        if before == len(board.corners) or not mapping.shows(board):
            continue
        corners = watch.finders[camera].settle(streams[camera].read(int(instants.frames[camera, instant])), mapping)
        if len(corners) >= max(MIN_CORNERS, before + 1):
            better[camera, instant] = corners
        yield Progress(STAGE, done + 1, len(work), {"found": float(len(better))})
    return better


@dataclass(frozen=True, eq=False)
class _Predicted:
    """Board points [N, 3] -> pixels [N, 2] of a camera, NaN where the lens puts none."""

    camera: Camera
    world_from_board: np.ndarray

    def __call__(self, points: np.ndarray) -> np.ndarray:
        world = points @ self.world_from_board[:3, :3].T + self.world_from_board[:3, 3]
        return project(self.camera, world)[0]

    def shows(self, board: Board) -> bool:
        """Whether the printed side is turned to the camera and enough corners lie in its picture."""
        eye = np.linalg.inv(self.world_from_board)[:3] @ np.append(self.camera.center, 1.0)
        uv = self(board.corners)
        with np.errstate(invalid="ignore"):
            inside = ((uv > 0) & (uv < [self.camera.width, self.camera.height])).all(axis=1)
        return bool(eye[2] < 0 and inside.sum() >= MIN_CORNERS)
