"""Scores of an imported run, straight from the benchmark, and small files to import."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lbx.base.records import Sample, ScoredSample
from lbx.benchmarks.registry import BENCHMARKS
from lbx.results import Store
from lbx.results.read.runs import set_metadata
from tests.command_line import Lbx

Numbers = dict[str, dict[str, float | None]]
Scored = Callable[..., Numbers]
WriteLines = Callable[[str, Sequence[Mapping[str, Any]]], Path]


@pytest.fixture(scope="session")
def lbx() -> Lbx:
    return Lbx()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "results.duckdb") as opened:
        yield opened


@pytest.fixture
def write_lines(tmp_path: Path) -> WriteLines:
    """Writes {name: rows} below the test's folder; returns the file."""

    def write(name: str, rows: Sequence[Mapping[str, Any]]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(json.dumps(row, ensure_ascii=True).encode() + b"\n" for row in rows))
        return path

    return write


@pytest.fixture(scope="session")
def answers() -> Callable[[Store, str, str, str], list[tuple[Sample, int, str]]]:
    """A run's answers to one task: (sample, iteration, output) from the rows that the results file holds."""

    def read(store: Store, run_id: str, benchmark: str, task: str) -> list[tuple[Sample, int, str]]:
        rows = store.samples(run_id, benchmark, task)
        return [(_sample(benchmark, task, row), row["iteration"], row["output"]) for row in rows]

    return read


@pytest.fixture(scope="session")
def scored() -> Scored:
    """{task: {metric: official}} of a run, from the rows that the results file holds, at some places only if told."""

    def score(store: Store, benchmark: str, run_id: str, places: Mapping[str, Sequence[int]] | None = None) -> Numbers:
        family = BENCHMARKS[benchmark]
        tasks = store.query(
            "SELECT DISTINCT task FROM generations WHERE run_id = ? AND benchmark = ? AND error IS NULL",
            [run_id, benchmark],
        ).rows
        numbers = {}
        for (task,) in tasks:
            rows = []
            for place, row in enumerate(store.samples(run_id, benchmark, task)):
                if places is not None and place not in set(places[task]):
                    continue
                sample = _sample(benchmark, task, row)
                scores = {found.metric: found.score for found in family.score(sample, row["output"])}
                if scores:
                    rows.append(ScoredSample(sample, scores, row["iteration"]))
            numbers[task] = {found.metric: found.official for found in family.aggregate(task, rows)}
        return numbers

    return score


def _sample(benchmark: str, task: str, row: Mapping[str, Any]) -> Sample:
    return Sample(
        benchmark,
        task,
        row["sample_id"],
        context="",
        question=row["question"],
        references=tuple(json.loads(row["references"])),
        language=row["language"],
        length=row["length"],
        length_unit=row["length_unit"],
        meta=json.loads(row["meta"]),
    )


@pytest.fixture(scope="session")
def published(imports: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published predictions, with their models' developers."""
    path = tmp_path_factory.mktemp("published") / "all.duckdb"
    shutil.copyfile(imports, path)
    with Store(path) as store:
        for run, model in store.query("SELECT run_id, model FROM runs").rows:
            set_metadata(store, run, {"developer": "openai" if model.startswith("gpt") else "meta-llama"})
    return path
