"""Import of L-Eval's rating pages to the results file: a set of questions, runs of the rated answers, ratings.

Everything on a page except its document is stored verbatim, so that it can be restored byte for byte by anyone with the
document (``lbx.opinions.rating_files.exporting``).
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from lbx.base.layout import Bundle
from lbx.base.records import Sample, canonical_json, sha256_text
from lbx.benchmarks.base.predictions import judged_sample
from lbx.benchmarks.registry import BENCHMARKS
from lbx.exchange.prediction_files import find_format
from lbx.opinions.numbers import write_ratings
from lbx.opinions.rating_files.pages import (
    HIGHEST,
    LOWEST,
    RATING_FORMAT,
    RatedDocument,
    RatedQuestion,
    RatingFiles,
    means,
)
from lbx.opinions.rating_rows import RatingItemRow, RatingRow, RatingSetRow
from lbx.results import GenerationRow, SampleRow, Store
from lbx.results.file.imports import find_import, write_import

NAME = "leval"
PAGE_ROW = ""
"""``ratings.run_id`` of the row that stores a page."""


@dataclass(frozen=True, slots=True)
class ImportedRatings:
    """Result of an import.

    Attributes:
        runs: {the page's key: the run with these answers}.
        made: the new ones among these runs.
        means: each key's mean rating, as on the page.
        notes: a sentence for each change or omission.
    """

    set_id: str
    rater: str
    questions: int
    ratings: int
    runs: Mapping[str, str]
    made: Sequence[str]
    means: Mapping[str, float]
    notes: tuple[str, ...]


def import_ratings(
    store: Store, files: RatingFiles, *, bundle: Bundle | None = None, set_id: str | None = None
) -> ImportedRatings:
    """Write files of L-Eval's page to the results file; repeating it replaces the same rows.

    Args:
        bundle: match questions with this bundle's samples.
        set_id: defaults to "leval-people-" and the content's hash, so that other raters of the same pages join the set.

    Raises:
        UsageError: a file is malformed.
        StoreError: the results file has other samples under the same names, or cannot be written.
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
    return ImportedRatings(name, files.rater, len(items), len(ratings), runs, new, means(files.documents), tuple(notes))


_AnswerTexts = list[tuple[tuple[str, str], str]]
"""Answers, each with its sample's task and id; a question that is asked twice has two."""


class _SampledQuestion(NamedTuple):
    page: RatedDocument
    question: RatedQuestion
    sample: Sample


def _match_questions(files: RatingFiles, bundle: Bundle | None) -> list[_SampledQuestion]:
    """Return questions with samples from the bundle, else with new ones named like those of judged predictions."""
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
    """Sample for a question that is not in the bundle, with the name that its row of a prediction file would have."""
    sample = judged_sample(NAME, question.question, question.reference, page.fields["evaluation"])
    if in_bundle:
        sample = replace(sample, sample_id=find_format(NAME).unmatched_name(sample))
    return replace(sample, context=page.document, length=len(page.document.split()))


def samples_by_question(bundle: Bundle) -> dict[tuple[str, str], dict[str, Sample]]:
    """Return {(question, reference): {the document's hash: sample}} of the open tasks."""
    family = BENCHMARKS[NAME]
    samples: dict[tuple[str, str], dict[str, Sample]] = defaultdict(dict)
    for task in family.tasks(bundle, family.catalogue.open_tasks):
        for sample in family.samples(bundle, task.name) if family.catalogue.is_open(task.name) else ():
            samples[sample.question, sample.references[0]][sha256_text(sample.context)] = sample
    return samples


def _find_runs(store: Store, answers: Mapping[str, _AnswerTexts]) -> dict[str, str]:
    """Return {key: the run with exactly these answers}, ignoring carriage returns, which the page drops."""
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
    run = find_import(
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
    """Yield a row without an answer for each page, at its first question: it keeps the page's other content."""
    for position, question in enumerate(questions):
        if question.question.number == 0:
            yield RatingRow(set_id, position, rater, PAGE_ROW, source_row=json.dumps(_page_record(question.page)))


def _page_record(page: RatedDocument) -> dict[str, Any] | None:
    """Record of the page's line without its document; None if the page would encode the document differently."""
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
