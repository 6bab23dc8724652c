"""Calibration boards: what is printed on them, where each corner lies in metres, and the files that describe them.

Board axes: the origin is the outer corner of the first square (the upper left one, seen upright), x runs along the
columns, y along the rows, z away from the viewer. Corners lie at z = 0. Kinds:
    charuco        chessboard with a marker in every white square; corners are the inner ones, numbered row by row
    checkerboard   chessboard without markers; corners likewise
    aprilgrid      markers apart from each other (Kalibr's grid, or OpenCV's); corner 4 k + j is the marker k's j-th,
                   clockwise from its upper left, markers numbered row by row from the upper left
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from recon.core.disk import read_bytes
from recon.core.errors import InputError, did_you_mean
from recon.core.files import read_json
from recon.geometry.pose import is_rigid

KINDS = ("charuco", "aprilgrid", "checkerboard")
SIDES = {"charuco": (2, 40), "checkerboard": (3, 40), "aprilgrid": (1, 40)}  # fewest and most columns and rows
SIZES = (1e-3, 10.0)  # metres a square may have
MAX_TOML_BYTES = 2**16
FREE_KEYS = {"note", "fps", "frames", "board_frame", "format", "version", "name"}  # words for people, and of recorders
KEYS = {
    "type", "squares_x", "squares_y", "square_m", "marker_m", "dictionary", "legacy_pattern", "inverted",
    "tags_x", "tags_y", "tag_m", "spacing", "first_id", "world_from_board_reference",
}  # fmt: skip
NEEDED = {
    "charuco": ("squares_x", "squares_y", "square_m", "marker_m", "dictionary"),
    "checkerboard": ("squares_x", "squares_y", "square_m"),
    "aprilgrid": ("tags_x", "tags_y", "tag_m", "spacing"),
}
INCH_CM = 2.54


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


def load_board(path: Path) -> Board:
    """The board described in our JSON (schema: ARCHITECTURE.md) or in caliscope's charuco.toml.

    Raises InputError naming the file and the field for anything missing, unknown or impossible.
    """
    if path.suffix.lower() == ".toml":
        return _from_caliscope(_toml(path), str(path))
    return board_from_json(read_json(path), str(path))


def board_from_json(data: Any, where: str) -> Board:
    """The board in parsed JSON; `where` opens every message. Raises InputError."""
    if not isinstance(data, Mapping):
        raise InputError(f"{where}: not a JSON object", why="a board is described by one")
    for key in data:
        if key not in KEYS | FREE_KEYS:
            raise InputError(f"{where}: unknown field '{key}'", fix=did_you_mean(str(key), KEYS))
    kind = data.get("type")
    if kind not in KINDS:
        raise InputError(f"{where}: type is {kind!r}", why=f"accepted are {', '.join(KINDS)}")
    missing = [key for key in NEEDED[kind] if data.get(key) is None]
    if missing:
        raise InputError(f"{where}: a {kind} needs {', '.join(missing)}")
    grid = kind == "aprilgrid"
    across, down = ("tags_x", "tags_y") if grid else ("squares_x", "squares_y")
    marker = 0.0 if kind == "checkerboard" else _length(data, "tag_m" if grid else "marker_m", where)
    if grid:
        spacing = _number(data["spacing"], f"{where}: spacing")
        if not 0 < spacing <= 10:
            raise InputError(f"{where}: spacing is {spacing:g}", why="it is the gap between tags divided by their side")
        square = marker * (1 + spacing)
    else:
        square = _length(data, "square_m", where)
    return _checked(
        Board(
            kind=kind,
            columns=_count(data, across, kind, where),
            rows=_count(data, down, kind, where),
            square=square,
            marker=marker,
            dictionary="" if kind == "checkerboard" else _dictionary(data.get("dictionary", "DICT_APRILTAG_36h11"), where),
            inverted=_flag(data, "inverted", where),
            legacy=bool(_flag(data, "legacy_pattern", where)),
            first_id=0 if data.get("first_id") is None else _whole(data["first_id"], f"{where}: first_id", 0, 10**5),
            reference=_reference(data.get("world_from_board_reference"), where),
        ),
        where,
    )


def _from_caliscope(data: Mapping[str, Any], where: str) -> Board:
    """caliscope's charuco.toml: the size of the paper, or the side of a square as it was measured on the print."""
    for key in ("columns", "rows", "dictionary", "aruco_scale"):
        if key not in data:
            raise InputError(f"{where}: no '{key}'", why="caliscope's charuco.toml is expected, or our JSON")
    columns, rows = (_count(data, key, "charuco", where) for key in ("columns", "rows"))
    measured = data.get("square_size_override_cm")
    if measured is None:
        centimetres = {"inch": INCH_CM, "cm": 1.0}.get(str(data.get("units", "inch")))
        if centimetres is None:
            raise InputError(f"{where}: units is {data['units']!r}", why="accepted are inch and cm")
        sides = [
            _number(data.get(key), f"{where}: {key}") / count
            for key, count in (("board_width", columns), ("board_height", rows))
        ]
        measured = min(sides) * centimetres
    square = _number(measured, f"{where}: square_size_override_cm") / 100
    scale = _number(data["aruco_scale"], f"{where}: aruco_scale")
    return _checked(
        Board(
            kind="charuco",
            columns=columns,
            rows=rows,
            square=square,
            marker=square * scale,
            dictionary=_dictionary(data["dictionary"], where),
            inverted=_flag(data, "inverted", where),
            legacy=bool(_flag(data, "legacy_pattern", where)),
        ),
        where,
    )


