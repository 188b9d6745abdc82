"""LongBench v1 and LongBench-E (THUDM, 2023): 21 tasks in English, Chinese and code; E has 13 of them.

Source: https://github.com/THUDM/LongBench/tree/2e00731f8d0bff23dc4325161044d0ed8af94c1e/LongBench (pred.py, eval.py,
metrics.py); data and prompts come from the bundle. One line of data.zip's data/{task}.jsonl:

    {"input": "...", "context": "...", "answers": ["..."], "length": 2099, "dataset": "multi_news",
     "language": "en", "all_classes": null, "_id": "e45a..."}

"qasper_e" is LongBench-E's qasper: the same prompt and metric, added up in three buckets of ``length``. An early
release had "nq"; where the data holds it, it is asked in triviaqa's words, which were its own then, and its whole
answer counts, as the scorer of that time had it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lbx.benchmarks.aggregates import mean, numpy_percent
from lbx.benchmarks.base import Benchmark, ScoredSample
from lbx.benchmarks.files import Row, damaged, read_json
from lbx.benchmarks.sources import Source, find_zipped
from lbx.benchmarks.templates import fill_format
from lbx.errors import BundleError
from lbx.layout import Bundle
from lbx.metrics import classification, code, f1, numbers, rouge_l
from lbx.records import PLAIN, Chunk, Mode, Prompt, Sample, Score, Task, TaskScore, Truncation

REPO = "THUDM/LongBench"
PROMPTS = "THUDM/LongBench/LongBench/config/dataset2prompt.json"
NEW_TOKENS = "THUDM/LongBench/LongBench/config/dataset2maxlen.json"
LIMITS = {4096: 3500, 8192: 7500, 16384: 15500, 32768: 31500}

METRICS: dict[str, tuple[str, ...]] = {
    "f1": ("f1",),
    "rouge_l": ("rouge_l", "rouge_l_unlimited"),
    "classification": ("classification",),
    "count": ("count",),
    "retrieval": ("retrieval",),
    "edit_similarity": ("edit_similarity",),
}
"""What a task's kind of metric stores. rouge_l_unlimited is rouge_l without the official run's recursion limit."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What is fixed about a task.

    Attributes:
        category: the paper's group, which its averages go by.
        metric: a key of ``METRICS``.
        language: "en", "zh" or "code".
        bare: the prompt stays bare text even for chat models.
        first_line: only the answer's first line counts.
        in_e: whether LongBench-E has it.
    """

    category: str
    metric: str
    language: str = "en"
    bare: bool = False
    first_line: bool = False
    in_e: bool = False


TASKS: dict[str, Kind] = {
    "narrativeqa": Kind("single-document QA", "f1"),
    "qasper": Kind("single-document QA", "f1", in_e=True),
    "multifieldqa_en": Kind("single-document QA", "f1", in_e=True),
    "multifieldqa_zh": Kind("single-document QA", "f1", "zh"),
    "hotpotqa": Kind("multi-document QA", "f1", in_e=True),
    "2wikimqa": Kind("multi-document QA", "f1", in_e=True),
    "musique": Kind("multi-document QA", "f1"),
    "dureader": Kind("multi-document QA", "rouge_l", "zh"),
    "gov_report": Kind("summarization", "rouge_l", in_e=True),
    "qmsum": Kind("summarization", "rouge_l"),
    "multi_news": Kind("summarization", "rouge_l", in_e=True),
    "vcsum": Kind("summarization", "rouge_l", "zh"),
    "trec": Kind("few-shot learning", "classification", bare=True, first_line=True, in_e=True),
    "triviaqa": Kind("few-shot learning", "f1", bare=True, first_line=True, in_e=True),
    "samsum": Kind("few-shot learning", "rouge_l", bare=True, first_line=True, in_e=True),
    "lsht": Kind("few-shot learning", "classification", "zh", bare=True, first_line=True),
    "nq": Kind("few-shot learning", "f1", bare=True),
    "passage_count": Kind("synthetic", "count", in_e=True),
    "passage_retrieval_en": Kind("synthetic", "retrieval", in_e=True),
    "passage_retrieval_zh": Kind("synthetic", "retrieval", "zh"),
    "lcc": Kind("code completion", "edit_similarity", "code", bare=True, in_e=True),
    "repobench-p": Kind("code completion", "edit_similarity", "code", bare=True, in_e=True),
}

_BUCKETS = ("0-4k", "4-8k", "8k+")
_TWIN = {"nq": "triviaqa"}


def kind_of(task: str) -> Kind:
    """The kind of "qasper" and of "qasper_e"."""
    return TASKS[task.removesuffix("_e")]


def accepted_answers(task: str, answers: object) -> tuple[str, ...]:
    """The answers that the official scorer would compare with, from whatever ``answers`` holds.

    A bare string counts as its characters, and passage_count compares numbers by their text, as there. What makes
    the official script stop (null, a number elsewhere) is no answer.
    """
    if not isinstance(answers, list | tuple | str):
        return ()
    if task.removesuffix("_e") == "passage_count":
        return tuple(str(answer) for answer in answers)
    return tuple(answer for answer in answers if isinstance(answer, str))


class LongBench(Benchmark):
    """The benchmark family "longbench"."""

    name = "longbench"
    metric_version = 1
    known_tasks = (*TASKS, *(f"{task}_e" for task, kind in TASKS.items() if kind.in_e))

    def tasks(self, bundle: Bundle) -> list[Task]:
        """Those whose file is in data.zip. Raises BundleError where the zip is damaged."""
        return [
            Task(
                benchmark=self.name,
                name=task,
                metrics=METRICS[kind_of(task).metric],
                samples=source.count(),
                language=kind_of(task).language,
            )
            for task in self.known_tasks
            if (source := _data(bundle, task))
        ]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """See ``Benchmark.samples``. The id is the row's ``_id`` (a repeated one gets "-2")."""
        source = _data(bundle, task)
        if source is None:
            raise BundleError(f"The bundle at {bundle.root} does not hold {REPO}, {task}.")
        classes = _classes(source) if kind_of(task).metric == "classification" else ()
        seen: dict[str, int] = {}
        for number, row in enumerate(source.rows()):
            sample = _sample(task, row, number, classes)
            seen[sample.sample_id] = times = seen.get(sample.sample_id, 0) + 1
            yield sample if times == 1 else replace(sample, sample_id=f"{sample.sample_id}-{times}")

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """The official prompt. samsum ends at a line's end, but not before its first token, as in pred.py."""
        task = sample.task.removesuffix("_e")
        kind = TASKS[task]
        template, source = _template(bundle, task)
        before, document, after = fill_format(
            template, {"context": sample.context, "input": sample.question}, document="context", source=source
        )
        return Prompt(
            before=before,
            document=document,
            after=after,
            max_new_tokens=_new_tokens(bundle, task),
            truncation=Truncation.MIDDLE,
            chat=not kind.bare,
            stop=("\n",) if task == "samsum" else (),
            min_new_tokens=1 if task == "samsum" else 0,
            limits=LIMITS,
            source=source,
        )

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """The task's official metric, the best over the references; ``extracted`` is the line that counts."""
        task = sample.task.removesuffix("_e")
        kind = TASKS[task]
        if kind.metric == "edit_similarity":
            line = code.code_line(output)
            return [Score("edit_similarity", code.edit_similarity(line, sample.references), line)]
        if not kind.first_line:
            return _scores(kind, sample, output)
        line = output.lstrip("\n").split("\n", 1)[0]
        return [replace(score, extracted=line) for score in _scores(kind, sample, line)]

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[TaskScore]:
        """eval.py's number: 100 x mean, two decimals by Python's ``round``.

        An E task has numbers "{metric}/0-4k", "/4-8k" and "/8k+" beside it, rounded by numpy as there. A bucket
        without samples, which is NaN officially, is left out.
        """
        found = []
        for metric in METRICS[kind_of(task).metric]:
            scored = [(row.sample.length, row.scores[metric]) for row in rows if metric in row.scores]
            if not scored:
                continue
            values = [value for _, value in scored]
            # Officially 100 * sum / n, not 100 * (sum / n): the last digit can differ.
            found.append(TaskScore(metric, len(values), mean(values), round(mean(values, 100), 2)))
            if task.endswith("_e"):
                found += _buckets(metric, scored)
        return found


