"""Advantages and returns, with what ends an episode kept apart.

A termination ends the task: nothing follows, so the value after it is 0. A
truncation only stops the clock: the value of the observation in which the clock
stopped still counts. Both end the recursion.
"""

from __future__ import annotations

import torch


def gae(
    rewards: torch.Tensor,
    values: torch.Tensor,
    next_values: torch.Tensor,
    terminations: torch.Tensor,
    truncations: torch.Tensor,
    gamma: float,
    lam: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Generalised advantage estimation over a rollout.

        delta_t = r_t + gamma V'_t (1 - term_t) - V_t
        A_t     = delta_t + gamma lam (1 - term_t)(1 - trunc_t) A_{t+1},  A_T = 0
        R_t     = A_t + V_t

    Args:
        rewards, values: [T, N].
        next_values: [T, N], V of the observation that action t led to: of the *final*
            observation where the episode ended, of the next observation elsewhere.
        terminations, truncations: bool [T, N].

    Returns:
        (advantages [T, N], returns [T, N]).
    """
    alive = (~terminations).to(rewards.dtype)
    going_on = alive * (~truncations).to(rewards.dtype)
    deltas = rewards + gamma * next_values * alive - values
    advantages = torch.zeros_like(rewards)
    running = torch.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        running = deltas[t] + gamma * lam * going_on[t] * running
        advantages[t] = running
    return advantages, advantages + values


def standardise(advantages: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """Return (A - mean) / (std + eps) over the whole batch; a batch of one value gives zeros."""
    centred = advantages - advantages.mean()
    return centred / (centred.square().mean().sqrt() + eps)


def explained_variance(predicted: torch.Tensor, target: torch.Tensor) -> float:
    """Return 1 - Var(target - predicted) / Var(target): 1 is perfect, 0 no better than the mean."""
    variance = target.var(unbiased=False)
    if float(variance) < 1e-12:
        return 0.0
    return float(1.0 - (target - predicted).var(unbiased=False) / variance)
