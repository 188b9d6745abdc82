"""How far a run is and how long the rest takes, by a clock that the test turns."""

from __future__ import annotations

import dataclasses

import pytest

from lbx.results import GenerationRow
from lbx.running.forecast.estimate import TimeEstimate
from lbx.running.forecast.run_forecast import Forecast, MemoryFit
from lbx.running.forecast.run_plan import TaskPlan
from lbx.running.monitor import ProgressTracker

FIT = MemoryFit("RAM", None, None, 0, 1, 1, None, 4096)
TASKS = [
    TaskPlan("b/long", samples=10, prompt_tokens=9_000, distinct_tokens=5_000, new_tokens=1_000),
    TaskPlan("b/short", samples=10, prompt_tokens=1_000, distinct_tokens=1_000, new_tokens=100),
]
TIME = TimeEstimate(
    prefill_s=60.0, decode_s=40.0, other_s=0.0, total_s=100.0, computed_tokens=6_000,
    answer_tokens={"b/long": 1_000, "b/short": 100}, basis="us",
)  # fmt: skip


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def row(task: str = "long", run: str = "r1", **values: object) -> GenerationRow:
    figures = {"prompt_tokens": 900, "cached_tokens": 400, "output_tokens": 100, "prefill_s": 5.0, "decode_s": 3.0}
    return GenerationRow(run, "b", task, "s", 0, **(figures | values))


def forecast(time: TimeEstimate | None = TIME) -> Forecast:
    return Forecast([TASKS], FIT, time, 0.0)


def test_a_run_that_goes_as_estimated(clock: Clock) -> None:
    meter = ProgressTracker(forecast(), 20, clock)
    assert (meter.fraction, meter.left_s()) == (0.0, pytest.approx(100.0))
    for _ in range(5):
        clock.now += 10 * (500 * 0.01 + 100 * 40 / 1_100) / 10
        meter.count_tokens(600)
        meter.count_sample(row())
    assert meter.fraction == 0.45
    assert meter.elapsed_s + meter.left_s() == pytest.approx(100.0)
    assert (meter.prompt_tokens, meter.computed_tokens) == (4_500, 3_000)


def test_planned_prompts_of_an_answer_are_progress(clock: Clock) -> None:
    three = dataclasses.replace(TASKS[0], prompts=30)
    meter = ProgressTracker(Forecast([[three]], FIT, None, 0.0), 10, clock)
    steps = [{"prompt_tokens": 100}, {"prompt_tokens": 300}]
    for _ in range(5):
        meter.count_sample(row(prompt_tokens=900, steps=steps))
    assert (meter.prompt_tokens, meter.fraction) == (4_500, 0.5)
    meter.count_sample(row(prompt_tokens=None, steps=[{"prompt_tokens": None}] * 2))
    assert meter.prompt_tokens == 4_500, "a server that counts nothing"


def test_a_second_prompt_is_no_progress(clock: Clock) -> None:
    """A plan counts a question's first prompt: what the second takes may hang on the first one's answer."""
    meter = ProgressTracker(forecast(), 20, clock)
    for _ in range(5):
        meter.count_sample(row(prompt_tokens=1_500, steps=[{"prompt_tokens": 900}]))
    assert (meter.prompt_tokens, meter.fraction) == (4_500, 0.45)
    assert meter.runs["r1"].prompt_tokens == 7_500, "what was read"


def test_a_server_counts_tokens_where_lbx_counted_characters(clock: Clock) -> None:
    meter = ProgressTracker(dataclasses.replace(forecast(), counted_in="characters"), 20, clock)
    for _ in range(10):
        clock.now += 1
        meter.count_sample(row(prompt_tokens=225))
    assert (meter.planned_prompt_tokens, meter.fraction, meter.left_s()) == (None, 0.5, 10.0)


def test_the_pace_seen_corrects_the_estimate(clock: Clock) -> None:
    meter = ProgressTracker(forecast(), 20, clock)
    clock.now += 60.0
    meter.count_tokens(3_000)  # 30 s by the estimate
    left = meter.left_s()
    assert left == pytest.approx(70 * (60 + 5) / (30 + 5))


def test_answers_shorter_than_they_may_be_shorten_the_rest(clock: Clock) -> None:
    meter = ProgressTracker(forecast(), 20, clock)
    before = meter.left_s()
    for _ in range(4):
        meter.count_sample(row(output_tokens=10, cached_tokens=900))
    # Six answers of 10 tokens are left of that task, not of 100.
    assert before - meter.left_s() > 500 * 40 / 1_100


def test_tokens_per_second_are_those_of_the_last_minute(clock: Clock) -> None:
    meter = ProgressTracker(forecast(), 20, clock)
    for _ in range(60):
        clock.now += 2.0
        meter.count_tokens(10)
        meter.tokens_per_s()
    assert meter.tokens_per_s() == pytest.approx(5.0, rel=0.05)
    clock.now += 59.0
    assert meter.tokens_per_s() < 1.0


def test_without_a_plan_samples_are_counted(clock: Clock) -> None:
    meter = ProgressTracker(None, 12, clock)
    assert meter.left_s() is None
    for _ in range(4):
        meter.count_sample(None)
    clock.now += 6.0
    meter.count_sample(row())
    meter.count_sample(row(error="out of memory"))
    assert meter.planned_prompt_tokens is None
    assert meter.fraction == 0.25
    assert meter.left_s() == pytest.approx(18.0)
    assert (meter.runs["r1"].answered, meter.runs["r1"].failed) == (1, 1)


def test_without_an_estimate_tokens_are_counted(clock: Clock) -> None:
    meter = ProgressTracker(forecast(None), 20, clock)
    clock.now += 10.0
    meter.count_tokens(710)
    assert meter.left_s() == pytest.approx(10.0 * (6_000 + 1_100 - 710) / 710)


def test_nothing_left(clock: Clock) -> None:
    meter = ProgressTracker(Forecast([[TaskPlan("b/long")]], FIT, None, 0.0), 3, clock)
    for _ in range(3):
        meter.count_sample(None)
    assert (meter.fraction, meter.left_s()) == (1.0, 0.0)


def test_runs_made_together_are_kept_apart(clock: Clock) -> None:
    meter = ProgressTracker(forecast(), 20, clock)
    meter.count_sample(row())
    meter.count_sample(row(run="r2", output_tokens=7))
    assert (meter.runs["r1"].output_tokens, meter.runs["r2"].output_tokens) == (100, 7)
    assert meter.runs["r1"].computed_tokens == 600
    assert meter.computed_tokens == 1_107, "as many as the rows say, where nobody tells of tokens"
