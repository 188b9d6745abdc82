"""Comparison of runs with published numbers of their models, for each line of the report paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lbx.base.errors import UsageError
from lbx.report.labels import number_label
from lbx.report.reference import Figure, Published, listed, published_beside
from lbx.report.shapes import ReportQuery
from lbx.store import Store, Table
from lbx.store.numbers import key_of
from lbx.store.views import PAPER_NUMBERS

AGREES, DIFFERS, CANNOT_TELL = "agrees", "differs", "cannot tell"
COLUMNS = (
    "benchmark", "line", "model", "figure", "run", "run_id", "official", "difference", "low", "high", "verdict", "why",
    "source",
)  # fmt: skip

_NO_INTERVAL = {
    "one cluster": "all questions are on one document",
    "all alike": "all samples score alike",
    None: "the score has no interval",
}
_IN_A_PART = "all questions of a part are on one document"
# Numbers of papers, and those without an official number, which the view omits.
_OWN = f"""
    SELECT * FROM ({PAPER_NUMBERS})
    UNION ALL BY NAME
    SELECT run_id, benchmark, model AS run, 1 AS part, n.position AS place, 0 AS position,
           n.kind, n.task, n."grouping", n.name, n.metric, n.judge, n.against, n.questions
    FROM numbers n JOIN runs USING (run_id) WHERE n.kind IN ('group', 'opinion') AND n.official IS NULL
"""  # noqa: S608 (our own names)
# Per task, and under NULL for all tasks: number of answered samples, and of samples asked or in the bundle.
_ANSWERED = """
    SELECT c.run_id, c.benchmark, c.task, sum(c.samples)::BIGINT AS samples,
           sum(greatest(g.asked, c.bundle_samples))::BIGINT AS every
    FROM coverage c JOIN (
        SELECT run_id, benchmark, task, count(DISTINCT sample_id) AS asked FROM generations GROUP BY ALL
    ) g USING (run_id, benchmark, task)
    GROUP BY GROUPING SETS ((c.run_id, c.benchmark, c.task), (c.run_id, c.benchmark))
"""


def table(store: Store | None, query: ReportQuery) -> Table:
    """The report ``expected``: a row for each line that both a run and an expected model have.

    Raises:
        UsageError: a name matches no model or several, or there is no common line.
    """
    if store is None or not query.expected:
        return Table(COLUMNS, [])
    every = published_beside(store, replace(query, models=query.expected))
    chosen = [one for part in query.expected for one in _named(every, part)]
    part_of = answered(store)
    rows = [
        _row(one, figure, own, part_of)
        for own in _own_numbers(store)
        if not query.runs or own["run_id"] in query.runs
        for one in chosen
        if one.benchmark == own["benchmark"] and (figure := one.figures.get(own["line"]))
    ]
    if not rows:
        raise UsageError(
            f"No figure of {listed(one.model for one in chosen)} was published for a line of these runs.",
            fix="List its lines with `lbx report reference --against MODEL`.",
        )
    return Table(COLUMNS, rows)


def _own_numbers(store: Store) -> list[dict[str, Any]]:
    """Numbers of runs with their keys and labels, in the papers' order."""
    rows = store.query(_OWN).dicts()
    for row in rows:
        row["key"] = key_of(row)
        row["line"] = number_label(row["key"])
    order = ("benchmark", "run_id", "part", "place", "position", "line")
    return sorted(rows, key=lambda row: [(row[name] is None, row[name]) for name in order])


def answered(store: Store) -> dict[tuple[str, str, str | None], tuple[int, int]]:
    """Samples with an answer, and samples asked or in the bundle, by (run, benchmark, task); task None for all."""
    return store.once(
        "answered", lambda: {(run, name, task): (done, of) for run, name, task, done, of in store.query(_ANSWERED).rows}
    )


def _named(every: Iterable[Published], part: str) -> list[Published]:
    """Models with this name, or with this part of their name, one per benchmark.

    Raises:
        UsageError: several models of a benchmark match.
    """
    by_name: dict[str, list[Published]] = {}
    for one in every:
        if part.casefold() in one.model.casefold():
            by_name.setdefault(one.benchmark, []).append(one)
    for benchmark, some in by_name.items():
        exact = [one for one in some if one.model.casefold() == part.casefold()]
        by_name[benchmark] = exact or some
        if len(by_name[benchmark]) > 1:
            raise UsageError(
                f"{part!r} matches several published models of {benchmark}.",
                fix=f"Give the full name of one: {listed(one.model for one in by_name[benchmark])}.",
            )
    return [one for some in by_name.values() for one in some]


def _row(
    one: Published,
    figure: Figure,
    own: Mapping[str, Any],
    part_of: Mapping[tuple[str, str, str | None], tuple[int, int]],
) -> tuple[object, ...]:
    samples, every = part_of.get((own["run_id"], one.benchmark, own["key"].task or None), (0, 0))
    part = f"{samples:,} of {every:,} answered" if samples < every else None
    outcome, why = verdict(figure, own, one.doubt or part)
    difference = None if own["official"] is None else round(own["official"] - figure.value, 10)
    return (
        one.benchmark, own["line"], one.model, figure.value, own["run"], own["run_id"], own["official"], difference,
        own.get("low"), own.get("high"), outcome, why, one.source,
    )  # fmt: skip


def verdict(figure: Figure, own: Mapping[str, Any], hindrance: str | None = None) -> tuple[str, str | None]:
    """Verdict (``agrees``, ``differs`` or ``cannot tell``) and the reason, unless it is obvious.

    They agree if the printed figure, give or take half a unit of its last digit, and the run's 95% interval overlap.

    Args:
        own: the run's ``official`` number, and ``low``, ``high``, ``method`` and ``clusters`` of its interval, in the
            figure's unit.
        hindrance: reason that the numbers are not comparable, such as different samples.
    """
    value, low, high = (own.get(name) for name in ("official", "low", "high"))
    if hindrance or value is None:
        return CANNOT_TELL, hindrance or "there is no official number"
    half = figure.unit / 2 * (1 + 1e-9)
    if abs(value - figure.value) <= half:
        return AGREES, "equal as printed"
    if low is None or high is None:
        why = _NO_INTERVAL.get(own.get("method"), _NO_INTERVAL[None])
        return CANNOT_TELL, _IN_A_PART if own.get("method") == "one cluster" and (own.get("clusters") or 1) > 1 else why
    if figure.value + half < low or figure.value - half > high:
        return DIFFERS, None
    if figure.unit > high - low:
        return CANNOT_TELL, "the figure is printed too coarsely"
    return AGREES, None
