"""The report ``effective_context``: the longest context at which a model keeps the score of short contexts.

Lengths are power-of-two bins of prompt tokens before truncation, counted by the model's tokenizer, or of the document's
length in the benchmark's unit if token counts are unknown. Tasks differ in length, so bins are never pooled over tasks.
The report compares only tasks with samples in every compared bin, weighted equally.

A length is not claimed if prompts were truncated, or may have been, because the model did not read that much. It is not
claimed either if the score may be due to guessing, because 85% of a score near zero is easily kept. The column ``why``
states the reason.

Published models with scores by length (``PublishedScoreFormat.lengths``) follow the runs of the same benchmark, in the
unit of the runs' lengths. They have no intervals, so lengths are neither significantly kept nor lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lbx.base.columns import Column
from lbx.base.errors import UsageError
from lbx.benchmarks.base.aggregates import ScoredRows, average
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.registry import BENCHMARKS, unit_of
from lbx.report.draw.figures import (
    Figure,
    FigureSource,
    LengthChart,
    draw_length_charts,
    lines_by_length,
    select_leaders,
)
from lbx.report.format.labels import number_label
from lbx.report.query import PUBLISHED, ReportQuery
from lbx.report.report import TWIN, WHO, PagePlace, Report
from lbx.report.rows.reference import PublishedModel, find_published, starred_name
from lbx.results import Store, Table
from lbx.results.rows import PROMPT_TOKENS
from lbx.results.scoring.score_columns import (
    INTERVAL_COLUMNS,
    RUN_COLUMNS,
    RowsByTask,
    as_table,
    find_benchmark,
    headline_of,
    read_scores,
    runs_by_id,
    score_interval_columns,
)
from lbx.statistics.estimates import Estimate, Interval, Stratum, interval

FEWEST = 30
"""Minimum number of samples per bin, over all tasks."""
FEWEST_OF_TASK = 10
"""Minimum number of samples per task and bin, because the mean of each task counts equally."""
KEEP = 0.85
"""Share of the score at the shortest length (a relative form of RULER's threshold, Hsieh et al. 2024)."""
MOST_CUT = 0.05
"""Largest share of truncated prompts, or of prompts not known to be whole, at which a length is still claimed."""
FLOOR = 0.1
"""Score that uninformative answers may reach, used unless guessing scores more (``Benchmark.chance``)."""
_END, _FEW_CLUSTERS = 1e-6, 10
COLUMNS = (
    *RUN_COLUMNS, "benchmark", "length_unit", "tasks", "task_names", "left_out", "length_up_to", "n", "score",
    *INTERVAL_COLUMNS, "kept", "margin", "margin_low", "margin_high", "verdict", "effective", "kept_to", "lost_from",
    "rule", "why",
)  # fmt: skip

Bins = Mapping[int, ScoredRows]


class Bin(NamedTuple):
    """Score at one length, with interval and margin above the threshold.

    Attributes:
        up_to: upper end of the lengths.
        margin: score minus the score to reach.
        low, high: ends of the margin's interval, or None if unknown.
        unread: reason why prompts may not have been read in full, or "" if they were.
        guess_reason: reason why the score may be due to guessing, or "" if it is significantly higher.
    """

    up_to: int
    estimate: Estimate
    interval: Interval
    margin: float
    low: float | None
    high: float | None
    unread: str = ""
    guess_reason: str = ""

    @property
    def why(self) -> str:
        """Reasons for not claiming the length, regardless of the score."""
        return "; ".join(filter(None, (self.unread, self.guess_reason)))

    @property
    def verdict(self) -> str:
        if self.unread:
            return "no claim"
        if self.low is None or self.high is None or (self.low < 0 <= self.high):
            return "undecided"
        if self.low >= 0:
            return "no claim" if self.guess_reason else "kept"
        return "lost"


def table(store: Store, query: ReportQuery) -> Table:
    """Build the rows of the report: one per compared length, or one without a length if none can be compared.

    Raises:
        UsageError: both a share of the score at the shortest length and an absolute score are given.
    """
    if query.keep_share is not None and query.keep_score is not None:
        raise UsageError("--keep-share and --keep-score exclude each other.", fix="Give one of them.")
    names = runs_by_id(store)
    keep = KEEP if query.keep_share is None else query.keep_share
    rows = [
        names[run] | {"benchmark": benchmark} | line
        for (run, benchmark), tasks in read_scores(store, query.runs).items()
        for line in _lines(benchmark, tasks, keep, query.keep_score)
    ]
    if query.models or query.references:
        units = dict.fromkeys((row["benchmark"], row["length_unit"]) for row in rows if row["tasks"])
        published = find_published(store, query)
        rows += [
            {"benchmark": benchmark, "length_unit": unit} | line
            for benchmark, unit in units
            for model in published
            if model.benchmark == benchmark
            for line in _published_lines(model, keep, query.keep_score)
        ]
    return as_table(COLUMNS, rows)


def _rule(keep: float, at_least: float | None) -> str:
    return f"{100 * keep:g}% of the shortest" if at_least is None else f"at least {100 * at_least:g}"


def _published_lines(model: PublishedModel, keep: float, at_least: float | None) -> Iterator[dict[str, Any]]:
    """Yield a line for each length of a published model, if there are at least two lengths."""
    keys = BENCHMARKS[model.benchmark].published_scores.lengths
    scores_by_length = {length: model.scores.get(number_label(key)) for length, key in sorted(keys.items())}
    scores = {length: score.value / unit_of(model.benchmark) for length, score in scores_by_length.items() if score}
    if len(scores) < 2:
        return
    shortest = next(iter(scores.values()))
    bins = []
    for length, score in scores.items():
        # Scores are printed with few digits, and the difference of two may differ from 0 in the last binary digit.
        margin = round(score - (keep * shortest if at_least is None else at_least), 12)
        score_interval = Interval(score, None, None, None, None, 0, 0, "published")
        bins.append(Bin(length, Estimate(()), score_interval, margin, None, None))
    rule = _rule(keep, at_least)
    span = _range(bins, rule)
    for length_bin in bins:
        yield {"model": starred_name(model), "rule": rule} | span | {
            "length_up_to": length_bin.up_to, "score": length_bin.interval.value, "method": length_bin.interval.method,
            "kept": length_bin.interval.value / shortest if shortest else None, "margin": length_bin.margin,
            "verdict": length_bin.verdict,
        }  # fmt: skip


def _lines(benchmark: str, tasks: RowsByTask, keep: float, at_least: float | None) -> Iterator[dict[str, Any]]:
    family = find_benchmark(benchmark)
    by_name = {_task_name(family, task): task for task in reversed(list(tasks))}
    rule = _rule(keep, at_least)
    for unit, binned in _by_length(family, tasks).items():
        lengths, common_tasks = choose_lengths({task: {up_to: _sample_count(rows) for up_to, rows in bins.items()}
                                    for task, bins in binned.items()})  # fmt: skip
        line = {
            "length_unit": unit,
            "tasks": len(common_tasks),
            "task_names": ", ".join(common_tasks) or None,
            "left_out": ", ".join(task for task in binned if task not in common_tasks) or None,
            "rule": rule,
        }
        if not lengths:
            yield line
            continue
        estimates = {
            up_to: average([_estimate(benchmark, by_name[name], binned[name][up_to]) for name in common_tasks])
            for up_to in lengths
        }
        floor = _floor(family, [binned[name][lengths[0]] for name in common_tasks])
        bins = [
            length_bin._replace(
                unread=_unread_reason(length_bin.up_to, [binned[name][length_bin.up_to] for name in common_tasks]),
                guess_reason=_guess_reason(length_bin, *floor),
            )
            for length_bin in _make_bins(estimates, keep, at_least)
        ]
        line |= _range(bins, rule)
        for length_bin in bins:
            yield line | {
                "length_up_to": length_bin.up_to, "n": length_bin.interval.n, "score": length_bin.interval.value,
                **score_interval_columns(length_bin.interval, family, clustered=length_bin.estimate.clustered),
                "kept": length_bin.interval.value / bins[0].interval.value if bins[0].interval.value else None,
                "margin": length_bin.margin, "margin_low": length_bin.low, "margin_high": length_bin.high,
                "verdict": length_bin.verdict,
            }  # fmt: skip


def _by_length(family: Benchmark | None, tasks: RowsByTask) -> dict[str, dict[str, Bins]]:
    """Group answers as {unit: {task: {length bin: answers}}}, without those of unknown length."""
    rows_of: dict[str, dict[str, dict[int, list[ScoredRows]]]] = {}
    for task, rows in tasks.items():
        name = _task_name(family, task)
        tokens = np.nan_to_num(rows.column("original_tokens"))
        units = np.where(tokens > 0, PROMPT_TOKENS, rows.column("length_unit"))
        lengths = np.where(tokens > 0, tokens, rows.column("length"))
        up_to = 1 << np.ceil(np.log2(np.maximum(lengths, 1))).astype(int)
        for unit in dict.fromkeys(units[lengths > 0].tolist()):
            here = (units == unit) & (lengths > 0)
            bins = rows_of.setdefault(unit, {}).setdefault(name, {})
            for length in np.unique(up_to[here]).tolist():
                bins.setdefault(length, []).append(rows.take(here & (up_to == length)))
    return {
        unit: {
            name: {length: ScoredRows.concatenate(parts) for length, parts in bins.items()}
            for name, bins in names.items()
        }
        for unit, names in rows_of.items()
    }


def choose_lengths(samples: Mapping[str, Mapping[int, int]]) -> tuple[list[int], list[str]]:
    """Choose lengths and tasks such that every task has samples at every length.

    More lengths leave fewer tasks. The choice maximises the product of both, and prefers the longest lengths.

    Args:
        samples: {task: {length: number of samples}}.

    Returns:
        At least two neighbouring lengths among those with enough samples, and the tasks, or ([], []) if no two lengths
            can be compared.
    """
    counts: dict[int, int] = {}
    for bins in samples.values():
        for up_to, count in bins.items():
            counts[up_to] = counts.get(up_to, 0) + count
    enough = sorted(up_to for up_to, count in counts.items() if count >= FEWEST)
    best: tuple[tuple[int, int, int], list[int], list[str]] = ((0, 0, 0), [], [])
    for begin in range(len(enough)):
        for end in range(begin + 2, len(enough) + 1):
            lengths = enough[begin:end]
            tasks = [
                task
                for task, bins in samples.items()
                if all(bins.get(length, 0) >= FEWEST_OF_TASK for length in lengths)
            ]
            if all(sum(samples[task][length] for task in tasks) >= FEWEST for length in lengths):
                best = max(best, ((len(lengths) * len(tasks), lengths[-1], len(tasks)), lengths, tasks))
    return best[1], best[2]


def _make_bins(estimates: Mapping[int, Estimate | None], keep: float, at_least: float | None) -> Iterator[Bin]:
    shortest: tuple[Estimate, Interval] | None = None
    for up_to, estimate in estimates.items():
        if estimate is None:
            continue
        score_interval = interval(estimate)
        shortest = shortest or (estimate, score_interval)
        if at_least is not None:
            low, high = (None if end is None else end - at_least for end in (score_interval.low, score_interval.high))
            yield Bin(up_to, estimate, score_interval, score_interval.value - at_least, low, high)
        else:
            yield _compare_with_shortest(up_to, (estimate, score_interval), shortest, keep)


def _compare_with_shortest(
    up_to: int, this: tuple[Estimate, Interval], shortest: tuple[Estimate, Interval], keep: float
) -> Bin:
    """Compare a length with the shortest length, which is kept by definition if the score is above 0."""
    (estimate, score_interval), (first, base) = this, shortest
    margin = score_interval.value - keep * base.value
    if first is estimate:
        by_definition = margin if score_interval.value > 0 else None
        return Bin(up_to, estimate, score_interval, margin, by_definition, by_definition)
    if base.value <= 0:
        return Bin(up_to, estimate, score_interval, margin, None, None)
    if _is_near_end(estimate) or _is_near_end(first):
        return Bin(up_to, estimate, score_interval, margin, *_from_intervals(score_interval, base, keep))
    lowered = tuple(
        Stratum(-keep * stratum.weight, stratum.samples, stratum.clusters, stratum.values) for stratum in first.strata
    )
    lowered_estimate = interval(Estimate(estimate.strata + lowered), bounded=False)
    return Bin(up_to, estimate, score_interval, margin, lowered_estimate.low, lowered_estimate.high)


def _is_near_end(estimate: Estimate) -> bool:
    """Whether fewer than ten clusters (or not all, if there are fewer) score above 0, or below 1."""
    design, values = estimate.design, estimate.values
    counts = design.count_clusters(values > _END), design.count_clusters(values < 1 - _END)
    return min(counts) < min(_FEW_CLUSTERS, design.clusters)


def _from_intervals(this: Interval, base: Interval, keep: float) -> tuple[float | None, float | None]:
    """Compute Newcombe's interval of a difference (Statistics in Medicine 17, 1998).

    Near 0 and 1 a t interval is as wrong for a difference as for a score. Newcombe's combines two correct intervals.
    """
    if this.low is None or this.high is None or base.low is None or base.high is None:
        return None, None
    margin = this.value - keep * base.value
    below = math.hypot(this.value - this.low, keep * (base.high - base.value))
    above = math.hypot(this.high - this.value, keep * (base.value - base.low))
    return margin - below, margin + above


def _unread_reason(up_to: int, tasks: Sequence[ScoredRows]) -> str:
    """Reason to doubt that the prompts of a length were read in full, or ""."""
    cut = np.concatenate([rows.column("truncated") for rows in tasks])
    if np.isnan(cut).mean() > MOST_CUT:
        return "it is unknown whether prompts were cut"
    share = float((cut == 1).mean())
    return f"{100 * share:.0f}% of the prompts up to {up_to:,} were cut" if share > MOST_CUT else ""


def _floor(family: Benchmark | None, tasks: Sequence[ScoredRows]) -> tuple[float, str]:
    """Mean score of guessing, averaged over tasks, and the name of it in messages ("chance" or "the floor")."""
    chances = [family.chance(rows[0].sample) if family else 0.0 for rows in tasks]
    name = "chance" if min(chances) >= FLOOR else "the floor"
    return float(np.mean([max(FLOOR, chance) for chance in chances])), name


def _guess_reason(length_bin: Bin, floor: float, name: str) -> str:
    least = length_bin.interval.value if length_bin.interval.low is None else length_bin.interval.low
    if least > floor:
        return ""
    if math.isnan(least):
        return f"the score up to {length_bin.up_to:,} is not a number"
    score, chance = f"{100 * length_bin.interval.value:.1f}", f"{100 * floor:.1f}"
    return f"the score up to {length_bin.up_to:,}, {score}, is not significantly above {name}, {chance}"


def _range(bins: Sequence[Bin], rule: str) -> dict[str, Any]:
    """Summarise bins: longest length kept, longest significantly kept, first significantly lost.

    ``why`` is the reason not to claim a longer length, if it is not the measured score.
    """
    span: dict[str, Any] = dict.fromkeys(("effective", "kept_to", "lost_from", "why"))
    if why := bins[0].why:
        return span | {"why": why}
    if bins[0].margin < 0:
        span["why"] = f"the score up to {bins[0].up_to:,} is not {rule}"
    for length_bin in bins:
        if length_bin.margin < 0:
            break
        if length_bin.why:
            span["why"] = length_bin.why
            break
        span["effective"] = length_bin.up_to
    for length_bin in bins:
        if length_bin.verdict != "kept":
            break
        span["kept_to"] = length_bin.up_to
    span["lost_from"] = next((length_bin.up_to for length_bin in bins if length_bin.verdict == "lost"), None)
    return span


def _task_name(family: Benchmark | None, task: str) -> str:
    return family.catalogue.length_groups.get(task, task) if family else task


def _estimate(benchmark: str, task: str, rows: ScoredRows) -> Estimate | None:
    numbers = headline_of(benchmark, task, rows)
    return numbers.estimate if numbers else None


def _sample_count(rows: ScoredRows) -> int:
    return len(np.unique(rows.column("ids")))


def _effective_context_notes(table: Table) -> list[str]:
    rows = table.dicts()
    notes = [
        f"Effective: the longest length such that it and all shorter lengths score {rule}. Retained and lost depend on "
        "each length's 95% interval. Lengths with at least 30 samples are compared, on tasks with at least 10 samples "
        "at each of these lengths."
        for rule in dict.fromkeys(row["rule"] for row in rows)
    ]
    if any(row["why"] for row in rows):
        notes.append(
            "A length is not claimed if more than 5% of its prompts were cut or may have been cut, or if its score is "
            "not significantly above guessing (or above 10, if guessing scores less)."
        )
    runs = [row for row in rows if row["run_id"] is not None]
    if len(runs) < len(rows):
        notes.append("* published elsewhere, without an interval")
    for row in runs:
        location = f"{row['benchmark']}, {row['length_unit']}"
        omitted = f"; left out, with too few samples at some length: {row['left_out']}" if row["left_out"] else ""
        notes.append(
            f"{location}: {row['task_names']}{omitted}."
            if row["tasks"]
            else f"{location}: no two lengths can be compared on the same tasks."
        )
    return list(dict.fromkeys(notes))


def _draw_figures(source: FigureSource) -> Iterator[Figure]:
    """Draw a chart for each benchmark, of the mean over the tasks with samples at all lengths."""
    rows = [row | {"run_id": row["run_id"] or row["model"]} for row in source.rows("effective_context")]
    leaders, leading_note = select_leaders(source, rows)
    charts = []
    for benchmark, unit in sorted({(row["benchmark"], row["length_unit"]) for row in rows}):
        group = [row for row in rows if (row["benchmark"], row["length_unit"]) == (benchmark, unit)]
        if lines := lines_by_length(source, group, leaders):
            title = f"{benchmark}: tasks that have every length, percent"
            about = f"{unit}; each run on its own tasks, named below"
            charts.append(LengthChart(f"{benchmark}, {unit}", title, benchmark, about, *lines))
    yield from draw_length_charts(charts, leading_note)


EFFECTIVE_CONTEXT = Report(
    name="effective_context",
    title="Effective context (scores in percent; each column covers lengths up to its heading)",
    columns=(
        *WHO,
        TWIN,
        Column("benchmark", "benchmark"),
        Column("length_unit", "unit", rank=2),
        Column("tasks", "tasks", "count", rank=1),
        Column("effective", "effective", "count", missing="no claim"),
        Column("kept_to", "retained to (95%)", "count", missing="no claim"),
        Column("lost_from", "lost from (95%)", "count", missing="not seen"),
        Column("why", "limited because", optional=True),
    ),
    pivot=("length_up_to", Column("score", "score", "percent", interval=True)),
    notes=_effective_context_notes,
    empty="No answer of known length has been scored yet.",
    takes=("--keep-share", "--keep-score", *PUBLISHED),
    rows=table,
    draw=_draw_figures,
    page=PagePlace("Length", 11, title="Score by length over all tasks, effective context", figures="first section"),
)
