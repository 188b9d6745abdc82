"""Import of L-Eval's rating pages to the results file, and export of ratings as such pages.

A page becomes a set of questions, runs of the rated answers, and ratings. The page's content except the document is
stored verbatim, so that anyone with the document can restore the page byte for byte.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import LbxError, StoreError, UsageError
from lbx.base.records import Sample, canonical_json, sha256_text
from lbx.benchmarks.base.prediction_lines import PredictionLine, read_bytes, split_rows
from lbx.benchmarks.base.predictions import judged_sample
from lbx.benchmarks.registry import BENCHMARKS
from lbx.exchange.prediction_files import find_format
from lbx.opinions.aggregation import write_ratings
from lbx.opinions.rating_pages import (
    HIGHEST,
    LOWEST,
    RATING_FORMAT,
    RatedDocument,
    RatedQuestion,
    RatingFiles,
    make_page,
    mean_ratings,
    official_files,
    page_fields,
    rated_page,
)
from lbx.opinions.rating_rows import RatingItemRow, RatingRow, RatingSetRow
from lbx.results import GenerationRow, SampleRow, Store
from lbx.results.file.imports import make_import_row, write_import
from lbx.results.rows import stored_sample

NAME = "leval"
PAGE_ROW = ""
"""``ratings.run_id`` of the row that stores a page."""
_GOLD = "OpenLMLab/LEval/Predictions/human_eval/claude.gpt4.ref.jsonl"


@dataclass(frozen=True, slots=True)
class ImportedRatings:
    """Ratings that ``import_ratings`` wrote.

    Attributes:
        questions, ratings: numbers of questions and ratings.
        runs: {key of the page: run with the answers under this key}.
        new_runs: names of these runs that the import created.
        means: {key: mean rating, as on the page}.
        notes: a sentence for each change or omission.
    """

    set_id: str
    rater: str
    questions: int
    ratings: int
    runs: Mapping[str, str]
    new_runs: Sequence[str]
    means: Mapping[str, float]
    notes: tuple[str, ...]


def import_ratings(
    store: Store, files: RatingFiles, *, bundle: Bundle | None = None, set_id: str | None = None
) -> ImportedRatings:
    """Write files of L-Eval's page to the results file. Repeating an import replaces the same rows.

    Args:
        bundle: bundle with the samples that are matched with questions.
        set_id: name of the set. The default is "leval-people-" with the content's hash, so that other raters of the
            same pages join the set.

    Raises:
        UsageError: a file is malformed.
        StoreError: the results file contains other samples under the same names, or cannot be written.
    """
    name = set_id or f"leval-people-{files.content_sha256[:8]}"
    questions = _match_questions(files, bundle)
    store.write(samples=[SampleRow(question.sample, position) for position, question in enumerate(questions)])
    by_run: dict[str, _AnswerTexts] = defaultdict(list)
    for question in questions:
        for answer in question.question.answers:
            by_run[answer.key].append(((question.sample.task, question.sample.sample_id), answer.text))
    existing_runs = _find_runs(store, by_run)
    runs = {key: existing_runs.get(key) or _make_run(store, files, key, texts, bundle) for key, texts in by_run.items()}
    items = [
        RatingItemRow(
            name, position, question.sample.benchmark, question.sample.task, question.sample.sample_id, position
        )
        for position, question in enumerate(questions)
    ]
    notes = list(files.notes)
    ratings = list(_ratings(name, files.rater, runs, questions, notes))
    rating_set = RatingSetRow(
        name,
        "score",
        RATING_FORMAT,
        list(runs.values()),
        LOWEST,
        HIGHEST,
        bundle_digest=bundle.digest if bundle else None,
    )
    write_ratings(store, [rating_set], items, [*_page_rows(name, files.rater, questions), *ratings], replace=True)
    new = [run for key, run in runs.items() if key not in existing_runs]
    return ImportedRatings(
        name, files.rater, len(items), len(ratings), runs, new, mean_ratings(files.documents), tuple(notes)
    )


_AnswerTexts = list[tuple[tuple[str, str], str]]
"""((task, sample id), answer)s. A question that is asked twice occurs twice."""


class _SampledQuestion(NamedTuple):
    page: RatedDocument
    question: RatedQuestion
    sample: Sample


def _match_questions(files: RatingFiles, bundle: Bundle | None) -> list[_SampledQuestion]:
    """Find each question's sample in the bundle, or make a sample that is named like those of judged predictions."""
    samples = samples_by_question(bundle) if bundle else {}
    times: Counter[str] = Counter()
    questions = []
    for page in files.documents:
        for question in page.questions():
            same = samples.get((question.question, question.reference), {})
            sample = same.get(sha256_text(page.document)) or next(iter(same.values()), None)
            if sample is None:
                sample = _new_sample(page, question, in_bundle=bundle is not None)
                times[sample.sample_id] += 1
                if times[sample.sample_id] > 1:
                    sample = replace(sample, sample_id=f"{sample.sample_id}-{times[sample.sample_id]}")
            questions.append(_SampledQuestion(page, question, sample))
    return questions


def _new_sample(page: RatedDocument, question: RatedQuestion, *, in_bundle: bool) -> Sample:
    """Make a sample for a question that is not in the bundle, named like in an import of predictions."""
    sample = judged_sample(NAME, question.question, question.reference, page.fields["evaluation"])
    if in_bundle:
        sample = replace(sample, sample_id=find_format(NAME).unmatched_name(sample))
    return replace(sample, context=page.document, length=len(page.document.split()))


