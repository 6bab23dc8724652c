"""Advantages against hand-worked numbers and a plain double loop."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl.returns import explained_variance, gae, standardise


def slow_gae(r, v, nv, term, trunc, gamma, lam):
    """The definition as an explicit sum: A_t = sum_k (gamma lam)^k delta_{t+k} until the episode ends."""
    steps, envs = r.shape
    out = torch.zeros_like(r)
    for n in range(envs):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                follows = 0.0 if term[k, n] else float(nv[k, n])
                out[t, n] += weight * (float(r[k, n]) + gamma * follows - float(v[k, n]))
                if term[k, n] or trunc[k, n]:
                    break
                weight *= gamma * lam
    return out


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def test_golden_values_without_an_end():
    # delta = [1 + .5*2 - 1, 2 + .5*3 - 2] = [1, 1.5]; A = [1 + .25*1.5, 1.5] with gamma lam = .25
    no = torch.zeros(2, 1, dtype=torch.bool)
    advantages, returns = gae(column(1, 2), column(1, 2), column(2, 3), no, no, 0.5, 0.5)
    assert advantages[:, 0].tolist() == [1.375, 1.5]
    assert returns[:, 0].tolist() == [2.375, 3.5]


def test_a_termination_drops_the_next_value_and_a_truncation_keeps_it():
    no, yes = torch.zeros(1, 1, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool)
    ended, _ = gae(column(1), column(4), column(10), yes, no, 0.9, 0.95)
    cut, _ = gae(column(1), column(4), column(10), no, yes, 0.9, 0.95)
    assert float(ended) == pytest.approx(-3.0)
    assert float(cut) == pytest.approx(6.0)


@pytest.mark.parametrize("kind", ["termination", "truncation"])
def test_nothing_flows_back_over_the_end_of_an_episode(kind):
    ends = torch.tensor([[True], [False]])
    no = torch.zeros_like(ends)
    flags = (ends, no) if kind == "termination" else (no, ends)
    before, _ = gae(column(1, 0), column(0, 0), column(5, 0), *flags, 0.9, 0.9)
    after, _ = gae(column(1, 1000), column(0, 0), column(5, 0), *flags, 0.9, 0.9)
    assert float(before[0]) == float(after[0])
    assert float(before[1]) != float(after[1])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 3), st.floats(0, 1), st.floats(0, 1), st.integers(0, 2**31))
def test_equals_the_explicit_sum(steps, envs, gamma, lam, seed):
    g = torch.Generator().manual_seed(seed)
    r, v, nv = torch.randn(3, steps, envs, generator=g, dtype=torch.float64)
    term, trunc = (torch.rand(2, steps, envs, generator=g) < 0.25).unbind(0)
    fast, returns = gae(r, v, nv, term, trunc, gamma, lam)
    assert torch.allclose(fast, slow_gae(r, v, nv, term, trunc, gamma, lam), atol=1e-10)
    assert torch.equal(returns, fast + v)


def test_standardise_gives_zero_mean_and_unit_deviation():
    out = standardise(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    assert float(out.mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(out.square().mean()) == pytest.approx(1.0, abs=1e-4)
    assert standardise(torch.tensor([5.0])).tolist() == [0.0]


def test_explained_variance_of_perfect_mean_and_wrong_predictions():
    target = torch.tensor([1.0, 2.0, 3.0])
    assert explained_variance(target, target) == 1.0
    assert explained_variance(torch.full((3,), 2.0), target) == pytest.approx(0.0)
    assert explained_variance(-target, target) < 0
    assert explained_variance(target, torch.ones(3)) == 0.0
