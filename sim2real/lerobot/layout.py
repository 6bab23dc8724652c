"""`meta/info.json`: what a data set holds and how its files are called.

Version 3.0 keeps many episodes per file; version 2.1 one episode per file. Names of files come from templates in the
file itself, so they are taken for what they are: text of a stranger.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from recon.core.errors import InputError
from recon.core.files import inside, read_json

V2, V3 = "v2.1", "v3.0"
CHUNK = 1000  # files (3.0) or episodes (2.1) per folder
DATA_MB, FILM_MB = 100, 200  # a file that has grown past this is closed
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
FILM_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
TASKS_PATH = "meta/tasks.parquet"
STATE, ACTION, PICTURES = "observation.state", "action", "observation.images."
NUMBERS = (
    "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
)  # fmt: skip
BOOKKEEPING = {"timestamp": "float32", "frame_index": "int64", "episode_index": "int64", "index": "int64",
               "task_index": "int64"}  # fmt: skip
MAX_FRAMES = 10**8
_FIELD = re.compile(r"\{(\w+)(?::0?(\d{1,2})d)?\}")


@dataclass(frozen=True)
class Feature:
    """One column or camera. dtype: a numpy name, "video", or something that is not read here. shape: of one frame."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    names: Any = None

    @property
    def is_film(self) -> bool:
        """Whether it is a camera whose pictures lie in mp4 files."""
        return self.dtype == "video"

    @property
    def is_number(self) -> bool:
        """Whether it is a column of numbers."""
        return self.dtype in NUMBERS

    @property
    def picture(self) -> tuple[int, int]:
        """(height, width) px of a camera, whichever way its shape is written."""
        a, b, c = self.shape
        first = isinstance(self.names, list) and self.names and str(self.names[0]).startswith("channel")
        return (b, c) if first or (a == 3 and c != 3) else (a, b)

    def to_json(self) -> dict[str, Any]:
        """As it stands in info.json."""
        return {"dtype": self.dtype, "shape": list(self.shape), "names": self.names}


@dataclass(frozen=True)
class Info:
    """What info.json says. fps: frames per second, a whole number."""

    version: str
    fps: int
    robot: str | None
    features: dict[str, Feature]
    episodes: int
    frames: int
    data_path: str = DATA_PATH
    film_path: str = FILM_PATH
    chunk: int = CHUNK
    raw: dict[str, Any] = field(default_factory=dict)

    @property
    def films(self) -> list[Feature]:
        """Cameras, in their own order."""
        return [f for f in self.features.values() if f.is_film]

    @property
    def numbers(self) -> list[Feature]:
        """Columns of numbers, those that keep the books included."""
        return [f for f in self.features.values() if f.is_number]

    @property
    def unread(self) -> list[Feature]:
        """What is neither: text, and pictures inside the tables."""
        return [f for f in self.features.values() if not (f.is_film or f.is_number)]


def read_info(root: Path) -> Info:
    """Read and check `meta/info.json`.

    Raises:
        InputError: there is none, it has another version, or an entry is missing or of the wrong kind.
    """
    path = root / "meta" / "info.json"
    if not path.is_file():
        raise InputError(f"{root} is no LeRobot data set", why="it has no meta/info.json")
    raw = read_json(path)
    if not isinstance(raw, dict):
        raise InputError(f"{path} is no table of entries")
    version = raw.get("codebase_version")
    if version not in (V2, V3):
        raise InputError(f"{root} has LeRobot version {version!r}", why=f"{V2} and {V3} are read")
    fps = _count(path, raw, "fps", 1, 1000)
    features = raw.get("features")
    if not isinstance(features, dict) or not features:
        raise InputError(f"{path} names no features")
    chunk = _count(path, raw, "chunks_size", 1, 10**6)
    return Info(
        version, fps, raw.get("robot_type") if isinstance(raw.get("robot_type"), str) else None,
        {name: _feature(path, name, entry) for name, entry in features.items()},
        _count(path, raw, "total_episodes", 1, 10**7), _count(path, raw, "total_frames", 1, MAX_FRAMES),
        str(raw.get("data_path")), str(raw.get("video_path")), chunk, raw,
    )  # fmt: skip


def _count(path: Path, raw: dict[str, Any], key: str, low: int, high: int) -> int:
    value = raw.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{path}: {key} is {value!r}", why=f"a whole number from {low} to {high} is needed")
    return value


def _feature(path: Path, name: str, entry: Any) -> Feature:
    shape = entry.get("shape") if isinstance(entry, dict) else None
    dtype = entry.get("dtype") if isinstance(entry, dict) else None
    sides = isinstance(shape, list) and all(isinstance(s, int) and 0 < s <= 10**5 for s in shape)
    if not isinstance(dtype, str) or not sides or math.prod(shape or ()) > 10**8:
        raise InputError(f"{path}: feature {name!r} needs a dtype and a shape", why=f"got {entry!r:.100}")
    assert isinstance(shape, list)
    if dtype == "video" and len(shape) != 3:
        raise InputError(f"{path}: camera {name!r} has shape {shape}", why="height, width and channels are needed")
    if name in BOOKKEEPING and (dtype != BOOKKEEPING[name] or math.prod(shape) != 1):
        raise InputError(
            f"{path}: {name} is {dtype} {shape}", why=f"{BOOKKEEPING[name]} [1] is what every reader takes"
        )
    return Feature(name, dtype, tuple(shape), entry.get("names"))


def place(root: Path, template: str, **values: int | str) -> Path:
    """The file a template names, inside `root`.

    Raises:
        InputError: the template asks for something else than `values`, or leads out of the folder.
    """

    def put(match: re.Match[str]) -> str:
        key, width = match.group(1), match.group(2)
        if key not in values:
            raise InputError(f"{root}: the file name {template!r} asks for {key!r}", why=f"known: {', '.join(values)}")
        value = values[key]
        return f"{value:0{int(width)}d}" if width and isinstance(value, int) else str(value)

    name = _FIELD.sub(put, template)
    if "{" in name or "}" in name:
        raise InputError(f"{root}: {template!r} is no name of a file", why="only {key} and {key:03d} are understood")
    return inside(root, name)


def make_info(
    fps: int, robot: str, features: list[Feature], episodes: int, frames: int, tasks: int, films: dict[str, Any]
) -> dict[str, Any]:
    """info.json of version 3.0. films: camera -> its entry "info" (codec and the like)."""
    entries = {f.name: f.to_json() | ({"info": films[f.name]} if f.is_film else {}) for f in features}
    for name, dtype in BOOKKEEPING.items():
        entries[name] = {"dtype": dtype, "shape": [1], "names": None}
    return {
        "codebase_version": V3,
        "robot_type": robot,
        "total_episodes": episodes,
        "total_frames": frames,
        "total_tasks": tasks,
        "chunks_size": CHUNK,
        "data_files_size_in_mb": DATA_MB,
        "video_files_size_in_mb": FILM_MB,
        "fps": fps,
        "splits": {"train": f"0:{episodes}"},
        "data_path": DATA_PATH,
        "video_path": FILM_PATH if films else None,
        "features": entries,
    }


def numbered(count: int) -> dict[str, int]:
    """Chunk and file of the count-th file."""
    return {"chunk_index": count // CHUNK, "file_index": count % CHUNK}


def numpy_dtype(feature: Feature) -> np.dtype[Any]:
    """The numpy type of a column of numbers."""
    return np.dtype(feature.dtype)
