"""Scores from outputs: while a run goes on, at a task's end, and again later from what is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lbx.benchmarks.base import Benchmark, ScoredSample
from lbx.records import Sample, SampleKey
from lbx.store import ResultRow, ScoreRow, Store


def score_rows(run_id: str, key: SampleKey, benchmark: Benchmark, sample: Sample, output: str) -> list[ScoreRow]:
    """One output's scores as rows; the first metric is the headline."""
    return [
        ScoreRow(
            run_id, *key, score.metric, benchmark.metric_version, score.score, score.extracted, headline=position == 0
        )
        for position, score in enumerate(benchmark.score(sample, output))
    ]


def add_up(store: Store, run_id: str, benchmark: Benchmark, task: str) -> None:
    """Write one task's numbers, from the scores in the results file, as the official script adds them up."""
    scores: dict[tuple[str, int], dict[str, float]] = {}
    for sample_id, iteration, metric, score in store.query(
        "SELECT sample_id, iteration, metric, score FROM scores "
        "WHERE run_id = ? AND benchmark = ? AND task = ? AND metric_version = ?",
        [run_id, benchmark.name, task, benchmark.metric_version],
    ).rows:
        scores.setdefault((sample_id, iteration), {})[metric] = score
    rows = [
        ScoredSample(_sample(benchmark.name, task, row), scores[row["sample_id"], row["iteration"]])
        for row in store.samples(run_id, benchmark.name, task)
        if (row["sample_id"], row["iteration"]) in scores
    ]
    if not rows:
        return
    store.write_results(
        [
            ResultRow(
                run_id, benchmark.name, task, result.metric, benchmark.metric_version, result.n, result.score,
                result.official, headline=position == 0, position=position,
            )
            for position, result in enumerate(benchmark.aggregate(task, rows))
        ]
    )  # fmt: skip


def rescore(store: Store, benchmarks: Mapping[str, Benchmark]) -> int:
    """Score every stored output with today's metrics, beside the older versions' scores.

    Returns:
        How many outputs were scored.
    """
    done = 0
    tasks = store.query(
        "SELECT DISTINCT run_id, benchmark, task FROM generations WHERE error IS NULL ORDER BY ALL"
    ).rows
    for run_id, name, task in tasks:
        if name not in benchmarks:
            continue
        benchmark = benchmarks[name]
        rows: list[ScoreRow] = []
        for row in store.samples(run_id, name, task):
            sample = _sample(name, task, row)
            key = SampleKey(name, task, sample.sample_id, row["iteration"])
            rows += score_rows(run_id, key, benchmark, sample, row["output"])
            done += 1
        store.write(scores=rows)
        add_up(store, run_id, benchmark, task)
    return done


def _sample(benchmark: str, task: str, row: Mapping[str, Any]) -> Sample:
    """A stored sample, without its document: no metric needs it."""
    return Sample(
        benchmark=benchmark,
        task=task,
        sample_id=row["sample_id"],
        context="",
        question=row["question"],
        references=tuple(json.loads(row["references"])),
        language=row["language"],
        length=row["length"],
        length_unit=row["length_unit"],
        meta=json.loads(row["meta"]),
    )
