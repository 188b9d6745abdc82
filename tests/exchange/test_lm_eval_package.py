"""Files that lm_eval itself wrote, with its own LongBench tasks and scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lbx.report.query import ReportQuery
from lbx.report.reports import read_report
from lbx.results import Store
from lbx.results.whole.run_changes import score_with
from tests import profiles
from tests.exchange.export_readers import tool
from tests.exchange.import_parts import import_predictions

WRITER = Path(__file__).with_name("lm_eval_writer.py")
OTHER_SCORES = {"samsum", "lcc", "repobench-p"}
"""Tasks that lm_eval scores in another way: it strips answers, and skips lines of spaces."""


def written(tmp_path: Path, tasks: dict[str, Any], limit: int = 0, repeats: int = 1) -> Path:
    (tmp_path / "rows.json").write_text(json.dumps(tasks))
    done = tool("python", WRITER, tmp_path, tmp_path / "rows.json", limit, repeats, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path / "saved"


def imported(store: Store, path: Path) -> dict[str, dict[str, Any]]:
    run = import_predictions(store, "lm_eval", path, model="m").run_id
    score_with(store, None, run_ids=[run], processes=1)
    return {row["task"]: row for row in read_report(store, "harness", ReportQuery(runs=[run])).dicts()}


@pytest.mark.long
@pytest.mark.parametrize("model", profiles.every(2, ["llama2-7b-chat-4k", "llama3-8b-instruct"]))
def test_published_answers_through_lm_eval(model: str, shared: Callable, store: Store, tmp_path: Path) -> None:
    folder = shared("data/predictions/longbench") / model
    tasks, first_line = {}, ("trec", "triviaqa", "samsum", "lsht")
    for file in folder.glob("*.jsonl"):
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        if file.stem in first_line:  # generation ends at a line end
            rows = [{**row, "pred": row["pred"].lstrip("\n").split("\n")[0]} for row in rows]
        tasks[file.stem] = rows
    rows = imported(store, written(tmp_path, tasks))
    official = json.loads((folder / "result.json").read_text())
    assert {task: round(100 * row["score"], 2) for task, row in rows.items()} == official  # type: ignore[attr-defined]
    assert {task for task, row in rows.items() if abs(row["difference"]) > 5e-5} <= OTHER_SCORES  # type: ignore[attr-defined]
    assert {(row["harness_version"], row["task_version"] >= 5) for row in rows.values()} == {("0.4.13", True)}  # type: ignore[attr-defined]


def test_a_limit_and_repetitions_of_lm_eval(shared: Callable, store: Store, tmp_path: Path) -> None:
    file = shared("data/predictions/longbench/llama3-8b-instruct/qasper.jsonl")
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    found = imported(store, written(tmp_path, {"qasper_e": rows}, limit=7, repeats=3))["qasper_e"]
    assert found["verdict"] == "differs" and "only 7 of 200 samples" in found["why"]
    counts = store.query("SELECT count(*), count(DISTINCT sample_id), max(iteration) FROM generations").rows
    assert counts == [(21, 7, 2)]
    assert found["difference"] == pytest.approx(0, abs=1e-9)
