"""Import of judgements from other programs: each run of a judge in a file becomes a judge's run.

The compared answers are those of runs in the results file with exactly the same answers, else of runs built from the
prompts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from lbx.base.layout import Bundle
from lbx.base.records import Sample, canonical_json, sha256_text
from lbx.benchmarks.base.benchmark import LLM, copy_marks, marks_in, with_unique_ids
from lbx.benchmarks.base.prediction_lines import PredictionLine
from lbx.benchmarks.base.predictions import NO_TASK, Prediction, file_part, judged_sample
from lbx.benchmarks.judge import NAME, JudgeBenchmark, Round
from lbx.benchmarks.registry import official_judge
from lbx.exchange.answers_for_judges import group_by_task, match_judge_answers
from lbx.exchange.importing import sample_rows
from lbx.exchange.prediction_files import PredictionFiles, find_format
from lbx.store import GenerationRow, RunRow, SampleRow, Store
from lbx.store.imports import find_import, refuse_other_content, write_import
from lbx.store.rows import stored_sample

QuestionAndReference = tuple[str, str]
_ANSWER_KEYS = ("answer_sha256", "against_sha256", "answer_words", "against_words")
"""Keys of a round's ``meta`` that are omitted if the prompts do not determine the answers."""


@dataclass(frozen=True, slots=True)
class Judgements:
    """A parsed file of judgements; its first run is called ``name``, its second has the suffix "-2"."""

    file: official_judge.JudgeFile
    name: str
    model: str
    bundle: Bundle | None = None
    metadata: Mapping[str, str] | None = None

    @property
    def rows(self) -> list[official_judge.JudgedPair]:
        return [row for attempt in self.file.attempts for row in attempt]


@dataclass(frozen=True, slots=True)
class JudgeRun:
    """An imported run of a judge.

    Attributes:
        rounds: number of rounds, two per question.
        failed: number of rounds without a judgement.
        numbers: summary lines, counted like the file's own script.
        notes: a sentence for each row that contradicts its judgement.
    """

    run_id: str
    compared: tuple[str, ...]
    rounds: int
    failed: int
    numbers: tuple[str, ...]
    notes: tuple[str, ...] = ()


class _AnswerKey(NamedTuple):
    run_id: str
    iteration: int


class _Comparison(NamedTuple):
    """The judged sample of a row, its document's hash ("" if unknown), and both answers."""

    sample: Sample
    document: str
    answers: tuple[_AnswerKey, _AnswerKey]


@dataclass(slots=True)
class _NewRun:
    """A run built from prompts: each sample's distinct answers in order of appearance."""

    run_id: str
    model: str
    answers: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)

    def iteration(self, sample: Sample, contents: official_judge.PromptContents | None, side: int) -> int:
        """Return the iteration of a prompt's answer, which is added if it is new; 0 if the contents are unknown."""
        texts = self.answers.setdefault(sample.key[:3], [])
        if contents is None:
            return 0
        if (answer := contents.answers[side]) not in texts:
            texts.append(answer)
        return texts.index(answer)


@dataclass(slots=True)
class _StoredRun:
    run_id: str
    model: str
    answers: dict[QuestionAndReference, list[tuple[Sample, int, str]]] = field(default_factory=dict)

    def answer(self, contents: official_judge.PromptContents | None, side: int) -> tuple[Sample, int] | None:
        for sample, iteration, text in self.answers.get(contents[:2], ()) if contents else ():
            if contents and text == contents.answers[side]:
                return sample, iteration
        return None

    def iteration(self, _sample: Sample, contents: official_judge.PromptContents | None, side: int) -> int:
        match = self.answer(contents, side)
        return match[1] if match else 0

    def has_all(
        self,
        contents: Sequence[official_judge.PromptContents],
        side: int,
        samples: Mapping[QuestionAndReference, Sample],
    ) -> bool:
        """Whether the run gave all answers of one side: to the same samples, if ``samples`` is not empty."""
        for texts in contents:
            match = self.answer(texts, side)
            if match is None or (samples and samples[texts[:2]].key != match[0].key):
                return False
        return True

    def has_name(self, name: str) -> bool:
        published = self.run_id.removeprefix(official_judge.PUBLISHED)
        return name in (self.run_id, published, self.model, file_part(self.model))


