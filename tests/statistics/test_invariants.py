"""What must not matter to an interval or a difference, and what must not come out of one, whatever the scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.statistics.differences import Difference, difference
from lbx.statistics.estimates import Estimate, Interval, Stratum, encode_labels, interval


@dataclass(frozen=True)
class Rows:
    """A task's rows: sample, document and the scores of two runs."""

    weight: float
    rows: tuple[tuple[int, int, float, float], ...]

    def stratum(self, run: int = 0, times: int = 1, order: int | None = None, names: str = "") -> Stratum:
        rows = list(self.rows)
        if order is not None:
            np.random.default_rng(order).shuffle(rows)
        rows = [row for row in rows for _ in range(times)]
        samples, clusters = (tuple(f"{names}{row[place]}" for row in rows) for place in (0, 1))
        return Stratum(self.weight, samples, clusters, np.array([row[2 + run] for row in rows]))


SCORE = st.sampled_from((0.0, 1.0)) | st.floats(0, 1, width=32)
ROW = st.tuples(st.integers(0, 6), SCORE, SCORE)


@st.composite
def numbers(draw: st.DrawFn) -> list[Rows]:
    """One to three tasks, whose samples are apart and whose documents may be shared."""
    found, number = [], 0
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.lists(ROW, min_size=1, max_size=30))
        found.append(Rows(draw(st.sampled_from((0.2, 0.5, 1.0))),
                          tuple((number + place, *row) for place, row in enumerate(rows))))  # fmt: skip
        number += len(rows)
    whole = sum(one.weight for one in found)
    return [Rows(one.weight / whole, one.rows) for one in found]


def estimate(tasks: list[Rows], **how: object) -> Estimate:
    return Estimate(tuple(task.stratum(**how) for task in tasks))  # type: ignore[arg-type]


def same(first: Interval, second: Interval) -> None:
    assert (first.method, first.n, first.clusters) == (second.method, second.n, second.clusters)
    for name in ("value", "low", "high", "se", "df"):
        one, other = getattr(first, name), getattr(second, name)
        assert one == other or one == pytest.approx(other, rel=1e-7, abs=1e-9), name


def alike(first: Difference, second: Difference) -> None:
    same(first.interval, second.interval)
    assert first.test == second.test
    assert first.p == second.p or first.p == pytest.approx(second.p, abs=1e-7)


@given(tasks=numbers())
def test_an_interval_has_a_width_or_says_why_not(tasks: list[Rows]) -> None:
    found = interval(estimate(tasks))
    assert all(
        math.isfinite(one) for one in (found.value, found.low, found.high, found.se, found.df) if one is not None
    )
    if found.method in ("t", "logit", "exact"):
        assert found.low is not None and found.high is not None
        assert 0 <= found.low <= found.value + 1e-12 and found.value - 1e-12 <= found.high <= 1
        assert found.high - found.low > 1e-9
    else:
        assert found.method in ("one cluster", "all alike", "all alike in a part") and found.low is found.high is None
    if found.df is not None:
        assert 0 < found.df <= found.n


@given(tasks=numbers(), order=st.integers(0, 99))
def test_neither_order_nor_names_matter(tasks: list[Rows], order: int) -> None:
    found = interval(estimate(tasks))
    same(interval(estimate(tasks, order=order)), found)
    same(interval(estimate(tasks, names="another run's ")), found)
    same(interval(estimate(tasks[::-1])), found)
    compared = difference(estimate(tasks), estimate(tasks, run=1))
    alike(difference(estimate(tasks, order=order), estimate(tasks, run=1)), compared)
    alike(difference(estimate(tasks, names="x"), estimate(tasks, run=1, names="x")), compared)


@given(tasks=numbers(), times=st.integers(2, 4))
def test_repeated_rows_are_no_more_samples(tasks: list[Rows], times: int) -> None:
    found = interval(estimate(tasks))
    again = interval(estimate(tasks, times=times))
    same(again, found)
    assert again.within in (None, 0) or again.within == pytest.approx(0, abs=1e-9)
    alike(difference(estimate(tasks, times=times), estimate(tasks, run=1)),
          difference(estimate(tasks), estimate(tasks, run=1)))  # fmt: skip


@given(tasks=numbers())
def test_a_against_b_is_minus_b_against_a(tasks: list[Rows]) -> None:
    first, second = estimate(tasks), estimate(tasks, run=1)
    there, back = difference(first, second), difference(second, first)
    assert there.interval.value == pytest.approx(-back.interval.value, abs=1e-12)
    assert (there.wins, there.ties, there.losses) == (back.losses, back.ties, back.wins)
    assert (there.test, there.interval.method) == (back.test, back.interval.method)
    assert there.p == back.p or there.p == pytest.approx(back.p, abs=1e-9)
    for low, high in ((there.interval.low, back.interval.high), (there.low_90, back.high_90)):
        assert (low is None) == (high is None)
        assert low is None or high is None or low == pytest.approx(-high, abs=1e-12)
    assert there.detectable == back.detectable or there.detectable == pytest.approx(back.detectable)
    whole = interval(second).value - interval(first).value
    assert there.interval.value == pytest.approx(whole, abs=1e-9)
    assert there.p is None or 0 <= there.p <= 1


@given(tasks=numbers())
def test_a_run_against_itself_does_not_differ(tasks: list[Rows]) -> None:
    found = difference(estimate(tasks), estimate(tasks))
    assert found.interval.value == 0 and found.wins == found.losses == 0 and found.p in (None, 1)
    assert found.interval.low is None and found.detectable is None


@given(tasks=numbers(), shift=st.floats(0.05, 0.5))
def test_the_interval_moves_with_the_scores(tasks: list[Rows], shift: float) -> None:
    moved = [Rows(one.weight, tuple((*row[:2], row[2] + shift, row[3]) for row in one.rows)) for one in tasks]
    found, other = interval(estimate(tasks), bounded=False), interval(estimate(moved), bounded=False)
    if other.method == "all alike in a part":  # differences of 0 have an assumed spread
        assert any(len({row[2] for row in one.rows}) == 1 for one in tasks) or found.method == other.method
        return
    assert found.method == other.method
    assert found.se is None or other.se == pytest.approx(found.se, abs=1e-9)
    assert found.df == pytest.approx(other.df)


def test_no_digit_hangs_on_what_was_numbered_before() -> None:
    """A run that was continued, or merged, reads its rows in the order in which they are; its labels may be known."""
    rng = np.random.default_rng(3)
    values = rng.random(400)
    found = []
    for known in ("as they come", "backwards"):
        clusters = [f"{known} {number // 3}" for number in range(400)]
        samples = [f"{known}/{number // 2}" for number in range(400)]
        if known == "backwards":
            encode_labels([*clusters[::-1], *samples[::-1]])
        halves = [slice(0, 150), slice(150, 400)]
        strata = [Stratum(0.5, encode_labels(samples[at]), encode_labels(clusters[at]), values[at]) for at in halves]
        whole = Stratum(1.0, encode_labels(samples), encode_labels(clusters), values)
        made = [Estimate((whole,)), Estimate(tuple(strata)), Estimate((whole,)).by_sample]
        found.append([interval(one) for one in made])
    assert found[0] == found[1]
