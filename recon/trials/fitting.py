"""A small fit that every device must repeat, on the made-up recording, with plain torch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from recon.fit.colour import ColourModel
from recon.fit.fit import Fit, Stage
from recon.fit.hull import search_volume
from recon.fit.model import Model
from recon.fit.moving import moving_points
from recon.fit.plate import make_plate
from recon.fit.sampler import JointSampler
from recon.fit.seed import residual_gaussians, scene_extent, static_gaussians
from recon.fit.settings import FitSettings
from recon.render.backends import REFERENCE
from recon.scene.gaussians import Gaussians
from recon.trials.recording import TinyFrames, floor_points, floor_prior

ITERATIONS = 24
SETTINGS = FitSettings(
    budget=400, budget_residual=150, sh_degree=1, patch=48, relocate_every=8, relocate_from=8, checkpoint_every=1000
)


def tiny_fit(device: torch.device, backend: str = REFERENCE) -> Fit:
    """A joint fit of floor and ball, about to begin; its first state and its samples are the same on every device."""
    frames = TinyFrames()
    plates = [make_plate(frames, camera) for camera in range(len(frames.cameras))]
    points, colours = floor_points(SETTINGS.budget, np.random.default_rng(0))
    static = static_gaussians(points, colours, frames.cameras, SETTINGS.budget, 1, np.random.default_rng(1))
    moving = moving_points(frames, plates, search_volume(frames.cameras, np.zeros((0, 3))), 0.04, 0.25)
    residual = residual_gaussians(moving, SETTINGS.budget_residual, 1, np.random.default_rng(2))
    priors = [floor_prior(camera) for camera in frames.cameras]
    return Fit(
        Model.from_table(Gaussians.concat([static, residual]).to(device)),
        JointSampler(frames, plates, priors, SETTINGS.seed, SETTINGS.patch, 0.7, 3.0),
        ColourModel(frames.names, device),
        replace(SETTINGS, iterations_joint=ITERATIONS),
        Stage("joint", ITERATIONS, 1000, (1.0, 0.1)),  # as if 1000 iterations were done: SH of degree 1 is drawn
        extent=scene_extent(frames.cameras),
        device=device,
        backend=backend,
    )


def curve(device: torch.device, iterations: int = ITERATIONS) -> dict[str, list[float]]:
    """Running loss and PSNR [dB] after every fourth iteration on `device`."""
    fit = tiny_fit(device)
    found: dict[str, list[float]] = {"loss": [], "psnr": []}
    for k in range(iterations):
        fit.advance()
        if k % 4 == 3:
            for name, values in found.items():
                values.append(fit.average[name])
    return found
