"""A small version of bench/coverage.py: every kind of interval contains the true value in at least 93% of data sets."""

from __future__ import annotations

from bench.coverage import KINDS, cover

SETS = 60


def test_every_kind_of_interval_contains_the_true_value() -> None:
    """Over all settings of a kind; the bound of a setting of 60 data sets is 93% less three standard errors."""
    counts: dict[str, list[tuple[int, int, str]]] = {}
    for settings in KINDS:
        for setting in [*settings()][::5]:
            counts.setdefault(setting.kind, []).append((*cover(setting, SETS), setting.name))
    assert len(counts) == 8
    for kind, found in counts.items():
        printed, covered = (sum(row[side] for row in found) for side in (0, 1))
        assert covered >= 0.93 * printed and printed >= SETS, kind
        for n, hits, name in found:
            assert n - hits <= 0.07 * n + 3 * (0.07 * 0.93 * n) ** 0.5 + 1, (kind, name, hits, n)
