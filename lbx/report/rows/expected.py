"""The report ``expected``: runs compared with published scores of the models, for each line of the report ``paper``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lbx.base.columns import Column
from lbx.base.errors import UsageError
from lbx.base.number import key_of
from lbx.report.format.digits import why_no_interval
from lbx.report.format.labels import number_label
from lbx.report.query import ReportQuery
from lbx.report.report import Report
from lbx.report.rows.reference import PublishedModel, PublishedScore, find_published, join_names
from lbx.results import Store, Table
from lbx.results.views import PAPER_NUMBERS

AGREES, DIFFERS, CANNOT_TELL = "agrees", "differs", "cannot tell"
COLUMNS = (
    "benchmark", "line", "model", "published", "run", "run_id", "official", "difference", "low", "high", "verdict",
    "why", "source",
)  # fmt: skip

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
    FROM coverage c LEFT JOIN (
        SELECT run_id, benchmark, task, count(DISTINCT sample_id) AS asked FROM generations GROUP BY ALL
    ) g USING (run_id, benchmark, task)
    GROUP BY GROUPING SETS ((c.run_id, c.benchmark, c.task), (c.run_id, c.benchmark))
"""


def table(store: Store | None, query: ReportQuery) -> Table:
    """Build the report ``expected``: a row for each line of ``paper`` with a run's and an expected model's number.

    Raises:
        UsageError: a name matches no model or several models, or no line contains both numbers.
    """
    if store is None or not query.expected_models:
        return Table(COLUMNS, [])
    every = find_published(store, replace(query, models=query.expected_models))
    models = [model for part in query.expected_models for model in _match_models(every, part)]
    part_of = answer_counts(store)
    rows = [
        _row(model, published_score, number, part_of)
        for number in _run_numbers(store)
        if not query.runs or number["run_id"] in query.runs
        for model in models
        if model.benchmark == number["benchmark"] and (published_score := model.scores.get(number["line"]))
    ]
    if not rows:
        raise UsageError(
            f"No score of {join_names(model.model for model in models)} was published for a line of these runs.",
            fix="List its lines with `lbx report reference --published MODEL`.",
        )
    return Table(COLUMNS, rows)


def _run_numbers(store: Store) -> list[dict[str, Any]]:
    rows = store.query(_OWN).dicts()
    for row in rows:
        row["key"] = key_of(row)
        row["line"] = number_label(row["key"])
    order = ("benchmark", "run_id", "part", "place", "position", "line")
    return sorted(rows, key=lambda row: [(row[name] is None, row[name]) for name in order])


def answer_counts(store: Store) -> dict[tuple[str, str, str | None], tuple[int, int]]:
    """Count samples: {(run, benchmark, task): (answered, asked or bundled)}. Task None means all tasks."""
    return store.compute_once(
        "answered", lambda: {(run, name, task): (done, of) for run, name, task, done, of in store.query(_ANSWERED).rows}
    )


def _match_models(every: Iterable[PublishedModel], part: str) -> list[PublishedModel]:
    """Find the published models named ``part``, or else with ``part`` in the name, one per benchmark.

    Raises:
        UsageError: several models of a benchmark match.
    """
    by_name: dict[str, list[PublishedModel]] = {}
    for model in every:
        if part.casefold() in model.model.casefold():
            by_name.setdefault(model.benchmark, []).append(model)
    for benchmark, matches in by_name.items():
        exact = [model for model in matches if model.model.casefold() == part.casefold()]
        by_name[benchmark] = exact or matches
        if len(by_name[benchmark]) > 1:
            raise UsageError(
                f"{part!r} matches several published models of {benchmark}.",
                fix=f"Give the full name of one: {join_names(model.model for model in by_name[benchmark])}.",
            )
    return [model for matches in by_name.values() for model in matches]


def _row(
    model: PublishedModel,
    published_score: PublishedScore,
    number: Mapping[str, Any],
    part_of: Mapping[tuple[str, str, str | None], tuple[int, int]],
) -> tuple[object, ...]:
    samples, every = part_of.get((number["run_id"], model.benchmark, number["key"].task or None), (0, 0))
    part = f"{samples:,} of {every:,} answered" if samples < every else None
    outcome, why = verdict(published_score, number, model.doubt or part)
    difference = None if number["official"] is None else round(number["official"] - published_score.value, 10)
    return (
        model.benchmark, number["line"], model.model, published_score.value, number["run"], number["run_id"],
        number["official"], difference, number.get("low"), number.get("high"), outcome, why, model.source,
    )  # fmt: skip


def verdict(
    published_score: PublishedScore, number: Mapping[str, Any], hindrance: str | None = None
) -> tuple[str, str | None]:
    """Compare a published score with a run's number. Returns AGREES, DIFFERS or CANNOT_TELL, and the reason or None.

    They agree if the printed score, plus or minus half a unit of the last digit, and the run's 95% interval overlap.

    Args:
        number: row with the ``official`` number of the run, and ``low``, ``high``, ``method`` and ``clusters`` of the
            interval, in the unit of the published score.
        hindrance: reason why the numbers are not comparable, such as different samples.
    """
    value, low, high = (number.get(name) for name in ("official", "low", "high"))
    if hindrance or value is None:
        return CANNOT_TELL, hindrance or "there is no official number"
    half = published_score.unit / 2 * (1 + 1e-9)
    if abs(value - published_score.value) <= half:
        return AGREES, "equal as printed"
    if low is None or high is None:
        reason = why_no_interval(*(number.get(name) for name in ("method", "cluster_by", "clusters")))
        return CANNOT_TELL, reason[1] if reason else "the score has no interval"
    if published_score.value + half < low or published_score.value - half > high:
        return DIFFERS, None
    if published_score.unit > high - low:
        return CANNOT_TELL, "the score is printed too coarsely"
    return AGREES, None


EXPECTED = Report(
    name="expected",
    title="Runs compared with published scores (agrees: in the run's 95% interval, plus or minus half a last digit)",
    columns=(
        Column("benchmark", "benchmark"),
        Column("line", "task"),
        Column("model", "published model", rank=1),
        Column("published", "published", "number"),
        Column("run", "run"),
        Column("official", "official", "number", interval=True),
        Column("difference", "difference", "number"),
        Column("verdict", "verdict"),
        Column("why", "why", optional=True),
    ),
    empty="No expected model given. Name a published model with --expect.",
    takes=("--expect", "--reference"),
    reads="coverage",
    rows=table,
    needs_option="--expect",
    has_failed=lambda row: row["verdict"] == DIFFERS,
)
