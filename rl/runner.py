"""The loop of on-policy post-training: act, learn, report, save.

`train` is a generator of events. Nothing random is kept between iterations: every
draw comes from (seed, iteration, purpose), so a checkpoint holds the network, the
optimisers, the prior and the environment's state, and resuming is exact.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recon.core.checkpoint import Checkpoint, latest_checkpoint, save_checkpoint
from recon.core.config import to_dict
from recon.core.errors import CorruptError, DivergedError, UsageError
from recon.core.events import Event, Message, Progress, StageFinished, StageStarted
from recon.core.seeding import derive_seed, torch_generator
from rl.buffers import RolloutBuffer
from rl.distributions import clip_action, log_prob, sample
from rl.nets import ActorCritic, build
from rl.ppo import PPO, PPOConfig
from rl.training import pack_module, pack_optimiser, unpack_module, unpack_optimiser
from rl.types import Observation, Packed, VectorEnv, check_autoreset, check_obs, final_observation, pack


@dataclass(frozen=True)
class RunConfig:
    """How long and how often.

    Attributes:
        total_steps: Environment steps (N per call of `env.step`); rounded up to whole iterations.
        horizon: Decisions per environment and iteration.
        seed: All randomness comes from it.
        checkpoint_every: Iterations between checkpoints.
        learn_proprio_stats: Keep updating the observation statistics; leave off after cloning.
    """

    total_steps: int = 20_000
    horizon: int = 32
    seed: int = 0
    checkpoint_every: int = 5
    learn_proprio_stats: bool = False

    def __post_init__(self) -> None:
        for name in ("total_steps", "horizon", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise UsageError(f"run.{name} is {getattr(self, name)}", why="it must be at least 1")


class Trainer:
    """Everything that changes during training, and how it is saved. Use `train`, which drives it."""

    def __init__(self, env: VectorEnv, net: ActorCritic, ppo: PPOConfig, run: RunConfig) -> None:
        check_autoreset(env)
        self.env, self.net, self.ppo_config, self.run = env, net, ppo, run
        self.algorithm = PPO(net, ppo)
        self.prior = build(net.obs, net.action, net.config, device=net.device)  # the policy to stay near
        self.prior.load_state_dict(net.state_dict())
        self.prior.requires_grad_(False)
        self.iteration = 0
        self.obs: Observation = {}

    @property
    def steps(self) -> int:
        """Environment steps taken."""
        return self.iteration * self.run.horizon * self.env.num_envs

    def start(self) -> None:
        """Reset the environment for the first iteration."""
        self.obs, _ = self.env.reset(seed=derive_seed(self.run.seed, 0, "rl/env") % 2**31)
        check_obs(self.obs, self.net.obs, self.env.num_envs)

    def iterate(self) -> dict[str, float]:
        """One rollout and one update; return metrics."""
        began = time.monotonic()
        buffer, metrics = self.rollout()
        acted = time.monotonic()
        if not self.net.log_std().isfinite().all():
            raise DivergedError("the policy's standard deviation is not finite")
        log_std, prior_std = self.net.log_std().detach().clone(), self.prior.log_std().detach()
        metrics |= self.algorithm.update(buffer, log_std, prior_std, self.run.seed, self.iteration)
        if self.run.learn_proprio_stats:
            self.net.proprio_stats.update(buffer.proprio.flatten(0, 1).to(self.net.device))
            self.net.privileged_stats.update(buffer.privileged.flatten(0, 1).to(self.net.device))
        self.iteration += 1
        learned = time.monotonic()
        metrics["time_rollout"], metrics["time_update"] = acted - began, learned - acted
        return metrics

    @torch.no_grad()
    def rollout(self) -> tuple[RolloutBuffer, dict[str, float]]:
        """Act for `horizon` decisions with the current policy."""
        packed = self._pack(self.obs)
        buffer = RolloutBuffer(
            self.run.horizon, self.env.num_envs, self.net.action.size, packed, self.net.feature_size,
            keep_images=self.algorithm.trains_encoder,
        )  # fmt: skip
        generator = torch_generator(self.run.seed, self.iteration, "rl/act")
        log_std, tally = self.net.log_std(), Tally()
        features = self._features(self.net, packed)
        for t in range(self.run.horizon):
            mean = self.net.mean(features)
            action = sample(mean, log_std, generator)
            value = self._value(features, packed)
            prior_mean = self._prior_mean(packed, features)
            buffer.put_decision(t, packed, features, action, log_prob(mean, log_std, action), mean, prior_mean, value)
            self.obs, reward, terminated, truncated, info = self.env.step(clip_action(action).cpu().numpy())
            reward, terminated, truncated = np.asarray(reward), np.asarray(terminated), np.asarray(truncated)
            if not (np.isfinite(reward).all() and np.isfinite(self.obs["proprio"]).all()):
                raise DivergedError(
                    f"the environment returned a reward or proprioception that is not finite at step {self.steps}",
                    fix="Check the physics for instability; no weight was changed.",
                )
            buffer.put_outcome(t, *(torch.as_tensor(x, device="cpu") for x in (reward, terminated, truncated)))
            tally.add(reward, terminated, truncated, info)
            packed = self._pack(self.obs)
            features = self._features(self.net, packed)
            buffer.next_values[t] = self._next_values(features, packed, terminated | truncated, info)
        return buffer, tally.metrics()

    def _pack(self, obs: Observation) -> Packed:
        return pack(obs, self.net.obs, self.net.config.image_size)

    def _features(self, net: ActorCritic, packed: Packed) -> torch.Tensor:
        return net.features(packed.to(net.device))

    def _value(self, features: torch.Tensor, packed: Packed) -> torch.Tensor:
        return self.net.value(features, packed.privileged.to(self.net.device))

    def _prior_mean(self, packed: Packed, features: torch.Tensor) -> torch.Tensor:
        """Mean action of the prior; with a frozen encoder and statistics it shares the features."""
        shared = not self.algorithm.trains_encoder and not self.run.learn_proprio_stats
        return self.prior.mean(features if shared else self._features(self.prior, packed))

    def _next_values(
        self, features: torch.Tensor, packed: Packed, finished: np.ndarray, info: dict[str, Any]
    ) -> torch.Tensor:
        """V of the observation each action led to: of the final one where the episode ended."""
        values = self._value(features, packed).cpu()
        final = final_observation(info, finished, self.net.obs)
        if final is not None:
            rows = torch.as_tensor(np.flatnonzero(finished), device="cpu")
            ended = self._pack(final).select(rows)
            values[rows] = self._value(self._features(self.net, ended), ended).cpu()
        return values

    # -- saving ---------------------------------------------------------------------------------

    def save(self, root: Path) -> Path:
        """Write a checkpoint of the state between two iterations."""
        tensors = pack_module("net", self.net) | pack_module("prior", self.prior)
        tensors |= pack_optimiser("actor", self.algorithm.actor_optimiser)
        tensors |= pack_optimiser("critic", self.algorithm.critic_optimiser)
        tensors |= {f"obs/rgb/{name}": torch.as_tensor(image, device="cpu") for name, image in self.obs["rgb"].items()}
        tensors |= {
            f"obs/{key}": torch.as_tensor(self.obs[key], device="cpu")
            for key in ("proprio", "privileged")
            if key in self.obs
        }
        get_state = getattr(self.env, "get_state", None)
        if get_state is not None:
            tensors |= {
                f"env/{name}": torch.as_tensor(np.asarray(value), device="cpu") for name, value in get_state().items()
            }
        state = {"ppo": to_dict(self.ppo_config), "run": to_dict(self.run), "num_envs": self.env.num_envs}
        return save_checkpoint(root, self.iteration, tensors, state)

    def load(self, checkpoint: Checkpoint) -> bool:
        """Continue from a checkpoint; return whether the continuation is exact (the environment has states)."""
        tensors, state = checkpoint.tensors, checkpoint.state
        mine = {"ppo": to_dict(self.ppo_config), "run": to_dict(self.run), "num_envs": self.env.num_envs}
        theirs = {**state, "run": {**state.get("run", {}), "total_steps": self.run.total_steps}}
        changed = [name for name in mine if theirs.get(name) != mine[name]]
        if changed:
            raise UsageError(
                f"the checkpoint was written with other settings ({', '.join(changed)})",
                fix="Give the same settings (only run.total_steps may change), or choose another folder.",
            )
        unpack_module("net", self.net, tensors)
        unpack_module("prior", self.prior, tensors)
        unpack_optimiser("actor", self.algorithm.actor_optimiser, tensors)
        unpack_optimiser("critic", self.algorithm.critic_optimiser, tensors)
        self.iteration = checkpoint.step
        saved = {key[4:]: value.numpy() for key, value in tensors.items() if key.startswith("env/")}
        set_state = getattr(self.env, "set_state", None)
        if not saved or set_state is None:
            self.obs, _ = self.env.reset(seed=derive_seed(self.run.seed, self.iteration, "rl/env") % 2**31)
            return False
        self.env.reset(seed=0)
        set_state(saved)
        try:
            rgb = {name: tensors[f"obs/rgb/{name}"].numpy() for name, _, _ in self.net.obs.cameras}
            self.obs = {"rgb": rgb, "proprio": tensors["obs/proprio"].numpy()}
        except KeyError as error:
            raise CorruptError(f"the checkpoint lacks the observation {error}") from error
        if "obs/privileged" in tensors:
            self.obs["privileged"] = tensors["obs/privileged"].numpy()
        return True


class Tally:
    """Episodes finished during one rollout."""

    def __init__(self) -> None:
        self.reward, self.count, self.steps, self.successes, self.known = 0.0, 0, 0, 0, 0

    def add(self, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, info: dict[str, Any]) -> None:
        """Count one step of all environments."""
        finished = terminated | truncated
        self.reward += float(reward.mean())
        self.steps += 1
        self.count += int(finished.sum())
        if "success" in info:
            self.known += int(finished.sum())
            self.successes += int(np.asarray(info["success"])[finished].sum())

    def metrics(self) -> dict[str, float]:
        """Mean reward per step, finished episodes, and their share of successes where known."""
        out = {"reward": self.reward / max(1, self.steps), "episodes": float(self.count)}
        if self.known:
            out["success"] = self.successes / self.known
        return out


def train(
    env: VectorEnv,
    net: ActorCritic,
    ppo: PPOConfig | None = None,
    run: RunConfig | None = None,
    *,
    checkpoints: Path | None = None,
) -> Iterator[Event]:
    """Improve `net` in `env` by PPO; a generator of events.

    The network as given is the prior that the leash holds on to. With `checkpoints`
    a run continues from the newest valid one, and closing the generator between two
    events saves first, so Ctrl-C loses nothing.

    Raises:
        DivergedError: NaN or Inf in a reward, an observation, a loss or a gradient.
        UsageError: The environment breaks the protocol, or the checkpoint has other settings.
    """
    trainer = Trainer(env, net, ppo or PPOConfig(), run or RunConfig())
    began = time.monotonic()
    iterations = math.ceil(trainer.run.total_steps / (trainer.run.horizon * env.num_envs))
    total = iterations * trainer.run.horizon * env.num_envs
    yield StageStarted("ppo", total)
    saved = latest_checkpoint(checkpoints) if checkpoints else None
    if saved is None:
        trainer.start()
    else:
        exact = trainer.load(saved)
        for problem in saved.skipped:
            yield Message("warning", f"a damaged checkpoint was skipped: {problem}")
        yield Message("info", f"ppo continues at step {trainer.steps}")
        if not exact:
            yield Message("warning", "the environment has no get_state: it was reset, so this run is not bit-identical")
    metrics: dict[str, float] = {}
    unsaved = False
    try:
        while trainer.iteration < iterations:
            metrics = trainer.iterate()
            unsaved = True
            due = trainer.iteration % trainer.run.checkpoint_every == 0 or trainer.iteration == iterations
            if checkpoints and due:
                trainer.save(checkpoints)
                unsaved = False
            yield Progress("ppo", trainer.steps, total, metrics)
    except GeneratorExit:
        if checkpoints and unsaved:
            trainer.save(checkpoints)
        raise
    yield StageFinished("ppo", time.monotonic() - began, metrics)
