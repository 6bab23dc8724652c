"""Play policies on scenarios they have never seen and keep one record per episode.

All policies meet the same scenarios in the same environment, so their outcomes are paired. An episode in which the
simulation diverged counts for nobody: it is flagged, and left out of every rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from recon.core.events import Event, Progress, StageFinished, StageStarted
from recon.core.seeding import numpy_generator
from sim2real.env import SplatVectorEnv
from sim2real.scenarios import Scenario, ScenarioSet
from sim2real.stats import Paired, Rate, compare_paired, rate
from sim2real.workcell import Workcell

VIDEO_SIDE = 240  # px


class Actor(Protocol):
    """Anything that acts: sees the environment and the observation, gives actions [N, A] in [-1, 1]."""

    def __call__(self, env: SplatVectorEnv, observation: dict[str, Any]) -> NDArray[np.float32]: ...


def expert(env: SplatVectorEnv, observation: dict[str, Any]) -> NDArray[np.float32]:
    """The scripted expert; it reads the target's true position."""
    return env.expert_action()


def zero(env: SplatVectorEnv, observation: dict[str, Any]) -> NDArray[np.float32]:
    """Never moves."""
    return np.zeros((env.num_envs, env.controller.size), np.float32)


def random_actor(seed: int) -> Actor:
    """Uniform actions, reproducible."""
    calls = 0

    def act(env: SplatVectorEnv, observation: dict[str, Any]) -> NDArray[np.float32]:
        nonlocal calls
        calls += 1
        rng = numpy_generator(seed, calls, "random actor")
        return rng.uniform(-1, 1, (env.num_envs, env.controller.size)).astype(np.float32)

    return act


@dataclass(frozen=True)
class Episode:
    """One episode. distance: m at its end; closest: m, the least during it; total: sum of rewards."""

    scenario: int
    success: bool
    steps: int
    total: float
    distance: float
    closest: float
    diverged: bool


@dataclass
class Evaluation:
    """One policy on one scenario set, in scenario order. videos: scenario index -> frames [T, H, W, 3] uint8."""

    name: str
    episodes: list[Episode]
    seconds: float
    steps: int
    videos: dict[int, NDArray[np.uint8]] = field(default_factory=dict)

    @property
    def valid(self) -> list[Episode]:
        """The episodes that count: those whose simulation did not diverge."""
        return [e for e in self.episodes if not e.diverged]

    @property
    def rate(self) -> Rate:
        """Success rate of the valid episodes with its exact interval."""
        return rate(sum(e.success for e in self.valid), len(self.valid))

    def to_json(self) -> dict[str, Any]:
        """Plain values of the JSON twin."""
        return {
            "name": self.name,
            "rate": asdict(self.rate),
            "diverged": len(self.episodes) - len(self.valid),
            "seconds": self.seconds,
            "env_steps": self.steps,
            "episodes": [asdict(e) for e in self.episodes],
        }


def evaluate(
    cell: Workcell,
    scenarios: ScenarioSet,
    actor: Actor,
    name: str,
    *,
    cameras: Sequence[str],
    size: int,
    num_envs: int = 16,
    videos: int = 0,
    done: Callable[[Evaluation], None],
) -> Iterator[Event]:
    """Play every scenario once; a generator of events. The result goes to `done`.

    Args:
        cameras, size: What the policy sees; () for actors that do not look.
        videos: Record the first so many scenarios with a larger picture of the first camera.
    """
    count = len(scenarios.scenarios)
    env = SplatVectorEnv(cell, min(num_envs, count), cameras=cameras, size=size, split="eval")
    stage = f"evaluate {name}"
    yield StageStarted(stage, count)
    began = time.monotonic()
    recorder = _Recorder(env, scenarios.scenarios, videos)
    observation, _ = env.reset(options={"scenarios": scenarios.scenarios})
    recorder.look()
    steps = 0
    while recorder.left:
        observation, reward, terminated, truncated, info = env.step(actor(env, observation))
        steps += env.num_envs
        if recorder.add(reward, terminated | truncated, info):
            yield Progress(stage, count - recorder.left, count, {"success": recorder.success_rate})
    seconds = time.monotonic() - began
    episodes = [recorder.episodes[i] for i in range(count)]
    result = Evaluation(name, episodes, seconds, steps, recorder.videos())
    done(result)
    yield StageFinished(stage, seconds, {"success": result.rate.rate, "env_steps_per_s": steps / max(seconds, 1e-9)})


class _Recorder:
    """Turns the steps of a vector environment into episodes in scenario order."""

    def __init__(self, env: SplatVectorEnv, scenarios: Sequence[Scenario], videos: int) -> None:
        n = env.num_envs
        self.env, self.scenarios = env, scenarios
        self.number = np.arange(n)  # position in the list that each environment plays
        self.total, self.closest, self.steps = np.zeros(n), np.full(n, np.inf), np.zeros(n, np.int64)
        self.episodes: dict[int, Episode] = {}
        self.filmed = range(min(videos, len(scenarios)))
        self.frames: dict[int, list[NDArray[np.uint8]]] = {i: [] for i in self.filmed}
        camera = next(iter(env.painters), None) or env.cell.default_cameras()[0]
        self.film = env.cell.painter(camera, VIDEO_SIDE) if videos else None

    @property
    def left(self) -> int:
        return len(self.scenarios) - len(self.episodes)

    @property
    def success_rate(self) -> float:
        return float(np.mean([e.success for e in self.episodes.values()])) if self.episodes else 0.0

    def look(self) -> None:
        """Film what is running now."""
        if self.film is None:
            return
        for i, number in enumerate(self.number.tolist()):
            if number in self.frames and number not in self.episodes:
                self.frames[number].append(self.env.picture(i, self.film))

    def add(self, reward: NDArray[np.float64], done: NDArray[np.bool_], info: dict[str, Any]) -> bool:
        """Account for one step; whether an episode of the list ended."""
        self.total += reward
        self.steps += 1
        self.closest = np.minimum(self.closest, info["distance"])
        ended = False
        for i in np.flatnonzero(done).tolist():
            number = int(self.number[i])
            if number < len(self.scenarios) and number not in self.episodes:
                ended = True
                self.episodes[number] = Episode(
                    scenario=self.scenarios[number].index,
                    success=bool(info["success"][i]),
                    steps=int(self.steps[i]),
                    total=float(self.total[i]),
                    distance=float(info["distance"][i]),
                    closest=float(self.closest[i]),
                    diverged=bool(info["diverged"][i]),
                )
        self.total[done], self.closest[done], self.steps[done] = 0.0, np.inf, 0
        self.number[done] += self.env.num_envs
        self.look()
        return ended

    def videos(self) -> dict[int, NDArray[np.uint8]]:
        return {self.scenarios[i].index: np.stack(frames) for i, frames in self.frames.items() if frames}


def compare(a: Evaluation, b: Evaluation) -> Paired:
    """Paired comparison of A (the policy) with B (the baseline); pairs in which either diverged are left out."""
    pairs = [(x, y) for x, y in zip(a.episodes, b.episodes, strict=True) if not (x.diverged or y.diverged)]
    return compare_paired([x.success for x, _ in pairs], [y.success for _, y in pairs])
