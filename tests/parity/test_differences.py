"""Logits against logits, on numbers that can be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.base.records import Prompt, Sample, Truncation
from lbx.benchmarks.registry import BENCHMARKS
from lbx.engine.model import BackendInfo
from lbx.running.parity import (
    NO_DIFFERENCE,
    LogitDifference,
    Parity,
    ParityPrompt,
    PromptParity,
    compare_logits,
    merge_differences,
    summarise_by_task,
)

ROWS = st.lists(st.floats(-30, 30, width=32), min_size=4, max_size=4).map(lambda row: np.array(row, np.float32))


def test_two_tokens() -> None:
    """Softmax of (0, ln 3) is (1/4, 3/4); of (0, 0) it is (1/2, 1/2)."""
    found = compare_logits(np.array([0, math.log(3)]), np.array([0.0, 0.0]))
    kl = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert (found.positions, found.same_top) == (1, 0)
    assert found.max_abs == pytest.approx(math.log(3))
    assert found.mean_abs == pytest.approx(math.log(3) / 2)
    assert found.kl == found.max_kl == pytest.approx(kl)


def test_a_constant_moves_logits_and_no_probability() -> None:
    row = np.array([1.0, 2.0, 3.0], np.float32)
    found = compare_logits(row, row + 5)
    assert (found.max_abs, found.mean_abs, found.same_top) == (5, 5, 1)
    assert found.kl == pytest.approx(0, abs=1e-12)


def test_padding_of_one_vocabulary_is_left_out() -> None:
    row = np.array([1.0, 2.0, 3.0], np.float32)
    assert (
        compare_logits(row, np.append(row, 9.0))
        == compare_logits(row, row)
        == LogitDifference(1, 0.0, 0.0, 0.0, 0.0, 1)
    )


def test_tokens_that_cannot_come() -> None:
    row = np.array([-np.inf, 2.0, 3.0], np.float32)
    assert compare_logits(row, row).max_abs == 0
    assert compare_logits(row, row).kl == 0


@given(st.lists(st.tuples(ROWS, ROWS), max_size=6), st.integers(0, 6))
def test_parts_add_up(pairs: list[tuple[np.ndarray, np.ndarray]], cut: int) -> None:
    parts = [compare_logits(a, b) for a, b in pairs]
    whole = merge_differences(parts)
    halves = merge_differences([merge_differences(parts[:cut]), merge_differences(parts[cut:]), NO_DIFFERENCE])
    assert (
        (whole.positions, whole.same_top)
        == (halves.positions, halves.same_top)
        == (
            len(parts),
            sum(part.same_top for part in parts),
        )
    )
    assert (whole.max_abs, whole.max_kl) == (halves.max_abs, halves.max_kl)
    assert whole.mean_abs == pytest.approx(halves.mean_abs)
    assert whole.kl == pytest.approx(halves.kl)
    assert all(part.kl >= 0 for part in parts)
    assert 0 <= whole.top_agreement <= 1


def test_an_answer_that_is_all_reasoning_has_a_score() -> None:
    """As in a run: wrong, and no less an answer than the other model's."""
    meta = {"difficulty": "easy", "length": "short"}
    prompts = []
    for number, second in enumerate(("The correct answer is (A)", "")):
        sample = Sample("longbench_v2", "mcq", str(number), "", "", ("A",), meta=meta)
        prompt = ParityPrompt(sample.key, Prompt("", "", "", 1, Truncation.REFUSE), sample, BENCHMARKS["longbench_v2"])
        prompts.append(
            PromptParity(prompt, 1, outputs=("The correct answer is (A)", second), reasoned=(False, not second))
        )
    model = BackendInfo("scripted", "1", "model", 1000, {})
    (task, _) = summarise_by_task(Parity(model, model, None, (), tuple(prompts)))
    assert (task.metric, task.score_first, task.score_second) == ("accuracy", 1.0, 0.5)
