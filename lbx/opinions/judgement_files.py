"""Import of judgements from other programs, and export for the official judge's script.

Each run of a judge in a file becomes a run in the results file. The compared answers belong to stored runs with exactly
the same answers, or else to runs that are built from the prompts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path
from typing import Any, NamedTuple

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import StoreError, UsageError
from lbx.base.records import Sample, canonical_json, sha256_text
from lbx.base.visible import as_command
from lbx.benchmarks.base.benchmark import LLM, copy_marks, marks_in, row_count, with_unique_ids
from lbx.benchmarks.base.prediction_lines import PredictionLine
from lbx.benchmarks.base.predictions import NO_TASK, Prediction, file_part, judged_sample
from lbx.benchmarks.base.rubric import Rubric
from lbx.benchmarks.base.sources import fill_format
from lbx.benchmarks.judge import NAME, JudgeBenchmark, Round
from lbx.benchmarks.registry import official_judge, official_rubric
from lbx.exchange.exporting import ExportSummary, incomplete_import_error, stored_files, write_files
from lbx.exchange.importing import sample_rows
from lbx.exchange.prediction_files import PredictionFiles, find_format
from lbx.opinions.answer_files import group_by_task, match_judge_answers
from lbx.results import GenerationRow, RunRow, SampleRow, Store
from lbx.results.file.imports import make_import_row, refuse_other_content, write_import
from lbx.results.read.runs import check_runs
from lbx.results.rows import stored_sample

QuestionAndReference = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Judgements:
    """A parsed file of judgements. The name of the first run is ``name``, and that of the second run ends with "-2"."""

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
        compared_runs: names of the compared runs.
        rounds: number of rounds, two per question.
        failed: number of rounds without a judgement.
        numbers: lines with win counts and numbers, counted like the script that wrote the file.
        notes: a sentence for each line with fields that contradict the judgement.
    """

    run_id: str
    compared_runs: tuple[str, ...]
    rounds: int
    failed: int
    numbers: tuple[str, ...]
    notes: tuple[str, ...] = ()


class _AnswerKey(NamedTuple):
    run_id: str
    iteration: int


class _Comparison(NamedTuple):
    """The judged sample of a line, the hash of the sample's document ("" if unknown), and both answers."""

    sample: Sample
    document: str
    answers: tuple[_AnswerKey, _AnswerKey]


@dataclass(slots=True)
class _NewRun:
    """A run that is built from prompts, with each sample's distinct answers in order of appearance."""

    run_id: str
    model: str
    answers: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)

    def iteration(self, sample: Sample, contents: official_judge.PromptContents | None, side: int) -> int:
        """Return the iteration number of a prompt's answer, which is added if new, or 0 for unknown contents."""
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
        """Whether the run gave all answers of a side, and to the same samples if ``samples`` is not empty."""
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
        model: name of the judge. The default is the name in the file.
        run_id: name of the run. The default consists of the judge, the format and the content's hash.
        bundle: bundle with the samples that are matched with questions, and the rubric by which prompts are parsed.

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
    """Write the judge's runs, which stay open until ``Store.finish_run``, and the compared runs.

    Repeating the import of a file replaces the same rows.

    Raises:
        UsageError: no question is in the bundle.
        BundleError: the bundle lacks all of the questions' tasks, or data of a task is damaged.
        StoreError: the results file contains another run, or other samples, under one of the names.
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
    generations = list(_generation_rows(run.run_id, judgements.file.rubric.name, rows, samples))
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
    return make_import_row(
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
    """Yield samples of the rounds, two per line."""
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
            if row.contents:
                yield round_sample
            else:  # the prompts do not determine the answers
                unknown = replace(
                    round_sample.subject, answer_sha256=None, answer_words=None, against_sha256=None, against_words=None
                )
                yield replace(round_sample, subject=unknown)


def _generation_rows(
    run_id: str, task: str, rows: Sequence[official_judge.JudgedPair], samples: Sequence[Sample]
) -> Iterator[GenerationRow]:
    """Yield two rows of ``generations`` per line. Only the first stores the line."""
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
    """Write missing runs and samples, and return the comparison in each line."""
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
    """Build the names of the two compared runs, which differ even if both runs are of the same model."""
    first, second = names
    suffix = _name_suffix(file)
    return f"{first}-{suffix}", f"{second}-{'against-' * (first == second)}{suffix}"


def _unknown_sample(row: official_judge.JudgedPair) -> Sample:
    name = sha256_text(canonical_json(list(row.prompts)))[:16]
    return Sample(official_judge.BENCHMARK, NO_TASK, name, "", "", (), meta={"evaluation": LLM})


def _samples(store: Store, judgements: Judgements) -> tuple[dict[int, _StoredRun], dict[QuestionAndReference, Sample]]:
    """Find stored runs by side, and each question's sample."""
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
    """Write and return the bundle's samples, or without a bundle the samples that an import of answers would create."""
    samples = {key: judged_sample(official_judge.BENCHMARK, *key, LLM) for key in questions}
    if judgements.bundle is None or not questions:
        store.write(samples=[SampleRow(sample, position) for position, sample in enumerate(samples.values())])
        return samples
    prediction_format, rows = find_format(official_judge.BENCHMARK), []
    for position, sample in enumerate(samples.values()):
        line = PredictionLine("a prompt", position, "", {})
        rows.append(Prediction(line, sample.task, sample.sample_id, position, sample))
    matched = match_judge_answers(
        prediction_format, judgements.bundle, PredictionFiles(group_by_task(rows), [], "", for_judge=True)
    )
    tasks = matched.tasks.items()
    store.write(
        samples=[
            row
            for task, judged_rows in tasks
            for row in sample_rows(prediction_format, task, judged_rows, judgements.bundle)
        ]
    )
    return {questions[row.line.number]: row.sample for row in matched.rows if row.sample}


