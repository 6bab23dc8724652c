"""The diagonal Gaussian: log probability, entropy, divergence, samples.

There is no tanh: an action is sampled without bound, its probability is that of
the unbounded sample, and the environment is given the action clipped to [-1, 1].
The clip belongs to the environment, so no Jacobian enters the ratio.
"""

from __future__ import annotations

import math

import torch

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def log_prob(mean: torch.Tensor, log_std: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Return sum_i [ -z_i^2 / 2 - log s_i - log(2 pi) / 2 ], z = (a - m) / s.  [..., A] -> [...]."""
    z = (action - mean) * torch.exp(-log_std)
    return (-0.5 * z.square() - log_std - HALF_LOG_2PI).sum(dim=-1)


def entropy(log_std: torch.Tensor) -> torch.Tensor:
    """Return sum_i [ log s_i + (1 + log 2 pi) / 2 ] in nats.  [..., A] -> [...]."""
    return (log_std + 0.5 + HALF_LOG_2PI).sum(dim=-1)


def kl(mean_p: torch.Tensor, log_std_p: torch.Tensor, mean_q: torch.Tensor, log_std_q: torch.Tensor) -> torch.Tensor:
    """Return KL(p || q) = sum_i [ log(s_q/s_p) + (s_p^2 + (m_p - m_q)^2) / (2 s_q^2) - 1/2 ] in nats."""
    ratio = torch.exp(2.0 * (log_std_p - log_std_q))
    shift = ((mean_p - mean_q) * torch.exp(-log_std_q)).square()
    return (log_std_q - log_std_p + 0.5 * (ratio + shift - 1.0)).sum(dim=-1)


def sample(mean: torch.Tensor, log_std: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw m + s eps, eps from a CPU generator so that every device sees the same noise."""
    noise = torch.randn(mean.shape, generator=generator, dtype=torch.float32, device="cpu")
    return mean + torch.exp(log_std) * noise.to(mean.device)


def clip_action(action: torch.Tensor) -> torch.Tensor:
    """Return the action that the environment executes."""
    return action.clamp(-1.0, 1.0)
