"""BABILong (AIRI, 2024): facts of bAbI's 20 tasks, hidden in books at lengths from 0 to 10 million tokens.

Source: https://github.com/booydar/babilong/tree/7a6efee29f5cac03c3c410e6799c80fd2ffe3610 (Apache-2.0):
scripts/run_model_on_babilong.py, babilong/prompts.py, metrics.py and collect_results.py. Prompts are literals in
prompts.py, which the bundle contains and which is never run. The data contains no length: a task is a question type at
a length, a file of RMT-team/babilong (100 rows, JSON), or of RMT-team/babilong-1k-samples (up to 1,000, parquet):

    {"input": "... Mary moved to the garden. ...", "question": "Where is Mary? ", "target": "garden"}

The leaderboard asks qa1 to qa5, up to 32k with the second dataset, and from 64k on with the first. The prompt consists
of instruction, examples, post-prompt, text and question. Each of the first three can be left out.

The tables show question types by length, with the leaderboard's mean of qa1 to qa5, and published scores.

The prediction files of a model are CSV files in one folder, named after task and prompt, as run_model_on_babilong.py
writes and collect_results.py reads them, each with a JSON file of prompt and settings:

    qa1_32k_instruction_yes_examples_yes_post_prompt_yes_chat_template_no.csv
    ,target,output,question
    0,garden,The most recent location of Mary is garden.,Where is Mary?

The number of a row is a sample's id. A file answers the bundle's samples only if the questions are equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.columns import Column, number_column
from lbx.base.errors import BundleError, UsageError
from lbx.base.number import OVERALL, Number, NumberKey, group_number, task_number
from lbx.base.records import Chunk, Prompt, Sample, Score, ScoredSample, Task, Truncation
from lbx.benchmarks.base.aggregates import Average, task_score
from lbx.benchmarks.base.benchmark import AskingProtocol, Benchmark, TaskCatalogue
from lbx.benchmarks.base.data_files import damaged_file_error
from lbx.benchmarks.base.paper_tables import (
    MODE,
    Board,
    BoardEntry,
    BoardPart,
    Boards,
    HeatMap,
    LineChart,
    Paper,
    PublishedScoreFormat,
    TableCell,
)
from lbx.benchmarks.base.prediction_lines import PredictionLine, prediction_file_error
from lbx.benchmarks.base.predictions import AnswerToExport, Prediction, PredictionFormat, file_part
from lbx.benchmarks.base.sources import DataSource, RowSource, fill_format, find_parquet, json_rows, read_literals
from lbx.benchmarks.metrics.labels import first_sentence, named_labels, target_labels
from lbx.benchmarks.metrics.loose_match import is_loose_match
from lbx.options.asking import PLAIN, Mode

_ROOMS = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
_YES_NO = ("no", "yes")
LABELS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("qa1", "qa2", "qa3", "qa4"), _ROOMS),
    "qa5": ("Bill", "Fred", "Jeff", "Mary", "apple", "football", "milk"),
    "qa6": _YES_NO,
    "qa7": ("none", "one", "three", "two"),
    "qa8": ("apple", "football", "milk", "nothing"),
    "qa9": _YES_NO,
    "qa10": ("maybe", *_YES_NO),
    **dict.fromkeys(("qa11", "qa12", "qa13"), _ROOMS),
    "qa14": ("bedroom", "cinema", "kitchen", "office", "park", "school"),
    "qa15": ("cat", "mouse", "sheep", "wolf"),
    "qa16": ("gray", "green", "white", "yellow"),
    **dict.fromkeys(("qa17", "qa18"), _YES_NO),
    "qa19": ("e,e", "e,n", "e,s", "n,e", "n,n", "n,w", "s,e", "s,s", "s,w", "w,n", "w,s", "w,w"),
    "qa20": ("bedroom", "bored", "garden", "hungry", "kitchen", "thirsty", "tired"),
}
"""{question type: possible answers}, the authors' TASK_LABELS."""
LENGTHS = {
    f"{size}{unit}": size * tokens
    for unit, tokens, sizes in (("k", 1000, (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)), ("M", 10**6, (1, 2, 10)))
    for size in sizes
}
"""{length in the name of a task: tokens, as GPT-2 counts them}."""
TASKS = tuple(f"{kind}_{length}" for kind in LABELS for length in LENGTHS)
LEADERBOARD = tuple(LABELS)[:5]
"""Question types of the leaderboard's mean."""
PARTS = ("instruction", "examples", "post_prompt")
"""Parts of a prompt, which are also options of a run (``PromptOptions``)."""

