"""Runs of made-up samples, scored and added up by their benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lbx.base.records import Sample
from lbx.benchmarks.registry import BENCHMARKS
from lbx.results import GenerationRow, RunRow, SampleRow, ScoreRow, Store
from lbx.results.scoring.aggregation import aggregate_scores
from lbx.results.scoring.scores import score_rows

Answer = tuple[Sample, str | None]
"""A sample and the output; None where the sample failed. The same sample again is its next iteration."""

_RUN = RunRow("", "model", "scripted", "1", {}, "digest", {}, {}, "0.1")


def add_run(
    store: Store,
    run_id: str,
    answers: Iterable[Answer],
    *,
    model: str = "model",
    settings: Mapping[str, Any] | None = None,
    counts: Mapping[str, int] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """A finished run; ``counts`` are the bundle's samples by "benchmark/task"."""
    answers = list(answers)
    asked = {"run_id": run_id, **(settings or {})}
    store.begin_run(replace(_RUN, run_id=run_id, model=model, settings=asked, task_samples=counts, metadata=metadata))
    seen: dict[tuple[str, str, str], int] = {}
    generations: list[GenerationRow] = []
    scores: list[ScoreRow] = []
    for sample, output in answers:
        key = (sample.benchmark, sample.task, sample.sample_id)
        iteration = seen[key] = seen.get(key, -1) + 1
        row = GenerationRow(run_id, *key, iteration, output=output, error="it broke" if output is None else None)
        generations.append(row)
        if output is not None:
            family = BENCHMARKS[sample.benchmark]
            scores += score_rows(run_id, (*key, iteration), family, family.score(sample, output))
    samples = [SampleRow(sample, place) for place, (sample, _) in enumerate(answers)]
    store.write(samples=samples, generations=generations, scores=scores)
    for name in dict.fromkeys(sample.benchmark for sample, _ in answers):
        aggregate_scores(store, run_id, BENCHMARKS[name])
    store.finish_run(run_id, "done")


def trec(right: int, of: int, failed: int = 0) -> list[Answer]:
    """Answers to LongBench's trec, of which so many are right, and so many more failed."""
    samples = [
        Sample(
            "longbench", "trec", f"{place}", f"document {place}", "?", ("Abbreviation",), language="en", length=2_000,
            meta={"all_classes": ["Abbreviation", "City"]},
        )
        for place in range(of + failed)
    ]  # fmt: skip
    outputs = ["Abbreviation"] * right + ["City"] * (of - right) + [None] * failed
    return list(zip(samples, outputs, strict=True))
