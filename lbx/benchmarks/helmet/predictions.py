"""Result files of HELMET's eval.py: a JSON object for each task, with a row for each answer under "data".

The name states dataset, tag, test file, length and settings:

    json_kv_v1_test_k105_dep6_in8192_size100_shots2_sampFalsemax100min0t0.0p1.0_chatFalse_42.json

Files with other settings than the authors' are imported without official numbers. The files of a run of lbx have its
settings in their names, and the reasoning's budget in neither length, as officially.

A row contains the dataset's fields without the documents, "output" with the beginning of the answer after a bare
prompt, and the metrics. The means of the metrics are also in a file of this name with ".score" at the end, which
collect_results.py reads. The tag is "v1", because that script finds no other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.records import EVIDENCE_DEPTH, Sample, sha256_text
from lbx.benchmarks.base.benchmark import with_unique_ids
from lbx.benchmarks.base.prediction_lines import PredictionLine, prediction_file_error
from lbx.benchmarks.base.predictions import (
    UNOFFICIAL_TASKS,
    AnswerToExport,
    Prediction,
    PredictionFormat,
    ScoredRun,
    TaskFiles,
    file_part,
)
from lbx.benchmarks.helmet.draws import MAX_LABEL, SEED, depth_id, is_depth
from lbx.benchmarks.helmet.tasks import (
    LENGTHS,
    NAME,
    TASKS,
    asked_task,
    dataset_of,
    official_name,
    read_setting,
    size_of,
    split_task,
)

_FILE = re.compile(
    r"(?P<name>.+)_in(?P<length>\d+)_size(?P<size>\d+)_shots(?P<shots>\d+)_samp(?P<sampling>[A-Za-z]+)max(?P<max>\d+)"
    r"min(?P<min>\d+)t(?P<temperature>[\d.]+)p(?P<top_p>[\d.]+)_chat(?P<chat>True|False)_(?P<seed>\d+)\.json"
)
_SETTINGS = (
    "backend.api", "backend.chat", "chat", "context_window", "max_new_tokens", "max_prompt_tokens", "model_sampling",
    "asked", "sampling", "seed", "thinking_tokens",
)  # fmt: skip
"""Settings of a run that change the names of its files."""
_ID_KEYS = {"kilt": "id", "msmarco": "qid", "json_kv": "question"}
"""{kind: key of a question's id}, for kinds with a question at several depths."""


def _task_of(name: str) -> str | None:
    """Task of a file by dataset and test file in the file's name, or the length, or None for other files."""
    if not (match := _FILE.fullmatch(name)):
        return None
    named = [task for task in TASKS if f"{match['name']}_".startswith(f"{official_name(task)}_")]
    found = [task for task in named if match["name"].endswith(f"_{_test_name(task)}")]
    return next(iter(found or [task for task in named if str(LENGTHS[split_task(task)[1]]) == match["length"]]), None)


def _test_name(task: str) -> str:
    return Path(dataset_of(task).file.format(size_of(task))).stem


def _other_settings(name: str, task: str) -> str:
    """Name the settings in a file's name that are not the authors', as "size 10 instead of 100", or return ""."""
    found, official = (_FILE.fullmatch(text) for text in (name, HelmetFormat(NAME, TASKS).file_name("/", task)[1:]))
    assert found and official
    dataset, test = dataset_of(task), _test_name(task)
    ignored = {"name", "chat", "shots" if dataset.kind == "ruler" else ""}
    return ", ".join(
        [
            *([] if found["name"].endswith(f"_{test}") else [f"other test file than {test or 'none'}"]),
            *(
                f"{setting} {value} instead of {official[setting]}"
                for setting, value in found.groupdict().items()
                if setting not in ignored and value.removesuffix(".0") != official[setting].removesuffix(".0")
            ),
        ]
    )


class HelmetFormat(PredictionFormat):
    folder = True
    document_key = "data"
    reasoning_key = "thoughts"
    score_keys = ("labels", "golds")

    def find_files(self, path: Path) -> TaskFiles:
        """Find the files of the seven categories. Averages, judges' results and other datasets are left out."""
        files: dict[str, list[Path]] = {}
        ignored = []
        for entry in [path] if path.is_file() else sorted(path.iterdir()):
            task = _task_of(entry.name)
            if task is None:
                ignored.append(entry.name)
            elif task in files:
                raise UsageError(
                    f"{path} contains two files of the task {task}: {files[task][0].name} and {entry.name}.",
                    fix="Move the files of each tag or setting into a folder of its own, and import each as a run.",
                )
            else:
                files[task] = [entry]
        if not files:
            inside = [
                folder.name
                for folder in (sorted(path.iterdir()) if path.is_dir() else ())
                if folder.is_dir() and any(_task_of(file.name) for file in folder.iterdir())
            ]
            raise UsageError(
                f"{path} contains no result file of eval.py for HELMET's seven categories.",
                fix=f"Give one of its folders: {', '.join(inside)}."
                if inside
                else f"The files are named like {self.file_name('MODEL', TASKS[0]).partition('/')[2]}.",
            )
        return TaskFiles({task: files[task] for task in TASKS if task in files}, tuple(ignored))

    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        samples = with_unique_ids([_sample(task, line) for line in lines])
        predictions = [
            self.make_prediction(line, number, sample, "output")
            for number, (line, sample) in enumerate(zip(lines, samples, strict=True))
        ]
        return [replace(row, reasoning=row.line.optional_text("thoughts") or None) for row in predictions]

    def match_key(self, sample: Sample) -> object:
        """Id of a question with the depth, or question and references where ids are numbers of rows."""
        return sample.sample_id if sample.meta.get("question_id") else (sample.question, sample.references)

    def label(self, model: str, settings: Mapping[str, Any]) -> str:
        """Folder of the model, and the run's settings that are in the names of files, as JSON."""
        return f"{file_part(model)}/{json.dumps({name: settings[name] for name in _SETTINGS if name in settings})}"

    def settings_of(self, names: Sequence[str]) -> dict[str, Any]:
        tasks = {task: name for name in names if (task := _task_of(name))}
        chat = {(dataset_of(task).chat, "_chatTrue_" in name) for task, name in tasks.items()}
        others = {task: reason for task, name in tasks.items() if (reason := _other_settings(name, task))}
        return {
            **({"chat": False} if (True, False) in chat and (True, True) not in chat else {}),
            **({"backend.api": "chat"} if (False, True) in chat else {}),
            **({UNOFFICIAL_TASKS: others} if others else {}),
        }

    def file_name(self, model: str, task: str) -> str:
        """Path of a file, named after the settings of the run."""
        folder, _, text = model.partition("/")
        settings, dataset = json.loads(text or "{}"), dataset_of(task)
        asked = asked_task(task, settings)
        samples, questions = settings.get("asked", {}).get(task, (dataset.limit, dataset.limit))
        sampling = read_setting(settings, "model_sampling", {}) if settings.get("sampling") == "model" else {}
        is_sampled = read_setting(sampling, "temperature", 0.0) > 0
        chosen = sampling if is_sampled else {}
        temperature, top_p = read_setting(chosen, "temperature", 0.0), read_setting(chosen, "top_p", 1.0)
        return (
            f"{folder}/{official_name(task)}_v1_{_test_name(task)}_in{asked.limit + asked.new_tokens}"
            f"_size{questions if dataset.kind in ('kilt', 'msmarco') else samples}"
            f"_shots{0 if dataset.label_source else 2}_samp{is_sampled}max{asked.new_tokens}min0t{temperature}p{top_p}"
            f"_chat{asked.chat}_{read_setting(settings, 'seed', SEED) if is_sampled else SEED}.json"
        )

    def export_path(self, model: str, task: str | None, name: str) -> str:
        return f"{file_part(model)}/{name}"

    def row(self, model: str, task: str, answer: AnswerToExport) -> dict[str, Any]:
        sample, dataset = answer.sample, dataset_of(task)
        references = [*sample.references]
        row: dict[str, Any] = {"question": sample.question, "answer": references}
        if dataset.kind in ("json_kv", "icl", "multi_lexsum", "msmarco"):
            row["answer"] = references[0]
        if question_id := sample.meta.get("question_id"):
            row[_ID_KEYS[dataset.kind]] = question_id
            if EVIDENCE_DEPTH in sample.meta:
                row["depth"] = sample.meta[EVIDENCE_DEPTH]
        golds: Sequence[Any] = sample.meta.get("golds") or ()
        if dataset.kind == "alce":
            asks_pairs = dataset.metrics[0] == "str_em"
            row |= {"qa_pairs": [{"short_answers": group} for group in golds]} if asks_pairs else {"answers": [*golds]}
        if dataset.kind == "msmarco":
            row["qrel"] = [[name, str(label)] for name, label in sample.meta.get("labels", {}).items()]
        return {**row, "output": answer.output}

    def format_rows(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        texts = [json.dumps(row) + (",\n" if number < len(rows) else "\n]}\n") for number, row in enumerate(rows, 1)]
        return ['{"data": [\n' + texts[0], *texts[1:]] if texts else []


def _sample(task: str, line: PredictionLine) -> Sample:
    """Make the sample of a row, with the fields that scores need."""
    kind, question = dataset_of(task).kind, line.text("question")
    meta: dict[str, Any] = {}
    if kind == "alce":
        pairs = line.values.get("qa_pairs")
        groups = _list(line, "answers") if pairs is None else [_short_answers(pair) for pair in _list(line, "qa_pairs")]
        if not all(isinstance(group, list) and all(isinstance(gold, str) for gold in group) for group in groups):
            raise prediction_file_error(line.location, "a group of answers must be a list of texts")
        meta["golds"], answers = groups, list(dict.fromkeys(gold for group in groups for gold in group))
    else:
        answer = line.require("answer")
        answers = answer if isinstance(answer, list) else [answer]
    if not answers or not all(isinstance(answer, str) for answer in answers):
        raise prediction_file_error(line.location, "the answers must be text or a list of texts")
    if kind == "infbench_choice" and not (len(answers) == 2 and answers[0] in tuple("ABCD") and answers[1].strip()):
        raise prediction_file_error(line.location, "'answer' must be a letter from A to D and the text of the option")
    if kind == "msmarco":
        meta["labels"] = {name: label for name, label in map(partial(_label, line), _list(line, "qrel")) if label > 0}
    references = tuple(answers)
    if key := _ID_KEYS.get(kind):
        value, depth = line.values.get(key), line.values.get("depth")
        meta["question_id"] = question if value is None else str(value)
        if depth is not None:
            if not is_depth(depth):
                raise prediction_file_error(line.location, "'depth' must be a number")
            meta[EVIDENCE_DEPTH] = float(depth)
        name = depth_id(meta["question_id"], meta)
    else:
        name = sha256_text(json.dumps([question, references]))[:16]
    return Sample(NAME, task, name, "", question, references, meta=meta)


def _label(line: PredictionLine, pair: object) -> tuple[str, int]:
    """Return the id and the relevance of a passage."""
    match pair:
        case [str(name), str(label)] if re.fullmatch("[0-9]{1,4}", label):
            number = int(label)
        case [str(name), int(number)]:
            pass
        case _:
            number = -1
    if not 0 <= number <= MAX_LABEL:
        raise prediction_file_error(line.location, f"'qrel' must be pairs of an id and a number up to {MAX_LABEL:,}")
    return name, number


def _short_answers(pair: object) -> Any:
    return pair.get("short_answers") if isinstance(pair, dict) else None


def _list(line: PredictionLine, key: str) -> list[Any]:
    values = line.require(key)
    if not isinstance(values, list):
        raise prediction_file_error(line.location, f"{key!r} must be a list")
    return values


def write_averages(run: ScoredRun) -> dict[str, str]:
    """Means of each task's metrics in percent, as collect_results.py reads them."""
    files = () if run.has_settings else run.settings["files"]
    names = {file["task"]: f"{file_part(run.model)}/{file['name']}" for file in files}
    return {
        f"{names.get(task) or HelmetFormat(NAME, TASKS).file_name(run.model, task)}.score": json.dumps(
            {metric: number.official for metric, number in numbers.items()}, indent=4
        )
        for task, numbers in run.numbers.items()
    }
