"""Export of people's ratings in the format of L-Eval's rating page."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lbx.base.errors import LbxError, StoreError, UsageError
from lbx.base.layout import Bundle
from lbx.base.records import sha256_text
from lbx.benchmarks.base.prediction_lines import PredictionLine, read_bytes, split_rows
from lbx.opinions.rating_files.importing import PAGE_ROW, samples_by_question
from lbx.opinions.rating_files.pages import RatedDocument, fields, official_files, page_of, rated_page
from lbx.results import Store
from lbx.results.rows import stored_sample

_GOLD = "OpenLMLab/LEval/Predictions/human_eval/claude.gpt4.ref.jsonl"


def export_ratings(
    store: Store, set_id: str | None, rater: str | None, *, bundle: Bundle | None = None, documents: Path | None = None
) -> dict[str, str]:
    """Return one rater's files: {path in the folder: text}.

    An imported page is restored byte for byte; a set of ``lbx rate`` is written in the page's format.

    Args:
        set_id, rater: may be None if there is only one.
        bundle, documents: source of the documents: a bundle with L-Eval, or a file of lines with "input".

    Raises:
        UsageError: the set or rater does not exist, or a document is not found.
    """
    sets = store.query("SELECT set_id FROM rating_sets WHERE kind = 'score' ORDER BY ALL").rows
    selected_id = _select_name("set", [name for (name,) in sets], set_id, str(store.path))
    raters = store.query("SELECT DISTINCT rater FROM ratings WHERE set_id = ? ORDER BY ALL", [selected_id]).rows
    name = _select_name("rater", [rater_name for (rater_name,) in raters], rater, selected_id)
    texts = _Documents(store, bundle, documents)
    page_rows = store.query(
        "SELECT source_row FROM ratings WHERE set_id = ? AND rater = ? AND run_id = ? ORDER BY item, revision",
        [selected_id, name, PAGE_ROW],
    ).rows
    if page_rows:
        return _imported_files(store, selected_id, name, [json.loads(row[0]) for row in page_rows], texts)
    return _session_files(store, selected_id, name, texts)


def _select_name(kind: str, names: Sequence[str], name: str | None, location: str) -> str:
    """Return ``name``, or the only entry of ``names`` if it is None. Raises UsageError if neither exists."""
    if name in names:
        return str(name)
    if name is None and len(names) == 1:
        return names[0]
    fix = f"Choose one with --{kind}: {', '.join(names)}." if names else "There are no ratings to export."
    cause = (
        f"{location} contains ratings of {len(names)} {kind}s" if name is None else f"{location} has no {kind} {name!r}"
    )
    raise UsageError(f"{cause}.", fix=fix)


class _Documents(dict[str, str]):
    def __init__(self, store: Store, bundle: Bundle | None, path: Path | None) -> None:
        self._results = store.path
        files = [file for file in (path, bundle and bundle.file(_GOLD)) if file]
        texts = [line.text("input") for file in files for line in split_rows(file, read_bytes(file)).lines]
        if bundle:
            texts += [sample.context for same in samples_by_question(bundle).values() for sample in same.values()]
        super().__init__((sha256_text(text), text) for text in texts)

    def __missing__(self, digest: str | None) -> str:
        raise UsageError(
            f"A rated document is missing (SHA-256 {digest[:12]}...); {self._results} contains no documents."
            if digest
            else f"{self._results} does not record the document of a rated question.",
            fix="Pass the bundle with --bundle DIR, or the file from which the pages were made: --documents FILE.",
        )


def _imported_files(
    store: Store, set_id: str, rater: str, page_records: Sequence[Mapping[str, Any]], documents: Mapping[str, str]
) -> dict[str, str]:
    if not all(page_records):
        raise StoreError(
            f"A page of {rater!r} in {set_id!r} was not written in the official format, so its original text "
            "is not stored.",
            fix=f"Its ratings are in the table `ratings` of {store.path}.",
        )
    lines = []
    for page in page_records:
        document = json.dumps(documents[page["input_sha256"]], ensure_ascii=page["ascii"])
        lines.append((page["name"], page["before"] + document + page["after"]))
    pages = [_as_page(text, name) for name, text in lines]
    files = official_files(pages, rater)
    if all(name for name, _ in lines):
        return {f"jsons/{name}": text for name, text in lines} | files
    return files | {f"files_from_{rater}.jsonl": "".join(f"{text}\n" for _, text in lines)}


def _as_page(text: str, name: str) -> RatedDocument:
    return RatedDocument(PredictionLine("", 1, text, {}), name, fields(json.loads(text)))


def _session_files(store: Store, set_id: str, rater: str, documents: Mapping[str, str]) -> dict[str, str]:
    """Pages of a set of ``lbx rate``, one per document in the questions' order; rated if all answers are."""
    answers = store.query(
        """
        SELECT i.item, r.model, g.output, x.score, g.run_id
        FROM rating_sets s JOIN rating_items i USING (set_id)
        JOIN (FROM generations WHERE error IS NULL
              QUALIFY row_number() OVER (PARTITION BY run_id, benchmark, task, sample_id ORDER BY iteration) = 1) g
             ON (g.benchmark, g.task, g.sample_id) = (i.benchmark, i.task, i.sample_id)
             AND list_contains(s.runs::VARCHAR[], g.run_id)
        JOIN runs r USING (run_id)
        LEFT JOIN (FROM ratings WHERE rater = ? QUALIFY revision =
                   max(revision) OVER (PARTITION BY set_id, item, run_id, iteration)) x
             ON (x.set_id, x.item, x.run_id, x.iteration) = (i.set_id, i.item, g.run_id, g.iteration)
        WHERE s.set_id = ? ORDER BY i.position, i.item, list_position(s.runs::VARCHAR[], g.run_id)
        """,
        [rater, set_id],
    ).rows
    by_item: dict[int, list[tuple[str, str, float | None]]] = defaultdict(list)
    for item, model, output, score, run_id in answers:
        key = f"{model}_pred"
        key = f"{run_id}_pred" if any(key == other_key for other_key, _, _ in by_item[item]) else key
        by_item[item].append((key, output or "", score))
    questions: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in store.query(
        "SELECT i.item, a.* FROM rating_items i JOIN samples a USING (benchmark, task, sample_id) WHERE i.set_id = ? "
        "ORDER BY i.position, i.item",
        [set_id],
    ).dicts():
        questions[row["context_sha256"]].append(row)
    files, pages = {}, []
    for number, (digest, rows) in enumerate(questions.items()):
        name, page = _page(number, rows, by_item, documents[digest])
        text = json.dumps(page)
        files[f"jsons/{name}"] = text
        pages.append(_as_page(text, name))
    return files | official_files(pages, rater)


