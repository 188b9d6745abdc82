"""Import of L-Eval's rating pages to the results file: a set of questions, runs of the rated answers, ratings.

Everything on a page except its document is stored verbatim, so that it can be restored byte for byte by anyone with the
document (``lbx.exchange.ratings.exporting``).
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
from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.base.predictions import judged_sample
from lbx.exchange.prediction_files import format_named
from lbx.exchange.ratings.pages import (
    HIGHEST,
    LOWEST,
    RATING_FORMAT,
    RatedDocument,
    RatedQuestion,
    RatingFiles,
    means,
)
from lbx.scoring.opinions import write_ratings
from lbx.store import GenerationRow, SampleRow, Store
from lbx.store.imports import import_of, write_import
from lbx.store.ratings import RatingItemRow, RatingRow, RatingSetRow

NAME = "leval"
PAGE_ROW = ""
"""``ratings.run_id`` of the row that stores a page."""


@dataclass(frozen=True, slots=True)
class ImportedRatings:
    """Result of an import.

    Attributes:
        runs: {the page's key: the run with these answers}; ``made`` are the new runs.
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
    questions = _asked(files, bundle)
    store.write(samples=[SampleRow(one.sample, place) for place, one in enumerate(questions)])
    by_run: dict[str, _Given] = defaultdict(list)
    for one in questions:
        for answer in one.question.answers:
            by_run[answer.key].append(((one.sample.task, one.sample.sample_id), answer.text))
    known = _known_runs(store, by_run)
    runs = {key: known.get(key) or _make_run(store, files, key, texts, bundle) for key, texts in by_run.items()}
    items = [
        RatingItemRow(name, place, one.sample.benchmark, one.sample.task, one.sample.sample_id, place)
        for place, one in enumerate(questions)
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
    write_ratings(store, [rating_set], items, [*_kept_pages(name, files.rater, questions), *ratings], replace=True)
    new = [run for key, run in runs.items() if key not in known]
    return ImportedRatings(name, files.rater, len(items), len(ratings), runs, new, means(files.documents), tuple(notes))


_Given = list[tuple[tuple[str, str], str]]
"""Answers, each with its sample's task and id; a question that is asked twice has two."""


class _Asked(NamedTuple):
    page: RatedDocument
    question: RatedQuestion
    sample: Sample


def _asked(files: RatingFiles, bundle: Bundle | None) -> list[_Asked]:
    """Return questions with samples from the bundle, else with new ones named like those of judged predictions."""
    held = bundled(bundle) if bundle else {}
    times: Counter[str] = Counter()
    questions = []
    for page in files.documents:
        for one in page.questions():
            same = held.get((one.question, one.reference), {})
            sample = same.get(sha256_text(page.document)) or next(iter(same.values()), None)
            if sample is None:
                sample = _own_sample(page, one, in_bundle=bundle is not None)
                times[sample.sample_id] += 1
                if times[sample.sample_id] > 1:
                    sample = replace(sample, sample_id=f"{sample.sample_id}-{times[sample.sample_id]}")
            questions.append(_Asked(page, one, sample))
    return questions


def _own_sample(page: RatedDocument, one: RatedQuestion, *, in_bundle: bool) -> Sample:
    """Sample for a question that is not in the bundle, with the name that its row of a prediction file would have."""
    sample = judged_sample(NAME, one.question, one.reference, page.fields["evaluation"])
    if in_bundle:
        sample = replace(sample, sample_id=format_named(NAME).unmatched_name(sample))
    return replace(sample, context=page.document, length=len(page.document.split()))


def bundled(bundle: Bundle) -> dict[tuple[str, str], dict[str, Sample]]:
    """Return {(question, reference): {the document's hash: sample}} of the open tasks."""
    family = BENCHMARKS[NAME]
    samples: dict[tuple[str, str], dict[str, Sample]] = defaultdict(dict)
    for task in family.tasks(bundle, family.catalogue.open):
        for sample in family.samples(bundle, task.name) if family.catalogue.is_open(task.name) else ():
            samples[sample.question, sample.references[0]][sha256_text(sample.context)] = sample
    return samples


def _known_runs(store: Store, answers: Mapping[str, _Given]) -> dict[str, str]:
    """Find {key: the run with exactly these answers}, ignoring carriage returns, which the page drops."""
    wanted = {name for texts in answers.values() for name, _ in texts}
    held: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
    for run, task, sample_id, output in store.query(
        "SELECT run_id, task, sample_id, output FROM generations WHERE benchmark = ? AND iteration = 0 "
        "AND error IS NULL ORDER BY run_id",
        [NAME],
    ).rows:
        if (task, sample_id) in wanted:
            held[run][task, sample_id] = (output or "").replace("\r", "")
    runs: dict[str, str] = {}
    for key, texts in answers.items():
        plain = {name: text.replace("\r", "") for name, text in texts}
        same = [run for run, outputs in held.items() if plain.items() <= outputs.items() and run not in runs.values()]
        if same:
            runs[key] = next((run for run in same if _model(key) in run), same[0])
    return runs


def _model(key: str) -> str:
    return key.removesuffix("_pred").removesuffix("_outputs")


def _make_run(store: Store, files: RatingFiles, key: str, texts: _Given, bundle: Bundle | None) -> str:
    content = sha256_text(canonical_json([files.content_sha256, key, [text for _, text in texts]]))
    run = import_of(
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


def _kept_pages(set_id: str, rater: str, questions: Sequence[_Asked]) -> Iterable[RatingRow]:
    """Yield a row per page, at its first question and without an answer, with the rest of one rater's file."""
    for place, one in enumerate(questions):
        if one.question.number == 0:
            yield RatingRow(set_id, place, rater, PAGE_ROW, source_row=json.dumps(_kept(one.page)))


def _kept(page: RatedDocument) -> dict[str, Any] | None:
    """The page's line without its document; None if the document is not encoded as the page would do."""
    for ascii_only in (True, False):
        before, document, after = page.line.raw.partition(json.dumps(page.document, ensure_ascii=ascii_only))
        if document:
            page_values = {"name": page.name, "before": before, "after": after, "ascii": ascii_only}
            return {**page_values, "input_sha256": sha256_text(page.document)}
    return None


def _ratings(
    set_id: str, rater: str, runs: Mapping[str, str], questions: Sequence[_Asked], notes: list[str]
) -> Iterable[RatingRow]:
    for place, (page, question, _) in enumerate(questions):
        if question.number == 0 and _kept(page) is None:
            notes.append(
                f"{page.line.where}: the page would write this line differently, so it cannot be exported byte for byte"
            )
        for answer in question.answers if page.rated else ():
            where = f"{page.line.where}: {answer.key} #{question.number}"
            if answer.score is None or not math.isfinite(answer.score):
                notes.append(f"{where} has no rating")
                continue
            if not LOWEST <= answer.score <= HIGHEST:
                notes.append(
                    f"{where} is rated {answer.score:g}, outside the scale; imported unchanged, as in the "
                    "official script"
                )
            yield RatingRow(set_id, place, rater, runs[answer.key], score=answer.score, source_row=answer.typed)
