"""Parser of the definition of a custom benchmark, ``benchmark.toml``, which names a file of questions for each task.

    name = "handbook"                       # name for --tasks
    licence = "CC0-1.0"
    prompt = "{document}\\n\\nQuestion: {question}\\nAnswer:"      # here for all tasks, or in a task for this one

    [[task]]
    name = "facts"
    data = "facts.jsonl"                    # in this file's folder
    metrics = ["f1", "exact_match"]         # of lbx.benchmarks.metrics.registry; the first is the headline
    max_new_tokens = 32

One line of facts.jsonl: {"id": "1", "document": "...", "question": "...", "references": ["..."]}. A prompt is plain
text with variables, which are filled in and never evaluated. ``docs/own-benchmark.md`` documents every field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

from lbx.base.database import expression_error
from lbx.base.inputs import path_inside
from lbx.base.records import Truncation
from lbx.base.tables import check_table, check_texts, check_type, entry_error, is_name, read_table, suggest_names
from lbx.benchmarks.base.data_files import (
    DataRow,
    count_csv,
    count_json_array,
    count_jsonl,
    read_csv,
    read_json_array,
    read_jsonl,
)
from lbx.benchmarks.base.rubric import Rubric, parse_rubric_table
from lbx.benchmarks.base.sources import fill_format, template_fields
from lbx.benchmarks.metrics.registry import METRICS

FILE = "benchmark.toml"
LETTERS = ascii_uppercase
"""Letters of the choices, in order."""
VARIABLES = ("document", "question", "choices")


class RowReader(NamedTuple):
    """Functions that read the rows of one format of data files, and count rows without checking them."""

    read_rows: Callable[[Path], Iterator[DataRow]]
    count_rows: Callable[[Path], int]


READERS: Mapping[str, RowReader] = {
    ".jsonl": RowReader(read_jsonl, count_jsonl),
    ".json": RowReader(read_json_array, count_json_array),
    ".csv": RowReader(read_csv, count_csv),
}
STANDARD_FIELDS = ("id", *VARIABLES, "references")
"""Fields of a row in any task."""
DOCUMENT_FILE = "document_file"
"""Field with the path of a text file that contains the document."""
OPTIONAL_FIELDS = (DOCUMENT_FILE, "turns", "max_new_tokens", "stop")
"""Fields of a row that are read only if the key ``fields`` names them."""
MAX_NEW_TOKENS = 1 << 20
TRUNCATIONS = {
    "middle": Truncation.DOCUMENT_MIDDLE,
    "end": Truncation.DOCUMENT_END,
    "none": Truncation.REFUSE,
}

_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})?")
_TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "prompt": (*VARIABLES, "examples"),
    "no_context_prompt": ("question", "choices", "examples"),
    "follow_up": ("question", "choices"),
}
"""{template: variables that the template can contain}."""
_BRACES = "Write literal braces as {{ and }}"
_HEAD_KEYS: dict[str, type] = {"name": str, "description": str, "licence": str, "rubric": dict, "task": list}
_SHARED_KEYS: dict[str, type] = {
    "prompt": str, "metrics": list, "max_new_tokens": int, "stop": list, "truncation": str, "chat": bool,
    "language": str, "fields": dict, "ignore": list, "system": str, "example": str, "examples": list,
    "follow_up": str, "no_context_prompt": str, "extract": str, "answer_cues": list,
}  # fmt: skip
_TASK_KEYS: dict[str, type] = {"name": str, "data": str, **_SHARED_KEYS}
_REQUIRED_KEYS = ("name", "data", "prompt", "metrics", "max_new_tokens")


@dataclass(frozen=True, slots=True)
class CustomTask:
    """Task of a definition, from the task's table and the definition's defaults for all tasks.

    Attributes:
        data: file of the questions, in the definition's folder.
        metrics: keys of ``METRICS``.
        truncation: a key of ``TRUNCATIONS``.
        fields: pairs of a field's name in lbx and in rows, if they differ. Choices may be in several fields.
        ignore: fields of rows that are never read.
        examples: text for the variable {examples}.
        follow_up: template of the user's messages after the first, for rows with turns.
        no_context_prompt: template without the document, or "" to use ``prompt`` with an empty document.
        answer_cues: phrases that announce the chosen option, in addition to those built into ``accuracy``.
        extract: regular expression that finds the answer in the output (``lbx.base.database.extract_match``), or ""
            to score the whole output.
    """

    name: str
    data: str
    prompt: str
    metrics: tuple[str, ...]
    max_new_tokens: int
    stop: tuple[str, ...] = ()
    truncation: str = "middle"
    chat: bool = True
    language: str = "en"
    fields: tuple[tuple[str, str | tuple[str, ...]], ...] = ()
    ignore: tuple[str, ...] = ()
    system: str = ""
    examples: str = ""
    follow_up: str = "{question}"
    no_context_prompt: str = ""
    extract: str = ""
    answer_cues: tuple[str, ...] = ()
    location: str = field(default="", compare=False)

    @property
    def has_turns(self) -> bool:
        return "turns" in dict(self.fields)

    @property
    def variables(self) -> frozenset[str]:
        """Variables of the prompts, for which every row must contain a value."""
        templates = (self.prompt, self.no_context_prompt, self.follow_up if self.has_turns else "")
        return frozenset(name for template in templates for name in _names(template) if name in VARIABLES)


@dataclass(frozen=True, slots=True)
class Definition:
    """Contents of a definition file. ``sha256`` is the hash of the file's bytes, ``rubric`` the rubric for judges."""

    name: str
    licence: str
    tasks: tuple[CustomTask, ...]
    sha256: str
    rubric: Rubric | None = None

    def task(self, name: str) -> CustomTask | None:
        return next((task for task in self.tasks if task.name == name), None)