METRIC = "accuracy"
_ALL = "all"
_LONGEST_NUMBER = 10
_NEW_TOKENS = 20
_DIGITS = 12
"""Decimals of official numbers. The script rounds only numbers that are displayed."""

REPOS = ("RMT-team/babilong", "RMT-team/babilong-1k-samples")
PROMPTS = "booydar/babilong/babilong/prompts.py"
_LITERALS = ("TASK_TEMPLATE", "USER_TEMPLATE", "DEFAULT_PROMPTS")


def split_task(task: str) -> tuple[str, str]:
    """Split a task into question type and length: ("qa1", "32k") for "qa1_32k"."""
    kind, _, length = task.partition("_")
    return kind, length


def _is_answer(task: str, target: str) -> bool:
    """Whether a target has only labels of the task."""
    return set(target_labels(target)) <= {label.lower() for label in LABELS[split_task(task)[0]]}


_OVERALL = group_number(OVERALL, metric="average")
_LENGTH_MEANS = {length: group_number("length", length, metric="average") for length in LENGTHS}
_KIND_MEANS = {kind: group_number("question type", kind, metric="average") for kind in LABELS}
_COLUMNS = {length: length for length in LENGTHS}


def _table_cell(key: NumberKey) -> TableCell | None:
    if key.grouping == "length":
        return TableCell("lengths", "average", key.name)
    return TableCell("lengths", key.name, "average") if key.grouping else TableCell("lengths", *split_task(key.name))


PAPER = Paper({"lengths": "BABILong: question types by length"}, _table_cell, averages=(("lengths", "average"),))
PUBLISHED = PublishedScoreFormat(
    means=[
        (mean, {task_number(f"{kind}_{length}"): 1 for kind in LEADERBOARD}) for length, mean in _LENGTH_MEANS.items()
    ],
    lengths={tokens: _LENGTH_MEANS[length] for length, tokens in LENGTHS.items() if tokens},
)


def _board_part(name: str, numbers: Mapping[str, NumberKey], mean: NumberKey) -> BoardPart:
    return BoardPart({**numbers, "mean": mean}, texts={"questions": name})


def _complete_entry(entry: BoardEntry) -> BoardEntry:
    """Name the question types that a run's means of lengths lack.

    Means over the lengths are lbx's own. That they are never official is no reason for a note.
    """
    if entry.run_id is None:
        return entry
    lengths: dict[str, list[str]] = {}
    for length, mean in _LENGTH_MEANS.items():
        missing = [kind for kind in LEADERBOARD if task_number(f"{kind}_{length}") not in entry.numbers]
        if missing and mean in entry.numbers:
            lengths.setdefault(", ".join(missing), []).append(length)
    notes = [f"{', '.join(found)} without {kinds}" for kinds, found in lengths.items()]
    return replace(
        entry,
        unofficial=entry.unofficial - {_OVERALL, *_KIND_MEANS.values()},
        note="; ".join([*([entry.note] if entry.note else []), *notes]) or None,
    )


BOARDS = Boards(
    {
        "board_babilong": Board(
            "BABILong: accuracy by question type and length (percent)",
            (MODE, *(number_column(name, name, across=True) for name in LENGTHS), number_column("mean", "mean")),
            [
                _board_part(_ALL, _LENGTH_MEANS, _OVERALL),
                *(
                    _board_part(kind, {length: task_number(f"{kind}_{length}") for length in LENGTHS}, mean)
                    for kind, mean in _KIND_MEANS.items()
                ),
            ],
            leading_columns=(Column("questions", "questions"),),
            order_number=_OVERALL,
            charts=[
                LineChart(
                    "BABILong: mean of qa1 to qa5 by length, percent", "All lengths", _COLUMNS,
                    split_by="questions", only_value=_ALL,
                ),
                HeatMap(
                    "BABILong: {} by question type and length, percent", "question types", _COLUMNS,
                    split_by="questions", only_value=_ALL,
                ),
            ],
            note="all: the leaderboard's mean of qa1 to qa5. The mean over the lengths with answers is lbx's.",
        )
    },
    complete_entry=_complete_entry,
)  # fmt: skip


