"""Why a board is not found: white on black, mirrored, laid out otherwise, or with other markers than described."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from recon.calibrate.board import Board
from recon.calibrate.corners import Finder, read_markers
from recon.calibrate.instants import Instants
from recon.capture.stream import CameraStream
from recon.core.errors import CalibrationError

SAMPLES = 12  # pictures looked at per camera
ENOUGH = 3  # markers of another dictionary that are no chance
LARGEST = (
    "DICT_4X4_1000",
    "DICT_5X5_1000",
    "DICT_6X6_1000",
    "DICT_7X7_1000",
    "DICT_ARUCO_ORIGINAL",
    "DICT_APRILTAG_16h5",
    "DICT_APRILTAG_25h9",
    "DICT_APRILTAG_36h10",
    "DICT_APRILTAG_36h11",
)  # fmt: skip  - the smaller ones are their beginnings


def printed_inverted(streams: Sequence[CameraStream], instants: Instants, board: Board) -> bool:
    """Whether the board is white on black: as described, unless only the contrary is found in the pictures."""
    described = bool(board.inverted)
    if board.kind == "checkerboard":
        return described  # either way is a checkerboard
    for inverted in (described, not described):
        for camera in range(len(streams)):
            if any(len(Finder(board, inverted).find(picture)) for picture in _samples(streams, instants, camera)):
                return inverted
    return described


def explain_blind(
    streams: Sequence[CameraStream], instants: Instants, board: Board, inverted: bool, blind: Sequence[int]
) -> CalibrationError:
    """The error for cameras in whose pictures the board was not found, with the reason if one shows."""
    names = ", ".join(streams[camera].name for camera in blind)
    what = f"the board was not found in the pictures of {names}"
    pictures = [picture for camera in blind for picture in _samples(streams, instants, camera)]
    if _found(board, inverted, [picture[:, ::-1] for picture in pictures]):
        return CalibrationError(
            what,
            why="it is there mirrored",
            fix="Switch mirroring off where the clips are recorded; if the print itself is mirrored, print it again.",
        )
    for variant, text in _variants(board):
        if _found(variant, inverted, pictures):
            return CalibrationError(
                what, why=f"its layout is not that described ({board}): {text} fits", fix="Correct the description."
            )
    for name, count in _other_markers(board, inverted, pictures):
        return CalibrationError(
            what,
            why=f"{count} markers of {name} were read at once, not of {board.dictionary}",
            fix="Correct the description's dictionary.",
        )
    finder = Finder(board, inverted)
    for picture in pictures:
        finder.find(picture)
    if finder.seen:
        why = (
            f"its markers were read in {finder.seen} of {len(pictures)} pictures looked at, and do not lie as described"
        )
        return CalibrationError(what, why=f"{why} ({board})", fix="Check the description's squares and marker size.")
    return CalibrationError(
        what,
        why=f"looked for: {board}",
        fix="Check the description, light and sharpness; bring the board nearer (markers of 12 pixels and more); "
        "or leave the camera out with --cams.",
    )


def _samples(streams: Sequence[CameraStream], instants: Instants, camera: int) -> Iterator[np.ndarray]:
    frames = instants.frames[camera][instants.frames[camera] >= 0]
    for index in np.unique(np.linspace(0, len(frames) - 1, min(SAMPLES, len(frames))).astype(int)):
        yield streams[camera].read(int(frames[index]))


def _found(board: Board, inverted: bool, pictures: Sequence[np.ndarray]) -> bool:
    finder = Finder(board, inverted)
    return any(len(finder.find(np.ascontiguousarray(picture))) for picture in pictures)


def _variants(board: Board) -> Iterator[tuple[Board, str]]:
    """The same board as people describe it by mistake."""
    if board.columns != board.rows:
        yield replace(board, columns=board.rows, rows=board.columns), f"{board.rows}x{board.columns}"
    if board.kind == "charuco":
        yield replace(board, legacy=not board.legacy), f"legacy_pattern {str(not board.legacy).lower()}"
    if board.kind == "checkerboard":  # inner corners counted instead of squares
        more = replace(board, columns=board.columns + 1, rows=board.rows + 1)
        yield more, f"{more.columns}x{more.rows} squares"


def _other_markers(board: Board, inverted: bool, pictures: Sequence[np.ndarray]) -> Iterator[tuple[str, int]]:
    """(dictionary, markers read in one picture) of those that are seen instead."""
    if board.kind == "checkerboard":
        return
    finder = Finder(board, inverted)
    for name in LARGEST:
        if name.rsplit("_", 1)[0] == board.dictionary.rsplit("_", 1)[0]:
            continue
        other = replace(board, dictionary=name)
        counts = [len(read_markers(finder.grey(picture), other, 1, False)) for picture in pictures]
        if max(counts, default=0) >= ENOUGH:
            yield name, max(counts)
