"""The hub's parquet of a dataset gives the same samples as the authors' files."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError
from lbx.benchmarks.registry import BENCHMARKS
from lbx.options.task_selection import select_tasks

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]


def as_parquet(lines: list[str], path: Path) -> Path:
    """JSON lines to parquet by DuckDB, a second implementation's reading of them."""
    table = path.with_suffix(".jsonl")
    table.write_text("\n".join(lines), "utf-8")
    size = 64 << 20
    duckdb.execute(
        f"COPY (SELECT * FROM read_json('{table}', format='newline_delimited', maximum_object_size={size}, "
        f"maximum_depth=3, map_inference_threshold=-1)) TO '{path}' (FORMAT parquet)"
    )
    return path


@pytest.fixture
def converted(bundle: Bundle, make_bundle: MakeBundle, tmp_path: Path) -> Bundle:
    v1, v2, leval = (bundle.snapshot("dataset", r) for r in ("THUDM/LongBench", "THUDM/LongBench-v2", "L4NLP/LEval"))
    assert v1
    assert v2
    assert leval
    with zipfile.ZipFile(v1 / "data.zip") as archive:
        news = archive.read("data/multi_news.jsonl").decode("utf-8").splitlines()
    questions = [json.dumps(row) for row in json.loads((v2 / "data.json").read_text("utf-8"))]
    exam = (leval / "LEval" / "Exam" / "tpo.jsonl").read_text("utf-8").splitlines()
    return make_bundle(
        {
            "hub:THUDM/LongBench/multi_news/test/0000.parquet": as_parquet(news[:120], tmp_path / "a.parquet"),
            "hub:THUDM/LongBench/multi_news/test/0001.parquet": as_parquet(news[120:], tmp_path / "b.parquet"),
            "hub:THUDM/LongBench-v2/default/train/0000.parquet": as_parquet(questions, tmp_path / "c.parquet"),
            "hub:L4NLP/LEval/tpo/test/0000.parquet": as_parquet(exam, tmp_path / "d.parquet"),
        }
    )


def test_samples_are_the_same(bundle: Bundle, converted: Bundle) -> None:
    tasks = select_tasks(converted, ["longbench", "longbench_v2", "leval"])
    assert [task.full_name for task in tasks] == ["longbench/multi_news", "longbench_v2/mcq", "leval/tpo"]
    for task in tasks:
        benchmark = BENCHMARKS[task.benchmark]
        samples = list(benchmark.samples(converted, task.name))
        assert len(samples) == task.samples
        assert samples == list(benchmark.samples(bundle, task.name))


def test_a_damaged_file_is_named(make_bundle: MakeBundle) -> None:
    broken = make_bundle({"hub:L4NLP/LEval/tpo/test/0000.parquet": b"PAR1 and nothing more"})
    with pytest.raises(BundleError, match="tpo/test"):
        select_tasks(broken, ["leval"])
