"""The report ``decision``: the best model on each benchmark, how sure that is, and the questions to decide the rest.

A row compares the leader of a benchmark with another model, by the numbers of the report ``comparison``: of up to six
runs all pairs are compared, of more the leader with the others. The leader is the first of the report ``leaderboard``
among the runs with the most tasks, without runs that differ from all others in their settings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from lbx.base.columns import Column
from lbx.base.units import format_count
from lbx.report.format.labels import Row
from lbx.report.format.table_cells import cell_text
from lbx.report.pairs import MOST_RUNS, RefusedPair, read_sides, refusal
from lbx.report.query import ReportQuery
from lbx.report.report import PagePlace, Report
from lbx.report.rows.comparison import (
    NOT_COMPARED,
    ComparisonRow,
    cluster_noun,
    compare_pairs,
    document_notes,
    equality_limit,
    format_upper_limit,
    further_samples,
    scorable_samples,
    verdict,
    verdict_notes,
)
from lbx.report.rows.leaderboard import LEADERBOARD
from lbx.results import Store, Table
from lbx.results.read.runs import failed_samples, run_names, unfinished_part
from lbx.results.rows import interval_columns
from lbx.results.scoring.score_columns import INTERVAL_COLUMNS, as_table

COLUMNS = (
    "benchmark", "leader", "rival", "rank", "n", "score", "rival_score", "lead", *INTERVAL_COLUMNS, "p", "p_holm",
    "test", "spread", "detectable", "verdict", "further_clusters", "further_samples", "bundle_samples", "same_samples",
    "caution", "equal_within", "rival_gap",
)  # fmt: skip
_MOST_RIVALS, _MOST_NAMED = 5, 3
_BUT, _BETTER, _UNSURE = " But ", " Better than ", " Not surely better than "
_HIGHER = ", which ranks higher"
_EQUAL = " Equal on every common question to "


def table(store: Store, query: ReportQuery) -> Table:
    """Build the rows of the report. Raises UsageError if the report ``comparison`` would refuse all pairs.

    ``rank`` counts from the leader, 1. Runs that rank higher, but are left out, get 0 or less. ``equal_within`` is the
    ``equality_limit``. ``rival_gap`` describes the missing answers of a run that is better on the common samples.
    """
    query = ReportQuery(
        runs=query.runs, tasks=query.tasks, margin=query.margin, allow_different_settings=query.allow_different_settings
    )
    board = LEADERBOARD.read(store, ReportQuery(runs=query.runs)).dicts()
    order: dict[str, list[str]] = {}
    scored = [row for row in board if row["score"] is not None]
    for row in sorted(scored, key=lambda row: -row["tasks"]):  # stable, so the order of the leaderboard
        order.setdefault(row["benchmark"], []).append(row["run_id"])
    order = {benchmark: runs for benchmark, runs in order.items() if len(runs) > 1}
    coverage = {(row["run_id"], row["benchmark"]): row["coverage"] for row in scored}
    in_bundles = scorable_samples(store)
    is_few = len(query.runs or run_names(store)) <= MOST_RUNS
    sides = read_sides(store, {run for runs in order.values() for run in runs}, outputs=True)
    rows: list[dict[str, Any]] = []
    all_refused: list[RefusedPair] = []
    for benchmark, runs in order.items():
        if any((run, benchmark) not in sides for run in runs):
            continue  # a benchmark of another program, whose scores cannot be compared
        for leader in (*runs, runs[0]):  # the first again, if none is compared
            if is_few:
                lines, refused = compare_pairs(store, query)
            else:
                lines, refused = compare_pairs(store, replace(query, baseline=leader), benchmark, "benchmark")
            if _is_in(leader, benchmark, lines) or not _is_in(leader, benchmark, refused):
                break
        samples = {run: sides[run, benchmark].samples for run in runs}
        known = sum(filter(None, in_bundles.get((leader, benchmark), {}).values())) or None
        for row in _rows_of(benchmark, runs, leader, [*lines, *refused], query.margin):
            row |= {"bundle_samples": known, "same_samples": samples[leader] == samples[row["rival"]]}
            if _is_worse(row):
                row["rival_gap"] = _describe_gap(store, row["rival"], benchmark, coverage[row["rival"], benchmark])
            rows.append(row)
        all_refused += [pair for pair in refused if pair.benchmark == benchmark]
    if all_refused and all(row["verdict"] == NOT_COMPARED for row in rows):
        raise refusal(all_refused)
    return as_table(COLUMNS, rows)


def _is_in(run: str, benchmark: str, pairs: Sequence[ComparisonRow] | Sequence[RefusedPair]) -> bool:
    return any(pair.benchmark == benchmark and run in (pair.run_a, pair.run_b) for pair in pairs)


def _describe_gap(store: Store, run: str, benchmark: str, coverage: str | None) -> str | None:
    """Describe the answers that a run lacks, and the remedy, or return None."""
    if part := unfinished_part(store, run):
        return part
    if failed := failed_samples(store, run).get(benchmark):
        return f"failed on {format_count(failed, 'sample')}; repeat its command with --retry-failed"
    return f"has {coverage.removesuffix(' answers')} answers; ask it the others" if coverage else None


def _rows_of(
    benchmark: str, runs: Sequence[str], leader: str, pairs: Sequence[ComparisonRow | RefusedPair], margin: float
) -> Iterator[dict[str, Any]]:
    """Yield a row for each rival of the leader, in the order of the leaderboard."""
    found = {
        frozenset((pair.run_a, pair.run_b)): pair
        for pair in pairs
        if pair.benchmark == benchmark and (isinstance(pair, RefusedPair) or pair.first.level == "benchmark")
    }
    for rank, rival in enumerate(runs, start=1 - runs.index(leader)):
        row = {"benchmark": benchmark, "leader": leader, "rival": rival, "rank": rank}
        pair = found.get(frozenset((leader, rival)))
        if isinstance(pair, RefusedPair):
            yield row | {"verdict": NOT_COMPARED, "caution": pair.reason}
        elif pair:
            yield row | _numbers(pair, leader, margin)


def _numbers(pair: ComparisonRow, leader: str, margin: float) -> dict[str, Any]:
    """Numbers of a comparison as a lead of the leader, which may be either of the two runs."""
    estimate, interval = pair.difference, pair.difference.interval
    low, high, sign = interval.low, interval.high, 1
    score, rival_score = pair.second.score, pair.first.score
    if pair.run_a == leader:
        score, rival_score, sign = rival_score, score, -1
        low, high = (None if end is None else -end for end in (high, low))
    text = verdict(pair, margin, sign)
    lead = round(sign * interval.value, 15) + 0.0  # never -0.0
    noun = cluster_noun(pair) if pair.first.estimate.clustered else "sample"
    further = further_samples(pair, margin) if text.startswith("undecided") else None
    return {
        "n": interval.n, "score": score, "rival_score": rival_score, "lead": lead,
        **interval_columns(interval, noun), "low": low, "high": high, "p": estimate.p,
        "p_holm": pair.p_holm, "test": estimate.test,
        "spread": None if interval.se is None else interval.se * math.sqrt(interval.clusters),
        "detectable": estimate.detectable, "verdict": text,
        "further_clusters": further and further.clusters, "further_samples": further and further.samples,
        "caution": pair.caution or None, "equal_within": equality_limit(pair),
    }  # fmt: skip


class RunName(NamedTuple):
    """Name of a run within a sentence."""

    run_id: str
    label: str

    def __str__(self) -> str:
        return self.label


Paragraph = Sequence[str | RunName]


def paragraphs(rows: Sequence[Row]) -> Iterator[Paragraph]:
    """Yield a paragraph for each benchmark, and one for all if there are several."""
    benchmarks: dict[str, list[Row]] = {}
    refused: dict[str, list[Row]] = {}
    for row in rows:
        if row["verdict"] == NOT_COMPARED:
            refused.setdefault(row["benchmark"], []).append(row)
        elif None not in (row["lead"], row["score"]):  # which are no numbers if a foreign tool wrote the scores
            benchmarks.setdefault(row["benchmark"], []).append(row)
    if len(benchmarks) > 1:
        yield _over_all(benchmarks)
    for benchmark, group in benchmarks.items():
        left_out = [row for row in refused.get(benchmark, ()) if row["rank"] < 1]
        yield [
            *_leader_sentence(benchmark, group), *_exclusions(left_out), *_how_sure(group), *_why_not_surer(group),
            *_what_next(group),
        ]  # fmt: skip
    for benchmark, (row, *_) in refused.items():
        if benchmark not in benchmarks:
            yield [
                f"{benchmark}: ", _name(row, "leader"), " comes first, but is not compared with ", _name(row, "rival"),
                f": {row['caution']}.",
            ]  # fmt: skip


def _name(row: Row, side: str) -> RunName:
    return RunName(row[side], str(row.get(f"label_{side}") or row[side]))


def _is_better(row: Row) -> bool:
    return str(row["verdict"]).startswith("better")


def _is_worse(row: Row) -> bool:
    return str(row["verdict"]).startswith("worse")


def _over_all(benchmarks: Mapping[str, Sequence[Row]]) -> Paragraph:
    leaders = Counter(_name(rows[0], "leader") for rows in benchmarks.values())
    sure = [benchmark for benchmark, rows in benchmarks.items() if all(map(_is_better, rows))]
    sentence: list[str | RunName] = [f"Over all {len(benchmarks):,} benchmarks: "]
    for at, (name, count) in enumerate(leaders.most_common()):
        sentence += [", " if at else "", name, f" leads {count:,}"]
    decided = f"is decided on {', '.join(sure)}" if sure else "is decided on none"
    return [*sentence, f". The lead over every other run {decided}."]


def _leader_sentence(benchmark: str, rows: Sequence[Row]) -> Paragraph:
    first = rows[0]
    score = f" comes first with {100 * first['score']:.1f}"
    if first["same_samples"]:
        return [f"{benchmark}: ", _name(first, "leader"), f"{score}."]
    on_these = f" on the {format_count(first['n'], _sample_noun(first))} that both it and "
    return [f"{benchmark}: ", _name(first, "leader"), f"{score}{on_these}", _name(first, "rival"), " answered."]


def _exclusions(rows: Sequence[Row]) -> Iterator[str | RunName]:
    """Name the runs above the leader that are not compared with any run."""
    for row in rows[:_MOST_NAMED]:
        yield " "
        yield _name(row, "rival")
        yield f"{_HIGHER}, is left out: {row['caution']}."
    if len(rows) > _MOST_NAMED:
        yield f" {len(rows) - _MOST_NAMED:,} more are left out."


def _how_sure(rows: Sequence[Row]) -> Iterator[str | RunName]:
    for begin in (_BUT, _BETTER, _EQUAL, _UNSURE):
        group = [(_name(row, "rival"), words) for row in rows for start, words in [_standing(row)] if start == begin]
        for at, (name, words) in enumerate(group[:_MOST_NAMED]):
            yield ", " if at else begin
            yield name
            yield words
        if group:
            yield f" and {len(group) - _MOST_NAMED:,} more." if len(group) > _MOST_NAMED else "."


def _standing(row: Row) -> tuple[str, str]:
    """Beginning of the sentence on a rival, and the words after the rival's name."""
    points, _, no_interval = cell_text(row, LEAD).partition(" (")
    if _is_worse(row):
        where = format_count(row["n"], _sample_noun(row))
        why = "because it is incomplete" if row["rival_gap"] else "by all its answers"
        return _BUT, f" is better on the {where} that both answered (lead {points} points), and comes later {why}"
    if row["equal_within"] is not None and not _is_better(row):
        return _EQUAL, f" (so at most {format_upper_limit(row['equal_within'])} points apart)"
    word = "" if _is_better(row) else str(row["verdict"]).partition(":")[0]
    words = f" (by {', '.join(filter(None, (f'{points} points', no_interval.removesuffix(')'), word)))})"
    return _BETTER if _is_better(row) else _UNSURE, words


