"""LV-Eval (Infinigence, 2024): 11 English and Chinese QA datasets, each with documents of 16k to 256k words.

Source: https://github.com/infinigence/LVEval/tree/63e7ae939bd347c76b2cdb1cebfb216faca26897 (prediction.py, utils.py,
evaluation.py, metrics.py). The data come from the bundle. Prompts and answer budgets are literals in LV-Eval's
config.py, which the bundle contains and which is never run. One line of hotpotwikiqa_mixup.zip's
hotpotwikiqa_mixup/hotpotwikiqa_mixup_16k.jsonl:

    {"input": "...", "context": "...", "answers": ["..."], "length": 21447, "dataset": "hotpotwikiqa_mixup",
     "language": "en", "answer_keywords": "...", "confusing_facts": "..."}

A task is a dataset at a level. The five levels of a dataset ask the same questions in the same order, so that a
sample's id, the position in the file, names the same question at all levels.

The tables show datasets by length level, with means, and published scores.

The prediction files of a model are {dataset}_{level}.jsonl in one folder, with rows as prediction.py writes and
evaluation.py reads them:

    {"pred": "...", "answers": ["..."], "gold_ans": "the keywords, or null", "input": "the question",
     "all_classes": null, "length": 15342}

A row does not identify a sample. Without a bundle, the row's position in the file does, which is also the bundle's id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from lbx.base.bundle_folder import Bundle
from lbx.base.columns import Column, number_column
from lbx.base.number import OVERALL, Number, NumberKey, group_number, task_number
from lbx.base.records import (
    Chunk,
    Prompt,
    Sample,
    Score,
    ScoredSample,
    Task,
    Truncation,
)
from lbx.base.resources import usable_cpu_count
from lbx.benchmarks.base.aggregates import Average, task_score
from lbx.benchmarks.base.benchmark import WINDOWS_OF_128K, Benchmark, ScoringRules, TaskCatalogue
from lbx.benchmarks.base.data_files import DataRow, damaged_file_error, zip_members
from lbx.benchmarks.base.paper_tables import (
    MODE,
    Board,
    BoardEntry,
    BoardPart,
    Boards,
    CsvRow,
    HeatMap,
    LineChart,
    Paper,
    PublishedScoreFormat,
    TableCell,
)
from lbx.benchmarks.base.prediction_lines import (
    PredictionLine,
    describe_value,
    prediction_file_error,
    require_references,
    row_length,
)
from lbx.benchmarks.base.predictions import (
    AnswerToExport,
    Prediction,
    PredictionFormat,
    ResultFormat,
    ScoredRun,
    differences,
    to_csv,
)
from lbx.benchmarks.base.sources import (
    DataSource,
    RowSource,
    ZippedJsonLines,
    fill_format,
    find_in_folder,
    read_literals,
)
from lbx.benchmarks.metrics import f1, keyword_gate
from lbx.options.asking import PLAIN, Mode

METRICS: dict[str, tuple[str, ...]] = {
    "keyword_f1": ("keyword_f1", "keyword_f1_paper", "f1"),
    "f1": ("f1",),
    "rouge_l": ("rouge_l", "rouge_l_unlimited"),
}
"""{metric of a dataset: stored metrics}.

