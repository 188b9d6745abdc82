"""The report ``cost``: tokens, seconds and hardware hours spent on scores.

Tokens are computed tokens: the prompt without tokens of a shared prefix, and the answer. Seconds are the model's
prefill and decode time. The prefill of a document is divided among all answers about it, regardless of their order.

The cost per correct answer is the total cost of a task divided by the sum of the scores: a ratio of two sums,
linearised for the interval. The interval is computed on the logarithm because a price is never negative.

A judge has costs but no score. The rows of rubrics follow those of the models.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from lbx.base.columns import Column
from lbx.base.units import format_count
from lbx.benchmarks.base.aggregates import Array, Bools, ScoredRows
from lbx.report.draw.charts import Point, ScatterPoint, scatter
from lbx.report.draw.figures import (
    Figure,
    FigureSource,
    point_of_row,
)
from lbx.report.query import ReportQuery
from lbx.report.ranks import by_benchmark_and_rank
from lbx.report.report import TWIN, WHO, PagePlace, Report, has_any_of
from lbx.results import Store, Table
from lbx.results.scoring.score_columns import (
    INTERVAL_COLUMNS,
    RUN_COLUMNS,
    RowsByTask,
    as_table,
    benchmark_score,
    find_benchmark,
    headline_of,
    read_scores,
    runs_by_id,
    score_interval_columns,
)
from lbx.results.views import MODE_OF_RUN
from lbx.statistics.estimates import Codes, Design, Estimate, Floats, Stratum, interval, interval_of, t_quantile

_PER_CORRECT = tuple(f"{what}_per_correct{end}" for what in ("tokens", "seconds") for end in ("", "_low", "_high"))
COLUMNS = (
    *RUN_COLUMNS, "benchmark", "task", "n", "score", *INTERVAL_COLUMNS, "measured", "prompt_tokens", "cached_tokens",
    "output_tokens", "prefill_s", "decode_s", "prefill_tokens_s", "decode_tokens_s", "cached_share", "seconds_saved",
    "seconds_per_answer", *_PER_CORRECT, "hours", "hours_of", "untimed_sessions", "unbeaten",
    "uncounted",
)  # fmt: skip

_SESSIONS = """
    WITH parts AS (
        SELECT *, coalesce(prefill_s + decode_s, 0) AS own,
               row_number() OVER () AS place, epoch(started_at)::BIGINT AS second, round(wall_s) AS took
        FROM sessions
    )
    SELECT run_id, workers, hardware::VARCHAR,
           -- Runs of one session have the same wall time, which is divided among them.
           wall_s * CASE WHEN sum(own) OVER together > 0 THEN own / sum(own) OVER together
                         ELSE 1 / count(*) OVER together END
    FROM parts
    WINDOW together AS (PARTITION BY spec::VARCHAR, second, took,
                        CASE WHEN spec IS NULL OR wall_s IS NULL THEN place END)
    ORDER BY run_id, place
"""

_MEASURED = ("prompt_tokens", "cached_tokens", "output_tokens", "prefill_s", "decode_s")
_JUDGES = f"""
    SELECT r.run_id, r.model, r.backend, {MODE_OF_RUN} AS mode, d.differs_in, g.task,
           {", ".join(f"coalesce(g.{name}::DOUBLE, 'nan') AS {name}" for name in _MEASURED)}
    FROM generations g JOIN runs r USING (run_id) JOIN distinctions d USING (run_id)
    WHERE g.benchmark = 'judge' AND g.error IS NULL AND (len($1::VARCHAR[]) = 0 OR list_contains($1::VARCHAR[], run_id))
    ORDER BY run_id, task
