"""Episodes while they are played, and the working folder that keeps the finished ones.

000012.parquet   rows of scenario 12; written last, so where it is the films are
000012/CAMERA.mp4
000012.failed    scenario 12 was played and is not kept
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recon.core.files import write_bytes
from recon.core.seeding import numpy_generator
from sim2real.control import action_names
from sim2real.env import SplatVectorEnv
from sim2real.evaluate import Actor
from sim2real.lerobot.film import encode_film
from sim2real.lerobot.index import Clip, Collection, Episode
from sim2real.lerobot.layout import ACTION, BOOKKEEPING, PICTURES, STATE, V3, Feature, Info
from sim2real.lerobot.table import frame_table, open_table, write_table
from sim2real.observe import privileged_names, proprio_names
from sim2real.scenarios import Scenario
from sim2real.tasks.spec import Task

PRIVILEGED = "privileged"  # not "observation...": whoever trains a policy on the set must not show it the answer
Frame = dict[str, Any]


def features_of(task: Task, joints: Sequence[str], cameras: Sequence[str], size: int) -> dict[str, Feature]:
    """What a data set of ours holds. joints: names of the arm's joints; size: side of the pictures, px."""
    state, answer = proprio_names(task, joints), privileged_names(task)
    actions = action_names(task.control, joints)
    listed = [
        Feature(STATE, "float32", (len(state),), state),
        Feature(ACTION, "float32", (len(actions),), actions),
        Feature(PRIVILEGED, "float32", (len(answer),), answer),
        Feature("next.reward", "float32", (1,)),
        Feature("next.success", "bool", (1,)),
        Feature("next.done", "bool", (1,)),
        *(Feature(PICTURES + c, "video", (size, size, 3), ["height", "width", "channels"]) for c in cameras),
        *(Feature(name, BOOKKEEPING[name], (1,)) for name in ("timestamp", "frame_index")),
    ]
    return {feature.name: feature for feature in listed}


class Recorder:
    """Plays scenarios and keeps finished episodes in `work`.

    known: scenarios played. kept: those of them whose episode is there, in order. failed: how many are not.
    """

    def __init__(self, env: SplatVectorEnv, actor: Actor, work: Path, noise: float, failures: bool) -> None:
        self.env, self.actor, self.work, self.noise, self.failures = env, actor, work, noise, failures
        self._kept = {int(path.stem) for path in work.glob("*.parquet")}
        self._failed = {int(path.stem) for path in work.glob("*.failed")}

    @property
    def known(self) -> set[int]:
        """Scenarios played so far, in this run or one before."""
        return self._kept | self._failed

    @property
    def kept(self) -> list[int]:
        """Scenarios whose episode is kept, in order."""
        return sorted(self._kept)

    @property
    def failed(self) -> int:
        """Number of scenarios played and not kept."""
        return len(self._failed)

    def play(self, scenarios: list[Scenario]) -> Iterator[int]:
        """Play each once; yields the scenario of every episode that has ended and been put away."""
        env, count = self.env, len(scenarios)
        if count == 0:
            return
        left = {scenario.index for scenario in scenarios}
        observation, info = env.reset(options={"scenarios": scenarios})
        frames: list[list[Frame]] = [[] for _ in range(env.num_envs)]
        while left:
            running = info["scenario"]
            action = self.actor(env, observation)
            done_with = self._noisy(action, running, [len(part) for part in frames])
            seen = [self._seen(observation, action, row) for row in range(env.num_envs)]
            observation, reward, terminated, truncated, info = env.step(done_with)
            done = terminated | truncated
            for row in range(env.num_envs):
                success = bool(info["success"][row])
                seen[row] |= {"next.reward": reward[row], "next.success": success, "next.done": bool(done[row])}
                frames[row].append(seen[row])
            for row in np.flatnonzero(done).tolist():
                number = int(running[row])
                if number in left:
                    left.discard(number)
                    good = not info["diverged"][row] and (self.failures or bool(info["success"][row]))
                    self._put_away(number, frames[row], good)
                    yield number
                frames[row] = []

    def _noisy(self, action: NDArray[np.float32], scenarios: NDArray[np.int64], steps: list[int]) -> NDArray[Any]:
        if self.noise == 0.0:
            return action
        seed, size = self.env.seed_value, action.shape[1]
        draws = [
            numpy_generator(seed, step, f"collect/noise/{scenario}").normal(0.0, self.noise, size)
            for scenario, step in zip(scenarios.tolist(), steps, strict=True)
        ]
        return action + np.stack(draws)

    def _seen(self, observation: dict[str, Any], action: NDArray[np.float32], row: int) -> Frame:
        frame: Frame = {f"{PICTURES}{name}": images[row] for name, images in observation["rgb"].items()}
        frame |= {STATE: observation["proprio"][row], PRIVILEGED: observation["privileged"][row]}
        return frame | {ACTION: action[row].copy()}

    def _put_away(self, number: int, frames: list[Frame], good: bool) -> None:
        if not good:
            write_bytes(self.work / f"{number:06d}.failed", b"")
            self._failed.add(number)
            return
        length, hz = len(frames), self.env.task.control.hz
        folder = self.work / f"{number:06d}"
        folder.mkdir(exist_ok=True)
        for name in self.env.painters:
            pictures = np.stack([frame[PICTURES + name] for frame in frames])
            write_bytes(folder / f"{name}.mp4", encode_film(pictures, hz))
        columns = {name: np.stack([frame[name] for frame in frames]) for name in (STATE, ACTION, PRIVILEGED)}
        columns["next.reward"] = np.array([frame["next.reward"] for frame in frames], np.float32)
        columns |= {name: np.array([frame[name] for frame in frames], bool) for name in ("next.success", "next.done")}
        columns["timestamp"] = (np.arange(length) / hz).astype(np.float32)
        columns["frame_index"] = np.arange(length)
        write_table(self.work / f"{number:06d}.parquet", frame_table(columns))
        self._kept.add(number)


def kept_collection(work: Path, kept: Sequence[int], features: dict[str, Feature], hz: int, task: str) -> Collection:
    """The episodes of a working folder, by scenario, as a data set that `assemble` can take."""
    cameras = [f.name for f in features.values() if f.is_film]
    episodes = []
    for index, number in enumerate(kept):
        path = work / f"{number:06d}.parquet"
        clips = {name: Clip(work / f"{number:06d}" / f"{name.removeprefix(PICTURES)}.mp4") for name in cameras}
        episodes.append(Episode(index, open_table(path, ["frame_index"]).num_rows, (task,), path, 0, clips))
    frames = sum(e.length for e in episodes)
    return Collection(work, Info(V3, hz, None, features, len(kept), frames), [task], episodes)
