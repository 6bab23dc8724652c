"""Proximal policy optimisation, made to improve a policy that already works.

Beside the clipped surrogate it has what post-training needs: the value function
learns before the policy moves, the divergence from the policy that acted ends an
update early, and a leash holds the policy near the clone it started from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from recon.core.errors import DivergedError, UsageError
from recon.core.seeding import torch_generator
from rl.buffers import Batch, RolloutBuffer
from rl.distributions import entropy, kl, log_prob
from rl.nets import ActorCritic
from rl.returns import explained_variance, gae, standardise


@dataclass(frozen=True)
class PPOConfig:
    """Hyper-parameters; the defaults suit post-training a clone in 20 000 environment steps.

    Attributes:
        gamma, lam: Discount per decision, and the GAE decay.
        lr, encoder_lr, value_lr: Adam rates of actor head, picture encoder and critic. encoder_lr 0 keeps the clone's
            encoder: an update then takes a sixth of the time and, per step, improves a clone as fast; 1e-4 when
            the pictures change (randomisation) or the clone looks at the wrong things.
        epochs, value_epochs: Passes over a rollout for the policy, and for the critic alone before them.
        minibatch: Samples per gradient step.
        clip: Ratio clip, epsilon.
        value_clip: Largest move of a value per rollout in units of the return's std; 0 turns it off.
        entropy: Weight of the entropy bonus.
        target_kl: Stop the policy's epochs when KL(acted || now) passes it; 0 turns it off.
        prior_kl: Weight of KL(now || prior), the leash to the clone; 0 turns it off.
        prior_half_life: Iterations after which the leash has half its weight; 0 keeps it.
        max_grad_norm: Gradient clip, for actor and critic separately.
        warmup_iterations: Rollouts in which only the critic learns.
        normalise_advantages: Standardise them over the whole rollout.
    """

    gamma: float = 0.97
    lam: float = 0.95
    lr: float = 3e-4
    encoder_lr: float = 0.0
    value_lr: float = 1e-3
    epochs: int = 8
    value_epochs: int = 4
    minibatch: int = 256
    clip: float = 0.2
    value_clip: float = 0.0
    entropy: float = 0.0
    target_kl: float = 0.03
    prior_kl: float = 0.02
    prior_half_life: float = 10.0
    max_grad_norm: float = 0.5
    warmup_iterations: int = 2
    normalise_advantages: bool = True

    def __post_init__(self) -> None:
        for name in ("gamma", "lam"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UsageError(f"ppo.{name} is {getattr(self, name)}", why="it must lie in [0, 1]")
        for name in ("lr", "value_lr", "epochs", "value_epochs", "minibatch", "clip", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise UsageError(f"ppo.{name} is {getattr(self, name)}", why="it must be positive")
        for name in ("encoder_lr", "value_clip", "target_kl", "prior_kl", "prior_half_life", "warmup_iterations"):
            if getattr(self, name) < 0:
                raise UsageError(f"ppo.{name} is {getattr(self, name)}", why="it must not be negative")

    def leash(self, iteration: int) -> float:
        """Return the weight of the leash: prior_kl 2^(-iteration / prior_half_life)."""
        return self.prior_kl * (0.5 ** (iteration / self.prior_half_life) if self.prior_half_life else 1.0)


def policy_loss(ratio: torch.Tensor, advantages: torch.Tensor, clip: float) -> torch.Tensor:
    """Return mean of max(-A r, -A clamp(r, 1 - eps, 1 + eps)), r = pi(a|s) / pi_acted(a|s).  [B] -> []."""
    return torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1.0 - clip, 1.0 + clip)).mean()


def value_loss(values: torch.Tensor, returns: torch.Tensor, old: torch.Tensor, clip: float) -> torch.Tensor:
    """Return half the mean of (V - R)^2, or of max(that, (V_old + clamp(V - V_old, +-clip) - R)^2) when clip > 0."""
    error = (values - returns).square()
    if clip > 0:
        near = old + (values - old).clamp(-clip, clip)
        error = torch.maximum(error, (near - returns).square())
    return 0.5 * error.mean()


class PPO:
    """The update. State: the network and its two Adam optimisers."""

    def __init__(self, net: ActorCritic, config: PPOConfig) -> None:
        self.net, self.config = net, config
        groups = [{"params": net.actor_parameters(), "lr": config.lr}]
        if self.trains_encoder:
            groups.append({"params": net.encoder_parameters(), "lr": config.encoder_lr})
        self.actor_optimiser = torch.optim.Adam(groups, eps=1e-5)
        self.critic_optimiser = torch.optim.Adam(net.critic_parameters(), lr=config.value_lr, eps=1e-5)

    @property
    def trains_encoder(self) -> bool:
        """Whether the update moves the picture encoder too."""
        return self.config.encoder_lr > 0 and self.net.encoder is not None

    def update(
        self, buffer: RolloutBuffer, log_std: torch.Tensor, prior_log_std: torch.Tensor, seed: int, iteration: int
    ) -> dict[str, float]:
        """Learn from one rollout; return metrics.

        Args:
            buffer: A full rollout with `next_values` set.
            log_std: Log standard deviations [A] of the policy that acted.
            prior_log_std: The same of the prior.
            seed, iteration: All the randomness of the update comes from these.

        Raises:
            DivergedError: A loss or gradient is not finite. The network keeps its last finite weights.
        """
        config = self.config
        buffer.advantages, buffer.returns = gae(
            buffer.rewards, buffer.values, buffer.next_values, buffer.terminations, buffer.truncations,
            config.gamma, config.lam,
        )  # fmt: skip
        fit = explained_variance(buffer.values, buffer.returns)
        if config.normalise_advantages:
            buffer.advantages = standardise(buffer.advantages)
        self.net.critic_out.update(buffer.returns.to(self.net.device))
        metrics = {"explained_variance": fit, "value_loss": self._learn_values(buffer, seed, iteration)}
        if iteration >= config.warmup_iterations:
            metrics |= self._learn_policy(buffer, log_std, prior_log_std, seed, iteration)
        return metrics

    def _learn_values(self, buffer: RolloutBuffer, seed: int, iteration: int) -> float:
        config, head = self.config, self.net.critic_out
        total, steps = 0.0, 0
        for epoch in range(config.value_epochs):
            for batch in self._minibatches(buffer, seed, iteration, f"value/{epoch}"):
                values = head.normalise(self.net.value(batch.features, batch.packed.privileged))
                loss = value_loss(
                    values, head.normalise(batch.returns), head.normalise(batch.values), config.value_clip
                )
                self._step(self.critic_optimiser, loss, "value")
                total, steps = total + float(loss.detach()), steps + 1
        return total / steps

    def _learn_policy(
        self, buffer: RolloutBuffer, log_std: torch.Tensor, prior_log_std: torch.Tensor, seed: int, iteration: int
    ) -> dict[str, float]:
        config = self.config
        leash = config.leash(iteration - config.warmup_iterations)
        sums: dict[str, float] = {}
        steps, stopped = 0, False
        for epoch in range(config.epochs):
            for batch in self._minibatches(buffer, seed, iteration, f"policy/{epoch}"):
                features = self.net.features(batch.packed) if self.trains_encoder else batch.features
                mean, spread = self.net.mean(features), self.net.log_std()
                ratio = torch.exp(log_prob(mean, spread, batch.actions) - batch.log_probs)
                moved = kl(batch.means, log_std, mean, spread).mean()
                strayed = kl(mean, spread, batch.prior_means, prior_log_std).mean()
                if config.target_kl and float(moved.detach()) > config.target_kl:
                    stopped = True
                    break
                surrogate = policy_loss(ratio, batch.advantages, config.clip)
                loss = surrogate + leash * strayed - config.entropy * entropy(spread)
                norm = self._step(self.actor_optimiser, loss, "policy")
                clipped = ((ratio - 1.0).abs() > config.clip).float().mean()
                seen = {"policy_loss": surrogate, "kl": moved, "prior_kl": strayed, "clip_fraction": clipped}
                for name, value in seen.items():
                    sums[name] = sums.get(name, 0.0) + float(value.detach())
                sums["grad_norm"] = sums.get("grad_norm", 0.0) + norm
                steps += 1
            if stopped:
                break
        metrics = {name: value / steps for name, value in sums.items()}
        return metrics | {"policy_steps": float(steps), "log_std": float(self.net.log_std().detach().mean())}

    def _minibatches(self, buffer: RolloutBuffer, seed: int, iteration: int, purpose: str) -> Iterator[Batch]:
        """Yield the rollout in a fresh random order, cut into minibatches; the last may be smaller."""
        generator = torch_generator(seed, iteration, f"rl/ppo/{purpose}")
        order = torch.randperm(len(buffer), generator=generator, device="cpu")
        for rows in order.split(self.config.minibatch):
            yield buffer.batch(rows, self.net.device)

    def _step(self, optimiser: torch.optim.Optimizer, loss: torch.Tensor, name: str) -> float:
        """One clipped gradient step, refused before it can spoil the weights; return the gradient's norm."""
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        norm = float(nn.utils.clip_grad_norm_(parameters, self.config.max_grad_norm))
        if not (torch.isfinite(loss) and math.isfinite(norm)):
            raise DivergedError(
                f"the {name} loss is {float(loss.detach())} with gradient norm {norm}",
                why="the weights were left as they were before this step",
                fix="Lower the learning rates, or check the environment's rewards for NaN.",
            )
        optimiser.step()
        return norm
