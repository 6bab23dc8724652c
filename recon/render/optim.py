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
    """Adam over row-aligned parameters {name: Tensor [N, ...]}, updated in place.

    params: leaf tensors with the same N. lrs: learning rate per name; change `optimizer.lrs[name]` at any time.
    columns: for some names, multiples of the rate for the entries of a row, in the row's shape.
    eps is far below the usual 1e-8 because the gradients of a mean over pixels are tiny.
    state: {name: AdamState}, to read, checkpoint or edit. Deterministic: a row depends on its own history only.
    Raises UsageError for names or shapes that do not fit; UnavailableError as `rasterize` does.
    """

    def __init__(
        self,
        params: dict[str, Tensor],
        lrs: dict[str, float],
        *,
        columns: dict[str, Tensor] | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-15,
        backend: str = "auto",
    ) -> None:
        if not params or set(params) != set(lrs):
            why = f"params {sorted(params)}, lrs {sorted(lrs)}"
            raise UsageError("SparseAdam: names differ", why=why, fix="give every parameter one rate")
        counts = {name: tuple(param.shape[:1]) for name, param in params.items()}
        if len(set(counts.values())) != 1 or () in counts.values():
            raise UsageError("SparseAdam: parameters are not row-aligned", why=f"their first sizes are {counts}")
        if not (0.0 <= betas[0] < 1.0 and 0.0 <= betas[1] < 1.0 and eps > 0.0):
            raise UsageError(f"SparseAdam: betas {betas}, eps {eps}", why="betas lie in [0, 1) and eps is positive")
        self.columns = dict(columns or {})
        for name, factors in self.columns.items():
            if name not in params or factors.shape != params[name].shape[1:]:
                raise UsageError(f"SparseAdam: columns[{name!r}] is {list(factors.shape)}", why="it must be one row")
        for param in params.values():
            select_name(backend, param.device, param.dtype)
        self.params, self.lrs, self.betas, self.eps, self.backend = dict(params), dict(lrs), betas, eps, backend
        self.state = {name: _fresh_state(param) for name, param in params.items()}

    @torch.no_grad()
    def step(self, visible: Tensor | None = None) -> None:
        """Move the rows where `visible` (bool [N]) is True, or all (None), by the parameters' `.grad` (None: stay)."""
        self.step_rows({name: p.grad for name, p in self.params.items() if p.grad is not None}, None, visible)

    @torch.no_grad()
    def step_rows(self, grads: dict[str, Tensor], rows: Tensor | None, visible: Tensor | None = None) -> None:
        """Move some rows: row i of the gradients [M, ...] belongs to row `rows[i]` of the parameters.

        rows: int32 [M], all different; None means all N in order. visible: bool [M], which of them move; None: all.
        """
        count = next(iter(self.params.values())).shape[0] if rows is None else rows.shape[0]
        if visible is not None and (visible.dtype != torch.bool or visible.shape != (count,)):
            raise UsageError(
                f"SparseAdam: visible is {visible.dtype} {list(visible.shape)}", why=f"it must be bool [{count}]"
            )
        for name, grad in grads.items():
            param = self.params[name]
            if grad.shape != (count, *param.shape[1:]):
                raise UsageError(f"SparseAdam: the gradient of {name} is {list(grad.shape)}", why=f"{count} rows move")
            self._update(name, param, grad, rows, visible)

    def _update(self, name: str, param: Tensor, grad: Tensor, rows: Tensor | None, visible: Tensor | None) -> None:
        state, lr, columns = self.state[name], self.lrs[name], self.columns.get(name)
        if select_name(self.backend, param.device, param.dtype) == CPU and param.is_contiguous():
            from recon.render.backends import cpu

            cpu.adam_step(
                param.detach(), grad.contiguous(), state.exp_avg, state.exp_avg_sq, state.steps, visible,
                rows=rows, columns=columns, lr=lr, beta1=self.betas[0], beta2=self.betas[1], eps=self.eps,
            )  # fmt: skip
        else:
            moving = torch.arange(grad.shape[0], device=grad.device) if visible is None else visible.nonzero()[:, 0]
            into = moving if rows is None else rows[moving]
            rate = lr if columns is None else lr * columns
            adam_step_reference(param.detach(), grad[moving], state, into, rate, self.betas, self.eps)

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
    rows: Tensor,
    lr: float | Tensor,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """One update of the rows `rows` [M] of `param` and `state` by `grad` [M, ...], in place, in plain torch.

    lr: one number, or a row of them.
    """
    column = [-1, *[1] * (param.ndim - 1)]  # a row value, to be spread over the row
    state.steps[rows] += 1
    steps = state.steps[rows].to(param.dtype).view(column)
    m = betas[0] * state.exp_avg[rows] + (1.0 - betas[0]) * grad
    v = betas[1] * state.exp_avg_sq[rows] + (1.0 - betas[1]) * grad * grad
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
