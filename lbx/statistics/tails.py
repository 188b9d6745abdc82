"""Tails and quantiles of the normal, Student's t and the binomial distribution.

They are accurate to at least nine digits up to 100,000 degrees of freedom. SciPy has them, too, but its import takes
seconds, and it would add 100 MB to a container.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

_TINY = 1e-300
_STEPS = 500


def normal_tail(z: float) -> float:
    """P(Z > z) of the normal distribution."""
    return 0.5 * math.erfc(z / math.sqrt(2))


def t_tail(t: float, df: float) -> float:
    """P(T > t) of Student's t with ``df`` > 0 degrees of freedom, which may be fractional."""
    if t < 0:
        return 1 - t_tail(-t, df)
    if math.isinf(t):
        return 0.0
    square = t * t
    return 0.5 * _beta(df / (df + square), square / (df + square), df / 2, 0.5)


def binomial_tail(k: int, n: int, p: float) -> float:
    """P(X <= k) of n trials with success probability p."""
    if k < 0:
        return 0.0
    return 1.0 if k >= n else _beta(1 - p, p, n - k, k + 1)


@lru_cache(maxsize=4096)
def normal_quantile(p: float) -> float:
    """Number z with P(Z <= z) = p, for 0 < p < 1, of the normal distribution."""
    if p < 0.5:
        return -normal_quantile(1 - p)
    return _upper(1 - p, 0.0, normal_tail, lambda z: math.exp(-z * z / 2) / math.sqrt(2 * math.pi))


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """Number t with P(T <= t) = p, for 0 < p < 1, of Student's t."""
    if p < 0.5:
        return -t_quantile(1 - p, df)
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    return _upper(
        1 - p, normal_quantile(p), lambda t: t_tail(t, df), lambda t: scale * (1 + t * t / df) ** (-(df + 1) / 2)
    )


def beta_quantile(p: float, a: float, b: float) -> float:
    """Number x with P(X <= x) = p, for 0 < p < 1, of the beta distribution with positive parameters."""
    if b == 0 or a == 0:
        return float(b == 0)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    low, high, x = 0.0, 1.0, a / (a + b)
    for _ in range(_STEPS):
        error = _beta(x, 1 - x, a, b) - p
        low, high = (x, high) if error < 0 else (low, x)
        slope = math.exp(min(front + (a - 1) * math.log(x) + (b - 1) * math.log1p(-x), 700.0))
        step = x - error / slope if slope else low
        new = step if low < step < high else (low + high) / 2
        if abs(new - x) <= 1e-12 * x:
            return new
        x = new
        if not 0 < x < 1:
            break
    return x


def _upper(p: float, start: float, tail: Callable[[float], float], density: Callable[[float], float]) -> float:
    """Solve tail(x) = p for a tail that is convex beyond ``start``; Newton's steps approach from the left."""
    value = start
    for _ in range(_STEPS):
        step = (tail(value) - p) / density(value)
        value += step
        if abs(step) <= 1e-10 * (1 + value):  # the remaining error is of the order of its square
            break
    return value


def _beta(x: float, complement: float, a: float, b: float) -> float:
    """Regularised incomplete beta function I_x(a, b); ``complement`` is 1 - x, exact for x near 1."""
    if x <= 0 or complement <= 0:
        return float(x > 0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(complement, x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(complement))
    return front / a * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of I_x(a, b), by Lentz's method (Abramowitz and Stegun 26.5.8)."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or _TINY)
    fraction, both = d, a + b
    for m in range(1, _STEPS):  # a tenth of the time of a large comparison
        even = a + 2 * m
        term = m * (b - m) * x / ((even - 1) * even)
        d = 1 / (1 + term * d or _TINY)
        c = 1 + term / c or _TINY
        fraction *= c * d
        term = -(a + m) * (both + m) * x / (even * (even + 1))
        d = 1 / (1 + term * d or _TINY)
        c = 1 + term / c or _TINY
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return fraction
