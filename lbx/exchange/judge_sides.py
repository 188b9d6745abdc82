"""Whose answers a file of judgements compares: of runs that gave exactly these, else of runs made of its prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from lbx.benchmarks.leval_tasks import NO_TASK
from lbx.benchmarks.prediction_lines import PredictionLine
from lbx.benchmarks.predictions import file_part
from lbx.exchange.importing import batches, sample_rows
from lbx.exchange.judge_lines import FASTCHAT, Asked, JudgedPair
from lbx.exchange.judged import by_task, match_judged
from lbx.exchange.naming import format_named
from lbx.exchange.prediction_files import PredictionFiles, refuse_others
from lbx.exchange.published import PUBLISHED
from lbx.layout import Bundle
from lbx.records import Sample, canonical_json, sha256_text
from lbx.store import GenerationRow, RunRow, SampleRow, Store
from lbx.store.rows import NO_DOCUMENT, stored_sample
from lbx.version import __version__

MT_BENCH = "mt_bench"
Row = tuple[JudgedPair, Asked | None]
Question = tuple[str, str]
"""A question and its reference."""


class Origin(NamedTuple):
    """A file's format and hash, which runs that are made of it are named after, and the bundle to match it with."""

    form: str
    content_sha256: str
    bundle: Bundle | None


class Said(NamedTuple):
    """An answer in the results file."""

    run_id: str
    iteration: int


class Compared(NamedTuple):
    """What a row is about: the judged sample, its document's hash ("" unknown), and both answers."""

    sample: Sample
    document: str
    answers: tuple[Said, Said]


@dataclass(slots=True)
class _Made:
    """A run that is made of what prompts show: its model, and each sample's different answers in their order."""

    model: str
    answers: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)

    def iteration(self, sample: Sample, answer: str | None) -> int:
        """The answer's place; 0 where it is not known."""
        several = self.answers.setdefault(sample.key[:3], [])
        if answer is not None and answer not in several:
            several.append(answer)
        return several.index(answer) if answer is not None else 0


@dataclass(slots=True)
class _Held:
    """A run of the results file: its model, and what it answered to each question."""

    run_id: str
    model: str
    answers: dict[Question, list[tuple[Sample, int, str]]] = field(default_factory=dict)

    def said(self, told: Asked, side: int) -> tuple[Sample, int] | None:
        several = self.answers.get(told[:2], ())
        return next(((sample, number) for sample, number, text in several if text == told.answers[side]), None)

    def is_called(self, name: str) -> bool:
        return name in (self.run_id, self.run_id.removeprefix(PUBLISHED), self.model, file_part(self.model))


def write_compared(store: Store, origin: Origin, rows: Sequence[Row]) -> list[Compared]:
    """What each row compares. Runs and samples that are not there yet are written.

    Raises:
        UsageError, BundleError: ``match_judged``.
        StoreError: the results file holds other samples, or other runs, under these names.
    """
    held: dict[int, _Held] = {}
    if origin.form == FASTCHAT:
        samples = [_mt_bench_sample(*row) for row in rows]
    else:
        held, of_questions = _leval_samples(store, [told for _, told in rows if told], rows[0][0].names, origin.bundle)
        samples = [of_questions[told[:2]] if told else _unknown_sample(row) for row, told in rows]
    bare = [sample for sample, (_, told) in zip(samples, rows, strict=True) if origin.form == FASTCHAT or told is None]
    store.write(samples=[SampleRow(sample, place) for place, sample in enumerate(bare)])
    made: dict[str, _Made] = {}
    answers = []
    for (row, told), sample in zip(rows, samples, strict=True):
        both = []
        for side, run_id in enumerate(_run_ids(row, origin)):
            if side in held:
                known = held[side].said(told, side) if told else None
                both.append(Said(held[side].run_id, known[1] if known else 0))
            else:
                run = made.setdefault(run_id, _Made(row.names[side]))
                both.append(Said(run_id, run.iteration(sample, told.answers[side] if told else None)))
        answers.append((both[0], both[1]))
    for run_id, run in made.items():
        _write_run(store, run_id, run, origin)
    documents = _documents(store, samples[0].benchmark)
    return [
        Compared(sample, documents.get((sample.task, sample.sample_id), ""), both)
        for sample, both in zip(samples, answers, strict=True)
    ]


def _run_ids(row: JudgedPair, origin: Origin) -> tuple[str, str]:
    """Names for runs that are made of a file; a model may have met itself."""
    first, second = row.names
    behind = f"{origin.form}-{origin.content_sha256[:8]}"
    return f"{first}-{behind}", f"{second}-{'against-' * (first == second)}{behind}"


