"""Episodes with a film and a table each -> a folder of version 3.0.

What is being collected and what is converted from version 2.1 both come as such episodes. Their packets are copied, so
no picture loses anything; pictures are decoded all the same, for the statistics, and that shows a damaged film.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recon.core.errors import InputError
from recon.core.files import write_json
from sim2real.lerobot.check import check_rows
from sim2real.lerobot.film import Look, join_films, look_at
from sim2real.lerobot.index import Collection, Episode, Films, Rows
from sim2real.lerobot.layout import (
    BOOKKEEPING,
    DATA_MB,
    DATA_PATH,
    EPISODES_PATH,
    FILM_MB,
    FILM_PATH,
    TASKS_PATH,
    Feature,
    make_info,
    numbered,
    place,
)
from sim2real.lerobot.summary import Summary, Tones, summarise
from sim2real.lerobot.table import frame_table, write_table

MB = 2**20
Entry = dict[str, Any]


def assemble(collection: Collection, stage: Path, robot: str) -> Iterator[int]:
    """Write the data set into the empty folder `stage`; yields the number of episodes done.

    Raises:
        InputError: an episode is not what its index says.
    """
    info = collection.info
    entries: list[Entry] = [{} for _ in collection.episodes]
    columns: dict[str, list[NDArray[Any]]] = {}
    tones = {f.name: Tones() for f in info.films}
    films, tables = Films(collection), _Tables(stage)
    rows = Rows(collection)
    for episode, entry in zip(collection.episodes, entries, strict=True):
        part = rows.read(episode)
        check_rows(collection, episode, part)
        part |= _books(collection, episode, part)
        entry |= _head(collection, episode, part) | tables.add(part)
        for name, value in part.items():
            columns.setdefault(name, []).append(value)
            entry |= _flat(name, summarise(value))
        for camera in info.films:
            own = Tones()
            own.add(films.frames(episode, camera))
            tones[camera.name].merge(own)
            entry |= _flat(camera.name, own.summary())
        yield episode.index + 1
    tables.close()
    looks = {camera.name: _write_films(collection, camera, stage, entries) for camera in info.films}
    totals = {name: summarise(np.concatenate(parts)) for name, parts in columns.items()}
    totals |= {name: tone.summary() for name, tone in tones.items()}
    _write_meta(collection, stage, robot, entries, totals, looks)


def _books(collection: Collection, episode: Episode, part: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The numbers that say where rows stand in the whole; episodes fresh from an environment have none."""
    return {
        "episode_index": np.full(episode.length, episode.index, np.int64),
        "index": collection.firsts[episode.index] + np.arange(episode.length),
        "task_index": part.get("task_index", np.zeros(episode.length, np.int64)),
    }


def _head(collection: Collection, episode: Episode, part: dict[str, NDArray[Any]]) -> Entry:
    first = int(part["index"].reshape(-1)[0])
    used = sorted(set(part["task_index"].reshape(-1).tolist()))
    return {
        "episode_index": episode.index,
        "tasks": [collection.tasks[k] for k in used],
        "length": episode.length,
        "dataset_from_index": first,
        "dataset_to_index": first + episode.length,
        "meta/episodes/chunk_index": 0,
        "meta/episodes/file_index": 0,
    }


def _flat(name: str, summary: Summary) -> Entry:
    return {f"stats/{name}/{key}": value.tolist() for key, value in summary.items()}


class _Tables:
    """Writes the rows of episodes one after another into files of bounded size, a row group each."""

    def __init__(self, stage: Path) -> None:
        self.stage, self.count, self.bytes = stage, 0, 0
        self.writer: pq.ParquetWriter | None = None

    def add(self, part: dict[str, NDArray[Any]]) -> Entry:
        table = frame_table(part)
        if self.writer is not None and self.bytes + table.nbytes > DATA_MB * MB:
            self.close()
            self.count, self.bytes = self.count + 1, 0
        at = numbered(self.count)
        if self.writer is None:
            path = place(self.stage, DATA_PATH, **at)
            path.parent.mkdir(parents=True, exist_ok=True)
            self.writer = pq.ParquetWriter(path, table.schema, compression="snappy")
        self.writer.write_table(table)
        self.bytes += table.nbytes
        return {f"data/{key}": value for key, value in at.items()}

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


def _write_films(collection: Collection, camera: Feature, stage: Path, entries: list[Entry]) -> Look:
    """Join a camera's films into files of bounded size; films of another make begin a new file."""
    fps, name = collection.info.fps, camera.name
    groups: list[list[tuple[Path, int]]] = []
    look: Look | None = None
    size, start = 0, 0
    for episode, entry in zip(collection.episodes, entries, strict=True):
        path = episode.clips[name].path
        own, weight = look_at(path), path.stat().st_size
        if not groups or own != look or size + weight > FILM_MB * MB:
            groups.append([])
            look, size, start = own, 0, 0
        groups[-1].append((path, episode.length))
        size += weight
        entry |= {f"videos/{name}/{key}": value for key, value in numbered(len(groups) - 1).items()}
        entry |= {f"videos/{name}/from_timestamp": start / fps}
        start += episode.length
        entry |= {f"videos/{name}/to_timestamp": start / fps}
    for number, group in enumerate(groups):
        join_films(group, place(stage, FILM_PATH, video_key=name, **numbered(number)), fps)
    if look is None:
        raise InputError(f"{collection.root} has no episodes")
    return look


def _write_meta(
    collection: Collection, stage: Path, robot: str, entries: list[Entry], totals: dict[str, Summary],
    looks: dict[str, Look],
) -> None:  # fmt: skip
    info = collection.info
    kept = [f for f in (*info.numbers, *info.films) if f.name not in BOOKKEEPING]
    films = {name: look.to_json(info.fps) for name, look in looks.items()}
    header = make_info(info.fps, robot, kept, len(entries), info.frames, len(collection.tasks), films)
    listed = pa.table({key: [entry[key] for entry in entries] for key in entries[0]})
    write_table(place(stage, EPISODES_PATH, **numbered(0)), listed)
    write_table(place(stage, TASKS_PATH), tasks_table(collection.tasks))
    write_json(stage / "meta" / "stats.json", totals)
    write_json(stage / "meta" / "info.json", header)


def tasks_table(tasks: list[str]) -> pa.Table:
    """task_index by instruction; the note for pandas makes the instruction its index, where LeRobot looks for it."""
    table = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), "task": pa.array(tasks, pa.string())})
    column = {"field_name": "task", "metadata": None, "name": "task", "numpy_type": "object", "pandas_type": "unicode"}
    number = {"name": "task_index", "numpy_type": "int64", "pandas_type": "int64"}
    note = {
        "column_indexes": [], "columns": [number | {"field_name": "task_index", "metadata": None}, column],
        "creator": {"library": "pyarrow", "version": pa.__version__}, "index_columns": ["task"],
        "pandas_version": "2.2.0",
    }  # fmt: skip
    return table.replace_schema_metadata({"pandas": json.dumps(note)})
