"""L-Eval's geometric mean of means, which is no mean of samples."""

from __future__ import annotations

import numpy as np
import pytest

from lbx.benchmarks.registry import BENCHMARKS
from lbx.statistics.estimates import interval
from tests.scored_parts import Imported

RUN = "llama2-13b-chat-4k"
SE_POINTS = {"gov_report_summ": 1.713, "paper_assistant": 0.728, "review_summ": 0.354, "meeting_summ": 0.504}


@pytest.mark.parametrize("task", SE_POINTS)
def test_its_error_is_what_drawing_samples_anew_gives(imported: Imported, task: str) -> None:
    rows = imported[RUN][task]
    number = BENCHMARKS["leval"].aggregate(task, rows)[0]
    assert number.metric == "geometric_mean" and number.estimate
    found = interval(number.estimate)
    assert found.value == pytest.approx(number.score, abs=1e-12)
    assert found.se and 100 * found.se == pytest.approx(SE_POINTS[task], abs=0.0005)
    parts = np.array([[row.scores[f"rouge{one}"] for one in "12L"] for row in rows])
    n = len(rows)
    picks = np.random.default_rng(1).integers(0, n, (20_000, n))
    drawn = parts[picks].mean(axis=1).prod(axis=1) ** (1 / 3)
    # Drawing anew divides by n where an unbiased variance divides by n - 1.
    assert found.se == pytest.approx(drawn.std() * np.sqrt(n / (n - 1)), rel=0.04)
