"""The native rasteriser as plain functions: torch tensors in, torch tensors out, no autograd.

Everything is float32, contiguous and on the CPU. Results are bit-identical for any number of threads. What they return
lives in a memory pool that takes it back when the tensors die: a training loop touches no fresh memory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from recon.core.errors import UnavailableError, UsageError
from recon.render.types import RasterConfig

TILE = 16  # pixels; fixed in the kernels
TARGET_VARIABLE = "RECON_CPU_TARGET"  # e.g. avx2: forces an instruction set


@dataclass(frozen=True)
class Forward:
    """What `forward` returns; see there."""

    color: Tensor
    alpha: Tensor
    depth: Tensor
    visible: Tensor
    radii: Tensor
    means2d: Tensor
    depths: Tensor
    saved: Any
    times: dict[str, float]  # ms per stage, summed over views


@dataclass(frozen=True)
class Gradients:
    """What `backward` returns; see there."""

    means: Tensor
    quats: Tensor
    scales: Tensor
    opacities: Tensor
    colors: Tensor
    viewmats: Tensor | None
    background: Tensor | None
    means2d_norm: Tensor
    times: dict[str, float]  # ms per stage, summed over views


def _load() -> tuple[ModuleType | None, str | None]:
    """(module, None), or (None, reason with fix)."""
    try:
        native = import_module("recon.render._native")
    except ImportError as error:
        note = Path(__file__).parent.parent / "native_missing.txt"
        if note.is_file():
            return None, note.read_text(encoding="utf-8").strip()
        return None, f"the native module is not built ({error}). Install recon with pip, which compiles it"
    target = os.environ.get(TARGET_VARIABLE, "")
    try:
        native.set_target(target)
    except ValueError as error:
        choice = ", ".join(native.targets())
        return None, f"{TARGET_VARIABLE}={target}: {error}. Unset it, or use one of: {choice}"
    return native, None


_module, _reason = _load()


def unavailable_reason() -> str | None:
    """None if the native rasteriser can be used, else one sentence that says why not and how to fix it."""
    return _reason


def native_module() -> ModuleType:
    """The native code itself. Raises UnavailableError with the reason where there is none."""
    if _module is None:
        raise UnavailableError("the native cpu rasteriser cannot be used here", why=_reason or "")
    return _module


def targets() -> list[str]:
    """Instruction sets that are compiled in and run here, best first ("avx3" is AVX-512)."""
    return list(native_module().targets())


def set_target(name: str | None) -> None:
    """Use this instruction set (one of `targets()`), or the best again with None."""
    try:
        native_module().set_target(name or "")
    except ValueError as error:
        raise UsageError(str(error), fix="use one of: " + ", ".join(targets())) from error


def set_threads(count: int) -> None:
    """Use `count` OpenMP threads; 0 means one per processor. Torch shares the setting where it shares the library."""
    native_module().set_threads(count)


def forward(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    *,
    sh_degree: int | None,
    background: Tensor | None,
    config: RasterConfig,
    tile_mask: Tensor | None = None,
    keep: bool = True,
    with_aux: bool = True,
) -> Forward:
    """Draw N Gaussians from C views; arguments as `recon.render.api.rasterize`, already checked there.

    Returns color [C, H, W, 3], alpha, depth [C, H, W]; visible bool, radii (px, rounded up), depths (m) [C, N] and
    means2d [C, N, 2], 0 where not visible (no rows at all without `with_aux`); and, with `keep`, what `backward` needs.
    Raises UsageError for tensors of the wrong kind, more than 2^24 - 1 Gaussians or another tile size.
    """
    native = native_module()
    _check_call(native, means, width, height, config)
    views = viewmats.shape[0]
    if background is not None:
        background = background.detach().expand(views, 3).contiguous()
    color, alpha, depth, visible, radii, means2d, depths, saved, times = native.forward(
        *native_arrays(means, quats, scales, opacities, colors), -1 if sh_degree is None else sh_degree,
        *native_arrays(viewmats, Ks), width, height, _array(background), native_options(config),
        None if tile_mask is None else _bytes(tile_mask), keep, with_aux,
    )  # fmt: skip
    return Forward(
        color=torch.from_numpy(color),
        alpha=torch.from_numpy(alpha),
        depth=torch.from_numpy(depth),
        visible=torch.from_numpy(visible).view(torch.bool),
        radii=torch.from_numpy(radii),
        means2d=torch.from_numpy(means2d),
        depths=torch.from_numpy(depths),
        saved=saved,
        times=dict(zip(("project", "bin", "blend"), times[:3], strict=True)),
    )


def backward(
    saved: Any,
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    background: Tensor | None,
    color: Tensor,
    alpha: Tensor,
    depth: Tensor,
    v_color: Tensor | None,
    v_alpha: Tensor | None,
    v_depth: Tensor | None,
    *,
    want_viewmats: bool,
) -> Gradients:
    """Gradients of what `forward` drew: its inputs, its outputs and dL/d(outputs), each of which may be None.

    Returns gradients shaped like the inputs (background [C, 3]), summed over the views, and |dL/d(mean in px)| [C, N].
    """
    native = native_module()
    v_means, v_quats, v_scales, v_opacities, v_colors, v_viewmats, v_background, norm, times = native.backward(
        saved, *native_arrays(means, quats, scales, opacities, colors, color, alpha, depth),
        _array(v_color), _array(v_alpha), _array(v_depth),
    )  # fmt: skip
    names = ("blend_backward", "project_backward")
    return Gradients(
        means=torch.from_numpy(v_means),
        quats=torch.from_numpy(v_quats),
        scales=torch.from_numpy(v_scales),
        opacities=torch.from_numpy(v_opacities),
        colors=torch.from_numpy(v_colors).view(colors.shape),
        viewmats=torch.from_numpy(v_viewmats) if want_viewmats else None,
        background=torch.from_numpy(v_background) if background is not None else None,
        means2d_norm=torch.from_numpy(norm),
        times=dict(zip(names, times[3:], strict=True)),
    )


def render_views(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    *,
    sh_degree: int | None,
    background: Tensor | None,
    config: RasterConfig,
    tile_mask: Tensor | None = None,
    as_uint8: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Many views of one set for looking at, not for learning: (color, alpha, depth), nothing kept.

    color is float32 [C, H, W, 3], or uint8 with `as_uint8` (round(255 x), x clamped to [0, 1]).
    """
    out = forward(
        means, quats, scales, opacities, colors, viewmats, Ks, width, height, sh_degree=sh_degree,
        background=background, config=config, tile_mask=tile_mask, keep=False, with_aux=False,
    )  # fmt: skip
    if not as_uint8:
        return out.color, out.alpha, out.depth
    pixels = torch.from_numpy(native_module().to_bytes(out.color.numpy()))
    return pixels.view(out.color.shape), out.alpha, out.depth


