"""One decision held for several environment steps: fewer decisions, shorter credit."""

from __future__ import annotations

from typing import Any

import numpy as np

from recon.core.errors import UsageError
from rl.types import Observation, VectorEnv


class HoldActions:
    """A vector environment whose step repeats the action `hold` times.

        R = sum_{i < hold} gamma^i r_i, up to and including the step that ends the episode

    An environment that finishes within the hold is already in its next episode
    (SAME_STEP); it is given zero actions for the rest of the hold, and their rewards
    belong to no decision and are dropped. Discount a decision by gamma^hold.
    """

    def __init__(self, env: VectorEnv, hold: int, gamma: float = 1.0) -> None:
        if hold < 1:
            raise UsageError(f"hold is {hold}", why="an action is held for at least one step")
        self.env, self.hold, self.gamma = env, hold, gamma
        self.num_envs, self.metadata = env.num_envs, env.metadata
        if hasattr(env, "get_state"):  # between decisions the wrapper itself has no state
            self.get_state, self.set_state = env.get_state, env.set_state  # type: ignore[attr-defined]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict]:
        """Start all episodes anew; (observation, info)."""
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Hold `actions` [N, A]; (observation, reward R [N], terminated [N], truncated [N], info)."""
        actions = np.array(actions, dtype=np.float32)
        total = np.zeros(self.num_envs, dtype=np.float32)
        terminated, truncated, success = (np.zeros(self.num_envs, dtype=bool) for _ in range(3))
        final: Observation | None = None
        knows_success = False
        for i in range(self.hold):
            before = terminated | truncated
            obs, reward, ended, cut, info = self.env.step(actions)
            fresh = (np.asarray(ended) | np.asarray(cut)) & ~before
            again = (np.asarray(ended) | np.asarray(cut)) & before
            if again.any():
                raise UsageError(
                    f"environments {np.flatnonzero(again).tolist()} finished twice within a hold of {self.hold}",
                    fix="Use a shorter hold.",
                )
            total += np.where(before, 0.0, self.gamma**i * np.asarray(reward)).astype(np.float32)
            terminated |= np.asarray(ended) & fresh
            truncated |= np.asarray(cut) & fresh
            if "success" in info:
                knows_success = True
                success |= np.asarray(info["success"]) & fresh
            if fresh.any() and "final_obs" in info:
                final = copy_rows(final, info["final_obs"], fresh)
                actions[fresh] = 0.0
        out: dict[str, Any] = {"success": success} if knows_success else {}
        if final is not None:
            out["final_obs"], out["_final_obs"] = final, terminated | truncated
        return obs, total, terminated, truncated, out


def copy_rows(into: Observation | None, source: Observation, rows: np.ndarray) -> Observation:
    """Return `into` with the given rows taken from `source` (a copy of `source` when `into` is None)."""
    if into is None:
        return {k: copy_rows(None, v, rows) if isinstance(v, dict) else np.array(v) for k, v in source.items()}
    for key, value in source.items():
        if isinstance(value, dict):
            copy_rows(into[key], value, rows)
        else:
            into[key][rows] = np.asarray(value)[rows]
    return into
