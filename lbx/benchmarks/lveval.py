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

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from lbx.benchmarks.aggregates import Average, mean
from lbx.benchmarks.base import Benchmark, ScoredSample
from lbx.benchmarks.files import Row, damaged, zip_members
from lbx.benchmarks.literals import read_literals
from lbx.benchmarks.sources import Source, ZippedJsonLines, find_parquet
from lbx.benchmarks.templates import fill_format
from lbx.errors import BundleError
from lbx.layout import Bundle
from lbx.metrics import f1, keyword_gate
from lbx.records import PLAIN, Chunk, GroupScore, Mode, Prompt, Sample, Score, Task, TaskScore, Truncation

REPO = "Infinigence/LVEval"
CONFIG = "infinigence/LVEval/config.py"
PROMPTS = "DATASET_PROMPT"
NEW_TOKENS = "DATASET_MAXGEN"

LIMITS = {4096: 3500, 8192: 7500, 16384: 15500, 32768: 31500, 128000: 127500, 131072: 127500, 200000: 199500}
"""The model's size in thousands of tokens less 500, as the authors tell --model-max-length; its default is 15,500."""

METRICS: dict[str, tuple[str, ...]] = {
    "keyword_f1": ("keyword_f1", "keyword_f1_paper", "f1"),
    "f1": ("f1",),
    "rouge_l": ("rouge_l", "rouge_l_unlimited"),
}
"""What a dataset's kind of metric stores.

keyword_f1 is F1 where the answer names enough of the keywords, else 0; keyword_f1_paper leaves stop words out of the
F1, as the paper says and the code does not; f1 is without the gate. rouge_l_unlimited is rouge_l without the official
run's recursion limit.
"""

NO_TEXT = "The first answer in the data is no text, on which the official script stops."
KEYWORDS_NO_TEXT = "The answer keywords in the data are no text, on which the official script stops."


@dataclass(frozen=True, slots=True)
class Kind:
    """What is fixed about a dataset.

    Attributes:
        category: the paper's group.
        metric: a key of ``METRICS``.
    """

    category: str
    metric: str
    language: str


SINGLE_HOP = "single-hop QA"
MULTI_HOP = "multi-hop QA"

DATASETS: dict[str, Kind] = {
    "hotpotwikiqa_mixup": Kind(MULTI_HOP, "keyword_f1", "en"),
    "loogle_SD_mixup": Kind(SINGLE_HOP, "keyword_f1", "en"),
    "loogle_CR_mixup": Kind(MULTI_HOP, "keyword_f1", "en"),
    "loogle_MIR_mixup": Kind(MULTI_HOP, "keyword_f1", "en"),
    "multifieldqa_en_mixup": Kind(SINGLE_HOP, "keyword_f1", "en"),
    "multifieldqa_zh_mixup": Kind(SINGLE_HOP, "keyword_f1", "zh"),
    "factrecall_en": Kind(SINGLE_HOP, "f1", "en"),
    "factrecall_zh": Kind(SINGLE_HOP, "f1", "zh"),
    "cmrc_mixup": Kind(SINGLE_HOP, "keyword_f1", "zh"),
    "lic_mixup": Kind(MULTI_HOP, "keyword_f1", "zh"),
    "dureader_mixup": Kind(MULTI_HOP, "rouge_l", "zh"),
}
LEVELS = ("16k", "32k", "64k", "128k", "256k")


def split_task(task: str) -> tuple[str, str]:
    """("factrecall_en", "16k") of "factrecall_en_16k"."""
    dataset, _, level = task.rpartition("_")
    return dataset, level


def kind_of(task: str) -> Kind:
    return DATASETS[split_task(task)[0]]


