"""A part of a vector environment in a process of its own: it answers requests, each one message of wire.py.

As a program, `python -m sim2real.shard IN OUT` reads them from one file descriptor and answers on another: 8 bytes of
length, then the message. It ends when its input does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

import gymnasium
import numpy as np

from recon.core.config import from_dict
from recon.core.errors import ReconError
from sim2real.scenarios import Scenario
from sim2real.wire import LENGTH, packed, unpacked


class Shard:
    """Environments first .. first + count - 1 of `total`; each does what it would do among all of them."""

    def __init__(self) -> None:
        self.env: Any = None

    def answer(self, message: bytes) -> bytes:
        """The reply to one request: {"value": ...}, or {"error": [class, what, why, fix]}."""
        request = unpacked(message)
        try:
            return packed({"value": getattr(self, "do_" + request.pop("do"))(**request)})
        except ReconError as error:
            return packed({"error": [type(error).__name__, error.what, error.why, error.fix]})

    def do_open(
        self, scene: str, task: dict[str, Any], cell: dict[str, Any], env: dict[str, Any], first: int, count: int,
        total: int,
    ) -> dict[str, Any]:  # fmt: skip
        """Open the scene; tells the spaces of one environment."""
        from sim2real.env import SplatVectorEnv
        from sim2real.tasks.spec import Task
        from sim2real.workcell import chosen_cameras, open_workcell

        robot = None if cell["robot"] is None else Path(cell["robot"])
        workcell = open_workcell(Path(scene), from_dict(Task, task), **{**cell, "robot": robot})
        cameras = chosen_cameras(workcell, env.pop("cameras"))
        self.env = SplatVectorEnv(workcell, count, cameras=cameras, part=(first, total), **env)
        return {
            "observation": _told(self.env.single_observation_space),
            "action": _told(self.env.single_action_space),
        }

    def do_reset(self, seed: int | None, scenarios: list[dict[str, Any]] | None) -> list[Any]:
        """Start an episode in each."""
        options = None if scenarios is None else {"scenarios": _scenarios(scenarios)}
        return list(self.env.reset(seed=seed, options=options))

    def do_resume(self, seed: int, scenarios: list[dict[str, Any]] | None, episodes: np.ndarray[Any, Any]) -> list[Any]:
        """Start these episodes over, in the stream of that seed or among those scenarios."""
        self.env.seed_value = seed
        self.env.scenarios = None if scenarios is None else _scenarios(scenarios)
        return list(self.env.begin_at(episodes))

    def do_step(self, actions: np.ndarray[Any, Any]) -> list[Any]:
        """One control step."""
        return list(self.env.step(actions))

    def do_expert(self) -> np.ndarray[Any, Any]:
        """What the scripted expert would do."""
        wanted: np.ndarray[Any, Any] = self.env.expert_action()
        return wanted

    def do_get_state(self) -> dict[str, Any]:
        """As `SplatVectorEnv.get_state`."""
        state: dict[str, Any] = self.env.get_state()
        return state

    def do_set_state(self, state: dict[str, Any]) -> None:
        """As `SplatVectorEnv.set_state`."""
        self.env.set_state(state)


def _scenarios(plain: list[dict[str, Any]]) -> list[Scenario]:
    return [from_dict(Scenario, one) for one in plain]


def _told(space: gymnasium.Space[Any]) -> dict[str, Any]:
    """A space of our environments as plain values."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {"dict": {name: _told(part) for name, part in space.spaces.items()}}
    assert isinstance(space, gymnasium.spaces.Box)
    return {"box": [float(space.low.min()), float(space.high.max()), list(space.shape), space.dtype.str]}


def space_told(told: dict[str, Any]) -> gymnasium.Space[Any]:
    """The space that a shard told."""
    if "dict" in told:
        return gymnasium.spaces.Dict({name: space_told(part) for name, part in told["dict"].items()})
    low, high, shape, kind = told["box"]
    return gymnasium.spaces.Box(low, high, tuple(shape), np.dtype(kind).type)


def read_message(source: BinaryIO) -> bytes | None:
    """The next message, None at the end of the stream, also where it ends in the midst of one."""
    head = source.read(LENGTH)
    if len(head) < LENGTH:
        return None
    size = int.from_bytes(head, "little")
    data = source.read(size)
    return data if len(data) == size else None


def write_message(sink: BinaryIO, data: bytes) -> None:
    """Send a message. Raises OSError when nobody reads."""
    sink.write(len(data).to_bytes(LENGTH, "little"))
    sink.write(data)
    sink.flush()


def main() -> None:
    """Answer until the input ends."""
    shard = Shard()
    with os.fdopen(int(sys.argv[1]), "rb") as source, os.fdopen(int(sys.argv[2]), "wb") as sink:
        while (message := read_message(source)) is not None:
            write_message(sink, shard.answer(message))


if __name__ == "__main__":
    main()
