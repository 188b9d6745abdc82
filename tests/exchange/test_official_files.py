"""Files in the official formats, made of golden records: imported, they have the official numbers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from import_parts import import_predictions

from lbx.benchmarks import BENCHMARKS
from lbx.store import Store

Shared = Callable[[str], Path]


def _golden(shared: Shared, name: str) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Records by id, and the aggregates."""
    family = name.replace("longbench_e", "longbench")
    with gzip.open(shared(f"golden/open/{family}.jsonl.gz"), "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    aggregate = json.loads(shared(f"golden/open/{name}_aggregate.json").read_text("utf-8"))
    return {record.get("uid", record["id"]): record for record in records}, aggregate


def _v1_row(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "pred": record["prediction"],
        "answers": record["answers"],
        "all_classes": record["all_classes"],
        "length": record["length"],
    }


def _readable(record: dict[str, Any]) -> bool:
    """The importer refuses answers that are no texts, over which most official metrics stop; the English ROUGE does
    not."""
    answers = record["answers"]
    return isinstance(answers, str | list) and all(isinstance(answer, str | int) for answer in answers)


def test_longbench(shared: Shared, store: Store, write_lines: Callable, scored: Callable) -> None:
    records, golden = _golden(shared, "longbench")
    wanted = {}
    for task, ids in golden["record_ids"].items():
        rows = [records[name] for name in ids]
        if all(map(_readable, rows)):
            folder = write_lines(f"m/{task}.jsonl", list(map(_v1_row, rows))).parent
            wanted[task] = golden["result"][task]
    imported = import_predictions(store, "longbench", folder, model="m")
    numbers = scored(store, "longbench", imported.run_id)
    assert {task: next(iter(found.values())) for task, found in numbers.items()} == wanted and len(wanted) > 10


def test_the_last_rows_classes_count_for_a_whole_file(
    shared: Shared, store: Store, write_lines: Callable, scored: Callable
) -> None:
    records, golden = _golden(shared, "longbench")
    mixed = golden["mixed_classes"]
    for task, ids in mixed["record_ids"].items():
        folder = write_lines(f"m/{task}.jsonl", [_v1_row(records[name]) for name in ids]).parent
    imported = import_predictions(store, "longbench", folder, model="m")
    numbers = scored(store, "longbench", imported.run_id)
    assert {task: found["classification"] for task, found in numbers.items()} == mixed["result"]


def test_longbench_e(shared: Shared, store: Store, write_lines: Callable, scored: Callable) -> None:
    records, golden = _golden(shared, "longbench_e")
    known = BENCHMARKS["longbench"].catalogue.names
    for task, ids in golden["record_ids"].items():
        rows = [records[name] for name in ids]
        if f"{task}_e" in known and all(map(_readable, rows)):
            folder = write_lines(f"pred_e/m/{task}.jsonl", list(map(_v1_row, rows))).parent
    imported = import_predictions(store, "longbench", folder, model="m")
    for task, found in scored(store, "longbench", imported.run_id).items():
        headline = next(iter(found))
        got = {bucket: found.get(f"{headline}/{bucket}") for bucket in ("0-4k", "4-8k", "8k+")}
        assert got == golden["result"][task.removesuffix("_e")], task


def test_lveval(shared: Shared, store: Store, write_lines: Callable, scored: Callable) -> None:
    records, golden = _golden(shared, "lveval")
    for task, ids in golden["record_ids"].items():
        rows = [
            {
                "pred": records[name]["prediction"],
                "answers": records[name]["answers"],
                "gold_ans": records[name]["answer_keywords"],
                "input": name,
                "all_classes": None,
                "length": 0,
            }
            for name in ids
        ]
        folder = write_lines(f"m/{task}.jsonl", rows).parent
    imported = import_predictions(store, "lveval", folder, model="m")
    numbers = scored(store, "lveval", imported.run_id)
    assert {task: next(iter(found.values())) for task, found in numbers.items()} == golden["result"]


def test_longbench_pro(shared: Shared, store: Store, write_lines: Callable, answers: Callable) -> None:
    records, _ = _golden(shared, "longbench_pro")
    keys = ("id", "primary_task", "secondary_task", "language", "token_length", "contextual_requirement")
    keys += ("difficulty", "answer", "bon_idx", "prediction")
    file = write_lines("m.jsonl", [{key: record[key] for key in keys} for record in records.values()])
    imported = import_predictions(store, "longbench_pro", file, model="m")
    family = BENCHMARKS["longbench_pro"]
    golden = {(record["id"], record["bon_idx"] - 1): record for record in records.values()}
    seen = 0
    for task in imported.counts:
        for sample, iteration, output in answers(store, imported.run_id, "longbench_pro", task):
            (got, *_) = family.score(sample, output)
            assert got.score == pytest.approx(golden[sample.sample_id, iteration]["score"], abs=1e-9)
            seen += 1
    assert seen == len(records)
