"""The report ``leaderboard``: runs ordered by score, each with a range of possible ranks (the column ``place``).

A run with less than 99% of the bundle's answers is ranked as if the missing answers were wrong. Ranks come from the
paired tests of the report ``comparison``, or from the intervals of the runs if all pairs would take long. If answers
are missing, no run is significantly better than another run that these answers could lift above it.

Places compare all runs, also pairs that the report ``comparison`` refuses; ``place_caution`` names the reasons.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from lbx.base.columns import CAUTION_MARK, Column
from lbx.base.units import format_count
from lbx.report.draw.charts import dots
from lbx.report.draw.figures import (
    Figure,
    FigureSource,
    group_rows,
    point_of_row,
    run_series,
)
from lbx.report.pairs import ComparisonSide, PairChecks, read_sides
from lbx.report.query import ReportQuery
from lbx.report.ranks import read_ranked_scores, score_bounds, select_runs, sort_score
from lbx.report.report import COVERAGE, TWIN, WHO, PagePlace, Report
from lbx.report.rows.comparison import compare_averages
from lbx.results import Store, Table
from lbx.results.read.runs import DONE, RUNNING, run_states, state_words, states_of_runs
from lbx.statistics import LEVEL
from lbx.statistics.differences import fewest_clusters, holm
from lbx.statistics.estimates import t_tail
from lbx.statistics.letters import group_letters

_MOST_ROWS = 60
"""Maximum number of runs in a chart, and of runs with letters."""
_TIES = "Runs that share a letter cannot be told apart (paired tests, Holm, 5%)"
_Z = NormalDist().inv_cdf(1 - LEVEL / 2)
_NEARLY = 0.999
_MOST_REASONS = 3
_MOST_COMPARED, _PAIR_OVERHEAD = 10_000_000, 1_000
"""Maximum number of answers to compare in all pairs, which takes a few seconds, and overhead of a pair in answers."""

PLACE = Column("place", "place", optional=True, caution="place_caution")


def table(store: Store, query: ReportQuery) -> Table:
    """Build the rows of the report once for each choice of runs, because the card shows the same rows."""
    return store.compute_once(("leaderboard", *query.runs), lambda: _table(store, query))


def _table(store: Store, query: ReportQuery) -> Table:
    """Build the rows of the report in order, with ``place`` "1" or "1-3", or None without other runs on the tasks."""
    scores = read_ranked_scores(store)
    rows = select_runs(scores, query.runs)
    states = states_of_runs(store)
    for row in rows:
        row["status"] = states[row["run_id"]]
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["benchmark"], *row.pop("done")), []).append(row)
    letters_in_use: Counter[str] = Counter()
    checks = PairChecks(store)
    for group in groups.values():
        sides = _sides_to_pair(store, group)
        differ = differing_pairs(group, None if sides is None else _test_pairs(group, sides))
        cautions = _place_cautions(group, checks, sides or {})
        for row, rank_range, caution in zip(group, rank_ranges(group, differ), cautions, strict=True):
            row["place"], row["place_caution"] = rank_range, caution
        benchmark = group[0]["benchmark"]
        if 1 < len(group) <= _MOST_ROWS and (ties := group_letters(len(group), differ, letters_in_use[benchmark])):
            letters_in_use[benchmark] += len({*"".join(ties)})
            for row, letters in zip(group, ties, strict=True):
                row["ties"] = letters
    for benchmark in {row["benchmark"] for row in rows}:
        group = [row for row in rows if row["benchmark"] == benchmark and row["score"] is not None]
        if any(sort_score(row) != row["score"] for row in group):
            for row in group:
                row["missing_as_0"] = sort_score(row) if sort_score(row) >= 0 else None
    more = ["missing_as_0", "place", "place_caution", "ties"]
    columns = [name for name in scores.columns if name != "done"] + more
    return Table(columns, [tuple(row.get(name) for name in columns) for row in rows])


def rank_ranges(
    rows: Sequence[Mapping[str, Any]], differ: Collection[tuple[int, int]] | None = None
) -> list[str | None]:
    """Compute the range of ranks of each run.

    It extends from 1 + the number of significantly better runs to all but the significantly worse ones (Holm, 5%).

    Args:
        differ: Pairs of runs that differ significantly. The default is by the intervals of the runs.
    """
    if len(rows) < 2:
        return [None] * len(rows)
    better, worse = [0] * len(rows), [0] * len(rows)
    for a, b in differing_pairs(rows) if differ is None else differ:
        upper, lower = (a, b) if rows[a]["score"] > rows[b]["score"] else (b, a)
        better[lower] += 1
        worse[upper] += 1
    ends = [(1 + above, len(rows) - below) for above, below in zip(better, worse, strict=True)]
    return [str(first) if first == last else f"{first}-{last}" for first, last in ends]


def differing_pairs(
    rows: Sequence[Mapping[str, Any]], p_of_pair: Mapping[tuple[int, int], float] | None = None
) -> list[tuple[int, int]]:
    """Pairs of runs that differ significantly (Holm, 5%), by indices in ``rows``.

    Args:
        p_of_pair: p of the paired test of each two runs. The default is Welch's test.
    """
    pairs = list(combinations(range(len(rows)), 2))
    if p_of_pair is None:
        may_differ = _may_differ(rows)
        ps = [_welch_p(rows[a], rows[b]) if may_differ[a, b] else 1.0 for a, b in pairs]
    else:
        ps = [1.0 if _may_reverse(rows[a], rows[b]) else p_of_pair[a, b] for a, b in pairs]
    return [pair for pair, p in zip(pairs, holm(ps), strict=True) if p < LEVEL]


def _sides_to_pair(store: Store, rows: Sequence[Mapping[str, Any]]) -> dict[str, ComparisonSide] | None:
    """Read the answers of runs to compare all pairs, or None for a single run and for too many answers."""
    n_pairs = len(rows) * (len(rows) - 1) // 2
    if not n_pairs or n_pairs * (max(row["n"] for row in rows) + _PAIR_OVERHEAD) > _MOST_COMPARED:
        return None
    benchmark, runs = rows[0]["benchmark"], [row["run_id"] for row in rows]
    return {run: side for (run, _), side in read_sides(store, runs, [benchmark]).items()}


def _place_cautions(
    rows: Sequence[Mapping[str, Any]], checks: PairChecks, sides: Mapping[str, ComparisonSide]
) -> list[str | None]:
    """Describe for each run the settings that differ in the pairs behind the run's place, or None.

    Without ``sides``, cut prompts are not compared.
    """
    benchmark = rows[0]["benchmark"]
    kinds = [row["run_id"] if sides else checks.kind(row["run_id"], benchmark) for row in rows]
    runs = {kind: row["run_id"] for kind, row in zip(kinds, rows, strict=True)}
    differences: dict[Hashable, dict[str, None]] = {kind: {} for kind in runs}
    for (kind, run), (other_kind, other) in combinations(runs.items(), 2):
        found = dict.fromkeys(checks.check(run, other, benchmark, sides.get(run), sides.get(other)).differences)
        differences[kind] |= found
        differences[other_kind] |= found
    return ["; ".join(differences[kind]) or None for kind in kinds]


def _test_pairs(rows: Sequence[Mapping[str, Any]], sides: Mapping[str, ComparisonSide]) -> dict[tuple[int, int], float]:
    """Test each two runs' averages as in the report ``comparison``: {pair: p}."""
    runs = [row["run_id"] for row in rows]
    tested = {}
    for a, b in combinations(range(len(rows)), 2):
        both = runs[a] in sides and runs[b] in sides
        found = compare_averages(sides[runs[a]], sides[runs[b]]) if both else None
        in_order = found and found.interval.value * ((rows[b]["score"] or 0) - (rows[a]["score"] or 0)) > 0
        tested[a, b] = found.p if found and found.p is not None and in_order else 1.0
    return tested


