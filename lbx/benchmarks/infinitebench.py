"""InfiniteBench (OpenBMB, 2024): 12 English and Chinese tasks on texts of some 100,000 tokens and more.

Source: https://github.com/OpenBMB/InfiniteBench/tree/88b3daa6989da2fbe0077170d7a3c84c25d5ae58 (MIT): src/prompt.py,
eval_utils.py, eval_yarn_mistral.py and compute_scores.py. Prompts and answer budgets are literals in the first two,
which the bundle contains and which are never run. A line of longbook_choice_eng.jsonl:

    {"id": 0, "context": "...", "input": "Which among ...?", "answer": ["..."], "options": ["...", "...", "...", "..."]}

The prompts are for the open models (YaRN-Mistral, Yi, ChatGLM3). GPT-4, Claude 2 and Kimi-Chat were asked with others.
Decoding is greedy, within the budgets, as in eval_yarn_mistral.py. Yi's published answers were sampled without budgets.

The table shows the tasks, as in the README, and the paper's mean.

The prediction files of a model are preds_{task}.jsonl in one folder, with rows as the scripts write and
compute_scores.py reads them:

    {"id": 0, "prediction": "A. ...", "ground_truth": ["...", "A"]}

Older files contain "pred" and "label", or questions in another order. A sample's id is the row's number and a hash of
the answers, so that questions of two files are equal only if the answers are equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.columns import number_column
from lbx.base.number import OVERALL, Number, NumberKey, group_number, task_number
from lbx.base.records import Chunk, Prompt, Sample, Score, ScoredSample, Task, Truncation, canonical_json, sha256_text
from lbx.benchmarks.base.aggregates import Average, task_score
from lbx.benchmarks.base.benchmark import Benchmark, TaskCatalogue
from lbx.benchmarks.base.data_files import DataRow, count_jsonl, damaged_file_error, read_jsonl, read_text
from lbx.benchmarks.base.paper_tables import MODE, Board, BoardPart, Boards, Paper, RadarChart, TableCell
from lbx.benchmarks.base.prediction_lines import PredictionLine, describe_value, prediction_file_error
from lbx.benchmarks.base.predictions import AnswerToExport, Prediction, PredictionFormat, file_part
from lbx.benchmarks.base.sources import DataSource, assigned_texts, fill_format, read_literals
from lbx.benchmarks.metrics import f1, infinitebench, rouge
from lbx.benchmarks.metrics.loose_match import is_loose_match, matched_choice, named_letters
from lbx.options.asking import PLAIN, Mode


@dataclass(frozen=True, slots=True)
class InfiniteBenchTask:
    """Rules of a task.

    Attributes:
        title: name in the README.
        metrics: stored metrics, the headline first. "after_first" leaves out the prediction's first number, as
            compute_scores.py does for GPT-4.
        kind: type of a reference answer: text, number, integer, or "option", a text of ``options`` with its letter.
        has_evidence: whether the answer occurs in the text.
    """

    title: str
    metrics: tuple[str, ...] = ("accuracy",)
    kind: str = "text"
    language: str = "en"
    has_evidence: bool = False


TASKS: Mapping[str, InfiniteBenchTask] = {
    "passkey": InfiniteBenchTask("Retrieve.PassKey", has_evidence=True),
    "number_string": InfiniteBenchTask("Retrieve.Number", has_evidence=True),
    "kv_retrieval": InfiniteBenchTask("Retrieve.KV", has_evidence=True),
    "longbook_sum_eng": InfiniteBenchTask("En.Sum", ("rouge_lsum",)),
    "longbook_qa_eng": InfiniteBenchTask("En.QA", ("f1",)),
    "longbook_choice_eng": InfiniteBenchTask("En.MC", kind="option"),
    "longdialogue_qa_eng": InfiniteBenchTask("En.Dia"),
    "longbook_qa_chn": InfiniteBenchTask("Zh.QA", ("f1",), language="zh"),
    "code_debug": InfiniteBenchTask("Code.Debug", kind="option"),
    "code_run": InfiniteBenchTask("Code.Run", kind="integer"),
    "math_calc": InfiniteBenchTask("Math.Calc", ("accuracy", "after_first"), kind="integer"),
    "math_find": InfiniteBenchTask("Math.Find", kind="number"),
}
LETTERS = "ABCD"
_KINDS: Mapping[str, tuple[type, ...]] = {"text": (str,), "option": (str,), "integer": (int,), "number": (int, float)}
_DIGITS = 12
"""Decimals of official numbers. The script does not round."""

REPO = "xinrongzhang2022/InfiniteBench"
DATA = DataSource("bundle/infinitebench.toml", (REPO,), licences="scripts MIT; data: see its card", real_rows="no")
TEMPLATES = "OpenBMB/InfiniteBench/src/prompt.py"
RULES = "OpenBMB/InfiniteBench/src/eval_utils.py"
_SET, _BUDGETS, _PREFIX = "yarn_mistral_templates", "DATA_NAME_TO_MAX_NEW_TOKENS", "prefix"
_PLACE = "\0target_number\0"  # the searched number in the source of math_find's first line
_CALL = re.compile(r"func_[0-9]+\(-?[0-9]+\)")
_TARGET = re.compile("The .+ of")
_ID = re.compile("([0-9]{4,})-[0-9a-f]{8}")

_OVERALL = group_number(OVERALL, metric="average")
_TITLES = {task: rules.title for task, rules in TASKS.items()}


def _table_cell(key: NumberKey) -> TableCell | None:
    if key.metric == "after_first":
        return None
    return TableCell("tasks", "", "average" if key.grouping else _TITLES.get(key.task, key.task))


PAPER = Paper({"tasks": "InfiniteBench: tasks"}, _table_cell, averages=(("tasks", ""),))
BOARDS = Boards(
    {
        "board_infinitebench": Board(
            "InfiniteBench: by task (percent)",
            (
                MODE,
                number_column("average", "average"),
                *(number_column(task, title, across=True) for task, title in _TITLES.items()),
            ),
            [BoardPart({"average": _OVERALL, **{task: task_number(task) for task in TASKS}})],
            order_number=_OVERALL,
            charts=[RadarChart("InfiniteBench: tasks, percent", "12 tasks", _TITLES)],
            note="Published models (*) were asked by the authors; the README gives no figures below 5%.",
        )
    }
)


def parse_references(task: str, answer: object) -> tuple[str, ...] | None:
    """Parse an answer: a value, a list of values, or such a list in a list. Options are followed by the letter.

    Returns numbers as JSON texts, or None if the answer is none of these.
    """
    values = answer if isinstance(answer, list) else [answer]
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    kinds = _KINDS[TASKS[task].kind]
    if not values or not all(isinstance(value, kinds) and not isinstance(value, bool) for value in values):
        return None
    if TASKS[task].kind == "option" and not (len(values) == 2 and values[1] in tuple(LETTERS)):
        return None
    return tuple(value if isinstance(value, str) else json.dumps(value) for value in values)


def _make_sample(task: str, number: int, references: tuple[str, ...], **fields: Any) -> Sample:
    rules = TASKS[task]
    sample_id = f"{number:04d}-{sha256_text(canonical_json(references))[:8]}"
    unit = "characters" if rules.language == "zh" else "words"
    fields = {"context": "", "question": "", **fields}
    return Sample(
        InfiniteBench.name, task, sample_id, references=references, language=rules.language, length_unit=unit, **fields
    )


class InfiniteBenchFormat(PredictionFormat):
    folder = True

    def task_of(self, stem: str, *, e: bool) -> str:
        return stem.removeprefix("preds_")

    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        """Parse the rows of a file. The first row decides on the key of the answers, as officially."""
        label = next((key for key in ("ground_truth", "label") if key in lines[0].values), "ground_truth")
        return [self._prediction(task, number, line, label) for number, line in enumerate(lines)]

    def _prediction(self, task: str, number: int, line: PredictionLine, label: str) -> Prediction:
        references = parse_references(task, line.require(label))
        if references is None:
            kind, found = TASKS[task].kind, describe_value(line.values[label])
            raise prediction_file_error(line.location, f"{label!r} must be an answer of the kind {kind}, not {found}")
        row_id = line.values.get("id")
        if isinstance(row_id, bool) or not isinstance(row_id, int) or not 0 <= row_id < 10**9:
            raise prediction_file_error(line.location, "'id' must be a whole number from 0")
        key = next((key for key in ("prediction", "pred") if key in line.values), "prediction")
        return self.make_prediction(line, number, _make_sample(task, row_id, references), key)

    def match_key(self, sample: Sample) -> object:
        return sample.sample_id

    def file_name(self, model: str, task: str) -> str:
        return f"{file_part(model)}/preds_{task}.jsonl"

    def export_path(self, model: str, task: str | None, name: str) -> str:
        return f"{file_part(model)}/{name}"

    def row(self, model: str, task: str, answer: AnswerToExport) -> dict[str, Any]:
        references = list(answer.sample.references)
        numbers = TASKS[task].kind in ("integer", "number")
        truth: Any = [json.loads(text) for text in references] if numbers else references
        match = _ID.fullmatch(answer.sample.sample_id)
        return {
            "id": int(match[1]) if match else answer.position,
            "prediction": answer.output,
            "ground_truth": {"math_calc": [truth], "kv_retrieval": truth[0]}.get(task, truth),
        }


class InfiniteBench(Benchmark):
    name = "infinitebench"
    metric_version = 1
    data = DATA
    catalogue = TaskCatalogue(tuple(TASKS), open_tasks=("longbook_sum_eng", "longbook_qa_eng", "longbook_qa_chn"))
    predictions = InfiniteBenchFormat(name, tuple(TASKS))
    paper = PAPER
    boards = BOARDS

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        paths = {task: _data(bundle, task) for task in TASKS if names is None or task in names}
        return [
            Task(self.name, task, TASKS[task].metrics, count_jsonl(path), TASKS[task].language)
            for task, path in paths.items()
            if path
        ]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """Yield a task's samples. The id is the row's number in the file from "0000", and a hash of the answers."""
        path = _data(bundle, task)
        if path is None:
            raise self.data.missing_data_error(bundle, f"{REPO}, {task}.jsonl")
        for number, row in enumerate(read_jsonl(path)):
            yield _sample(task, number, row)

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """Fill in the official prompt, which is cut in the middle, where prompt and answer exceed the window."""
        task = sample.task
        template = self._official(bundle, TEMPLATES, _SET, task, str)
        values = {"context": sample.context, "input": sample.question, "question": sample.question}
        values |= {f"OPTION_{letter}": text for letter, text in sample.meta.get("options", {}).items()}
        if call := _CALL.search(sample.question):
            values |= {"func_call": call[0], "func": call[0].partition("(")[0]}
        if task == "math_find":
            values["prefix"] = self._first_line(bundle, sample.question)
        before, document, after = fill_format(template, values, document="context", source=TEMPLATES)
        return Prompt(
            before=before,
            document=document,
            after=after,
            max_new_tokens=self._official(bundle, RULES, _BUDGETS, task, int),
            truncation=Truncation.MIDDLE_EVEN,
            source=TEMPLATES,
        )

    def _official(self, bundle: Bundle, file: str, name: str, task: str, kind: type[Any]) -> Any:
        path = self.data.official_file(bundle, file)
        values = read_literals(path, (name,))[name]
        value = values.get(task) if isinstance(values, dict) else None
        if not isinstance(value, kind) or (isinstance(value, int) and value < 1):
            requirement = "text" if kind is str else "a whole number above 0"
            raise damaged_file_error(str(path), f"{name} must have {requirement} for {task}")
        return value

    def _first_line(self, bundle: Bundle, question: str) -> str:
        """First line of math_find, with the words of the question between "The" and "of" in lower case."""
        path = self.data.official_file(bundle, RULES)
        lines = [text for text in assigned_texts(read_text(path), str(path), _PREFIX) if _PLACE in text]
        target = _TARGET.search(question)
        if len(lines) != 1 or target is None:
            raise damaged_file_error(str(path), f"it assigns no text with the searched number to {_PREFIX}")
        return lines[0].replace(_PLACE, target[0].lower()[: -len(" of")])

    def evidence(self, sample: Sample) -> Sequence[str]:
        return sample.references if TASKS[sample.task].has_evidence else ()

    def chance(self, sample: Sample) -> float:
        return 1 / len(LETTERS) if TASKS[sample.task].kind == "option" else 0.0

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """Score an output by compute_scores.py's function for the task, or 0 for references of another task."""
        metrics = TASKS[sample.task].metrics
        try:
            return [_score(sample.task, metric, output, sample.references) for metric in metrics]
        except (IndexError, ValueError, TypeError):  # references of a file that somebody else wrote
            return [Score(metric, 0.0, error="The references are not answers of this task.") for metric in metrics]

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        return [score for metric in TASKS[task].metrics for score in task_score(metric, rows, metric, _DIGITS)]

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[Number]:
        """Average the 12 tasks, as the paper does."""
        scores = [scored for task, rows in tasks.items() if (scored := self.headline(task, rows))]
        average = Average.of(scores, complete=len(scores) == len(TASKS))
        return [average.to_group_number(OVERALL, "all", digits=_DIGITS)] if average else []