def _page(
    number: int,
    rows: Sequence[Mapping[str, Any]],
    by_item: Mapping[int, Sequence[tuple[str, str, float | None]]],
    document: str,
) -> tuple[str, dict[str, Any]]:
    samples = [stored_sample(row["benchmark"], row["task"], dict(row)) for row in rows]
    source = samples[0].meta.get("source") or samples[0].task
    gold = {
        "instructions": [sample.question for sample in samples],
        "outputs": [sample.references[0] if sample.references else "" for sample in samples],
        "input": document,
        "source": source,
        "evaluation": "human",
    }
    answers: dict[str, list[str]] = defaultdict(list)
    typed: dict[tuple[str, int], str] = {}
    for position, row in enumerate(rows):
        for key, text, score in by_item[row["item"]]:
            answers[key].append(text)
            if score is not None:
                typed[key, position] = f"{score:g}"
    if any(len(texts) != len(rows) for texts in answers.values()):
        raise LbxError(
            f"Not every run has answered every question on document {number}, but the official page has no gaps.",
            fix="Finish the runs, or rate a set of complete runs.",
        )
    page = page_of(gold, answers)
    rated = len(typed) == len(rows) * len(answers)
    return f"{number}_{'evaled' if rated else 'example'}.json", rated_page(page, typed) if rated else page
