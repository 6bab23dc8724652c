"""Descriptions of calibration boards: our JSON or YAML, a word on the command line, caliscope's and Kalibr's files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from recon.calibrate.board import KINDS, Board
from recon.core.config import load_yaml
from recon.core.errors import InputError, did_you_mean
from recon.core.files import read_json, read_toml
from recon.geometry.pose import is_rigid

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
APRILTAG = "DICT_APRILTAG_36h11"
YAML_SUFFIXES = {".yml", ".yaml"}
WORD = {  # what stands between colons after the kind
    "charuco": ("size", "square_m", "marker_m", "dictionary"),
    "checkerboard": ("size", "square_m"),
    "aprilgrid": ("size", "tag_m", "spacing", "dictionary"),
}
EXAMPLE = "charuco:6x8:0.04:0.03:DICT_5X5_100"


def load_board(text: str) -> Board:
    """The board described in a file (ours as JSON or YAML, caliscope's charuco.toml, Kalibr's YAML) or in one word:

        charuco:COLUMNSxROWS:SQUARE:MARKER:DICTIONARY      checkerboard:COLUMNSxROWS:SQUARE
        aprilgrid:COLUMNSxROWS:TAG:SPACING[:DICTIONARY]    and then :inverted or :legacy where it is so

    COLUMNS and ROWS are squares (tags), lengths are metres. Schema: ARCHITECTURE.md.
    Raises InputError naming the file and the field for anything missing, unknown or impossible.
    """
    if text.partition(":")[0] in KINDS and not Path(text).exists():
        return board_from_json(_of_word(text), "--board")
    path = Path(text)
    if path.suffix.lower() == ".toml":
        return _from_caliscope(read_toml(path, MAX_TOML_BYTES), text)
    if path.suffix.lower() in YAML_SUFFIXES:
        data = load_yaml(path)
        return board_from_json(_of_kalibr(data, text) if "target_type" in data else data, text)
    if not path.exists():
        raise InputError(f"--board {text}: no such file", fix=f"Give a file, or a word such as {EXAMPLE}.")
    return board_from_json(read_json(path), text)


def _of_word(text: str) -> dict[str, Any]:
    """The description in a word, as our JSON has it."""
    kind, *parts = text.split(":")
    flags = {part: True for part in parts if part in ("inverted", "legacy")}
    parts = [part for part in parts if part not in flags]
    keys = WORD[kind]
    known = not parts or parts[0].count("x") != 1
    if known or not len([k for k in keys if k != "dictionary"]) <= len(parts) <= len(keys):
        form = ":".join([kind, "COLUMNSxROWS", *(key.upper() for key in keys[1:])])
        raise InputError(f"--board {text}: not a board", why=f"expected {form}", fix=f"An example: {EXAMPLE}.")
    data: dict[str, Any] = {"type": kind}
    sides = ("tags_x", "tags_y") if kind == "aprilgrid" else ("squares_x", "squares_y")
    for key, value in zip(sides, parts[0].split("x"), strict=True):
        data[key] = int(value) if value.isdigit() else value
    for key, value in zip(keys[1:], parts[1:], strict=False):
        data[key] = value if key == "dictionary" else _float(value)
    if "inverted" in flags:
        data["inverted"] = True
    return data | ({"legacy_pattern": True} if "legacy" in flags else {})


def _float(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # refused with its name where it is read


def _of_kalibr(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Kalibr's target file; its checkerboards count inner corners."""
    kind = data["target_type"]
    if kind == "aprilgrid":
        names = {"tagCols": "tags_x", "tagRows": "tags_y", "tagSize": "tag_m", "tagSpacing": "spacing"}
    elif kind == "checkerboard":
        names = {"targetCols": "squares_x", "targetRows": "squares_y", "rowSpacingMeters": "square_m"}
    else:
        raise InputError(f"{where}: target_type is {kind!r}", why="of Kalibr's, aprilgrid and checkerboard are read")
    found: dict[str, Any] = {"type": kind}
    for theirs, ours in names.items():
        if theirs not in data:
            raise InputError(f"{where}: no '{theirs}'", why=f"Kalibr's {kind} has one")
        more = 1 if kind == "checkerboard" and ours != "square_m" else 0
        found[ours] = data[theirs] + more if more and isinstance(data[theirs], int) else data[theirs]
    return found


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
            dictionary="" if kind == "checkerboard" else _dictionary(data.get("dictionary", APRILTAG), where),
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


def _checked(board: Board, where: str) -> Board:
    if not SIZES[0] <= board.square <= SIZES[1]:
        raise InputError(
            f"{where}: a square has {board.square:g} m",
            why=f"{SIZES[0]:g} to {SIZES[1]:g} m are accepted",
            fix="Lengths are in metres.",
        )
    if board.kind == "charuco" and not 0 < board.marker < board.square:
        why = f"markers of {board.marker:g} m in squares of {board.square:g} m"
        raise InputError(f"{where}: markers do not fit into their squares", why=why, fix="Measure both.")
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
