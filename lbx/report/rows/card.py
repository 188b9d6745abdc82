"""The report ``card``: a sentence per benchmark on the leader, the uncertainty, and the longest text that works.

Benchmarks with the longest texts come first. Means over different tasks are not comparable, so runs of other tasks get
another sentence, after the sentences on the most runs of each benchmark. The order is the leaderboard's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from lbx.base.columns import Column
from lbx.base.units import format_count
from lbx.base.version import __version__
from lbx.report.draw.card import MOST_MODELS, Card, ModelLine, Sentence, Span, draw_card, plain_text
from lbx.report.draw.figures import Figure, FigureSource, point_of_row
from lbx.report.draw.svg import is_finite
from lbx.report.format.digits import short_length
from lbx.report.format.labels import Row, labels
from lbx.report.query import ReportQuery
from lbx.report.ranks import answered_part, read_ranked_scores, select_runs, sort_score
from lbx.report.report import Report
from lbx.report.rows import effective_context, leaderboard
from lbx.results import Store, Table
from lbx.results.rows import PROMPT_TOKENS
from lbx.results.scoring.score_columns import INTERVAL_COLUMNS, RUN_COLUMNS, as_table, runs_by_id

COLUMNS = (
    *RUN_COLUMNS, "benchmark", "tasks", "task_names", "runs", "n", "answered", "score", *INTERVAL_COLUMNS, "level_runs",
    "level_names", "alike_runs", "alike_names", "alike_scores", "n_alike", "few_documents", "works_to", "longest",
    "length_unit", "reach", "file_runs", "answers", "questions", "documents", "last_answer_at", "bundles",
    "attestation",
)  # fmt: skip
_MOST_NAMED = 2
_TOO_FEW = "unknown: too few questions per length"

_LENGTHS = """
    SELECT benchmark, coalesce(avg(g.original_tokens), avg(s.length))
    FROM generations g JOIN samples s USING (benchmark, task, sample_id) WHERE g.benchmark <> 'judge' GROUP BY ALL
"""
_FACTS = """
    SELECT count(*) AS answers, count(DISTINCT run_id) AS file_runs,
           count(DISTINCT (g.benchmark, g.task, g.sample_id)) AS questions,
           count(DISTINCT s.context_sha256) AS documents, max(g.created_at)::VARCHAR AS last_answer_at,
           list(DISTINCT r.bundle_digest ORDER BY r.bundle_digest) FILTER (WHERE r.bundle_digest <> '') AS bundles
    FROM generations g JOIN runs r USING (run_id) LEFT JOIN samples s USING (benchmark, task, sample_id)
    WHERE run_id NOT IN (SELECT judge_id FROM judges) AND (len($1::VARCHAR[]) = 0 OR list_contains($1, run_id))
