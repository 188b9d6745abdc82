"""L-Eval's rating pages into the results file and out of it: a set of questions, runs of the rated answers, ratings.

Documents are not stored. Of an imported page everything else is, as it stood, so that it comes back to the byte where
somebody has the document.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.leval_tasks import KINDS, NO_TASK, OPEN
from lbx.benchmarks.prediction_lines import PredictionLine, read_bytes, split
from lbx.errors import LbxError, StoreError, UsageError
from lbx.layout import Bundle
from lbx.people.leval_files import (
    HIGHEST,
    LOWEST,
    RatedDocument,
    RatedQuestion,
    RatingFiles,
    fields,
    means,
    official_files,
    page_of,
    rated_page,
)
from lbx.records import Sample, canonical_json, sha256_text
from lbx.store import GenerationRow, RunRow, SampleRow, Store
from lbx.store.ratings import write_ratings
from lbx.store.rows import RatingItemRow, RatingRow, RatingSetRow, stored_sample
from lbx.version import __version__

FORMAT = "leval_ratings"
_FAMILY = "leval"
_PAGE_ROW = ""
_GOLD = "OpenLMLab/LEval/Predictions/human_eval/claude.gpt4.ref.jsonl"


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


# In


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
    write_ratings(store, sets=[made], items=items, ratings=[*kept, *ratings])
    new = [run for key, run in runs.items() if key not in known]
    return ImportedRatings(name, files.rater, len(items), len(ratings), runs, new, means(files.documents), tuple(notes))


_Pages = Sequence[tuple[RatedDocument, Sequence[RatedQuestion]]]


def _keys(pages: _Pages) -> list[str]:
    return list(dict.fromkeys(answer.key for _, questions in pages for one in questions for answer in one.answers))


def _samples(pages: _Pages, bundle: Bundle | None) -> list[Sample]:
    """Each question's sample: the bundle's, or one of its own that is named as a judged prediction's row is."""
    held = _bundled(bundle) if bundle else {}
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


def _bundled(bundle: Bundle) -> dict[tuple[str, str], dict[str, Sample]]:
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
    run_id = f"{_model(key)}-{FORMAT}-{content[:8]}"
    settings = {"imported": FORMAT, "content_sha256": content, "key": key, "judged": True}
    digest = bundle.digest if bundle else ""
    versions = {_FAMILY: BENCHMARKS[_FAMILY].metric_version}
    store.begin_run(RunRow(run_id, _model(key), "import", "", versions, digest, settings, {}, __version__))
    store.write(
        generations=[
            GenerationRow(run_id, _FAMILY, sample.task, sample.sample_id, 0, output=text) for sample, text in rated
        ]
    )
    store.finish_run(run_id, "done")
    return run_id


def _kept_pages(set_id: str, files: RatingFiles, pages: _Pages) -> Iterable[RatingRow]:
    """A page is a row of nobody's answer, at its first question: what one rater's file says beside the ratings."""
    place = 0
    for page, questions in pages:
        yield RatingRow(set_id, place, files.rater, _PAGE_ROW, source_row=json.dumps(_kept(page)))
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
                if answer.score is None or answer.score != answer.score:
                    notes.append(f"{where} has no rating")
                    continue
                if not LOWEST <= answer.score <= HIGHEST:
                    notes.append(f"{where} is rated {answer.score:g}, beyond the scale; taken as officially")
                run = runs[answer.key]
                yield RatingRow(set_id, place, files.rater, run, score=answer.score, source_row=answer.typed)
            place += 1


# Out


def export_ratings(
    store: Store, set_id: str | None, rater: str | None, *, bundle: Bundle | None = None, documents: Path | None = None
) -> dict[str, str]:
    """One rater's files: {place in the folder: text}.

    An imported page comes back to the byte; a set of ``lbx rate`` is written as the page would have written it.

    Args:
        set_id, rater: may be None where there is one.
        bundle, documents: where the documents are: a bundle with L-Eval, a file of lines with "input".

    Raises:
        UsageError: no such set or rater, or a document is nowhere.
    """
    chosen = _only(store, "set", "SELECT set_id FROM rating_sets WHERE kind = 'score' ORDER BY ALL", [], set_id)
    items = store.query("SELECT * FROM rating_items WHERE set_id = ? ORDER BY position, item", [chosen]).dicts()
    names = [
        row[0] for row in store.query("SELECT DISTINCT rater FROM ratings WHERE set_id = ? ORDER BY ALL", [chosen]).rows
    ]
    if rater not in names and not (rater is None and len(names) == 1):
        raise _choose("rater", names, rater, chosen)
    name = rater or names[0]
    find = _finder(_documents(bundle, documents), store)
    kept = store.query(
        "SELECT source_row FROM ratings WHERE set_id = ? AND rater = ? AND run_id = ? ORDER BY item, revision",
        [chosen, name, _PAGE_ROW],
    ).rows
    if kept:
        return _imported(store, chosen, name, [json.loads(row[0]) for row in kept], find)
    return _made(store, chosen, name, items, find)


def _only(store: Store, kind: str, sql: str, parameters: Sequence[object], name: str | None) -> str:
    known = [row[0] for row in store.query(sql, parameters).rows]
    if name in known:
        return str(name)
    if name is None and len(known) == 1:
        return str(known[0])
    raise _choose(kind, known, name, str(store.path))


