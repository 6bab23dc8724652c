"""One vector environment spread over worker processes, or Ray actors: the same bits as all of it in this process.

A worker that dies is started again, with the episodes it was playing from their beginning. The step in which it died
tells of its environments: truncated, nothing won, "lost" and "diverged" in the info (so that nobody counts it for or
against a policy), and the last observation that came from it as the final one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from recon.core import errors
from recon.core.errors import ReconError, UnavailableError, UsageError
from sim2real.env import Observation, checked_actions
from sim2real.scenarios import Scenario
from sim2real.shard import read_message, space_told, write_message
from sim2real.wire import packed, unpacked

RESTARTS = 5  # of one worker, one after the other, without an answer in between


class WorkerDied(Exception):
    """A worker gave no answer and will give none."""


class Worker(Protocol):
    """Answers requests one after the other. Both raise WorkerDied."""

    def send(self, message: bytes) -> None:
        """Ask."""
        ...

    def receive(self) -> bytes:
        """Wait for the answer."""
        ...

    def stop(self) -> None:
        """End it, if it still runs."""
        ...


class ProcessWorker:
    """A shard in a process of its own, on `threads` threads."""

    def __init__(self, threads: int) -> None:
        theirs, self_out = os.pipe()
        self_in, answers = os.pipe()
        surroundings = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "sim2real.shard", str(theirs), str(answers)]
        self.process = subprocess.Popen(command, pass_fds=(theirs, answers), env=surroundings, stdin=subprocess.DEVNULL)
        os.close(theirs)
        os.close(answers)
        self._out, self._in = os.fdopen(self_out, "wb"), os.fdopen(self_in, "rb")

    def send(self, message: bytes) -> None:
        """Ask."""
        try:
            write_message(self._out, message)
        except OSError as error:
            raise WorkerDied from error

    def receive(self) -> bytes:
        """Wait for the answer."""
        answer = read_message(self._in)
        if answer is None:
            raise WorkerDied
        return answer

    def stop(self) -> None:
        """End it, if it still runs."""
        self.process.kill()
        self.process.wait()
        for pipe in (self._out, self._in):
            try:
                pipe.close()
            except OSError:  # what was not sent cannot be
                continue


class RayWorker:
    """A shard in a Ray actor. Raises UnavailableError where Ray is not installed."""

    def __init__(self, threads: int) -> None:
        try:
            import ray
        except ImportError as error:
            raise UnavailableError(
                "ray is not installed", why=str(error), fix="pip install 'recon4d[ray]', or use workers= alone."
            ) from error
        from sim2real.shard import Shard

        self._ray = ray
        if not ray.is_initialized():
            ray.init(include_dashboard=False, log_to_driver=False)
        settings = {"env_vars": {"OMP_NUM_THREADS": str(threads)}}
        self.actor = ray.remote(num_cpus=0, runtime_env=settings)(Shard).remote()
        self._asked: Any = None

    def send(self, message: bytes) -> None:
        """Ask."""
        self._asked = self.actor.answer.remote(message)

    def receive(self) -> bytes:
        """Wait for the answer."""
        try:
            answer: bytes = self._ray.get(self._asked)
        except self._ray.exceptions.RayActorError as error:
            raise WorkerDied from error
        return answer

    def stop(self) -> None:
        """End it, if it still runs."""
        self._ray.kill(self.actor)


class CrewVectorEnv(gymnasium.vector.VectorEnv):
    """As `SplatVectorEnv`, of a scene in a folder, its environments spread evenly over `workers`.

    opening: what each shard is opened with (see `Shard.do_open`). info has "lost" [N] besides.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}

    def __init__(self, opening: dict[str, Any], num_envs: int, workers: int, *, ray: bool = False) -> None:
        if not 1 <= workers <= num_envs:
            raise UsageError(f"{workers} workers for {num_envs} environments", fix="at least one environment each")
        self.num_envs, self.seed_value = num_envs, int(opening["env"]["seed"])
        self._opening, self._kind = opening, RayWorker if ray else ProcessWorker
        edges = [num_envs * k // workers for k in range(workers + 1)]
        self.parts = [slice(a, b) for a, b in zip(edges, edges[1:], strict=False)]
        self._threads = max(1, (os.cpu_count() or 1) // workers)
        self._scenarios: list[dict[str, Any]] | None = None
        self._episode = np.full(num_envs, -1)  # that each environment is playing
        self._last: list[Observation | None] = [None] * workers
        self.restarts = 0
        self.crew: list[Worker] = [self._kind(self._threads) for _ in self.parts]
        try:
            told = self._ask_all([self._request_open(k) for k in range(workers)])[0]
        except ReconError:
            self.close_extras()
            raise
        self.single_observation_space = space_told(told["observation"])
        self.single_action_space = space_told(told["action"])
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)

    # ------------------------------------------------------------------ what a vector environment does

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """As `SplatVectorEnv.reset`."""
        scenarios: list[Scenario] | None = (options or {}).get("scenarios")
        if seed is not None or scenarios is not None:
            self._episode[:] = -1
        if seed is not None:
            self.seed_value = int(seed)
        plain = None if scenarios is None else [scenario.plain() for scenario in scenarios]
        self._scenarios = plain if plain is not None else self._scenarios
        self._episode += 1
        request = {"do": "reset", "seed": seed, "scenarios": plain}
        answers = self._ask_all([request] * len(self.crew), self._restarted)
        return self._joined([answer[0] for answer in answers]), self._info([answer[1] for answer in answers])

    def step(
        self, actions: Any
    ) -> tuple[Observation, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """As `SplatVectorEnv.step`."""
        action = checked_actions(actions, self.num_envs, self.single_action_space.shape[0])  # type: ignore[index]
        requests = [{"do": "step", "actions": action[part]} for part in self.parts]
        answers = self._ask_all(requests, self._lost)
        for k, part in enumerate(self.parts):
            done = answers[k][2] | answers[k][3]
            self._episode[part] += done & ~answers[k][4]["lost"] if "lost" in answers[k][4] else done
        observation = self._joined([answer[0] for answer in answers])
        reward, terminated, truncated = (np.concatenate([answer[i] for answer in answers]) for i in (1, 2, 3))
        return observation, reward, terminated, truncated, self._info([answer[4] for answer in answers])

    def expert_action(self) -> NDArray[np.float32]:
        """As `SplatVectorEnv.expert_action`; zeros where a worker has just been started again."""
        size = self.single_action_space.shape[0]  # type: ignore[index]

        def nothing(k: int) -> NDArray[np.float32]:
            self._restarted(k)
            return np.zeros((len(self._episode[self.parts[k]]), size), np.float32)

        return np.concatenate(self._ask_all([{"do": "expert"}] * len(self.crew), nothing))

    def get_state(self) -> dict[str, NDArray[Any]]:
        """As `SplatVectorEnv.get_state`: the same arrays, whatever the number of workers."""
        states = self._ask_all([{"do": "get_state"}] * len(self.crew))
        seed = states[0].pop("seed")
        return {name: np.concatenate([state[name] for state in states]) for name in states[0]} | {"seed": seed}

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        """As `SplatVectorEnv.set_state`."""
        parts = [{name: a if name == "seed" else a[part] for name, a in state.items()} for part in self.parts]
        self._ask_all([{"do": "set_state", "state": part} for part in parts])
        self._episode[:], self.seed_value = state["episode"], int(state["seed"][0])

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers."""
        for worker in self.crew:
            worker.stop()

    # ------------------------------------------------------------------ workers

    def _request_open(self, k: int) -> dict[str, Any]:
        part = self.parts[k]
        return {"do": "open", **self._opening, "first": part.start, "count": part.stop - part.start,
                "total": self.num_envs}  # fmt: skip

    def _ask_all(self, requests: Sequence[dict[str, Any]], instead: Any = None) -> list[Any]:
        """The answers, all workers at work at once; instead(k) for a worker that died. Raises what a shard raises."""
        died = set()
        for k, request in enumerate(requests):
            try:
                self.crew[k].send(packed(request))
            except WorkerDied:
                died.add(k)
        answers: list[Any] = [None] * len(requests)
        failure: ReconError | None = None
        for k in range(len(requests)):
            try:
                if k in died:
                    raise WorkerDied
                answers[k] = _value(self.crew[k].receive())
            except WorkerDied as error:
                if instead is None:
                    raise UnavailableError(
                        f"worker {k} of the environment died",
                        why="it gave no answer",
                        fix="Is there memory for all of them?",
                    ) from error
                answers[k] = instead(k)
            except ReconError as error:
                failure = error
        if failure is not None:
            raise failure
        return answers

    def _restarted(self, k: int) -> list[Any]:
        """Worker k started again at the beginning of its episodes: observation and info."""
        part = self.parts[k]
        resume = {
            "do": "resume",
            "seed": self.seed_value,
            "scenarios": self._scenarios,
            "episodes": self._episode[part],
        }
        for _ in range(RESTARTS):
            self.restarts += 1
            self.crew[k].stop()
            self.crew[k] = self._kind(self._threads)
            try:
                for request in (self._request_open(k), resume):
                    self.crew[k].send(packed(request))
                    answer = _value(self.crew[k].receive())
            except WorkerDied:
                continue
            return list(answer)
        raise UnavailableError(
            f"worker {k} of the environment died {RESTARTS} times in a row", fix="Is there memory for all of them?"
        )

    def _lost(self, k: int) -> list[Any]:
        """What a step gives for the environments of a worker that died in it."""
        observation, info = self._restarted(k)
        count = len(self._episode[self.parts[k]])
        no, yes = np.zeros(count, bool), np.ones(count, bool)
        final = self._last[k] or observation
        told = {"success": no, "distance": np.full(count, np.nan), "diverged": yes, "lost": yes, "_final_obs": yes,
                "final_obs": final, "final_scenario": info["scenario"], "scenario": info["scenario"]}  # fmt: skip
        return [observation, np.zeros(count), no, yes, told]

    def _joined(self, parts: list[Observation]) -> Observation:
        self._last = list(parts)
        joined: Observation = _concatenated(parts)
        return joined

    def _info(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        """One info; what only some parts tell is filled up with zeros."""
        sizes = [part.stop - part.start for part in self.parts]
        for part, size in zip(parts, sizes, strict=True):
            part.setdefault("lost", np.zeros(size, bool))
        info: dict[str, Any] = {}
        for key in dict.fromkeys(key for part in parts for key in part):
            values = [part.get(key) for part in parts]
            known = next(value for value in values if value is not None)
            if isinstance(known, np.ndarray):
                blank = [np.zeros((size, *known.shape[1:]), known.dtype) for size in sizes]
                info[key] = np.concatenate([b if v is None else v for v, b in zip(values, blank, strict=True)])
            elif key == "final_obs":
                info[key] = _concatenated(values)
            else:
                info[key] = known
        return info


def _value(answer: bytes) -> Any:
    """What a shard answered. Raises the error that it met."""
    told = unpacked(answer)
    if "error" not in told:
        return told["value"]
    name, what, why, fix = told["error"]
    raise getattr(errors, name, ReconError)(what, why=why, fix=fix)


def _concatenated(parts: list[Any]) -> Any:
    if isinstance(parts[0], dict):
        return {key: _concatenated([part[key] for part in parts]) for key in parts[0]}
    return np.concatenate(parts)