class BabilongFormat(PredictionFormat):
    folder = True
    is_csv = True

    def task_of(self, stem: str, *, e: bool) -> str:
        return "_".join(stem.split("_")[:2])

    def find_files(self, path: Path) -> None:
        """Refuse a folder with answers to differing prompts, which are several runs."""
        names = [entry.stem for entry in path.iterdir() if entry.suffix == ".csv"] if path.is_dir() else []
        kinds = sorted(
            {"_".join(name.split("_")[2:]) for name in names if self.task_of(name, e=False) in self.known_tasks}
        )
        if len(kinds) > 1:
            raise UsageError(
                f"{path} contains answers to {len(kinds)} kinds of prompts: {', '.join(kinds)}.",
                fix="Move the files of each kind into a folder of its own, and import each folder as a run.",
            )

    def companion(self, file: Path) -> Path:
        """JSON file with the prompt and the settings."""
        return file.with_suffix(".json")

    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        predictions = []
        for at, line in enumerate(lines):
            name = line.optional_text("")
            number = int(name) if name.isdecimal() and len(name) < _LONGEST_NUMBER else at
            sample = _sample(task, number, *map(line.text, ("question", "target")))
            if not _is_answer(task, sample.references[0]):
                raise prediction_file_error(line.location, f"'target' is {sample.references[0]!r}, no answer to {task}")
            predictions.append(self.make_prediction(line, at, sample, "output"))
        return predictions

    def match_key(self, sample: Sample) -> object:
        """Match key of a sample: number in the file, question and target. Few question texts are unique."""
        return sample.sample_id, sample.question, sample.references

    def match_keys(
        self, samples: Sequence[Sample], predictions: Sequence[Prediction]
    ) -> tuple[list[object], list[object]]:
        """Match keys, equal only if the file asks the bundle's questions: the two datasets share a few by chance."""
        keys, rows = super().match_keys(samples, predictions)
        return keys, rows if {*rows} <= {*keys} else [None for _ in rows]

    def label(self, model: str, settings: Mapping[str, Any]) -> str:
        """Folder of the model, and the prompt's description in file names."""
        template = settings.get("backend.chat") or {}
        is_bare = "template_sha256" in template and template["template_sha256"] is None
        has_template = settings.get("chat", True) and not is_bare
        parts = {**{part: settings.get(part, True) for part in PARTS}, "chat_template": has_template}
        return "/".join((file_part(model), *(f"{name}_{'yes' if has else 'no'}" for name, has in parts.items())))

    def settings_of(self, names: Sequence[str]) -> dict[str, Any]:
        flags = dict(re.findall(r"_(instruction|examples|post_prompt|chat_template)_(yes|no)", names[0]))
        settings = {part: False for part in PARTS if flags.get(part) == "no"}
        return settings | ({"chat": False} if flags.get("chat_template") == "no" else {})

    def file_name(self, model: str, task: str) -> str:
        folder, *parts = model.split("/")
        return f"{folder}/{'_'.join((task, *parts))}.csv"

    def export_path(self, model: str, task: str | None, name: str) -> str:
        return f"{file_part(model)}/{name}"

    def row(self, model: str, task: str, answer: AnswerToExport) -> dict[str, Any]:
        sample = answer.sample
        return {
            "": int(sample.sample_id) if sample.sample_id.isdecimal() else answer.position,
            "target": sample.references[0],
            "output": answer.output.strip(),
            "question": sample.question,
        }

    def companions(self, model: str, task: str, settings: Mapping[str, Any]) -> dict[str, str]:
        """JSON of the settings, with the names of the prompt's parts instead of the authors' texts."""
        _, *parts = model.split("/")
        prompt = {name: has == "yes" for name, _, has in (part.rpartition("_") for part in parts)}
        sampled = settings.get("sampling", "official") != "official"
        generate = {"max_new_tokens": settings.get("max_new_tokens") or _NEW_TOKENS, "do_sample": sampled}
        text = json.dumps({"prompt": prompt, "generate_kwargs": generate}, indent=4)
        return {self.file_name(model, task).removesuffix(".csv") + ".json": text}


