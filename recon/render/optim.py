"""Adam that moves only the rows that were seen, for tables of Gaussians.

A row that no camera saw has no gradient, yet plain Adam would still move it by its momentum and shrink its moments.
Here it keeps everything. Each row counts its own steps for the bias correction, so a row that starts late (or is reset
after relocation) starts like any other:

    k += 1;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
    p -= lr (m / (1 - b1^k)) / (sqrt(v / (1 - b2^k)) + eps)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from recon.core.errors import UsageError
from recon.render.backends import CPU, select_name


@dataclass
class AdamState:
    """Moments of one parameter, in its own shape, and the steps each of its rows has made."""

    exp_avg: Tensor  # [N, ...]
    exp_avg_sq: Tensor  # [N, ...]
    steps: Tensor  # int32 [N]


class SparseAdam:
    """Adam over row-aligned parameters {name: Tensor [N, ...]}, updated in place from their `.grad`.

    params: leaf tensors with the same N. lrs: learning rate per name; change `optimizer.lrs[name]` at any time.
    eps is far below the usual 1e-8 because the gradients of a mean over pixels are tiny.
    state: {name: AdamState}, to read, checkpoint or edit. Deterministic: a row depends on its own history only.
    Raises UsageError for names or shapes that do not fit; UnavailableError as `rasterize` does.
    """

    def __init__(
        self,
        params: dict[str, Tensor],
        lrs: dict[str, float],
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-15,
        backend: str = "auto",
    ) -> None:
        if not params or set(params) != set(lrs):
            why = f"params {sorted(params)}, lrs {sorted(lrs)}"
            raise UsageError("SparseAdam: names differ", why=why, fix="give every parameter one rate")
        rows = {name: tuple(param.shape[:1]) for name, param in params.items()}
        if len(set(rows.values())) != 1 or () in rows.values():
            raise UsageError("SparseAdam: parameters are not row-aligned", why=f"their first sizes are {rows}")
        if not (0.0 <= betas[0] < 1.0 and 0.0 <= betas[1] < 1.0 and eps > 0.0):
            raise UsageError(f"SparseAdam: betas {betas}, eps {eps}", why="betas lie in [0, 1) and eps is positive")
        for param in params.values():
            select_name(backend, param.device, param.dtype)
        self.params, self.lrs, self.betas, self.eps, self.backend = dict(params), dict(lrs), betas, eps, backend
        self.state = {name: _fresh_state(param) for name, param in params.items()}

    @torch.no_grad()
    def step(self, visible: Tensor | None = None) -> None:
        """Move the rows where `visible` (bool [N]) is True, or all (None). Parameters without `.grad` stay."""
        for name, param in self.params.items():
            if visible is not None and (visible.dtype != torch.bool or visible.shape != param.shape[:1]):
                got = f"{visible.dtype} {list(visible.shape)}"
                raise UsageError(f"SparseAdam: visible is {got}", why=f"it must be bool [{param.shape[0]}]")
            if param.grad is not None:
                self._update(name, param, param.grad, visible)

    def _update(self, name: str, param: Tensor, grad: Tensor, visible: Tensor | None) -> None:
        state, lr = self.state[name], self.lrs[name]
        state.steps += 1 if visible is None else visible.to(torch.int32)
        if select_name(self.backend, param.device, param.dtype) == CPU and param.is_contiguous():
            from recon.render.backends import cpu

            cpu.adam_step(
                param.detach(), grad.contiguous(), state.exp_avg, state.exp_avg_sq, state.steps, visible,
                lr=lr, beta1=self.betas[0], beta2=self.betas[1], eps=self.eps,
            )  # fmt: skip
        else:
            adam_step_reference(param.detach(), grad, state, visible, lr, self.betas, self.eps)

    def zero_grad(self) -> None:
        """Forget the gradients of every parameter."""
        for param in self.params.values():
            param.grad = None

    def reset_rows(self, rows: Tensor) -> None:
        """Start the rows `rows` (indices or bool [N]) afresh: moments and step counts 0."""
        for state in self.state.values():
            state.exp_avg[rows] = 0.0
            state.exp_avg_sq[rows] = 0.0
            state.steps[rows] = 0

    def state_tensors(self) -> dict[str, Tensor]:
        """The whole state as {"<name>.exp_avg" | ".exp_avg_sq" | ".steps": Tensor}, not copied; for checkpoints."""
        return {f"{name}.{key}": tensor for name, state in self.state.items() for key, tensor in vars(state).items()}

    def load_state_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `state_tensors` gave, from any device. UsageError for missing tensors or other shapes."""
        for key, mine in self.state_tensors().items():
            theirs = tensors.get(key)
            if theirs is None or theirs.shape != mine.shape or theirs.dtype != mine.dtype:
                got = "missing" if theirs is None else f"{theirs.dtype} {list(theirs.shape)}"
                raise UsageError(f"optimiser state {key!r} is {got}", why=f"expected {mine.dtype} {list(mine.shape)}")
        for key, mine in self.state_tensors().items():
            mine.copy_(tensors[key])


def adam_step_reference(
    param: Tensor,
    grad: Tensor,
    state: AdamState,
    visible: Tensor | None,
    lr: float,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """One update of `param` and `state` in place, in plain torch. `state.steps` already counts this step."""
    rows = torch.ones_like(state.steps, dtype=torch.bool) if visible is None else visible
    column = [-1, *[1] * (param.ndim - 1)]  # a row value, to be spread over the row
    g, steps = grad[rows], state.steps[rows].to(param.dtype).view(column)
    m = betas[0] * state.exp_avg[rows] + (1.0 - betas[0]) * g
    v = betas[1] * state.exp_avg_sq[rows] + (1.0 - betas[1]) * g * g
    # 1 - b^k from logarithms: for b2 = 0.999 and small k the plain difference loses half of float32's digits.
    unbias_m, unbias_v = (-torch.expm1(steps * _log(beta)) for beta in betas)
    param[rows] -= lr * (m / unbias_m) / (torch.sqrt(v / unbias_v) + eps)
    state.exp_avg[rows], state.exp_avg_sq[rows] = m, v


def _log(beta: float) -> float:
    return math.log(beta) if beta > 0.0 else -math.inf


def _fresh_state(param: Tensor) -> AdamState:
    """Zero moments and counts, laid out like a contiguous copy of `param`."""
    steps = torch.zeros(param.shape[0], dtype=torch.int32, device=param.device)
    zeros = [torch.zeros(param.shape, dtype=param.dtype, device=param.device) for _ in range(2)]
    return AdamState(zeros[0], zeros[1], steps)