def _score(task: str, metric: str, output: str, references: tuple[str, ...]) -> Score:
    first, value, error, extracted = references[0], 0.0, None, None
    matched, other_choices = None, set[str]()
    match task:
        case "passkey" | "number_string":
            extracted = infinitebench.first_number(output)
            value = extracted == first
        case "kv_retrieval":
            value, matched = infinitebench.contains_word(output, first), first
        case "longdialogue_qa_eng":
            value, matched = infinitebench.contains_word(output.upper(), first), first
        case "longbook_sum_eng":
            value = rouge.rouge_lsum(output, references)
        case "longbook_qa_eng":
            value = f1.qa_f1(output, references)
        case "longbook_qa_chn":
            value = f1.qa_f1_characters(output, references)
        case "longbook_choice_eng":
            value, extracted = infinitebench.choose(output, *references)
        case "code_debug":
            value = infinitebench.names_function(output, *references)
        case "code_run":
            found = infinitebench.last_integer(output)
            value, extracted = found == int(first), "" if found is None else str(found)
        case "math_calc":
            labels = [int(text) for text in references]
            value, error = infinitebench.leading_values(output, labels, offset=int(metric == "after_first"))
        case _:
            label = json.loads(first)
            value, error = infinitebench.equals_first_number(output, label)
    if TASKS[task].kind == "option":
        option, letter = references
        matched, other_choices = (
            matched_choice(output, letter, option),
            named_letters(output, LETTERS, option) - {letter},
        )
    loose = None if matched is None else is_loose_match(value, output, matched, other_choices)
    return Score(metric, float(value), extracted, error, loose=loose)