def _mt_bench_sample(row: JudgedPair, told: Asked | None) -> Sample:
    question, reference = told[:2] if told else ("", "")
    return Sample(MT_BENCH, row.task, row.question, "", question, (reference,) if reference else ())


def _unknown_sample(row: JudgedPair) -> Sample:
    name = sha256_text(canonical_json(list(row.prompts)))[:16]
    return Sample("leval", NO_TASK, name, "", "", (), meta={"evaluation": "LLM"})


def _leval_samples(
    store: Store, told: Sequence[Asked], names: tuple[str, str], bundle: Bundle | None
) -> tuple[dict[int, _Held], dict[Question, Sample]]:
    """The runs of the results file by the side that they are, and each question's sample."""
    questions = list(dict.fromkeys(one[:2] for one in told))
    runs = _held_runs(store, questions)
    linked: dict[int, _Held] = {}
    samples: dict[Question, Sample] = {}
    for side in (0, 1) if told else ():
        able = [run for run in runs if _gave_all(run, told, side, samples)]
        named = [run for run in able if run.is_called(names[side])]
        if named or len(able) == 1:
            linked[side] = run = (named or able)[0]
            samples |= {one[:2]: known[0] for one in told if (known := run.said(one, side))}
    return linked, samples or _new_samples(store, questions, bundle)


def _gave_all(run: _Held, told: Iterable[Asked], side: int, samples: dict[Question, Sample]) -> bool:
    for one in told:
        known = run.said(one, side)
        if known is None or (samples and samples[one[:2]].key != known[0].key):
            return False
    return True


def _held_runs(store: Store, questions: Sequence[Question]) -> list[_Held]:
    found: dict[str, _Held] = {}
    for row in store.query(
        "SELECT g.run_id, r.model, g.task, g.iteration, g.output, a.* EXCLUDE (benchmark, task) FROM generations g "
        "JOIN samples a USING (benchmark, task, sample_id) JOIN runs r USING (run_id) WHERE g.benchmark = 'leval' "
        "AND g.error IS NULL AND list_contains(?, a.question) ORDER BY g.run_id, g.task, g.sample_id, g.iteration",
        [[question for question, _ in questions] or [""]],
    ).dicts():
        sample = stored_sample("leval", row["task"], row)
        run = found.setdefault(row["run_id"], _Held(row["run_id"], row["model"]))
        question = row["question"], sample.references[0] if sample.references else ""
        run.answers.setdefault(question, []).append((sample, row["iteration"], row["output"] or ""))
    return list(found.values())


def _new_samples(store: Store, questions: Sequence[Question], bundle: Bundle | None) -> dict[Question, Sample]:
    """The bundle's samples, or such as an import of the compared answers themselves would have; written."""
    if not questions:
        return {}
    form = format_named("leval")
    lines = [
        PredictionLine("a prompt", number, "", {"query": query, "gt": gt, "_pred": "", "evaluation": "LLM"})
        for number, (query, gt) in enumerate(questions)
    ]
    rows = form.read_judged(lines)
    reading = PredictionFiles(by_task(rows), [], "", judged=True)
    if bundle is not None:
        reading = match_judged(form, bundle, reading)
    refuse_others(form, store, reading, bundle=bundle is not None)
    for task, predictions in reading.tasks.items():
        for batch in batches(sample_rows(form, task, predictions, bundle)):
            store.write(samples=[row for row, _ in batch])
    return {questions[row.line.number]: row.sample for row in reading.rows if row.sample}


def _write_run(store: Store, run_id: str, run: _Made, origin: Origin) -> None:
    settings = {"imported": origin.form, "content_sha256": origin.content_sha256, "judged": True}
    digest = origin.bundle.digest if origin.bundle else ""
    store.begin_run(RunRow(run_id, run.model, "import", "", {}, digest, settings, {}, __version__))
    now = datetime.now(UTC)
    answers = [(key, number, text) for key, several in run.answers.items() for number, text in enumerate(several)]
    rows = (
        (GenerationRow(run_id, *key, number, output=text, created_at=now + timedelta(microseconds=place)), len(text))
        for place, (key, number, text) in enumerate(answers)
    )
    for batch in batches(rows):
        store.write(generations=[row for row, _ in batch])
    store.finish_run(run_id, "done")


def _documents(store: Store, benchmark: str) -> dict[tuple[str, str], str]:
    rows = store.query("SELECT task, sample_id, context_sha256 FROM samples WHERE benchmark = ?", [benchmark]).rows
    return {(task, name): digest for task, name, digest in rows if digest != NO_DOCUMENT}
