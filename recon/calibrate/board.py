"""Calibration boards: what is printed on them, and where each corner lies in metres.

Board axes: the origin is the outer corner of the first square (the upper left one, seen upright), x runs along the
columns, y along the rows, z away from the viewer. Corners lie at z = 0. Kinds:
    charuco        chessboard with a marker in every white square; corners are the inner ones, numbered row by row
    checkerboard   chessboard without markers; corners likewise
    aprilgrid      markers apart from each other (Kalibr's grid, or OpenCV's); corner 4 k + j is the marker k's j-th,
                   clockwise from its upper left, markers numbered row by row from the upper left
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cv2
import numpy as np

KINDS = ("charuco", "aprilgrid", "checkerboard")


@dataclass(frozen=True, eq=False)
class Board:
    """One printed board; lengths in metres.

    columns, rows: squares (aprilgrid: tags). square: side of a square (aprilgrid: from one tag to the next).
    marker: side of a marker or tag (checkerboard: 0). dictionary: OpenCV's name. inverted: printed white on black;
    None when the description does not say. reference: world_from_board [4, 4] where the board was once surveyed.
    """

    kind: str
    columns: int
    rows: int
    square: float
    marker: float = 0.0
    dictionary: str = ""
    inverted: bool | None = None
    legacy: bool = False
    first_id: int = 0
    reference: np.ndarray | None = None

    @cached_property
    def corners(self) -> np.ndarray:
        """[N, 3] metres: every corner by its number."""
        if self.kind == "aprilgrid":
            return self.marker_corners.reshape(-1, 3)
        x, y = np.meshgrid(np.arange(1, self.columns), np.arange(1, self.rows))
        return np.stack([x.ravel(), y.ravel(), 0 * x.ravel()], 1) * self.square

    @cached_property
    def marker_corners(self) -> np.ndarray:
        """[M, 4, 3] metres: the corners of marker `first_id` + m, clockwise from its upper left."""
        if self.kind == "checkerboard":
            return np.empty((0, 4, 3))
        if self.kind == "charuco":
            points = self.printed().getObjPoints()
            return np.array([np.asarray(p, dtype=np.float64).reshape(4, 3) for p in points])
        row, column = np.divmod(np.arange(self.columns * self.rows), self.columns)
        first = np.stack([column, row, 0 * row], 1) * self.square  # [M, 3]
        return first[:, None] + np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]) * self.marker

    @property
    def width(self) -> float:
        """Extent along x, metres."""
        return float(np.ptp(self.outline[:, 0]))

    @cached_property
    def outline(self) -> np.ndarray:
        """[4, 3] metres: the outer corners of what is printed, clockwise from the origin."""
        gap = self.square - self.marker if self.kind == "aprilgrid" else 0.0
        x, y = self.columns * self.square - gap, self.rows * self.square - gap
        return np.array([[0.0, 0, 0], [x, 0, 0], [x, y, 0], [0, y, 0]])

    def dark(self, points: np.ndarray) -> np.ndarray:
        """Whether the chessboard square round each point [N, 2 or 3] of the board is black on an upright print."""
        column, row = np.floor(np.asarray(points)[:, :2] / self.square).astype(np.int64).T
        shift = self.rows % 2 == 0 if self.legacy else False  # OpenCV before 4.6 began even boards with white
        return (column + row + shift) % 2 == 0

    def printed(self, dictionary: Any = None) -> Any:
        """OpenCV's object for a ChArUco board."""
        words = dictionary if dictionary is not None else self.words()
        board = cv2.aruco.CharucoBoard((self.columns, self.rows), float(self.square), float(self.marker), words)
        board.setLegacyPattern(self.legacy)
        return board

    def words(self) -> Any:
        """OpenCV's dictionary of the markers."""
        return cv2.aruco.getPredefinedDictionary(getattr(cv2.aruco, self.dictionary))

    @property
    def symmetric(self) -> bool:
        """Whether the print looks the same upside down, so that a corner's number cannot be told."""
        return self.kind == "checkerboard" and (self.columns + self.rows) % 2 == 0

    def __str__(self) -> str:
        thing = "tags" if self.kind == "aprilgrid" else "squares"
        size = self.marker if self.kind == "aprilgrid" else self.square
        text = f"{self.kind}, {self.columns}x{self.rows} {thing} of {1000 * size:g} mm"
        return f"{text}, {self.dictionary}" if self.dictionary else text
