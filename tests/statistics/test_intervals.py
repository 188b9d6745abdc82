"""Intervals beside scipy's and statsmodels' where they are the same, and beside plain matrix algebra elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from lbx.statistics.estimates import Estimate, Stratum, binomial_interval, interval, t_quantile

EXACT = 1e-9


def estimate(values: Sequence[float], clusters: Sequence[object] | None = None, task: str = "task") -> Estimate:
    rows = tuple(f"{task}/{row}" for row in range(len(values)))
    return Estimate((Stratum(1.0, rows, rows if clusters is None else tuple(clusters), np.asarray(values, float)),))


def over(strata: np.ndarray, clusters: np.ndarray, weights: Sequence[float], values: np.ndarray) -> Estimate:
    parts = [np.flatnonzero(strata == place) for place in range(len(weights))]
    return Estimate(
        tuple(
            Stratum(weight, tuple(rows.tolist()), tuple(clusters[rows].tolist()), values[rows])
            for weight, rows in zip(weights, parts, strict=True)
        )
    )


def by_matrices(
    strata: np.ndarray, clusters: np.ndarray, weights: Sequence[float], values: np.ndarray
) -> tuple[float, float, float]:
    """Number, SE and degrees of freedom by Bell and McCaffrey's formulas, with nothing simplified.

    Of a cluster larger than most, the error is that of equal rows; the degrees of freedom are the fewer of those with
    equal variances and of Cochran's combination.
    """
    n = len(values)
    x = np.zeros((n, len(weights)))
    x[np.arange(n), strata] = 1
    bread = np.linalg.inv(x.T @ x)
    left = np.eye(n) - x @ bread @ x.T
    contrast = np.asarray(weights)
    residuals, parts, squares = left @ values, [], 0.0
    shares = {(a, b): np.mean(clusters[strata == a] == b) for a in np.unique(strata) for b in np.unique(clusters)}
    even = {a: sum(share**2 for (of, _), share in shares.items() if of == a) for a in np.unique(strata)}
    errors = np.zeros(len(weights))
    for cluster in np.unique(clusters):
        rows = np.flatnonzero(clusters == cluster)
        eigenvalues, vectors = np.linalg.eigh(left[np.ix_(rows, rows)])
        assert eigenvalues.min() > 1e-9
        adjusted = vectors @ np.diag(eigenvalues**-0.5) @ vectors.T @ x[rows] @ bread @ contrast
        for row, stratum in enumerate(strata[rows]):
            share = shares[stratum, cluster]
            adjusted[row] *= math.sqrt((1 - share) / min(1 - share, 1 - 2 * share + even[stratum]))
        for stratum in np.unique(strata[rows]):
            here = strata[rows] == stratum
            errors[stratum] += float(adjusted[here] @ residuals[rows][here]) ** 2
        squares += float(adjusted @ residuals[rows]) ** 2
        parts.append(left[:, rows] @ adjusted)
    forms = np.array(parts)
    expected = np.array([((forms * (strata == place)) ** 2).sum() for place in range(len(weights))])

    def df_of(spreads: np.ndarray) -> float:
        gram = forms @ np.diag(spreads[strata]) @ forms.T
        return float(np.trace(gram) ** 2 / (gram**2).sum())

    df, spreads = df_of(np.ones(len(weights))), errors / expected
    if len(weights) > 1:  # Cochran: as many as have the t of the strata's own t intervals together
        own = [stats.t.ppf(0.975, df_of(np.arange(len(weights)) == place)) ** 2 for place in range(len(weights))]
        t, most = math.sqrt(expected * spreads @ own / (expected @ spreads)), df_of(spreads)
        if t > stats.t.ppf(0.975, most):
            most = brentq(lambda of: stats.t.ppf(0.975, of) - t, min(df, 1.0), most, xtol=1e-13)
        df = min(df, most)
    return float(contrast @ bread @ x.T @ values), math.sqrt(squares), df


@pytest.mark.parametrize("n", [2, 3, 11, 50, 2000])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_samples_apart_have_the_t_interval(n: int, level: float) -> None:
    stats = pytest.importorskip("scipy.stats", reason="needs lbx[dev]")
    values = np.random.default_rng(n).normal(0.5, 0.01, n)
    found, wanted = interval(estimate(values), level, bounded=False), stats.ttest_1samp(values, 0)
    assert (found.low, found.high) == pytest.approx(tuple(wanted.confidence_interval(level)), abs=EXACT)
    assert (found.value, found.se) == pytest.approx((values.mean(), stats.sem(values)), abs=EXACT)
    assert found.df == pytest.approx(n - 1, rel=EXACT)
    assert (found.n, found.clusters, found.method, found.within) == (n, n, "t", None)


@pytest.mark.parametrize(("clusters", "each"), [(7, 20), (15, 13), (100, 10), (12, 1)])
def test_equal_clusters_have_the_usual_interval(clusters: int, each: int) -> None:
    """statsmodels corrects by G/(G-1) (n-1)/(n-k), of which the second factor is 1 for a mean."""
    linear_model = pytest.importorskip("statsmodels.regression.linear_model", reason="needs lbx[dev]")
    chance = np.random.default_rng(clusters)
    of = np.repeat(np.arange(clusters), each)
    values = 0.5 + 0.05 * chance.normal(size=clusters)[of] + 0.05 * chance.normal(size=clusters * each)
    found = interval(estimate(values, of.tolist()), bounded=False)
    model = linear_model.OLS(values, np.ones(len(values)))
    wanted = model.fit(cov_type="cluster", cov_kwds={"groups": of, "df_correction": True}, use_t=True)
    assert found.method == "t"
    assert (found.low, found.high) == pytest.approx(tuple(wanted.conf_int()[0]), abs=EXACT)
    assert found.se == pytest.approx(wanted.bse[0], abs=EXACT)
    assert found.df == pytest.approx(clusters - 1, rel=EXACT)


UNEVEN = ([0.2, 0.4, 0.9, 0.1, 0.5, 0.7, 0.3, 0.35, 0.8, 0.6], list("aaaabbcccd"))
SE_UNEVEN, DF_UNEVEN = 0.05586189745525644, 2.2932541069556094


def test_uneven_clusters_have_these_figures() -> None:
    """Made once by the matrices below."""
    found = interval(estimate(*UNEVEN), bounded=False)
    assert found.se == pytest.approx(SE_UNEVEN, abs=EXACT)
    assert found.df == pytest.approx(DF_UNEVEN, abs=EXACT)
    half = t_quantile(0.975, DF_UNEVEN) * SE_UNEVEN
    assert (found.low, found.high) == pytest.approx((0.485 - half, 0.485 + half), abs=EXACT)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("parts", [1, 2, 3, 6])
def test_uneven_clusters_across_strata_are_what_the_matrices_give(seed: int, parts: int) -> None:
    chance = np.random.default_rng([seed, parts])
    n = 40 * parts
    strata = np.sort(chance.integers(0, parts, n))
    clusters = np.minimum(chance.geometric(0.12, n), 15)
    weights = chance.dirichlet(np.ones(parts)) if parts > 1 else np.ones(1)
    values = chance.random(n)
    found = interval(over(strata, clusters, weights, values), bounded=False)
    wanted = by_matrices(strata, clusters, weights, values)
    assert (found.value, found.se, found.df) == pytest.approx(wanted, rel=EXACT)
    assert (found.n, found.clusters) == (n, len(np.unique(clusters)))


def test_tasks_that_share_no_document_add_their_variances() -> None:
    chance = np.random.default_rng(3)
    parts = [estimate(chance.random(n), [f"{n}/{row // 3}" for row in range(n)], task=f"{n}") for n in (31, 200, 77)]
    found, apart = interval(Estimate.average(parts)), [interval(part) for part in parts]
    assert found.value == pytest.approx(sum(one.value for one in apart) / 3, abs=EXACT)
    assert found.se == pytest.approx(math.sqrt(sum((one.se or 0) ** 2 for one in apart)) / 3, abs=EXACT)
    nested = interval(Estimate.average([Estimate.average(parts[:2]), parts[2]]))
    weights = (1 / 4, 1 / 4, 1 / 2)
    pairs = list(zip(weights, apart, strict=True))
    assert nested.value == pytest.approx(sum(weight * one.value for weight, one in pairs), abs=EXACT)
    assert nested.se == pytest.approx(math.sqrt(sum((weight * (one.se or 0)) ** 2 for weight, one in pairs)), abs=EXACT)


def test_a_document_that_two_tasks_ask_of_joins_them() -> None:
    """The same answers to the same documents twice: nothing is learnt from the second task."""
    values, clusters = UNEVEN
    one = estimate(values, clusters)
    again = estimate(values, clusters, task="another")
    both, single = interval(Estimate.average([one, again])), interval(one)
    assert (both.se, both.df) == pytest.approx((single.se, single.df), rel=EXACT)
    assert (both.n, both.clusters) == (20, 4)


@pytest.mark.parametrize(("count", "n"), [(0, 7), (1, 7), (3, 200), (50, 100), (200, 200), (1, 1)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_clopper_and_pearson(count: int, n: int, level: float) -> None:
    proportion = pytest.importorskip("statsmodels.stats.proportion", reason="needs lbx[dev]")
    wanted = proportion.proportion_confint(count, n, 1 - level, method="beta")
    assert binomial_interval(count / n, n, level) == pytest.approx(wanted, abs=EXACT)


@pytest.mark.parametrize("right", [0, 200])
def test_all_right_or_all_wrong_have_an_exact_interval(right: int) -> None:
    found = interval(estimate([1.0] * right + [0.0] * (200 - right)))
    assert (found.method, found.se) == ("exact", 0.0)
    assert (found.low, found.high) == pytest.approx(binomial_interval(right / 200, 200), abs=EXACT)


@pytest.mark.parametrize("right", [1, 9, 29, 171, 199])
def test_right_and_wrong_near_the_ends_have_an_exact_interval(right: int) -> None:
    found = interval(estimate([1.0] * right + [0.0] * (200 - right)))
    assert found.method == "exact"
    assert (found.low, found.high) == pytest.approx(binomial_interval(right / 200, 200), abs=EXACT)


@pytest.mark.parametrize("right", [30, 100, 170])
def test_right_and_wrong_between_have_ts(right: int) -> None:
    assert interval(estimate([1.0] * right + [0.0] * (200 - right))).method == "t"


def test_few_documents_count_where_all_are_alike() -> None:
    none = interval(estimate([0.0] * 50, [row // 10 for row in range(50)]))
    assert (none.low, none.high) == pytest.approx(binomial_interval(0, 5), abs=EXACT)
    assert (none.se, none.method) == (0.0, "exact")


@pytest.mark.parametrize("best", [1.0, 0.999999995])
def test_nothing_but_the_best_scores_has_an_interval_below_it(best: float) -> None:
    """ROUGE as some official scripts have it ends below 1."""
    found = interval(estimate([best] * 40))
    assert (found.method, found.high) == ("exact", pytest.approx(1, abs=1e-8))
    assert found.low == pytest.approx(binomial_interval(1, 40)[0], abs=1e-6)


@pytest.mark.parametrize("n", range(1, 60))
def test_an_interval_holds_its_own_number(n: int) -> None:
    for share in (0.0, 1 / n, 1.0):
        low, high = binomial_interval(share, n)
        assert 0 <= low <= share <= high <= 1 and low < high


def test_scores_that_are_none_have_an_interval_nevertheless() -> None:
    found = interval(Estimate((Stratum(1.0, (0, 1, 2), (0, 1, 2), np.array([0.0, 2.0, 1.0])),)))
    assert (found.value, found.method) == (1.0, "t")
    assert found.low is not None and 0 <= found.low < 1


def test_an_average_of_a_part_without_an_interval_has_none() -> None:
    """Neither the part's spread of 0 nor its degrees of freedom say how far off the average is."""
    spread = estimate([0.2, 0.5, 0.4], task="en")
    alike = estimate([0.3] * 3, task="de")
    assert interval(Estimate.average([spread, alike])).method == "all alike in a part"
    one = estimate([0.2, 0.6], "aa", task="one")
    found = interval(Estimate.average([spread, one]))
    assert (found.method, found.low, found.se) == ("one cluster", None, None)