def _toml(path: Path) -> Mapping[str, Any]:
    text = read_bytes(path, MAX_TOML_BYTES).decode("utf-8", errors="replace")
    if sys.version_info >= (3, 11):
        import tomllib

        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{path}: not valid TOML", why=str(error)) from error
    return _flat_toml(text, path)


def _flat_toml(text: str, path: Path) -> dict[str, Any]:
    """`key = value` lines, all that such a file holds; Python 3.10 has no reader of its own."""
    import yaml

    values: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        key, equals, value = (part.strip() for part in line.partition("#")[0].partition("="))
        if not equals:
            if key:
                raise InputError(f"{path}: line {number}: 'key = value' expected")
            continue
        values[key] = yaml.safe_load(value)
    return values


def _checked(board: Board, where: str) -> Board:
    if not SIZES[0] <= board.square <= SIZES[1]:
        raise InputError(
            f"{where}: a square has {board.square:g} m",
            why=f"{SIZES[0]:g} to {SIZES[1]:g} m are accepted",
            fix="Lengths are in metres.",
        )
    if board.kind == "charuco" and not 0 < board.marker < board.square:
        raise InputError(f"{where}: markers of {board.marker:g} m in squares of {board.square:g} m", fix="Measure both.")
    if board.kind != "checkerboard":
        needed = board.columns * board.rows // (2 if board.kind == "charuco" else 1)
        known = len(board.words().bytesList)
        if board.first_id + needed > known:
            raise InputError(
                f"{where}: the board has {needed} markers, {board.dictionary} only {known}", fix="Name its dictionary."
            )
    if board.kind == "charuco" and board.first_id:
        raise InputError(f"{where}: first_id {board.first_id}", why="only an aprilgrid may begin with another marker")
    return board


def _length(data: Mapping[str, Any], key: str, where: str) -> float:
    value = _number(data[key], f"{where}: {key}")
    if not value > 0:
        raise InputError(f"{where}: {key} is {value:g}", why="a length in metres is needed")
    return value


def _count(data: Mapping[str, Any], key: str, kind: str, where: str) -> int:
    return _whole(data[key], f"{where}: {key}", *SIDES[kind])


def _whole(value: Any, label: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{label} is {value!r}", why=f"a whole number from {least} to {most} is needed")
    return value


def _number(value: Any, label: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not np.isfinite(value):
        raise InputError(f"{label} is {value!r}", why="a finite number is needed")
    return float(value)


def _flag(data: Mapping[str, Any], key: str, where: str) -> bool | None:
    value = data.get(key)
    if value is not None and not isinstance(value, bool):
        raise InputError(f"{where}: {key} is {value!r}", why="true or false is needed")
    return value


def _dictionary(name: Any, where: str) -> str:
    known = [entry for entry in dir(cv2.aruco) if entry.startswith("DICT_")]
    if name not in known:
        raise InputError(f"{where}: dictionary is {name!r}", fix=did_you_mean(str(name), known))
    return str(name)


def _reference(value: Any, where: str) -> np.ndarray | None:
    if value is None:
        return None
    try:
        pose = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        pose = np.empty(0)
    if not is_rigid(pose):
        raise InputError(f"{where}: world_from_board_reference is not a 4x4 rotation and translation")
    return pose
