"""A calibration finds the prices of a model whose clock goes by known ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lbx.base.records import Request, SampleKey
from lbx.base.units import format_duration
from lbx.engine.model import NEVER_EXTENDS, BackendInfo, SequenceExtension
from lbx.running.forecast import estimate
from lbx.running.forecast.estimate import calibrate, decode_capacity_of
from lbx.running.forecast.run_plan import RunPlan, TaskPlan
from tests.running.engine_parts import scripted
from tests.toy import EOS, TOKENIZER, ToyMemory, alone

TOKEN_S, SEEN_S, STEP_S, ANSWER_S, ANSWER_SEEN_S = 1e-3, 2e-7, 5e-3, 1e-3, 1e-6
CHUNK = 32


class Clock:
    """Goes on only as the model computes."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class TimedMemory(ToyMemory):
    def __init__(self, clock: Clock, price: float, **limits: int) -> None:
        super().__init__(**limits)
        self._clock = clock
        self._price = price
        self.begun: list[int] = []  # how long sequences were that several tokens followed

    def extend(self, items: Sequence[SequenceExtension]) -> list[np.ndarray | None]:
        before = self.used_cells
        self.begun += [self.length(item.sequence) for item in items if len(item.tokens) > 1]
        tokens = sum(len(item.tokens) for item in items)
        found = super().extend(items)
        if tokens == len(items):
            spent = STEP_S + tokens * (ANSWER_S + ANSWER_SEEN_S * self.used_cells)
        else:
            spent = tokens * (TOKEN_S + SEEN_S * (before + tokens / 2))
        self._clock.now += spent * self._price
        return found


class TimedBackend:
    """The toy model behind the whole seam."""

    tokenizer = TOKENIZER
    eos_ids = frozenset({EOS})

    def __init__(self, clock: Clock, memory: TimedMemory) -> None:
        self._clock, self._memory = clock, memory
        self.info = BackendInfo("toy", "1", "toy", 100_000, weights_bytes=1, kv_bytes_per_token=1)

    def sequences(self) -> TimedMemory:
        return self._memory

    def close(self) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(estimate.time, "perf_counter", clock.perf_counter)  # type: ignore[attr-defined]
    return clock


