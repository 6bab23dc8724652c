"""A small cloning and PPO run that every device must repeat: what `recon doctor` trains on a device to be tried.

The task is made up on the spot: move a point onto a target that only one small picture shows. All random numbers are
drawn on the CPU, so devices differ by the rounding of their kernels and by nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from recon.core.events import Progress, StageFinished
from rl.bc import BCConfig, clone, record
from rl.nets import ActorCritic, NetConfig, build
from rl.ppo import PPOConfig
from rl.runner import RunConfig, train
from rl.types import ActionSpec, obs_spec

SIZE, ENVS, LIMIT, RADIUS = 16, 8, 12, 0.15
NET = NetConfig(image_size=16, channels=8, hidden=(32,))
CLONE = BCConfig(steps=30, minibatch=32, report_every=10, held_out=0.25)
IMPROVE = PPOConfig(epochs=2, value_epochs=1, minibatch=64, warmup_iterations=1, encoder_lr=1e-4)
RUN = RunConfig(total_steps=3 * ENVS * 16, horizon=16)
EPISODES = 16


class Reach:
    """N points in the square, each to be moved onto its target; SAME_STEP autoreset."""

    def __init__(self) -> None:
        self.num_envs = ENVS
        self.metadata: dict[str, Any] = {"autoreset_mode": "SAME_STEP"}
        self._line = (np.arange(SIZE, dtype=np.float32) + 0.5) * (2.4 / SIZE) - 1.2

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict]:
        """Start all episodes; equal seeds give equal ones."""
        self._random = np.random.default_rng(seed)
        self._point, self._target = self._random.uniform(-0.9, 0.9, (2, ENVS, 2)).astype(np.float32)
        self._elapsed = np.zeros(ENVS, dtype=np.int64)
        return self._observe(), {}

    def step(self, actions: np.ndarray) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Move the points by 0.2 of the actions; the reward is how much nearer they came."""
        before = np.linalg.norm(self._target - self._point, axis=1)
        self._point = (self._point + 0.2 * np.clip(actions, -1, 1)).clip(-1.1, 1.1).astype(np.float32)
        after = np.linalg.norm(self._target - self._point, axis=1)
        self._elapsed += 1
        success = after < RADIUS
        late = (self._elapsed >= LIMIT) & ~success
        info: dict[str, Any] = {"success": success}
        done = np.flatnonzero(success | late)
        if len(done):
            info["final_obs"], info["_final_obs"] = self._observe(), success | late
            self._point[done], self._target[done] = self._random.uniform(-0.9, 0.9, (2, len(done), 2))
            self._elapsed[done] = 0
        return self._observe(), (before - after + success).astype(np.float32), success, late, info

    def expert(self, _: dict[str, Any]) -> np.ndarray:
        """The shortest way."""
        return np.clip((self._target - self._point) / 0.2, -1.0, 1.0).astype(np.float32)

    def _observe(self) -> dict[str, Any]:
        picture = np.full((ENVS, SIZE, SIZE, 3), 60.0, dtype=np.float32)
        for centre, colour in ((self._point, (40, 220, 60)), (self._target, (230, 40, 40))):
            x = np.exp(-0.5 * ((self._line - centre[:, :1]) / 0.12) ** 2)
            y = np.exp(-0.5 * ((self._line - centre[:, 1:]) / 0.12) ** 2)
            blob = (y[:, :, None] * x[:, None, :])[..., None]
            picture = picture * (1 - blob) + blob * np.array(colour, dtype=np.float32)
        return {"rgb": {"top": picture.astype(np.uint8)}, "proprio": self._point.copy()}


def policy(device: torch.device) -> ActorCritic:
    """The untrained network of the run."""
    return build(obs_spec(Reach().reset(seed=0)[0]), ActionSpec(2), NET, device=device)


def curve(device: torch.device) -> dict[str, list[float]]:
    """Clone an expert, then improve by PPO, on `device`; returns losses and rewards in the order they arose."""
    env, net = Reach(), policy(device)
    found: dict[str, list[float]] = {"clone_loss": [], "reward": [], "value_loss": [], "policy_loss": []}
    for event in clone(net, record(env, env.expert, EPISODES, NET.image_size), CLONE):
        if isinstance(event, Progress):
            found["clone_loss"].append(event.metrics["loss"])
        elif isinstance(event, StageFinished):
            found["clone_loss"].append(event.metrics["validation_loss"])
    for event in train(env, net, IMPROVE, RUN):
        if isinstance(event, Progress):
            for name in ("reward", "value_loss", "policy_loss"):
                if name in event.metrics:
                    found[name].append(event.metrics[name])
    return found
