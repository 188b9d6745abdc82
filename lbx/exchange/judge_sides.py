"""Whose answers a file of judgements compares: of runs that gave exactly these, else of runs made of its prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lbx.base.layout import Bundle
from lbx.base.records import Sample, canonical_json, sha256_text
from lbx.benchmarks.base.prediction_lines import PredictionLine
from lbx.benchmarks.base.predictions import file_part
from lbx.benchmarks.leval.tasks import NO_TASK, PUBLISHED
from lbx.exchange.importing import sample_rows
from lbx.exchange.judge_lines import FASTCHAT, Asked, JudgedPair, JudgeFile
from lbx.exchange.judged import by_task, match_judged
from lbx.exchange.naming import format_named
from lbx.exchange.prediction_files import PredictionFiles, refuse_others
from lbx.store import GenerationRow, SampleRow, Store
from lbx.store.imports import import_of, write_import
from lbx.store.rows import stored_sample

MT_BENCH = "mt_bench"
Question = tuple[str, str]
"""A question and its reference."""


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

    def said(self, told: Asked | None, side: int) -> tuple[Sample, int] | None:
        """Which of its answers a prompt shows."""
        for sample, number, text in self.answers.get(told[:2], ()) if told else ():
            if told and text == told.answers[side]:
                return sample, number
        return None

    def gave_all(self, told: Sequence[Asked], side: int, samples: Mapping[Question, Sample]) -> bool:
        """Whether it gave all answers of a side, to these samples where they are known."""
        for one in told:
            known = self.said(one, side)
            if known is None or (samples and samples[one[:2]].key != known[0].key):
                return False
        return True

    def is_called(self, name: str) -> bool:
        return name in (self.run_id, self.run_id.removeprefix(PUBLISHED), self.model, file_part(self.model))


def write_compared(store: Store, file: JudgeFile, bundle: Bundle | None) -> list[Compared]:
    """What each row of a file compares. Runs and samples that are not there yet are written.

    Raises:
        UsageError, BundleError: ``match_judged``.
        StoreError: the results file holds other samples, or other runs, under these names.
    """
    rows = [row for attempt in file.attempts for row in attempt]
    held: dict[int, _Held] = {}
    if file.form == FASTCHAT:
        samples = [_mt_bench_sample(row) for row in rows]
    else:
        held, of_questions = _leval_samples(store, rows, bundle)
        samples = [of_questions[row.told[:2]] if row.told else _unknown_sample(row) for row in rows]
    own = [one for one, row in zip(samples, rows, strict=True) if file.form == FASTCHAT or not row.told]
    store.write(samples=[SampleRow(sample, place) for place, sample in enumerate(own)])
    made: dict[str, _Made] = {}
    answers = []
    for row, sample in zip(rows, samples, strict=True):
        both = []
        for side, run_id in enumerate(_run_ids(row, file)):
            if side in held:
                known = held[side].said(row.told, side)
                both.append(Said(held[side].run_id, known[1] if known else 0))
            else:
                run = made.setdefault(run_id, _Made(row.names[side]))
                both.append(Said(run_id, run.iteration(sample, row.told.answers[side] if row.told else None)))
        answers.append((both[0], both[1]))
    for run_id, run in made.items():
        _write_run(store, run_id, run, file, bundle)
    documents = _documents(store, samples[0].benchmark)
    return [
        Compared(sample, documents.get((sample.task, sample.sample_id), ""), both)
        for sample, both in zip(samples, answers, strict=True)
    ]


def _run_ids(row: JudgedPair, file: JudgeFile) -> tuple[str, str]:
    """Names for runs that are made of a file; a model may have met itself."""
    first, second = row.names
    behind = f"{file.form}-{file.sha256[:8]}"
    return f"{first}-{behind}", f"{second}-{'against-' * (first == second)}{behind}"


def _mt_bench_sample(row: JudgedPair) -> Sample:
    question, reference = row.told[:2] if row.told else ("", "")
    return Sample(MT_BENCH, row.task, row.question, "", question, (reference,) if reference else ())


def _unknown_sample(row: JudgedPair) -> Sample:
    name = sha256_text(canonical_json(list(row.prompts)))[:16]
    return Sample("leval", NO_TASK, name, "", "", (), meta={"evaluation": "LLM"})


def _leval_samples(
    store: Store, rows: Sequence[JudgedPair], bundle: Bundle | None
) -> tuple[dict[int, _Held], dict[Question, Sample]]:
    """The runs of the results file by the side that they are, and each question's sample."""
    told = [row.told for row in rows if row.told]
    questions = list(dict.fromkeys(one[:2] for one in told))
    runs = _held_runs(store, questions)
    linked: dict[int, _Held] = {}
    samples: dict[Question, Sample] = {}
    for side in (0, 1) if told else ():
        able = [run for run in runs if run.gave_all(told, side, samples)]
        named = [run for run in able if run.is_called(rows[0].names[side])]
        if named or len(able) == 1:
            linked[side] = run = (named or able)[0]
            samples |= {one[:2]: known[0] for one in told if (known := run.said(one, side))}
    return linked, samples or _new_samples(store, questions, bundle)


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
        store.write(samples=list(sample_rows(form, task, predictions, bundle)))
    return {questions[row.line.number]: row.sample for row in reading.rows if row.sample}


def _write_run(store: Store, run_id: str, run: _Made, file: JudgeFile, bundle: Bundle | None) -> None:
    row = import_of(file.form, file.sha256, bundle, run_id=run_id, model=run.model, judged=True)
    answers = [(key, number, text) for key, several in run.answers.items() for number, text in enumerate(several)]
    write_import(store, row, [], (GenerationRow(run_id, *key, number, output=text) for key, number, text in answers))
    store.finish_run(run_id, "done")


def _documents(store: Store, benchmark: str) -> dict[tuple[str, str], str]:
    rows = store.query("SELECT task, sample_id, context_sha256 FROM samples WHERE benchmark = ?", [benchmark]).rows
    return {(task, name): digest for task, name, digest in rows if digest}