def _choose(kind: str, known: Sequence[str], name: str | None, place: str) -> UsageError:
    told = f"Name one with --{kind}: {', '.join(known)}." if known else "There is none to export."
    cause = f"{place} holds {len(known)} of {kind}s with ratings" if name is None else f"{place} has no {kind} {name!r}"
    return UsageError(f"{cause}.", fix=told)


def _documents(bundle: Bundle | None, path: Path | None) -> dict[str, str]:
    """Documents by their hashes."""
    files = [path] if path else []
    if bundle and (gold := bundle.file(_GOLD)):
        files.append(gold)
    texts = [line.text("input") for file in files for line in split(file, read_bytes(file)).lines]
    if bundle:
        texts += [sample.context for same in _bundled(bundle).values() for sample in same.values()]
    return {sha256_text(text): text for text in texts}


def _finder(texts: Mapping[str, str], store: Store) -> Callable[[str], str]:
    def find(digest: str) -> str:
        if digest not in texts:
            raise UsageError(
                f"A rated document is not here (SHA-256 {digest[:12]}...); {store.path} holds none.",
                fix="Name the bundle with --bundle DIR, or the file that the pages were made of: --documents FILE.",
            )
        return texts[digest]

    return find


def _imported(
    store: Store, set_id: str, rater: str, kept: Sequence[Mapping[str, Any]], find: Callable[[str], str]
) -> dict[str, str]:
    if not all(kept):
        raise StoreError(
            f"A page of {rater!r} in {set_id!r} was not as the official page writes it; it is not stored whole.",
            fix=f"Its ratings are in the table `ratings` of {store.path}.",
        )
    lines = []
    for page in kept:
        document = json.dumps(find(page["input_sha256"]), ensure_ascii=page["ascii"])
        lines.append((page["name"], page["before"] + document + page["after"]))
    pages = [_as_page(text, name) for name, text in lines]
    made = official_files(pages, rater)
    if all(name for name, _ in lines):
        return {f"jsons/{name}": text for name, text in lines} | made
    return made | {f"files_from_{rater}.jsonl": "".join(f"{text}\n" for _, text in lines)}


def _as_page(text: str, name: str) -> RatedDocument:
    return RatedDocument(PredictionLine("", 1, text, {}), name, fields(json.loads(text)))


def _made(
    store: Store, set_id: str, rater: str, items: Sequence[Mapping[str, Any]], find: Callable[[str], str]
) -> dict[str, str]:
    """Pages of a set of ``lbx rate``: a document each, in the questions' order; rated where every answer is."""
    answers = store.query(
        """
        SELECT i.item, r.model, g.output, x.score, g.run_id
        FROM rating_sets s JOIN rating_items i USING (set_id)
        JOIN generations g ON (g.benchmark, g.task, g.sample_id, g.iteration) = (i.benchmark, i.task, i.sample_id, 0)
             AND list_contains(s.runs::VARCHAR[], g.run_id) AND g.error IS NULL
        JOIN runs r USING (run_id)
        LEFT JOIN (SELECT * FROM ratings WHERE rater = ? AND iteration = 0
                   QUALIFY row_number() OVER (PARTITION BY set_id, item, run_id ORDER BY revision DESC) = 1) x
             ON (x.set_id, x.item, x.run_id) = (i.set_id, i.item, g.run_id)
        WHERE s.set_id = ? ORDER BY i.position, i.item, list_position(s.runs::VARCHAR[], g.run_id)
        """,
        [rater, set_id],
    ).rows
    by_item: dict[int, list[tuple[str, str, float | None]]] = defaultdict(list)
    for item, model, output, score, run_id in answers:
        key = f"{model}_pred"
        key = f"{run_id}_pred" if any(key == known for known, _, _ in by_item[item]) else key
        by_item[item].append((key, output or "", score))
    documents: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for item, row in zip(items, _sample_rows(store, set_id), strict=True):
        documents[row["context_sha256"]].append({**item, **row})
    files, pages = {}, []
    for number, (digest, rows) in enumerate(documents.items()):
        name, page = _page(number, rows, by_item, find(digest))
        text = json.dumps(page)
        files[f"jsons/{name}"] = text
        pages.append(_as_page(text, name))
    return files | official_files(pages, rater)


def _sample_rows(store: Store, set_id: str) -> list[dict[str, Any]]:
    return store.query(
        "SELECT a.* FROM rating_items i JOIN samples a USING (benchmark, task, sample_id) WHERE i.set_id = ? "
        "ORDER BY i.position, i.item",
        [set_id],
    ).dicts()


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
    given: dict[str, list[str]] = defaultdict(list)
    typed: dict[tuple[str, int], str] = {}
    for place, row in enumerate(rows):
        for key, text, score in by_item[row["item"]]:
            given[key].append(text)
            if score is not None:
                typed[key, place] = f"{score:g}"
    if any(len(texts) != len(rows) for texts in given.values()):
        raise LbxError(
            f"Not every run has answered every question on document {number}: the official page has no gaps.",
            fix="Finish the runs, or rate a set of those that are whole.",
        )
    page = page_of(gold, given)
    rated = len(typed) == len(rows) * len(given)
    return f"{number}_{'evaled' if rated else 'example'}.json", rated_page(page, typed) if rated else page