def _closest(rows: Sequence[Row]) -> Row | None:
    """Undecided rival that takes the most further questions, among rivals with a known number if there are any."""
    undecided = [row for row in rows if str(row["verdict"]).startswith("undecided")]
    return max(undecided, key=lambda row: (row["further_clusters"] or 0, bool(row["spread"])), default=None)


def _sample_noun(row: Row) -> str:
    return "sample" if row.get("cluster_by") == "question" else "question"


def _why_not_surer(rows: Sequence[Row]) -> Iterator[str | RunName]:
    if row := _closest(rows):
        noun = row.get("cluster_by") or "document"
        where = format_count(row["n"], _sample_noun(row))
        if (row.get("clusters") or row["n"]) != row["n"]:  # unknown without intervals
            where += f" on {format_count(row['clusters'], noun)}"
        yield f" Why not surer: {where}"
        if row["spread"] is not None:
            yield f", between which the difference varies by {100 * row['spread']:.1f} points (standard deviation)"
        if row["detectable"] is not None:
            yield f"; a difference of {100 * row['detectable']:.1f} points would be found in four of five cases"
        yield "."
    for caution in dict.fromkeys(row["caution"] for row in rows if row["caution"]):
        yield f" Besides the model: {caution}."


def _what_next(rows: Sequence[Row]) -> Iterator[str | RunName]:
    begin = " Next: "
    for incomplete in rows:
        if incomplete["rival_gap"]:
            yield begin
            yield _name(incomplete, "rival")
            yield f" {incomplete['rival_gap']}."
            begin = " Then: "
    row = _closest(rows)
    reason = str(row["verdict"]).removeprefix("undecided: ") if row else ""
    if row and reason.startswith("needs "):
        needed, unless_changed, condition = reason.removeprefix("needs ").partition(" if ")
        needed, _, near = needed.partition("; ")
        yield f"{begin}{needed} would decide it against " if unless_changed else f"{begin}{needed} are needed against "
        yield _name(row, "rival")
        yield f"{unless_changed}{condition or f'; {near}'}."
        if row["bundle_samples"] and row["bundle_samples"] > row["n"]:
            yield f" The bundle has {format_count(row['bundle_samples'], _sample_noun(row))}."
    elif row:
        yield f"{begin}{reason}, so no number of questions can be planned; "
        yield f"ask about other {row.get('cluster_by') or 'document'}s."
    elif rows and all(map(_is_better, rows)):
        yield " No further question is needed."


