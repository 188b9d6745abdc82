"""L-Eval's rating pages into the results file: a set of questions, runs of the rated answers, ratings.

Documents are not stored. Of a page everything else is, as it stood, so that it comes back to the byte where somebody
has the document (``leval_export``).
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.leval_tasks import KINDS, NO_TASK, OPEN
from lbx.layout import Bundle
from lbx.people.leval_files import (
    HIGHEST,
    LOWEST,
    RatedDocument,
    RatedQuestion,
    RatingFiles,
    means,
)
from lbx.records import Sample, canonical_json, sha256_text
from lbx.store import GenerationRow, SampleRow, Store
from lbx.store.imports import import_of, write_import
from lbx.store.ratings import write_ratings
from lbx.store.rows import RatingItemRow, RatingRow, RatingSetRow

FORMAT = "leval_ratings"
_FAMILY = "leval"
PAGE_ROW = ""
"""``ratings.run_id`` of the row that keeps a page."""


@dataclass(frozen=True, slots=True)
class ImportedRatings:
    """What an import did.

    Attributes:
        runs: {the page's key: the run whose answers these are}; ``made`` those that were not there before.
        means: each key's mean rating, as the page shows it.
        notes: a sentence for each thing that was not taken as it stands.
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
    """Write what L-Eval's page wrote into the results file; the same again replaces the same rows.

    Args:
        bundle: match questions with this bundle's samples.
        set_id: "leval-people-" and the content's hash where none is given: another rater of the same pages joins it.

    Raises:
        UsageError: something is wrong with a file.
        StoreError: the results file holds other samples under the same names, or cannot be written.
    """
    name = set_id or f"leval-people-{files.content_sha256[:8]}"
    pages = [(page, page.questions()) for page in files.documents]
    samples = _samples(pages, bundle)
    known, runs = _known_runs(store, samples, pages), dict[str, str]()
    store.write(samples=[SampleRow(sample, place) for place, sample in enumerate(samples)])
    for key in _keys(pages):
        runs[key] = known.get(key) or _make_run(store, files, key, _rated(key, samples, pages), bundle)
    items = [
        RatingItemRow(name, place, sample.benchmark, sample.task, sample.sample_id, place)
        for place, sample in enumerate(samples)
    ]
    kept = list(_kept_pages(name, files, pages))
    notes = list(files.notes)
    ratings = list(_ratings(name, files, runs, pages, notes))
    made = RatingSetRow(
        name, "score", FORMAT, list(runs.values()), LOWEST, HIGHEST, bundle_digest=bundle.digest if bundle else None
    )
    write_ratings(store, [made], items, [*kept, *ratings], replace=True)
    new = [run for key, run in runs.items() if key not in known]
    return ImportedRatings(name, files.rater, len(items), len(ratings), runs, new, means(files.documents), tuple(notes))


_Pages = Sequence[tuple[RatedDocument, Sequence[RatedQuestion]]]


def _keys(pages: _Pages) -> list[str]:
    return list(dict.fromkeys(answer.key for _, questions in pages for one in questions for answer in one.answers))


def _samples(pages: _Pages, bundle: Bundle | None) -> list[Sample]:
    """Each question's sample: the bundle's, or one of its own that is named as a judged prediction's row is."""
    held = bundled(bundle) if bundle else {}
    times: Counter[str] = Counter()
    found = []
    for page, questions in pages:
        for one in questions:
            document = sha256_text(page.document)
            same = held.get((one.question, one.reference), {})
            sample = same.get(document) or next(iter(same.values()), None)
            if sample is None:
                sample = _own_sample(page, one, in_bundle=bundle is not None)
                times[sample.sample_id] += 1
                if times[sample.sample_id] > 1:
                    sample = replace(sample, sample_id=f"{sample.sample_id}-{times[sample.sample_id]}")
            found.append(sample)
    return found


def _own_sample(page: RatedDocument, one: RatedQuestion, *, in_bundle: bool) -> Sample:
    """A question that no bundle has, under the name that a row of a prediction file with it has."""
    mark = page.fields["evaluation"]
    name = sha256_text(canonical_json([one.question, one.reference, mark, None]))[:16]
    sample = Sample(_FAMILY, NO_TASK, name, "", one.question, (one.reference,), meta={"evaluation": mark})
    form = BENCHMARKS[_FAMILY].predictions
    if in_bundle and form is not None:
        sample = replace(sample, sample_id=form.unmatched_name(sample))
    return replace(sample, context=page.document, length=len(page.document.split()))


def bundled(bundle: Bundle) -> dict[tuple[str, str], dict[str, Sample]]:
    """{(question, reference): {the document's hash: sample}} of the open tasks."""
    family = BENCHMARKS[_FAMILY]
    found: dict[tuple[str, str], dict[str, Sample]] = defaultdict(dict)
    for task in family.tasks(bundle, [name for name, kind in KINDS.items() if kind in OPEN]):
        for sample in family.samples(bundle, task.name) if KINDS.get(task.name) in OPEN else ():
            found[sample.question, sample.references[0]][sha256_text(sample.context)] = sample
    return found


def _known_runs(store: Store, samples: Sequence[Sample], pages: _Pages) -> dict[str, str]:
    """{key: the run that gave exactly these answers}; carriage returns, which the page drops, apart."""
    given: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
    questions = [one for _, found in pages for one in found]
    for sample, one in zip(samples, questions, strict=True):
        for answer in one.answers:
            given[answer.key][sample.task, sample.sample_id] = answer.text.replace("\r", "")
    wanted = {name for texts in given.values() for name in texts}
    held: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
    for run, task, sample_id, output in store.query(
        "SELECT run_id, task, sample_id, output FROM generations WHERE benchmark = ? AND iteration = 0 "
        "AND error IS NULL ORDER BY run_id",
        [_FAMILY],
    ).rows:
        if (task, sample_id) in wanted:
            held[run][task, sample_id] = (output or "").replace("\r", "")
    found: dict[str, str] = {}
    for key, texts in given.items():
        same = [run for run, outputs in held.items() if texts.items() <= outputs.items() and run not in found.values()]
        if same:
            found[key] = next((run for run in same if _model(key) in run), same[0])
    return found


def _model(key: str) -> str:
    return key.removesuffix("_pred").removesuffix("_outputs")


def _rated(key: str, samples: Sequence[Sample], pages: _Pages) -> list[tuple[Sample, str]]:
    questions = [one for _, found in pages for one in found]
    return [
        (sample, answer.text)
        for sample, one in zip(samples, questions, strict=True)
        for answer in one.answers
        if answer.key == key
    ]


def _make_run(
    store: Store, files: RatingFiles, key: str, rated: Sequence[tuple[Sample, str]], bundle: Bundle | None
) -> str:
    content = sha256_text(canonical_json([files.content_sha256, key, [text for _, text in rated]]))
    run = import_of(
        FORMAT,
        content,
        run_id=f"{_model(key)}-{FORMAT}-{content[:8]}",
        model=_model(key),
        bundle_digest=bundle.digest if bundle else None,
        versions={_FAMILY: BENCHMARKS[_FAMILY].metric_version},
        key=key,
        judged=True,
    )
    answers = [GenerationRow(run.run_id, *sample.key[:3], 0, output=text) for sample, text in rated]
    write_import(store, run, [], answers)
    store.finish_run(run.run_id, "done")
    return run.run_id


def _kept_pages(set_id: str, files: RatingFiles, pages: _Pages) -> Iterable[RatingRow]:
    """A page is a row of nobody's answer, at its first question: what one rater's file says beside the ratings."""
    place = 0
    for page, questions in pages:
        yield RatingRow(set_id, place, files.rater, PAGE_ROW, source_row=json.dumps(_kept(page)))
        place += len(questions)


def _kept(page: RatedDocument) -> dict[str, Any] | None:
    """The page's line around its document; None where the document stands there as no page would write it."""
    for ascii_only in (True, False):
        before, document, after = page.line.raw.partition(json.dumps(page.document, ensure_ascii=ascii_only))
        if document:
            told = {"name": page.name, "before": before, "after": after, "ascii": ascii_only}
            return {**told, "input_sha256": sha256_text(page.document)}
    return None


def _ratings(
    set_id: str, files: RatingFiles, runs: Mapping[str, str], pages: _Pages, notes: list[str]
) -> Iterable[RatingRow]:
    place = 0
    for page, questions in pages:
        if _kept(page) is None:
            notes.append(f"{page.line.where}: not as the page writes it, so it cannot be exported to the byte")
        for one in questions:
            for answer in one.answers if page.rated else ():
                where = f"{page.line.where}: {answer.key} #{one.number}"
                if answer.score is None or not math.isfinite(answer.score):
                    notes.append(f"{where} has no rating")
                    continue
                if not LOWEST <= answer.score <= HIGHEST:
                    notes.append(f"{where} is rated {answer.score:g}, beyond the scale; taken as officially")
                run = runs[answer.key]
                yield RatingRow(set_id, place, files.rater, run, score=answer.score, source_row=answer.typed)
            place += 1