keyword_f1 is F1 if the answer names enough of the keywords, else 0. keyword_f1_paper leaves stop words out of the
F1, as in the paper but not in the code. f1 is without this gate. rouge_l_unlimited is rouge_l without the official
run's recursion limit.
"""

NO_TEXT = "The first answer in the data is no text, on which the official script stops."
KEYWORDS_NO_TEXT = "The answer keywords in the data are no text, on which the official script stops."


@dataclass(frozen=True, slots=True)
class DatasetRules:
    """Rules of a dataset.

    Attributes:
        category: category in the paper.
        metric: a key of ``METRICS``.
    """

    category: str
    metric: str
    language: str


SINGLE_HOP = "single-hop QA"
MULTI_HOP = "multi-hop QA"

DATASETS: dict[str, DatasetRules] = {
    "hotpotwikiqa_mixup": DatasetRules(MULTI_HOP, "keyword_f1", "en"),
    "loogle_SD_mixup": DatasetRules(SINGLE_HOP, "keyword_f1", "en"),
    "loogle_CR_mixup": DatasetRules(MULTI_HOP, "keyword_f1", "en"),
    "loogle_MIR_mixup": DatasetRules(MULTI_HOP, "keyword_f1", "en"),
    "multifieldqa_en_mixup": DatasetRules(SINGLE_HOP, "keyword_f1", "en"),
    "multifieldqa_zh_mixup": DatasetRules(SINGLE_HOP, "keyword_f1", "zh"),
    "factrecall_en": DatasetRules(SINGLE_HOP, "f1", "en"),
    "factrecall_zh": DatasetRules(SINGLE_HOP, "f1", "zh"),
    "cmrc_mixup": DatasetRules(SINGLE_HOP, "keyword_f1", "zh"),
    "lic_mixup": DatasetRules(MULTI_HOP, "keyword_f1", "zh"),
    "dureader_mixup": DatasetRules(MULTI_HOP, "rouge_l", "zh"),
}
LEVELS = ("16k", "32k", "64k", "128k", "256k")
TASKS = tuple(f"{dataset}_{level}" for dataset in DATASETS for level in LEVELS)


def split_task(task: str) -> tuple[str, str]:
    """Split a task into dataset and level: ("factrecall_en", "16k") for "factrecall_en_16k"."""
    dataset, _, level = task.rpartition("_")
    return dataset, level


def rules_of(task: str) -> DatasetRules:
    return DATASETS[split_task(task)[0]]


def parse_references(answers: object) -> tuple[tuple[str, ...], str | None]:
    """Parse ``answers`` of a row into references, and a reason if the official script would stop at them.

    Only the first answer is scored, so only the first can stop the script. As officially, a bare string counts as its
    characters.
    """
    if not isinstance(answers, list | tuple | str):
        return (), NO_TEXT
    if answers and not isinstance(answers[0], str):
        return (), NO_TEXT
    return tuple(answer for answer in answers if isinstance(answer, str)), None


def _scores_of_row(row: CsvRow) -> list[tuple[str, NumberKey, str]]:
    return [(row["model"], task_number(f"{row['dataset']}_{row['level']}"), row["score_percent"])]


# Files of published scores have a row for each dataset and level: benchmark,model,dataset,level,score_percent
PUBLISHED = PublishedScoreFormat(("dataset", "level", "score_percent"), _scores_of_row)


def _table_cell(key: NumberKey) -> TableCell | None:
    if key.grouping == "length":
        return TableCell("levels", "average", key.name)
    return TableCell("levels", key.name, "average") if key.grouping else TableCell("levels", *split_task(key.name))


PAPER = Paper({"levels": "LV-Eval: datasets by length level"}, _table_cell, averages=(("levels", "average"),))


_ALL = "all"
_OVERALL = group_number(OVERALL, metric="average")
_LEVEL_MEANS = {level: group_number("length", level, metric="average") for level in LEVELS}
_DATASET_MEANS = {name: group_number("dataset", name, metric="average") for name in DATASETS}
_COLUMNS = {level: level for level in LEVELS}


def _complete_entry(entry: BoardEntry) -> BoardEntry:
    """Add the means that follow from an entry's scores.

    The mean of all levels is lbx's, and never official. It counts as complete if the mean of every level is.
    """
    if entry.run_id is None:
        return replace(entry, numbers={**_means(entry.numbers), **entry.numbers})
    levels = set(_LEVEL_MEANS.values())
    is_complete = levels <= entry.numbers.keys() and not levels & entry.unofficial
    return replace(entry, unofficial=entry.unofficial - {_OVERALL}) if is_complete else entry


def _means(numbers: Mapping[NumberKey, float]) -> dict[NumberKey, float]:
    """Average a published model's scores by level, by dataset and overall, where no task is missing."""
    cells = {split_task(key.task): value for key, value in numbers.items() if split_task(key.task)[1] in LEVELS}
    datasets = dict.fromkeys(dataset for dataset, _ in cells)
    parts = {
        **{key: [(dataset, level) for dataset in datasets] for level, key in _LEVEL_MEANS.items()},
        **{_DATASET_MEANS[name]: [(name, level) for level in LEVELS] for name in datasets if name in _DATASET_MEANS},
        _OVERALL: [(dataset, level) for dataset in datasets for level in LEVELS],
    }
    return {
        key: round(sum(cells[cell] for cell in needed) / len(needed), 2)
        for key, needed in parts.items()
        if needed and cells.keys() >= set(needed)
    }


def _part(dataset: str, levels: Mapping[str, NumberKey], mean: NumberKey) -> BoardPart:
    return BoardPart({**levels, "mean": mean}, texts={"dataset": dataset})


