"""The native rasteriser as a torch function: its forward and backward passes, wired into autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recon.render.backends import cpu
from recon.render.types import Aux, RasterInputs, Rendering


class NativeBackend:
    """Native float32 rasteriser on the CPU; see `recon.render.api.rasterize` for what it draws."""

    name = "cpu"

    def rasterize(self, inputs: RasterInputs) -> Rendering:
        """Draw all views in one native call."""
        tensors = tuple(tensor.contiguous() for tensor in inputs.differentiable)
        grad_norm = torch.zeros(
            (inputs.viewmats.shape[0], inputs.means.shape[0]), dtype=inputs.means.dtype, device=inputs.means.device
        )
        if inputs.needs_grad:
            color, alpha, depth, visible, radii, means2d = _Rasterize.apply(inputs, grad_norm, *tensors)
        else:
            out = _forward(inputs, tuple(tensor.detach() for tensor in tensors), keep=False)
            color, alpha, depth, visible, radii, means2d = (
                out.color, out.alpha, out.depth, out.visible, out.radii, out.means2d,
            )  # fmt: skip
        return Rendering(color, alpha, depth, Aux(visible, radii, means2d, grad_norm))


def _forward(inputs: RasterInputs, tensors: tuple[Tensor, ...], *, keep: bool) -> cpu.Forward:
    means, quats, scales, opacities, colors, viewmats = tensors[:6]
    return cpu.forward(
        means, quats, scales, opacities, colors, viewmats, inputs.Ks.detach().contiguous(), inputs.width, inputs.height,
        sh_degree=inputs.sh_degree, background=tensors[6] if len(tensors) > 6 else None, config=inputs.config,
        tile_mask=None if inputs.tile_mask is None else inputs.tile_mask.contiguous(), keep=keep,
    )  # fmt: skip


class _Rasterize(torch.autograd.Function):
    """(inputs, grad_norm, *inputs.differentiable) -> colour, alpha, depth and three facts without gradient.

    The tensors are passed beside `inputs` because autograd only sees direct arguments. `grad_norm` [C, N] is filled by
    the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, inputs: RasterInputs, grad_norm: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The native forward pass; keeps what the backward pass needs."""
        out = _forward(inputs, tensors, keep=True)
        ctx.save_for_backward(inputs.Ks.contiguous(), *tensors, out.color, out.alpha, out.depth)
        ctx.native, ctx.grad_norm = out.saved, grad_norm
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(out.visible, out.radii, out.means2d)
        return out.color, out.alpha, out.depth, out.visible, out.radii, out.means2d

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of the differentiable inputs, from those of colour, alpha and depth (None: not wanted)."""
        v_color, v_alpha, v_depth = (None if grad is None else grad.contiguous() for grad in grads[:3])
        if v_color is None and v_alpha is None and v_depth is None:
            return (None,) * len(ctx.needs_input_grad)
        Ks, *tensors, color, alpha, depth = ctx.saved_tensors
        means, quats, scales, opacities, colors, viewmats = tensors[:6]
        background = tensors[6] if len(tensors) > 6 else None
        found = cpu.backward(
            ctx.native, means, quats, scales, opacities, colors, viewmats, Ks, background, color, alpha, depth,
            v_color, v_alpha, v_depth, want_viewmats=ctx.needs_input_grad[2 + 5],
        )  # fmt: skip
        ctx.grad_norm.copy_(found.means2d_norm)
        gradients = [found.means, found.quats, found.scales, found.opacities, found.colors, found.viewmats]
        return (None, None, *gradients) if background is None else (None, None, *gradients, found.background)
