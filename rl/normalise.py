"""Running statistics: observations brought to unit scale, values to any scale.

Both are part of the network's state, so a saved policy carries its own scaling.
"""

from __future__ import annotations

import torch
from torch import nn


class RunningStats(nn.Module):
    """Mean and variance of all rows seen so far, merged batch by batch (Chan et al.).

    Until the first update it is the identity.
    """

    mean: torch.Tensor
    var: torch.Tensor
    count: torch.Tensor

    def __init__(self, size: int, clip: float = 5.0, device: torch.device | str = "cpu") -> None:
        super().__init__()
        self.clip = clip
        self.register_buffer("mean", torch.zeros(size, device=device))
        self.register_buffer("var", torch.ones(size, device=device))
        self.register_buffer("count", torch.zeros((), device=device))

    @torch.no_grad()
    def update(self, rows: torch.Tensor) -> None:
        """Merge rows [B, size] into the statistics; an empty batch changes nothing."""
        if rows.numel() == 0:
            return
        n, m = float(self.count), float(rows.shape[0])
        mean, var = rows.mean(dim=0), rows.var(dim=0, unbiased=False)
        delta = mean - self.mean
        # sum of squares about the joint mean: n s_a^2 + m s_b^2 + n m / (n + m) delta^2
        squares = (self.var * n if n else torch.zeros_like(var)) + var * m + delta.square() * (n * m / (n + m))
        self.mean += delta * (m / (n + m))
        self.var.copy_(squares / (n + m))
        self.count += m

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (x - mean) / std clipped to +-clip; a constant column becomes 0, not noise."""
        std = self.var.sqrt().clamp_min(1e-3)
        return ((rows - self.mean) / std).clamp(-self.clip, self.clip)


class ScaledValue(nn.Module):
    """A linear value head whose output scale follows the returns (PopArt).

        V(x) = mean + std (w x + b)

    The loss is taken on the normalised side, so its size does not depend on the
    task's rewards. When mean and std move, w and b are changed to keep V as it was:

        w' = w std / std',   b' = (b std + mean - mean') / std'
    """

    mean: torch.Tensor
    std: torch.Tensor
    started: torch.Tensor

    def __init__(self, features: int, rate: float = 0.1, device: torch.device | str = "cpu") -> None:
        super().__init__()
        self.rate = rate
        self.linear = nn.Linear(features, 1, device=device)
        self.register_buffer("mean", torch.zeros((), device=device))
        self.register_buffer("std", torch.ones((), device=device))
        self.register_buffer("started", torch.zeros((), device=device))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return values in units of the return.  [B, features] -> [B]."""
        return self.mean + self.std * self.linear(x).squeeze(-1)

    def normalise(self, values: torch.Tensor) -> torch.Tensor:
        """Return (V - mean) / std: the side on which the loss is taken."""
        return (values - self.mean) / self.std

    @torch.no_grad()
    def update(self, returns: torch.Tensor) -> None:
        """Move mean and std towards those of `returns`; the predicted values do not change."""
        rate = self.rate if float(self.started) else 1.0
        mean = torch.lerp(self.mean, returns.mean(), rate)
        second = torch.lerp(self.std.square() + self.mean.square(), returns.square().mean(), rate)
        std = (second - mean.square()).clamp_min(1e-6).sqrt()
        self.linear.weight.mul_(self.std / std)
        self.linear.bias.copy_((self.linear.bias * self.std + self.mean - mean) / std)
        self.mean.copy_(mean)
        self.std.copy_(std)
        self.started.fill_(1.0)
