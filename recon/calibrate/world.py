"""Which world a calibrated rig stands in: where the board lies at a named time, or a camera's own axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from recon.calibrate.board import Board
from recon.core.errors import InputError
from recon.geometry.pose import angle_between, invert_pose, nearest_rotation

World = Literal["auto", "camera", "table", "reference"]
STILL_METRES, STILL_DEGREES = 7e-4, 0.15  # a board that moves less between two instants rests
TABLE = np.diag([1.0, -1.0, -1.0, 1.0])  # world_from_board of a board face up: z away from the viewer is down


def world_from_rig(
    kind: World, at: float, board: Board, boards: Mapping[int, np.ndarray], times: np.ndarray, first_camera: np.ndarray
) -> tuple[np.ndarray, bool, str]:
    """(pose [4, 4], whether +z is up and the table at z = 0, what to tell a person).

    at: seconds, when the board rests in its place. boards: instant -> rig_from_board. times: [T] seconds of all
    instants. first_camera: cam_from_rig. Raises InputError when the board was not seen at that time.
    """
    if kind == "auto":
        kind = "camera" if board.reference is None else "reference"
    if kind == "camera":
        return first_camera, False, "the world is the first camera's own axes (--world table: the board lies on it)"
    if kind == "reference" and board.reference is None:
        raise InputError(
            "--world reference: the board's description gives no world_from_board_reference",
            fix="Add it (4x4, row major), or use --world table or --world camera.",
        )
    target = TABLE if kind == "table" or board.reference is None else board.reference
    pose, count, when = _resting(at, boards, times)
    what = "lies on the table" if kind == "table" else "stands at its surveyed place"
    seen = f"{count} resting views from {when:.2f} s" if count > 1 else f"one view at {when:.2f} s, not seen to rest"
    return target @ invert_pose(pose), True, f"the world is where the board {what} ({seen})"


def _resting(at: float, boards: Mapping[int, np.ndarray], times: np.ndarray) -> tuple[np.ndarray, int, float]:
    """(mean pose, number of instants, first time) of the board from its first sight at or after `at` till it moves."""
    later = [t for t in sorted(boards) if times[t] >= at - 1e-6]
    if not later:
        raise InputError(
            f"--world-at {at:g}: no camera saw the board then or later",
            why=f"it was last seen at {max(times[t] for t in boards):.2f} s",
        )
    first = boards[later[0]]
    resting = []
    for t in later:
        moved = np.linalg.norm(boards[t][:3, 3] - first[:3, 3])
        if moved > STILL_METRES or np.degrees(angle_between(boards[t][:3, :3], first[:3, :3])) > STILL_DEGREES:
            break
        resting.append(boards[t])
    pose = np.eye(4)
    pose[:3, :3] = nearest_rotation(np.mean([b[:3, :3] for b in resting], axis=0))
    pose[:3, 3] = np.mean([b[:3, 3] for b in resting], axis=0)
    return pose, len(resting), float(times[later[0]])
