"""An estimate adds up what a plan costs, and is near what the batched loop costs by the same prices."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from lbx.base.records import Request, SampleKey
from lbx.engine.batching import DecodeBatch
from lbx.engine.model import SequenceExtension
from lbx.engine.prefix import DecodeCapacity, decode_capacity, plan_prefixes
from lbx.results.file.sessions import History
from lbx.running.forecast.estimate import Costs, costs_from, estimate
from lbx.running.forecast.run_plan import PrefixOrder, RunPlan, TaskPlan
from tests.toy import EOS, TOKENIZER, ToyMemory

PRICES = Costs(
    token_s=0.01,
    attended_s=1e-5,
    step_s=0.02,
    answer_s=0.005,
    answer_attended_s=1e-5,
    wall_factor=1.0,
    answers={},
    basis="us",
)
TASK = "toy/task"


def plan_of(prompts: Sequence[Sequence[int]], most: int | Sequence[int]) -> RunPlan:
    branches = plan_prefixes(prompts).branches
    kept = [0, *(branch.reused_tokens for branch in branches[1:])]
    longest = [most if isinstance(most, int) else most[branch.index] for branch in branches]
    arrays = ([0] * len(branches), [branch.length for branch in branches], kept, longest)
    walk = PrefixOrder(*(np.array(numbers, np.int64) for numbers in arrays))
    return RunPlan([[TaskPlan(TASK, samples=len(prompts), longest=max(map(len, prompts)))]], [walk])


def test_one_prompt_after_the_other() -> None:
    plan = plan_of([[1] * 100, [1] * 60 + [2] * 40], 10)
    found = estimate(plan, PRICES, DecodeCapacity(1, 1000, 0, step=32), other_s=5.0)
    # Of the second one's 60 shared tokens a whole piece of 32 is kept.
    read = 100 * (0.01 + 1e-5 * 50) + 68 * (0.01 + 1e-5 * (32 + 34))
    assert found.prefill_s == pytest.approx(read)
    assert found.decode_s == pytest.approx(2 * 10 * (0.02 + 0.005 + 1e-5 * 105))
    assert found.total_s == pytest.approx(found.prefill_s + found.decode_s + 5.0)
    assert (found.computed_tokens, found.answer_tokens) == (168, {TASK: 20})
    forgetful = estimate(plan, PRICES, DecodeCapacity(1, 1000, 0, step=0))
    assert forgetful.computed_tokens == 200
    assert estimate(plan, PRICES, DecodeCapacity(1, 1000, 0, 32), processes=2).total_s == pytest.approx(
        (found.total_s - 5.0) / 2
    )


def test_lengths_of_answers() -> None:
    known = replace(PRICES, answers={"a/b": 12.4, "": 0.25})
    assert known.answer_tokens("a/b", 100) == 12
    assert known.answer_tokens("a/b", 5) == 5, "never longer than it may be"
    assert known.answer_tokens("c/d", 100) == 25
    assert PRICES.answer_tokens("c/d", 100) == 100
    assert known.answer_tokens("c/d", 1) == 1


class PricedMemory(ToyMemory):
    """Costs by the same prices what the passes of the real loop would cost."""

    def __init__(self, **limits: int) -> None:
        super().__init__(**limits)
        self.seconds = 0.0

    def extend(self, items: Sequence[SequenceExtension]) -> list[np.ndarray | None]:
        prompts = sum(len(item.tokens) for item in items if len(item.tokens) > 1 or not item.wants_logits)
        answers = sum(1 for item in items if len(item.tokens) == 1 and item.wants_logits)
        found = super().extend(items)
        used = self.used_cells
        if prompts:
            self.seconds += (prompts + answers) * (PRICES.token_s + PRICES.attended_s * used)
        else:
            self.seconds += PRICES.step_s + answers * (PRICES.answer_s + PRICES.answer_attended_s * used)
        return found


@pytest.mark.parametrize("documents", [1, 6])
@pytest.mark.parametrize("questions", [1, 5, 12])
@pytest.mark.parametrize("cells", [700, 5000])
@pytest.mark.parametrize("new", [3, 40])
def test_near_what_the_loop_costs(documents: int, questions: int, cells: int, new: int) -> None:
    chance = random.Random(f"{documents} {questions}")
    prompts = []
    for _ in range(documents):
        text = [chance.randrange(97, 110) for _ in range(chance.randrange(200, 400))]
        prompts += [text + [chance.randrange(97, 110) for _ in range(20)] for _ in range(questions)]
    requests = [
        Request(SampleKey("toy", "task", str(n)), tuple(ids), max_new_tokens=new, min_new_tokens=new)
        for n, ids in enumerate(prompts)
    ]
    memory = PricedMemory(max_sequences=10, max_cells=cells, max_step=64, pass_price=500)
    answers = dict(DecodeBatch(memory, requests, TOKENIZER, {EOS}).run())
    assert {one.output_tokens for one in answers.values()} == {new}
    room = DecodeCapacity(min(8, 64), cells, memory.pass_price, memory.max_step)
    expected = estimate(plan_of(prompts, new), PRICES, room)
    assert expected.computed_tokens == pytest.approx(memory.computed - sum(new - 1 for _ in prompts), rel=0.02)
    assert 1 / 1.25 < expected.total_s / memory.seconds < 1.25


@pytest.mark.parametrize("documents", [1, 6])
@pytest.mark.parametrize("cells", [3_000, 6_000])
def test_answers_far_below_their_budget_share_passes(documents: int, cells: int) -> None:
    """The engine admits prompts by likely answer lengths, not by budgets, and so does the forecast."""
    chance = random.Random(documents)
    prompts = []
    for _ in range(documents):
        text = [chance.randrange(97, 110) for _ in range(200)]
        prompts += [text + [chance.randrange(97, 110) for _ in range(20)] for _ in range(48 // documents)]
    requests = [
        Request(SampleKey("toy", "task", str(n)), tuple(ids), max_new_tokens=2_500, min_new_tokens=40)
        for n, ids in enumerate(prompts)
    ]
    memory = PricedMemory(max_sequences=18, max_cells=cells, max_step=64, pass_price=10**6)
    answers = [answer for _, answer in DecodeBatch(memory, requests, TOKENIZER, {EOS}).run()]
    mean = sum(answer.output_tokens + 1 for answer in answers) / len(answers)
    assert mean < 70
    expected = estimate(plan_of(prompts, 2_500), replace(PRICES, answers={TASK: mean}), decode_capacity(memory))
    assert 1 / 1.3 < expected.total_s / memory.seconds < 1.3


def test_equal_prompts_cost_a_token_each() -> None:
    plan = plan_of([[1] * 50] * 3, 4)
    assert estimate(plan, PRICES, DecodeCapacity(8, 1000, 100, 64)).computed_tokens == 52


def history_of(plan: RunPlan, tokens: int, **changes: object) -> History:
    """History of a session that answered a plan by ``PRICES``, one prompt after the other."""
    (walk,) = plan.prefix_orders
    prefill, decode = [], []
    for length, kept in zip(walk.length.tolist(), walk.reused_tokens.tolist(), strict=True):
        new = length - kept
        read = new * (kept + new / 2)
        prefill.append((PRICES.token_s * new + PRICES.attended_s * read, new, read))
        seen = tokens * (length + tokens / 2)
        decode.append((PRICES.answer_s * tokens + PRICES.answer_attended_s * seen, tokens, seen))
    prefill_s, decode_s = sum(row[0] for row in prefill), sum(row[0] for row in decode)
    history = History(
        [("r1", 1)], prefill_s, decode_s, 2 * (prefill_s + decode_s), prefill, decode,
        longest_prompt=int(walk.length.max()), answer_count=len(prefill),
    )  # fmt: skip
    return replace(history, **changes)


ROOM = DecodeCapacity(8, 1_000_000, 10_000, 64)


def test_costs_of_earlier_sessions() -> None:
    history = history_of(plan_of([[n] * 100 * n for n in range(1, 9)], 30), 30, sessions=[("r1", 2), ("r1", 1)])
    costs = costs_from(history, {TASK: 7.0})
    assert (costs.token_s, costs.attended_s) == pytest.approx((PRICES.token_s, PRICES.attended_s))
    assert (costs.answer_s, costs.answer_attended_s) == pytest.approx((PRICES.answer_s, PRICES.answer_attended_s))
    assert (costs.step_s, costs.basis) == (0.0, "session 2 of r1 and 1 earlier")
    found = estimate(plan_of([[1] * 10], 100), costs, ROOM)
    assert found.answer_tokens == {TASK: 7}
    assert found.decode_s == pytest.approx(7 * (PRICES.answer_s + PRICES.answer_attended_s * 13.5))


def test_fixed_cost_of_a_short_session_is_no_factor_of_a_long_run() -> None:
    history = history_of(plan_of([[1] * 100] * 2, 1), 1)
    model_s = history.prefill_s + history.decode_s
    costs = costs_from(replace(history, wall_s=model_s + 1.5), {})
    assert (costs.once_s, costs.wall_factor) == pytest.approx((1.5, 1.0))


def test_an_estimate_from_a_session_gives_the_session_back() -> None:
    plan = plan_of([[n] * 100 + [7] * (10 * n) for n in range(1, 9)] * 2, 30)
    history = history_of(plan, 30)
    found = estimate(plan, costs_from(history, {TASK: 30.0}), ROOM)
    assert found.total_s == pytest.approx(history.wall_s, rel=0.01)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_session_on_short_documents_forecasts_long_ones(noise: float) -> None:
    """Attention takes as long as the rest of the model at 1,000 tokens, so that a mean rate is far too low."""
    chance = random.Random(1)
    short, long = ([[n] * (size * (1 + n % 4)) for n in range(32)] for size in (100, 4_000))
    pilot, whole = history_of(plan_of(short, 30), 30), history_of(plan_of(long, 30), 30)
    prefill = [(seconds * (1 + noise * chance.uniform(-1, 1)), *work) for seconds, *work in pilot.prefill]
    found = estimate(plan_of(long, 30), costs_from(replace(pilot, prefill=prefill), {TASK: 30.0}), ROOM)
    assert found.total_s == pytest.approx(whole.wall_s, rel=0.02 if not noise else 0.5)
    assert found.basis == "session 1 of r1, whose prompts had at most 400 tokens"


def test_sessions_cover_plans_with_similar_prompts_and_batches() -> None:
    costs = costs_from(history_of(plan_of([[1] * 100] * 4, 1), 1), {})
    assert costs.covers(TaskPlan("total", samples=4, longest=200))
    assert not costs.covers(TaskPlan("total", samples=4, longest=201))
    assert not costs.covers(TaskPlan("total", samples=5, longest=100)), "a batch is wider"
    many = costs_from(history_of(plan_of([[1] * 100] * 8, 1), 1), {})
    assert many.covers(TaskPlan("total", samples=1_000, longest=200))
    assert PRICES.covers(TaskPlan("total", samples=1_000, longest=10**6)), "a calibration is of the plan itself"


def test_the_basis_names_tasks_with_answers_of_unknown_length() -> None:
    assert PRICES.basis_for(["a/b"], 9) == "us, an upper bound with every answer at its limit"
    known = replace(PRICES, answers={"a/b": 12.0})
    assert known.basis_for(["a/b"], 9) == "us"
    assert known.basis_for(["a/b", "c/d"], 9) == "us, an upper bound with every answer of 1 of 2 tasks at its limit"
    assert replace(PRICES, answers={"": 0.5}).basis_for(["a/b"], 9) == "us"


def test_a_session_without_answers_has_no_rate_of_answering() -> None:
    history = history_of(plan_of([[1] * 100], 0), 0)
    costs = costs_from(history, {})
    assert costs.token_s > 0
    assert (costs.answer_s, costs.answer_attended_s) == (0.0, 0.0)
