"""Runs that are offered for a choice, and runs that are meant to have no score."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from judged_rounds import add_judge, calibration, like_gpt4
from store_rows import RUN

from lbx.base.errors import UsageError
from lbx.base.records import Sample
from lbx.benchmarks import BENCHMARKS
from lbx.cluster.merge import merge
from lbx.report.pairs import run_named
from lbx.store import GenerationRow, SampleRow, Store
from lbx.store.runs import check_runs, run_names


def test_judges_are_runs_that_nobody_is_offered(tmp_path: Path) -> None:
    with Store(tmp_path / "r.duckdb") as store:
        for name in ("a", "b"):
            store.begin_run(replace(RUN, run_id=name, model=f"model {name}"))
        add_judge(store, "judge-of-all", calibration(like_gpt4, 2), model="model a")
        assert run_names(store) == ["a", "b"]
        check_runs(store, ["judge-of-all", "a"])
        for refused in (lambda: check_runs(store, ["c"]), lambda: run_named(store, "c")):
            with pytest.raises(UsageError) as error:
                refused()
            assert "Its runs are: a, b." in str(error.value)
        assert run_named(store, "model a") == "a"


@pytest.mark.parametrize(
    ("settings", "evaluation", "behind"),
    [({}, "f1", True), ({"judged": True, "published": True}, "f1", False), ({}, "LLM", False)],
)
def test_merging_misses_no_score_where_none_is_meant_to_be(
    tmp_path: Path, settings: dict[str, Any], evaluation: str, behind: bool
) -> None:
    parts = [tmp_path / f"{place}.duckdb" for place in range(2)]
    for place, path in enumerate(parts):
        one = Sample("leval", "narrative_qa", f"q{place}", "text", "?", ("it",), meta={"evaluation": evaluation})
        with Store(path) as store:
            store.begin_run(replace(RUN, run_id="r", benchmark_versions={"leval": 1}, settings=settings))
            store.write(samples=[SampleRow(one, place)], generations=[GenerationRow("r", *one.key, output="it")])
            store.finish_run("r", "done")
    merged = merge(parts, tmp_path / "all.duckdb", None, force=False)
    version = BENCHMARKS["leval"].metric_version
    said = [note for note in merged.notes if f"have no score of metric version {version}" in note]
    assert bool(said) is behind
