"""Which Gaussians can reach a patch of a picture: the others need no look at all in that iteration.

A row of largest scale s at camera position (x, y, z) is stronger than alpha_min no further from its centre than

    k sqrt((f s / z)^2 (1 + r^2) + eps),   k = sqrt(2 ln(1 / alpha_min)),   r = x / z, clamped as the rasteriser does

per axis, since the projected variance is s^2 |row of the Jacobian|^2 at most. Nothing that the rasteriser would draw is
left out, so a fit on the rows found here is the fit on all rows.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from recon.fit.model import PHI_MIN, Model
from recon.fit.sampler import Window
from recon.geometry.camera import Camera
from recon.render.backends.reference import CLAMP_MARGIN
from recon.render.types import RasterConfig

SLACK = 2.0  # pixels, far above the rounding of the bound


@torch.no_grad()
def rows_in_window(model: Model, t: float | None, camera: Camera, window: Window, config: RasterConfig) -> Tensor:
    """int64 [M], ascending: rows of `model` that may show in `window` of `camera` at time t (None: static ones)."""
    g, split = model.gaussians, model.num_static
    means = g["means"].detach()
    alive = g["logit_opacities"].detach() >= math.log(config.alpha_min / (1.0 - config.alpha_min))
    if split < model.num_rows:
        if t is None:
            means, alive = means[:split], alive[:split]
        else:
            means = model.means_at(t)
            alive[split + model.num_rigid :] &= model.temporal_factor(t) >= PHI_MIN
    pose = torch.from_numpy(camera.cam_from_world.astype(np.float32)).to(means.device, means.dtype)
    x, y, z = torch.addmm(pose[:3, 3], means, pose[:3, :3].T).unbind(1)
    alive &= z > 0.999 * config.near
    logs = g["log_scales"].detach()[: len(means)]
    size = torch.maximum(torch.maximum(logs[:, 0], logs[:, 1]), logs[:, 2]).exp()
    reach = math.sqrt(2.0 * math.log(1.0 / config.alpha_min))
    spans = ((x, camera.fx, camera.cx, camera.width, window.left, window.right),
             (y, camera.fy, camera.cy, camera.height, window.top, window.bottom))  # fmt: skip
    for along, focal, center, side, low, high in spans:
        ratio = along / z
        limit = max(center + CLAMP_MARGIN * side, side - center + CLAMP_MARGIN * side) / focal
        variance = (focal * size / z).square() * (1.0 + ratio.clamp(-limit, limit).square()) + config.eps2d
        radius = reach * variance.sqrt() + SLACK
        at = focal * ratio + center
        alive &= (at + radius >= low) & (at - radius <= high)
    return alive.nonzero()[:, 0]
