"""Sentences on the findings in a results file, and page sections on the settings and failures of runs."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from lbx.base.columns import Column
from lbx.base.errors import UsageError
from lbx.base.marks import MARKS
from lbx.base.visible import one_line
from lbx.opinions.fitness import FIT
from lbx.report.draw.card import Span
from lbx.report.draw.figures import MOST_RUNS
from lbx.report.format.labels import Row
from lbx.report.page.html import Html, Section, html, quiet, run_name, table, tag, truncate_text
from lbx.report.page.scoreboard import coverage_words
from lbx.report.page.source import PageSource
from lbx.report.rows.card import CARD, sentences
from lbx.report.rows.comparison import average_rows
from lbx.report.rows.decision import RunName, paragraphs

_MANY = 0.05
"""Share of a run's answers above which the page mentions a mark."""
_LONGEST_MESSAGE = 160
_DIGITS = re.compile(r"\d+")


def remarks(source: PageSource) -> list[Html]:
    """Write sentences on problems of the results, the most important first."""
    return [
        *_partial_scores(source),
        *_failures(source),
        *_guards(source),
        *_unfinished_runs(source),
        *_judges(source),
    ]


def leading_sentences(source: PageSource) -> list[tuple[str, Html]]:
    """Write (benchmark, sentence) of the report ``card``. The first ones are on the card."""
    return [
        (row["benchmark"], Html("".join(map(partial(_piece, source), words))))
        for row, words in sentences(source.rows(CARD.name))
    ]


def _piece(source: PageSource, piece: Span) -> Html:
    if piece.run_id:
        return _run_tag(source, {"run_id": piece.run_id})
    return tag("b", piece.text) if piece.is_strong else html(piece.text)


def _and(names: Sequence[str], most: int = 3) -> str:
    """Join names by commas and "and". If there are at least two more than ``most``, count the others."""
    items = [*names[:most], f"{len(names) - most:,} more"] if len(names) > most + 1 else names
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1]))) if items else ""


def pair_sentences(source: PageSource) -> dict[str, dict[str, str]]:
    """Sentences on the difference of each pair of few runs: {benchmark: {marks of both runs: sentence}}."""
    ranked = dict.fromkeys(row["run_id"] for row in source.rows("leaderboard") if row.get("ties"))
    if source.store is None or not 2 <= len(ranked) <= MOST_RUNS:
        return {}
    query = replace(source.query, runs=list(ranked), baseline="", baseline_file=None, allow_different_settings=True)
    found: dict[str, dict[str, str]] = {}
    for row in average_rows(source.store, query):
        first, second = sorted(source.runs[row[side]].mark for side in ("run_a", "run_b"))
        if row["difference"] is not None:
            found.setdefault(row["benchmark"], {}).setdefault(f"{first} {second}", _pair_sentence(source, row))
    return found


def _pair_sentence(source: PageSource, row: Row) -> str:
    is_clustered = row["clusters"] and row["cluster_by"] != "sample"
    documents = f" on {row['clusters']:,} {row['cluster_by']}s" if is_clustered else ""
    caution = f" Caution: {row['caution']}." if row["caution"] else ""
    return one_line(
        f"{source.label(row['run_b'])} minus {source.label(row['run_a'])}: {_points(row)} points, from the "
        f"{row['n']:,} questions{documents} that both answered; {row['verdict']}.{caution}"
    )


def _points(row: Row) -> str:
    low, high = row.get("low"), row.get("high")
    between = "" if low is None or high is None else f" [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"{100 * row['difference']:+.1f}{between}"


def decisions(source: PageSource) -> list[Html]:
    """Write the paragraphs of the report ``decision``, or none if it refuses to compare."""
    try:
        rows = source.rows("decision")
    except UsageError:
        return []
    return [Html("").join(_words(source, part) for part in sentence) for sentence in paragraphs(rows)]


def _words(source: PageSource, part: str | RunName) -> Html:
    return _run_tag(source, {"run_id": part.run_id}) if isinstance(part, RunName) else html(part)


def _judges(source: PageSource) -> Iterator[Html]:
    for judge, verdict, why in dict.fromkeys(
        (row["label_judge"], row["fitness"], row["why"]) for row in source.rows("judge_results")
    ):
        if verdict != FIT:
            yield Html(f"The judge {tag('i', str(judge))} is {tag('b', verdict)}: {tag('span', why)}.")


def _partial_scores(source: PageSource) -> Iterator[Html]:
    for benchmark, rows in _group_by(source.rows("leaderboard"), "benchmark"):
        parts = [f"{_run_tag(source, row)} ({words})" for row in rows if (words := coverage_words(row))]
        if parts:
            yield Html(f"Scores of {tag('b', str(benchmark))} over a part of the answers: {_and(parts)}.")


def _failures(source: PageSource) -> Iterator[Html]:
    """Yield a sentence on failed answers for each benchmark and cause, with the runs concerned."""
    causes: dict[tuple[str, str], Row] = {}
    for row in source.failures():
        causes.setdefault((row["run_id"], row["benchmark"]), row)
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in source.rows("leaderboard"):
        if row["failed"]:
            cause = causes.get((row["run_id"], row["benchmark"]))
            message = _DIGITS.sub("0", str(cause["error"])[:_LONGEST_MESSAGE]) if cause else ""
            groups.setdefault((row["benchmark"], message), []).append(row)
    for (benchmark, _), rows in groups.items():
        rows.sort(key=lambda row: -row["failed"])
        cause = causes.get((rows[0]["run_id"], benchmark))
        why = f": {tag('q', truncate_text(str(cause['error']), _LONGEST_MESSAGE))}" if cause else ""
        names = _and([f"{_run_tag(source, row)} on {row['failed']:,}{_failure_bounds(row)}" for row in rows])
        yield Html(f"Failed answers of {tag('b', benchmark)}: {names}{why}.".replace(".</q>.", ".</q>"))