class Babilong(Benchmark):
    name = "babilong"
    metric_version = 1
    data = DataSource("bundle/babilong.toml", REPOS, licences="Apache-2.0", real_rows="no")
    catalogue = TaskCatalogue(TASKS, open_tasks=(), length_groups={task: split_task(task)[0] for task in TASKS})
    protocol = AskingProtocol(frozenset(PARTS))
    predictions = BabilongFormat(name, TASKS)
    paper = PAPER
    boards = BOARDS
    published_scores = PUBLISHED

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        sources = {task: _data(bundle, task) for task in TASKS if names is None or task in names}
        return [Task(self.name, task, (METRIC,), source.count()) for task, source in sources.items() if source]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """Yield a task's samples. The id is the row's number in the file from "0000"."""
        source = _data(bundle, task)
        if source is None:
            raise self.data.missing_data_error(bundle, f"{' or '.join(REPOS)}, {task}")
        for number, row in enumerate(source.rows()):
            target = row.get("target", str)
            if not _is_answer(task, target):
                raise damaged_file_error(row.location, f"the field 'target' is {target!r}, no answer to {task}")
            yield replace(
                _sample(task, number, row.get("question", str), target), context=row.get("input", str).strip()
            )

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """Fill in the official prompt, which is never cut. Blank lines around omitted texts stay."""
        template, parts = _official_prompt(self.data.official_file(bundle, PROMPTS), split_task(sample.task)[0])
        values = {part: text if getattr(mode, part) else "" for part, text in parts.items()}
        values |= {"context": sample.context, "question": sample.question}
        before, document, after = fill_format(template, values, document="context", source=PROMPTS)
        return Prompt(
            before=before.lstrip(),
            document=document,
            after=after.rstrip(),
            max_new_tokens=_NEW_TOKENS,
            truncation=Truncation.REFUSE,
            source=PROMPTS,
        )

    def chance(self, sample: Sample) -> float:
        return 1 / len(LABELS[split_task(sample.task)[0]])

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """Score 1 if the output's first sentence contains the labels of the target and no others, or else 0."""
        labels = LABELS[split_task(sample.task)[0]]
        names = named_labels(output, sample.question, labels)
        right = float(any(names == target_labels(target) for target in sample.references))
        later_names = {*named_labels(output.replace(".", " "), sample.question, labels)} - {*names}
        loose = is_loose_match(right, first_sentence(output), ",".join(names), later_names)
        return [Score(METRIC, right, ", ".join(names), loose=loose)]

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        return task_score(METRIC, rows, METRIC, _DIGITS)

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[Number]:
        """Average qa1 to qa5 overall and by length, and each question type over the lengths.

        The leaderboard has the averages by length, where none of the five is missing. The others are those of lbx.
        """
        scores = {task: scored[0] for task, rows in tasks.items() if (scored := self.aggregate(task, rows))}
        members = {_OVERALL: [f"{kind}_{length}" for length in LENGTHS for kind in LEADERBOARD]}
        if not averages_only:
            members |= {key: [f"{kind}_{length}" for kind in LEADERBOARD] for length, key in _LENGTH_MEANS.items()}
            members |= {key: [f"{kind}_{length}" for length in LENGTHS] for kind, key in _KIND_MEANS.items()}
        groups = []
        for key, names in members.items():
            found = [scores[task] for task in names if task in scores]
            average = Average.of(found, complete=key.grouping == "length" and len(found) == len(names))
            if average and len(found) > 1:
                groups.append(average.to_group_number(key.grouping, key.group, digits=_DIGITS))
        return groups


def _official_prompt(path: Path, kind: str) -> tuple[str, dict[str, str]]:
    """Read the template of prompts, and the texts to fill in for a question type. Raises BundleError."""
    *templates, prompts = map(read_literals(path, _LITERALS).get, _LITERALS)
    parts = prompts.get(kind) if isinstance(prompts, dict) else None
    texts = [*templates, *(parts.get(part) for part in PARTS)] if isinstance(parts, dict) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise damaged_file_error(str(path), f"it has no templates, or no prompt of {kind} with {', '.join(PARTS)}")
    task_template, user_template, *values = map(str, texts)
    return f"{task_template}\n\n{user_template}", dict(zip(PARTS, values, strict=True))


def _data(bundle: Bundle, task: str) -> RowSource | None:
    """Find the rows of a task in either dataset. Raises BundleError if both contain the task."""
    kind, length = split_task(task)
    sources: dict[str, RowSource] = {}
    for repo in REPOS:
        if folder := bundle.snapshot("dataset", repo):
            path = folder / "data" / kind / f"{length}.json"
            source = json_rows(path, "target") if path.is_file() else find_parquet(folder, length, split=kind)
            sources |= {repo: source} if source else {}
    if len(sources) > 1:
        raise BundleError(
            f"The bundle has {task} of BABILong in two datasets with different questions: {' and '.join(sources)}.",
            fix="Bundle each length from one of them, as in bundle/babilong.toml.",
        )
    return next(iter(sources.values()), None)


def _sample(task: str, number: int, question: str, target: str) -> Sample:
    return Sample(
        benchmark=Babilong.name,
        task=task,
        sample_id=f"{number:04d}",
        context="",
        question=question,
        references=(target,),
        length=LENGTHS[split_task(task)[1]],
        length_unit="tokens",
    )