"""


def table(store: Store, query: ReportQuery) -> Table:
    """Build the rows of the report: one per benchmark and set of tasks, with facts on the whole file in each."""
    who = runs_by_id(store)
    scores = {(row["run_id"], row["benchmark"]): row for row in select_runs(read_ranked_scores(store), query.runs)}
    name_of = labels(who[run] for run in dict.fromkeys(run for run, _ in scores))
    lengths = dict(store.query(_LENGTHS).rows)
    (facts,) = store.query(_FACTS, [list(query.runs)]).dicts()
    facts["attestation"] = query.attestation or None
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in leaderboard.table(store, query).dicts():
        if is_finite(row["score"]):
            tasks = scores[row["run_id"], row["benchmark"]]["done"]
            groups.setdefault((row["benchmark"], *tasks), []).append(row)
    thresholds = ReportQuery(runs=query.runs, keep_share=query.keep_share, keep_score=query.keep_score)
    reaches = effective_context.table(store, thresholds).dicts()
    lines = [
        who[group[0]["run_id"]]
        | {"benchmark": benchmark, "tasks": len(tasks), "task_names": ", ".join(tasks)}
        | _leader(group, name_of)
        | _reach(*select_curve(reaches, group[0]["run_id"], benchmark))
        | facts
        for (benchmark, *tasks), group in groups.items()
    ]
    lines.sort(key=lambda line: (-(lengths.get(line["benchmark"]) or 0), line["benchmark"], -line["runs"]))
    first = {line["benchmark"]: line for line in reversed(lines)}
    return as_table(COLUMNS, sorted(lines, key=lambda line: line is not first[line["benchmark"]]))


def _leader(rows: Sequence[Row], name_of: Mapping[str, str]) -> dict[str, Any]:
    """Describe the leader of runs on the same tasks, and the runs without a significant difference."""
    first = rows[0]
    level = [row for row in rows if _score_texts(row) == _score_texts(first)]
    alike = [row for row in rows if row not in level and _is_tied(first, row)]
    return {
        **{name: first[name] for name in ("n", "score", *INTERVAL_COLUMNS)},
        "answered": answered_part(first) or None,
        "runs": len(rows),
        "level_runs": [row["run_id"] for row in level],
        "level_names": [name_of[row["run_id"]] for row in level],
        "alike_runs": [row["run_id"] for row in alike],
        "alike_names": [name_of[row["run_id"]] for row in alike],
        "alike_scores": [row["score"] for row in alike],
        "n_alike": len(level) - 1 + len(alike),
        "few_documents": leaderboard.describe_few_documents(rows) or None,
    }


def _score_texts(row: Row) -> tuple[str, str]:
    """Format a score and the sort key, both rounded as in a table."""
    return f"{100 * row['score']:.1f}", f"{100 * sort_score(row):.1f}"


def _is_tied(first: Row, row: Row) -> bool:
    if first.get("ties"):
        return bool({*first["ties"]} & {*row["ties"]})
    return str(row["place"]).partition("-")[0] == "1"


def select_curve(rows: Iterable[Row], run: str, benchmark: str) -> tuple[list[Row], list[Row]]:
    """Rows of a run in the report ``effective_context``, and the rows by length, in prompt tokens if known."""
    of_run = [row for row in rows if (row["run_id"], row["benchmark"]) == (run, benchmark)]
    units = dict.fromkeys(row["length_unit"] for row in of_run if row["tasks"])
    unit = PROMPT_TOKENS if PROMPT_TOKENS in units else next(iter(units), None)
    return of_run, [row for row in of_run if row["length_unit"] == unit and row["length_up_to"] is not None]


def _reach(rows_of_run: Sequence[Row], curve: Sequence[Row]) -> dict[str, Any]:
    """Describe the length to which a run works."""
    if not curve:
        return {"reach": _TOO_FEW if rows_of_run else None}
    effective, longest = curve[0]["effective"], max(row["length_up_to"] for row in curve)
    unit = str(curve[0]["length_unit"]).removeprefix("prompt ")
    if effective is None:
        reach = f"no claim: {curve[0]['why']}" if curve[0]["why"] else "no claim"
    elif effective == longest:
        reach = f"{short_length(effective)} {unit}, the longest texts"
    else:
        reach = f"{short_length(effective)} of {short_length(longest)} {unit}"
    return {"works_to": effective, "longest": longest, "length_unit": curve[0]["length_unit"], "reach": reach}


def sentence(row: Row, tasks: str = "") -> Sentence:
    """Sentence on the leader of a row's runs, as spans. ``tasks`` distinguishes runs of the same benchmark."""
    where = [Span(row["benchmark"], is_strong=True)]
    if tasks:
        where.append(Span(f", {tasks},"))
    level, alike = _run_spans(row, "level"), _run_spans(row, "alike")
    if row["runs"] == 1:
        where = [Span(piece.text.rstrip(","), is_strong=piece.is_strong) for piece in where]
        pieces = [level[0], Span(f" scores {_score(row)} on "), *where]
    elif len(level) > 1:
        pieces = [
            *_and(level, 3),
            Span(" share the first place on "),
            *where,
            Span(f" with {100 * row['score']:.1f}"),
        ]
    else:
        verb = "comes first on" if alike else "leads"
        pieces = [level[0], Span(f" {verb} "), *where, Span(f" with {_score(row)}")]
    if row["works_to"] is not None:
        pieces.append(Span(f" and works to {row['reach']}"))
    elif row["longest"] is not None:
        pieces.append(Span(f", {row['reach'].replace('no claim', 'no claim about length', 1)}"))
    if row["few_documents"]:
        pieces.append(Span(f"; {row['few_documents']}"))
    elif alike:
        scores = dict(zip(row["alike_runs"], row["alike_scores"], strict=True))
        pieces.append(Span("; "))
        for piece in _and(alike, _MOST_NAMED):
            pieces += [piece, Span(f" ({100 * scores[piece.run_id]:.1f})")] if piece.run_id else [piece]
        pieces.append(Span(" may be as good"))
    return [*pieces, Span(".")]


def brief_sentence(row: Row, max_names: int) -> Sentence:
    """Sentence for a card, with the names of some of the runs that may be as good."""
    level, alike = _run_spans(row, "level"), _run_spans(row, "alike")
    others = [*level[1:], *alike]
    pieces = [Span(row["benchmark"], is_strong=True), Span(": "), level[0], Span(f" {_score(row)}")]
    if row["longest"] is not None:
        pieces.append(Span(", no length claimed" if row["works_to"] is None else f", works to {row['reach']}"))
    if row["few_documents"]:
        pieces.append(Span(f"; {row['few_documents']}"))
    elif others and not max_names:
        pieces.append(Span(f"; {len(others):,} {'other' if len(others) == 1 else 'others'} may be as good"))
    elif others:
        pieces += [Span("; "), *_and(others, max_names), Span(" may be as good")]
    return [*pieces, Span(".")]


def _score(row: Row) -> str:
    score = f"{100 * row['score']:.1f}"
    low, high = row.get("low"), row.get("high")
    score += "" if low is None or high is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{score} over {row['answered']}" if row["answered"] else score


def _run_spans(row: Row, kind: str) -> list[Span]:
    return [Span(name, run) for run, name in zip(row[f"{kind}_runs"], row[f"{kind}_names"], strict=True)]


