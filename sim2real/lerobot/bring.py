"""`sim2real import`: check a data set, say what it holds, bring version 2.1 to 3.0."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from recon.core.errors import UsageError
from recon.core.events import Artifact, Event, Message, Progress, StageFinished, StageStarted
from recon.core.files import MANIFEST, publishing, verify_folder
from sim2real.config import ImportOptions
from sim2real.lerobot.assembly import assemble
from sim2real.lerobot.check import check_everything, check_features
from sim2real.lerobot.index import Collection, open_collection
from sim2real.lerobot.layout import BOOKKEEPING, V3


def bring(options: ImportOptions) -> Iterator[Event]:
    """Check and, where needed, convert; yields events, the last one the data set's `Artifact`.

    Raises:
        InputError: the data set is damaged or contradicts itself. UsageError: there is nothing to write, or no room.
    """
    root = options.folder
    collection = open_collection(root)
    check_features(collection)
    if (root / MANIFEST).is_file():
        verify_folder(root)
    yield from described(collection)
    if collection.info.version == V3:
        if options.out is not None:
            raise UsageError(f"{root} has version 3.0 already", fix="Leave --out away: it can be used where it is.")
        yield from _stage("check", check_everything(collection), collection)
        yield Artifact("data set", root)
        return
    out = options.out or Path(f"{root.resolve()}-v3")
    if out.exists():
        raise UsageError(f"{out} exists already", fix="Choose another --out, or remove it.")
    with publishing(out, overwrite=False) as stage:
        yield from _stage("convert", assemble(collection, stage, collection.info.robot or "unknown"), collection)
    yield Artifact("data set", out)


def _stage(name: str, work: Iterator[int], collection: Collection) -> Iterator[Event]:
    began, total = time.monotonic(), collection.info.episodes
    yield StageStarted(name, total)
    for done in work:
        yield Progress(name, done, total)
    seconds = time.monotonic() - began
    yield StageFinished(name, seconds, {"frames_per_s": collection.info.frames / max(seconds, 1e-9)})


def described(collection: Collection) -> Iterator[Event]:
    """What a data set holds, in a few lines."""
    info = collection.info
    seconds = info.frames / info.fps
    yield Message(
        "info",
        f"{collection.root}: LeRobot {info.version}, {info.episodes} episodes, {info.frames} frames at {info.fps} per "
        f"second ({seconds / 60:.1f} min), robot {info.robot or 'not named'}",
    )
    tasks = "; ".join(repr(task) for task in collection.tasks[:5])
    yield Message("info", f"tasks: {tasks}{' ...' if len(collection.tasks) > 5 else ''}")
    columns = [f"{f.name} {f.dtype} {list(f.shape)}" for f in info.numbers if f.name not in BOOKKEEPING]
    yield Message("info", f"columns: {', '.join(columns) or 'none'}")
    cameras = [f"{f.name} {f.picture[1]}x{f.picture[0]}" for f in info.films]
    yield Message("info", f"cameras: {', '.join(cameras) or 'none'}")
    for feature in info.unread:
        yield Message("warning", f"{feature.name} is left out: {feature.dtype} is neither numbers nor a video")
