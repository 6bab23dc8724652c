"""Behaviour cloning: do what the demonstrations did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recon.core.checkpoint import latest_checkpoint, save_checkpoint
from recon.core.config import to_dict
from recon.core.errors import DivergedError, InputError, UsageError
from recon.core.events import Event, Message, Progress, StageFinished, StageStarted
from recon.core.seeding import torch_generator
from rl.nets import ActorCritic
from rl.training import pack_module, pack_optimiser, unpack_module, unpack_optimiser
from rl.types import Observation, Packed, VectorEnv, obs_spec, pack


@dataclass(frozen=True)
class BCConfig:
    """Hyper-parameters.

    Attributes:
        steps: Gradient steps.
        minibatch: Samples per step.
        lr: Adam's rate, decayed to zero along a cosine.
        weight_decay: Decoupled weight decay.
        shift: Random shift of each picture, as a fraction of its side; 0 turns it off.
        held_out: Fraction of episodes kept for validation.
        seed: All randomness comes from it.
        report_every, checkpoint_every: Steps between progress events, and between checkpoints.
    """

    steps: int = 600
    minibatch: int = 128
    lr: float = 1e-3
    weight_decay: float = 1e-4
    shift: float = 0.0
    held_out: float = 0.1
    seed: int = 0
    report_every: int = 50
    checkpoint_every: int = 200

    def __post_init__(self) -> None:
        for name in ("steps", "minibatch", "lr", "report_every", "checkpoint_every"):
            if not getattr(self, name) > 0:
                raise UsageError(f"bc.{name} is {getattr(self, name)}", why="it must be positive")
        if not 0.0 <= self.shift < 0.5 or not 0.0 <= self.held_out < 1.0:
            raise UsageError(f"bc.shift is {self.shift} and bc.held_out {self.held_out}", why="[0, 0.5) and [0, 1)")


@dataclass
class Demonstrations:
    """M steps of demonstration: what was seen, what was done, in which episode."""

    seen: Packed
    actions: torch.Tensor  # [M, A]
    episode: torch.Tensor  # [M] int64

    def __len__(self) -> int:
        return len(self.actions)

    def split(self, held_out: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return row indices (train, validation); whole episodes go to one side."""
        episodes = torch.unique(self.episode)
        order = episodes[torch.randperm(len(episodes), generator=torch_generator(seed, 0, "rl/bc/split"), device="cpu")]
        kept_out = torch.isin(self.episode, order[: int(held_out * len(episodes))])
        return torch.nonzero(~kept_out).squeeze(1), torch.nonzero(kept_out).squeeze(1)


