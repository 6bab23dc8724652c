"""A folder of version 2.1 or 3.0 -> its episodes, and where the rows and frames of each lie."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recon.core.errors import InputError
from recon.core.files import inside, read_bytes
from sim2real.lerobot.film import read_film
from sim2real.lerobot.layout import TASKS_PATH, V2, Feature, Info, place, read_info
from sim2real.lerobot.table import open_table, values

MAX_LINES_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Clip:
    """Part of a film, from frame `start` on."""

    path: Path
    start: int = 0


@dataclass(frozen=True)
class Episode:
    """length: frames. table, row: the parquet file of its rows and the first of them. clips: by camera."""

    index: int
    length: int
    tasks: tuple[str, ...]
    table: Path
    row: int
    clips: dict[str, Clip]


@dataclass(frozen=True)
class Collection:
    """A data set on disk. tasks: instructions by task_index. episodes: in order."""

    root: Path
    info: Info
    tasks: list[str]
    episodes: list[Episode]

    @cached_property
    def firsts(self) -> list[int]:
        """Number of the first frame of each episode, counted over all."""
        return list(accumulate((e.length for e in self.episodes), initial=0))[:-1]


def open_collection(root: Path) -> Collection:
    """Read the index of a data set; its tables and films are not opened yet.

    Raises:
        InputError: not a data set of version 2.1 or 3.0, or its index contradicts itself; one line says where.
    """
    if not root.is_dir():
        raise InputError(f"there is no folder {root}")
    info = read_info(root)
    tasks, episodes = _older(root, info) if info.version == V2 else _newer(root, info)
    if [e.index for e in episodes] != list(range(info.episodes)):
        raise InputError(
            f"{root}: the index lists {len(episodes)} episodes", why=f"info.json says 0 to {info.episodes - 1}"
        )
    frames = sum(e.length for e in episodes)
    if frames != info.frames:
        raise InputError(f"{root}: the episodes have {frames} frames", why=f"info.json says {info.frames}")
    return Collection(root, info, tasks, episodes)


def _older(root: Path, info: Info) -> tuple[list[str], list[Episode]]:
    listed = _lines(root / "meta" / "tasks.jsonl", {"task_index": int, "task": str})
    tasks = _numbered_tasks(root, [(entry["task_index"], entry["task"]) for entry in listed])
    episodes = []
    for entry in _lines(root / "meta" / "episodes.jsonl", {"episode_index": int, "tasks": list, "length": int}):
        number = entry["episode_index"]
        at: dict[str, int | str] = {"episode_chunk": number // info.chunk, "episode_index": number}
        clips = {f.name: Clip(place(root, info.film_path, video_key=f.name, **at)) for f in info.films}
        names = tuple(str(task) for task in entry["tasks"])
        _positive(root, number, entry["length"])
        episodes.append(Episode(number, entry["length"], names, place(root, info.data_path, **at), 0, clips))
    return tasks, episodes


def _lines(path: Path, kinds: dict[str, type]) -> list[dict[str, Any]]:
    entries = []
    for number, line in enumerate(read_bytes(path, MAX_LINES_BYTES).splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number} is not JSON", why=str(error)[:100]) from error
        for key, kind in kinds.items():
            if not isinstance(entry, dict) or not isinstance(entry.get(key), kind) or entry[key] is True:
                raise InputError(f"{path}, line {number}: {key!r} is missing or no {kind.__name__}")
        entries.append(entry)
    return entries


def _numbered_tasks(root: Path, listed: list[tuple[int, str]]) -> list[str]:
    listed = sorted(listed)
    if not listed or [number for number, _ in listed] != list(range(len(listed))):
        raise InputError(f"{root}: tasks are not numbered from 0", why=f"got {[n for n, _ in listed][:5]}")
    return [name for _, name in listed]


def _positive(root: Path, episode: int, length: int) -> None:
    if length < 1:
        raise InputError(f"{root}: episode {episode} has {length} frames")


def _newer(root: Path, info: Info) -> tuple[list[str], list[Episode]]:
    path = inside(root, TASKS_PATH)
    table = open_table(path, max_rows=10**6)
    kinds = dict(zip(table.column_names, table.schema.types, strict=True))
    names = [name for name, kind in kinds.items() if pa.types.is_string(kind) or pa.types.is_large_string(kind)]
    if len(names) != 1 or not pa.types.is_integer(kinds.get("task_index", pa.null())):
        raise InputError(f"{path} is no table of tasks", why=f"its columns are {', '.join(table.column_names)}")
    tasks = _numbered_tasks(root, list(zip(table["task_index"].to_pylist(), table[names[0]].to_pylist(), strict=True)))
    paths = sorted((root / "meta" / "episodes").glob("*/*.parquet"))
    if not paths:
        raise InputError(f"{root} has no meta/episodes/*/*.parquet")
    episodes: list[Episode] = []
    filled: dict[Path, int] = {}  # rows given away per table
    for path in paths:
        for entry in _entries(path, info):
            episodes.append(_episode(root, info, entry, filled))
    return tasks, episodes


def _entries(path: Path, info: Info) -> Iterator[dict[str, Any]]:
    whole = ["episode_index", "length", "data/chunk_index", "data/file_index"]
    for film in info.films:
        whole += [f"videos/{film.name}/chunk_index", f"videos/{film.name}/file_index"]
    starts = [f"videos/{film.name}/from_timestamp" for film in info.films]
    table = open_table(path, ["tasks", *whole, *starts], max_rows=info.episodes)
    for name in whole:
        if not pa.types.is_integer(table[name].type) or table[name].null_count:
            raise InputError(f"{path}: column {name!r} must hold whole numbers")
    for name in starts:
        if not pa.types.is_floating(table[name].type) or not np.isfinite(table[name].to_numpy()).all():
            raise InputError(f"{path}: column {name!r} must hold times")
    yield from table.to_pylist()


def _episode(root: Path, info: Info, entry: dict[str, Any], filled: dict[Path, int]) -> Episode:
    def at(prefix: str) -> dict[str, int]:
        return {key: int(entry[f"{prefix}/{key}"]) for key in ("chunk_index", "file_index")}

    number, length = int(entry["episode_index"]), int(entry["length"])
    _positive(root, number, length)
    table = place(root, info.data_path, **at("data"))
    row = filled.get(table, 0)
    filled[table] = row + length
    clips = {}
    for film in info.films:
        path = place(root, info.film_path, video_key=film.name, **at(f"videos/{film.name}"))
        clips[film.name] = Clip(path, round(entry[f"videos/{film.name}/from_timestamp"] * info.fps))
    names = entry["tasks"] if isinstance(entry["tasks"], list) else [entry["tasks"]]
    return Episode(number, length, tuple(map(str, names)), table, row, clips)


class Rows:
    """The numbers of a data set, episode by episode; the last table stays open."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self._path: Path | None = None
        self._table: pa.Table | None = None

    def read(self, episode: Episode, only: list[Feature] | None = None) -> dict[str, NDArray[Any]]:
        """Columns [length, *shape] of an episode.

        Raises:
            InputError: the table is missing, damaged or too short, or a column is not what info.json says.
        """
        info = self.collection.info
        if self._path != episode.table or self._table is None:
            self._table = open_table(episode.table, [f.name for f in info.numbers], max_rows=info.frames)
            self._path = episode.table
        if self._table.num_rows < episode.row + episode.length:
            raise InputError(
                f"{episode.table} has {self._table.num_rows} rows",
                why=f"episode {episode.index} needs rows {episode.row} to {episode.row + episode.length - 1}",
            )
        part = self._table.slice(episode.row, episode.length)
        return {f.name: values(part, f, episode.table) for f in only or info.numbers}


class Films:
    """The pictures of a data set, episode by episode; films are read on, not opened again, where episodes follow."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self._open: dict[str, tuple[Path, Iterator[NDArray[np.uint8]], int]] = {}

    def frames(self, episode: Episode, camera: Feature) -> Iterator[NDArray[np.uint8]]:
        """The frames [H, W, 3] uint8 RGB of an episode, `length` of them.

        Raises:
            InputError: as `read_film`, or the film ends too soon.
        """
        clip = episode.clips[camera.name]
        path, film, position = self._open.pop(camera.name, (None, iter(()), 0))
        if path != clip.path or position > clip.start:
            film, position = read_film(clip.path, self.collection.info.fps, camera.picture), 0
        while position < clip.start + episode.length:
            frame = next(film, None)
            if frame is None:
                raise InputError(
                    f"{clip.path} ends after {position} frames",
                    why=f"episode {episode.index} needs {clip.start} to {clip.start + episode.length - 1}",
                )
            position += 1
            if position > clip.start:
                yield frame
        self._open[camera.name] = (clip.path, film, position)
