"""Statistics of success counts: intervals for one rate, and paired comparison of two policies.

Every interval is two-sided with level 1 - alpha. k of n are successes. All functions return fractions in [0, 1]
(differences in [-1, 1]).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from recon.core.errors import UsageError


def clopper_pearson(k: int, n: int, alpha: float = 0.05) -> tuple[float, float]:
    """Exact interval of a success rate: never covers less than 1 - alpha. (0, 1) for n = 0."""
    from scipy.special import betaincinv

    _check_counts(k, n, alpha)
    # L = Beta^-1(a/2; k, n-k+1),  U = Beta^-1(1-a/2; k+1, n-k);  L = 0 at k = 0, U = 1 at k = n
    low = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, alpha / 2))
    high = 1.0 if k == n else float(betaincinv(k + 1, n - k, 1 - alpha / 2))
    return low, high


def wilson(k: int, n: int, alpha: float = 0.05) -> tuple[float, float]:
    """Wilson score interval: shorter than Clopper-Pearson, may cover less near 0 and 1. (0, 1) for n = 0."""
    _check_counts(k, n, alpha)
    if n == 0:
        return 0.0, 1.0
    z, p = _z(alpha), k / n
    # centre (p + z^2/2n) / (1 + z^2/n);  half z / (1 + z^2/n) sqrt(p(1-p)/n + z^2/4n^2)
    scale = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (0.0 if k == 0 else max(0.0, centre - half)), (1.0 if k == n else min(1.0, centre + half))


def jeffreys(k: int, n: int, alpha: float = 0.05) -> tuple[float, float]:
    """Quantiles of Beta(k + 1/2, n - k + 1/2); 0 below at k = 0, 1 above at k = n."""
    from scipy.special import betaincinv

    _check_counts(k, n, alpha)
    low = 0.0 if k == 0 else float(betaincinv(k + 0.5, n - k + 0.5, alpha / 2))
    high = 1.0 if k == n else float(betaincinv(k + 0.5, n - k + 0.5, 1 - alpha / 2))
    return low, high


def newcombe(k1: int, n1: int, k2: int, n2: int, alpha: float = 0.05) -> tuple[float, float]:
    """Hybrid score interval of p1 - p2 for independent episodes (Newcombe's method 10)."""
    if n1 == 0 or n2 == 0:
        return -1.0, 1.0
    (l1, u1), (l2, u2) = wilson(k1, n1, alpha), wilson(k2, n2, alpha)
    p1, p2 = k1 / n1, k2 / n2
    low = (p1 - p2) - math.hypot(p1 - l1, u2 - p2)
    high = (p1 - p2) + math.hypot(u1 - p1, p2 - l2)
    return low, high


def mcnemar_exact(b: int, c: int) -> float:
    """Two-sided exact p-value of paired outcomes: b scenarios only A solved, c only B. 1 when b + c = 0."""
    if b < 0 or c < 0:
        raise UsageError("discordant counts must not be negative", why=f"got b={b}, c={c}")
    m = b + c
    # p = min(1, 2 P(Bin(m, 1/2) <= min(b, c))), summed exactly in integers
    tail = sum(math.comb(m, i) for i in range(min(b, c) + 1))
    return min(1.0, 2 * tail / 2**m)


def bonett_price(b: int, c: int, n: int, alpha: float = 0.05) -> tuple[float, float]:
    """Interval of the paired difference pA - pB, from b, c discordant pairs among n."""
    if n <= 0:
        return -1.0, 1.0
    # p12 = (b+1)/(n+2), p21 = (c+1)/(n+2);  (p12-p21) +- z sqrt((p12+p21-(p12-p21)^2)/(n+2))
    p12, p21 = (b + 1) / (n + 2), (c + 1) / (n + 2)
    half = _z(alpha) * math.sqrt((p12 + p21 - (p12 - p21) ** 2) / (n + 2))
    return max(-1.0, p12 - p21 - half), min(1.0, p12 - p21 + half)


def paired_e_value(wins: int, losses: int) -> float:
    """Any-time valid evidence against "both win equally often": reject at level alpha once it reaches 1/alpha."""
    from scipy.special import betaln

    # e = 2^(w+l) B(w+1/2, l+1/2) / B(1/2, 1/2)
    log_e = (wins + losses) * math.log(2) + float(betaln(wins + 0.5, losses + 0.5) - betaln(0.5, 0.5))
    return math.exp(min(log_e, 700.0))


def minimum_detectable_difference(n: int, discordance: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """Smallest paired difference that n scenarios detect with this power, given the share of discordant pairs."""
    if n <= 0 or discordance <= 0:
        return 1.0
    z_a, z_b = _z(alpha), NormalDist().inv_cdf(power)
    # m = (z_a + z_b sqrt(1 - t^2))^2 / t^2 discordant pairs for t = 2 pi - 1, solved by bisection; d = t * discordance
    m, low, high = n * discordance, 0.0, 1.0
    for _ in range(60):
        t = (low + high) / 2
        needed = (z_a + z_b * math.sqrt(1 - t * t)) ** 2 / (t * t)
        low, high = (low, t) if needed <= m else (t, high)
    return high * discordance


@dataclass(frozen=True)
class Rate:
    """k successes of n with the exact interval [low, high]."""

    k: int
    n: int
    rate: float
    low: float
    high: float
    method: str = "Clopper-Pearson"


def rate(k: int, n: int, alpha: float = 0.05) -> Rate:
    """k of n with its Clopper-Pearson interval; the rate of nothing is NaN."""
    low, high = clopper_pearson(k, n, alpha)
    return Rate(k, n, k / n if n else float("nan"), low, high)


@dataclass(frozen=True)
class Paired:
    """Policy A against policy B on the same scenarios. Differences are A - B, fractions."""

    n: int
    both: int
    only_a: int
    only_b: int
    neither: int
    difference: float
    low: float
    high: float
    p_value: float
    e_value: float
    minimum_detectable: float
    verdict: str  # BETTER | WORSE | UNDERPOWERED | SAME OUTCOMES


def compare_paired(a: list[bool], b: list[bool], alpha: float = 0.05) -> Paired:
    """Exact McNemar test, Bonett-Price interval and e-value of two outcome lists in the same scenario order."""
    if len(a) != len(b) or not a:
        raise UsageError("paired outcomes need the same scenarios", why=f"got {len(a)} and {len(b)} outcomes")
    n = len(a)
    only_a = sum(x and not y for x, y in zip(a, b, strict=True))
    only_b = sum(y and not x for x, y in zip(a, b, strict=True))
    both = sum(x and y for x, y in zip(a, b, strict=True))
    low, high = bonett_price(only_a, only_b, n, alpha)
    p = mcnemar_exact(only_a, only_b)
    if p < alpha:
        verdict = "BETTER" if only_a > only_b else "WORSE"
    else:
        verdict = "SAME OUTCOMES" if only_a + only_b == 0 else "UNDERPOWERED"
    return Paired(
        n=n,
        both=both,
        only_a=only_a,
        only_b=only_b,
        neither=n - both - only_a - only_b,
        difference=(only_a - only_b) / n,
        low=low,
        high=high,
        p_value=p,
        e_value=paired_e_value(only_a, only_b),
        minimum_detectable=minimum_detectable_difference(n, (only_a + only_b) / n, alpha),
        verdict=verdict,
    )


def _z(alpha: float) -> float:
    return NormalDist().inv_cdf(1 - alpha / 2)


def _check_counts(k: int, n: int, alpha: float) -> None:
    if not 0 <= k <= n:
        raise UsageError("a success count must lie between 0 and the number of episodes", why=f"got {k} of {n}")
    if not 0 < alpha < 1:
        raise UsageError("alpha must lie between 0 and 1", why=f"got {alpha}")
