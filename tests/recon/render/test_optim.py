"""Sparse Adam against torch's Adam, a loop over rows, and native against torch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recon.core.errors import UsageError
from recon.render import SparseAdam

BACKENDS = ["reference", "cpu"]


def parameters(seed: int, rows: int = 7, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"means": (rows, 3), "opacities": (rows,), "sh": (rows, 4, 3)}
    return {name: torch.randn(shape, generator=generator).to(dtype).requires_grad_() for name, shape in shapes.items()}


LRS = {"means": 1e-2, "opacities": 0.1, "sh": 3e-3}


def set_gradients(params: dict[str, Tensor], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for param in params.values():
        param.grad = torch.randn(param.shape, generator=generator).to(param.dtype) * 1e-3


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_rows_visible_is_adam(backend: str) -> None:
    mine, theirs = parameters(0), parameters(0)
    ours = SparseAdam(mine, LRS, eps=1e-12, backend=backend)
    adam = torch.optim.Adam([{"params": [theirs[name]], "lr": LRS[name]} for name in theirs], eps=1e-12)
    for step in range(20):
        set_gradients(mine, step)
        set_gradients(theirs, step)
        ours.step(None if step % 2 else torch.ones(7, dtype=torch.bool))
        adam.step()
    for name in mine:
        assert torch.allclose(mine[name], theirs[name], rtol=1e-5, atol=1e-6), name


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_count_their_own_steps(backend: str) -> None:
    """One row by hand in Python floats: seen in steps 0, 3, 4 only."""
    params = {"opacities": torch.full((2,), 0.5, requires_grad=True)}
    optimizer = SparseAdam(params, {"opacities": 0.01}, backend=backend)
    p, m, v, k = 0.5, 0.0, 0.0, 0
    for step in range(5):
        gradient = 0.3 - 0.1 * step
        params["opacities"].grad = torch.tensor([gradient, gradient])
        seen = step in (0, 3, 4)
        optimizer.step(torch.tensor([seen, True]))
        if seen:
            k += 1
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
            p -= 0.01 * (m / (1 - 0.9**k)) / (math.sqrt(v / (1 - 0.999**k)) + 1e-15)
    assert params["opacities"][0].item() == pytest.approx(p, rel=1e-5)
    assert optimizer.state["opacities"].steps.tolist() == [3, 5]
    assert optimizer.state["opacities"].exp_avg[0].item() == pytest.approx(m, rel=1e-5)
    assert optimizer.state["opacities"].exp_avg_sq[0].item() == pytest.approx(v, rel=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_unseen_rows_keep_everything(backend: str) -> None:
    params = parameters(1)
    optimizer = SparseAdam(params, LRS, backend=backend)
    set_gradients(params, 0)
    optimizer.step()
    before = {name: tensor.clone() for name, tensor in {**params, **optimizer.state_tensors()}.items()}
    set_gradients(params, 1)
    params["sh"].grad[3] = float("nan")
    seen = torch.tensor([True, False, True, False, False, True, False])
    optimizer.step(seen)
    for name, tensor in {**params, **optimizer.state_tensors()}.items():
        assert torch.equal(tensor[~seen], before[name][~seen]), name
        if not name.endswith("steps"):
            assert (tensor[seen] != before[name][seen]).any(), name


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 1000), st.integers(0, 40), st.integers(1, 6))
def test_native_matches_float64(seed: int, rows: int, steps: int) -> None:
    single, exact = parameters(seed, rows), parameters(seed, rows, torch.float64)
    fast, slow = SparseAdam(single, LRS, backend="cpu"), SparseAdam(exact, LRS, backend="reference")
    for step in range(steps):
        set_gradients(single, step)
        set_gradients(exact, step)
        seen = torch.rand(rows, generator=torch.Generator().manual_seed(seed + step)) < 0.7
        fast.step(seen)
        slow.step(seen)
    for name in single:
        assert torch.allclose(single[name].double(), exact[name], rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize("backend", BACKENDS)
def test_some_rows_with_their_own_rates_equal_a_masked_step(backend: str) -> None:
    """Gradients of rows 5, 0, 2 (2 not visible), SH above degree 0 at a tenth of the rate."""
    factors = torch.tensor([1.0, 0.1, 0.1, 0.1])[:, None].expand(4, 3).contiguous()
    some, plain = parameters(8), parameters(8)
    one = SparseAdam(some, LRS, columns={"sh": factors}, backend=backend)
    two = SparseAdam(plain, LRS, backend=backend)
    before = {name: param.detach().clone() for name, param in plain.items()}
    rows, visible = torch.tensor([5, 0, 2], dtype=torch.int32), torch.tensor([True, True, False])
    for step in range(3):
        set_gradients(plain, step)
        one.step_rows({name: param.grad[rows] for name, param in plain.items()}, rows, visible)
        two.step(torch.tensor([True, False, False, False, False, True, False]))
    for name in ("means", "opacities"):
        assert torch.allclose(some[name], plain[name], rtol=1e-6, atol=1e-7), name
    moved, full = some["sh"].detach() - before["sh"], plain["sh"].detach() - before["sh"]
    assert torch.allclose(moved, full * factors, atol=1e-6) and float(moved.abs().max()) > 1e-3
    assert one.state["means"].steps.tolist() == [3, 0, 0, 0, 0, 3, 0]


@pytest.mark.parametrize("width", [1, 3, 4, 7, 15, 16, 27, 48])
def test_native_rows_match_the_reference_for_every_width(width: int) -> None:
    random = torch.Generator().manual_seed(width)
    start, grad = torch.randn(2000, width, generator=random), torch.randn(900, width, generator=random)
    rows = torch.randperm(2000, generator=random)[:900].to(torch.int32)
    visible = torch.rand(900, generator=random) < 0.6
    factors = torch.rand(width, generator=random)
    found = []
    for backend in BACKENDS:
        params = {"p": start.clone()}
        optimizer = SparseAdam(params, {"p": 0.1}, columns={"p": factors}, backend=backend)
        for _ in range(2):
            optimizer.step_rows({"p": grad}, rows, visible)
        found.append([params["p"], *optimizer.state_tensors().values()])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_state_round_trip_continues_bit_for_bit(backend: str) -> None:
    def run(optimizer: SparseAdam, first: int, last: int) -> None:
        for step in range(first, last):
            set_gradients(optimizer.params, step)
            optimizer.step(torch.arange(7) % (step + 1) == 0)

    whole = SparseAdam(parameters(2), LRS, backend=backend)
    run(whole, 0, 6)
    half = SparseAdam(parameters(2), LRS, backend=backend)
    run(half, 0, 3)
    copy = {name: param.detach().clone().requires_grad_() for name, param in half.params.items()}
    resumed = SparseAdam(copy, LRS, backend=backend)
    resumed.load_state_tensors({key: tensor.clone() for key, tensor in half.state_tensors().items()})
    run(resumed, 3, 6)
    for name in whole.params:
        assert torch.equal(whole.params[name], resumed.params[name])


@pytest.mark.parametrize("backend", BACKENDS)
def test_reset_rows_start_afresh(backend: str) -> None:
    params = parameters(3)
    optimizer = SparseAdam(params, LRS, backend=backend)
    for step in range(3):
        set_gradients(params, step)
        optimizer.step()
    optimizer.reset_rows(torch.tensor([1, 4]))
    assert optimizer.state["sh"].steps.tolist() == [3, 0, 3, 3, 0, 3, 3]
    assert optimizer.state["sh"].exp_avg[[1, 4]].abs().sum() == 0 and optimizer.state["sh"].exp_avg[0].abs().sum() > 0
    before = params["means"].detach().clone()
    set_gradients(params, 9)
    optimizer.step()
    # The first step of a row moves it by the learning rate against the sign of its gradient.
    moved = params["means"].detach()[1] - before[1]
    assert torch.allclose(moved, -LRS["means"] * params["means"].grad[1].sign(), rtol=1e-3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rates_can_change_and_parameters_without_gradient_stay(backend: str) -> None:
    params = parameters(4)
    before = {name: param.detach().clone() for name, param in params.items()}
    optimizer = SparseAdam(params, LRS, backend=backend)
    set_gradients(params, 0)
    params["sh"].grad = None
    optimizer.lrs["means"] = 0.0
    optimizer.step()
    assert torch.equal(params["sh"], before["sh"]) and torch.equal(params["means"], before["means"])
    assert not torch.equal(params["opacities"], before["opacities"])
    assert optimizer.state["sh"].steps.sum() == 0
    optimizer.zero_grad()
    assert all(param.grad is None for param in params.values())


def test_bad_arguments_are_refused() -> None:
    params = parameters(5)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"params": params, "lrs": {"means": 1.0}}, "names differ"),
        ({"params": {}, "lrs": {}}, "names differ"),
        ({"params": {**params, "sh": params["sh"][:3]}, "lrs": LRS}, "not row-aligned"),
        ({"params": params, "lrs": LRS, "betas": (1.0, 0.9)}, "betas lie"),
        ({"params": params, "lrs": LRS, "backend": "magic"}, "no rasteriser backend is called 'magic'"),
    ]
    for arguments, message in wrong:
        with pytest.raises(UsageError, match=message):
            SparseAdam(**arguments)
    optimizer = SparseAdam(params, LRS, backend="reference")
    with pytest.raises(UsageError, match=r"it must be bool \[7\]"):
        optimizer.step(torch.ones(6, dtype=torch.bool))
    with pytest.raises(UsageError, match="the gradient of means"):
        optimizer.step_rows({"means": torch.zeros(2, 3)}, torch.tensor([1], dtype=torch.int32))
    with pytest.raises(UsageError, match="must be one row"):
        SparseAdam(params, LRS, columns={"sh": torch.ones(4)})
    with pytest.raises(UsageError, match="'means.exp_avg' is missing"):
        optimizer.load_state_tensors({})