def l1_ssim(
    pred: Tensor, target: Tensor, weight: Tensor | None, ssim_weight: float, *, want_grad: bool
) -> tuple[float, Tensor | None]:
    """(loss, dloss/dpred [H, W, 3]): the formula of `recon.render.losses.l1_ssim`, checked there."""
    loss, grad = native_module().l1_ssim(*native_arrays(pred, target), _array(weight), ssim_weight, want_grad)
    return loss, None if grad is None else torch.from_numpy(grad)


def adam_step(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    steps: Tensor,
    visible: Tensor | None,
    *,
    rows: Tensor | None = None,
    columns: Tensor | None = None,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """One Adam step, in place; see `recon.render.optim`.

    param, exp_avg, exp_avg_sq [N, ...]; steps int32 [N], which counts this step too. grad [M, ...]: its row i belongs
    to row `rows[i]` (int32 [M], all different; None: to row i), and counts where `visible` (bool [M]) is True, or
    always.
    columns: multiples of lr for the entries of a row, in the row's shape.
    """
    seen = None if visible is None else _bytes(visible)
    index = None if rows is None else rows.contiguous().numpy()
    native_module().adam_step(
        *native_arrays(param, grad, exp_avg, exp_avg_sq),
        steps.numpy(),
        index,
        seen,
        _array(columns),
        lr,
        beta1,
        beta2,
        eps,
    )


def trim() -> None:
    """Give the pool's idle memory back to the system."""
    native_module().trim()


def _check_call(native: ModuleType, means: Tensor, width: int, height: int, config: RasterConfig) -> None:
    if means.shape[0] >= native.MAX_GAUSSIANS:
        why = f"{means.shape[0]} Gaussians, the cpu backend indexes {native.MAX_GAUSSIANS - 1}"
        raise UsageError("too many Gaussians", why=why, fix="draw fewer, or use --backend reference")
    if config.tile_size != TILE:
        raise UsageError(f"tile_size is {config.tile_size}", why=f"the cpu backend's tiles have {TILE} pixels a side")
    if width < 1 or height < 1:
        raise UsageError(f"the picture is {width} x {height} pixels", fix="ask for at least one pixel")


def native_options(config: RasterConfig) -> tuple[float, float, float, float, float, float, bool]:
    """The constants in the order the native code takes them."""
    return (
        config.near, config.far, config.eps2d, config.alpha_min, config.alpha_max, config.transmittance_min,
        config.antialiased,
    )  # fmt: skip


def _array(tensor: Tensor | None) -> Any:
    """The tensor's memory as a NumPy array, not copied."""
    if tensor is None:
        return None
    if tensor.dtype != torch.float32 or tensor.device.type != "cpu" or not tensor.is_contiguous():
        layout = "contiguous" if tensor.is_contiguous() else "strided"
        why = f"got {layout} {tensor.dtype} on {tensor.device}"
        raise UsageError("the cpu backend takes contiguous float32 tensors on the CPU", why=why)
    return tensor.detach().numpy()


def native_arrays(*tensors: Tensor) -> list[Any]:
    """The tensors' memory as NumPy arrays, not copied. Raises UsageError for those the native code cannot read."""
    return [_array(tensor) for tensor in tensors]


def _bytes(mask: Tensor) -> Any:
    """A bool tensor as uint8, not copied."""
    return mask.contiguous().view(torch.uint8).numpy()