def samples_by_question(bundle: Bundle) -> dict[tuple[str, str], dict[str, Sample]]:
    """Return {(question, reference): {document's hash: sample}} for the open tasks."""
    family = BENCHMARKS[NAME]
    samples: dict[tuple[str, str], dict[str, Sample]] = defaultdict(dict)
    for task in family.tasks(bundle, family.catalogue.open_tasks):
        for sample in family.samples(bundle, task.name) if family.catalogue.is_open(task.name) else ():
            samples[sample.question, sample.references[0]][sha256_text(sample.context)] = sample
    return samples


def _find_runs(store: Store, answers: Mapping[str, _AnswerTexts]) -> dict[str, str]:
    """Find {key: stored run with exactly the answers under the key}, ignoring carriage returns, which pages drop."""
    sample_keys = {name for texts in answers.values() for name, _ in texts}
    outputs_by_run: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
    for run, task, sample_id, output in store.query(
        "SELECT run_id, task, sample_id, output FROM generations WHERE benchmark = ? AND iteration = 0 "
        "AND error IS NULL ORDER BY run_id",
        [NAME],
    ).rows:
        if (task, sample_id) in sample_keys:
            outputs_by_run[run][task, sample_id] = (output or "").replace("\r", "")
    runs: dict[str, str] = {}
    for key, texts in answers.items():
        plain = {name: text.replace("\r", "") for name, text in texts}
        same = [
            run
            for run, outputs in outputs_by_run.items()
            if plain.items() <= outputs.items() and run not in runs.values()
        ]
        if same:
            runs[key] = next((run for run in same if _model(key) in run), same[0])
    return runs


def _model(key: str) -> str:
    return key.removesuffix("_pred").removesuffix("_outputs")


def _make_run(store: Store, files: RatingFiles, key: str, texts: _AnswerTexts, bundle: Bundle | None) -> str:
    content = sha256_text(canonical_json([files.content_sha256, key, [text for _, text in texts]]))
    run = make_import_row(
        RATING_FORMAT,
        content,
        bundle,
        run_id=f"{_model(key)}-{RATING_FORMAT}-{content[:8]}",
        model=_model(key),
        versions={NAME: BENCHMARKS[NAME].metric_version},
        key=key,
        judged=True,
    )
    answers = [GenerationRow(run.run_id, NAME, *name, 0, output=text) for name, text in dict(texts).items()]
    write_import(store, run, [], answers)
    store.finish_run(run.run_id, "done")
    return run.run_id


def _page_rows(set_id: str, rater: str, questions: Sequence[_SampledQuestion]) -> Iterable[RatingRow]:
    """Yield for each page a row without an answer, at the page's first question, which stores the other content."""
    for position, question in enumerate(questions):
        if question.question.number == 0:
            yield RatingRow(set_id, position, rater, PAGE_ROW, source_row=json.dumps(_page_record(question.page)))


def _page_record(page: RatedDocument) -> dict[str, Any] | None:
    """Return the page's line without the document, or None if a page would encode the document differently."""
    for ascii_only in (True, False):
        before, document, after = page.line.raw.partition(json.dumps(page.document, ensure_ascii=ascii_only))
        if document:
            page_values = {"name": page.name, "before": before, "after": after, "ascii": ascii_only}
            return {**page_values, "input_sha256": sha256_text(page.document)}
    return None


def _ratings(
    set_id: str, rater: str, runs: Mapping[str, str], questions: Sequence[_SampledQuestion], notes: list[str]
) -> Iterable[RatingRow]:
    for position, (page, question, _) in enumerate(questions):
        if question.number == 0 and _page_record(page) is None:
            notes.append(
                f"{page.line.location}: the page would write this line differently, so it cannot be exported "
                "byte for byte"
            )
        for answer in question.answers if page.is_rated else ():
            location = f"{page.line.location}: {answer.key} #{question.number}"
            if answer.score is None or not math.isfinite(answer.score):
                notes.append(f"{location} has no rating")
                continue
            if not LOWEST <= answer.score <= HIGHEST:
                notes.append(
                    f"{location} is rated {answer.score:g}, outside the scale; imported unchanged, as in the "
                    "official script"
                )
            yield RatingRow(set_id, position, rater, runs[answer.key], score=answer.score, source_row=answer.score_text)


# Export


def export_ratings(
    store: Store, set_id: str | None, rater: str | None, *, bundle: Bundle | None = None, documents: Path | None = None
) -> dict[str, str]:
    """Build a rater's files, as {path in the folder: text}.

    An imported page is restored byte for byte, and a set of ``lbx rate`` is written in the page's format.

    Args:
        set_id, rater: name of the set and the rater, or None if there is only one.
        bundle, documents: sources of the documents: a bundle with L-Eval, and a file of lines with "input".

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
    """Return ``name`` if it is in ``names``, or the only name if ``name`` is None. Raises UsageError otherwise."""
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
            fix="Pass the bundle with --bundle DIR, or the file from which the pages were made: --documents-file FILE.",
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
    return RatedDocument(PredictionLine("", 1, text, {}), name, page_fields(json.loads(text)))


def _session_files(store: Store, set_id: str, rater: str, documents: Mapping[str, str]) -> dict[str, str]:
    """Build the pages of a set of ``lbx rate``, a page per document in the questions' order."""
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
    page = make_page(gold, answers)
    rated = len(typed) == len(rows) * len(answers)
    return f"{number}_{'evaled' if rated else 'example'}.json", rated_page(page, typed) if rated else page
