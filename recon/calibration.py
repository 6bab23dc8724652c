"""`recon calibrate`: clips of a board carried before the cameras -> a metric rig, and how well each camera is known."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from recon.calibrate.board import Board
from recon.calibrate.diagnose import explain_blind, printed_inverted
from recon.calibrate.instants import Instants, pair_frames
from recon.calibrate.readers.boards import load_board
from recon.calibrate.sightings import State
from recon.calibrate.solve import Solved, solve, start
from recon.calibrate.verdict import Quality, judge_cameras, table, told, weakest
from recon.calibrate.watch import STAGE, Watch, find_boards, find_predicted
from recon.calibrate.world import world_from_rig
from recon.capture.session import open_capture
from recon.capture.stream import CameraStream
from recon.config import CalibrateConfig
from recon.core.errors import InputError
from recon.core.events import Artifact, Event, Message, StageFinished, StageStarted
from recon.core.files import publishing, write_json
from recon.geometry.rig import Rig, rig_to_json

FORMAT, VERSION = "recon-calibration-report", 1


def calibrate(config: CalibrateConfig) -> Iterator[Event]:
    """Write rig.json and report.json; yields progress and the table a person wants to see.

    Raises InputError for recordings or a board description that cannot be used, CalibrationError for what the views
    cannot tell, each naming cameras and what to do.
    """
    begun = time.monotonic()
    board = load_board(config.board)
    if board.symmetric:
        raise InputError(
            f"--board {config.board}: this checkerboard looks the same upside down, so cameras cannot be linked by it",
            fix="Use one with an odd and an even number of squares, or a ChArUco board.",
        )
    cams = [name.strip() for name in config.cams.split(",") if name.strip()] or None
    out = config.out or Path("rigs") / config.videos.resolve().parent.name
    with open_capture(config.videos, None, cams, fps=config.fps, min_cameras=1) as capture:
        yield from capture.messages
        yield Message("info", f"{len(capture.cameras)} cameras; {board}")
        streams = list(capture.cameras.values())
        instants = pair_frames([stream.times for stream in streams], config.max_views)
        watch = yield from _watched(streams, instants, board)
        solved = yield from _solved(streams, instants, board, watch, config)
    qualities = judge_cameras(solved)
    rig, where = _in_world(solved, board, instants, config)
    seconds = time.monotonic() - begun
    for line in table(qualities):
        yield Message("info", line)
    if solved.timed:
        lags = ", ".join(f"{quality.name} {1000 * quality.lag_s:+.0f} ms" for quality in qualities)
        yield Message(
            "warning",
            f"the cameras do not look at the same moments, which was allowed for ({lags}); rest the board now and then",
        )
    weak = weakest(qualities)
    yield Message("warning" if weak.more else "info", told(qualities))
    yield Message("info", where)
    with publishing(out) as stage:
        write_json(stage / "rig.json", rig_to_json(rig))
        write_json(stage / "report.json", _report(solved, qualities, board, where, seconds))
    yield Message("info", f"calibrated in {seconds:.0f} s")
    yield Artifact("rig", out / "rig.json")


def _watched(streams: list[CameraStream], instants: Instants, board: Board) -> Generator[Event, None, Watch]:
    yield StageStarted(STAGE, int((instants.frames >= 0).sum()))
    begun = time.monotonic()
    inverted = printed_inverted(streams, instants, board)
    if inverted != bool(board.inverted):
        print_of = "white on black (inverted)" if inverted else "black on white"
        yield Message("warning", f"the board is printed {print_of}, not as described; calibrating with what is seen")
    watch = yield from find_boards(streams, instants, board, inverted)
    blind = [camera for camera, count in enumerate(watch.counts()) if count == 0]
    yield StageFinished(STAGE, time.monotonic() - begun, {"views": float(len(watch.views))})
    if blind:
        raise explain_blind(streams, instants, board, inverted, blind)
    return watch


def _solved(
    streams: list[CameraStream], instants: Instants, board: Board, watch: Watch, config: CalibrateConfig
) -> Generator[Event, None, Solved]:
    """Solve, look again where the solution predicts the board, solve again."""
    points = board.corners
    yield StageStarted("rig")
    begun = time.monotonic()
    names, sizes = [s.name for s in streams], [(s.width, s.height) for s in streams]
    like, state, views = start(names, sizes, watch.views, points, config.lens)
    solved = solve(like, state, views, points, config.lens, instants.times)
    more = yield from find_predicted(streams, instants, watch, solved.cameras, solved.boards())
    boards = np.tile(np.eye(4), (len(instants.times), 1, 1))
    boards[solved.instants] = solved.solution.state.world_from_board
    solved = solve(like, State.of(solved.cameras, boards), more, points, config.lens, instants.times)
    off = float(np.median(np.linalg.norm(solved.solution.trust.off, axis=1)))
    yield StageFinished("rig", time.monotonic() - begun, {"reprojection_px": off, "views": float(len(more))})
    return solved


def _in_world(solved: Solved, board: Board, instants: Instants, config: CalibrateConfig) -> tuple[Rig, str]:
    first = solved.cameras[0].cam_from_world
    pose, up, text = world_from_rig(config.world, config.world_at, board, solved.boards(), instants.times, first)
    rig = Rig({camera.name: camera for camera in solved.cameras}, units="metres", world_up="z" if up else "unknown")
    return rig.transformed(pose), text


def _report(solved: Solved, qualities: list[Quality], board: Board, where: str, seconds: float) -> dict[str, Any]:
    weak = weakest(qualities)
    off = np.linalg.norm(solved.solution.trust.off, axis=1)
    return {
        "format": FORMAT,
        "version": VERSION,
        "board": str(board),
        "world": where,
        "seconds": seconds,
        "reprojection_px": float(np.median(off)),
        "timing_s": solved.solution.trust.timing,
        "instants": len(solved.instants),
        "views": int(sum(quality.views for quality in qualities)),
        "weak_camera": weak.name if weak.more else None,
        "verdict": told(qualities),
        "per_camera": {quality.name: quality.data() for quality in qualities},
    }
