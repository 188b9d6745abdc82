"""LongBench v1 and LongBench-E (THUDM, 2023): 21 tasks in English, Chinese and code, 13 of them in E.

Source: https://github.com/THUDM/LongBench/tree/2e00731f8d0bff23dc4325161044d0ed8af94c1e/LongBench (pred.py, eval.py,
metrics.py); data and prompts come from the bundle. One line of data.zip's data/{task}.jsonl:

    {"input": "...", "context": "...", "answers": ["..."], "length": 2099, "dataset": "multi_news",
     "language": "en", "all_classes": null, "_id": "e45a..."}

"qasper_e" is LongBench-E's qasper: the same prompt and metric, aggregated in three buckets of ``length``. An early
release included "nq". If the data include it, the prompt is triviaqa's, as at that time, and the whole answer counts,
as in the scorer of that time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import UsageError
from lbx.base.number import Number
from lbx.base.records import (
    Chunk,
    Prompt,
    Sample,
    Score,
    ScoredSample,
    Task,
    Truncation,
)
from lbx.benchmarks.base.aggregates import ScoredRows, numbers_by_task, numpy_percent, task_score
from lbx.benchmarks.base.benchmark import AskingProtocol, Benchmark, ScoringRules, TaskCatalogue, with_unique_ids
from lbx.benchmarks.base.data_files import DataRow, damaged_file_error, read_json, zip_members
from lbx.benchmarks.base.predictions import ResultFormat, ScoredRun
from lbx.benchmarks.base.sources import DataSource, RowSource, ZippedJsonLines, fill_format, find_in_folder
from lbx.benchmarks.longbench.paper_tables import BOARDS, PAPER, curves, groups
from lbx.benchmarks.longbench.predictions import LongBenchFormat, folder_of
from lbx.benchmarks.longbench.tasks import (
    BUCKETS,
    METRICS,
    ODD_ANSWERS,
    TASKS,
    TaskRules,
    accepted_answers,
    class_names,
    classify_odd_answers,
    official_error,
    rules_of,
)
from lbx.benchmarks.metrics import f1
from lbx.benchmarks.metrics import rouge as rouge_l
from lbx.benchmarks.metrics.longbench import classification, code_line, count, edit_similarity, retrieval
from lbx.options.asking import PLAIN, Mode

T = TypeVar("T")

REPO = "THUDM/LongBench"
DATA = DataSource(
    "bundle/longbench.toml", (REPO, "zai-org/LongBench"), licences="scripts MIT; data: see its card", real_rows="some"
)
PROMPTS = "THUDM/LongBench/LongBench/config/dataset2prompt.json"
NEW_TOKENS = "THUDM/LongBench/LongBench/config/dataset2maxlen.json"
LIMITS = {4096: 3500, 8192: 7500, 16384: 15500, 32768: 31500}

_E_TASKS = tuple(f"{task}_e" for task, kind in TASKS.items() if kind.in_e)
_TWIN = {"nq": "triviaqa"}
_RETRIEVAL = ("single-document QA", "multi-document QA")
"""The categories of the eight tasks for which the authors compared retrieval with reading everything."""

_NON_EVIDENCE = frozenset({"yes", "no", "unanswerable"})
"""Answers that judge the document. Such a word in the document is no evidence."""

__all__ = ["METRICS", "TASKS", "LongBench", "TaskRules", "accepted_answers", "make_sample", "rules_of"]


def _check_mode(task: str, mode: Mode) -> None:
    """Allow retrieval for the eight question-answering tasks (and E's four), as in the authors' retrieval/pred.py."""
    if mode.rag and rules_of(task).category not in _RETRIEVAL:
        fit = ", ".join(f"longbench/{name}" for name, kind in TASKS.items() if kind.category in _RETRIEVAL)
        raise UsageError(
            f"longbench/{task} cannot run with retrieved chunks: its samples are not questions about a document.",
            fix=f"Pass tasks with such questions: {fit}.",
        )


def _result_files(run: ScoredRun) -> dict[str, str]:
    """Write eval.py's result.json, plain and of --e, with tasks in the paper's order (officially in the folder's)."""
    files: dict[str, dict[str, object]] = {}
    for task, numbers_of_task in run.numbers.items():
        head, plain = METRICS[rules_of(task).metric][0], task.removesuffix("_e")
        buckets = {name: numbers_of_task.get(f"{head}/{name}") for name in BUCKETS}
        scores = files.setdefault(f"{folder_of(run.model, task)}/result.json", {})
        if plain == task:
            scores[plain] = numbers_of_task[head].official
        else:  # NaN: numpy's mean of an empty list
            scores[plain] = {name: score.official if score else math.nan for name, score in buckets.items()}
    return {path: json.dumps(scores, ensure_ascii=False, indent=4) for path, scores in files.items()}


class LongBench(Benchmark):
    name = "longbench"
    metric_version = 2
    data = DATA
    catalogue = TaskCatalogue((*TASKS, *_E_TASKS), {"longbench": tuple(TASKS), "longbench_e": _E_TASKS})
    protocol = AskingProtocol(modes=frozenset({"rag"}), check_mode=_check_mode)
    scoring = ScoringRules(average_of="mean of categories", curves=curves)
    predictions = LongBenchFormat(name, catalogue.names)
    results = ResultFormat(_result_files)
    paper = PAPER
    boards = BOARDS

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """Return the tasks that have a file in data.zip. Raises BundleError if the zip is damaged."""
        return [
            Task(
                benchmark=self.name,
                name=task,
                metrics=METRICS[rules_of(task).metric],
                samples=source.count(),
                language=rules_of(task).language,
            )
            for task in self.catalogue.names
            if (names is None or task in names) and (source := _data(bundle, task))
        ]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """Yield a task's samples, with the row's ``_id`` as id (a repeated id gets "-2")."""
        source = _data(bundle, task)
        if source is None:
            raise self.data.missing_data_error(bundle, f"{REPO}, {task}")
        classes = _last_classes(source) if rules_of(task).metric == "classification" else ()
        return with_unique_ids(make_sample(task, row, number, classes) for number, row in enumerate(source.rows()))

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """Fill in the official prompt. As in pred.py, samsum's answers end at a line end, but not before one token.

        With ``mode.rag`` the chunks replace the document as in the authors' retrieval/pred.py: the best first, without
        separators.

        Raises:
            UsageError: the task is not asked with retrieved chunks.
        """
        _check_mode(sample.task, mode)
        task = sample.task.removesuffix("_e")
        kind = TASKS[task]
        template, source = self._official_setting(bundle, PROMPTS, task, str)
        context = sample.context
        if mode.rag:
            context = "".join(chunk.text for chunk in sorted(chunks, key=lambda chunk: chunk.rank))
        before, document, after = fill_format(
            template, {"context": context, "input": sample.question}, document="context", source=source
        )
        return Prompt(
            before=before,
            document=document,
            after=after,
            max_new_tokens=self._official_setting(bundle, NEW_TOKENS, task, int)[0],
            truncation=Truncation.MIDDLE,
            chat=not kind.bare,
            stop_tokens=("\n",) if task == "samsum" else (),
            min_new_tokens=1 if task == "samsum" else 0,
            limits=LIMITS,
            source=source,
        )

    def _official_setting(self, bundle: Bundle, relative_path: str, task: str, kind: type[T]) -> tuple[T, str]:
        """Read the value of a task, or of its twin, in a config file, and name the source for the results file."""
        path = self.data.official_file(bundle, relative_path)
        entries, twin = read_json(path), _TWIN.get(task)
        name = task if task in entries else twin
        if name not in entries:
            raise damaged_file_error(str(path), f"it has no entry for {task}")
        value = entries[name]
        if not isinstance(value, kind) or (isinstance(value, int) and value < 1):
            raise damaged_file_error(
                relative_path, "templates must be text, and numbers of new tokens whole numbers above 0"
            )
        return value, relative_path if name == task else f"{relative_path} ({twin})"

    def evidence(self, sample: Sample) -> Sequence[str]:
        """References of questions on the document, or the heading of the paragraph to find.

        Returns () for summaries, classes, code and counts, for few-shot tasks, because the question's passage contains
        the answer, and for answers such as "yes".
        """
        kind = rules_of(sample.task)
        if kind.metric == "retrieval":
            colon = "：" if kind.language == "zh" else ":"  # "段落2" occurs in "段落27", too
            return [reference + colon for reference in sample.references]
        if kind.category not in _RETRIEVAL:
            return ()
        return [text for text in sample.references if text.strip(" .").casefold() not in _NON_EVIDENCE]

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """Score an output by the task's official metric, the best over the references.

        ``extracted`` is the scored line. If eval.py would stop with an exception, the scores are 0 with an ``error``.
        """
        kind = rules_of(sample.task)
        extracted = None
        if kind.metric == "edit_similarity":
            output = extracted = code_line(output)
        elif kind.first_line:
            output = extracted = output.lstrip("\n").split("\n", 1)[0]
        if error := official_error(sample, output):
            return [Score(metric, 0.0, extracted, error) for metric in METRICS[kind.metric]]
        return [replace(score, extracted=extracted) for score in _scores(kind, sample, output)]

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        """Aggregate a task into eval.py's number: 100 x mean, two decimals by Python's ``round``.

        For an E task there are also numbers "{metric}/0-4k", "/4-8k" and "/8k+", rounded by numpy as in eval.py. A
        bucket without samples, which is NaN officially, is left out.
        """
        scores: list[Number] = []
        for metric in METRICS[rules_of(task).metric]:
            scores += task_score(metric, rows, metric, 2)
            if task.endswith("_e"):
                groups = {
                    name: ScoredRows.of(rows).filter(partial(_is_in_bucket, bucket_index))
                    for bucket_index, name in enumerate(BUCKETS)
                }
                scores += [
                    replace(score, official=numpy_percent(group.with_metric(metric)[1].tolist(), 2))
                    for bucket, group in groups.items()
                    for score in task_score(f"{metric}/{bucket}", group, metric, None)
                ]
        return scores

    def headline(self, task: str, rows: Sequence[ScoredSample]) -> Number | None:
        return next(
            iter(task_score(METRICS[rules_of(task).metric][0], rows, METRICS[rules_of(task).metric][0], 2)), None
        )

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[Number]:
        """Averages of the authors' tables, from ``lbx.benchmarks.longbench.paper_tables``."""
        return groups(numbers_by_task(self.aggregate, tasks))


def _scores(kind: TaskRules, sample: Sample, answer: str) -> list[Score]:
    references = sample.references
    match kind.metric, kind.language:
        case "rouge_l", language:
            rouge = (rouge_l.rouge_l_zh if language == "zh" else rouge_l.rouge_l)(answer, references)
            return [Score("rouge_l", rouge.official), Score("rouge_l_unlimited", rouge.without_limit)]
        case "edit_similarity", _:
            return [Score("edit_similarity", edit_similarity(answer, references))]
        case "classification", _:
            classes = class_names(sample)
            return [Score("classification", classification(answer, references, classes))]
        case "count", _:
            return [Score("count", count(answer, references))]
        case "retrieval", language:
            return [Score("retrieval", retrieval(answer, references, language=language))]
        case _, language:
            return [Score("f1", (f1.qa_f1_zh if language == "zh" else f1.qa_f1)(answer, references))]


def _is_in_bucket(bucket_index: int, row: ScoredSample) -> bool:
    return (row.sample.length >= 4000) + (row.sample.length >= 8000) == bucket_index


def _data(bundle: Bundle, task: str) -> RowSource | None:
    member = f"data/{task}.jsonl"
    return find_in_folder(
        DATA.folder(bundle),
        "data.zip",
        task,
        lambda path: ZippedJsonLines(path, member) if member in zip_members(path) else None,
    )


def _last_classes(source: RowSource) -> tuple[str, ...]:
    """Read the classes of the last row, with which eval.py scores every row of a file."""
    location, last = REPO, None
    for row in source.rows():
        location, last = row.location, row.values.get("all_classes")
    if not isinstance(last, list) or not all(isinstance(name, str) for name in last):
        raise damaged_file_error(location, "all_classes of the last row is not a list of names")
    return tuple(last)


def make_sample(task: str, row: DataRow, number: int, classes: Sequence[str]) -> Sample:
    """Make the sample of a data row. ``classes`` are those of the last row, or () for a task without classes."""
    kind = rules_of(task)
    meta: dict[str, Any] = {"category": kind.category}
    if classes:
        meta["all_classes"] = list(classes)
    context, question, answers = row.get("context", str), row.get("input", str), row.get("answers", list)
    if odd := classify_odd_answers(answers):
        meta[ODD_ANSWERS] = odd
    return Sample(
        benchmark=LongBench.name,
        task=task,
        sample_id=f"{number:04d}" if row.values.get("_id") in (None, "") else row.identifier("_id"),
        context=context,
        question=question,
        references=accepted_answers(task, answers),
        language=str(row.values.get("language") or kind.language),
        length=row.get("length", int),
        length_unit="characters" if kind.language == "zh" else "words",
        meta=meta,
    )
