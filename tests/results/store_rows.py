"""Rows of one made-up sample and its answers, and a file that holds them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from lbx.base.records import Sample
from lbx.results import GenerationRow, RunRow, SampleRow, ScoreRow, Store

RUN = RunRow("r1", "demo", "scripted", "1", {"needle": 1}, "digest", {"seed": 0}, {"cores": 2}, "0.1")


def sample(sample_id: str = "s1", context: str = "document", **changes: object) -> SampleRow:
    made = Sample("needle", "single_en", sample_id, context, "Where?", ("here",), length=1000, meta={"depth": 0.5})
    return SampleRow(dataclasses.replace(made, **changes), position=0)


def generation(run_id: str = "r1", sample_id: str = "s1", **values: object) -> GenerationRow:
    defaults: dict[str, object] = {"output": "here", "prompt_tokens": 5, "original_tokens": 7, "truncated": True}
    return GenerationRow(run_id, "needle", "single_en", sample_id, 0, **(values or defaults))


def score(run_id: str = "r1", sample_id: str = "s1", value: float = 1 / 3, version: int = 1) -> ScoreRow:
    return ScoreRow(run_id, "needle", "single_en", sample_id, 0, "recall", version, value, "here", headline=True)


def fill(path: Path, *run_ids: str) -> None:
    with Store(path) as store:
        for run_id in run_ids:
            store.begin_run(dataclasses.replace(RUN, run_id=run_id))
            store.write(samples=[sample()], generations=[generation(run_id)], scores=[score(run_id)])