def _tasks(row: Row, *, has_twin: bool) -> str:
    """Number of tasks, with names if other runs did the same number of other tasks."""
    names = str(row["task_names"]).split(", ")
    first = f"{', '.join(names[:3])}, ..." if len(names) > 3 else ", ".join(names)
    return format_count(row["tasks"], "task") + (f" ({first})" if has_twin else "")


def _and(pieces: Sequence[Span], max_names: int) -> list[Span]:
    """Join names by commas and "and". If there are at least two more than ``max_names``, count the others."""
    items = (
        [*pieces[:max_names], Span(f"{len(pieces) - max_names:,} more")] if len(pieces) > max_names + 1 else [*pieces]
    )
    joined: list[Span] = []
    for at, item in enumerate(items):
        joined += [Span(" and " if at == len(items) - 1 else ", "), item] if at else [item]
    return joined


def sentences(rows: Sequence[Row]) -> list[tuple[Row, Sentence]]:
    """Pairs (row, sentence) of the report."""
    groups, sizes = (Counter(key(row) for row in rows) for key in (itemgetter("benchmark"), _size))
    return [
        (row, sentence(row, _tasks(row, has_twin=sizes[_size(row)] > 1) if groups[row["benchmark"]] > 1 else ""))
        for row in rows
    ]


def _size(row: Row) -> tuple[str, int]:
    return row["benchmark"], row["tasks"]


def facts(row: Row) -> list[str]:
    """Facts on the whole file: answers, last answer, bundle, version, attestation."""
    documents = f" on {row['documents']:,} documents" if row["documents"] else ""
    texts = [f"{row['answers']:,} answers to {row['questions']:,} questions{documents}"]
    if row["last_answer_at"]:
        texts.append(f"last answer {row['last_answer_at'][:10]}")
    bundles = row["bundles"] or []
    texts.append(f"bundle {bundles[0][:12]}" if len(bundles) == 1 else f"{len(bundles)} bundles" if bundles else
                 "bundle unknown")  # fmt: skip
    return [*texts, f"lbx {__version__}", row["attestation"] or "not attested"]


def _notes(table: Table) -> list[str]:
    rows = table.dicts()
    return [*(plain_text(words) for _, words in sentences(rows)), f"Source: {'; '.join(facts(rows[0]))}."]


def first_rows(rows: Sequence[Row]) -> list[Row]:
    """First row of each benchmark, which a card shows."""
    first: dict[str, Row] = {}
    for row in rows:
        first.setdefault(row["benchmark"], row)
    return list(first.values())


def _draw_figures(source: FigureSource) -> Iterator[Figure]:
    rows = source.rows("card")
    if rows:
        yield Figure(f"Card of {source.file}", _card_svg(source, rows), is_standalone=True)


def _card_svg(source: FigureSource, rows: Sequence[Row]) -> str:
    shown = [
        {**row, **{f"{kind}_names": [source.label(run) for run in row[f"{kind}_runs"]] for kind in ("level", "alike")}}
        for row in first_rows(rows)
    ]
    first_row = next((row for row in shown if row["works_to"] is not None), shown[0])
    first = first_row["benchmark"]
    models = [
        row
        for row in source.rows("leaderboard")
        if (row["benchmark"], row["tasks"]) == (first, first_row["tasks"]) and is_finite(row["score"])
    ]
    lengths = source.rows("effective_context")
    lines = [_model_line(source, row, select_curve(lengths, row["run_id"], first)[1]) for row in models[:MOST_MODELS]]
    texts = [[words, *(brief_sentence(row, most) for most in (2, 1, 0))] for row, words in sentences(shown)]
    title = f"{source.file}: {format_count(shown[0]['file_runs'], 'run')}"
    return draw_card(Card(title, texts, first, lines, len(models), facts(shown[0])))


def _model_line(source: FigureSource, row: Row, curve: Sequence[Row]) -> ModelLine:
    known = [point for point in curve if is_finite(point["score"])]
    effective = curve[0]["effective"] if curve else None
    kept = sum(effective is not None and point["length_up_to"] <= effective for point in known)
    reach = "" if not curve else "–" if effective is None else short_length(effective)
    run = row["run_id"]
    return ModelLine(
        source.label(run),
        source.mark_of(run),
        point_of_row(row),
        [100 * point["score"] for point in known],
        kept,
        reach,
        f"{sort_score(row):.3f}" != f"{row['score']:.3f}",
    )


CARD = Report(
    name="card",
    title="Card (leaders of the benchmarks, scores in percent)",
    columns=(
        Column("benchmark", "benchmark"),
        Column("tasks", "tasks", "count", rank=5),
        Column("run_id", "first"),
        Column("n", "scored", "count", rank=4),
        Column("score", "score", "percent", interval=True),
        Column("runs", "runs", "count", rank=3),
        Column("n_alike", "may be as good", "count", rank=1),
        Column("reach", "works to", missing="", rank=2),
    ),
    notes=_notes,
    empty=leaderboard.LEADERBOARD.empty,
    read_notes=leaderboard.read_reasons,
    reads="coverage",
    takes=("--keep-share", "--keep-score"),
    rows=table,
    draw=_draw_figures,
)
