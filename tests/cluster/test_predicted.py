"""What shards are predicted to take, by how many processes hold the model in each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lbx.options.run_spec import RunSpec
from lbx.running import sharding
from lbx.running.forecast.estimate import Costs
from lbx.running.forecast.shards import LoadTime
from lbx.running.sharding import CountingOptions, plan_shards

COSTS = Costs(0.001, 0.0, 0.0, 0.01, 0.0, 1.0, {}, "a test")


def test_a_count_is_chosen_from_what_is_known(
    bundle: Path, answers: Callable[[float], Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The model is loaded here, or was loaded in the session of --history; a rule of thumb has no seconds."""
    caplog.set_level("INFO", "lbx")
    slow = replace(COSTS, answer_s=4.0)
    monkeypatch.setattr(sharding, "calibrate", lambda *_, **__: slow)
    spec = RunSpec(bundle=str(bundle), model=answers(0.0), tasks=("needle",), name="r")
    for how, load, reason in (
        (CountingOptions(), None, "s, measured here"),
        (
            CountingOptions(history=Path("pilot.duckdb")),
            LoadTime(25.0, "measured in pilot.duckdb"),
            "25.0 s, measured in pilot",
        ),
        (CountingOptions(history=Path("pilot.duckdb")), None, "60.0 s, assumed"),
    ):
        monkeypatch.setattr(sharding, "_costs_of_similar_run", lambda *_, load=load: (slow, load))
        caplog.clear()
        plan = plan_shards(spec, None, how)
        assert plan.unit == "s" and f"{len(plan.shards)} shards: " in caplog.text and reason in caplog.text
    plan = plan_shards(spec, None, CountingOptions(measure_speed=False), at_once=3)
    assert (plan.unit, len(plan.shards)) == ("tokens", 12)
    costs = [shard.cost for shard in plan.shards]
    assert costs == sorted(costs, reverse=True)


def test_workers_share_what_a_shard_takes(
    bundle: Path, answers: Callable[[float], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A calibration is of one process; a results file (``--history``) of as many as it had, who have shared already."""
    monkeypatch.setattr(sharding, "calibrate", lambda *_, **__: COSTS)
    monkeypatch.setattr(
        sharding, "_costs_of_similar_run", lambda *_: (COSTS, LoadTime(0.5, "measured in pilot.duckdb"))
    )

    def predicted(workers: int, like: Path | None = None) -> list[float]:
        spec = RunSpec(bundle=str(bundle), model=answers(0.0), tasks=("needle",), name="r", workers=workers)
        plan = plan_shards(spec, 3, CountingOptions(history=like))
        assert plan.unit == "s"
        return [shard.cost for shard in plan.shards]

    alone = predicted(0)
    assert predicted(1) == alone
    assert predicted(4) == pytest.approx([cost / 4 for cost in alone])
    assert predicted(4, Path("pilot.duckdb")) == alone