def _write_run(store: Store, run: _NewRun, judgements: Judgements) -> None:
    format_name, digest = official_judge.JUDGEMENT_FORMAT, judgements.file.sha256
    row = make_import_row(format_name, digest, judgements.bundle, run_id=run.run_id, model=run.model, judged=True)
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


_KEY_COLUMNS = ("benchmark", "task", "sample_id", "run_id", "iteration", "against_run_id", "against_iteration")
_ANSWER = ", ".join(
    f"CASE WHEN {side}.run_id IS NOT NULL AND sha256(coalesce({side}.output, '')) = d.{side}_sha256 "
    f"THEN coalesce({side}.output, '') END AS {side}_text"
    for side in ("answer", "against")
)
# Current judgements sort last, so that they replace judgements of answers that have changed since.
_ROUNDS = f"""
    SELECT j.*, a.question, a."references", {_ANSWER}
    FROM judgements j JOIN samples a ON (a.benchmark, a.task, a.sample_id) = ('{NAME}', j.rubric, j.round_id)
    JOIN rounds d USING (rubric, round_id)
    LEFT JOIN generations answer ON (answer.run_id, answer.benchmark, answer.task, answer.sample_id, answer.iteration)
        = (j.run_id, j.benchmark, j.task, j.sample_id, j.iteration)
    LEFT JOIN generations against
        ON (against.run_id, against.benchmark, against.task, against.sample_id, against.iteration)
        = (j.against_run_id, j.benchmark, j.task, j.sample_id, j.against_iteration)
    WHERE j.judge_id = ? AND j.judge_iteration = 0 ORDER BY j.current, a.position
"""


def export_judgements(
    store: Store, runs: Sequence[str], directory: Path, *, bundle: Bundle | None = None, force: bool = False
) -> ExportSummary:
    """Write judges' runs as files of the official judge. Imported runs are written byte for byte.

    Args:
        bundle: source of the prompt, for a judge that lbx ran.

    Raises:
        UsageError: a run is unknown or of another benchmark, a prompt cannot be built, or a file already exists.
        BundleError: the bundle lacks the judge's prompt.
        StoreError: the judged answers are missing from the results file or have changed.
        LbxError: the disk is full or the folder cannot be written. All files are then unchanged.
    """
    files: dict[str, list[str]] = {}
    left_out: Counter[str] = Counter()
    rows = 0
    for run_id in dict.fromkeys(runs):
        check_runs(store, [run_id])
        (run,) = store.query("SELECT * FROM runs WHERE run_id = ?", [run_id]).dicts()
        settings = json.loads(run["settings"])
        if settings.get("imported") == official_judge.JUDGEMENT_FORMAT:
            name, lines = _imported_file(store, run_id, settings)
            new_files = {name: lines}
            rows += len(lines)
        elif "rubric" in settings and "imported" not in settings:
            pairs, missing = _pairs(store, run, _checked_rubric(run_id, settings, bundle))
            new_files = {
                name: [
                    f"{line}\n"
                    for line in (*(pair.line.raw for pair in task_pairs), *official_judge.number_lines(task_pairs))
                ]
                for name, task_pairs in pairs.items()
            }
            rows += sum(map(len, pairs.values()))
            left_out["rounds without their other order"] += missing
        else:
            raise _not_a_judge_error(run_id)
        for name, lines in new_files.items():
            files.setdefault(name, []).extend(lines)
    return ExportSummary(write_files(directory, files, run_names=", ".join(runs), force=force), rows, dict(+left_out))


def _not_a_judge_error(run_id: str) -> UsageError:
    writes = as_command("lbx", "export", official_judge.BENCHMARK, "RESULTS", "--run", "RUN", "--judged", "METRIC")
    return UsageError(
        f"The run {run_id!r} is not a judge's run that can be exported as {official_judge.JUDGEMENT_FORMAT}.",
        fix=f"To export answers for a judge, run: `{writes}`.",
    )


