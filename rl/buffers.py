"""The rollout: what happened in T steps of N environments, as flat tensors.

Features are stored as computed when acting, so the critic and a frozen encoder's
policy train on two small networks. Pictures are kept only while the encoder
itself learns: uint8, on the CPU, moved batch by batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rl.types import Packed


@dataclass
class Batch:
    """B samples of a rollout. `packed.images` is empty unless the rollout keeps pictures."""

    packed: Packed
    features: torch.Tensor  # [B, F], of the network that acted
    actions: torch.Tensor  # [B, A], as sampled, not clipped
    log_probs: torch.Tensor  # [B]
    means: torch.Tensor  # [B, A] of the policy that acted
    prior_means: torch.Tensor  # [B, A] of the policy to stay near
    values: torch.Tensor  # [B]
    advantages: torch.Tensor  # [B]
    returns: torch.Tensor  # [B]


class RolloutBuffer:
    """Fixed storage for `horizon` steps of `num_envs` environments.

    Fill it with `put_decision` then `put_outcome` per step, set `advantages` and
    `returns`, then read it with `batch`.
    """

    def __init__(
        self, horizon: int, num_envs: int, action_size: int, sample: Packed, feature_size: int, keep_images: bool
    ) -> None:
        """`sample` gives the shapes of an observation."""
        self.horizon, self.num_envs, self.keep_images = horizon, num_envs, keep_images
        lead = (horizon, num_envs)
        pictures = sample.images.shape[1] if keep_images else 0
        self.images = torch.zeros((*lead, pictures, *sample.images.shape[2:]), dtype=torch.uint8, device="cpu")
        self.features = self._zeros(*lead, feature_size)
        self.proprio = self._zeros(*lead, sample.proprio.shape[1])
        self.privileged = self._zeros(*lead, sample.privileged.shape[1])
        self.actions = self._zeros(*lead, action_size)
        self.means = self._zeros(*lead, action_size)
        self.prior_means = self._zeros(*lead, action_size)
        self.log_probs, self.values, self.next_values = (self._zeros(*lead) for _ in range(3))
        self.rewards, self.advantages, self.returns = (self._zeros(*lead) for _ in range(3))
        self.terminations = torch.zeros(lead, dtype=torch.bool, device="cpu")
        self.truncations = torch.zeros(lead, dtype=torch.bool, device="cpu")

    @staticmethod
    def _zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.float32, device="cpu")

    def put_decision(
        self,
        t: int,
        packed: Packed,
        features: torch.Tensor,
        action: torch.Tensor,
        log_prob: torch.Tensor,
        mean: torch.Tensor,
        prior_mean: torch.Tensor,
        value: torch.Tensor,
    ) -> None:
        """Store what the policy saw and did at step t."""
        if self.keep_images:
            self.images[t] = packed.images
        self.features[t] = features
        self.proprio[t], self.privileged[t] = packed.proprio, packed.privileged
        self.actions[t], self.log_probs[t], self.values[t] = action, log_prob, value
        self.means[t], self.prior_means[t] = mean, prior_mean

    def put_outcome(self, t: int, reward: torch.Tensor, terminated: torch.Tensor, truncated: torch.Tensor) -> None:
        """Store what the environment answered at step t."""
        self.rewards[t], self.terminations[t], self.truncations[t] = reward, terminated, truncated

    def __len__(self) -> int:
        return self.horizon * self.num_envs

    def batch(self, rows: torch.Tensor, device: torch.device | str) -> Batch:
        """Return the samples at flat indices t * num_envs + n, on `device`."""

        def take(stored: torch.Tensor) -> torch.Tensor:
            return stored.flatten(0, 1)[rows].to(device)

        packed = Packed(take(self.images), take(self.proprio), take(self.privileged))
        return Batch(
            packed,
            take(self.features),
            take(self.actions),
            take(self.log_probs),
            take(self.means),
            take(self.prior_means),
            take(self.values),
            take(self.advantages),
            take(self.returns),
        )