class LVEval(Benchmark):
    """The benchmark family "lveval"."""

    name = "lveval"
    metric_version = 1
    known_tasks = tuple(f"{dataset}_{level}" for dataset in DATASETS for level in LEVELS)

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """Those whose file is in their dataset's zip. Raises BundleError where a zip is damaged."""
        wanted = [task for task in self.known_tasks if names is None or task in names]
        held = {task: source for task in wanted if (source := _data(bundle, task))}
        # To count is to unpack gigabytes, and zlib lets other threads run meanwhile.
        with ThreadPoolExecutor() as pool:
            counts = list(pool.map(lambda source: source.count(), held.values()))
        return [
            Task(self.name, task, METRICS[kind_of(task).metric], count, kind_of(task).language)
            for task, count in zip(held, counts, strict=True)
        ]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """See ``Benchmark.samples``. The id is the row's place in the file, from "0000"."""
        source = _data(bundle, task)
        if source is None:
            raise BundleError(
                f"The bundle at {bundle.root} does not hold {REPO}, {task}.",
                fix="Bundle it on a connected machine.",
                command="lbx bundle bundle/lveval.toml",
            )
        for number, row in enumerate(source.rows()):
            yield _sample(task, row, number)

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """The official prompt; a model's chat template goes around every dataset's."""
        dataset, _ = split_task(sample.task)
        before, document, after = fill_format(
            _template(bundle, dataset),
            {"context": sample.context, "input": sample.question},
            document="context",
            source=CONFIG,
        )
        return Prompt(
            before=before,
            document=document,
            after=after,
            max_new_tokens=_new_tokens(bundle, dataset),
            truncation=Truncation.MIDDLE,
            limits=LIMITS,
            source=CONFIG,
        )

    def evidence(self, sample: Sample) -> Sequence[str]:
        """The answers and their keywords. dureader's answers are people's summaries, which no document holds."""
        if kind_of(sample.task).metric == "rouge_l":
            return ()
        keywords = sample.meta.get("answer_keywords")
        texts = (*sample.references, keywords if isinstance(keywords, str) else "")
        return tuple(dict.fromkeys(text.strip() for text in texts if any(sign.isalnum() for sign in text)))

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """The official metric of the first answer alone, and what stands beside it; without answers 0."""
        kind = kind_of(sample.task)
        if sample.meta.get("fault") or not sample.references:
            return [Score(metric, 0.0, error=sample.meta.get("fault")) for metric in METRICS[kind.metric]]
        reference = sample.references[0]
        if kind.metric == "rouge_l":
            rouge = keyword_gate.rouge_l_zh(output, reference)
            return [Score("rouge_l", rouge.official), Score("rouge_l_unlimited", rouge.unlimited)]
        if kind.metric == "f1":
            return [Score("f1", (f1.qa_f1_zh if kind.language == "zh" else f1.qa_f1)(output, [reference]))]
        return _keyword_f1(kind, output, reference, sample.meta.get("answer_keywords"))

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[TaskScore]:
        """evaluation.py's number of a file, 100 x mean with two decimals by Python's ``round``, then the others."""
        found = []
        headline, *_ = METRICS[kind_of(task).metric]
        for metric in METRICS[kind_of(task).metric]:
            values = [row.scores[metric] for row in rows if metric in row.scores]
            if values:
                # Officially 100 * sum / n, not 100 * (sum / n): the last digit can differ.
                official = round(mean(values, 100), 2) if metric == headline else None
                found.append(TaskScore(metric, len(values), mean(values), official))
        return found

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]]) -> list[GroupScore]:
        """The published averages: of each level over the datasets, and of each dataset over the levels.

        Their README has the means of the numbers of ``aggregate``, every task alike; the official number is left out
        where a task of the group is missing. The averages of all and of a category are not published.
        """
        scores = {task: scored[0] for task, rows in tasks.items() if (scored := self.aggregate(task, rows))}
        groups = [_group(scores, "overall", "all", self.known_tasks, published=False)]
        for level in LEVELS:
            groups.append(_group(scores, "length", level, [f"{dataset}_{level}" for dataset in DATASETS]))
        for category in (SINGLE_HOP, MULTI_HOP):
            members = [task for task in self.known_tasks if kind_of(task).category == category]
            groups.append(_group(scores, "category", category, members, published=False))
        for dataset in DATASETS:
            groups.append(_group(scores, "dataset", dataset, [f"{dataset}_{level}" for level in LEVELS]))
        return [group for group in groups if group]


def first_answers(answers: object) -> tuple[tuple[str, ...], str | None]:
    """References of a row's ``answers``, and why the official script would stop on them.

    Only the first answer is scored, so only that one can stop it. A bare string counts as its characters, as there.
    """
    if not isinstance(answers, list | tuple | str):
        return (), NO_TEXT
    if answers and not isinstance(answers[0], str):
        return (), NO_TEXT
    return tuple(answer for answer in answers if isinstance(answer, str)), None


def _keyword_f1(kind: Kind, output: str, reference: str, keywords: object) -> list[Score]:
    given = keywords if isinstance(keywords, str) else None  # null, 0 and [] count as absent, as officially
    found = (keyword_gate.keyword_f1_zh if kind.language == "zh" else keyword_gate.keyword_f1)(output, reference, given)
    if keywords and given is None:
        found = keyword_gate.KeywordF1(0.0, 0.0, found.ungated, None, KEYWORDS_NO_TEXT)
    return [
        Score("keyword_f1", found.official, error=found.error),
        Score("keyword_f1_paper", found.paper, error=found.error),
        Score("f1", found.ungated),
    ]


def _group(
    scores: Mapping[str, TaskScore], grouping: str, name: str, members: Sequence[str], *, published: bool = True
) -> GroupScore | None:
    """The mean over those of the members that have a score; None of fewer than two, which is no average."""
    found = [scores[task] for task in members if task in scores]
    if len(found) < 2:
        return None
    average = Average.of(found, whole=published and len(found) == len(members))
    return average.group(grouping, name, digits=2) if average else None


def _data(bundle: Bundle, task: str) -> Source | None:
    folder = bundle.snapshot("dataset", REPO)
    if folder is None:
        return None
    path = folder / f"{split_task(task)[0]}.zip"
    if not path.is_file():
        return find_parquet(folder, task)
    # By its name alone: whether a zip was packed with its folder is up to whoever packed it.
    member = next((name for name in zip_members(path) if PurePosixPath(name).name == f"{task}.jsonl"), None)
    return ZippedJsonLines(path, member) if member else None


def _sample(task: str, row: Row, number: int) -> Sample:
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


def _template(bundle: Bundle, dataset: str) -> str:
    value = _setting(bundle, PROMPTS, dataset)
    if not isinstance(value, str):
        raise damaged(CONFIG, f"{PROMPTS} should be text for {dataset}")
    return value


def _new_tokens(bundle: Bundle, dataset: str) -> int:
    value = _setting(bundle, NEW_TOKENS, dataset)
    if not isinstance(value, int) or value < 1:
        raise damaged(CONFIG, f"{NEW_TOKENS} should be a whole number over 0 for {dataset}")
    return value


def _setting(bundle: Bundle, name: str, dataset: str) -> object:
    path = bundle.file(CONFIG)
    if path is None:
        raise BundleError(
            f"The bundle at {bundle.root} has no data/files/{CONFIG}, which holds LV-Eval's official settings.",
            fix="Bundle it with the data.",
            command="lbx bundle bundle/lveval.toml",
        )
    settings = read_literals(path, (PROMPTS, NEW_TOKENS))[name]
    if not isinstance(settings, dict) or dataset not in settings:
        raise damaged(str(path), f"{name} has no entry for {dataset}")
    return settings[dataset]