def _may_differ(rows: Sequence[Mapping[str, Any]]) -> npt.NDArray[np.bool_]:
    """Mask of the pairs that may differ significantly after correction.

    Of 1,000 runs there are half a million pairs, and few of them differ. The t distribution has heavier tails than the
    normal distribution, and if at most k of m pairs can differ, Holm corrects each of them by at least m - k + 1.
    """
    scores = np.array([row["score"] or 0 for row in rows])
    errors = np.array([min(_error(row, end) for end in ("low", "high")) for row in rows])
    with np.errstate(divide="ignore", invalid="ignore"):  # for errors of 0, and NaN scores
        ratios = np.abs(scores[:, None] - scores) / np.hypot(errors[:, None], errors)
    pairs = len(rows) * (len(rows) - 1) // 2
    n_candidates, n_before = pairs, pairs + 1
    may_differ = np.ones_like(ratios, bool)
    while n_candidates < n_before:
        may_differ = ratios >= _NEARLY * NormalDist().inv_cdf(1 - LEVEL / 2 / (pairs - n_candidates + 1))
        n_candidates, n_before = int(np.triu(may_differ, 1).sum()), n_candidates
    return may_differ


def _welch_p(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """p of Welch's test of two runs, from standard errors and degrees of freedom.

    It is 1 if one of these is missing, or if missing answers could reverse the order.
    """
    upper, lower = (first, second) if (first["score"] or 0) > (second["score"] or 0) else (second, first)
    errors = _error(upper, "low"), _error(lower, "high")
    if not all(errors) or not all(row["df"] for row in (first, second)):
        return 1.0
    if _may_reverse(first, second):
        return 1.0
    variances = [error**2 for error in errors]
    df = sum(variances) ** 2 / sum(v**2 / row["df"] for v, row in zip(variances, (upper, lower), strict=True))
    return min(1.0, 2 * t_tail((upper["score"] - lower["score"]) / math.sqrt(sum(variances)), df))


def _may_reverse(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    upper, lower = (first, second) if (first["score"] or 0) > (second["score"] or 0) else (second, first)
    if upper["score"] is None or lower["score"] is None:
        return True
    times = {id(row): row.get("answers_per_sample") or 1 for row in (upper, lower)}
    n_samples = max((row["asked"] or 0) / times[id(row)] for row in (upper, lower))
    lowest, highest = (score_bounds(row, n_samples * times[id(row)])[end] for row, end in ((upper, 0), (lower, 1)))
    return lowest <= highest


def _error(row: Mapping[str, Any], end: str) -> float:
    """Standard error of a run's score on one side.

    For asymmetric intervals it comes from the interval, because near 0 and 1 the standard error may be 0.
    """
    if row.get("method") in ("logit", "exact") and row[end] is not None:
        return abs(float(row["score"] - row[end])) / _Z
    return row["se"] or 0.0


def _leaderboard_notes(table: Table) -> list[str]:
    notes = [
        f"{row.get('label') or row['model']}, {row['benchmark']}: {row['answered']:,} of {row['asked']:,} answers; "
        f"the score is {100 * row['failed_as_0']:.1f} to {100 * row['failed_as_1']:.1f} with the others all "
        "wrong to all right."
        for row in table.dicts()
        if None not in (row["answered"], row["asked"], row["failed_as_0"], row["failed_as_1"])
        and row["answered"] < row["asked"]
    ]
    rows = table.dicts()
    for same in {(row["benchmark"], row.get("place")): None for row in rows}:
        group = [row for row in rows if (row["benchmark"], row.get("place")) == same]
        if text := describe_few_documents(group):
            notes.append(f"{same[0]}: {text}.")
    if any(row.get("place") for row in rows):
        notes.append("A place is a range if some other runs are not significantly better or worse (Holm, 5%).")
    if any(row.get("ties") for row in rows):
        notes.append(f"{_TIES}.")
    if any(row.get("missing_as_0") is not None for row in rows):
        notes.append("Runs are ordered by the score with missing answers as 0, if less than 99% of the answers exist.")
    if any(row["score"] is not None and sort_score(row) < 0 for row in rows):
        notes.append("Runs without an answer to a task follow the others: the score with the task as 0 is unknown.")
    return [*notes, *place_notes(rows)]


def place_notes(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each benchmark with places that rest on pairs which the comparison refuses."""
    reasons: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.get("place") and (caution := row.get("place_caution")):
            reasons.setdefault(row["benchmark"], {}).update(dict.fromkeys(caution.split("; ")))
    for benchmark, texts in reasons.items():
        few, more = list(texts)[:_MOST_REASONS], len(texts) - _MOST_REASONS
        yield (
            f"{CAUTION_MARK} {benchmark}: the place also rests on runs that the report comparison does not compare: "
            f"{'; '.join(few)}{f'; and {more:,} more' if more > 0 else ''}."
        )


def describe_few_documents(rows: Sequence[Mapping[str, Any]]) -> str:
    """Explain that runs with the same range of ranks answered too few documents for any difference, or return "".

    Few documents are compared by an exact test, with p of at least 2^(1 - documents), which Holm's correction
    multiplies by the number of pairs.
    """
    documents, pairs = max((row.get("clusters") or 0 for row in rows), default=0), len(rows) * (len(rows) - 1) // 2
    if not pairs or not documents or any(row.get("place") != f"1-{len(rows)}" for row in rows):
        return ""
    least = fewest_clusters(pairs)
    if documents >= least:
        return ""
    noun = next((row["cluster_by"] for row in rows if row.get("cluster_by")), "document")
    return f"{format_count(documents, noun)} cannot separate {len(rows):,} runs: at least {least} are needed"


def _draw_figures(source: FigureSource) -> Iterator[Figure]:
    """Draw a dot chart with a line for each run, by benchmark."""
    for benchmark, group in group_rows(source.rows("leaderboard"), "benchmark"):
        rows = [row for row in group if row["score"] is not None][:_MOST_ROWS]
        lines = [(source.label(r["run_id"]), run_series(source, r["run_id"], [point_of_row(r)])) for r in rows]
        title = f"{benchmark}: score, percent"
        best = ", ".join(f"{source.label(row['run_id'])} {100 * row['score']:.1f}" for row in rows[:3])
        if len(lines) > 1:
            ties = {source.label(row["run_id"]): row["ties"] for row in rows if row.get("ties")}
            svg = dots(title, f"A line for each run, best first: {best}", lines, ties=ties)
            yield Figure(title, svg, f"{_TIES}." if ties else "", benchmark)


def read_reasons(store: Store, table: Table) -> list[str]:
    """List the reasons why no run has a score, or [] if one has."""
    if table.rows:
        return []
    reasons = [
        f"{run.run_id} {state_words(run.state)} with 0 answers"
        + ("." if run.state == RUNNING else "; repeat its command to continue.")
        for run in run_states(store)
        if not run.answers and run.state != DONE
    ] or [LEADERBOARD.empty]
    if store.query("SELECT judge_id FROM judges UNION ALL SELECT set_id FROM ratings LIMIT 1").rows:
        reasons.append("The reports judge_results and rating_results have verdicts and ratings.")
    return reasons


LEADERBOARD = Report(
    name="leaderboard",
    title="Leaderboard (the headline score of each benchmark, percent)",
    columns=(
        PLACE,
        Column("ties", "ties", optional=True, rank=3),
        *WHO,
        TWIN,
        Column("benchmark", "benchmark"),
        Column("tasks", "tasks", "count", rank=6),
        Column("n", "scored", "count", rank=4),
        COVERAGE,
        Column("score", "score", "percent", interval=True),
        Column("missing_as_0", "with missing as 0", "percent", optional=True, missing=""),
        Column("score_of", "score is", missing="", rank=2),
        Column("failed", "failed", "count", rank=1),
        Column("truncated", "truncated", "count", unknown=True, rank=7),
        Column("status", "status", rank=5),
    ),
    notes=_leaderboard_notes,
    empty="No answer has a score yet.",
    read_notes=read_reasons,
    reads="coverage",
    rows=table,
    draw=_draw_figures,
    page=PagePlace("Scores", 1, layout="tables", has_answer_links=True),
    default=1,
)
