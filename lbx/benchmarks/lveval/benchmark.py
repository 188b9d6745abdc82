"""LV-Eval (Infinigence, 2024): 11 English and Chinese QA datasets, each with documents of 16k to 256k words.

Source: https://github.com/infinigence/LVEval/tree/63e7ae939bd347c76b2cdb1cebfb216faca26897 (prediction.py, utils.py,
evaluation.py, metrics.py); data and prompts come from the bundle, the prompts and answer budgets as literals of its
config.py, which is never run. One line of hotpotwikiqa_mixup.zip's hotpotwikiqa_mixup/hotpotwikiqa_mixup_16k.jsonl:

    {"input": "...", "context": "...", "answers": ["..."], "length": 21447, "dataset": "hotpotwikiqa_mixup",
     "language": "en", "answer_keywords": "...", "confusing_facts": "..."}

A task is a dataset at a level. The five levels of a dataset ask the same questions in the same order, so that a
sample's id, its place in the file, names the same question in all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from lbx.base.layout import Bundle
from lbx.base.records import (
    PLAIN,
    Chunk,
    GroupScore,
    Mode,
    Prompt,
    Sample,
    Score,
    ScoredSample,
    Task,
    TaskScore,
    Truncation,
)
from lbx.base.resources import usable_cpu_count
from lbx.benchmarks.base.aggregates import Average, task_score
from lbx.benchmarks.base.benchmark import WINDOWS_OF_128K, Benchmark, ScoringRules, TaskCatalogue
from lbx.benchmarks.base.files import DataRow, damaged_file_error, zip_members
from lbx.benchmarks.base.literals import read_literals
from lbx.benchmarks.base.results import ResultFormat, ScoredRun, to_csv
from lbx.benchmarks.base.sources import DataSource, RowSource, ZippedJsonLines, find_in_folder
from lbx.benchmarks.base.templates import fill_format
from lbx.benchmarks.lveval.predictions import LVEvalFormat
from lbx.benchmarks.lveval.tables import BOARDS, PAPER, PUBLISHED
from lbx.benchmarks.lveval.tasks import (
    DATASETS,
    KEYWORDS_NO_TEXT,
    LEVELS,
    METRICS,
    MULTI_HOP,
    SINGLE_HOP,
    TASKS,
    DatasetRules,
    first_answers,
    kind_of,
    split_task,
)
from lbx.metrics import f1, keyword_gate

T = TypeVar("T")

REPO = "Infinigence/LVEval"
DATA = DataSource("bundle/lveval.toml", (REPO, "infini-ai/LVEval"))
CONFIG = "infinigence/LVEval/config.py"
PROMPTS = "DATASET_PROMPT"
NEW_TOKENS = "DATASET_MAXGEN"

LIMITS = {4096: 3500, 8192: 7500, 16384: 15500, 32768: 31500, 200_000: 199_500} | dict.fromkeys(
    WINDOWS_OF_128K, 127_500
)
"""Limits of tokens by window: thousands of tokens less 500, the authors' --model-max-length; its default is 15,500."""


def _result_files(run: ScoredRun) -> dict[str, str]:
    """Return evaluation.py's eval_result/result.json and result.csv, in its order of files."""
    numbers = sorted(run.numbers.items(), key=lambda item: _sort_key(item[0]))
    scores = {task: next(iter(metrics.values())).official for task, metrics in numbers}
    levels: dict[str, dict[str, object]] = {}
    for task, score in scores.items():
        dataset, level = split_task(task)
        levels.setdefault(dataset, {"dataset_name": dataset})[level] = score
    texts = {"json": json.dumps(scores, ensure_ascii=False, indent=4), "csv": to_csv(list(levels.values()))}
    return {f"eval_result/result.{kind}": text for kind, text in texts.items()} if scores else {}