def test_a_part_that_is_all_right_is_not_certain() -> None:
    spread, right = estimate([0.0, 1.0] * 20, task="en"), estimate([1.0] * 3, task="de")
    found, half = interval(Estimate.average([spread, right])), interval(spread)
    assert found.low is not None and found.high is not None and half.low is not None and half.high is not None
    assert found.high - found.low > half.high - half.low
    assert found.df is not None and half.df is not None and found.df < half.df


def test_a_part_less_than_all_right_leaves_what_all_right_has() -> None:
    """Of six tasks one is not all right: the assumed spread of the others once made the interval 0 to 100."""
    parts = [estimate([1.0] * 6, task=f"right {at}") for at in range(5)]
    found = interval(Estimate.average([*parts, estimate([1.0] * 8 + [0.5], task="nearly")]))
    least, most = binomial_interval(found.value, 1 / (5 * 6 / 36**2 + 9 / 54**2))
    assert (found.low, found.high) == (pytest.approx(least), pytest.approx(most)) and least > 0.8


def test_where_there_is_no_interval_it_says_why() -> None:
    one = interval(estimate([0.2, 0.4], "aa"))
    assert (one.method, one.low, one.high, one.se, one.df) == ("one cluster", None, None, None, None)
    assert (one.value, one.n, one.clusters) == (pytest.approx(0.3), 2, 1)
    alike = interval(estimate([0.4] * 30))
    assert (alike.method, alike.low, alike.high, alike.se) == ("all alike", None, None, 0.0)
    assert interval(estimate([0.2, math.nan])).method == "no number"
    assert interval(Estimate(())).method == "no number"
    assert interval(estimate([])).method == "no number"


