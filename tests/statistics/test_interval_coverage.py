"""How often intervals hold the truth and tests cry wolf: 2,000 trials each, from fixed seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from statistics import NormalDist

import numpy as np
import pytest

from lbx.base.records import ScoredSample
from lbx.statistics.differences import difference
from lbx.statistics.estimates import Estimate, Interval, Stratum, interval
from tests import profiles
from tests.scored_parts import Imported

TRIALS = 2000
SHARED = 0.15
"""How much of the variance of scores is of their documents."""

APART = np.arange(200)
SEVEN_UNEVEN = np.repeat(np.arange(7), [60, 40, 30, 20, 10, 6, 4])
FIFTEEN = np.repeat(np.arange(15), 13)
HUNDRED = np.repeat(np.arange(100), 10)
DESIGNS = {"apart": APART, "7 uneven": SEVEN_UNEVEN, "15 x 13": FIFTEEN, "100 x 10": HUNDRED}

Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def estimator(documents: np.ndarray) -> Callable[[np.ndarray], Estimate]:
    """From scores to their mean."""
    samples, clusters = tuple(range(len(documents))), tuple(documents.tolist())
    return lambda values: Estimate((Stratum(1.0, samples, clusters, values),))


def noise(chance: np.random.Generator, documents: np.ndarray, spread: float = 1.0) -> np.ndarray:
    """Normal scores around 0, alike within a document."""
    of_documents = chance.normal(size=documents[-1] + 1)[documents]
    apart = chance.normal(size=len(documents))
    shared = SHARED if len(documents) > documents[-1] + 1 else 0.0
    return spread * (np.sqrt(shared) * of_documents + np.sqrt(1 - shared) * apart)


_PLACES = np.linspace(-6, 6, 4001)
_SHARES = np.array([NormalDist().cdf(place) for place in _PLACES])


def uniform(chance: np.random.Generator, documents: np.ndarray) -> np.ndarray:
    return np.interp(noise(chance, documents), _PLACES, _SHARES)


def even(chance: np.random.Generator, documents: np.ndarray) -> np.ndarray:
    return 0.5 + noise(chance, documents, 0.1)


def right(share: float) -> Draw:
    return lambda chance, documents: (uniform(chance, documents) < share).astype(float)


def f1_like(zeros: float, ones: float) -> Draw:
    """Between the zeros and the ones small scores are commoner than large ones: a third on average."""

    def draw(chance: np.random.Generator, documents: np.ndarray) -> np.ndarray:
        place = uniform(chance, documents)
        between = 1 - np.sqrt(1 - np.clip((place - zeros) / (1 - zeros - ones), 0, 1))
        return np.where(place < zeros, 0.0, np.where(place > 1 - ones, 1.0, between))

    return draw


SCORES: dict[str, tuple[Draw, float]] = {
    "even": (even, 0.5),
    "half right": (right(0.5), 0.5),
    "a third right": (right(0.3), 0.3),
    "a tenth right": (right(0.1), 0.1),
    "three of 100 right": (right(0.03), 0.03),
    "f1": (f1_like(0.4, 0.2), 0.2 + 0.4 / 3),
    "f1, mostly 0": (f1_like(0.7, 0.05), 0.05 + 0.25 / 3),
}


def covered(found: Iterator[Interval], truth: float) -> tuple[float, Counter[str]]:
    """How many of the intervals hold the truth, and of which methods they are."""
    hits, methods = 0, Counter[str]()
    for one in found:
        methods[one.method] += 1
        hits += one.low is not None and one.high is not None and one.low <= truth <= one.high
    return hits / methods.total(), methods


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("scores", SCORES)
def test_intervals_hold_the_truth(design: str, scores: str) -> None:
    documents, (draw, truth) = DESIGNS[design], SCORES[scores]
    chance, estimate = np.random.default_rng(2026), estimator(documents)
    share, methods = covered((interval(estimate(draw(chance, documents))) for _ in range(TRIALS)), truth)
    assert methods.keys() <= {"t", "logit", "exact"}
    assert share >= 0.93, f"{share:.2%} {methods}"
    assert share <= 0.975 or methods["t"] < TRIALS / 2, f"{share:.2%} {methods}"


@pytest.mark.parametrize("n", [50, 200, 500])
def test_right_and_wrong_by_every_outcome(n: int) -> None:
    """Not drawn but counted, for every true share from 1% to 99%."""
    stats = pytest.importorskip("scipy.stats", reason="needs lbx[dev]")
    apart, counts = np.arange(n), np.arange(n + 1)
    estimate = estimator(apart)
    found = [interval(estimate((apart < right).astype(float))) for right in counts]
    low, high = np.array([one.low for one in found]), np.array([one.high for one in found])
    shares = np.linspace(0.01, 0.99, 197)
    holds = [stats.binom.pmf(counts, n, share) @ ((low <= share) & (share <= high)) for share in shares]
    assert np.mean(holds) >= 0.945
    assert np.mean(np.array(holds) >= 0.93) >= 0.95
    assert min(holds) >= 0.92


def resampled(rows: list[ScoredSample], n: int) -> tuple[Iterator[Interval], float]:
    """Intervals of the task's number over so many of its samples, drawn with repetition, and the number of all."""
    picks = np.random.default_rng([len(rows), n]).integers(0, len(rows), (TRIALS, n))
    estimate = estimator(np.arange(n))
    headline = next(iter(rows[0].scores))
    if headline != "geometric_mean":
        values = np.array([row.scores[headline] for row in rows])
        return (interval(estimate(values[pick])) for pick in picks), values.mean()
    parts = np.array([[row.scores[f"rouge{one}"] for one in "12L"] for row in rows])
    return (interval(estimate(linearised(parts[pick]))) for pick in picks), geometric(parts)


