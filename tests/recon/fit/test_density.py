"""Relocation: the copies draw what the original drew; the dead are reborn at the living."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from recon.fit.density import exploration_noise, plan_relocation, split_copies


def split_slowly(o: float, n: int) -> tuple[float, float]:
    """The double sum of the paper, term by term in double precision: (o', s' / s)."""
    new = 1 - (1 - o) ** (1 / n)
    denominator = sum(
        math.comb(i - 1, k) * (-1) ** k * new ** (k + 1) / math.sqrt(k + 1) for i in range(1, n + 1) for k in range(i)
    )
    return new, o / denominator


@given(o=st.floats(0.01, 0.99), n=st.integers(1, 12))
def test_copies_follow_the_papers_double_sum(o: float, n: int) -> None:
    opacity, scale = split_copies(torch.tensor([o]), torch.ones(1, 3), torch.tensor([n]))
    expected_opacity, expected_scale = split_slowly(o, n)
    assert math.isclose(float(opacity), expected_opacity, rel_tol=2e-4, abs_tol=1e-6)
    assert math.isclose(float(scale[0, 0]), expected_scale, rel_tol=5e-3)


def test_one_copy_changes_nothing() -> None:
    opacity, scale = split_copies(torch.tensor([0.3]), torch.full((1, 3), 0.7), torch.tensor([1]))
    assert torch.allclose(opacity, torch.tensor([0.3])) and torch.allclose(scale, torch.full((1, 3), 0.7))


def test_dead_rows_are_reborn_at_living_ones_in_proportion_to_their_score() -> None:
    opacities = torch.tensor([0.001] * 2000 + [0.5, 0.5])
    scores = torch.cat([torch.full((2000,), 100.0), torch.tensor([3.0, 1.0])])
    dead, source = plan_relocation(opacities, scores, 0.005, 1.0, torch.Generator().manual_seed(0))
    assert dead.tolist() == list(range(2000))
    assert set(source.tolist()) == {2000, 2001}  # never another dead row, whatever its score
    assert 0.70 < (source == 2000).float().mean() < 0.80


def test_relocation_is_bounded_and_takes_the_most_transparent() -> None:
    opacities = torch.cat([torch.linspace(0.0001, 0.004, 50), torch.full((50,), 0.5)])
    dead, _ = plan_relocation(opacities, torch.ones(100), 0.005, 0.1, torch.Generator().manual_seed(0))
    assert sorted(dead.tolist()) == list(range(10))


def test_nothing_alive_nothing_moves() -> None:
    dead, source = plan_relocation(torch.zeros(5), torch.ones(5), 0.005, 1.0, torch.Generator().manual_seed(0))
    assert dead.numel() == source.numel() == 0


def test_noise_follows_the_gaussians_shape_and_spares_opaque_rows() -> None:
    rows = 20000
    quats = torch.tensor([[1.0, 0, 0, 0]]).repeat(rows, 1)
    scales = torch.tensor([[0.1, 0.01, 0.001]]).repeat(rows, 1)
    generator = torch.Generator().manual_seed(1)
    transparent = exploration_noise(quats, scales, torch.full((rows,), 0.001), 1.0, generator)
    gate = 1 / (1 + math.exp(-0.4))
    assert torch.allclose(transparent.std(0), torch.tensor([1e-2, 1e-4, 1e-6]) * gate, rtol=0.05)
    opaque = exploration_noise(quats, scales, torch.full((rows,), 0.5), 1.0, generator)
    assert float(opaque.abs().max()) < 1e-12