class LVEval(Benchmark):
    name = "lveval"
    metric_version = 1
    data = DATA
    catalogue = TaskCatalogue(TASKS, length_groups={task: split_task(task)[0] for task in TASKS})
    scoring = ScoringRules(cluster_name="question")
    predictions = LVEvalFormat(name, TASKS)
    results = ResultFormat(_result_files)
    paper = PAPER
    boards = BOARDS
    published_figures = PUBLISHED

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """Return the tasks with a file in their dataset's zip. Raises BundleError if a zip is damaged."""
        candidates = [task for task in TASKS if names is None or task in names]
        sources = {task: source for task in candidates if (source := _data(bundle, task))}
        # Counting unpacks gigabytes, and zlib lets other threads run meanwhile.
        with ThreadPoolExecutor(usable_cpu_count()) as pool:
            counts = list(pool.map(lambda source: source.count(), sources.values()))
        return [
            Task(self.name, task, METRICS[kind_of(task).metric], count, kind_of(task).language)
            for task, count in zip(sources, counts, strict=True)
        ]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """Yield a task's samples, with the row's number in the file, from "0000", as id."""
        source = _data(bundle, task)
        if source is None:
            raise self.data.missing_data_error(bundle, f"{REPO}, {task}")
        for number, row in enumerate(source.rows()):
            yield _sample(task, row, number)

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """Return the official prompt; a model's chat template wraps every dataset's."""
        dataset, _ = split_task(sample.task)
        before, document, after = fill_format(
            self._official_setting(bundle, PROMPTS, dataset, str),
            {"context": sample.context, "input": sample.question},
            document="context",
            source=CONFIG,
        )
        return Prompt(
            before=before,
            document=document,
            after=after,
            max_new_tokens=self._official_setting(bundle, NEW_TOKENS, dataset, int),
            truncation=Truncation.MIDDLE,
            limits=LIMITS,
            source=CONFIG,
        )

    def _official_setting(self, bundle: Bundle, name: str, dataset: str, kind: type[T]) -> T:
        path = self.data.official_file(bundle, CONFIG)
        settings = read_literals(path, (PROMPTS, NEW_TOKENS))[name]
        if not isinstance(settings, dict) or dataset not in settings:
            raise damaged_file_error(str(path), f"{name} has no entry for {dataset}")
        value = settings[dataset]
        if not isinstance(value, kind) or (isinstance(value, int) and value < 1):
            requirement = "text" if kind is str else "a whole number above 0"
            raise damaged_file_error(CONFIG, f"{name} must be {requirement} for {dataset}")
        return value

    def evidence(self, sample: Sample) -> Sequence[str]:
        """Return the answers and their keywords. dureader's answers are people's summaries, not parts of documents."""
        if kind_of(sample.task).metric == "rouge_l":
            return ()
        keywords = sample.meta.get("answer_keywords")
        texts = (*sample.references, keywords if isinstance(keywords, str) else "")
        return tuple(dict.fromkeys(text.strip() for text in texts if any(sign.isalnum() for sign in text)))

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """Return the official metric by the first reference only, and further metrics; 0 without references."""
        kind = kind_of(sample.task)
        if sample.meta.get("fault") or not sample.references:
            return [Score(metric, 0.0, error=sample.meta.get("fault")) for metric in METRICS[kind.metric]]
        reference = sample.references[0]
        if kind.metric == "rouge_l":
            rouge = keyword_gate.rouge_l_zh(output, reference)
            return [Score("rouge_l", rouge.official), Score("rouge_l_unlimited", rouge.without_limit)]
        if kind.metric == "f1":
            return [Score("f1", (f1.qa_f1_zh if kind.language == "zh" else f1.qa_f1)(output, [reference]))]
        return _keyword_f1(kind, output, reference, sample.meta.get("answer_keywords"))

    def cluster(self, sample: Sample, document: str) -> str:
        """Return the question, which recurs at five lengths, each time in another document."""
        return sample.question

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[TaskScore]:
        """Return evaluation.py's number of a file, 100 x mean with two decimals by Python's ``round``, then others."""
        headline, *other_metrics = METRICS[kind_of(task).metric]
        other_scores = (score for metric in other_metrics for score in task_score(metric, rows, metric, None))
        return [*task_score(headline, rows, headline, 2), *other_scores]

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[GroupScore]:
        """Return the published averages: of each level over the datasets, and of each dataset over the levels.

        The authors' README has the means of the numbers of ``aggregate``, every task alike; the official number is left
        out if a task of the group is missing. The averages of all and of a category are not published.
        """
        scores = {task: scored[0] for task, rows in tasks.items() if (scored := self.aggregate(task, rows))}
        groups = [_group(scores, "overall", "all", TASKS, is_published=False)]
        for level in LEVELS:
            groups.append(_group(scores, "length", level, [f"{dataset}_{level}" for dataset in DATASETS]))
        for category in (SINGLE_HOP, MULTI_HOP):
            members = [task for task in TASKS if kind_of(task).category == category]
            groups.append(_group(scores, "category", category, members, is_published=False))
        for dataset in DATASETS:
            groups.append(_group(scores, "dataset", dataset, [f"{dataset}_{level}" for level in LEVELS]))
        return [group for group in groups if group]


