"""What shards are predicted to take, by how many processes hold the model in each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.forecast.estimate import Costs
from lbx.running import sharding
from lbx.running.sharding import Counting, plan_shards
from lbx.spec.run_spec import RunSpec

COSTS = Costs(0.001, 0.0, 0.0, 0.01, 0.0, 1.0, {}, "a test")


def test_workers_share_what_a_shard_takes(
    bundle: Path, answers: Callable[[float], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A calibration is of one process; a results file (``--like``) of as many as it had, who have shared already."""
    monkeypatch.setattr(sharding, "calibrate", lambda *_, **__: COSTS)
    monkeypatch.setattr(sharding, "_costs_like", lambda *_: COSTS)

    def predicted(workers: int, like: Path | None = None) -> list[float]:
        spec = RunSpec(bundle=str(bundle), model=answers(0.0), tasks=("needle",), name="r", workers=workers)
        plan = plan_shards(spec, 3, Counting(like=like))
        assert plan.unit == "s"
        return [shard.cost for shard in plan.shards]

    alone = predicted(0)
    assert predicted(1) == alone
    assert predicted(4) == pytest.approx([cost / 4 for cost in alone])
    assert predicted(4, Path("pilot.duckdb")) == alone
