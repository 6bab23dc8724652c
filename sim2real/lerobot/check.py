"""Whether the rows and films of an episode are what the index says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recon.core.errors import InputError
from sim2real.lerobot.film import OFF_BEAT
from sim2real.lerobot.index import Collection, Episode, Films, Rows
from sim2real.lerobot.layout import BOOKKEEPING


def check_features(collection: Collection) -> None:
    """Refuse a data set that lacks the columns every reader relies on.

    Raises:
        InputError: names the column.
    """
    for name in BOOKKEEPING:
        if name not in collection.info.features:
            raise InputError(f"{collection.root}: info.json has no feature {name!r}")


def check_rows(collection: Collection, episode: Episode, columns: dict[str, NDArray[Any]]) -> None:
    """Refuse rows that are not finite, not at the stated rate, not numbered on, or of an unknown task.

    Raises:
        InputError: names file, episode, column and row.
    """
    where = f"{episode.table}: episode {episode.index}"
    for name, rows in columns.items():
        if rows.dtype.kind == "f" and not np.isfinite(rows).all():
            bad = int(np.flatnonzero(~np.isfinite(rows).reshape(len(rows), -1).all(axis=1))[0])
            raise InputError(f"{where}, row {bad}: {name!r} is not finite", fix="Leave the episode out.")
    fps, frames = collection.info.fps, np.arange(episode.length)
    off = np.abs(columns["timestamp"].reshape(-1).astype(np.float64) * fps - frames)
    if (off > OFF_BEAT).any():
        bad = int(np.argmax(off > OFF_BEAT))
        raise InputError(
            f"{where}, row {bad}: timestamp is {float(columns['timestamp'].reshape(-1)[bad]):.4f} s",
            why=f"at the {fps} frames per second of info.json it must be {bad / fps:.4f} s",
        )
    first = collection.firsts[episode.index]
    expected = {"frame_index": frames, "episode_index": np.full(episode.length, episode.index), "index": first + frames}
    for name, wanted in expected.items():
        if name not in columns:  # an episode fresh from an environment is not numbered yet
            continue
        wrong = np.flatnonzero(columns[name].reshape(-1) != wanted)
        if len(wrong):
            bad = int(wrong[0])
            raise InputError(f"{where}, row {bad}: {name} is {int(columns[name].reshape(-1)[bad])}, not {wanted[bad]}")
    tasks = columns.get("task_index", np.zeros(1, np.int64)).reshape(-1)
    if tasks.min() < 0 or tasks.max() >= len(collection.tasks):
        raise InputError(f"{where}: task_index reaches {int(tasks.max())}", why=f"{len(collection.tasks)} are listed")


def check_everything(collection: Collection) -> Iterator[int]:
    """Read every row and decode every frame; yields the number of episodes done.

    Raises:
        InputError: at the first thing that is wrong.
    """
    rows, films = Rows(collection), Films(collection)
    for episode in collection.episodes:
        check_rows(collection, episode, rows.read(episode))
        for camera in collection.info.films:
            for _ in films.frames(episode, camera):
                pass
        yield episode.index + 1