def read_judgements(
    path: Path,
    *,
    model: str | None = None,
    run_id: str | None = None,
    bundle: Bundle | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Judgements:
    """Read and check a file of judgements without writing.

    Args:
        model: name of the judge; defaults to the name in the file.
        run_id: defaults to the judge, the format and the content's hash.
        bundle: match questions with its samples, and parse the prompts by its rubric.

    Raises:
        UsageError: the path or a line in it is malformed.
        BundleError: the bundle's rubric differs from the supported one.
    """
    file = official_judge.read_judge_file(path, bundle)
    model = model or file.attempts[0][0].judge
    return Judgements(file, run_id or f"{model}-{_name_suffix(file)}", model, bundle, metadata)


def _name_suffix(file: official_judge.JudgeFile) -> str:
    return f"{official_judge.JUDGEMENT_FORMAT}-{file.sha256[:8]}"


def write_judgements(store: Store, judgements: Judgements) -> list[JudgeRun]:
    """Write the judge's runs, which stay open until ``Store.finish_run``, and the runs that they compare.

    Repeating it with the same file replaces the same rows.

    Raises:
        UsageError: no question is in the bundle.
        BundleError: the bundle lacks all of the questions' tasks, or their data is damaged.
        StoreError: the results file has another run, or other samples, under one of the names.
    """
    refuse_other_content(store, judgements.name, judgements.file.sha256)
    comparisons = iter(_write_comparisons(store, judgements))
    return [
        _write_attempt(store, judgements, number, rows, [next(comparisons) for _ in rows])
        for number, rows in enumerate(judgements.file.attempts, start=1)
    ]


def _write_attempt(
    store: Store,
    judgements: Judgements,
    number: int,
    rows: Sequence[official_judge.JudgedPair],
    comparisons: Sequence[_Comparison],
) -> JudgeRun:
    run = _run_row(judgements, number, len(rows))
    samples = list(with_unique_ids(_rounds(judgements, rows, comparisons)))
    generations = list(_generations(run.run_id, judgements.file.rubric.name, rows, samples))
    write_import(store, run, (SampleRow(sample, position) for position, sample in enumerate(samples)), generations)
    return JudgeRun(
        run.run_id,
        tuple(dict.fromkeys(answer.run_id for comparison in comparisons for answer in comparison.answers)),
        len(generations),
        sum(row.error is not None for row in generations),
        (*official_judge.win_lines(rows), *official_judge.number_lines(rows)),
        tuple(f"{row.line.location}: {row.note}." for row in rows if row.note),
    )


def _run_row(judgements: Judgements, number: int, rows: int) -> RunRow:
    file, content, last = judgements.file, judgements.file.content, number == len(judgements.file.attempts)
    entry = {"name": file.path.name, "task": None, "rows": rows, "separator": content.separator}
    rubric = file.rubric.settings("both") | ({} if file.rubric.user else {"rubric_sha256": ""})  # unknown wording
    return find_import(
        official_judge.JUDGEMENT_FORMAT,
        file.sha256,
        judgements.bundle,
        run_id=judgements.name if number == 1 else f"{judgements.name}-{number}",
        model=judgements.model,
        versions={NAME: JudgeBenchmark.metric_version},
        metadata=judgements.metadata,
        attempt=number,
        files=[entry | {"final_newline": content.final_newline or not last}],
        **rubric,
    )


def _rounds(
    judgements: Judgements, rows: Sequence[official_judge.JudgedPair], comparisons: Sequence[_Comparison]
) -> Iterator[Sample]:
    """Yield samples of the rounds, two per row."""
    seen: dict[object, int] = {}
    for row, (sample, document, (judged, against)) in zip(rows, comparisons, strict=True):
        times = seen[sample.key] = seen.get(sample.key, -1) + 1
        texts = row.contents.answers if row.contents else row.prompts
        for answer_first in (True, False):
            round_sample = Round(
                sample.benchmark, sample.task, sample.sample_id, sample.question, sample.references,
                judged.run_id, texts[0], judged.iteration, against.run_id, against.iteration, texts[1], answer_first,
                sample.language, document, copy_marks(marks_in(sample.meta), times),
            ).sample(judgements.file.rubric)  # fmt: skip
            meta = {key: value for key, value in round_sample.meta.items() if row.contents or key not in _ANSWER_KEYS}
            yield replace(round_sample, meta=meta)


def _generations(
    run_id: str, task: str, rows: Sequence[official_judge.JudgedPair], samples: Sequence[Sample]
) -> Iterator[GenerationRow]:
    """Yield two generations per row; only the first stores the row's line."""
    for position, sample in enumerate(samples):
        row, second = rows[position // 2], position % 2
        text = row.judgements[second]
        failed = text == official_judge.NO_ANSWER
        yield GenerationRow(
            run_id, NAME, task, sample.sample_id, 0,
            output=None if failed else text, error=text if failed else None,
            error_type="imported" if failed else None, source_row=None if second else row.line.raw,
        )  # fmt: skip


def _write_comparisons(store: Store, judgements: Judgements) -> list[_Comparison]:
    """Write missing runs and samples, and return the comparison of each row."""
    rows = judgements.rows
    stored, samples_of = _samples(store, judgements)
    samples = [samples_of[row.contents[:2]] if row.contents else _unknown_sample(row) for row in rows]
    unknown = (sample for sample, row in zip(samples, rows, strict=True) if not row.contents)
    store.write(samples=[SampleRow(sample, position) for position, sample in enumerate(unknown)])
    run_ids = _run_ids(rows[0].names, judgements.file)
    first, second = (stored.get(side) or _NewRun(run_ids[side], rows[0].names[side]) for side in (0, 1))
    answers = [
        (
            _AnswerKey(first.run_id, first.iteration(sample, row.contents, 0)),
            _AnswerKey(second.run_id, second.iteration(sample, row.contents, 1)),
        )
        for row, sample in zip(rows, samples, strict=True)
    ]
    for run in (first, second):
        if isinstance(run, _NewRun):
            _write_run(store, run, judgements)
    documents = _document_hashes(store)
    return [
        _Comparison(sample, documents.get((sample.task, sample.sample_id), ""), keys)
        for sample, keys in zip(samples, answers, strict=True)
    ]


def _run_ids(names: tuple[str, str], file: official_judge.JudgeFile) -> tuple[str, str]:
    """Names of the two compared runs, distinct even if both are of one model."""
    first, second = names
    suffix = _name_suffix(file)
    return f"{first}-{suffix}", f"{second}-{'against-' * (first == second)}{suffix}"


def _unknown_sample(row: official_judge.JudgedPair) -> Sample:
    name = sha256_text(canonical_json(list(row.prompts)))[:16]
    return Sample(official_judge.BENCHMARK, NO_TASK, name, "", "", (), meta={"evaluation": LLM})


def _samples(store: Store, judgements: Judgements) -> tuple[dict[int, _StoredRun], dict[QuestionAndReference, Sample]]:
    """Return stored runs by side, and each question's sample."""
    rows = judgements.rows
    contents = [row.contents for row in rows if row.contents]
    questions = list(dict.fromkeys(texts[:2] for texts in contents))
    runs = _stored_runs(store, questions)
    sides: dict[int, _StoredRun] = {}
    samples: dict[QuestionAndReference, Sample] = {}
    for side in (0, 1) if contents else ():
        candidates = [run for run in runs if run.has_all(contents, side, samples)]
        matching_runs = [run for run in candidates if run.has_name(rows[0].names[side])]
        if matching_runs or len(candidates) == 1:
            sides[side] = run = (matching_runs or candidates)[0]
            samples |= {texts[:2]: match[0] for texts in contents if (match := run.answer(texts, side))}
    return sides, samples or _new_samples(store, judgements, questions)


def _stored_runs(store: Store, questions: Sequence[QuestionAndReference]) -> list[_StoredRun]:
    runs: dict[str, _StoredRun] = {}
    for row in store.query(
        "SELECT g.run_id, r.model, g.task, g.iteration, g.output, a.* EXCLUDE (benchmark, task) FROM generations g "
        "JOIN samples a USING (benchmark, task, sample_id) JOIN runs r USING (run_id) WHERE g.benchmark = ? "
        "AND g.error IS NULL AND list_contains(?, a.question) ORDER BY g.run_id, g.task, g.sample_id, g.iteration",
        [official_judge.BENCHMARK, [question for question, _ in questions] or [""]],
    ).dicts():
        sample = stored_sample(official_judge.BENCHMARK, row["task"], row)
        run = runs.setdefault(row["run_id"], _StoredRun(row["run_id"], row["model"]))
        question = row["question"], sample.references[0] if sample.references else ""
        run.answers.setdefault(question, []).append((sample, row["iteration"], row["output"] or ""))
    return list(runs.values())


def _new_samples(
    store: Store, judgements: Judgements, questions: Sequence[QuestionAndReference]
) -> dict[QuestionAndReference, Sample]:
    """Write and return the bundle's samples; without a bundle, those that an import of the answers would create."""
    samples = {key: judged_sample(official_judge.BENCHMARK, *key, LLM) for key in questions}
    if judgements.bundle is None or not questions:
        store.write(samples=[SampleRow(sample, position) for position, sample in enumerate(samples.values())])
        return samples
    form, rows = find_format(official_judge.BENCHMARK), []
    for position, sample in enumerate(samples.values()):
        line = PredictionLine("a prompt", position, "", {})
        rows.append(Prediction(line, sample.task, sample.sample_id, position, sample))
    matched = match_judge_answers(form, judgements.bundle, PredictionFiles(group_by_task(rows), [], "", for_judge=True))
    tasks = matched.tasks.items()
    store.write(samples=[row for task, some in tasks for row in sample_rows(form, task, some, judgements.bundle)])
    return {questions[row.line.number]: row.sample for row in matched.rows if row.sample}


def _write_run(store: Store, run: _NewRun, judgements: Judgements) -> None:
    form, digest = official_judge.JUDGEMENT_FORMAT, judgements.file.sha256
    row = find_import(form, digest, judgements.bundle, run_id=run.run_id, model=run.model, judged=True)
    answers = [
        GenerationRow(run.run_id, *key, iteration, output=text)
        for key, texts in run.answers.items()
        for iteration, text in enumerate(texts)
    ]
    write_import(store, row, [], answers)
    store.finish_run(run.run_id, "done")


def _document_hashes(store: Store) -> dict[tuple[str, str], str]:
    query = "SELECT task, sample_id, context_sha256 FROM samples WHERE benchmark = ?"
    rows = store.query(query, [official_judge.BENCHMARK]).rows
    return {(task, name): digest for task, name, digest in rows if digest}
