"""Choice of questions for raters, from the answers of runs, and their documents."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lbx.base.errors import UsageError
from lbx.base.layout import Bundle
from lbx.base.records import sha256_text
from lbx.benchmarks.base.benchmark import BY_NAME, marks_in, needs_model
from lbx.benchmarks.judge import JudgeBenchmark
from lbx.benchmarks.registry import BENCHMARKS
from lbx.judging.rating_sets import PAIR, Item, RatingAnswer, RatingSet, agreement_sample, make_pairs
from lbx.judging.task_texts import task_text
from lbx.store.answers import matches_pattern
from lbx.store.rows import stored_sample

if TYPE_CHECKING:
    from lbx.store import Store

OPEN_METRICS = frozenset({"f1", "keyword_f1", "rouge_l", "geometric_mean", "summary"})
"""Headline metrics of free-text answers, which people might judge better."""


def make_rating_set(
    store: Store,
    runs: Sequence[str],
    *,
    kind: str,
    questions: str | None = None,
    patterns: Sequence[str] = (),
    limit: int | None = None,
    scale: tuple[int, int] = (1, 5),
    seed: int = 0,
    raters_per_item: int | None = None,
    agreement: float = 0.2,
    bundle: Bundle | None = None,
    criterion: str = "",
) -> tuple[RatingSet, int]:
    """Make a set of the questions that all of these runs have answered.

    Args:
        runs: () for all runs with answers in the file.
        questions: "human", "llm", "both", "open" or "all"; None for the first of human, open, all that has any.
        patterns: see ``store.answers.Choice``.
        limit: number of questions.
        criterion: see ``RatingSet``.

    Returns:
        The set, and the number of pairs left out because their answers are equal.

    Raises:
        UsageError: there are no questions, or fewer than two runs for pairs.
    """
    answers = _answered_questions(store, runs, patterns, bundle)
    runs = tuple(runs or dict.fromkeys(sorted(answer.run_id for _, item in answers for answer in item.answers)))
    if kind == PAIR and len(runs) < 2:
        raise UsageError("Pairs need the answers of at least two runs.", fix="Pass them with --run A --run B.")
    common = [(marks, item) for marks, item in answers if {a.run_id for a in item.answers} == {*runs}]
    source, selection = _select_questions(common, questions)
    if not selection:
        raise UsageError(
            f"{store.path} contains no question{'' if questions is None else f' of the kind {questions!r}'} "
            f"that all of these runs have answered: {', '.join(runs) or 'no runs'}.",
            fix="`lbx show` lists the answered questions; --questions all includes all of them.",
        )
    items, equal = make_pairs(selection[:limit]) if kind == PAIR else (selection[:limit], 0)
    if not items:
        raise UsageError(f"The answers of {' and '.join(runs)} are all equal, so there are no pairs to compare.")
    numbered = agreement_sample([replace(item, number=number) for number, item in enumerate(items)], agreement, seed)
    digest = bundle.digest if bundle else None
    return RatingSet(kind, source, runs, numbered, *scale, seed, raters_per_item, digest, criterion), equal


def _answered_questions(
    store: Store, runs: Sequence[str], patterns: Sequence[str], bundle: Bundle | None
) -> list[tuple[frozenset[str], Item]]:
    """Questions with their marks and the first answer of each run, in the data's order."""
    rows = store.query(
        f"""
        SELECT g.run_id, g.benchmark, g.task, g.sample_id, g.iteration, coalesce(g.output, '') AS output, s.question,
               s."references", s.meta, s.language, s.length, s.length_unit, s.context_sha256 AS document, h.metric
        FROM generations g JOIN samples s USING (benchmark, task, sample_id)
        LEFT JOIN (SELECT DISTINCT benchmark, task, metric FROM scores WHERE headline) h USING (benchmark, task)
        WHERE g.error IS NULL AND (len($1) = 0 OR list_contains($1, g.run_id)) AND g.benchmark <> $2
            AND (len($3) = 0 OR {matches_pattern("g", "$3")})
        QUALIFY row_number() OVER (PARTITION BY g.run_id, benchmark, task, sample_id ORDER BY g.iteration, h.metric) = 1
        ORDER BY g.benchmark, g.task, s.position, g.sample_id
        """,  # noqa: S608 (our own names)
        [list(runs), JudgeBenchmark.name, list(patterns)],
    ).dicts()
    order = {run: at for at, run in enumerate(runs)}
    questions: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        questions.setdefault((row["benchmark"], row["task"], row["sample_id"]), []).append(row)
    return [
        _question(sorted(same, key=lambda r: (order.get(r["run_id"], 0), r["run_id"])), bundle)
        for same in questions.values()
    ]


def _question(rows: Sequence[Mapping[str, Any]], bundle: Bundle | None) -> tuple[frozenset[str], Item]:
    row = rows[0]
    marks = {*marks_in(json.loads(row["meta"]))}
    references = json.loads(row["references"])
    if row["metric"] in OPEN_METRICS or marks:
        marks.add("open")
    item = Item(
        0,
        row["benchmark"],
        row["task"],
        row["sample_id"],
        row["question"],
        tuple(map(str, references)) if isinstance(references, list) else (),
        row["document"] or "",
        tuple(RatingAnswer(answer["run_id"], answer["iteration"], answer["output"]) for answer in rows),
        task_text(bundle, stored_sample(row["benchmark"], row["task"], row), row["document"] or ""),
    )
    return frozenset(marks), item


def _select_questions(common: Sequence[tuple[frozenset[str], Item]], questions: str | None) -> tuple[str, list[Item]]:
    for name in (questions,) if questions else ("human", "open", "all"):
        allowed_marks = {*BY_NAME.get(name, ("open",))}
        if selection := [item for marks, item in common if name == "all" or marks & allowed_marks]:
            return name, selection
    return questions or "all", []


def documents(bundle: Bundle, items: Collection[Item]) -> dict[str, str]:
    """{``Item.document_key``: text} for documents in the bundle.

    For a question without a known document (an import), use the bundle's sample with the same name and wording. The
    documents of families that need a model are left out.
    """
    texts: dict[str, str] = {}
    for benchmark, task in sorted({(item.benchmark, item.task) for item in items}):
        task_items = [item for item in items if (item.benchmark, item.task) == (benchmark, task)]
        digests = {item.document for item in task_items} - {""}
        unknown = {item.sample_id: item for item in task_items if not item.document}
        family = BENCHMARKS[benchmark]
        if needs_model(family) or not any(bundled.name == task for bundled in family.tasks(bundle, [task])):
            continue
        for sample in family.samples(bundle, task):
            item = unknown.get(sample.sample_id)
            if item and item.question == sample.question:
                texts[item.document_key] = sample.context
            if digests and (digest := sha256_text(sample.context)) in digests:
                texts[digest] = sample.context
    return texts
