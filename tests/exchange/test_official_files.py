"""Files in the official formats, made of golden records: imported, they have the official numbers."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lbx.benchmarks.registry import BENCHMARKS
from lbx.results import Store
from tests.exchange.import_parts import import_predictions

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


def _readable(record: dict[str, Any], key: str = "answers") -> bool:
    """The importer refuses references that are no list of texts: the golden tests score those records."""
    references = record[key]
    return isinstance(references, list) and bool(references) and all(isinstance(text, str) for text in references)


def _has_official_mean(official: float, found: float, records: list[dict[str, Any]]) -> bool:
    """Return whether a number of the readable records is the official one, which counts all of them."""
    read = [record for record in records if _readable(record)]
    left_out = sum(record["score"] or 0.0 for record in records if not _readable(record))
    mean = (found * len(read) + 100 * left_out) / len(records)
    return mean == pytest.approx(official, abs=0.011)


def test_longbench(shared: Shared, store: Store, write_lines: Callable, scored: Callable) -> None:
    records, golden = _golden(shared, "longbench")
    wanted = {}
    for task, ids in golden["record_ids"].items():
        rows = [records[name] for name in ids]
        folder = write_lines(f"m/{task}.jsonl", list(map(_v1_row, filter(_readable, rows)))).parent
        wanted[task] = rows
    imported = import_predictions(store, "longbench", folder, model="m")
    numbers = scored(store, "longbench", imported.run_id)
    assert numbers.keys() == wanted.keys()
    for task, rows in wanted.items():
        found = next(iter(numbers[task].values()))
        assert found is not None and _has_official_mean(golden["result"][task], found, rows), task


def test_the_last_rows_classes_count_for_a_whole_file(
    shared: Shared, store: Store, write_lines: Callable, scored: Callable
) -> None:
    records, golden = _golden(shared, "longbench")
    mixed = golden["mixed_classes"]
    for task, ids in mixed["record_ids"].items():
        rows = [records[name] for name in ids]
        folder = write_lines(f"m/{task}.jsonl", list(map(_v1_row, filter(_readable, rows)))).parent
    imported = import_predictions(store, "longbench", folder, model="m")
    numbers = scored(store, "longbench", imported.run_id)
    assert numbers.keys() == mixed["result"].keys()
    for task, official in mixed["result"].items():
        found = numbers[task]["classification"]
        assert found is not None and _has_official_mean(
            official, found, [records[n] for n in mixed["record_ids"][task]]
        )


def test_longbench_e(shared: Shared, store: Store, write_lines: Callable, scored: Callable) -> None:
    records, golden = _golden(shared, "longbench_e")
    known = BENCHMARKS["longbench"].catalogue.names
    for task, ids in golden["record_ids"].items():
        rows = [records[name] for name in ids]
        if f"{task}_e" in known:
            folder = write_lines(f"pred_e/m/{task}.jsonl", list(map(_v1_row, filter(_readable, rows)))).parent
    imported = import_predictions(store, "longbench", folder, model="m")
    for task, found in scored(store, "longbench", imported.run_id).items():
        headline, plain = next(iter(found)), task.removesuffix("_e")
        rows = [records[name] for name in golden["record_ids"][plain]]
        limits = {"0-4k": (0, 4000), "4-8k": (4000, 8000), "8k+": (8000, math.inf)}
        for bucket, official in golden["result"][plain].items():
            low, high = limits[bucket]
            number, some = found.get(f"{headline}/{bucket}"), [row for row in rows if low <= int(row["length"]) < high]
            assert number is not None and _has_official_mean(official, number, some), (task, bucket)


def test_lveval(shared: Shared, store: Store, write_lines: Callable, scored: Callable) -> None:
    records, golden = _golden(shared, "lveval")
    wanted = {
        task: official
        for task, official in golden["result"].items()
        if all(_readable(records[name]) for name in golden["record_ids"][task])
    }
    assert len(wanted) > 40
    for task in wanted:
        rows = [
            {
                "pred": records[name]["prediction"],
                "answers": records[name]["answers"],
                "gold_ans": records[name]["answer_keywords"],
                "input": name,
                "all_classes": None,
                "length": 0,
            }
            for name in golden["record_ids"][task]
        ]
        folder = write_lines(f"m/{task}.jsonl", rows).parent
    imported = import_predictions(store, "lveval", folder, model="m")
    numbers = scored(store, "lveval", imported.run_id)
    assert {task: next(iter(found.values())) for task, found in numbers.items()} == wanted


def test_longbench_pro(shared: Shared, store: Store, write_lines: Callable, answers: Callable) -> None:
    records, _ = _golden(shared, "longbench_pro")
    keys = ("id", "primary_task", "secondary_task", "language", "token_length", "contextual_requirement")
    keys += ("difficulty", "answer", "bon_idx", "prediction")
    records = {name: record for name, record in records.items() if _readable(record, "answer")}
    assert len(records) > 1000
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