def test_answers_to_one_sample_are_one_sample() -> None:
    """With as many answers each, the interval is that of the samples' means."""
    chance = np.random.default_rng(0)
    answers = chance.random((60, 3))
    samples = tuple(np.repeat(np.arange(60), 3).tolist())
    found = interval(Estimate((Stratum(1.0, samples, samples, answers.ravel()),)))
    means = interval(estimate(answers.mean(axis=1)))
    assert (found.se, found.df, found.low, found.high) == pytest.approx((means.se, means.df, means.low, means.high))
    assert (found.n, found.clusters) == (60, 60) and found.within and means.within is None


@pytest.mark.parametrize(("of_samples", "of_answers"), [(0.2, 0.2), (0.3, 0.05), (0.1, 0.3)])
def test_how_much_of_the_variance_more_answers_would_take_away(of_samples: float, of_answers: float) -> None:
    """Of SE^2 = (between + within / answers) / n, the second part, on average over many runs."""
    chance, samples, answers, runs = np.random.default_rng(5), 40, 3, 400
    labels = tuple(np.repeat(np.arange(samples), answers).tolist())
    parts = []
    for _ in range(runs):
        truth = chance.normal(0.5, of_samples, samples)
        values = np.repeat(truth, answers) + chance.normal(0, of_answers, samples * answers)
        found = interval(Estimate((Stratum(1.0, labels, labels, values),)), bounded=False)
        assert found.se and found.within is not None
        parts.append((found.se**2 * found.within, found.se**2))
    within, whole = np.mean(parts, axis=0)
    assert within == pytest.approx(of_answers**2 / answers / samples, rel=0.05)
    assert whole == pytest.approx((of_samples**2 + of_answers**2 / answers) / samples, rel=0.05)


def test_a_score_above_1_unbounds_the_interval() -> None:
    """An F1 may exceed 1 (HELMET's judges): an interval that ends at 1 would be too short."""
    values = [1.6, 0.2, 1.4, 0.6]
    found, mean, se = interval(estimate(values)), np.mean(values), np.std(values, ddof=1) / 2
    assert found.method == "t" and found.high == pytest.approx(mean + t_quantile(0.975, 3) * se) and found.high > 1
