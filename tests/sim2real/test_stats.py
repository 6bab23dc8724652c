"""Intervals and paired tests against SciPy, brute force and published values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from recon.core.errors import UsageError
from sim2real import stats


@given(n=st.integers(1, 200), data=st.data(), alpha=st.sampled_from([0.05, 0.1, 0.01]))
@settings(max_examples=60, deadline=None)
def test_clopper_pearson_and_wilson_agree_with_scipy(n: int, data: st.DataObject, alpha: float) -> None:
    k = data.draw(st.integers(0, n))
    exact = scipy_stats.binomtest(k, n).proportion_ci(1 - alpha, method="exact")
    assert stats.clopper_pearson(k, n, alpha) == pytest.approx((exact.low, exact.high), abs=1e-9)
    score = scipy_stats.binomtest(k, n).proportion_ci(1 - alpha, method="wilson")
    assert stats.wilson(k, n, alpha) == pytest.approx((score.low, score.high), abs=1e-9)


@pytest.mark.parametrize("k, n", [(1, 10), (7, 10), (50, 100), (99, 100)])
def test_clopper_pearson_bounds_solve_the_binomial_tails(k: int, n: int) -> None:
    low, high = stats.clopper_pearson(k, n)
    pmf = [lambda p, i=i: math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(n + 1)]
    assert sum(pmf[i](low) for i in range(k, n + 1)) == pytest.approx(0.025, rel=1e-6)
    assert sum(pmf[i](high) for i in range(k + 1)) == pytest.approx(0.025, rel=1e-6)


def test_wilson_undercovers_where_the_literature_says() -> None:
    """n = 50, nominal 0.95: coverage .922 at p = .98 and .911 at p = .99."""
    for p, expected in ((0.98, 0.922), (0.99, 0.911)):
        inside = sum(
            math.comb(50, k) * p**k * (1 - p) ** (50 - k)
            for k in range(51)
            if stats.wilson(k, 50)[0] <= p <= stats.wilson(k, 50)[1]
        )
        assert inside == pytest.approx(expected, abs=5e-4)


@given(b=st.integers(0, 60), c=st.integers(0, 60))
@settings(max_examples=80, deadline=None)
def test_mcnemar_is_the_exact_sign_test(b: int, c: int) -> None:
    expected = 1.0 if b + c == 0 else scipy_stats.binomtest(b, b + c, 0.5).pvalue
    assert stats.mcnemar_exact(b, c) == pytest.approx(expected, rel=1e-9)
    assert stats.mcnemar_exact(b, c) == stats.mcnemar_exact(c, b)


def test_newcombe_reproduces_the_published_example() -> None:
    """56/70 against 48/80: Newcombe (1998), method 10, gives .0524 to .3339."""
    assert stats.newcombe(56, 70, 48, 80) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_jeffreys_is_a_beta_quantile() -> None:
    low, high = stats.jeffreys(7, 20)
    assert (low, high) == pytest.approx(tuple(scipy_stats.beta.ppf([0.025, 0.975], 7.5, 13.5)), abs=1e-9)
    assert stats.jeffreys(0, 5)[0] == 0.0 and stats.jeffreys(5, 5)[1] == 1.0


def test_bonett_price_by_hand() -> None:
    low, high = stats.bonett_price(20, 5, 100)
    p12, p21 = 21 / 102, 6 / 102
    half = 1.959963985 * math.sqrt((p12 + p21 - (p12 - p21) ** 2) / 102)
    assert (low, high) == pytest.approx((p12 - p21 - half, p12 - p21 + half), abs=1e-9)


def test_e_value_is_the_mixture_likelihood_ratio() -> None:
    import numpy as np

    theta = (np.arange(200000) + 0.5) / 200000
    prior = 1 / (math.pi * np.sqrt(theta * (1 - theta)))
    expected = float(np.mean(prior * (2 * theta) ** 9 * (2 * (1 - theta)) ** 2))
    assert stats.paired_e_value(9, 2) == pytest.approx(expected, rel=1e-3)


def test_comparison_counts_and_verdict() -> None:
    a = [True] * 60 + [False] * 40
    b = [True] * 35 + [False] * 65
    result = stats.compare_paired(a, b)
    assert (result.both, result.only_a, result.only_b, result.neither) == (35, 25, 0, 40)
    assert result.difference == pytest.approx(0.25)
    assert result.verdict == "BETTER" and stats.compare_paired(b, a).verdict == "WORSE"
    assert stats.compare_paired(a, a).verdict == "SAME OUTCOMES" and stats.compare_paired(a, a).p_value == 1.0


def test_minimum_detectable_difference_shrinks_with_n() -> None:
    values = [stats.minimum_detectable_difference(n, 0.3) for n in (50, 100, 400)]
    assert values == sorted(values, reverse=True) and 0 < values[-1] < 0.1


@pytest.mark.parametrize("k, n", [(-1, 5), (6, 5)])
def test_impossible_counts_are_refused(k: int, n: int) -> None:
    with pytest.raises(UsageError, match=f"{k} of {n}"):
        stats.clopper_pearson(k, n)
