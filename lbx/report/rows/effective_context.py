"""The report ``effective_context``: scores by length, and the longest length with the score of short contexts.

It is a strip for each benchmark: a row per run, a column per length, and the length up to which the run works.

Lengths are power-of-two bins of prompt tokens before truncation, counted by the model's tokenizer, or of the document's
length in the benchmark's unit if token counts are unknown. Tasks differ in length, so bins are never pooled over tasks.
The report compares only tasks with samples in every compared bin, weighted equally: in the average of a benchmark that
averages questions, a length could win or lose by its share of easy tasks. Other lengths are shown if all these tasks
have samples there, and counted in ``left_out`` if not. If no lengths have enough samples to be compared, the report
shows the tasks with samples at the most lengths, and claims nothing.

A length is not claimed if prompts were truncated, or may have been, because the model did not read that much. It is not
claimed either if the score may be due to guessing, because 85% of a score near zero is easily kept. The column ``why``
states the reason.

Published models with scores by length (``PublishedScoreFormat.lengths``) follow the runs of the same benchmark, in the
unit of the runs' lengths. They have no intervals, so lengths are neither significantly kept nor lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from lbx.base.columns import Column
from lbx.base.errors import UsageError
from lbx.benchmarks.base.aggregates import ScoredRows, average
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.registry import BENCHMARKS, unit_of
from lbx.report.draw.charts import heat
from lbx.report.draw.figures import Figure, FigureSource, point_of_row
from lbx.report.format.digits import short_length
from lbx.report.format.labels import Row, number_label
from lbx.report.format.sheets import Sheet
from lbx.report.format.table_cells import byte_notes, cell_text, interval_notes, shade
from lbx.report.query import PUBLISHED, ReportQuery
from lbx.report.ranks import by_benchmark_and_rank
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
_MOST_OMISSIONS = 3
_UNKNOWN_CUT = "it is unknown whether prompts were cut"
COLUMNS = (
    *RUN_COLUMNS, "benchmark", "length_unit", "tasks", "task_names", "left_out", "length_up_to", "n", "score",
    *INTERVAL_COLUMNS, "kept", "margin", "margin_low", "margin_high", "verdict", "doubt", "works_to", "effective",
    "kept_to", "lost_from", "rule", "why",
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
    """Build the rows of the report, once for runs only, because the card shows the same rows. Raises UsageError."""
    if query.models or query.references:
        return _table(store, query)
    key = (query.keep_share, query.keep_score, *query.runs)
    return store.compute_once(("effective context", *key), lambda: _table(store, query))


def _table(store: Store, query: ReportQuery) -> Table:
    """Build the rows of the report: one per length, or one without a length if there are no two.

    Raises:
        UsageError: both a share of the score at the shortest length and an absolute score are given.
    """
    if query.keep_share is not None and query.keep_score is not None:
        raise UsageError("--keep-share and --keep-score exclude each other.", fix="Give one of them.")
    names = runs_by_id(store)
    keep = KEEP if query.keep_share is None else query.keep_share
    rows = [
        names[run] | {"benchmark": benchmark} | line
        for (run, benchmark), tasks in by_benchmark_and_rank(store, read_scores(store, query.runs)).items()
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
        yield {"model": starred_name(model), "rule": rule, "works_to": _works_to(span["effective"], bins)} | span | {
            "length_up_to": length_bin.up_to, "score": length_bin.interval.value, "method": length_bin.interval.method,
            "kept": length_bin.interval.value / shortest if shortest else None, "margin": length_bin.margin,
            "verdict": length_bin.verdict,
        }  # fmt: skip


class LengthGrid(NamedTuple):
    """Answers of a run to the tasks of a benchmark with samples at all of these lengths.

    Attributes:
        tasks: Names of the tasks, without their lengths.
        left_out: Names of the other tasks, and the number of answers at lengths that are not shown.
        lengths: Lengths with enough samples to be compared.
        fewest: Smallest number of samples of a task at each length.
        rows: {length: {task: answers}}.
    """

    unit: str
    tasks: Sequence[str]
    left_out: Sequence[str]
    lengths: Sequence[int]
    fewest: Mapping[int, int]
    rows: Mapping[int, Mapping[str, ScoredRows]]

    def doubt(self, length: int) -> str | None:
        """Reason to doubt the score at a length: "cut" prompts, "few" samples, or None."""
        if _unread_reason(length, [*self.rows[length].values()]) not in ("", _UNKNOWN_CUT):
            return "cut"
        return "few" if self.fewest[length] < FEWEST_OF_TASK else None


def length_grids(benchmark: str, tasks: RowsByTask) -> Iterator[LengthGrid]:
    """Yield the grid of each unit of length. A grid without tasks means that no tasks share two lengths."""
    family = find_benchmark(benchmark)
    known = (*(family.catalogue.length_groups if family else ()), *tasks)  # so that all tasks have one length
    by_name = {_task_name(family, task): task for task in reversed(known)}
    for unit, binned in _by_length(family, tasks).items():
        counts = {task: {up_to: _sample_count(rows) for up_to, rows in bins.items()} for task, bins in binned.items()}
        lengths, names = choose_lengths(counts)
        names = names or choose_lengths(counts, 1, 1)[1]
        common = sorted(set.intersection(*({*counts[name]} for name in names))) if names else []
        hidden = sorted({up_to for bins in counts.values() for up_to in bins}.difference(common)) if names else []
        left_out = [task for task in binned if task not in names]
        if hidden:
            n_hidden = sum(bins.get(up_to, 0) for bins in counts.values() for up_to in hidden)
            *most, last = map(short_length, hidden)
            at_lengths = f"{', '.join(most)} and {last}" if most else last
            left_out.append(f"{n_hidden:,} {'answer' if n_hidden == 1 else 'answers'} at {at_lengths}")
        yield LengthGrid(
            unit,
            names,
            left_out,
            lengths,
            {up_to: min(counts[name][up_to] for name in names) for up_to in common},
            {up_to: {by_name[name]: binned[name][up_to] for name in names} for up_to in common},
        )


def _lines(benchmark: str, tasks: RowsByTask, keep: float, at_least: float | None) -> Iterator[dict[str, Any]]:
    family = find_benchmark(benchmark)
    rule = _rule(keep, at_least)
    for grid in length_grids(benchmark, tasks):
        line: dict[str, Any] = {
            "length_unit": grid.unit,
            "tasks": len(grid.tasks),
            "task_names": ", ".join(grid.tasks) or None,
            "left_out": ", ".join(grid.left_out) or None,
            "rule": rule,
        }
        if not grid.tasks:
            yield line | {"works_to": "only one length"}
            continue
        estimates = {
            up_to: average([_estimate(benchmark, task, rows) for task, rows in parts.items()])
            for up_to, parts in grid.rows.items()
        }
        bins = list(_make_bins({up_to: estimates[up_to] for up_to in grid.lengths}, keep, at_least))
        if bins:
            floor = _floor(family, [*grid.rows[grid.lengths[0]].values()])
            bins = [
                length_bin._replace(
                    unread=_unread_reason(length_bin.up_to, [*grid.rows[length_bin.up_to].values()]),
                    guess_reason=_guess_reason(length_bin, *floor),
                )
                for length_bin in bins
            ]
            line |= _range(bins, rule)
            line["works_to"] = _works_to(line["effective"], bins)
        else:
            line["works_to"] = _lacking_questions(grid.fewest.values(), len(grid.tasks))
        compared = {length_bin.up_to: length_bin for length_bin in bins}
        for up_to, estimate in estimates.items():
            if estimate is None:
                continue
            score_interval = interval(estimate)
            yield line | {
                "length_up_to": up_to, "n": score_interval.n, "score": score_interval.value,
                **score_interval_columns(score_interval, family, clustered=estimate.clustered),
                "doubt": grid.doubt(up_to),
                **(_comparison(compared[up_to], bins[0]) if up_to in compared else {"verdict": "not compared"}),
            }  # fmt: skip


def _comparison(length_bin: Bin, first: Bin) -> dict[str, Any]:
    """Columns of the comparison of a length with the shortest length."""
    return {
        "kept": length_bin.interval.value / first.interval.value if first.interval.value else None,
        "margin": length_bin.margin,
        "margin_low": length_bin.low,
        "margin_high": length_bin.high,
        "verdict": length_bin.verdict,
    }


def _works_to(effective: int | None, bins: Sequence[Bin]) -> str:
    """Words for the longest length claimed, and the reason to claim no more if that is not the measured score."""
    if effective and effective == bins[-1].up_to:
        return f"≥ {short_length(effective)}"
    after = next(length_bin for length_bin in bins if effective is None or length_bin.up_to > effective)
    if after.margin < 0 and (effective or not after.why):
        return short_length(effective) if effective else f"less than {short_length(after.up_to)}"
    if after.unread == _UNKNOWN_CUT:
        reason = "prompts may be cut"
    else:
        reason = f"{'prompts cut' if after.unread else 'like guessing'} from {short_length(after.up_to)}"
    return f"{short_length(effective)}, {reason}" if effective else reason


def _lacking_questions(fewest: Iterable[int], n_tasks: int) -> str:
    """Words for what a comparison lacks, from the smallest number of samples of a task at each length."""
    needed = max(FEWEST_OF_TASK, math.ceil(FEWEST / n_tasks))
    found = sorted(fewest)[-2]  # two lengths can be compared
    return f"needs {needed} questions a length, has {found}" if found < needed else "other tasks at each length"


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


def choose_lengths(
    samples: Mapping[str, Mapping[int, int]], fewest: int = FEWEST, fewest_of_task: int = FEWEST_OF_TASK
) -> tuple[list[int], list[str]]:
    """Choose lengths and tasks such that every task has samples at every length.

    More lengths leave fewer tasks. The choice maximises the product of both, and prefers the longest lengths.

    Args:
        samples: {task: {length: number of samples}}.
        fewest: Minimum number of samples at each length.
        fewest_of_task: Minimum number of samples of each task at each length.

    Returns:
        At least two neighbouring lengths among those with enough samples, or else among those of a task, and the tasks,
            or ([], []) if no two lengths can be compared.
    """
    counts: dict[int, int] = {}
    for bins in samples.values():
        for up_to, count in bins.items():
            counts[up_to] = counts.get(up_to, 0) + count
    enough = sorted(up_to for up_to, count in counts.items() if count >= fewest)
    of_tasks = {tuple(up_to for up_to in enough if up_to in bins) for bins in samples.values()}
    best: tuple[tuple[int, int, int], list[int], list[str]] = ((0, 0, 0), [], [])
    for rows in ({tuple(enough)}, of_tasks):  # lengths of all tasks, or of one: others may have more in between
        for row in rows:
            for begin, end in combinations(range(len(row) + 1), 2):
                lengths = list(row[begin:end])
                tasks = [
                    task
                    for task, bins in samples.items()
                    if all(bins.get(length, 0) >= fewest_of_task for length in lengths)
                ]
                totals = [sum(samples[task][length] for task in tasks) for length in lengths]
                if len(totals) > 1 and min(totals) >= fewest:
                    best = max(best, ((len(lengths) * len(tasks), lengths[-1], len(tasks)), lengths, tasks))
        if best[1]:
            break
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
        return _UNKNOWN_CUT
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


@dataclass(frozen=True, slots=True)
class StripRow:
    """Scores of a run or a published model by length.

    Attributes:
        name: Name for readers.
        line: Row of the report, for the columns that are equal at all lengths.
        cells: Rows of the report by length.
    """

    name: str
    line: Row
    cells: Mapping[int, Row]

    @property
    def key(self) -> str:
        """Name of the run, or of the published model."""
        return str(self.line["run_id"] or self.line["model"])

    def length(self, column: str) -> str:
        """Length in a column for readers, or "-"."""
        return short_length(self.line[column]) if self.line[column] else "-"


@dataclass(frozen=True, slots=True)
class Strip:
    """Scores of a benchmark by run and length, in one unit of length."""

    benchmark: str
    unit: str
    lengths: Sequence[int]
    rows: Sequence[StripRow]

    @property
    def title(self) -> str:
        return f"{self.benchmark}, {self.unit}"

    @property
    def has_certainty(self) -> bool:
        """Whether a length is significantly retained or lost by any run."""
        return any(row.line["kept_to"] or row.line["lost_from"] for row in self.rows)

    def counts(self) -> list[str]:
        """Numbers of answers at each length: "39", or "36–39" if runs differ."""
        counts = [
            [row.cells[length]["n"] for row in self.rows if length in row.cells and row.cells[length]["n"]]
            for length in self.lengths
        ]
        return ["–".join(f"{n:,}" for n in sorted({min(of_length), max(of_length)})) if of_length else ""
                for of_length in counts]  # fmt: skip

    def notes(self) -> list[str]:
        """Write sentences on the tasks that the scores average."""
        names: dict[str, list[str]] = {}
        for row in self.rows:
            if row.line["tasks"]:
                names.setdefault(row.line["task_names"], []).append(row.name)
        return [
            f"{self.title}{'' if len(names) == 1 else f', {_few_names(runs)}'}: {tasks}."
            for tasks, runs in names.items()
        ]


def _few_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"


def strips(rows: Iterable[Row]) -> list[Strip]:
    """Arrange the rows of the report as strips, that with the longest texts first, without those of a single length."""
    groups: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in rows:
        of_run = groups.setdefault((row["benchmark"], row["length_unit"]), {})
        of_run.setdefault(str(row["run_id"] or row["model"]), []).append(row)
    made = []
    for (benchmark, unit), runs in groups.items():
        strip_rows = [
            StripRow(
                str(lines[0].get("label") or lines[0]["model"]),
                lines[0],
                {row["length_up_to"]: row for row in lines if row["length_up_to"]},
            )
            for lines in runs.values()
        ]
        lengths = sorted({length for row in strip_rows for length in row.cells})
        if len(lengths) > 1:
            made.append(Strip(benchmark, unit, lengths, strip_rows))
    return sorted(made, key=lambda strip: -strip.lengths[-1])


STRIP_SCORE = Column("score", "score", "percent", interval=True)
"""Score of a cell of a strip, with the interval."""
_END_OF_CLAIM = "┃"


def _sheets(table: Table, further_notes: Sequence[str], in_text: bool) -> list[Sheet]:
    """Make a sheet for each strip. In text the cells are shaded, and without intervals."""
    made = []
    rows = table.dicts()
    for strip in strips(rows):
        ends = [Column("works_to", "works to")]
        if strip.has_certainty:
            ends += [Column("kept_to", "retained to (95%)", rank=1), Column("lost_from", "lost from (95%)", rank=2)]
        across = [
            Column(str(length), short_length(length), "shade" if in_text else "percent", across=True)
            for length in strip.lengths
        ]
        format_cell = shaded_cell if in_text else cell_with_interval
        body = [
            [
                row.name,
                *(format_cell(row.cells.get(length), row.line["effective"]) for length in strip.lengths),
                row.line["works_to"],
                *([row.length("kept_to"), row.length("lost_from")] if strip.has_certainty else []),
            ]
            for row in strip.rows
        ]
        counts = [f"{count} " if in_text else count for count in strip.counts()]
        body.append(["answers", *counts, *("" for _ in ends)])
        title = f"Effective context: {strip.benchmark} (percent, by {strip.unit})"
        made.append(Sheet(title, [Column("model", "model"), *across, *ends], body, strip.notes()))
    notes = [*notes_on_omissions(rows), *notes_on_strips(rows, in_text=in_text), *further_notes]
    if not in_text:
        notes = [*interval_notes(table), *notes]
    if not made:
        return [Sheet(EFFECTIVE_CONTEXT.title, EFFECTIVE_CONTEXT.columns, [], notes)]
    return [*made[:-1], replace(made[-1], notes=[*made[-1].notes, *notes])]


def shaded_cell(row: Row | None, effective: int | None = None) -> str:
    """Format a score by length in text, with the first letter of the doubt, and a line at the end of the claim."""
    if row is None or row["score"] is None:
        return ""
    text = shade(row["score"])
    return (row["doubt"][0] + text[1:] if row["doubt"] else text) + (
        _END_OF_CLAIM if row["length_up_to"] == effective else " "
    )


def cell_with_interval(row: Row | None, _: int | None = None) -> str:
    """Format a score by length with the interval and the doubt."""
    return "" if row is None else cell_text(row, STRIP_SCORE) + (f" ({row['doubt']})" if row["doubt"] else "")


def doubt_legend(rows: Sequence[Row], *, in_text: bool = False, signs: Mapping[str, str] | None = None) -> str:
    """Explain the signs of doubtful scores, and of the end of the claim, in strips. Args: see ``notes_on_strips``."""
    signs = signs or ({"few": "f", "cut": "c", "end": _END_OF_CLAIM} if in_text else {"few": "(few)", "cut": "(cut)"})
    meanings = {
        "few": f"fewer than {FEWEST_OF_TASK} answers to at least one task",
        "cut": f"more than {100 * MOST_CUT:g}% of the prompts cut",
        "end": "end of the lengths that the run works to",
    }
    present = {row["doubt"] for row in rows} | {"end" for row in rows if row.get("effective")}
    by_sign: dict[str, list[str]] = {}
    for name, sign in signs.items():
        if name in present:
            by_sign.setdefault(sign, []).append(meanings[name])
    return "; ".join(f"{sign}: {' or '.join(words)}" for sign, words in by_sign.items())


def notes_on_omissions(rows: Iterable[Row]) -> Iterator[str]:
    """Yield a sentence on the tasks and lengths of each benchmark that are not shown."""
    runs: dict[str, dict[str | None, dict[str, None]]] = {}
    for row in rows:
        if row["length_up_to"] and row["tasks"]:
            sets = runs.setdefault(f"{row['benchmark']}, {row['length_unit']}", {})
            sets.setdefault(row["left_out"], {})[str(row.get("label") or row["model"])] = None
    for title, sets in runs.items():
        parts = [
            f"{left_out}{f' ({_few_names([*names])})' if len(sets) > 1 else ''}"
            for left_out, names in sets.items()
            if left_out
        ]
        if parts:
            more = f"; {len(parts) - _MOST_OMISSIONS:,} more (see the CSV)" if len(parts) > _MOST_OMISSIONS else ""
            yield (
                f"{title}: not shown, because not every task has enough samples at every length: "
                f"{'; '.join(parts[:_MOST_OMISSIONS])}{more}. length_curve has every length of each task."
            )


def notes_on_strips(rows: Sequence[Row], *, in_text: bool = False, signs: Mapping[str, str] | None = None) -> list[str]:
    """Write sentences on all strips.

    Args:
        in_text: Whether the strips are text without intervals.
        signs: Appearances of "few", "cut" and "end" in the strips, if not those of text.
    """
    rules = dict.fromkeys(row["rule"] for row in rows)
    notes = [
        f"Works to: the longest length such that it and all shorter lengths score {rule}. Retained and lost depend on "
        f"each length's 95% interval. Lengths with at least {FEWEST} samples are compared, on tasks with at least "
        f"{FEWEST_OF_TASK} samples at each of these lengths. A score is the mean of the tasks, each with equal weight."
        for rule in rules
    ]
    if legend := doubt_legend(rows, in_text=in_text, signs=signs):
        notes.insert(0, f"{legend}.")
    if any(row["why"] for row in rows):
        notes.append(
            "A length is not claimed if more than 5% of its prompts were cut or may have been cut, or if its score is "
            "not significantly above guessing (or above 10, if guessing scores less)."
        )
    if in_text:
        notes.append("--format markdown and csv have the intervals.")
    if any(row["run_id"] is None for row in rows):
        notes.append("* published elsewhere, without an interval")
    notes += byte_notes((), rows)
    shown = {(strip.benchmark, strip.unit) for strip in strips(rows)}
    left_out = dict.fromkeys(f"{row['benchmark']} ({row['length_unit']})" for row in rows
                             if (row["benchmark"], row["length_unit"]) not in shown)  # fmt: skip
    if left_out:
        notes.append(f"Left out, with answers at only one length: {', '.join(left_out)}.")
    return notes


def _draw_figures(source: FigureSource) -> Iterator[Figure]:
    """Draw the strip of each benchmark as a heat map."""
    rows = source.rows("effective_context")
    caption = " ".join(notes_on_strips(rows, signs={"few": "Hatched", "cut": "Hatched", "end": "thick line"})[:1])
    for strip in strips(rows):
        cells, hatches, edges = {}, set(), {}
        for at, row in enumerate(strip.rows):
            for column, length in enumerate(strip.lengths):
                if cell := row.cells.get(length):
                    cells[at, column] = point_of_row(cell)
                    if cell["doubt"]:
                        hatches.add((at, column))
                    if length == row.line["effective"]:
                        edges[at] = column
        svg = heat(
            f"{strip.benchmark}: score by length, percent",
            f"A row per run, a column per length in {strip.unit}.",
            rows=[source.label(row.key) for row in strip.rows],
            columns=list(map(short_length, strip.lengths)),
            cells=cells,
            ends=(0, 100),
            marks=[source.mark_of(row.key) for row in strip.rows],
            hatches=hatches,
            edges=edges,
            endings=[str(row.line["works_to"]) for row in strip.rows],
        )
        yield Figure(f"{strip.title}: works to", svg, caption, strip.benchmark)


EFFECTIVE_CONTEXT = Report(
    name="effective_context",
    title="Effective context (scores in percent; a column covers lengths up to its heading)",
    columns=(
        *WHO,
        TWIN,
        Column("benchmark", "benchmark"),
        Column("length_unit", "unit", rank=2),
        Column("tasks", "tasks", "count", rank=1),
        Column("length_up_to", "up to", "count"),
        STRIP_SCORE,
        Column("n", "answers", "count"),
        Column("doubt", "doubt", optional=True),
        Column("works_to", "works to"),
        Column("kept_to", "retained to (95%)", "count"),
        Column("lost_from", "lost from (95%)", "count"),
        Column("why", "limited because", optional=True),
    ),
    empty="No answer of known length has been scored yet.",
    takes=("--keep-share", "--keep-score", *PUBLISHED),
    rows=table,
    make_sheets=_sheets,
    draw=_draw_figures,
    page=PagePlace("Length", 11, title="Where each run stops working: score by length", layout="strips", is_open=True),
)