"""  # noqa: S608 (our own names)

CostLine = dict[str, Any]


_COSTS = (*_MEASURED, "computed_prompt", "seconds", "tokens")


@dataclass(frozen=True, eq=False)
class AnswerCosts:
    """Costs and headline scores of one or more answers, with samples, documents and clusters.

    ``costs`` contains a row for each of ``_COSTS``, NaN if not measured. ``tokens`` are computed tokens. If the number
    of tokens of a shared prefix is unknown, all tokens of a prompt count as computed.
    """

    samples: Codes
    documents: Codes
    clusters: Codes
    scores: Floats
    costs: Floats

    @classmethod
    def from_rows(cls, rows: ScoredRows) -> AnswerCosts:
        measured = [rows.column(name) for name in _MEASURED]
        samples, documents, clusters, scores = map(rows.column, ("samples", "documents", "clusters", "score"))
        return cls(samples, documents, clusters, scores, _with_sums(*measured))

    @classmethod
    def without_scores(cls, columns: Mapping[str, Array]) -> AnswerCosts:
        """Make costs of answers without scores. Each counts as a separate sample."""
        values = [columns[name] for name in _MEASURED]
        indices = np.arange(len(values[0]))
        return cls(indices, indices, indices, np.full(len(indices), np.nan), _with_sums(*values))

    @classmethod
    def concatenate(cls, parts: Sequence[AnswerCosts]) -> AnswerCosts:
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in names))

    def split(self, sizes: Sequence[int]) -> list[AnswerCosts]:
        """Split the answers into consecutive groups of the given sizes."""
        ends = np.cumsum(sizes)[:-1]
        parts = [np.split(getattr(self, field.name), ends, axis=-1) for field in fields(self)]
        return [AnswerCosts(*part) for part in zip(*parts, strict=True)]

    def with_shared_prefill(self) -> AnswerCosts:
        """Divide the prefill of each document among the answers, in proportion to the prompts' tokens.

        Only the first prompt with a document computed it. The other prompts found the prefix in the KV cache.
        """
        prompt, cached, output, prefill_s, decode_s = self.costs[: len(_MEASURED)]
        _, document = np.unique(self.documents, return_inverse=True)

        def sum_by_document(values: Floats, mask: Bools) -> Floats:
            return np.asarray(np.bincount(document, np.where(mask, values, 0))[document])

        has_counts = np.isfinite(prompt) & np.isfinite(cached) & (prompt > 0)
        has_counts &= sum_by_document(cached, has_counts) > 0
        has_times = has_counts & np.isfinite(prefill_s)
        with np.errstate(invalid="ignore", divide="ignore"):
            computed = prompt / sum_by_document(prompt, has_counts) * sum_by_document(prompt - cached, has_counts)
            seconds = prompt / sum_by_document(prompt, has_times) * sum_by_document(prefill_s, has_times)
        costs = (
            prompt,
            np.where(has_counts, prompt - computed, cached),
            output,
            np.where(has_times, seconds, prefill_s),
            decode_s,
        )
        return replace(self, costs=_with_sums(*costs))

    def select(self, mask: Bools) -> AnswerCosts:
        return self if mask.all() else AnswerCosts(*(getattr(self, field.name)[..., mask] for field in fields(self)))

    @cached_property
    def design(self) -> Design:
        return Estimate((Stratum(1.0, self.samples, self.clusters, self.scores),)).design

    @cached_property
    def _has_value(self) -> Bools:
        return np.isfinite(self.costs)

    @cached_property
    def value_counts(self) -> dict[str, int]:
        """{cost: number of answers with a known value}."""
        return dict(zip(_COSTS, np.count_nonzero(self._has_value, axis=1).tolist(), strict=True))

    @cached_property
    def _sums(self) -> dict[str, float]:
        return dict(zip(_COSTS, self.costs.sum(axis=1).tolist(), strict=True))

    def total(self, cost: str, other_cost: str | None = None) -> float | None:
        """Sum of the known values of a cost, over answers with a known ``other_cost``, or None without such answers."""
        if self.value_counts[cost] == self.value_counts[other_cost or cost] == len(self.scores):
            return self._sums[cost]
        has_both = self._has_value[_COSTS.index(cost)] & self._has_value[_COSTS.index(other_cost or cost)]
        return float(self.costs[_COSTS.index(cost), has_both].sum()) if has_both.any() else None


def _with_sums(prompt: Floats, cached_tokens: Floats, output: Floats, prefill_s: Floats, decode_s: Floats) -> Floats:
    sums = [prompt - cached_tokens, prefill_s + decode_s, prompt - np.nan_to_num(cached_tokens) + output]
    return np.stack([prompt, cached_tokens, output, prefill_s, decode_s, *sums])


def table(store: Store, query: ReportQuery) -> Table:
    """Build the rows of the report: for each run and benchmark all tasks together, then each task."""
    names, samples = runs_by_id(store), by_benchmark_and_rank(store, read_scores(store, query.runs))
    costs = _costs_by_task(samples)
    totals: dict[str, float] = {}
    for (run, _), parts in costs.items():
        totals[run] = totals.get(run, 0.0) + sum(part.total("seconds") or 0.0 for part in parts.values())
    hours = _hours(store)
    lines: list[CostLine] = []
    for (run, benchmark), tasks in samples.items():
        is_only_benchmark = sum(name == run for name, _ in samples) == 1
        for line, part in _lines(benchmark, tasks, costs[run, benchmark]):
            share = (part.total("seconds") or 0.0) / totals[run] if totals[run] else None
            if share is None and is_only_benchmark and line["task"] is None:
                share = 1.0
            lines.append(names[run] | {"benchmark": benchmark} | line | _costs(part) | _hours_share(hours, run, share))
    _mark_unbeaten(lines, samples)
    return as_table(COLUMNS, [*lines, *_judge_lines(store, query, hours)])


def _costs_by_task(samples: Mapping[tuple[str, str], RowsByTask]) -> dict[tuple[str, str], dict[str, AnswerCosts]]:
    """Compute {(run, benchmark): {task: costs}}. Tasks of a run share the prefill of documents."""
    runs: dict[str, dict[tuple[str, str], AnswerCosts]] = {}
    for (run, benchmark), tasks in samples.items():
        runs.setdefault(run, {}).update(
            {(benchmark, task): AnswerCosts.from_rows(rows) for task, rows in tasks.items()}
        )
    costs: dict[tuple[str, str], dict[str, AnswerCosts]] = {}
    for run, parts in runs.items():
        shared = AnswerCosts.concatenate([*parts.values()]).with_shared_prefill()
        split = shared.split([len(part.scores) for part in parts.values()])
        for (benchmark, task), part in zip(parts, split, strict=True):
            costs.setdefault((run, benchmark), {})[task] = part
    return costs


def _judge_lines(store: Store, query: ReportQuery, hours: Mapping[str, CostLine]) -> Iterator[CostLine]:
    rows = store.arrays(_JUDGES, [list(query.runs)])
    keys = list(zip(rows["run_id"].tolist(), rows["task"].tolist(), strict=True))
    for run, rubric in dict.fromkeys(keys):
        mask = np.array([key == (run, rubric) for key in keys])
        who = {name: rows[name][mask].tolist()[0] for name in RUN_COLUMNS}
        of_run = AnswerCosts.without_scores({name: rows[name][rows["run_id"] == run] for name in _MEASURED})
        part = AnswerCosts.without_scores({name: rows[name][mask] for name in _MEASURED})
        total = of_run.total("seconds")
        share = (part.total("seconds") or 0.0) / total if total else None
        line = {"benchmark": "judge", "task": rubric, "n": int(mask.sum())}
        yield who | line | _costs(part) | _hours_share(hours, run, share)


def _lines(
    benchmark: str, tasks: RowsByTask, task_costs: Mapping[str, AnswerCosts]
) -> Iterator[tuple[CostLine, AnswerCosts]]:
    family = find_benchmark(benchmark)
    heads = {task: headline_of(benchmark, task, rows) for task, rows in tasks.items()}
    estimates = {task: head.estimate if head else None for task, head in heads.items()}
    average = benchmark_score(benchmark, tasks, [head for head in heads.values() if head])
    parts = [(None, average.estimate if average else None, AnswerCosts.concatenate(list(task_costs.values())))]
    for task, estimate, part in [*parts, *((task, estimates[task], task_costs[task]) for task in tasks)]:
        line: CostLine = {"task": task}
        if estimate is not None:
            score_interval = interval(estimate)
            line |= {
                "n": score_interval.n,
                "score": score_interval.value,
                **score_interval_columns(score_interval, family, clustered=estimate.clustered),
            }
        yield line, part


def _costs(part: AnswerCosts) -> CostLine:
    total = part.total
    saved = _ratio(total("prefill_s", "computed_prompt"), total("computed_prompt", "prefill_s"))
    cached = total("cached_tokens", "prompt_tokens")
    return {
        "measured": part.value_counts["seconds"],
        "uncounted": len(part.scores) - part.value_counts["tokens"],
        **{name: _as_integer(total(name)) for name in ("prompt_tokens", "cached_tokens", "output_tokens")},
        "prefill_s": total("prefill_s"),
        "decode_s": total("decode_s"),
        "prefill_tokens_s": _ratio(total("computed_prompt", "prefill_s"), total("prefill_s", "computed_prompt")),
        "decode_tokens_s": _ratio(total("output_tokens", "decode_s"), total("decode_s", "output_tokens")),
        "cached_share": _ratio(cached, total("prompt_tokens", "cached_tokens")),
        "seconds_saved": None if cached is None or saved is None else cached * saved,
        "seconds_per_answer": _ratio(total("seconds"), part.value_counts["seconds"]),
        **_per_correct("tokens", part),
        **_per_correct("seconds", part),
    }


def _per_correct(what: str, part: AnswerCosts) -> CostLine:
    """Compute the cost per correct answer, over answers with both cost and score, or {} if no answer is correct."""
    part = part.select(np.isfinite(part.costs[_COSTS.index(what)]) & np.isfinite(part.scores))
    scores, costs = part.scores, part.costs[_COSTS.index(what)]
    score, cost = float(scores.sum()), float(costs.sum())
    if score <= 0 or cost <= 0:
        return {}
    ratio = cost / score
    estimate = interval_of(part.design, ratio + (costs - ratio * scores) / scores.mean(), bounded=False)
    line: CostLine = {f"{what}_per_correct": ratio}
    if estimate.se and estimate.df:
        spread = math.exp(min(t_quantile(0.975, estimate.df) * estimate.se / ratio, 700))
        line |= {f"{what}_per_correct_low": ratio / spread, f"{what}_per_correct_high": ratio * spread}
    return line


def _hours(store: Store) -> dict[str, CostLine]:
    """Compute {run: hardware hours, unit of the hours, and number of sessions without a time, such as killed ones}."""
    hours_of: dict[str, CostLine] = {}
    for run, workers, hardware, wall_s in store.query(_SESSIONS).rows:
        line = hours_of.setdefault(run, {"hours": 0.0, "hours_of": None, "untimed_sessions": 0})
        kind, units = _units(json.loads(hardware), max(workers, 1))
        if wall_s is None:
            line["untimed_sessions"] += 1
        elif not units or line["hours_of"] not in (None, kind) or line["hours"] is None:
            line["hours"] = None
        else:
            line |= {"hours": line["hours"] + wall_s * units / 3600, "hours_of": kind}
    return {run: line | ({} if line["hours"] else {"hours": None, "hours_of": None}) for run, line in hours_of.items()}


def _units(hardware: Any, processes: int) -> tuple[str, int]:
    """Unit of the hours of a session (GPU or core), and the number of units, or 0 if unknown."""
    if not isinstance(hardware, dict):
        return "core", 0
    if "gpu" in hardware:
        return "GPU", processes * max(len(hardware.get("devices", ())), 1)
    cores = hardware.get("threads") or hardware.get("cores")
    return "core", processes * cores if isinstance(cores, int) else 0


def _hours_share(hours: Mapping[str, CostLine], run: str, share: float | None) -> CostLine:
    line = hours.get(run, {})
    if line.get("hours") is None or share is None:
        return {"untimed_sessions": line.get("untimed_sessions")}
    return {**line, "hours": line["hours"] * share}


def _mark_unbeaten(lines: Sequence[CostLine], answers: Mapping[tuple[str, str], RowsByTask]) -> None:
    """Mark runs that no other run on the same tasks beats in score and seconds per answer."""
    heads = [line for line in lines if line["task"] is None]
    for line in heads:
        tasks = answers[line["run_id"], line["benchmark"]].keys()
        point = _point(line)
        rival_points = [
            other
            for rival in heads
            if rival is not line and rival["benchmark"] == line["benchmark"] and (other := _point(rival))
            and answers[rival["run_id"], rival["benchmark"]].keys() == tasks
        ]  # fmt: skip
        if point:
            score, seconds = point
            line["unbeaten"] = not any(
                other[0] >= score and other[1] <= seconds and other != point for other in rival_points
            )


def _point(line: CostLine) -> tuple[float, float] | None:
    score, seconds = line.get("score"), line.get("seconds_per_answer")
    return (score, seconds) if score is not None and seconds is not None and math.isfinite(score) else None


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _as_integer(value: float | None) -> int | None:
    return None if value is None else round(value)


def _cost_notes(table: Table) -> list[str]:
    rows, notes = table.dicts(), []
    if any(row["unbeaten"] is not None for row in rows):
        notes.append(
            "Unbeaten: no other run on the same tasks scores as high in fewer seconds per answer. Seconds on "
            "different hardware are not comparable."
        )
    if any(row["benchmark"] == "judge" for row in rows):
        notes.append("A judge has no score, so it has no cost per correct answer.")
    if uncounted := {row["run_id"] for row in rows if row["uncounted"]}:
        notes.append(
            f"Tokens of {format_count(len(uncounted), 'run')} leave out answers whose server or file gives no counts."
        )
    if untimed := {row["run_id"] for row in rows if row["untimed_sessions"]}:
        notes.append(
            f"Hours of {format_count(len(untimed), 'run')} are a lower bound: a session was killed or is still running."
        )
    return notes


def _draw_figures(source: FigureSource) -> Iterator[Figure]:
    """Draw score against time per answer, by benchmark."""
    rows = [row for row in source.rows("cost") if row["task"] is None]
    for benchmark in dict.fromkeys(row["benchmark"] for row in rows):
        points = [
            ScatterPoint(
                source.label(row["run_id"]),
                mark,
                Point(row["seconds_per_answer"]),
                point_of_row(row),
                row["unbeaten"] is True,
            )
            for row in rows
            if row["benchmark"] == benchmark and None not in (row["score"], row["seconds_per_answer"])
            if (mark := source.mark(row["run_id"])) is not None
        ]
        if len(points) > 1:
            title = f"{benchmark}: score against cost"
            about = f"{len(points)} runs; the line joins the unbeaten ones. The numbers are in the table below."
            plot = scatter(title, about, x_name="seconds per answer", y_name="score, percent", points=points)
            yield Figure(title, plot, benchmark=benchmark)


COST = Report(
    name="cost",
    title="Cost of scores (score in percent; seconds of the model, computed tokens)",
    columns=(
        *WHO,
        TWIN,
        *(Column("benchmark", "benchmark"), Column("task", "task", missing="all tasks")),
        Column("n", "samples", "count", rank=5),
        Column("score", "score", "percent", interval=True),
        Column("seconds_per_answer", "s per answer", "quantity", unknown=True),
        Column("unbeaten", "unbeaten", "flag", missing="", optional=True),
        Column(
            "seconds_per_correct",
            "s per correct one",
            "quantity",
            interval=True,
            interval_prefix="seconds_per_correct_",
            optional=True,
        ),
        Column(
            "tokens_per_correct",
            "tokens per correct one",
            "quantity",
            interval=True,
            interval_prefix="tokens_per_correct_",
            optional=True,
            rank=1,
        ),
        Column("prefill_tokens_s", "prefill tokens/s", "quantity", unknown=True, rank=2),
        Column("decode_tokens_s", "decode tokens/s", "quantity", unknown=True, rank=2),
        Column("cached_share", "prompt tokens cached %", "percent", unknown=True, rank=3),
        Column("seconds_saved", "s saved by cache", "quantity", unknown=True, rank=4),
        Column("hours", "hours", "quantity", unknown=True, rank=1),
        Column("hours_of", "hours of", optional=True, rank=1),
    ),
    notes=_cost_notes,
    empty="No answer has been scored yet.",
    is_informative=has_any_of("seconds_per_answer", "tokens_per_correct", "hours"),
    rows=table,
    draw=_draw_figures,
    page=PagePlace("Cost and faults", 15, title="Cost"),
)
