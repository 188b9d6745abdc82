"""Custom benchmark, from ``data/files/benchmarks/NAME`` of the bundle (see ``lbx.benchmarks.own.definition``).

An instance stores only the name. Prompts are read from the bundle. The scoring rules are stored with each sample
(``meta["metrics"]``), so that stored answers are scored and aggregated again without the bundle.

Prediction files of a custom benchmark are a folder with {task}.jsonl:

    {"id": "...", "output": "...", "question": "...", "references": ["..."], "reasoning": "only if there was some"}

A question with choices is followed by them: "choices": {"A": "...", "B": "..."}.

Only "id" and "output" count in files that are read; everything else comes from the bundle with the benchmark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.database import extract_match
from lbx.base.errors import BundleError, LbxError, UsageError
from lbx.base.number import Number
from lbx.base.records import Chunk, Prompt, Sample, Score, ScoredSample, Task
from lbx.base.tables import is_name
from lbx.base.visible import as_command
from lbx.benchmarks.base.aggregates import Average, mean, task_score
from lbx.benchmarks.base.benchmark import AskingProtocol, Benchmark, ScoringRules
from lbx.benchmarks.base.data_files import cached_by_mtime
from lbx.benchmarks.base.prediction_lines import PredictionLine, prediction_file_error
from lbx.benchmarks.base.predictions import AnswerToExport, Prediction, PredictionFormat
from lbx.benchmarks.base.sources import fill_format
from lbx.benchmarks.metrics.registry import METRICS, VERSION, ScoringTarget
from lbx.benchmarks.own.definition import (
    FILE,
    LETTERS,
    TRUNCATIONS,
    CustomTask,
    Definition,
    choice_lines,
    read_definition,
)
from lbx.benchmarks.own.rows import count_samples, document_files, samples_in
from lbx.options.asking import PLAIN, Mode

FOLDER = "benchmarks"
"""Folder in data/files with a folder for each custom benchmark, named like the benchmark."""

_NON_EVIDENCE = frozenset({"yes", "no", "true", "false", "unanswerable"})
"""Answers that judge the document. Such a word in the document is no evidence."""


@cached_by_mtime
def _read_definition(path: Path) -> Definition:
    return read_definition(path)


class CustomBenchmark(Benchmark):
    """Benchmark that a user defined in the bundle."""

    metric_version = VERSION
    protocol = AskingProtocol(modes=frozenset({"no_context", "rag"}))
    scoring = ScoringRules(is_of_any_tasks=lambda key: True)

    def __init__(self, name: str) -> None:
        self.name = name
        self.predictions = CustomFormat(name, ())

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """Return the tasks in the definition's order. Rows are only counted (``samples`` checks them)."""
        definition = self._definition(bundle)
        return [
            Task(self.name, task.name, task.metrics, self._count_samples(bundle, task), task.language)
            for task in (definition.tasks if definition else ())
            if names is None or task.name in names
        ]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """Yield a task's samples, with the row's id, or else the row's number in the file from "0000"."""
        custom_task = self._task(bundle, task)
        with _as_bundle_error(bundle):
            yield from samples_in(self._data(bundle, custom_task), self.name, custom_task)

    def chance(self, sample: Sample) -> float:
        choices = sample.meta.get("choices")
        return 1 / len(choices) if choices else 0.0

    def rubric_file(self, bundle: Bundle) -> Path | None:
        """Path of the definition if it contains a rubric, for ``read_rubric``, or None."""
        definition = self._definition(bundle)
        return bundle.file(self._source) if definition and definition.rubric else None

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """Fill in the variables of the template. Only the document may be cut.

        Chunks replace the document in document order, with a blank line between them. In a sample with turns, the first
        question fills the template, and the others, ending with the sample's question, are messages that follow.
        """
        custom_task = self._task(bundle, sample.task)
        turns = sample.meta.get("turns", [])
        document = "\n\n".join(chunk.text for chunk in chunks) if mode.rag else sample.context
        fill = partial(fill_format, document="document", source=self._source)
        # Template fields of each of the user's messages; the choices belong to the last
        choices = choice_lines(sample.meta.get("choices", {}).values())
        fields = [{"question": text, "choices": ""} for text in turns[::2]]
        first, *later = [*fields, {"question": sample.question, "choices": choices}]
        template = (mode.no_context and custom_task.no_context_prompt) or custom_task.prompt
        extra_fields = {"document": "" if mode.no_context else document, "examples": custom_task.examples}
        before, document, after = fill(template, first | extra_fields)
        messages = ["".join(fill(custom_task.follow_up, question)) for question in later]
        return Prompt(
            before=before,
            document=document,
            after=after,
            max_new_tokens=sample.meta.get("max_new_tokens", custom_task.max_new_tokens),
            truncation=TRUNCATIONS[custom_task.truncation],
            chat=custom_task.chat,
            system=custom_task.system,
            system_gap="\n\n",
            turns=tuple(text for pair in zip(turns[1::2], messages, strict=True) for text in pair),
            stop=tuple(sample.meta.get("stop", custom_task.stop)),
            source=self._source,
        )

    def evidence(self, sample: Sample) -> Sequence[str]:
        """References, or the texts of the right choices, without answers such as "yes"."""
        choices = sample.meta.get("choices", {})
        texts = [choices.get(reference, reference) for reference in sample.references]
        return [text for text in texts if text.strip(" .").casefold() not in _NON_EVIDENCE]

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """Score an output by the metrics that the sample names, in order. [] if the sample names no known metric.

        If the sample has an extraction pattern that does not match the output, all scores are 0.
        """
        stored_metrics, choices, cues, pattern = (
            sample.meta.get(key) for key in ("metrics", "choices", "answer_cues", "extract")
        )
        target = ScoringTarget(sample.references, sample.language, _texts_by_letter(choices), tuple(_texts_in(cues)))
        metric_names = [name for name in _texts_in(stored_metrics) if name in METRICS]
        if not isinstance(pattern, str):
            return [Score(name, *METRICS[name](output, target)) for name in metric_names]
        answer = extract_match(pattern, output)
        if answer is None:
            return [Score(name, 0.0, "") for name in metric_names]
        values = {name: METRICS[name](answer, target) for name in metric_names}
        return [
            Score(name, result.value, answer if result.extracted is None else result.extracted)
            for name, result in values.items()
        ]

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        """Average each metric of a task. ``official`` is the mean in percent."""
        metrics = dict.fromkeys(metric for row in rows for metric in row.scores)
        order = rows[0].sample.meta.get("metrics", []) if rows else []
        ordered = sorted(metrics, key=lambda metric: order.index(metric) if metric in order else len(order))
        scores = [score for metric in ordered for score in task_score(metric, rows, metric, None)]
        return [
            replace(score, official=mean(score.estimate.values.tolist(), 100)) for score in scores if score.estimate
        ]

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[Number]:
        """Average the tasks' headlines by language, if there are several languages, and overall."""
        heads = {task: scores[0] for task, rows in tasks.items() if (scores := self.aggregate(task, rows))}
        languages: dict[str, list[Number]] = {}
        for task, head in heads.items():
            languages.setdefault(tasks[task][0].sample.language, []).append(head)
        parts = [("language", name, scores) for name, scores in languages.items()] if len(languages) > 1 else []
        parts += [("overall", "all", list(heads.values()))] if len(heads) > 1 else []
        averages = [(grouping, name, Average.of(scores, complete=True)) for grouping, name, scores in parts]
        return [average.to_group_number(grouping, name) for grouping, name, average in averages if average]

    @property
    def _source(self) -> str:
        return f"{FOLDER}/{self.name}/{FILE}"

    def _definition(self, bundle: Bundle) -> Definition | None:
        path = bundle.file(self._source)
        if path is None:
            return None
        with _as_bundle_error(bundle):
            definition = _read_definition(path)
            if definition.name != self.name:
                raise UsageError(f"{path}: it defines {definition.name!r}, but its folder is named {self.name!r}.")
        return definition

    def _task(self, bundle: Bundle, name: str) -> CustomTask:
        definition = self._definition(bundle)
        task = definition.task(name) if definition else None
        if task is None:
            raise BundleError(
                f"The bundle at {bundle.root} has no task {self.name}/{name}.",
                fix="Pass the bundle with this task.",
                command=as_command("lbx", "tasks", "--bundle", bundle.root),
            )
        return task

    def _data(self, bundle: Bundle, task: CustomTask) -> Path:
        path = bundle.file(f"{FOLDER}/{self.name}/{task.data}")
        if path is None or not path.is_file():
            raise UsageError(f"{task.location}: the bundle lacks its data, {task.data!r}.")
        return path

    def _count_samples(self, bundle: Bundle, task: CustomTask) -> int:
        with _as_bundle_error(bundle):
            return count_samples(self._data(bundle, task))


