"""What a number of questions decides, against simulated comparisons."""

from __future__ import annotations

import numpy as np
import pytest

from lbx.statistics import LEVEL
from lbx.statistics.differences import (
    ASSUMED_VARIANCE,
    assumed_difference,
    clusters_to_detect,
    detectable_difference,
    fewest_clusters,
)
from lbx.statistics.estimates import t_tail

_DRAWS = 4_000


@pytest.mark.parametrize(("samples", "clusters"), [(200, 200), (200, 40), (60, 20)])
def test_the_detectable_difference_is_found_four_times_of_five(samples: int, clusters: int) -> None:
    spread = assumed_difference([(samples, clusters)])
    assert spread is not None
    size = detectable_difference(spread)
    assert size is not None
    means = np.random.default_rng(1).normal(size, spread.se * np.sqrt(clusters), (_DRAWS, clusters))  # type: ignore[operator]
    t = means.mean(axis=1) / (means.std(axis=1, ddof=1) / np.sqrt(clusters))
    found = np.mean([2 * t_tail(abs(float(value)), clusters - 1) < LEVEL for value in t])
    assert found == pytest.approx(0.8, abs=0.03)


def test_the_assumed_spread_has_the_assumed_variance_and_correlation() -> None:
    independent, paired = assumed_difference([(400, 400)]), assumed_difference([(400, 200)])
    assert independent and paired and independent.se and paired.se
    assert independent.se**2 == pytest.approx(ASSUMED_VARIANCE / 400)
    assert paired.se**2 == pytest.approx(ASSUMED_VARIANCE / 400 * 1.2), "two questions a document, correlated by 0.2"
    halves = assumed_difference([(200, 200), (200, 200)])
    assert halves and halves.se == pytest.approx(independent.se), "two tasks of one size weigh as one of both"


def test_as_many_documents_as_needed_are_enough_and_one_less_is_not() -> None:
    spread = assumed_difference([(100, 50)])
    assert spread is not None
    for tests in (1.0, 3.0, 45.0):
        needed = clusters_to_detect(spread, 0.05, tests)
        assert needed is not None
        assert (detectable_difference(spread, needed, tests) or 1) <= 0.05
        assert (detectable_difference(spread, int(needed * 0.98), tests) or 1) > 0.05


def test_more_models_need_more_documents_and_a_larger_difference_fewer() -> None:
    spread = assumed_difference([(100, 50)])
    assert spread is not None
    needed = [clusters_to_detect(spread, 0.05, tests) or 0 for tests in (1, 3, 45)]
    assert needed == sorted({*needed})
    assert (clusters_to_detect(spread, 0.9) or 0) == fewest_clusters(), "the exact test needs some documents for any"


def test_what_cannot_be_known_is_none() -> None:
    assert assumed_difference([(10, 1)]) is None
    assert assumed_difference([(0, 0), (10, 5)]) is None
    assert assumed_difference([]) is None
    spread = assumed_difference([(10, 5)])
    assert spread and clusters_to_detect(spread, 0.0) is None
