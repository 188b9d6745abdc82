"""The report ``harness``: runs imported from another evaluation harness, with scores by the harness and by lbx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator

from lbx.base.columns import Column
from lbx.base.units import format_count
from lbx.report.query import ReportQuery
from lbx.report.report import PagePlace, Report
from lbx.results import Store, Table
from lbx.results.file.imports import Harness, harnesses_of_runs

COLUMNS = (
    "run_id", "model", "benchmark", "harness", "harness_version", "task", "task_version", "n", "harness_metric",
    "harness_score", "score", "difference", "verdict", "why", "unknown",
)  # fmt: skip
_HEADLINES = """
    SELECT run_id, model, benchmark, task, n, score FROM task_scores
    WHERE headline AND list_contains(?, run_id) ORDER BY benchmark, run_id, task_position, task
"""


def table(store: Store, query: ReportQuery) -> Table:
    """Build the rows of the report: one for each task of each imported run, in the paper's order."""
    harnesses = harnesses_of_runs(store)
    runs = [run for run in harnesses if not query.runs or run in query.runs]
    rows = []
    for run, model, benchmark, name, n, score in store.query(_HEADLINES, [runs]).rows if runs else ():
        harness = harnesses[run]
        if task := harness.tasks.get(name):
            difference = None if task.score is None or score is None else score - task.score
            rows.append((
                run, model, benchmark, harness.name, harness.version or None, name, task.version, n,
                task.metric or None, task.score, score, difference, task.verdict, "; ".join(task.reasons) or None,
                "; ".join(task.unknowns) or None,
            ))  # fmt: skip
    return Table(list(COLUMNS), rows)


def summaries(store: Store, runs: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each of ``runs`` that was imported from a harness."""
    for run, harness in harnesses_of_runs(store).items():
        if run in runs:
            n_others = len(harness.unofficial_tasks)
            others = f"{format_count(n_others, 'task')} not asked like officially" if n_others else ""
            others = f"; {others}, without an official number" if others else ""
            yield f"{run}: answers from {harness.title}{others}. The report harness has its own scores."


def harness_differences(store: Store) -> Callable[[str, str], list[str]]:
    """Make a function that lists reasons why the numbers of two runs may differ because of a harness."""
    harnesses = harnesses_of_runs(store)

    def describe(a: str, b: str) -> list[str]:
        pair = [(run, harnesses[run]) for run in (a, b) if run in harnesses]
        if len(pair) == 2 and _is_asked_alike(pair[0][1], pair[1][1]):
            return []
        return [text for run, harness in pair if (text := _describe(run, harness))]

    return describe


def _is_asked_alike(first: Harness, second: Harness) -> bool:
    common = first.tasks.keys() & second.tasks.keys()
    return (
        first.title == second.title
        and first.settings.get("chat_template") == second.settings.get("chat_template")
        and all(
            (first.tasks[name].version, first.tasks[name].verdict)
            == (second.tasks[name].version, second.tasks[name].verdict)
            for name in common
        )
    )


def _describe(run: str, harness: Harness) -> str:
    tasks = [name for name in harness.tasks if name in harness.unofficial_tasks]
    return f"{run} was asked by {harness.title}, and not like officially in {', '.join(tasks)}" if tasks else ""


def _harness_notes(table: Table) -> list[str]:
    notes = {
        "comparable": "comparable: asked like the official script, as far as known",
        "differs": "differs: comparable only with answers under the same conditions",
        "not comparable": "not comparable: another measurement",
        "unknown": "unknown: the files do not record enough",
    }
    rows = table.dicts()
    verdicts = {row["verdict"] for row in rows}
    texts = [text for verdict, text in notes.items() if verdict in verdicts]
    unknowns = Counter(text for row in rows for text in (row["unknown"] or "").split("; ") if text)
    return [
        *([f"Verdicts: {'; '.join(texts)}. Only comparable tasks have an official number."] if texts else []),
        *(f"Unknown for {format_count(count, 'task')}: {text}." for text, count in unknowns.items()),
    ]


HARNESS = Report(
    name="harness",
    title="Answers from other harnesses: their own score and lbx's (percent; points: lbx's minus theirs)",
    columns=(
        Column("model", "model"),
        Column("harness", "harness"),
        Column("harness_version", "version", optional=True, rank=3),
        Column("benchmark", "benchmark", rank=4),
        Column("task", "task"),
        Column("task_version", "task version", "quantity", optional=True, rank=3),
        Column("n", "scored", "count", rank=2),
        Column("harness_score", "harness's", "percent", decimals=2),
        Column("score", "lbx's", "percent", decimals=2),
        Column("difference", "points", "points", decimals=2),
        Column("verdict", "verdict"),
        Column("why", "why", optional=True, missing=""),
    ),
    notes=_harness_notes,
    empty="No run was imported from another evaluation harness.",
    reads="numbers",
    rows=table,
    page=PagePlace("Scores", 17, title="Answers from other harnesses"),
)
