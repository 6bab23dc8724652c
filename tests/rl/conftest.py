"""Toy environments of the kind the trainer is for: reach a point, from state or from pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

torch.set_num_threads(1)


class PointReach:
    """N points in [-1, 1]^2, each to be moved onto its own target; SAME_STEP autoreset, exact states.

    A step moves the point by 0.2 * action. An episode ends in success within `radius`
    of the target and is cut after `limit` steps. `size` > 0: the target is seen only
    in one camera picture of `size` pixels, otherwise proprioception holds it.
    """

    def __init__(
        self, num_envs: int = 8, size: int = 0, radius: float = 0.1, limit: int = 16, privileged: bool = False
    ):
        self.num_envs, self.size, self.radius, self.limit, self.privileged = num_envs, size, radius, limit, privileged
        self.metadata: dict[str, Any] = {"autoreset_mode": "SAME_STEP"}
        line = (np.arange(max(size, 1), dtype=np.float32) + 0.5) * (2.4 / max(size, 1)) - 1.2
        self.px, self.py = line[None, :], line[None, :]
        self.background = np.random.default_rng(5).uniform(40, 120, (size, size, 3)).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        self.seed = 0 if seed is None else seed
        self.draws = np.zeros(self.num_envs, dtype=np.int64)
        self.point = np.zeros((self.num_envs, 2), dtype=np.float32)
        self.target = np.zeros((self.num_envs, 2), dtype=np.float32)
        self.elapsed = np.zeros(self.num_envs, dtype=np.int64)
        self._restart(np.ones(self.num_envs, dtype=bool))
        return self.observe(), {}

    def _restart(self, rows: np.ndarray) -> None:
        for n in np.flatnonzero(rows):
            random = np.random.default_rng([self.seed, n, self.draws[n]])
            self.point[n], self.target[n] = random.uniform(-0.9, 0.9, (2, 2))
            self.draws[n] += 1
            self.elapsed[n] = 0

    def observe(self) -> dict[str, Any]:
        if not self.size:
            proprio = np.concatenate([self.point, self.target], axis=1)
            return {"rgb": {}, "proprio": proprio.astype(np.float32)}
        obs: dict[str, Any] = {"rgb": {"top": self.draw()}, "proprio": self.point.copy()}
        if self.privileged:
            obs["privileged"] = np.concatenate([self.point, self.target], axis=1).astype(np.float32)
        return obs

    def draw(self) -> np.ndarray:
        image = np.repeat(self.background[None], self.num_envs, axis=0)
        for centre, width, colour in ((self.point, 0.10, (40, 220, 60)), (self.target, 0.08, (230, 40, 40))):
            gx = np.exp(-0.5 * ((self.px - centre[:, :1]) / width) ** 2)  # [N, w]
            gy = np.exp(-0.5 * ((self.py - centre[:, 1:]) / width) ** 2)
            blob = (gy[:, :, None] * gx[:, None, :])[..., None]
            image = image * (1.0 - blob) + blob * np.array(colour, dtype=np.float32)
        return np.clip(image + 0.5, 0, 255).astype(np.uint8)

    def step(self, actions: np.ndarray):
        before = np.linalg.norm(self.target - self.point, axis=1)
        self.point = np.clip(self.point + 0.2 * np.clip(actions, -1, 1), -1.1, 1.1).astype(np.float32)
        after = np.linalg.norm(self.target - self.point, axis=1)
        self.elapsed += 1
        success = after < self.radius
        truncated = (self.elapsed >= self.limit) & ~success
        reward = ((before - after) + 1.0 * success - 0.02).astype(np.float32)
        finished = success | truncated
        info: dict[str, Any] = {"success": success}
        if finished.any():
            info["final_obs"], info["_final_obs"] = self.observe(), finished
            self._restart(finished)
        return self.observe(), reward, success, truncated, info

    def expert(self, obs: dict[str, Any]) -> np.ndarray:
        return np.clip((self.target - self.point) / 0.2, -1, 1).astype(np.float32)

    def get_state(self) -> dict[str, np.ndarray]:
        names = ("draws", "point", "target", "elapsed")
        return {**{name: getattr(self, name).copy() for name in names}, "seed": np.array(self.seed)}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        for name in ("draws", "point", "target", "elapsed"):
            setattr(self, name, np.array(state[name]))
        self.seed = int(state["seed"])


def success_rate(env: PointReach, act, episodes: int = 200, seed: int = 10_001) -> float:
    """Success over the first `episodes` episodes, the same number from each environment."""
    obs, _ = env.reset(seed=seed)
    each = episodes // env.num_envs
    done, won = np.zeros(env.num_envs, dtype=int), np.zeros(env.num_envs, dtype=int)
    while (done < each).any():
        obs, _, terminated, truncated, info = env.step(act(obs))
        finished = (terminated | truncated) & (done < each)
        won += finished & info["success"]
        done += finished
    return float(won.sum() / done.sum())


@pytest.fixture
def point_reach():
    return PointReach


@pytest.fixture
def score():
    return success_rate
