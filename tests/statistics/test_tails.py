"""Tails and quantiles beside scipy's."""

from __future__ import annotations

import math

import pytest

from lbx.statistics.estimates import binomial_tail, t_quantile, t_tail

stats = pytest.importorskip("scipy.stats", reason="needs lbx[dev]")

EXACT = 1e-9
FREEDOMS = (0.3, 0.7, 1, 1.5, 2, 3.3, 7, 10.9, 30, 199, 999.5, 5e3, 1e5)


@pytest.mark.parametrize("df", FREEDOMS)
def test_t_tail(df: float) -> None:
    """Far out a tail is small, and still right to as many digits: products of many are made of it by Holm."""
    for t in (-100, -2.5, -1e-7, 0, 1e-12, 1e-4, 0.1, 0.5, 1, 1.96, 2.3, 5, 20, 100):
        assert t_tail(t, df) == pytest.approx(stats.t.sf(t, df), rel=EXACT, abs=1e-300), t
    assert t_tail(math.inf, df) == 0 and t_tail(-math.inf, df) == 1


@pytest.mark.parametrize("df", FREEDOMS)
def test_t_quantile(df: float) -> None:
    for p in (0.001, 0.025, 0.2, 0.4999, 0.5, 0.50001, 0.6, 0.8, 0.9, 0.95, 0.975, 0.995, 0.9995):
        assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=EXACT, abs=EXACT), p


@pytest.mark.parametrize("n", [1, 2, 9, 30, 400, 5000])
def test_binomial_tail(n: int) -> None:
    for k in (-1, *range(0, n, max(1, n // 9)), n - 1, n, n + 1):
        for p in (0.001, 0.25, 0.5, 0.9, 0.999):
            assert binomial_tail(k, n, p) == pytest.approx(stats.binom.cdf(k, n, p), rel=EXACT, abs=1e-290), (k, p)
