"""The Gaussian against torch's own, closed forms and numerical integration."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from rl.distributions import clip_action, entropy, kl, log_prob, sample


def draws(seed=0):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(5, 3, generator=g, dtype=torch.float64) for _ in range(5)]


def test_golden_values_of_the_unit_gaussian():
    zero = torch.zeros(1, dtype=torch.float64)
    assert float(log_prob(zero, zero, zero)) == pytest.approx(-0.9189385332046727)
    assert float(log_prob(zero, zero, zero + 2)) == pytest.approx(-2.9189385332046727)
    assert float(entropy(zero)) == pytest.approx(1.4189385332046727)
    # KL(N(0,1) || N(1,2)) = log 2 + (1 + 1) / 8 - 1/2
    assert float(kl(zero, zero, zero + 1, zero + math.log(2))) == pytest.approx(math.log(2) + 0.25 - 0.5)


def test_agrees_with_torch():
    m, s, m2, s2, a = draws()
    p, q = Independent(Normal(m, s.exp()), 1), Independent(Normal(m2, s2.exp()), 1)
    assert torch.allclose(log_prob(m, s, a), p.log_prob(a))
    assert torch.allclose(entropy(s), p.entropy())
    assert torch.allclose(kl(m, s, m2, s2), kl_divergence(p, q))


def test_kl_is_zero_only_at_equality_and_never_negative():
    m, s, m2, s2, _ = draws(1)
    assert float(kl(m, s, m, s).abs().max()) == 0.0
    assert (kl(m, s, m2, s2) > 0).all()


def test_density_integrates_to_one():
    x = torch.linspace(-12, 12, 20_001, dtype=torch.float64)[:, None]
    density = log_prob(torch.full_like(x, 0.4), torch.full_like(x, 0.3), x).exp()
    assert float(torch.trapezoid(density, x[:, 0])) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("function", [log_prob, lambda m, s, a: kl(m, s, a, s * 0.5), lambda m, s, a: entropy(s)])
def test_gradients(function):
    m, s, a, *_ = (x.requires_grad_() for x in draws(2))
    assert torch.autograd.gradcheck(function, (m, s, a))


def test_samples_have_the_mean_and_deviation_and_follow_the_generator():
    mean, log_std = torch.tensor([[0.5, -1.0]]).expand(20_000, 2), torch.tensor([-1.0, 0.2])
    drawn = sample(mean, log_std, torch.Generator().manual_seed(3))
    assert torch.allclose(drawn.mean(0), mean[0], atol=0.03)
    assert torch.allclose(drawn.std(0), log_std.exp(), atol=0.03)
    assert torch.equal(drawn, sample(mean, log_std, torch.Generator().manual_seed(3)))
    assert clip_action(torch.tensor([-3.0, 0.5, 2.0])).tolist() == [-1.0, 0.5, 1.0]
