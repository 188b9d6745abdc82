"""LongBench Pro's result files: every answer with its score, their summary, and what the leaderboard says of models.

Source: main.py, modules/evaluation.py and app.py of
https://github.com/caskcsg/longcontext/tree/88fbeb85827b78add4a5354b0c1194a57c176c38/LongBench-Pro

    MODEL/nonthinking_context-120000_bon-3_evaluation.jsonl     rows of the prediction file and their "metric"
    MODEL/nonthinking_context-120000_bon-3_summary.json
    model_info.json                                             {MODEL: {"type", "context_length", "url"}}

app.py shows what lies in its folder "output". The date of a summary is the run's, and a window that nobody knows is
left out of the names, where app.py takes 0 for it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from lbx.base.errors import UsageError
from lbx.benchmarks.base.predictions import file_part
from lbx.benchmarks.base.results import ScoredRun
from lbx.benchmarks.longbench_pro.groups import CATEGORIES, headline, missing_category, report
from lbx.benchmarks.longbench_pro.tasks import LIMITS

MODEL_INFO = "model_info.json"
_BOTH_TYPES = (["Thinking", "Instruct"], ["Instruct", "Thinking"])
_DIMENSIONS = dict(
    zip(CATEGORIES, ("token_length", "contextual_requirement", "difficulty", "primary_task", "language"), strict=True)
)


def result_files(run: ScoredRun) -> dict[str, str]:
    """The three files.

    Raises:
        UsageError: evaluation.py would stop, or summaries lack the half of their score that needs a model.
    """
    _check(run)
    thinks = _thinks(run)
    name = f"{file_part(run.model)}/{'' if thinks else 'non'}thinking_"
    if limit := _limit(run):
        name += f"context-{limit}_"
    iterations = 1 + max(line.scored.iteration for line in run.lines)
    rows = ({**line.row(), "metric": headline(line.scored)} for line in run.lines)
    info = {
        "type": run.metadata.get("type", "Thinking" if thinks else "Instruct"),
        "context_length": run.metadata.get("context_length") or _window(run.settings.get("context_window")),
        "url": run.metadata.get("url", ""),
    }
    return {
        f"{name}bon-{iterations}_evaluation.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows),
        f"{name}bon-{iterations}_summary.json": _json(_summary(run, iterations)),
        MODEL_INFO: _json({file_part(run.model): info}),
    }


def join_model_info(path: str, first: str, second: str) -> str | None:
    """Two texts of model_info.json as one; None for another file, or a damaged one.

    What the first says of a model stays, but that one of both types is "Mixed".
    """
    if path != MODEL_INFO:
        return None
    try:
        former, new = (json.loads(text) for text in (first, second))
    except (ValueError, RecursionError):
        return None
    if not isinstance(former, dict):
        return None
    for name, info in new.items():
        held = former.setdefault(name, info)
        if isinstance(held, dict) and [held.get("type"), info["type"]] in _BOTH_TYPES:
            held["type"] = "Mixed"
    return _json(former)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=4)


def _check(run: ScoredRun) -> None:
    if any(line.scored.partial for line in run.lines):
        raise UsageError(
            f"Summaries of the run {run.run_id!r} were scored without an embedding model, and half their score is "
            "missing: no number of the file would be right.",
            fix="Score them first.",
            command="lbx score RESULTS --embedding CARD --bundle DIR",
        )
    if category := missing_category(run.tasks):
        raise UsageError(
            f"The run {run.run_id!r} has no answer to a question of {category!r}, on which the official "
            "evaluation.py stops.",
            fix="`lbx report RESULTS group_scores` shows what there is.",
        )


def _thinks(run: ScoredRun) -> bool:
    """Whether the answers were asked for with reasoning: as the run or the imported file's name says, else by them."""
    if not run.made and (match := re.search(r"(non)?thinking", run.file)):
        return not match[1]
    thinking = run.settings.get("thinking")
    return bool(thinking) if thinking is not None else any(line.row().get("thinking") for line in run.lines)


def _limit(run: ScoredRun) -> int | None:
    if not run.made:
        match = re.search(r"context-(\d+)", run.file)
        return int(match[1]) if match else None
    window = run.settings.get("context_window")
    return run.settings.get("max_prompt_tokens") or LIMITS.get(window or 0, window)


def _window(tokens: int | None) -> str:
    """As the leaderboard writes a window: 128000 and 131072 are "128k"."""
    for size, unit in ((10**6, "M"), (2**20, "M"), (1000, "k"), (1024, "k")):
        if tokens and tokens % size == 0:
            return f"{tokens // size}{unit}"
    return str(tokens or "-")


def _summary(run: ScoredRun, iterations: int) -> dict[str, Any]:
    numbers = {(one.grouping, one.name, one.metric): one.score for one in report([line.scored for line in run.lines])}
    times = Counter(line.scored.sample.sample_id for line in run.lines)

    def by(metric: str, grouping: str) -> dict[str, float]:
        return {name: numbers[grouping, name, metric] for name in CATEGORIES[grouping]}

    summary: dict[str, Any] = {
        "date": run.finished.strftime("%Y-%m-%d"),
        "total_questions_num": len(times),
        "inference_iterations": iterations,
        "total_samples_num": len(run.lines),
        "fail_samples_num": sum(line.failed for line in run.lines),
        "inference_inconsistent_samples_num": sum(count != iterations for count in times.values()),
        "average_overall_metric": numbers["overall", "all", "average"],
    }
    for number in range(1, iterations + 1):
        summary[f"inference_iteration_{number}_overall_metric"] = numbers.get(
            ("overall", "all", f"iteration {number}"), 0.0
        )
    summary |= {f"average_{name}_metric": by("average", grouping) for grouping, name in _DIMENSIONS.items()}
    for number in range(1, iterations + 1):
        best = {name: by(f"bon@{number}", grouping) for grouping, name in _DIMENSIONS.items()}
        summary[f"BoN-{number}"] = {"overall_metric": numbers["overall", "all", f"bon@{number}"], **best}
        summary[f"pass@{number}"] = numbers["overall", "all", f"pass@{number}"]
    return summary
