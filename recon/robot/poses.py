"""Joint positions of single pictures: a folder of text files, one per picture, or one table with a row per picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from recon.core.errors import InputError, UsageError, did_you_mean
from recon.robot.description import RobotModel

MAX_BYTES = 16 * 2**20
BEYOND_RAD = 0.35  # past a limit: no robot stands there
SUFFIXES = (".txt", ".csv")


def read_positions(path: Path, model: RobotModel, count: int, names: Sequence[str] = ()) -> list[dict[str, float]]:
    """{joint: rad or m} per picture.

    path: a folder of .txt files in the order of their names, or one .txt or .csv file with a row per picture. names:
    what the columns are; default: the table's header, else the robot's joints when there are as many.

    Raises InputError for a file that cannot be read, another number of rows than pictures, a number that is not finite,
    an unknown joint, or positions far beyond the limits (degrees); UsageError when the columns have no names.
    """
    files = [path]
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
    header: list[str] = []
    rows: list[list[float]] = []
    for file in files:
        lines = _words(file)
        if path.is_dir():
            lines = [[word for line in lines for word in line]]
        elif lines and not _is_number(lines[0][0]):
            header, lines = lines[0], lines[1:]
        rows += [_floats(line, file) for line in lines]
    if len(rows) != count:
        raise InputError(f"{path} has {len(rows)} sets of joint positions for {count} pictures", fix="Give one each.")
    if len({len(row) for row in rows}) != 1:
        raise InputError(f"{path}: its sets of joint positions differ in length")
    columns = list(names) or header or (list(model.joints) if len(model.joints) == len(rows[0]) else [])
    if len(columns) != len(rows[0]):
        raise UsageError(
            f"{path} has {len(rows[0])} values per picture, and {len(columns)} of them have names",
            why=f"{model.path} has the joints {', '.join(model.joints)}", fix="give --joint-names",
        )  # fmt: skip
    keep = [k for k, name in enumerate(columns) if name.lower() not in ("time_s", "time", "t", "timestamp")]
    names, table = [columns[k] for k in keep], np.array(rows)[:, keep]
    for name in names:
        if name not in model.joints:
            raise InputError(f"{path}: no joint {name!r} in {model.path}", fix=did_you_mean(name, model.joints))
    _check_limits(path, model, names, table)
    return [dict(zip(names, map(float, row), strict=True)) for row in table]


def _check_limits(path: Path, model: RobotModel, names: Sequence[str], table: np.ndarray) -> None:
    turns = [k for k, name in enumerate(names) if model.joints[name].kind == "revolute"]
    low = np.array([model.joints[names[k]].lower for k in turns]) - BEYOND_RAD
    high = np.array([model.joints[names[k]].upper for k in turns]) + BEYOND_RAD
    values = table[:, turns]
    outside = (values < low) | (values > high)
    if not outside.any():
        return
    picture, k = (int(v[0]) for v in np.nonzero(outside))
    name, value = names[turns[k]], float(values[picture, k])
    degrees = np.radians(values)
    looks = bool(((degrees >= low) & (degrees <= high)).all()) and float(np.abs(values).max()) > 2 * np.pi
    raise InputError(
        f"{path}: joint {name!r} at picture {picture} is {value:.3f} rad, beyond its limits",
        why="the values look like degrees" if looks else "",
        fix="Give radians." if looks else "Check the order of the columns (--joint-names).",
    )


def _words(file: Path) -> list[list[str]]:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise InputError(f"joint positions {file} are too large", why=f"more than {MAX_BYTES >> 20} MiB")
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"joint positions {file} cannot be read", why=str(error), fix="Give --joints FILE or FOLDER."
        ) from error
    return [line.replace(",", " ").split() for line in text.splitlines() if line.strip()]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _floats(words: list[str], file: Path) -> list[float]:
    try:
        values = [float(word) for word in words]
    except ValueError as error:
        raise InputError(f"joint positions {file} are not numbers", why=str(error)) from error
    if not np.isfinite(values).all():
        raise InputError(f"joint positions {file}: a value is not finite")
    return values
