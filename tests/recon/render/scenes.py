"""Random scenes for the rasteriser tests, made from a seed, and small helpers on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from recon.render import RasterConfig, Rendering, rasterize

INPUTS = ("means", "quats", "scales", "opacities", "colors", "viewmats", "background")


@dataclass(frozen=True)
class RenderScene:
    """Arguments of `rasterize`, float64."""

    means: Tensor
    quats: Tensor
    scales: Tensor
    opacities: Tensor
    colors: Tensor
    viewmats: Tensor
    Ks: Tensor
    width: int
    height: int
    sh_degree: int | None
    background: Tensor | None
    tile_mask: Tensor | None = None
    config: RasterConfig = RasterConfig()

    def to(self, dtype: torch.dtype, *, grad: bool = False) -> RenderScene:
        """A detached copy in `dtype`; with `grad` its inputs are leaves that require a gradient."""
        names = [name for name in (*INPUTS, "Ks") if getattr(self, name) is not None]
        copies = {name: getattr(self, name).detach().to(dtype, copy=True) for name in names}
        for name in INPUTS if grad else ():
            if name in copies:
                copies[name].requires_grad_()
        return replace(self, **copies)

    def render(self, backend: str) -> Rendering:
        return rasterize(
            self.means,
            self.quats,
            self.scales,
            self.opacities,
            self.colors,
            self.viewmats,
            self.Ks,
            self.width,
            self.height,
            sh_degree=self.sh_degree,
            background=self.background,
            config=self.config,
            backend=backend,
            tile_mask=self.tile_mask,
        )

    def grads(self) -> dict[str, Tensor]:
        tensors = {name: getattr(self, name) for name in INPUTS}
        return {name: tensor.grad for name, tensor in tensors.items() if tensor is not None and tensor.grad is not None}


def random_scene(
    seed: int,
    *,
    count: int = 60,
    views: int = 1,
    width: int = 53,
    height: int = 37,
    sh_degree: int | None = None,
    background: bool = True,
    pixels: float = 3.0,
    config: RasterConfig | None = None,
) -> RenderScene:
    """`count` Gaussians of about `pixels` pixels before `views` slightly different cameras, cx and cy off-centre."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    focal = uniform(0.8, 1.5, views, 2) * width
    center = torch.tensor([width, height], dtype=torch.float64) * uniform(0.3, 0.7, views, 2)
    Ks = torch.zeros(views, 3, 3, dtype=torch.float64)
    Ks[:, 0, 0], Ks[:, 1, 1], Ks[:, 2, 2] = focal[:, 0], focal[:, 1], 1.0
    Ks[:, :2, 2] = center
    # Depths apart from each other by more than float32 can confuse, so that the order is the same in every precision.
    depth = 1.5 + 2.0 * (torch.randperm(count, generator=generator).double() + uniform(0.2, 0.8, count)) / max(count, 1)
    target = uniform(-0.1, 1.1, count, 2) * torch.tensor([width, height], dtype=torch.float64)
    xy = (target - center[0]) / focal[0] * depth[:, None]
    sizes = torch.exp(0.5 * normal(count, 3)) * (pixels / focal[0].mean()) * depth[:, None]
    coefficients = () if sh_degree is None else ((sh_degree + 1) ** 2,)
    colors = normal(count, *coefficients, 3) * 0.4 + (0.5 if sh_degree is None else 0.0)
    poses = torch.stack([small_pose(0.08 * normal(3), 0.1 * normal(3)) for _ in range(views)])
    return RenderScene(
        means=torch.cat([xy, depth[:, None]], 1),
        quats=normal(count, 4) * uniform(0.5, 3.0, count, 1),
        scales=sizes,
        opacities=uniform(0.05, 0.95, count),
        colors=colors,
        viewmats=poses,
        Ks=Ks,
        width=width,
        height=height,
        sh_degree=sh_degree,
        background=uniform(0.0, 1.0, views, 3) if background else None,
        config=RasterConfig() if config is None else config,
    )


def small_pose(rotation: Tensor, translation: Tensor) -> Tensor:
    """cam_from_world [4, 4] of a rotation vector and a translation."""
    x, y, z = rotation.tolist()
    skew = torch.tensor([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]], dtype=torch.float64)
    pose = torch.eye(4, dtype=torch.float64)
    pose[:3, :3] = torch.linalg.matrix_exp(skew)
    pose[:3, 3] = translation
    return pose


def projection_loss(rendering: Rendering, seed: int = 0) -> Tensor:
    """A fixed random linear function of colour, alpha and depth: its gradient reaches every output."""
    generator = torch.Generator().manual_seed(seed)
    total = rendering.color.new_zeros(())
    for image in (rendering.color, rendering.alpha, rendering.depth):
        weights = torch.randn(image.shape, generator=generator, dtype=torch.float64).to(image.dtype)
        total = total + (weights * image).sum() / image[0].numel()
    return total