def record(
    env: VectorEnv,
    expert: Callable[[Observation], Any],
    episodes: int,
    image_size: int,
    *,
    seed: int = 0,
    only_success: bool = True,
    max_steps: int = 100_000,
) -> Demonstrations:
    """Let an expert act and keep `episodes` finished (and, where known, successful) episodes.

    Each environment gives the same number (the last round may be cut): keeping those that
    finish first would keep the short ones.

    Args:
        expert: Observation to actions [N, A]; it may look into the environment.
        image_size: Side to which pictures are reduced [px]: the network's `image_size`.
        max_steps: Give up after this many environment steps (N per call of `env.step`).

    Raises:
        InputError: Too few episodes within `max_steps`.
    """
    obs, _ = env.reset(seed=seed)
    spec = obs_spec(obs)
    running: list[list[tuple[Packed, torch.Tensor]]] = [[] for _ in range(env.num_envs)]
    kept: list[list[list[tuple[Packed, torch.Tensor]]]] = [[] for _ in range(env.num_envs)]
    quota = -(-episodes // env.num_envs)
    steps = 0
    while min(map(len, kept)) < quota and steps < max_steps:
        actions = torch.as_tensor(np.asarray(expert(obs)), dtype=torch.float32, device="cpu").clamp(-1.0, 1.0)
        packed = pack(obs, spec, image_size)
        for row in range(env.num_envs):
            index = torch.tensor([row], device="cpu")
            running[row].append((packed.select(index), actions[row : row + 1].clone()))
        obs, _, terminated, truncated, info = env.step(actions.numpy())
        steps += env.num_envs
        for row in np.flatnonzero(np.asarray(terminated) | np.asarray(truncated)).tolist():
            good = not only_success or "success" not in info or bool(info["success"][row])
            if good and len(kept[row]) < quota:
                kept[row].append(running[row])
            running[row] = []
    if min(map(len, kept)) < quota:
        raise InputError(
            f"the expert finished {sum(map(len, kept))} of {episodes} episodes in {steps} steps",
            fix="Check the expert, or allow more steps.",
        )
    rounds = [kept[row][k] for k in range(quota) for row in range(env.num_envs)]
    return _join(rounds[:episodes])


def _join(episodes: list[list[tuple[Packed, torch.Tensor]]]) -> Demonstrations:
    steps = [step for episode in episodes for step in episode]
    seen = Packed(
        torch.cat([packed.images for packed, _ in steps]),
        torch.cat([packed.proprio for packed, _ in steps]),
        torch.cat([packed.privileged for packed, _ in steps]),
    )
    labels = [torch.full((len(episode),), k, dtype=torch.int64, device="cpu") for k, episode in enumerate(episodes)]
    return Demonstrations(seen, torch.cat([action for _, action in steps]), torch.cat(labels))


def clone(
    net: ActorCritic, demos: Demonstrations, config: BCConfig | None = None, checkpoints: Path | None = None
) -> Iterator[Event]:
    """Fit the network's mean action to the demonstrations; a generator of events.

        L = mean over samples and action values of (mean(s) - a)^2

    The observation statistics and the mean pictures are set from the demonstrations and then stay. With
    `checkpoints`, an interrupted run continues there, bit for bit on a CPU.

    Raises:
        DivergedError: The loss is not finite.
        UsageError: The checkpoint was written under another configuration.
    """
    config = config or BCConfig()
    began = time.monotonic()
    train, validation = demos.split(config.held_out, config.seed)
    if len(train) == 0:
        raise InputError("there are no demonstrations to clone")
    yield StageStarted("clone", config.steps)
    net.proprio_stats.update(demos.seen.proprio[train].to(net.device))
    net.privileged_stats.update(demos.seen.privileged[train].to(net.device))
    if net.encoder is not None:
        net.encoder.see(demos.seen.images[train])
    parameters = [*net.actor.parameters(), *net.actor_out.parameters(), *net.encoder_parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=config.lr, weight_decay=config.weight_decay)
    start, losses = 0, []
    if checkpoints and (saved := latest_checkpoint(checkpoints)):
        _resume(net, optimiser, saved.tensors, saved.state, config)
        start = saved.step
        yield Message("info", f"clone continues at step {start}")
    for step in range(start, config.steps):
        set_cosine(optimiser, config.lr, step, config.steps)
        losses.append(_clone_step(net, optimiser, demos, train, config, step))
        done = step + 1
        if checkpoints and (done % config.checkpoint_every == 0 or done == config.steps):
            tensors = pack_module("net", net) | pack_optimiser("optimiser", optimiser)
            save_checkpoint(checkpoints, done, tensors, {"config": to_dict(config)})
        if done % config.report_every == 0 or done == config.steps:
            yield Progress("clone", done, config.steps, {"loss": sum(losses) / len(losses)})
            losses = []
    metrics = {"train_loss": action_error(net, demos, train)}
    if len(validation):
        metrics["validation_loss"] = action_error(net, demos, validation)
    yield StageFinished("clone", time.monotonic() - began, metrics)


def set_cosine(optimiser: torch.optim.Optimizer, lr: float, step: int, steps: int) -> None:
    """Set every group's rate to lr (1 + cos(pi step / steps)) / 2."""
    for group in optimiser.param_groups:
        group["lr"] = lr * 0.5 * (1.0 + float(np.cos(np.pi * step / steps)))


def _resume(
    net: ActorCritic, optimiser: torch.optim.Optimizer, tensors: dict[str, torch.Tensor], state: dict, config: BCConfig
) -> None:
    if state.get("config") != to_dict(config):
        raise UsageError(
            "the checkpoint was written under another configuration", fix="Use its folder's, or choose another folder."
        )
    unpack_module("net", net, tensors)
    unpack_optimiser("optimiser", optimiser, tensors)


def _clone_step(
    net: ActorCritic,
    optimiser: torch.optim.Optimizer,
    demos: Demonstrations,
    train: torch.Tensor,
    config: BCConfig,
    step: int,
) -> float:
    generator = torch_generator(config.seed, step, "rl/bc/batch")
    chosen = torch.randint(len(train), (config.minibatch,), generator=generator, device="cpu")
    rows = train[chosen]
    batch = demos.seen.select(rows)
    if config.shift:
        batch.images = random_shift(batch.images, config.shift, generator)
    mean = net.mean(net.features(batch.to(net.device)))
    loss = (mean - demos.actions[rows].to(net.device)).square().mean()
    value = float(loss.detach())
    if not np.isfinite(value):
        raise DivergedError(
            f"the cloning loss is {value} at step {step}", fix="Lower bc.lr or check the demonstrations."
        )
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()
    return value


def random_shift(images: torch.Tensor, fraction: float, generator: torch.Generator) -> torch.Tensor:
    """Shift each picture of uint8 [B, K, h, w, 3] by up to `fraction` of its side; edges are repeated."""
    batch, cameras, height, width = images.shape[:4]
    limit = round(fraction * height)
    if limit == 0 or cameras == 0:
        return images
    moves = torch.randint(-limit, limit + 1, (2, batch, cameras), generator=generator, device="cpu")
    rows = (torch.arange(height, device="cpu") + moves[0, ..., None]).clamp(0, height - 1)  # [B, K, h]
    columns = (torch.arange(width, device="cpu") + moves[1, ..., None]).clamp(0, width - 1)  # [B, K, w]
    b = torch.arange(batch, device="cpu")[:, None, None, None]
    k = torch.arange(cameras, device="cpu")[None, :, None, None]
    return images[b, k, rows[..., :, None], columns[..., None, :]]


@torch.no_grad()
def action_error(net: ActorCritic, demos: Demonstrations, rows: torch.Tensor, chunk: int = 512) -> float:
    """Return the mean squared action error over the given rows."""
    total = 0.0
    for part in rows.split(chunk):
        mean = net.mean(net.features(demos.seen.select(part).to(net.device)))
        total += float((mean - demos.actions[part].to(net.device)).square().mean(dim=-1).sum())
    return total / max(1, len(rows))