def custom_benchmark(name: str) -> Benchmark:
    """Make the custom benchmark of a name, whether or not a bundle defines it. Raises KeyError if invalid."""
    if not is_name(name):
        raise KeyError(name)
    return CustomBenchmark(name)


def custom_names(bundle: Bundle, reserved_names: Mapping[str, str]) -> list[str]:
    """Names of the custom benchmarks in a bundle.

    Args:
        reserved_names: {name that a benchmark must not use: meaning of the name}.

    Raises:
        BundleError: a benchmark has a reserved or invalid name.
    """
    folder = bundle.file(FOLDER)
    names = sorted(path.parent.name for path in folder.glob(f"*/{FILE}")) if folder and folder.is_dir() else []
    for name in names:
        if name in reserved_names or not is_name(name):
            raise BundleError(
                f"The bundle at {bundle.root} has a benchmark named {name!r}, which "
                + (f"means {reserved_names[name]}." if name in reserved_names else "is not a valid name."),
                fix="Rename it on the connected machine and build the bundle again.",
            )
    return names


def read_for_bundle(path: Path, reserved_names: Mapping[str, str]) -> tuple[Definition, list[str], list[str]]:
    """Read and check a definition with all data, for bundling. Returns it, the data files and the document files.

    Raises:
        UsageError: the definition or a data file is invalid. The message names file and line.
    """
    with _reraise_as(
        UsageError,
        "Correct it: docs/own-benchmark.md explains every field.",
        as_command("lbx", "bundle", path, "--dry-run"),
    ):
        definition = read_definition(path, reserved_names)
        documents: list[str] = []
        for task in definition.tasks:
            data = path.parent / task.data
            if not data.is_file():
                raise UsageError(
                    f"{task.location}: there is no file {data}.",
                    fix="Add it, or correct `data`, a path relative to the definition.",
                )
            deque(samples_in(data, definition.name, task), maxlen=0)
            documents += document_files(data, task)
    names = dict.fromkeys(task.data for task in definition.tasks)
    return definition, list(names), [name for name in dict.fromkeys(documents) if name not in names]


