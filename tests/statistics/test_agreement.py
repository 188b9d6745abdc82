"""Agreement beside krippendorff, scikit-learn and scipy (make_agreement_golden.py), and where nothing can be told."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lbx.statistics.agreement import alpha, kappa, kendall_tau, majority, percent_agreement

GOLDEN: list[dict[str, Any]] = json.loads(Path(__file__).with_name("agreement_golden.json").read_text())


def items_of(ratings: list[list[int | None]]) -> list[list[int]]:
    return [[one for one in thing if one is not None] for thing in zip(*ratings, strict=True)]


def test_the_golden_file_has_missing_ratings() -> None:
    missing = [sum(row.count(None) for row in one["ratings"]) for one in GOLDEN]
    assert len(GOLDEN) > 50 and sum(map(bool, missing)) > 20 and missing.count(0) > 10


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
def test_alpha_is_krippendorffs(level: Any) -> None:
    for one in GOLDEN:
        found = alpha(items_of(one["ratings"]), level).value
        assert found == pytest.approx(one["alpha"][level], abs=1e-12)


def test_kappa_is_scikit_learns() -> None:
    """A rating that nobody gave still counts in the distance of the others."""
    for one in GOLDEN:
        both = [pair for pair in zip(*one["ratings"][:2], strict=True) if None not in pair]
        first, second = zip(*both, strict=True)
        assert kappa(first, second) == pytest.approx(one["kappa"]["plain"], abs=1e-12)
        assert kappa(first, second, quadratic=True) == pytest.approx(one["kappa"]["quadratic"], abs=1e-12)
        assert kendall_tau(first, second) == pytest.approx(one["tau"], abs=1e-12)


def test_alpha_of_krippendorffs_own_example() -> None:
    """Content Analysis: 12 units, 4 observers, missing ratings; nominal .743, ordinal .815, interval .849."""
    observers = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
        [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
    ]
    found = [alpha(items_of(observers), level).value for level in ("nominal", "ordinal", "interval")]
    assert found == [pytest.approx(value, abs=5e-4) for value in (0.743, 0.815, 0.849)]


def test_the_interval_of_alpha() -> None:
    """It holds alpha, is the same each time, and is wider where what is drawn together is more."""
    random = np.random.default_rng(5)
    truth = random.integers(1, 6, 120)
    drawn = random.integers(1, 6, (120, 3))
    items = np.where(random.random((120, 3)) < 0.6, truth[:, None], drawn).tolist()
    found = alpha(items, "ordinal")
    assert found == alpha(items, "ordinal")
    assert found.low is not None and found.value is not None and found.high is not None
    assert found.low < found.value < found.high and found.high - found.low < 0.4
    repeated = alpha(
        [one for one in items for _ in range(4)], "ordinal", clusters=[i for i in range(120) for _ in "1234"]
    )
    assert (repeated.low, repeated.high) == (pytest.approx(found.low, abs=0.01), pytest.approx(found.high, abs=0.01))
    alone = alpha([one for one in items for _ in range(4)], "ordinal")
    assert alone.low is not None and alone.low > found.low + 0.03


@pytest.mark.long("200 draws")
def test_the_interval_of_alpha_covers() -> None:
    """Of 200 samples from a population of known alpha about 95 in 100 intervals hold it."""
    random = np.random.default_rng(11)

    def drawn(n: int) -> list[list[int]]:
        truth = random.integers(0, 3, n)
        return np.where(random.random((n, 2)) < 0.7, truth[:, None], random.integers(0, 3, (n, 2))).tolist()

    known = alpha(drawn(200_000)[:40_000], "nominal", clusters=[0] * 40_000).value
    assert known == pytest.approx(0.49, abs=0.02)
    held = [alpha(drawn(60), "nominal") for _ in range(200)]
    assert 0.89 <= np.mean([one.low <= known <= one.high for one in held]) <= 0.99  # type: ignore[operator]


def test_where_nothing_can_be_told() -> None:
    assert alpha([]).value is None and alpha([[1], [2]]).value is None
    assert alpha([[1, 1], [1, 1]]) == (None, None, None, "no number")
    assert alpha([[1, 2]], "interval") == (0.0, None, None, "one cluster")
    random_keys = [[1, 3], [3, 3], [5, 1], [1, 1]] * 4
    assert alpha(random_keys, "ordinal", clusters=[0, 1] * 8)[1:] == (None, None, "too few clusters")
    assert alpha(random_keys, "ordinal", clusters=[i % 5 for i in range(16)]).method == "too few clusters"
    assert alpha(random_keys, "ordinal", clusters=[i % 6 for i in range(16)]).method == "jackknife"
    assert alpha([[1, 1], [3, 3]] * 8, "ordinal") == (1.0, None, None, "all alike")
    assert kappa([], []) is None and kappa([1, 1], [1, 1]) is None and kappa([1, 2], [1, 2]) == 1
    assert percent_agreement([], []) is None and percent_agreement(["a", "b"], ["a", "c"]) == 0.5
    assert kendall_tau([1, 2], [3, 3]) is None and kendall_tau([1, 2, 3], [3, 2, 1]) == -1
    assert kendall_tau([1], [1]) is None


def test_majority() -> None:
    assert majority(["tie", "tie", "answer"]) == "tie"
    assert majority(["tie", "answer"]) is None and majority([]) is None


def test_more_agreement_is_a_larger_number() -> None:
    random = np.random.default_rng(3)
    truth, noise = random.integers(1, 6, 300), random.integers(1, 6, (300, 2))
    chance = random.random((300, 2))
    for numbers in zip(
        *(
            (alpha(two.tolist(), "ordinal").value, kappa(two[:, 0].tolist(), two[:, 1].tolist(), quadratic=True))
            for two in (np.where(chance < share, truth[:, None], noise) for share in (0.0, 0.3, 0.6, 0.9))
        ),
        strict=True,
    ):
        assert all(a < b for a, b in pairwise(numbers))