def geometric(parts: np.ndarray) -> float:
    return float(parts.mean(axis=0).prod() ** (1 / 3))


def linearised(parts: np.ndarray) -> np.ndarray:
    means = parts.mean(axis=0)
    return geometric(parts) / 3 * (parts / means).sum(axis=1) if means.all() else np.zeros(len(parts))


@pytest.mark.parametrize("n", profiles.chosen([13, 50, 200], [13]))
def test_every_imported_task_resampled(imported: Imported, n: int) -> None:
    tasks = {f"{run} {task}": rows for run, each in imported.items() for task, rows in each.items()}
    assert len(tasks) == 56
    shares = {name: covered(*resampled(rows, n)) for name, rows in tasks.items()}
    low = {name: (f"{share:.2%}", methods) for name, (share, methods) in shares.items() if share < 0.90}
    assert not low
    assert 0.935 <= np.mean([share for share, _ in shares.values()]) <= 0.985  # few documents: rather wider


PAIRS: dict[str, Callable[[np.random.Generator, np.ndarray], tuple[np.ndarray, np.ndarray]]] = {
    "even": lambda chance, documents: (even(chance, documents), even(chance, documents)),
    "f1": lambda chance, documents: (f1_like(0.4, 0.2)(chance, documents), f1_like(0.4, 0.2)(chance, documents)),
    "right": lambda chance, documents: (right(0.3)(chance, documents), right(0.3)(chance, documents)),
}


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("scores", PAIRS)
def test_no_difference_is_seldom_taken_for_one(design: str, scores: str) -> None:
    documents, chance = DESIGNS[design], np.random.default_rng(16)
    estimate = estimator(documents)
    found = [difference(*map(estimate, PAIRS[scores](chance, documents))) for _ in range(TRIALS)]
    wrong = np.mean([one.p is not None and one.p < 0.05 for one in found])
    tests = Counter(one.test for one in found)
    assert wrong <= (0.075 if design == "7 uneven" else 0.06), f"{wrong:.2%} {tests}"
    assert wrong >= 0.04 or tests["t"] < TRIALS / 2, f"{wrong:.2%} {tests}"  # the exact tests promise at most 5%


BY_THE_MARGIN: dict[str, tuple[Draw, Draw, float]] = {
    "even": (even, lambda chance, documents: even(chance, documents) + 0.05, 0.05),
    "f1": (f1_like(0.4, 0.2), f1_like(0.35, 0.25), 0.05),
    "right": (right(0.3), right(0.4), 0.1),
}


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("scores", BY_THE_MARGIN)
def test_a_difference_as_large_as_the_margin_is_seldom_the_same_within(design: str, scores: str) -> None:
    """The 90% interval lies inside the margin, as the verdict has it."""
    documents, (first, second, margin) = DESIGNS[design], BY_THE_MARGIN[scores]
    chance, estimate = np.random.default_rng(17), estimator(documents)
    found = [difference(estimate(first(chance, documents)), estimate(second(chance, documents))) for _ in range(TRIALS)]
    wrong = np.mean([-margin < (one.low_90 or 0) and (one.high_90 or 0) < margin for one in found])
    assert wrong <= (0.075 if design == "7 uneven" else 0.06), f"{wrong:.2%}"


FEW_CHANGE = [(200, 0.05, 0), (200, 0.02, 0), (300, 0.01, 0), (500, 0.01, 0), (200, 0.025, 0.005)]


@pytest.mark.parametrize(("n", "lost", "won"), FEW_CHANGE)
def test_nor_where_few_answers_change(n: int, lost: float, won: float) -> None:
    """As a quantised model's do: most of what it changes it loses. Every outcome has its chance, none is drawn."""
    stats = pytest.importorskip("scipy.stats", reason="needs lbx[dev]")
    estimate, margin, wrong = estimator(np.arange(n)), lost - won, 0.0
    before = np.zeros(n)
    before[: n // 2] = 1
    for losses in range(int(n * margin) + 1):
        for wins in range(12 if won else 1):
            after = before.copy()
            after[:losses], after[n - wins :] = 0, 1
            one = difference(estimate(before), estimate(after))
            if one.low_90 is not None and one.high_90 is not None and -margin < one.low_90 and one.high_90 < margin:
                wrong += stats.multinomial.pmf([losses, wins, n - losses - wins], n, [lost, won, 1 - lost - won])
    assert wrong <= 0.07