def read_definition(path: Path, reserved_names: Mapping[str, str] | None = None) -> Definition:
    """Read a definition file.

    Args:
        reserved_names: {name that a benchmark must not use: meaning of the name}.

    Raises:
        UsageError: the definition is invalid. The message names the file, the task and the key.
    """
    table, digest = read_table(path)
    return _parse_definition(table, path, digest, reserved_names or {})


def _parse_definition(
    table: Mapping[str, Any], path: Path, digest: str, reserved_names: Mapping[str, str]
) -> Definition:
    check_table(table, {**_HEAD_KEYS, **_SHARED_KEYS}, f"{path}:", ("name", "task"))
    name = table["name"]
    if not is_name(name):
        raise entry_error(
            path, f"name = {name!r} is not a valid benchmark name: use at most 64 letters, digits and _ . -"
        )
    if meaning := reserved_names.get(name):
        raise entry_error(path, f"name = {name!r} is reserved: --tasks {name} means {meaning}", "Choose another.")
    if not table["task"]:
        raise entry_error(path, "it has no [[task]]", "Write [[task]], then one key per line.")
    shared = {key: value for key, value in table.items() if key in _SHARED_KEYS}
    tasks: dict[str, CustomTask] = {}
    for number, entry in enumerate(table["task"], 1):
        task = _parse_task(entry, shared, f"{path}, [[task]] number {number}")
        if task.name in tasks:
            raise entry_error(task.location, f"an earlier task is also named {task.name!r}", "Rename one of them.")
        tasks[task.name] = task
    rubric = (
        parse_rubric_table(table["rubric"], f"{path}, [rubric]", path.name, reserved_names)
        if "rubric" in table
        else None
    )
    return Definition(name, table.get("licence", ""), tuple(tasks.values()), digest, rubric)


def _parse_task(entry: Any, defaults: Mapping[str, Any], location: str) -> CustomTask:
    if not isinstance(entry, dict):
        raise entry_error(location, "it is not a table: write [[task]], then one key per line")
    table = {**defaults, **entry}
    check_table(table, _TASK_KEYS, f"{location}:", _REQUIRED_KEYS)
    examples = _format_examples(table.pop("examples", []), table.pop("example", ""), location)
    lists = {key: check_texts(value, f"{location}: {key}") for key, value in table.items() if _TASK_KEYS[key] is list}
    values: dict[str, Any] = {**table, **lists, "examples": examples}
    values["fields"] = tuple(
        sorted(
            (standard_name, tuple(name) if isinstance(name, list) else name)
            for standard_name, name in table.get("fields", {}).items()
        )
    )
    task = CustomTask(**values, location=location)
    for check in (_check_names, _check_fields, _check_values, _check_templates):
        check(task)
    return task


def _format_examples(entries: Sequence[Any], template: str, location: str) -> str:
    if bool(entries) is not bool(template):
        raise entry_error(location, "example and examples must be set together: a template, and the texts to fill in")
    names = dict.fromkeys(_template_names(template, "example", location), str)
    pieces: list[str] = []
    for number, entry in enumerate(entries, 1):
        example_location = f"{location}, [[task.examples]] number {number}"
        values = check_type(entry, dict, example_location)
        if "choices" in names and isinstance(values.get("choices"), list):
            values = values | {"choices": choice_lines(check_texts(values["choices"], f"{example_location}: choices"))}
        check_table(values, names, f"{example_location}:", list(names))
        pieces += fill_format(template, values, document="", source=location)
    return "".join(pieces)