def has_near_rival(row: Row) -> bool:
    """Whether a row contains numbers of a rival near the leader, or better than the leader on the common samples.

    Tables for readers show only these rows.
    """
    return _is_worse(row) or (str(row["verdict"]) != NOT_COMPARED and int(row["rank"]) <= _MOST_RIVALS + 1)


def _omission_notes(rows: Sequence[Row]) -> list[str]:
    refused = [row for row in rows if row["verdict"] == NOT_COMPARED]
    notes = [
        f"Not compared: {_name(row, 'leader')} and {_name(row, 'rival')}{_HIGHER if row['rank'] < 1 else ''}, "
        f"{row['benchmark']}: {row['caution']}. --allow-different-settings shows them."
        for row in refused
    ]
    more = len(rows) - len(refused)
    return [*notes, *([f"{more:,} more rivals: JSON and csv have all."] if more else [])]


LEAD = Column("lead", "lead, points", "points", interval=True)


def _notes(table: Table) -> list[str]:
    rows = table.dicts()
    return [
        *("".join(map(str, sentence)) for sentence in paragraphs(rows)),
        *document_notes(rows),
        *verdict_notes(rows),
    ]


DECISION = Report(
    name="decision",
    title="Best model, how sure, and next questions (points: the leader's minus the other's)",
    columns=(
        Column("benchmark", "benchmark"),
        Column("leader", "leader"),
        Column("rival", "other"),
        LEAD,
        Column("p_holm", "p", "p", rank=3),
        Column("n", "questions", "count", rank=1),
        Column("clusters", "documents", "count", rank=2),
        Column("spread", "spread", "percent", rank=4),
        Column("verdict", "verdict"),
    ),
    notes=_notes,
    empty="This needs two runs with scores of one benchmark: the file has one run, or runs on different benchmarks.",
    is_informative=has_near_rival,
    omission_notes=_omission_notes,
    takes=("--margin", "--allow-different-settings", "--tasks"),
    reads="coverage",
    rows=table,
    page=PagePlace("Scores", 5, title="Decision"),
)
