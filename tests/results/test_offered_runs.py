"""Runs that are offered for a choice, and runs that are meant to have no score."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lbx.base.errors import UsageError
from lbx.report.pairs import find_run
from lbx.results import Store
from lbx.results.read.runs import check_runs, run_names
from tests.judged_rounds import add_judge, calibration, like_gpt4
from tests.results.store_rows import RUN


def test_judges_are_runs_that_nobody_is_offered(tmp_path: Path) -> None:
    with Store(tmp_path / "r.duckdb") as store:
        for name in ("a", "b"):
            store.begin_run(replace(RUN, run_id=name, model=f"model {name}"))
        add_judge(store, "judge-of-all", calibration(like_gpt4, 2), model="model a")
        assert run_names(store) == ["a", "b"]
        check_runs(store, ["judge-of-all", "a"])
        for refused in (lambda: check_runs(store, ["c"]), lambda: find_run(store, "c")):
            with pytest.raises(UsageError) as error:
                refused()
            assert "Available runs: a, b." in str(error.value)
        assert find_run(store, "model a") == "a"
