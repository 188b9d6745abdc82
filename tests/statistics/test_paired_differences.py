"""Two runs on the same samples, beside what scipy and statsmodels say of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from lbx.statistics.differences import (
    clusters_to_decide,
    difference,
    holm,
    is_above,
    mcnemar,
    required_clusters,
    sign_flips,
)
from lbx.statistics.estimates import Estimate, Stratum

EXACT = 1e-9


def estimate(values: Sequence[float], clusters: Sequence[object] | None = None) -> Estimate:
    rows = tuple(range(len(values)))
    return Estimate((Stratum(1.0, rows, rows if clusters is None else tuple(clusters), np.asarray(values, float)),))


def two(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(seed)
    first = chance.random(n)
    return first, np.clip(first + chance.normal(0.03, 0.1, n), 0, 1)


@pytest.mark.parametrize("n", [30, 50, 1000])
def test_samples_apart_are_a_paired_t_test(n: int) -> None:
    stats = pytest.importorskip("scipy.stats", reason="needs lbx[dev]")
    first, second = two(n)
    found, wanted = difference(estimate(first), estimate(second)), stats.ttest_rel(second, first)
    assert found.test == "t"
    assert found.p == pytest.approx(wanted.pvalue, rel=EXACT)
    assert (found.interval.low, found.interval.high) == pytest.approx(tuple(wanted.confidence_interval()), abs=EXACT)
    assert (found.low_90, found.high_90) == pytest.approx(tuple(wanted.confidence_interval(0.9)), abs=EXACT)
    assert found.interval.se
    detects = (stats.t.ppf(0.975, n - 1) + stats.t.ppf(0.8, n - 1)) * found.interval.se
    assert found.detectable == pytest.approx(detects, rel=EXACT)
    assert (found.wins, found.ties, found.losses) == ((second > first).sum(), (second == first).sum(),
                                                      (second < first).sum())  # fmt: skip


def test_shared_documents_are_a_clustered_t_test() -> None:
    linear_model = pytest.importorskip("statsmodels.regression.linear_model", reason="needs lbx[dev]")
    first, second = two(200)
    documents = np.repeat(np.arange(20), 10)
    found = difference(estimate(first, documents.tolist()), estimate(second, documents.tolist()))
    model = linear_model.OLS(second - first, np.ones(200))
    wanted = model.fit(cov_type="cluster", cov_kwds={"groups": documents, "df_correction": True}, use_t=True)
    assert found.p == pytest.approx(wanted.pvalues[0], rel=EXACT)


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (0, 1), (3, 3), (5, 0), (12, 4), (40, 61), (300, 210)])
def test_right_and_wrong_are_mcnemars(wins: int, losses: int) -> None:
    tables = pytest.importorskip("statsmodels.stats.contingency_tables", reason="needs lbx[dev]")
    first = [0.0] * wins + [1.0] * losses + [0.0, 1.0, 1.0]
    second = [1.0] * wins + [0.0] * losses + [0.0, 1.0, 1.0]
    wanted = tables.mcnemar([[2, losses], [wins, 1]], exact=True).pvalue
    assert mcnemar(wins, losses) == pytest.approx(wanted, abs=EXACT)
    found = difference(estimate(first), estimate(second))
    assert (found.test, found.p) == ("mcnemar", pytest.approx(wanted, abs=EXACT))
    assert (found.wins, found.ties, found.losses) == (wins, 3, losses)


def test_right_and_wrong_on_shared_documents_are_not() -> None:
    chance = np.random.default_rng(1)
    first, second = chance.integers(0, 2, (2, 100)).astype(float)
    documents = [row // 5 for row in range(100)]
    assert difference(estimate(first, documents), estimate(second, documents)).test == "t"


@pytest.mark.parametrize("parts", [[], [0.5], [1, 1, 1], [0.1, 0.2, -0.3], [0.3, -0.1, 0.25, 0.7, -0.2, 0.05, 0.4]])
def test_sign_flips_try_every_way(parts: list[float]) -> None:
    sums = [abs(sum(sign * part for sign, part in zip(signs, parts, strict=True)))
            for signs in itertools.product((1, -1), repeat=len(parts))]  # fmt: skip
    wanted = sum(one >= abs(sum(parts)) - 1e-9 for one in sums) / len(sums)
    assert sign_flips(parts) == wanted


def test_few_documents_that_differ_are_flipped_whole() -> None:
    first = [0.2] * 60
    second = [0.2 + (0.1 if row < 35 else 0) for row in range(60)]
    documents = [row // 5 for row in range(60)]
    found = difference(estimate(first, documents), estimate(second, documents))
    assert (found.test, found.p) == ("sign flips", 2 / 2**7)
    scipy = pytest.importorskip("scipy.stats", reason="needs lbx[dev]")
    wanted = scipy.permutation_test(
        (np.array([0.5] * 7),), np.sum, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert found.p == wanted.pvalue


def test_no_interval_exceeds_the_scale() -> None:
    """Half of the documents went from wrong to right: with three more assumed, t alone would pass 100 points."""
    documents = [row // 2 for row in range(24)]
    found = difference(estimate([0.0] * 24, documents), estimate([1.0] * 22 + [0.0] * 2, documents))
    assert (found.interval.value, found.interval.high) == (pytest.approx(22 / 24), 1.0)
    turned = difference(estimate([1.0] * 22 + [0.0] * 2, documents), estimate([0.0] * 24, documents))
    assert (turned.interval.low, turned.interval.high) == (-1.0, -found.interval.low)
    foreign = difference(estimate([0.0] * 24, documents), estimate([5.0] * 22 + [4.0] * 2, documents))
    assert foreign.interval.low is not None and foreign.interval.high is not None
    assert foreign.interval.low < foreign.interval.value <= foreign.interval.high, "scores of a foreign tool"


def test_an_interval_of_scores_above_one_is_whole() -> None:
    found = difference(estimate([3.0] * 20), estimate([3.0, 0.0] * 10)).interval
    assert found.low is not None and found.high is not None
    assert found.value - found.low == pytest.approx(found.high - found.value) and found.low < -1.6


def test_nothing_differs() -> None:
    found = difference(estimate([0.2, 0.4] * 30), estimate([0.2, 0.4] * 30))
    assert (found.interval.value, found.interval.se, found.p) == (0, 0, 1)
    assert (found.interval.method, found.detectable, found.ties) == ("all alike", None, 60)


@pytest.mark.parametrize("n", [5, 9, 10, 40])
def test_where_all_differ_by_as_much_only_two_flips_give_it(n: int) -> None:
    found = difference(estimate([0.25] * n), estimate([0.5] * n))
    assert (found.test, found.interval.method) == ("sign flips", "all alike")
    assert found.p == pytest.approx(2 / 2**n, rel=EXACT)


def test_one_document_says_nothing() -> None:
    found = difference(estimate([0.2, 0.4], "aa"), estimate([0.3, 0.6], "aa"))
    assert found.interval.method == "one cluster" and found.low_90 is None and found.detectable is None
    assert found.p == 1


def test_answers_to_a_sample_are_compared_by_their_mean() -> None:
    """Three answers beside one: the samples are the same, and each counts once."""
    first, second = two(30)
    three = np.stack([second - 0.01, second, second + 0.01], axis=1).ravel()
    samples = tuple(np.repeat(np.arange(30), 3).tolist())
    found = difference(estimate(first), Estimate((Stratum(1.0, samples, samples, three),)))
    wanted = difference(estimate(first), estimate(second))
    assert (found.p, found.interval.n, found.wins) == (pytest.approx(wanted.p), 30, wanted.wins)


def test_other_samples_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="different samples"):
        difference(estimate([0.1, 0.2]), estimate([0.1, 0.2, 0.3]))


@pytest.mark.parametrize("seed", range(5))
def test_holm(seed: int) -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest", reason="needs lbx[dev]")
    ps = (np.random.default_rng(seed).random(3 * seed + 1) ** 4).tolist()
    ps += ps[:2]
    assert holm(ps) == pytest.approx(multitest.multipletests(ps, method="holm")[1].tolist(), abs=EXACT)
    assert holm([]) == []


def test_as_many_samples_as_it_says_decide_in_four_of_five_cases() -> None:
    chance, runs = np.random.default_rng(2), 300
    start = difference(estimate(np.zeros(100)), estimate(chance.normal(0.02, 0.2, 100)))
    assert start.interval.se
    needed = required_clusters(start, margin=0.0)
    assert needed and needed > 100
    true, spread = start.interval.value, start.interval.se * 10
    found = [difference(estimate(np.zeros(needed)), estimate(chance.normal(true, spread, needed)))
             for _ in range(runs)]  # fmt: skip
    assert np.mean([one.p is not None and one.p < 0.05 for one in found]) == pytest.approx(0.8, abs=0.07)


def test_as_many_samples_as_it_says_show_a_bound_in_four_of_five_cases() -> None:
    chance, runs = np.random.default_rng(3), 300
    start = difference(estimate(np.zeros(60)), estimate(chance.normal(0.0, 0.2, 60)))
    value, se, bound = start.interval.value, start.interval.se, start.interval.value - 0.03
    needed = clusters_to_decide(start, bound)
    assert se and needed and needed > 60 and is_above(start, bound) is None
    found = [difference(estimate(np.zeros(needed)), estimate(chance.normal(value, se * 60**0.5, needed)))
             for _ in range(runs)]  # fmt: skip
    assert np.mean([is_above(one, bound) is True for one in found]) == pytest.approx(0.8, abs=0.07)


def test_without_a_difference_three_samples_might_differ() -> None:
    same = [difference(estimate(np.ones(n)), estimate(np.ones(n))) for n in (1, 299, 300)]
    assert [is_above(one, -0.01) for one in same] == [None, None, True]
    assert [clusters_to_decide(one, -0.01) for one in same[:2]] == [300, 300]
    assert is_above(same[2], 0.01) is False and is_above(same[2], 0.0) is clusters_to_decide(same[2], 0.0) is None
    # A sample of a small task weighs more.
    tasks = [Stratum(0.5, rows, rows, np.ones(len(rows))) for rows in (tuple(range(10)), tuple(range(10, 1010)))]
    both = difference(Estimate(tuple(tasks)), Estimate(tuple(tasks)))
    assert is_above(both, -0.14) is None and is_above(both, -0.15) is True


def test_nothing_is_said_of_how_many_would_decide_where_nothing_is_known_of_the_spread() -> None:
    assert required_clusters(difference(estimate([0.2]), estimate([0.4])), 0.01) is None
    same = difference(estimate(np.arange(40) % 2 / 2), estimate(np.arange(40)[::-1] % 2 / 2))
    assert same.interval.value == pytest.approx(0) and required_clusters(same, margin=0.0) is None
    least = required_clusters(same, margin=0.5)
    assert least is not None and math.isfinite(least)


def of_documents(shares: Sequence[float], each: int = 5) -> Estimate:
    """Questions of documents, of which these shares are right."""
    rights = np.concatenate([np.arange(each) < share * each - 1e-9 for share in shares]).astype(float)
    return estimate(rights, np.repeat(np.arange(len(shares)), each).tolist())


@pytest.mark.parametrize("shares", [(0.8, 0.4, 0.8), (0.8, 0.4, 0.8, 0.6), (0.8, 0.4, 0.8, 0.6, 0.8)])
@pytest.mark.parametrize(("tests", "wanted"), [(1, 6), (3, 7)])
def test_documents_needed_are_those_of_the_exact_test(shares: Sequence[float], tests: float, wanted: int) -> None:
    """Its p is at least 2^(1 - documents): one question more would never do."""
    found = difference(of_documents([0.0] * len(shares)), of_documents(shares))
    assert found.p == 2.0 ** (1 - len(shares)) >= 0.05
    assert required_clusters(found, 0.01, tests) == wanted


@pytest.mark.parametrize(("documents", "effect", "spread", "tests"), [(8, 0.15, 0.25, 1), (12, 0.1, 0.2, 3)])
def test_as_many_documents_decide_in_four_of_five_cases(
    documents: int, effect: float, spread: float, tests: float
) -> None:
    chance = np.random.default_rng(documents)
    changes = chance.normal(size=documents)
    changes = effect + spread * (changes - changes.mean()) / changes.std(ddof=1)
    start = difference(estimate(np.zeros(documents)), estimate(changes))
    needed = required_clusters(start, 0.0, tests)
    assert needed and needed > documents
    found = [
        difference(estimate(np.zeros(needed)), estimate(chance.normal(effect, spread, needed))) for _ in range(400)
    ]
    assert np.mean([one.p is not None and one.p * tests < 0.05 for one in found]) == pytest.approx(0.8, abs=0.08)