def choice_lines(choices: Iterable[str]) -> str:
    """Text for the variable {choices}: a line "A. text" for each choice."""
    return "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, choices, strict=False))


def _check_names(task: CustomTask) -> None:
    if not is_name(task.name):
        raise entry_error(
            task.location, f"name = {task.name!r} is not a valid task name: use at most 64 letters, digits and _ . -"
        )
    try:
        path_inside(Path(), task.data)
    except ValueError as exc:
        raise entry_error(
            task.location, f"data = {task.data!r} must be a file in the folder of this one: {exc}"
        ) from exc
    if Path(task.data).suffix not in READERS:
        kinds = ", ".join(f"*{suffix}" for suffix in READERS)
        raise entry_error(
            task.location, f"data = {task.data!r} must be JSON lines, a JSON array or CSV, with a name such as {kinds}"
        )


def _check_fields(task: CustomTask) -> None:
    for standard_name, row_name in task.fields:
        names = row_name if isinstance(row_name, tuple) and standard_name == "choices" else (row_name,)
        if standard_name not in (*STANDARD_FIELDS, *OPTIONAL_FIELDS) or not all(
            isinstance(name, str) and name for name in names
        ):
            field_names = ", ".join((*STANDARD_FIELDS, *OPTIONAL_FIELDS))
            raise entry_error(
                task.location,
                f"fields can rename {field_names}, not {standard_name} = {row_name!r}",
                'Write the standard name, then the name in your data: fields = { question = "prompt" }.',
            )


def _check_values(task: CustomTask) -> None:
    for metric in task.metrics:
        if metric not in METRICS:
            raise entry_error(task.location, f"there is no metric {metric!r}", suggest_names(metric, METRICS))
    if not task.metrics or len(set(task.metrics)) < len(task.metrics):
        raise entry_error(task.location, f"metrics must list at least one, without duplicates, of {', '.join(METRICS)}")
    if not 0 < task.max_new_tokens <= MAX_NEW_TOKENS:
        raise entry_error(task.location, f"max_new_tokens = {task.max_new_tokens} must be from 1 to {MAX_NEW_TOKENS:,}")
    if task.truncation not in TRUNCATIONS:
        raise entry_error(task.location, f"truncation = {task.truncation!r} must be one of {', '.join(TRUNCATIONS)}")
    if not all(task.stop):
        raise entry_error(
            task.location, "stop contains an empty text, which would end every answer at once", "Remove it."
        )
    if task.extract and (reason := expression_error(task.extract)):
        raise entry_error(
            task.location,
            f"extract = {task.extract[:80]!r} is not a valid RE2 regular expression: {reason}",
            "RE2 has neither look-around nor back-references.",
        )
    if task.answer_cues and "accuracy" not in task.metrics:
        raise entry_error(task.location, "answer_cues need the metric accuracy, which the task does not have")
    if not _LANGUAGE.fullmatch(task.language):
        raise entry_error(task.location, f'language = {task.language!r} must be a code such as "en", "zh" or "de"')


def _check_templates(task: CustomTask) -> None:
    for key, allowed in _TEMPLATES.items():
        names = _template_names(getattr(task, key), key, task.location)
        for name in names:
            if name not in allowed:
                listed = ", ".join(f"{{{variable}}}" for variable in allowed)
                raise entry_error(task.location, f"the {key} contains {{{name}}}, but has only {listed}. {_BRACES}")
        if ("examples" in names) > bool(task.examples):
            raise entry_error(
                task.location,
                f"the {key} contains {{examples}}, but the task has no examples",
                "Add examples, or remove {examples}.",
            )
    names = _names(task.prompt)
    if names.count("document") > 1:
        raise entry_error(task.location, "the prompt contains {document} twice, but lbx can truncate only one document")
    if not {"document", "question"} & {*names}:
        raise entry_error(
            task.location,
            "the prompt contains neither {document} nor {question}, so every sample would be the same",
            "Add one of them.",
        )
    if task.examples and "examples" not in names:
        raise entry_error(
            task.location,
            "the task has examples, but the prompt does not contain {examples}",
            "Add {examples} to the prompt, or remove the examples.",
        )
    if task.has_turns and "question" not in _names(task.follow_up):
        raise entry_error(
            task.location,
            "the follow_up does not contain {question}, so the model would not see the question",
            "Add {question}.",
        )


def _template_names(template: str, key: str, location: str) -> list[str]:
    try:
        return _names(template)
    except ValueError as exc:
        raise entry_error(location, f"cannot fill in the {key}: {exc}. {_BRACES}") from exc


def _names(template: str) -> list[str]:
    return [name for _, name in template_fields(template) if name is not None]
