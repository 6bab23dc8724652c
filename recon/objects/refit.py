"""A body's Gaussians fitted to what the cameras saw of it over its track: colours, places and opacities.

    min  sum_i w_i s^2 log(1 + |g C_i + (1 - A_i) b_i - f_i|^2 / s^2)

over crops of some instants, with the symbols of align.py; poses are kept. What the hull has too much of, as no camera
could see past it in one pose, turns transparent in others; colours are those of all light that fell on the body.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from recon.objects.align import SCALE, Aligner
from recon.objects.splats import RADIUS, Splats
from recon.render.api import rasterize
from recon.render.types import RasterConfig

STEPS = 60
AT_ONCE = 4  # instants per step
RATES = (0.02, 0.1, 0.03)  # of colours, logits of opacities, places in cells
FAINT = 0.1  # opacity of a Gaussian that is left out afterwards
LEAST = 0.3  # share of the Gaussians that must remain


@dataclass(frozen=True)
class _Views:
    """One instant's crops: what to draw and what to compare with."""

    views: torch.Tensor  # [V, 4, 4] camera from body
    intrinsics: torch.Tensor  # [V, 3, 3]
    side: int
    target: torch.Tensor  # [V, S, S, 3]
    behind: torch.Tensor  # [V, S, S, 3]
    gain: torch.Tensor  # [V, 1, 1, 3]
    weight: torch.Tensor  # [V, S, S]


def _views(aligner: Aligner, pose: np.ndarray) -> _Views:
    look = aligner.look
    drawn = aligner.seen(pose)
    behind = np.where(look.known[..., None] > 0.5, look.background, look.target)
    arrays = (aligner.placed(pose), aligner.intrinsics, look.target, behind, drawn.gain, drawn.weight)
    views, intrinsics, target, background, gain, weight = (torch.from_numpy(np.asarray(a, np.float32)) for a in arrays)
    return _Views(views, intrinsics, look.crops[0].side, target, background, gain, weight)


def refit(splats: Splats, aligners: list[Aligner], poses: list[np.ndarray], near: float, seed: int = 0) -> Splats:
    """The Gaussians that explain the looks of `aligners` at `poses` [4, 4] best; the given ones where none do."""
    if not aligners:
        return splats
    every = [_views(aligner, pose) for aligner, pose in zip(aligners, poses, strict=True)]
    means, quats, _, opacities, start = splats.tensors()
    colours = start.clone().requires_grad_()
    logits = torch.logit(opacities.clamp(0.01, 0.99)).requires_grad_()
    offsets = torch.zeros_like(means).requires_grad_()
    scales = torch.full_like(means, RADIUS * splats.size)
    groups = [{"params": [p], "lr": r} for p, r in zip((colours, logits, offsets), RATES, strict=True)]
    optimiser = torch.optim.Adam(groups, betas=(0.9, 0.99))
    rng = np.random.default_rng(seed)
    for _ in range(STEPS):
        optimiser.zero_grad()
        for j in rng.choice(len(every), min(AT_ONCE, len(every)), replace=False):
            one = every[j]
            drawn = rasterize(
                means + splats.size * offsets, quats, scales, torch.sigmoid(logits), colours, one.views, one.intrinsics,
                one.side, one.side, config=RasterConfig(near=near),
            )  # fmt: skip
            picture = one.gain * drawn.color + (1.0 - drawn.alpha[..., None]) * one.behind
            square = ((picture - one.target) ** 2).mean(-1)
            cost = (one.weight * torch.log1p(square / SCALE**2)).sum() / one.weight.sum().clamp(min=1.0)
            cost.backward()
        optimiser.step()
        with torch.no_grad():
            colours.clamp_(0.0, 1.0)
            logits.clamp_(-6.0, 4.0)
    with torch.no_grad():
        found = torch.sigmoid(logits).numpy()
        kept = found > FAINT
        if kept.mean() < LEAST:
            return splats
        points = (means + splats.size * offsets).numpy().astype(np.float64)
        return Splats(points[kept], colours.numpy()[kept].copy(), splats.size, found[kept].copy())
