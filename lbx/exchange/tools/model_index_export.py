"""Export as the ``model-index`` of a model card, which model hubs show as a table of results.

The YAML comes from ``huggingface_hub.ModelCardData``. Scores are in percent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from lbx.base.records import replace_surrogates
from lbx.base.visible import one_line
from lbx.benchmarks.registry import BENCHMARKS
from lbx.exchange.tools.run_records import CONFIDENCE, RunRecord, TaskRecord, file_name_part

_AVERAGES = """
    SELECT benchmark, tasks, n, score, low, high, coverage FROM leaderboard
    WHERE run_id = ? AND score IS NOT NULL AND isfinite(score) ORDER BY benchmark
"""


def model_index_files(run: RunRecord) -> dict[str, Iterable[str]]:
    """Build the head of a model card with the scores of benchmarks and tasks, as {path: pieces of text}.

    A score over some of the samples is named so, because a card has no field for it.
    """
    results = [*_average_results(run), *(result for task in run.tasks for result in _task_results(run, task))]
    if not results:
        return {}
    card = ModelCardData(model_name=_text(run.model), eval_results=results)
    return {f"{file_name_part(run.run_id)}/model-index.yaml": ["---\n", card.to_yaml(), "\n---\n"]}


def _average_results(run: RunRecord) -> Iterator[EvalResult]:
    for row in run.store.query(_AVERAGES, [run.run_id]).dicts():
        if row["tasks"] > 1:
            coverage = f"{row['coverage']} samples" if row["coverage"] else ""
            yield _result(run, (row["benchmark"], ""), "average", row, coverage)


def _task_results(run: RunRecord, task: TaskRecord) -> Iterator[EvalResult]:
    answered, total = task.counts["samples_answered"], task.counts["samples_in_data"]
    coverage = f"{answered:,} of {total:,} samples" if answered and total and answered < total else ""
    for number in task.numbers:
        yield _result(run, (task.benchmark, task.name), str(number["metric"]), number, coverage)


def _result(
    run: RunRecord, task_key: tuple[str, str], metric: str, number: Mapping[str, Any], coverage: str
) -> EvalResult:
    benchmark, task = task_key
    repositories = BENCHMARKS[benchmark].data.repositories
    ends = (number["low"], number["high"])
    interval = None if None in ends else [_percent(end) for end in ends]
    name = f"{metric} ({coverage})" if coverage else metric
    return EvalResult(
        task_type="text-generation",
        task_name="Long-context understanding",
        dataset_type=repositories[0] if repositories else _text(benchmark),
        dataset_name=_text(f"{benchmark} {task}".strip()),
        dataset_config=_text(task) or None,
        metric_type=_text(metric),
        metric_name=_text(name),
        metric_value=_percent(number["score"]),
        metric_args={
            "answers": number["n"],
            **({"interval": interval, "confidence": CONFIDENCE} if interval else {}),
            "unit": "percent",
            "bundle": run.bundle_digest,
            "lbx": run.lbx_version,
        },
    )


def _percent(score: float) -> float:
    return round(100 * score, 2)


def _text(value: str) -> str:
    return one_line(replace_surrogates(value))
