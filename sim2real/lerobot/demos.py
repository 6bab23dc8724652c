"""A data set -> demonstrations to clone from: `sim2real train --data`."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recon.core.errors import InputError
from recon.core.events import Event, Message, Progress, StageFinished, StageStarted
from recon.core.files import MANIFEST, read_json, sha256_file, verify_folder
from rl.bc import Demonstrations
from rl.types import Packed, shrink
from sim2real.env import SplatVectorEnv
from sim2real.lerobot.bring import described
from sim2real.lerobot.check import check_features, check_rows
from sim2real.lerobot.index import Collection, Episode, Films, Rows, open_collection
from sim2real.lerobot.layout import ACTION, PICTURES, STATE
from sim2real.lerobot.recorder import PRIVILEGED, features_of


def fingerprint(folder: Path) -> str:
    """16 hex digits that change when the data set does: of its manifest, or of info.json where it has none.

    Raises:
        InputError: there is no data set.
    """
    for name in (MANIFEST, "meta/info.json"):
        if (folder / name).is_file():
            return sha256_file(folder / name)[:16]
    raise InputError(f"{folder} is no LeRobot data set", why="it has no meta/info.json")


def demonstrations(
    folder: Path, env: SplatVectorEnv, image_size: int, size: int
) -> Generator[Event, None, Demonstrations]:
    """Read a data set of either version; returns `Demonstrations` for a policy that acts in `env`.

    Args:
        image_size: Side to which pictures are reduced, px: the network's.
        size: Side of the pictures the policy will see, px.

    Raises:
        InputError: the data set is damaged, or its state, actions, cameras or pictures are not the environment's.
    """
    collection = open_collection(folder)
    check_features(collection)
    if (folder / MANIFEST).is_file():
        verify_folder(folder)
    yield from described(collection)
    _check_fits(collection, env, size)
    yield from _warn_strangers(collection, env)
    began, count = time.monotonic(), len(collection.episodes)
    yield StageStarted("read", count)
    rows, films = Rows(collection), Films(collection)
    parts: list[tuple[torch.Tensor, dict[str, Any]]] = []
    for episode in collection.episodes:
        columns = rows.read(episode)
        check_rows(collection, episode, columns)
        if np.abs(columns[ACTION]).max() > 1.0:
            raise InputError(
                f"{episode.table}: episode {episode.index} has actions up to {np.abs(columns[ACTION]).max():.3g}",
                why="actions here are fractions of a step, from -1 to 1",
            )
        parts.append((_pictures(collection, films, episode, env, image_size), columns))
        yield Progress("read", len(parts), count)
    yield StageFinished("read", time.monotonic() - began, {"frames": float(collection.info.frames)})
    return _joined(parts, env)


def _check_fits(collection: Collection, env: SplatVectorEnv, size: int) -> None:
    features, root = collection.info.features, collection.root
    wanted = features_of(env.task, env.arm.joints, list(env.painters), size)
    for name in (STATE, ACTION, *(PICTURES + camera for camera in env.painters)):
        found = features.get(name)
        if found is None:
            near = ", ".join(features)
            raise InputError(f"{root} has no {name!r}", why=f"it has {near}", fix="Choose cameras with --cameras.")
        if (found.dtype, found.shape) != (wanted[name].dtype, wanted[name].shape):
            raise InputError(
                f"{root}: {name!r} is {found.dtype} {list(found.shape)}",
                why=f"this task, robot and preset need {wanted[name].dtype} {list(wanted[name].shape)}",
            )
    if collection.info.fps != env.task.control.hz:
        raise InputError(
            f"{root} has {collection.info.fps} frames per second",
            why=f"task {env.task.task!r} is controlled {env.task.control.hz} times per second",
        )


def _warn_strangers(collection: Collection, env: SplatVectorEnv) -> Generator[Event, None, None]:
    note = collection.root / "meta" / "sim2real.json"
    made_for = read_json(note) if note.is_file() else {}
    if not isinstance(made_for, dict) or made_for.get("task_hash") != env.task.hash:
        yield Message("warning", f"{collection.root} does not say that it was recorded for this very task")
    if PRIVILEGED not in collection.info.features:
        yield Message("warning", f"{collection.root} has no {PRIVILEGED!r}: the critic starts from first states only")


def _pictures(
    collection: Collection, films: Films, episode: Episode, env: SplatVectorEnv, image_size: int
) -> torch.Tensor:
    """uint8 [T, K, h, h, 3] of an episode, reduced to what the network takes."""
    cameras = []
    for name in env.painters:
        camera = collection.info.features[PICTURES + name]
        frames = [
            shrink(torch.from_numpy(frame)[None], image_size) for frame in films.frames(episode, camera)
        ]  # reduced one by one: the whole episode may be large
        cameras.append(torch.cat(frames))
    if not cameras:
        return torch.zeros((episode.length, 0, image_size, image_size, 3), dtype=torch.uint8, device="cpu")
    return torch.stack(cameras, dim=1)


def _joined(parts: list[tuple[torch.Tensor, dict[str, Any]]], env: SplatVectorEnv) -> Demonstrations:
    def column(name: str) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([columns[name] for _, columns in parts]))

    lengths = torch.tensor([len(pictures) for pictures, _ in parts], device="cpu")
    actions = column(ACTION)
    first, _ = env.reset()
    privileged = torch.from_numpy(first["privileged"])
    if all(PRIVILEGED in columns and columns[PRIVILEGED].shape[1] == privileged.shape[1] for _, columns in parts):
        privileged = column(PRIVILEGED)
    else:  # what the environment's first states show has about the right scale
        privileged = privileged[torch.arange(len(actions), device="cpu") % len(privileged)]
    seen = Packed(torch.cat([pictures for pictures, _ in parts]), column(STATE), privileged)
    episode = torch.repeat_interleave(torch.arange(len(parts), device="cpu"), lengths)
    return Demonstrations(seen, actions, episode)
