"""Running statistics, and a value head whose scale moves without changing its values."""

from __future__ import annotations

import pytest
import torch

from rl.normalise import RunningStats, ScaledValue


def test_statistics_of_batches_equal_those_of_the_whole():
    g = torch.Generator().manual_seed(0)
    rows = torch.randn(500, 4, generator=g) * torch.tensor([1.0, 5.0, 0.1, 2.0]) + 3.0
    stats = RunningStats(4)
    for part in rows.split([1, 99, 250, 150]):
        stats.update(part)
    assert torch.allclose(stats.mean, rows.mean(0), atol=1e-4)
    assert torch.allclose(stats.var, rows.var(0, unbiased=False), rtol=1e-4)
    assert float(stats.count) == 500


def test_identity_before_data_clip_and_constant_columns():
    stats = RunningStats(2, clip=5.0)
    assert stats(torch.tensor([[1.0, -2.0]])).tolist() == [[1.0, -2.0]]
    stats.update(torch.tensor([[7.0, 0.0], [7.0, 2.0]]))
    out = stats(torch.tensor([[7.0, 1000.0]]))
    assert out.tolist() == [[0.0, 5.0]]
    before = stats.mean.clone()
    stats.update(torch.zeros(0, 2))
    assert torch.equal(stats.mean, before)


def test_a_move_of_scale_keeps_every_value():
    torch.manual_seed(0)
    head, x = ScaledValue(8), torch.randn(64, 8)
    head.update(torch.randn(100) * 50 + 300)
    before = head(x)
    head.update(torch.randn(100) * 2 - 10)
    assert torch.allclose(head(x), before, rtol=1e-4, atol=1e-2)
    assert float(head.mean) < 300


def test_first_returns_set_the_scale():
    head = ScaledValue(4)
    returns = torch.tensor([1.0, 3.0, 5.0, 7.0])
    head.update(returns)
    assert float(head.mean) == pytest.approx(4.0)
    assert float(head.std) == pytest.approx(float(returns.std(unbiased=False)))
    assert float(head.normalise(returns).std(unbiased=False)) == pytest.approx(1.0)
