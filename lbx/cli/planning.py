"""Command ``lbx plan``."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lbx.base.units import format_duration, format_size
from lbx.cli.measure_options import PlanOptions
from lbx.cli.output import answer_json, stdout
from lbx.cli.progress import RunBar
from lbx.cli.table_output import show_table
from lbx.report.format.sheets import plain_columns
from lbx.report.query import ALL
from lbx.report.rows.comparison import round_up
from lbx.results import Table
from lbx.running.detectable_differences import ASSUMPTION, Resolution, resolutions
from lbx.running.forecast.run_forecast import (
    Forecast,
    comparison_line,
    memory_line,
    sharing_lines,
    sort_by_time,
    time_line,
)
from lbx.running.forecast.run_plan import TaskPlan
from lbx.running.plan import plan_each


def show_plan(options: PlanOptions) -> None:
    """Carry out ``lbx plan``."""
    with RunBar() as bar:
        forecast, *alternatives = plan_each(
            options.spec, options.alternatives, options.history, measure_speed=options.measure_speed, listener=bar
        )
    margin = ALL.margin if options.margin is None else options.margin
    decides = list(resolutions(forecast.questions, options.models, margin, options.history))
    if options.as_json:
        document = (
            forecast.to_json()
            | {"decides": [resolution.to_json() for resolution in decides]}
            | ({"alternatives": [other.to_json() for other in alternatives]} if alternatives else {})
        )
        answer_json(json.dumps(document, ensure_ascii=False))
        return
    show_forecast(forecast)
    _show_resolutions(decides, options.models, margin)
    if alternatives:
        _show_comparison([forecast, *alternatives])


def _show_resolutions(decides: Sequence[Resolution], models: int, margin: float) -> None:
    names = ["benchmark", "documents", "questions", "smallest difference", "documents needed"]
    rows = [
        (
            one.benchmark, f"{one.documents:,}", f"{one.samples:,}",
            "too few documents" if one.detectable is None else f"{one.detectable:.1f}{remark}",
            "unknown" if one.least_documents is None else f"{round_up(one.least_documents):,}{remark}",
        )
        for one in decides
        for remark in [" (assumed spread)" if one.basis == ASSUMPTION else ""]
    ]  # fmt: skip
    show_table(f"Differences between {models} models that these questions can show", plain_columns(Table(names, rows)))
    lines = [
        f"Smallest difference: in points, between the averages of {models} models, found by four of five comparisons.",
        f"Documents needed: so that four of five comparisons find a difference of {margin:g} (--margin).",
    ]
    bases: dict[str, list[str]] = {}
    for one in decides:
        bases.setdefault(one.basis, []).append(one.benchmark)
    for basis, benchmarks in bases.items():
        where = f" in {', '.join(benchmarks)}" if len(bases) > 1 else ""
        lines.append(f"Spread of differences{where}: {basis}.")
    for line in lines:
        stdout().print(line, highlight=False)


def show_forecast(forecast: Forecast) -> None:
    why = "" if forecast.counted_in == "tokens" else " (this model has no tokenizer here)"
    names = [
        "task", "samples", "prompt", "distinct", "shared", "longest", "truncated", "refused", "answers (at most)",
    ]  # fmt: skip
    rows = [_row(task) for task in [*forecast.tasks, forecast.total]]
    show_table(f"{forecast.counted_in.capitalize()}{why}", plain_columns(Table(names, rows)))
    for line in sharing_lines(forecast):
        stdout().print(line, highlight=False)
    if forecast.memory.weights_bytes is not None:
        stdout().print(memory_line(forecast.memory), highlight=False)
    stdout().print(time_line(forecast.time), highlight=False)
    if forecast.counting_s >= 1:
        stdout().print(f"Counted in {format_duration(forecast.counting_s)}", highlight=False)


def _show_comparison(forecasts: Sequence[Forecast]) -> None:
    names = ["model", "backend", "dtype", "weights", "reading", "answers", "time", "x the fastest"]
    ordered = sort_by_time(forecasts)
    rows = [
        (
            forecast.model, forecast.backend, forecast.dtype or "", format_size(forecast.memory.weights_bytes),
            format_duration(time.prefill_s), format_duration(time.decode_s), format_duration(time.total_s),
            f"{time.total_s / ordered[0][1].total_s:.1f}",
        )
        for forecast, time in ordered
    ]  # fmt: skip
    show_table("The same run on this machine", plain_columns(Table(names, rows)))
    stdout().print(comparison_line(forecasts), highlight=False)


def _row(task: TaskPlan) -> tuple[str, ...]:
    counts = (f"{n:,}" for n in (task.longest, task.truncated, task.refused, task.new_tokens))
    samples = f"{task.samples:,}" if task.prompts_per_answer == 1 else f"{task.samples:,} x {task.prompts_per_answer}"
    before = (samples, f"{task.prompt_tokens:,}", f"{task.distinct_tokens:,}")
    return (task.task, *before, f"{task.shared_factor:.2f}", *counts)
