"""Two revisions of a real LongBench task: rows in another order, with edited questions, documents and references."""

from __future__ import annotations

import json
import random
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.benchmarks.registry import BENCHMARKS
from lbx.options.run_spec import RunSettings
from lbx.options.task_selection import select_tasks
from lbx.report.query import ReportQuery
from lbx.report.reports import read_report
from lbx.results import Store
from tests.running.engine_parts import longbench_bundle, make_work, run, scripted

TASK = "multifieldqa_zh"
Row = dict[str, Any]


def revised(rows: list[Row]) -> list[Row]:
    """Rows without ids in a random order: ten are gone, ten new, and ten each have another part."""
    rows = [{**row, "_id": ""} for row in rows[10:]] + [
        {**row, "_id": "", "context": f"{row['context']} {n}"} for n, row in enumerate(rows[:10])
    ]
    for row in rows[20:30]:
        row["input"] += "?"
    for row in rows[30:40]:
        row["answers"] = ["?"]
    random.Random(5).shuffle(rows)
    return rows


def asked(folder: Path, rows: list[Row], run_id: str) -> Path:
    """A results file with a run of a model that gives the reference to two of three rows, chosen by the run's name."""
    bundle = longbench_bundle(folder, {TASK: rows})
    samples = list(BENCHMARKS["longbench"].samples(Bundle(folder), TASK))
    chance = random.Random(run_id)
    answers = {str(sample.key): sample.references[0] if chance.random() < 0.7 else "?" for sample in samples}
    _, backend = scripted(folder / "model", answers)
    path = folder / "results.duckdb"
    with Store(path) as store:
        run(store, make_work(bundle, select_tasks(bundle, ["longbench"]), backend, RunSettings(), run_id))
    return path


def scores(path: Path, rows: list[Row]) -> dict[tuple[str, str, str, int], float]:
    """Scores by document, question and references, which one question has twice; rows are in the file's order."""
    with Store(path, read_only=True) as store:
        found = dict(
            store.query("SELECT position, score FROM scores JOIN samples USING (benchmark, task, sample_id)").rows
        )
    seen: Counter[tuple[str, str, str]] = Counter()
    by_content = {}
    for n, row in enumerate(rows):
        key = (row["context"], row["input"], str(row["answers"]))
        by_content[*key, seen[key]] = found[n]
        seen[key] += 1
    return by_content


@pytest.fixture(scope="module")
def real_rows(shared: Callable[[str], Path]) -> list[Row]:
    with zipfile.ZipFile(shared("data/hub/datasets/THUDM/LongBench/data.zip")) as archive:
        return [json.loads(line) for line in archive.read(f"data/{TASK}.jsonl").decode().splitlines()]


def test_scores_are_those_of_equal_questions(real_rows: list[Row], tmp_path: Path) -> None:
    files, rows = [], [real_rows, revised(real_rows)]
    for name, part in zip(("first", "second"), rows, strict=True):
        (tmp_path / name).mkdir()
        files.append(asked(tmp_path / name, part, name))
    first, second = (scores(file, part) for file, part in zip(files, rows, strict=True))
    equal = [key for key in first if key in second]
    assert len(equal) == len(real_rows) - 30
    query = ReportQuery(baseline="first", baseline_file=files[0])
    with Store(files[1], allow_writer=True, allowed_files=[files[0]]) as store:
        (row,) = [row for row in read_report(store, "comparison", query).dicts() if row["task"] == TASK]
        (counts,) = read_report(store, "revisions", query).dicts()
    assert row["n"] == len(equal)
    assert row["score_a"] == pytest.approx(sum(first[key] for key in equal) / len(equal))
    assert row["score_b"] == pytest.approx(sum(second[key] for key in equal) / len(equal))
    assert row["wins"] == sum(second[key] > first[key] for key in equal)
    assert {name: n for name, n in counts.items() if isinstance(n, int) and n} == {
        "paired": len(equal), "only_in_baseline": 20, "only_in_file": 20, "references_changed": 10,
    }  # fmt: skip