def _sort_key(task: str) -> tuple[list[str], int]:
    """Return evaluation.py's ``custom_sort`` key of a file: the letters of its name, then its first number."""
    number = re.search(r"\d+", task)
    return re.findall("[a-zA-Z]+", f"{task}.jsonl"), int(number[0]) if number else 0


def _keyword_f1(kind: DatasetRules, output: str, reference: str, keywords: object) -> list[Score]:
    keyword_text = keywords if isinstance(keywords, str) else None  # null, 0 and [] count as absent, as officially
    score = (keyword_gate.keyword_f1_zh if kind.language == "zh" else keyword_gate.keyword_f1)(
        output, reference, keyword_text
    )
    if keywords and keyword_text is None:
        score = keyword_gate.KeywordF1(0.0, 0.0, score.f1_without_gate, None, KEYWORDS_NO_TEXT)
    return [
        Score("keyword_f1", score.official, error=score.error),
        Score("keyword_f1_paper", score.paper, error=score.error),
        Score("f1", score.f1_without_gate),
    ]


def _group(
    scores: Mapping[str, TaskScore], grouping: str, name: str, members: Sequence[str], *, is_published: bool = True
) -> GroupScore | None:
    """Return the mean over the members that have a score; None for fewer than two, which is not an average."""
    values = [scores[task] for task in members if task in scores]
    if len(values) < 2:
        return None
    average = Average.of(values, complete=is_published and len(values) == len(members))
    return average.group(grouping, name, digits=2) if average else None


def _data(bundle: Bundle, task: str) -> RowSource | None:
    def member_of(path: Path) -> RowSource | None:
        # Compare only the file's name: zips may or may not be packed with their folder.
        member = next((name for name in zip_members(path) if PurePosixPath(name).name == f"{task}.jsonl"), None)
        return ZippedJsonLines(path, member) if member else None

    return find_in_folder(DATA.folder(bundle), f"{split_task(task)[0]}.zip", task, member_of)


def _sample(task: str, row: DataRow, number: int) -> Sample:
    kind = kind_of(task)
    references, fault = first_answers(row.get("answers", list))
    meta: dict[str, Any] = {"category": kind.category}
    if row.values.get("answer_keywords"):
        meta["answer_keywords"] = row.values["answer_keywords"]
    if fault:
        meta["fault"] = fault
    return Sample(
        benchmark=LVEval.name,
        task=task,
        sample_id=f"{number:04d}",
        context=row.get("context", str),
        question=row.get("input", str),
        references=references,
        language=str(row.values.get("language") or kind.language),
        length=row.get("length", int),
        length_unit="characters" if kind.language == "zh" else "words",
        meta=meta,
    )
