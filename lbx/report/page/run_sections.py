"""Sections of a page about one run each: settings, lengths, weakest tasks, marks, lowest answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lbx.base.columns import Column
from lbx.base.marks import MARKS
from lbx.report.draw.figures import figures
from lbx.report.format.labels import Row
from lbx.report.page.html import Html, Section, drawings, run_name, table, tag, truncate_text
from lbx.report.page.sections import strip_table
from lbx.report.page.source import PageSource
from lbx.report.rows.effective_context import strips
from lbx.results.file.texts import texts_of

_WEAKEST, _LOWEST = 5, 3
_SETTINGS = ("context_window", "dtype", "cache_type_k", "chat", "max_prompt_tokens", "mode", "rag")
_FACTS = {
    "backend": "backend", "backend_version": "version", "status": "status", "bundle_digest": "bundle digest",
    "lbx_version": "lbx",
}  # fmt: skip

# The lowest answers first, and of equal ones those to questions that another run answered best.
_ANSWERS = f"""
    WITH scored AS (
        SELECT run_id, benchmark, task, sample_id, iteration, score,
               max(score) OVER (PARTITION BY benchmark, task, sample_id) AS best
        FROM scores WHERE headline AND isfinite(score) AND run_id IN (SELECT unnest($1::VARCHAR[]))
        QUALIFY row_number() OVER (PARTITION BY run_id, benchmark, task, sample_id ORDER BY score, iteration) = 1
    ), ranked AS (
        SELECT s.*, left(g.output, 600) AS output, row_number() OVER (
            PARTITION BY run_id ORDER BY score, best DESC, md5(sample_id || task)) AS place
        FROM scored s JOIN generations g USING (run_id, benchmark, task, sample_id, iteration) WHERE g.error IS NULL
    )
    SELECT r.*, left(s.question, 300) AS question, s."references"::VARCHAR AS refs
    FROM ranked r LEFT JOIN samples s USING (benchmark, task, sample_id) WHERE place <= {_LOWEST} ORDER BY run_id, place
"""  # noqa: S608 (our run_scores names)


def run_sections(source: PageSource) -> Iterator[Section]:
    """Build a section for each of the best runs with scores."""
    if source.store is None:
        return
    scores = [row for row in source.rows("task_scores") if row["headline"] and row["score"] is not None]
    by_run: dict[str, list[Row]] = {}
    for row in scores:
        by_run.setdefault(row["run_id"], []).append(row)
    runs = [run for run in source.runs.values() if run.run_id in by_run and run.anchor]
    answers: dict[str, list[Row]] = {}
    if texts_of(source.store) is None:
        for row in source.store.query(_ANSWERS, [[run.run_id for run in runs]]).dicts():
            answers.setdefault(row["run_id"], []).append(row)
    maps = figures(source, "needles")
    for run in runs:
        run_scores = by_run[run.run_id]
        parts = [
            _settings(run.row),
            *_lengths(source, run.run_id),
            *drawings(figure for figure in maps if figure.mark == run.mark),
            *_weakest_tasks(source, run.run_id, run_scores, scores),
            *_marks(source, run.run_id),
            *_lowest_answers(answers.get(run.run_id, ())),
        ]
        yield Section(run.anchor, f"Model: {run.label}", parts)


def _settings(row: Row) -> Html:
    settings = json.loads(row["settings"] or "{}")
    facts = [(heading, row[name]) for name, heading in _FACTS.items()]
    if isinstance(settings, dict):
        facts += [(name.replace("_", " "), settings[name]) for name in _SETTINGS if settings.get(name) is not None]
    items = (f"{heading} {_fact_text(value)}" for heading, value in facts if value not in (None, ""))
    return tag("p", "; ".join(items))


def _fact_text(value: object) -> str:
    return truncate_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 80)


def _lengths(source: PageSource, run_id: str) -> Iterator[Html]:
    for strip in strips(source.rows("effective_context")):
        rows = [row for row in strip.rows if row.key == run_id]
        if rows:
            yield strip_table(source, replace(strip, rows=rows), f"{source.label(run_id)}: {strip.title}")


def _weakest_tasks(source: PageSource, run_id: str, run_scores: Sequence[Row], scores: Sequence[Row]) -> Iterator[Html]:
    """Table of the tasks with the largest deficits against the best other run."""
    best: dict[tuple[str, str], Row] = {}
    for row in scores:
        key = (row["benchmark"], row["task"])
        if row["run_id"] != run_id and (key not in best or row["score"] > best[key]["score"]):
            best[key] = row
    pairs = [(row, best[key]) for row in run_scores if (key := (row["benchmark"], row["task"])) in best]
    pairs = [(row, other) for row, other in pairs if other["score"] > row["score"]]
    pairs.sort(key=lambda pair: pair[0]["score"] - pair[1]["score"])
    if not pairs:
        return
    columns = (
        Column("benchmark", "benchmark"),
        Column("task", "task"),
        Column("score", "score", "percent"),
        Column("behind", "behind the best", "points"),
        Column("best", "best run"),
        Column("n", "scored", "count"),
    )
    body = [
        [
            row["benchmark"],
            row["task"],
            f"{100 * row['score']:.1f}",
            f"{100 * (row['score'] - other['score']):+.1f}",
            run_name(source.mark_of(other["run_id"]), source.label(other["run_id"])),
            f"{row['n']:,}",
        ]
        for row, other in pairs[:_WEAKEST]
    ]
    yield table(f"Tasks on which {source.label(run_id)} is farthest behind the best run", columns, body)


def _marks(source: PageSource, run_id: str) -> Iterator[Html]:
    rows = [row for row in source.rows("guards") if row["run_id"] == run_id]
    counts = []
    for mark in MARKS:
        known = [row for row in rows if row.get(mark.name) is not None]
        if marked := sum(row[mark.name] for row in known):
            counts.append(f"{mark.plural}: {marked:,} of {sum(row['n'] for row in known):,}")
    if counts:
        yield tag("p", f"Marks: {'; '.join(counts)}.")


def _lowest_answers(answers: Sequence[Row]) -> Iterator[Html]:
    if not answers:
        return
    yield tag("h3", "Lowest answers")
    for row in answers:
        yield tag(
            "article",
            tag("p", tag("b", f"{100 * row['score']:.1f}"), f" {row['benchmark']}/{row['task']}/{row['sample_id']}"),
            tag("dl", *_texts(row)),
        )


def _texts(row: Mapping[str, Any]) -> Iterator[Html]:
    names = {"question": row["question"], "reference": _first_reference(row["refs"]), "answer": row["output"]}
    for name, text in names.items():
        if text:
            yield tag("dt", name)
            yield tag("dd", text)


def _first_reference(references: str | None) -> str:
    values = json.loads(references or "[]")
    return truncate_text(str(values[0]), 300) if isinstance(values, list) and values else ""