BOARDS = Boards(
    {
        "board_lveval": Board(
            "LV-Eval: by dataset and level, with the means of both (percent)",
            (MODE, *(number_column(level, level, across=True) for level in LEVELS), number_column("mean", "mean")),
            [
                _part(_ALL, _LEVEL_MEANS, _OVERALL),
                *(
                    _part(name, {level: task_number(f"{name}_{level}") for level in LEVELS}, mean)
                    for name, mean in _DATASET_MEANS.items()
                ),
            ],
            leading_columns=(Column("dataset", "dataset"),),
            order_number=_OVERALL,
            charts=[
                LineChart(
                    "LV-Eval: mean over the datasets by level, percent",
                    "Five lengths",
                    _COLUMNS,
                    split_by="dataset",
                    only_value=_ALL,
                ),
                HeatMap(
                    "LV-Eval: {} by dataset and level, percent",
                    "datasets",
                    _COLUMNS,
                    split_by="dataset",
                    only_value=_ALL,
                ),
            ],
        )
    },
    complete_entry=_complete_entry,
)


class LVEvalFormat(PredictionFormat):
    folder = True
    score_keys = ("answer_keywords", "fault")

    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        return [self._prediction(task, number, line) for number, line in enumerate(lines)]

    def _prediction(self, task: str, number: int, line: PredictionLine) -> Prediction:
        kind = rules_of(task)
        keywords = line.values.get("gold_ans")
        if kind.metric == "keyword_f1" and keywords and not isinstance(keywords, str):
            raise prediction_file_error(
                line.location, f"'gold_ans' must be text or null, not {describe_value(keywords)}"
            )
        meta: dict[str, Any] = {"category": kind.category, **({"answer_keywords": str(keywords)} if keywords else {})}
        sample = Sample(
            benchmark=self.name,
            task=task,
            sample_id=f"{number:04d}",
            context="",
            question=line.optional_text("input"),
            references=tuple(require_references(line, "answers")),
            language=kind.language,
            length=row_length(line),
            length_unit="characters" if kind.language == "zh" else "words",
            meta=meta,
        )
        return self.make_prediction(line, number, sample, "pred")

    def match_key(self, sample: Sample) -> object:
        """Match key of a sample: question and references. A level asks each question once."""
        return sample.question, sample.references

    def may_match_by_position(self, prediction: Prediction, sample: Sample) -> bool:
        """Whether a row lacks the question, which evaluation.py never reads, as in some files."""
        mine = prediction.sample
        if mine is None or mine.question or mine.references != sample.references:
            return False
        return not differences(mine, sample, self.score_keys)

    def file_name(self, model: str, task: str) -> str:
        """File name {dataset}_{level}.jsonl, which evaluation.py looks for in --input-dir."""
        return f"{task}.jsonl"

    def row(self, model: str, task: str, answer: AnswerToExport) -> dict[str, Any]:
        return {
            "pred": answer.output,
            "answers": list(answer.sample.references),
            "gold_ans": answer.sample.meta.get("answer_keywords"),
            "input": answer.sample.question,
            "all_classes": None,
            "length": answer.sample.length,
        }


T = TypeVar("T")

REPO = "Infinigence/LVEval"
DATA = DataSource(
    "bundle/lveval.toml", (REPO, "infini-ai/LVEval"), licences="MIT; cmrc and lic CC-BY-SA-4.0", real_rows="no"
)
CONFIG = "infinigence/LVEval/config.py"
PROMPTS = "DATASET_PROMPT"
NEW_TOKENS = "DATASET_MAXGEN"

LIMITS = {4096: 3500, 8192: 7500, 16384: 15500, 32768: 31500, 200_000: 199_500} | dict.fromkeys(
    WINDOWS_OF_128K, 127_500
)
"""{context window: limit of the prompt}, in tokens, by the authors' --model-max-length, with a default of 15,500."""