def _scores(kind: Kind, sample: Sample, answer: str) -> list[Score]:
    references = sample.references
    match kind.metric, kind.language:
        case "rouge_l", language:
            rouge = (rouge_l.rouge_l_zh if language == "zh" else rouge_l.rouge_l)(answer, references)
            return [Score("rouge_l", rouge.official), Score("rouge_l_unlimited", rouge.unlimited)]
        case "classification", _:
            classes = tuple(sample.meta.get("all_classes") or ())
            return [Score("classification", classification.classification(answer, references, classes))]
        case "count", _:
            return [Score("count", numbers.count(answer, references))]
        case "retrieval", language:
            return [Score("retrieval", numbers.retrieval(answer, references, language=language))]
        case _, language:
            return [Score("f1", (f1.qa_f1_zh if language == "zh" else f1.qa_f1)(answer, references))]


def _buckets(metric: str, scored: Sequence[tuple[int, float]]) -> list[TaskScore]:
    groups: dict[str, list[float]] = {bucket: [] for bucket in _BUCKETS}
    for length, value in scored:
        groups[_BUCKETS[(length >= 4000) + (length >= 8000)]].append(value)
    return [
        TaskScore(f"{metric}/{bucket}", len(values), mean(values), numpy_percent(values, 2))
        for bucket, values in groups.items()
        if values
    ]