def _texts_in(value: object) -> list[str]:
    """Texts of a stored list, without other values, because an imported results file may contain any."""
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _texts_by_letter(value: object) -> dict[str, str]:
    items = value.items() if isinstance(value, dict) else ()
    return {letter: text for letter, text in items if letter in LETTERS and len(letter) == 1 and isinstance(text, str)}


@contextmanager
def _reraise_as(kind: Callable[..., LbxError], fix: str, command: str = "") -> Iterator[None]:
    try:
        yield
    except (UsageError, BundleError) as exc:
        hint = exc.fix if isinstance(exc, UsageError) else ""
        raise kind(exc.cause, fix=f"{hint} {fix}".strip(), command=command) from exc


def _as_bundle_error(bundle: Bundle) -> AbstractContextManager[None]:
    fix = "Correct the file on the connected machine and build the bundle again."
    return _reraise_as(BundleError, fix, as_command("lbx", "verify", bundle.root))


class CustomFormat(PredictionFormat):
    """Format of a custom benchmark's prediction files. ``known_tasks`` is () without a bundle."""

    folder = True
    has_own_content = False

    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        predictions = []
        for number, line in enumerate(lines):
            name = line.require("id")
            if not isinstance(name, str | int) or isinstance(name, bool):
                raise prediction_file_error(line.location, "'id' must be text or a whole number")
            sample = Sample(self.name, task, str(name), context="", question="", references=())
            predictions.append(self.make_prediction(line, number, sample, "output"))
        return predictions

    def match_key(self, sample: Sample) -> object:
        return sample.sample_id

    def file_name(self, model: str, task: str) -> str:
        return f"{task}.jsonl"

    def row(self, model: str, task: str, answer: AnswerToExport) -> dict[str, Any]:
        """Row with question, choices, references and answer."""
        return {
            "id": answer.sample.sample_id,
            "question": answer.sample.question,
            **({"choices": choices} if (choices := answer.sample.meta.get("choices")) else {}),
            "references": list(answer.sample.references),
            "output": answer.output,
        }