def _imported_file(store: Store, run_id: str, settings: Mapping[str, Any]) -> tuple[str, list[str]]:
    counts = "SELECT count(*), count(source_row) FROM generations WHERE run_id = ? AND benchmark = ?"
    ((rounds, source_rows),) = store.query(counts, [run_id, NAME]).rows
    if "rubric" not in settings:
        raise _not_a_judge_error(run_id)
    files = stored_files(store, run_id, settings)
    if len(files) != 1 or source_rows != files[0].rows or rounds != 2 * source_rows:
        raise incomplete_import_error(store, run_id)
    rows = store.query(
        "SELECT source_row FROM generations WHERE run_id = ? AND source_row IS NOT NULL ORDER BY created_at", [run_id]
    ).rows
    return files[0].name, files[0].lines([text for (text,) in rows])


def _checked_rubric(run_id: str, settings: Mapping[str, Any], bundle: Bundle | None) -> Rubric:
    """Return the official rubric. Raises UsageError if the run used another rubric or a single order."""
    if bundle is None:
        raise UsageError(
            f"The run {run_id!r} was judged by lbx, and the file needs its prompts, which are not stored.",
            fix=f"Pass the bundle with {official_judge.TITLE}'s judge: --bundle DIR.",
        )
    rubric = official_rubric(bundle)
    if settings.get("rubric_sha256") != rubric.sha256 or settings.get("orders") != "both":
        raise UsageError(
            f"The run {run_id!r} did not judge in both orders with the rubric of {official_judge.TITLE}'s "
            "script in this bundle.",
            fix="Such a file contains only verdicts of that rubric; the view `judgements` has all verdicts.",
        )
    return rubric


def _pairs(
    store: Store, run: Mapping[str, Any], rubric: Rubric
) -> tuple[dict[str, list[official_judge.JudgedPair]], int]:
    """Return {file: pairs}, and the number of rounds without a round in the other order."""
    rounds: dict[tuple[Any, ...], dict[bool, dict[str, Any]]] = {}
    for row in store.query(_ROUNDS, [run["run_id"]]).dicts():
        key = (*(row[name] for name in _KEY_COLUMNS), tuple(row["marks"]))
        if None in key:
            raise StoreError(
                f"{store.path} contains a round of {run['run_id']} that lbx did not write.",
                fix="Use the file as lbx wrote it.",
            )
        rounds.setdefault(key, {})[row["answer_first"] is not False] = row
    # A question with both marks is one round; it takes two rows if questions of both marks were judged.
    asked_marks = {marks[0] for *_, marks in rounds if len(marks) == 1}
    pairs: dict[str, list[official_judge.JudgedPair]] = {}
    complete = [(orders[True], orders[False]) for orders in rounds.values() if len(orders) == 2]
    names = _labels(store, {first[name] for first, _ in complete for name in ("run_id", "against_run_id")})
    for first, second in complete:
        judged, against = names[first["run_id"]], names[first["against_run_id"]]
        pair = _pair(store, rubric, run["model"], (judged, against), first=first, second=second)
        pairs.setdefault(f"{judged}.pred.judge.jsonl", []).extend([pair] * row_count(first["marks"], asked_marks))
    return pairs, len(rounds) - len(complete)


def _labels(store: Store, runs: set[str]) -> dict[str, str]:
    """Return {run: name of the run's model in files of the benchmark}."""
    answers = find_format(official_judge.BENCHMARK)
    labels = {}
    for run_id, model, settings in store.query("SELECT run_id, model, settings FROM runs").rows:
        if run_id in runs:
            labels[run_id] = file_part(answers.label(model, json.loads(settings)))
    if missing := sorted(runs - labels.keys()):
        raise _no_answers_error(store, missing[0])
    twice = [label for label, times in Counter(labels.values()).items() if times > 1]
    return {run_id: file_part(run_id) if label in twice else label for run_id, label in labels.items()}


def _no_answers_error(store: Store, run_id: str) -> StoreError:
    return StoreError(
        f"{store.path} lacks the judged answers of {run_id}, which are part of the file's prompts.",
        fix="Merge the results file that contains them: lbx merge.",
    )


def _pair(
    store: Store,
    rubric: Rubric,
    judge: str,
    names: tuple[str, str],
    *,
    first: Mapping[str, Any],
    second: Mapping[str, Any],
) -> official_judge.JudgedPair:
    texts = first["answer_text"], first["against_text"]
    for run_id, text in zip((first["run_id"], first["against_run_id"]), texts, strict=True):
        if text is None:
            raise _no_answers_error(store, run_id)
    fields = {"question": first["question"], "reference": "\n".join(json.loads(first["references"])), "document": ""}
    prompt, swapped = (
        "".join(fill_format(rubric.user, {**fields, "a": a, "b": b}, document="document", source=rubric.source))
        for a, b in (texts, texts[::-1])
    )
    answers = [official_judge.NO_ANSWER if row["error"] is not None else row["output"] or "" for row in (first, second)]
    time = second["created_at"].replace(tzinfo=UTC).timestamp()
    return official_judge.make_pair(judge, names, (prompt, swapped), (answers[0], answers[1]), time)
