"""Image loss and image quality: weighted L1 + SSIM with its gradient, PSNR, SSIM.

SSIM here is the usual one: 11-tap Gaussian window with sigma 1.5, only windows that lie inside the picture,
C1 = 0.01^2 and C2 = 0.03^2 for values in [0, 1], per channel and then averaged.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from recon.core.errors import UsageError
from recon.render.backends import CPU, select_name

WINDOW = 11  # taps
SIGMA = 1.5  # pixels
MARGIN = WINDOW // 2
C1, C2 = 0.01**2, 0.03**2


def l1_ssim(
    pred: Tensor, target: Tensor, weight: Tensor | None = None, ssim_weight: float = 0.2, *, backend: str = "auto"
) -> Tensor:
    """(1 - s) L1 + s (1 - SSIM), a scalar differentiable in `pred`, with s = `ssim_weight`.

    pred, target: [H, W, 3] in [0, 1]. weight: [H, W] >= 0, how much each pixel counts (None: all the same); an SSIM
    window counts as much as its centre pixel. Both terms are weighted means; a term whose weights add up to 0 is 0.
    Raises UsageError for shapes that do not fit and, when s > 0, for pictures under 11 pixels; UnavailableError as
    `rasterize` does.
    """
    _check_pair(pred, target)
    if weight is not None and weight.shape != pred.shape[:2]:
        why = f"the picture is {list(pred.shape)}"
        raise UsageError(f"l1_ssim: weight is {list(weight.shape)}", why=why, fix="pass [H, W]")
    if not 0.0 <= ssim_weight <= 1.0:
        raise UsageError(f"l1_ssim: ssim_weight is {ssim_weight}", why="it lies between 0 and 1")
    if ssim_weight > 0.0:
        _check_window(pred)
    if select_name(backend, pred.device, pred.dtype) == CPU:
        loss: Tensor = _NativeL1Ssim.apply(pred, target, weight, ssim_weight)
        return loss
    return l1_ssim_reference(pred, target, weight, ssim_weight)


def l1_ssim_reference(pred: Tensor, target: Tensor, weight: Tensor | None, ssim_weight: float) -> Tensor:
    """`l1_ssim` in plain torch."""
    weight = torch.ones_like(pred[..., 0]) if weight is None else weight.to(pred.dtype)
    target = target.detach()
    l1 = _weighted_mean((pred - target).abs().mean(2), weight, empty=0.0)
    if ssim_weight == 0.0:
        return l1
    inside = weight[MARGIN:-MARGIN, MARGIN:-MARGIN]
    similarity = _weighted_mean(ssim_map(pred, target).mean(2), inside, empty=1.0)
    return (1.0 - ssim_weight) * l1 + ssim_weight * (1.0 - similarity)


def ssim_map(a: Tensor, b: Tensor) -> Tensor:
    """SSIM [H - 10, W - 10, 3] of every window of [H, W, 3] pictures that lies inside them.

    SSIM = (2 ma mb + C1)(2 cov + C2) / ((ma^2 + mb^2 + C1)(var_a + var_b + C2)), moments under the Gaussian window.
    """
    x, y = a.permute(2, 0, 1), b.permute(2, 0, 1)
    mean_x, mean_y, xx, yy, xy = _blur(torch.cat([x, y, x * x, y * y, x * y])).split(x.shape[0])
    mean_xx, mean_yy, mean_xy = mean_x * mean_x, mean_y * mean_y, mean_x * mean_y
    luminance = (2.0 * mean_xy + C1) / (mean_xx + mean_yy + C1)
    structure = (2.0 * (xy - mean_xy) + C2) / ((xx - mean_xx) + (yy - mean_yy) + C2)
    return (luminance * structure).permute(1, 2, 0)


def ssim(a: Tensor, b: Tensor) -> float:
    """Mean SSIM of two pictures [H, W, 3] in [0, 1] (data range 1). Both sides at least 11 pixels, else UsageError."""
    _check_pair(a, b)
    _check_window(a)
    return float(ssim_map(a, b).mean())


def psnr(a: Tensor, b: Tensor, mask: Tensor | None = None) -> float:
    """-10 log10 of the mean squared error of two pictures [H, W, 3] in [0, 1], in dB; inf when equal.

    mask: bool [H, W], the pixels that count. NaN when it selects none.
    """
    _check_pair(a, b)
    squared = (a - b).square()
    squared = squared if mask is None else squared[mask]
    if squared.numel() == 0:
        return math.nan
    error = float(squared.mean())
    return math.inf if error == 0.0 else -10.0 * math.log10(error)


def window(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The 11 weights of the SSIM window, exp(-x^2 / (2 sigma^2)) scaled to a sum of 1."""
    taps = [math.exp(-(x * x) / (2.0 * SIGMA**2)) for x in range(-MARGIN, MARGIN + 1)]
    return torch.tensor([tap / math.fsum(taps) for tap in taps], dtype=dtype, device=device)


def _blur(planes: Tensor) -> Tensor:
    """Gaussian means of [P, H, W] over every window inside: [P, H - 10, W - 10]."""
    taps = window(planes.dtype, planes.device)
    rows = F.conv2d(planes[:, None], taps.view(1, 1, 1, WINDOW))
    return F.conv2d(rows, taps.view(1, 1, WINDOW, 1))[:, 0]


def _weighted_mean(values: Tensor, weight: Tensor, empty: float) -> Tensor:
    """sum(w v) / sum(w); `empty` (still attached to the graph, with gradient 0) where the weights add up to 0."""
    total = weight.sum()
    mean = (weight * values).sum() / torch.where(total > 0, total, 1.0)
    return mean + torch.where(total > 0, 0.0, empty)


def _check_pair(a: Tensor, b: Tensor) -> None:
    if a.ndim != 3 or a.shape[2] != 3 or a.shape != b.shape:
        raise UsageError(f"pictures of shapes {list(a.shape)} and {list(b.shape)}", why="both must be [H, W, 3]")
    if a.dtype != b.dtype or a.device != b.device:
        raise UsageError(f"pictures are {a.dtype} on {a.device} and {b.dtype} on {b.device}", why="both must be alike")


def _check_window(picture: Tensor) -> None:
    if min(picture.shape[:2]) < WINDOW:
        size = f"{picture.shape[1]} x {picture.shape[0]}"
        why = f"its window is {WINDOW} pixels wide"
        raise UsageError(f"SSIM of a {size} picture", why=why, fix="use a larger picture, or no SSIM")


class _NativeL1Ssim(torch.autograd.Function):
    """The fused native loss: its gradient is computed together with its value, and scaled in the backward pass."""

    @staticmethod
    def forward(ctx: Any, pred: Tensor, target: Tensor, weight: Tensor | None, ssim_weight: float) -> Tensor:
        """The loss, a scalar."""
        from recon.render.backends import cpu

        weight = None if weight is None else weight.to(pred.dtype).contiguous()
        images = pred.detach().contiguous(), target.detach().contiguous()
        loss, grad = cpu.l1_ssim(*images, weight, ssim_weight, want_grad=ctx.needs_input_grad[0])
        if grad is not None:
            ctx.save_for_backward(grad)
        return pred.new_tensor(loss)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v_loss: Tensor) -> tuple[Tensor, None, None, None]:
        (grad,) = ctx.saved_tensors
        # loss.backward() passes 1: then the picture-sized product is saved.
        return grad if float(v_loss) == 1.0 else grad * v_loss, None, None, None