def _data(bundle: Bundle, task: str) -> Source | None:
    return find_zipped(bundle.snapshot("dataset", REPO), "data.zip", f"data/{task}.jsonl", config=task)


def _classes(source: Source) -> tuple[str, ...]:
    """The last row's classes: eval.py scores every row of a file with them."""
    where, last = REPO, None
    for row in source.rows():
        where, last = row.where, row.values.get("all_classes")
    if not isinstance(last, list) or not all(isinstance(name, str) for name in last):
        raise damaged(where, "the last row's all_classes is no list of names")
    return tuple(last)


def _sample(task: str, row: Row, number: int, classes: Sequence[str]) -> Sample:
    kind = kind_of(task)
    meta: dict[str, Any] = {"category": kind.category}
    if classes:
        meta["all_classes"] = list(classes)
    return Sample(
        benchmark=LongBench.name,
        task=task,
        sample_id=str(row.values.get("_id") or f"{number:04d}"),
        context=row.get("context", str),
        question=row.get("input", str),
        references=accepted_answers(task, row.get("answers", list)),
        language=str(row.values.get("language") or kind.language),
        length=row.get("length", int),
        length_unit="characters" if kind.language == "zh" else "words",
        meta=meta,
    )


def _template(bundle: Bundle, task: str) -> tuple[str, str]:
    """A task's template, and where it is from."""
    value, source = _entry(bundle, PROMPTS, task)
    if not isinstance(value, str):
        raise damaged(source, "a template should be text")
    return value, source


def _new_tokens(bundle: Bundle, task: str) -> int:
    value, source = _entry(bundle, NEW_TOKENS, task)
    if not isinstance(value, int) or value < 1:
        raise damaged(source, "a number of new tokens should be a whole number over 0")
    return value


def _entry(bundle: Bundle, place: str, task: str) -> tuple[object, str]:
    """A task's entry of a config file, or its twin's, and the entry's name for the results file."""
    path = bundle.file(place)
    if path is None:
        raise BundleError(
            f"The bundle at {bundle.root} has no data/files/{place}, which holds LongBench's official settings.",
            fix="Bundle it with the data.",
            command="lbx bundle bundle/longbench.toml",
        )
    entries = read_json(path)
    if task in entries:
        return entries[task], place
    twin = _TWIN.get(task)
    if twin in entries:
        return entries[twin], f"{place} ({twin})"
    raise damaged(str(path), f"it has no entry for {task}")