def _data(bundle: Bundle, task: str) -> Path | None:
    folder = DATA.folder(bundle)
    path = folder / f"{task}.jsonl" if folder else None
    return path if path and path.is_file() else None


def _sample(task: str, number: int, row: DataRow) -> Sample:
    question, context, answer = row.get("input", str), row.get("context", str), row.get("answer", object)
    meta: dict[str, Any] = {}
    if TASKS[task].kind == "option":
        options = row.get("options", list)
        if len(options) != len(LETTERS) or not all(isinstance(option, str) for option in options):
            raise damaged_file_error(row.location, "the field 'options' is not a list of four texts")
        meta["options"] = dict(zip(LETTERS, options, strict=True))
        name = answer[0] if isinstance(answer, list) and len(answer) == 1 else answer
        if name in options:
            answer = [name, LETTERS[options.index(name)]]
    references = parse_references(task, answer)
    if references is None:
        raise damaged_file_error(row.location, f"the field 'answer' is no answer of the kind {TASKS[task].kind}")
    pattern = {"code_run": _CALL, "math_find": _TARGET}.get(task)
    if pattern and not pattern.search(question):
        raise damaged_file_error(row.location, f"the field 'input' contains no text of the form {pattern.pattern}")
    length = len(context) if TASKS[task].language == "zh" else len(context.split())
    return _make_sample(task, number, references, context=context, question=question, length=length, meta=meta)