def _failure_bounds(row: Row) -> str:
    """Describe the bounds of a score with all failed answers wrong or all right, or "" if they are unknown."""
    low, high = row.get("failed_as_0"), row.get("failed_as_1")
    if low is None or high is None:
        return ""
    return f" (score between {100 * low:.1f} and {100 * high:.1f})"


def _benchmark_tag(row: Row) -> Html:
    return tag("b", str(row["benchmark"]))


def _guards(source: PageSource) -> Iterator[Html]:
    """Yield a sentence for each mark of possible faults, with the runs concerned."""
    for mark in (candidate for candidate in MARKS if candidate.name != "failed"):
        shares = []
        for run, rows in _group_by(source.rows("guards"), "run_id"):
            known_rows = [row for row in rows if row.get(mark.name) is not None]
            marked, total = sum(row[mark.name] for row in known_rows), sum(row["n"] for row in known_rows)
            if total and (marked > _MANY * total or (marked and mark.severity == "fault")):
                shares.append((marked / total, marked, total, run))
        if shares:
            shares.sort(reverse=True)
            names = [
                f"{_run_tag(source, {'run_id': run})} {marked:,} of {total:,} ({share:.0%})"
                for share, marked, total, run in shares
            ]
            yield Html(f"{mark.plural[0].upper()}{mark.plural[1:]}: {_and(names)}.")


def _unfinished_runs(source: PageSource) -> Iterator[Html]:
    runs = [run for run in source.runs.values() if run.row["status"] != "done"]
    if runs:
        names = [f"{run_name(run.mark, run.label)} ({tag('i', str(run.row['status']))})" for run in runs]
        yield Html(f"Not finished: {_and(names)}.")


def _run_tag(source: PageSource, row: Row) -> Html:
    mark = source.mark(row["run_id"])
    return run_name(mark, source.label(row["run_id"])) if mark is not None else tag("span", str(row["run_id"]))


def _group_by(rows: Sequence[Row], name: str) -> Collection[tuple[Any, list[Row]]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[name], []).append(row)
    return groups.items()


def settings(source: PageSource) -> Section:
    """Build the section with tables of every run's settings, bundle and hardware."""
    columns = [Column(name, heading) for name, heading in _RUN_COLUMNS.items()]
    runs = list(source.runs.values())
    body = [
        [run_name(run.mark, run.label), *(_cell_text(run.row[name]) for name in list(_RUN_COLUMNS)[1:])] for run in runs
    ]
    first = table("Runs", columns, body, marks=[run.mark for run in runs])
    names = sorted({name for run in runs for name in settings_of(run.row)})
    rows = [
        [run_name(run.mark, run.label), *(_cell_text(settings_of(run.row).get(name)) for name in names)] for run in runs
    ]
    alike = [i for i in range(1, len(names) + 1) if len({row[i] for row in rows}) == 1]
    same = "; ".join(f"{names[i - 1]} {rows[0][i]}" for i in alike) if len(rows) > 1 else ""
    indices = [i for i in range(len(names) + 1) if not same or i not in alike]
    heads = [Column("run", "run"), *(Column(name, name) for name in names)]
    second = table(
        "Settings",
        [heads[i] for i in indices],
        [[row[i] for i in indices] for row in rows],
        marks=[run.mark for run in runs],
    )
    note = [quiet(f"The same in all runs: {same}.")] if same else []
    return Section("runs", "Runs, settings and bundles", [first, *note, second])


def failures(source: PageSource) -> Section | None:
    """Build the section with a table of failures by message, or return None without failures."""
    rows = source.failures()
    if not rows:
        return None
    columns = (Column("run", "run"), Column("benchmark", "benchmark"), Column("error", "message"))
    marks = [source.mark_of(row["run_id"]) for row in rows]
    body = [
        [run_name(mark, source.label(row["run_id"])), row["benchmark"], row["error"], f"{row['n']:,}"]
        for row, mark in zip(rows, marks, strict=True)
    ]
    failure_table = table(
        "Failures by message", [*columns, Column("n", "times", "count")], body, marks=marks, benchmark=""
    )
    return Section("failures", "Failures", [failure_table])


_RUN_COLUMNS = {
    "label": "run", "run_id": "name", "status": "status", "backend": "backend", "backend_version": "version",
    "bundle_digest": "bundle digest", "lbx_version": "lbx", "started_at": "started (UTC)", "finished_at": "finished",
    "hardware": "hardware",
}  # fmt: skip


def settings_of(row: Mapping[str, Any]) -> dict[str, Any]:
    settings = json.loads(row["settings"] or "{}")
    return settings if isinstance(settings, dict) else {}


def _cell_text(value: object) -> str:
    text = "" if value is None else value if isinstance(value, str) else str(value)
    if isinstance(value, datetime):
        text = value.isoformat(" ", "seconds")
    if isinstance(value, (dict, list)):
        text = json.dumps(value, ensure_ascii=False)
    return truncate_text(text, 200)
