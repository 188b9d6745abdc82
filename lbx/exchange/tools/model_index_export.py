"""Export as the ``model-index`` of a model card, which model hubs show as a table of results. Scores are in percent.

Source of the format: ``modelcard.md`` of https://github.com/huggingface/hub-docs ; huggingface_hub reads the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lbx.base.records import replace_surrogates
from lbx.base.visible import one_line
from lbx.benchmarks.registry import BENCHMARKS
from lbx.exchange.tools.run_records import CONFIDENCE, RunRecord, TaskRecord, ascii_json, file_name_part
from lbx.results.read.runs import DONE

_TASK = {"type": "text-generation", "name": "Long-context understanding"}
_Result = tuple[dict[str, Any], dict[str, Any]]
"""Dataset and metric of a result."""
_AVERAGES = """
    SELECT benchmark, n, score, low, high, l.coverage FROM leaderboard l
    JOIN (SELECT run_id, benchmark, count(*) AS tasks_asked FROM coverage GROUP BY ALL) USING (run_id, benchmark)
    WHERE tasks_asked > 1 AND run_id = ? AND score IS NOT NULL AND isfinite(score) ORDER BY benchmark
"""


def model_index_files(run: RunRecord) -> dict[str, Iterable[str]]:
    """Build the head of a model card with the scores of benchmarks and tasks, as {path: lines}.

    A score over some of the samples is named so, and the state of a run that is not done is among the details, because
    cards contain no field for either.
    """
    results = [*_average_results(run), *(result for task in run.tasks for result in _task_results(run, task))]
    if not results:
        return {}
    lines = ["---", "model-index:", f"- name: {ascii_json(_text(run.model))}", "  results:"]
    for dataset, metric in results:  # JSON is YAML
        lines += [f"  - task: {ascii_json(_TASK)}", f"    dataset: {ascii_json(dataset)}", "    metrics:"]
        lines.append(f"    - {ascii_json(metric)}")
    return {f"{file_name_part(run.run_id)}/model-index.yaml": [*(f"{line}\n" for line in lines), "---\n"]}


def _average_results(run: RunRecord) -> Iterator[_Result]:
    for row in run.store.query(_AVERAGES, [run.run_id]).dicts():
        coverage = row["coverage"] or ""
        coverage += " samples" if coverage and not coverage.endswith("answers") else ""
        yield _result(run, (row["benchmark"], ""), "average", row, coverage)


def _task_results(run: RunRecord, task: TaskRecord) -> Iterator[_Result]:
    answered, total = task.counts["samples_answered"], task.counts["samples_in_data"]
    coverage = f"{answered:,} of {total:,} samples" if answered and total and answered < total else ""
    for number in task.numbers:
        yield _result(run, (task.benchmark, task.name), str(number["metric"]), number, coverage)


def _result(
    run: RunRecord, task_key: tuple[str, str], metric: str, number: Mapping[str, Any], coverage: str
) -> _Result:
    benchmark, task = task_key
    repositories = BENCHMARKS[benchmark].data.repositories
    ends = (number["low"], number["high"])
    interval = None if None in ends else [_percent(end) for end in ends]
    name = f"{metric} ({coverage})" if coverage else metric
    dataset = {
        "type": repositories[0] if repositories else _text(benchmark),
        "name": _text(f"{benchmark} {task}".strip()),
    }
    if task:
        dataset["config"] = _text(task)
    facts = {"answers": number["n"], "unit": "percent", "bundle": run.bundle_digest, "lbx": run.lbx_version}
    if run.status != DONE:
        facts["status"] = run.status
    if interval:
        facts |= {"interval": interval, "confidence": CONFIDENCE}
    return dataset, {
        "type": _text(metric), "name": _text(name), "value": _percent(number["score"]), "args": facts
    }  # fmt: skip


def _percent(score: float) -> float:
    return round(100 * score, 2)


def _text(value: str) -> str:
    return one_line(replace_surrogates(value))
