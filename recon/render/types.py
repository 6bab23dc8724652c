"""What goes into the rasteriser and what comes out: configuration, validated inputs, result."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from recon.core.errors import UsageError

MAX_SH_DEGREE = 3


@dataclass(frozen=True)
class RasterConfig:
    """Constants of the image formation model.

    near, far: metres along the optical axis; a Gaussian with z <= near or z >= far is not drawn.
    eps2d: square pixels added to both diagonal entries of the projected covariance (screen-space low-pass).
    antialiased: scale opacity by sqrt(det before / det after) of that low-pass, so that small Gaussians do not grow.
    alpha_min: weaker contributions to a pixel are skipped. alpha_max: stronger ones are capped.
    transmittance_min: a pixel stops *before* the contribution that would bring its transmittance below this.
    tile_size: side of the square tiles in pixels; `tile_mask` is given in these units.
    """

    near: float = 0.02
    far: float = 1e4
    eps2d: float = 0.3
    antialiased: bool = False
    alpha_min: float = 1.0 / 255.0
    alpha_max: float = 0.99
    transmittance_min: float = 1e-4
    tile_size: int = 16

    def __post_init__(self) -> None:
        if not 0.0 < self.near < self.far < math.inf:
            why = f"near={self.near}, far={self.far}"
            raise UsageError("RasterConfig: bad depth range", why=why, fix="use 0 < near < far")
        if not 0.0 <= self.eps2d < math.inf:
            raise UsageError("RasterConfig: bad eps2d", why=f"eps2d={self.eps2d}", fix="use a finite value >= 0")
        if not 0.0 < self.alpha_min < self.alpha_max < 1.0:
            why = f"alpha_min={self.alpha_min}, alpha_max={self.alpha_max}"
            raise UsageError("RasterConfig: bad alpha limits", why=why, fix="use 0 < alpha_min < alpha_max < 1")
        if not 0.0 < self.transmittance_min < 1.0:
            why = f"transmittance_min={self.transmittance_min}"
            raise UsageError("RasterConfig: bad transmittance limit", why=why, fix="use a value between 0 and 1")
        if self.tile_size < 1:
            raise UsageError("RasterConfig: bad tile size", why=f"tile_size={self.tile_size}", fix="use 16")

    def tile_grid(self, width: int, height: int) -> tuple[int, int]:
        """(rows, columns) of tiles that cover a width x height image."""
        return -(-height // self.tile_size), -(-width // self.tile_size)


@dataclass(frozen=True)
class RasterInputs:
    """Arguments of `rasterize` after validation: one device, one dtype, full shapes. What every backend receives."""

    means: Tensor  # [N, 3] world, metres
    quats: Tensor  # [N, 4] wxyz, normalised by the backend
    scales: Tensor  # [N, 3] metres
    opacities: Tensor  # [N] in [0, 1]
    colors: Tensor  # [N, 3] RGB, or [N, K, 3] SH coefficients when sh_degree is given
    viewmats: Tensor  # [C, 4, 4] cam_from_world, OpenCV axes
    Ks: Tensor  # [C, 3, 3] pixels, first pixel centre at (0.5, 0.5)
    width: int
    height: int
    sh_degree: int | None
    background: Tensor | None  # [C, 3]
    tile_mask: Tensor | None  # bool [C, tile rows, tile columns]
    config: RasterConfig

    @property
    def differentiable(self) -> tuple[Tensor, ...]:
        """The tensors that may receive a gradient, in argument order."""
        tensors = (self.means, self.quats, self.scales, self.opacities, self.colors, self.viewmats)
        return tensors if self.background is None else (*tensors, self.background)

    @property
    def needs_grad(self) -> bool:
        """Whether a backward pass may follow."""
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*self.differentiable, self.Ks))


@dataclass(frozen=True)
class Aux:
    """Per view and Gaussian facts for densification and sparse updates. None of them carries a gradient."""

    visible: Tensor  # bool [C, N]: passed every cull, and its footprint touches the image (tile masks do not enter)
    radii: Tensor  # [C, N] pixels: larger half side of the box around alpha >= alpha_min, rounded up; 0 if not visible
    means2d: Tensor  # [C, N, 2] pixels (u, v); 0 if not visible
    means2d_grad_norm: Tensor  # [C, N] |dL/d(u, v)|: zeros until the backward pass fills it in place


@dataclass(frozen=True)
class Rendering:
    """Result of `rasterize`. Tiles outside `tile_mask` show the bare background, with alpha and depth 0."""

    color: Tensor  # [C, H, W, 3] sum of alpha T colour, plus T * background
    alpha: Tensor  # [C, H, W] 1 - final transmittance
    depth: Tensor  # [C, H, W] metres along the optical axis: expected z / alpha; 0 where alpha is 0
    aux: Aux