def plan(length: int = 6000, most: int = 1000, tokens: int = 0) -> RunPlan:
    requests = [
        Request(SampleKey("toy", name, "1"), tuple(97 + (n * n) % 13 for n in range(size)), most)
        for name, size in (("long", length), ("short", 50))
    ]
    tasks = [
        TaskPlan(f"toy/{name}", samples=1, distinct_tokens=tokens // 2, longest=length) for name in ("long", "short")
    ]
    return RunPlan([tasks], [], requests)


@pytest.mark.parametrize("limits", [{"grain": 32}, {"forks_anywhere": False, "copies": True}])
@pytest.mark.parametrize("cells", [128, 160, 256, 320, 512])
def test_small_memories_are_measured_with_as_many_answers_as_they_hold(
    clock: Clock, cells: int, limits: dict[str, int]
) -> None:
    memory = TimedMemory(clock, 1.0, max_sequences=32, max_step=256, max_cells=cells, **limits)
    costs = calibrate(TimedBackend(clock, memory), plan(length=cells // 4, most=10), batching=True)
    assert costs is not None
    assert costs.step_s > 0
    assert not memory.sequences


def test_prices_of_a_memory_of_sequences(clock: Clock) -> None:
    memory = TimedMemory(clock, 1.0, max_sequences=12, max_cells=20_000, max_step=CHUNK)
    backend = TimedBackend(clock, memory)
    costs = calibrate(backend, plan(), batching=True)
    assert costs is not None
    assert costs.token_s == pytest.approx(TOKEN_S, rel=0.02)
    assert costs.attended_s == pytest.approx(SEEN_S, rel=0.02)
    assert costs.step_s == pytest.approx(STEP_S, rel=0.05)
    assert costs.answer_s == pytest.approx(ANSWER_S, rel=0.05)
    assert costs.answer_attended_s == pytest.approx(ANSWER_SEEN_S, rel=0.05)
    assert memory.used_cells == 0, "nothing is left behind"
    assert clock.now < 1.5 * estimate.SECONDS
    assert f"calibration of {format_duration(clock.now)}" in costs.basis


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lbx")


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("price", [0.01, 1.0, 10.0, 30.0, 300.0])
@pytest.mark.parametrize("run_tokens", [2_000, 50_000, 2_000_000])
def test_it_takes_its_share_of_the_run_and_tells_how_far_it_is(
    clock: Clock, batching: bool, price: float, run_tokens: int
) -> None:
    memory = TimedMemory(clock, price, max_sequences=12, max_cells=20_000, max_step=256, cheap_cells=5000)
    told: list[tuple[int, int]] = []
    costs = calibrate(
        TimedBackend(clock, memory), plan(tokens=run_tokens), batching=batching, least_s=estimate.LEAST_S,
        on_progress=lambda *times: told.append(times),
    )  # fmt: skip
    run_s, first_tokens_s = price * TOKEN_S * run_tokens, price * (2 * 16 * TOKEN_S + 4 * (STEP_S + ANSWER_S))
    share_s = max(min(estimate.USUAL_S, estimate.SHORT_SHARE * run_s), estimate.SHARE * run_s)
    assert clock.now <= max(estimate.LEAST_S, share_s) * 1.2 + first_tokens_s
    assert costs is not None
    assert costs.token_s == pytest.approx(price * TOKEN_S, rel=0.05)
    assert costs.step_s + costs.answer_s == pytest.approx(price * (STEP_S + ANSWER_S), rel=0.1)
    assert told
    assert all(0 <= done <= most for done, most in told)


def test_a_model_with_time_for_little_is_taken_at_its_first_tokens(clock: Clock) -> None:
    memory = TimedMemory(clock, 300.0, max_sequences=12, max_cells=20_000, max_step=CHUNK, cheap_cells=5000)
    costs = calibrate(TimedBackend(clock, memory), plan(), batching=True)
    assert costs is not None
    assert memory.computed == 16 + 2, "and two steps"
    assert costs.attended_s == pytest.approx(costs.token_s / 5000), "the slope is not to be seen so near the start"
    assert costs.answers == {}


WHOLE = {"max_sequences": 2, "max_cells": 24_000, "max_step": 6000, "forks_anywhere": False,
         "follow_limit": NEVER_EXTENDS}  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "batching", "room"), [({}, False, (1, 1)), (WHOLE, True, (1, 0))], ids=["one by one", "whole prompts"]
)
def test_prices_without_batches(
    clock: Clock, limits: dict[str, int], batching: bool, room: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    memory = TimedMemory(clock, 1.0, **limits)
    backend = TimedBackend(clock, memory)
    costs = calibrate(backend, plan(), batching=batching)
    assert costs is not None
    assert caplog.messages == ["Measuring the model's speed: at most 3 s, or 2% of the run's time."]
    assert costs.token_s == pytest.approx(TOKEN_S, rel=0.02)
    assert costs.attended_s == pytest.approx(SEEN_S, rel=0.05)
    assert costs.step_s + costs.answer_s == pytest.approx(STEP_S + ANSWER_S, rel=0.05)
    capacity = decode_capacity_of(backend, batching=batching)
    assert (capacity.max_answers, capacity.step) == room
    assert not limits or not any(memory.begun), "no prompt follows another"


def test_answers_are_tried_out(clock: Clock) -> None:
    memory = TimedMemory(clock, 0.1, max_sequences=12, max_cells=20_000, max_step=CHUNK)
    backend = TimedBackend(clock, memory)
    costs = calibrate(backend, plan(), batching=True)
    assert costs is not None
    for request in plan().trials:
        said = alone(replace(request, max_new_tokens=estimate._TRIAL_TOKENS))
        expected = 1000 if said.finish_reason == "length" else said.output_tokens + 1
        assert costs.answers[f"toy/{request.key.task}"] == expected
    assert 0 < costs.answers[""] <= 1


def test_nothing_to_measure(clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, written_down = scripted(tmp_path, {"*": "x"})
    assert calibrate(written_down, plan(), batching=True) is None
    assert not caplog.messages
    backend = TimedBackend(clock, TimedMemory(clock, 1.0))
    assert calibrate(backend, RunPlan([[TaskPlan("toy/long")]]), batching=True) is None
    assert clock.now == 0