def _result_files(run: ScoredRun) -> dict[str, str]:
    """Write evaluation.py's eval_result/result.json and result.csv, with files in evaluation.py's order."""
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
    published_scores = PUBLISHED

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """Return the tasks with a file in the dataset's zip. Raises BundleError if a zip is damaged."""
        candidates = [task for task in TASKS if names is None or task in names]
        sources = {task: source for task in candidates if (source := _data(bundle, task))}
        # Counting unpacks gigabytes, and zlib lets other threads run meanwhile.
        with ThreadPoolExecutor(usable_cpu_count()) as pool:
            counts = list(pool.map(lambda source: source.count(), sources.values()))
        return [
            Task(self.name, task, METRICS[rules_of(task).metric], count, rules_of(task).language)
            for task, count in zip(sources, counts, strict=True)
        ]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """Yield a task's samples. The id is the row's number in the file from "0000"."""
        source = _data(bundle, task)
        if source is None:
            raise self.data.missing_data_error(bundle, f"{REPO}, {task}")
        for number, row in enumerate(source.rows()):
            yield _sample(task, row, number)

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """Fill in the official prompt. In every dataset it is wrapped in the model's chat template."""
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
        """References and keywords. dureader's references are people's summaries, which do not occur in documents."""
        if rules_of(sample.task).metric == "rouge_l":
            return ()
        keywords = sample.meta.get("answer_keywords")
        texts = (*sample.references, keywords if isinstance(keywords, str) else "")
        return tuple(dict.fromkeys(text.strip() for text in texts if any(sign.isalnum() for sign in text)))

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """Score an output by the first reference: the official metric and further metrics, 0 without references."""
        kind = rules_of(sample.task)
        if sample.meta.get("fault") or not sample.references:
            return [Score(metric, 0.0, error=sample.meta.get("fault")) for metric in METRICS[kind.metric]]
        reference = sample.references[0]
        if kind.metric == "rouge_l":
            rouge = keyword_gate.rouge_l_zh(output, reference)
            return [Score("rouge_l", rouge.official), Score("rouge_l_unlimited", rouge.without_limit)]
        if kind.metric == "f1":
            return [Score("f1", (f1.qa_f1_zh if kind.language == "zh" else f1.qa_f1)(output, [reference]))]
        keywords = sample.meta.get("answer_keywords")
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

    def cluster(self, sample: Sample, document: str) -> str:
        """Name of a sample's cluster: the question, which recurs at five lengths, each time on another document."""
        return sample.question

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        """Aggregate a task into evaluation.py's number (100 x mean, two decimals by ``round``), and other metrics."""
        headline, *other_metrics = METRICS[rules_of(task).metric]
        other_scores = (score for metric in other_metrics for score in task_score(metric, rows, metric, None))
        return [*task_score(headline, rows, headline, 2), *other_scores]

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[Number]:
        """Average each level over the datasets, and each dataset over the levels, as published.

        The authors' README states means of the numbers of ``aggregate`` with equal weights. The official number is left
        out if a task of the group is missing. The averages over all tasks and by category are not published.
        """
        scores = {task: scored[0] for task, rows in tasks.items() if (scored := self.aggregate(task, rows))}
        groups = [_group(scores, "overall", "all", TASKS, is_published=False)]
        for level in LEVELS:
            groups.append(_group(scores, "length", level, [f"{dataset}_{level}" for dataset in DATASETS]))
        for category in (SINGLE_HOP, MULTI_HOP):
            members = [task for task in TASKS if rules_of(task).category == category]
            groups.append(_group(scores, "category", category, members, is_published=False))
        for dataset in DATASETS:
            groups.append(_group(scores, "dataset", dataset, [f"{dataset}_{level}" for level in LEVELS]))
        return [group for group in groups if group]


def _sort_key(task: str) -> tuple[list[str], int]:
    """Sort key of a file, like ``custom_sort`` in evaluation.py: the letters of the name, then the first number."""
    number = re.search(r"\d+", task)
    return re.findall("[a-zA-Z]+", f"{task}.jsonl"), int(number[0]) if number else 0


def _group(
    scores: Mapping[str, Number], grouping: str, name: str, members: Sequence[str], *, is_published: bool = True
) -> Number | None:
    """Average the scores of a group's members, or return None if fewer than two members are scored."""
    values = [scores[task] for task in members if task in scores]
    if len(values) < 2:
        return None
    average = Average.of(values, complete=is_published and len(values) == len(members))
    return average.to_group_number(grouping, name, digits=2) if average else None


def _data(bundle: Bundle, task: str) -> RowSource | None:
    def member_of(path: Path) -> RowSource | None:
        # Compare only the file's name: zips may or may not be packed with their folder.
        member = next((name for name in zip_members(path) if PurePosixPath(name).name == f"{task}.jsonl"), None)
        return ZippedJsonLines(path, member) if member else None

    return find_in_folder(DATA.folder(bundle), f"{split_task(task)[0]}.zip", task, member_of)


def _sample(task: str, row: DataRow, number: int) -> Sample:
    kind = rules_of(task)
    references, fault = parse_references(row.get("answers", list))
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
