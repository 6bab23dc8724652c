"""Where the fixed budget of Gaussians goes: relocation of dead rows and exploration noise (3DGS as MCMC).

Relocation (Kheradmand et al. 2024, eq. 9): a row of opacity o and scale s that becomes n copies gets

    o' = 1 - (1 - o)^(1/n)
    s' = s o / D,   D = sum_{i=1..n} sum_{k=0..i-1} C(i-1, k) (-1)^k o'^(k+1) / sqrt(k+1)

so that the n copies together draw what the one drew. Noise after each step, for rows that are nearly transparent:

    mu += Sigma xi * sigmoid(-100 (o - 0.005)) * lr_means * noise_lr,   xi ~ N(0, I)
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from recon.geometry.quaternion import quat_normalize, quat_to_matrix

MAX_COPIES = 51


def split_copies(opacities: Tensor, scales: Tensor, copies: Tensor) -> tuple[Tensor, Tensor]:
    """Opacity and scale of each of n copies of a Gaussian.

    opacities [M] in (0, 1), scales [M, 3], copies [M] int >= 1 -> ([M], [M, 3]). Copies beyond 51 count as 51.
    """
    n = copies.clamp(1, MAX_COPIES)
    new = 1.0 - (1.0 - opacities).clamp_min(1e-6).pow(1.0 / n.to(opacities.dtype))  # [M]
    k = torch.arange(MAX_COPIES, device=opacities.device)
    # term[m, k] = (-1)^k o'^(k+1) / sqrt(k+1); the sum over i of C(i-1, k) up to n is C(n, k+1) (hockey stick)
    sign = torch.where(k % 2 == 0, 1.0, -1.0).to(opacities.dtype)
    rest = (n[:, None] - k[None]).clamp_min(1).to(opacities.dtype)
    log_choose = torch.lgamma(n[:, None] + 1.0) - torch.lgamma(k[None] + 2.0) - torch.lgamma(rest)
    terms = sign * torch.exp(log_choose + (k + 1) * torch.log(new.clamp_min(1e-12))[:, None]) / torch.sqrt(k + 1.0)
    terms = torch.where(k[None] < n[:, None], terms, torch.zeros_like(terms))
    denominator = terms.sum(dim=1)
    ratio = torch.where(n == 1, torch.ones_like(denominator), opacities / denominator.clamp_min(1e-8))
    return new, scales * ratio[:, None]


def plan_relocation(
    opacities: Tensor, scores: Tensor, min_opacity: float, max_share: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Which rows are dead and from which living row each is reborn.

    opacities [N], scores [N] >= 0 (sampling weight of the living). Returns (dead [D], source [D]) indices; D is at most
    max_share N, the most transparent first.
    """
    dead = torch.nonzero(opacities <= min_opacity).flatten()
    limit = int(max_share * opacities.numel())
    if dead.numel() > limit:
        order = torch.argsort(opacities[dead], stable=True)
        dead = dead[order[:limit]]
    weights = torch.where(opacities > min_opacity, scores, torch.zeros_like(scores))
    if dead.numel() == 0 or float(weights.sum()) <= 0:
        empty = torch.empty(0, dtype=torch.long, device=opacities.device)
        return empty, empty
    # double precision, on the CPU: a sum of a million float32 weights would lose the small ones
    cumulative = torch.from_numpy(np.cumsum(weights.cpu().numpy(), dtype=np.float64))
    draws = torch.rand(dead.numel(), generator=generator, dtype=cumulative.dtype, device="cpu") * cumulative[-1]
    source = torch.searchsorted(cumulative, draws).clamp_max(opacities.numel() - 1)
    return dead, source.to(opacities.device)


@torch.no_grad()
def exploration_noise(
    quats: Tensor, scales: Tensor, opacities: Tensor, strength: float, generator: torch.Generator
) -> Tensor:
    """Offsets [N, 3] drawn from each Gaussian's own covariance, large only where it is nearly transparent."""
    rotation = quat_to_matrix(quat_normalize(quats))  # [N, 3, 3]
    xi = torch.randn(quats.shape[0], 3, generator=generator, device="cpu").to(quats.device)
    local = torch.einsum("nij,ni->nj", rotation, xi) * scales.square()  # R^T xi scaled by S S
    gate = torch.sigmoid(-100.0 * (opacities - 0.005)) * strength
    return torch.einsum("nij,nj->ni", rotation, local) * gate[:, None]
