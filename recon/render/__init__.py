"""Differentiable Gaussian rasteriser, image loss and sparse optimiser. Takes tensors; knows nothing of scenes.

`rasterize` (api), `l1_ssim`, `psnr`, `ssim` (losses), `SparseAdam` (optim): native on the CPU, each with a torch twin.
"""

from __future__ import annotations

from recon.render.api import rasterize
from recon.render.losses import l1_ssim, psnr, ssim
from recon.render.optim import SparseAdam
from recon.render.types import Aux, RasterConfig, Rendering

__all__ = ["Aux", "RasterConfig", "Rendering", "SparseAdam", "l1_ssim", "psnr", "rasterize", "ssim"]
