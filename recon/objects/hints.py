"""Hints on bodies (`--bodies bodies.yaml`): their names and where to look for them.

bodies:
  - name: cube
    seed: [0.10, 0.18, 0.02]     # m, in the scene's world: a place where the body is, or has left
    time: 2.4                    # s, optional: when
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recon.core.config import load_yaml
from recon.core.errors import InputError, did_you_mean

MOST = 64  # bodies
FIELDS = ("name", "seed", "time")


@dataclass(frozen=True, eq=False)
class BodyHint:
    """name: of the body. seed: [3] m in the scene's world. time: s, or None."""

    name: str
    seed: np.ndarray
    time: float | None = None


def read_hints(path: Path) -> list[BodyHint]:
    """The hints of a file. InputError, naming file and entry, for anything else than what the format knows."""
    data = load_yaml(path)
    if not isinstance(data, dict) or not isinstance(data.get("bodies"), list):
        raise InputError(f"{path} has no list 'bodies'", fix="write bodies: and one '- name: ...' per body")
    for key in data:
        if key != "bodies":
            raise InputError(f"{path}: unknown field '{key}'", fix=did_you_mean(str(key), ["bodies"]))
    if len(data["bodies"]) > MOST:
        raise InputError(f"{path} lists {len(data['bodies'])} bodies", why=f"at most {MOST} are accepted")
    hints = [_hint(entry, f"{path}: bodies[{k}]") for k, entry in enumerate(data["bodies"])]
    names = [hint.name for hint in hints]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: the body '{name}' is listed twice", fix="give every body a name of its own")
    return hints


def _hint(entry: Any, where: str) -> BodyHint:
    if not isinstance(entry, dict):
        raise InputError(f"{where} is not a body", fix="write '- name: ...' and '  seed: [x, y, z]'")
    for key in entry:
        if key not in FIELDS:
            raise InputError(f"{where}: unknown field '{key}'", fix=did_you_mean(str(key), FIELDS))
    name = entry.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= 100 or not name.isprintable():
        raise InputError(f"{where}: name is {str(name)[:40]!r}", why="it must be 1 to 100 printable characters")
    seed = entry.get("seed")
    if not isinstance(seed, list) or len(seed) != 3 or not all(_number(value) for value in seed):
        raise InputError(f"{where} ('{name}'): seed is {str(seed)[:60]!r}", why="it must be three numbers, metres")
    time = entry.get("time")
    if time is not None and not _number(time):
        raise InputError(f"{where} ('{name}'): time is {str(time)[:40]!r}", why="it must be a number, seconds")
    return BodyHint(name, np.array(seed, dtype=np.float64), None if time is None else float(time))


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
