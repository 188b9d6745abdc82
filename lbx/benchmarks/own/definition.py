"""What a benchmark of one's own is: ``benchmark.toml``, and a JSON lines file of questions for each of its tasks.

    name = "handbook"                       # what --tasks calls it
    licence = "CC0-1.0"
    prompt = "{document}\\n\\nQuestion: {question}\\nAnswer:"      # here for all tasks, or in a task for this one

    [[task]]
    name = "facts"
    data = "facts.jsonl"                    # beside this file
    metrics = ["f1", "exact_match"]         # of lbx.metrics.named; the first is the headline
    max_new_tokens = 32

One line of facts.jsonl: {"id": "1", "document": "...", "question": "...", "references": ["..."]}. A prompt is plain
text with three variables, which are put in and never evaluated. ``docs/own-benchmark.md`` has every field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from lbx.base.paths import inside
from lbx.base.records import Sample, Truncation
from lbx.base.tables import check_table, is_name, nearest, read_table, texts, wrong
from lbx.base.visible import one_line
from lbx.benchmarks.base.files import DataRow, read_jsonl, while_unchanged
from lbx.benchmarks.base.templates import template_fields
from lbx.metrics.named import METRICS

FILE = "benchmark.toml"
VARIABLES = ("document", "question", "choices")
TRUNCATIONS = {
    "middle": Truncation.DOCUMENT_MIDDLE,
    "end": Truncation.DOCUMENT_END,
    "none": Truncation.REFUSE,
}

_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})?")
_MOST_TOKENS = 1 << 20
_LONGEST_ID = 200
_ROW_FIELDS = ("id", *VARIABLES, "references")
_HEAD: dict[str, type] = {"name": str, "description": str, "licence": str, "task": list}
_SHARED: dict[str, type] = {
    "prompt": str, "metrics": list, "max_new_tokens": int, "stop": list, "truncation": str, "chat": bool,
    "language": str, "fields": dict,
}  # fmt: skip
_OF_TASK: dict[str, type] = {"name": str, "data": str, **_SHARED}
_NEEDED = ("name", "data", "prompt", "metrics", "max_new_tokens")


@dataclass(frozen=True, slots=True)
class OwnTask:
    """A task, as its table says, completed by what the file says for all.

    Attributes:
        data: the questions' file, beside the definition.
        metrics: keys of ``METRICS``.
        truncation: a key of ``TRUNCATIONS``.
        fields: what a row calls a field, where it does not call it by our name.
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
    fields: tuple[tuple[str, str], ...] = ()
    where: str = field(default="", compare=False)

    @property
    def variables(self) -> frozenset[str]:
        return frozenset(name for _, name in template_fields(self.prompt) if name)


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition file; ``sha256`` is of its bytes."""

    name: str
    licence: str
    tasks: tuple[OwnTask, ...]
    sha256: str

    def task(self, name: str) -> OwnTask | None:
        return next((task for task in self.tasks if task.name == name), None)


def read_definition(path: Path, reserved: Mapping[str, str] | None = None) -> Definition:
    """The definition in a file.

    Args:
        reserved: names that it cannot have -> what they mean.

    Raises:
        UsageError: something is wrong with it; names the file, the task and the key.
    """
    table, digest = read_table(path)
    return _definition(table, path, digest, reserved or {})


def _definition(table: Mapping[str, Any], path: Path, digest: str, reserved: Mapping[str, str]) -> Definition:
    check_table(table, {**_HEAD, **_SHARED}, f"{path}:", ("name", "task"))
    name = table["name"]
    if not is_name(name):
        raise wrong(path, f"name = {name!r} cannot name a benchmark: letters, digits and _ . - can, at most 64")
    if meaning := reserved.get(name):
        raise wrong(path, f"name = {name!r} is taken: --tasks {name} means {meaning}")
    if not table["task"]:
        raise wrong(path, "it has no [[task]]")
    shared = {key: value for key, value in table.items() if key in _SHARED}
    tasks: dict[str, OwnTask] = {}
    for number, entry in enumerate(table["task"], 1):
        task = _task(entry, shared, f"{path}, [[task]] number {number}")
        if task.name in tasks:
            raise wrong(task.where, f"there is another task {task.name!r} before it")
        tasks[task.name] = task
    return Definition(name, table.get("licence", ""), tuple(tasks.values()), digest)


def _task(entry: Any, shared: Mapping[str, Any], where: str) -> OwnTask:
    if not isinstance(entry, dict):
        raise wrong(where, "it is no table: write [[task]], then one key a line")
    table = {**shared, **entry}
    check_table(table, _OF_TASK, f"{where}:", _NEEDED)
    lists = {key: texts(value, f"{where}: {key}") for key, value in table.items() if _OF_TASK[key] is list}
    values: dict[str, Any] = {**table, **lists}
    values["fields"] = tuple(sorted(table.get("fields", {}).items()))
    task = OwnTask(**values, where=where)
    for check in (_check_names, _check_values, _check_prompt):
        check(task)
    return task


def _check_names(task: OwnTask) -> None:
    if not is_name(task.name):
        raise wrong(task.where, f"name = {task.name!r} cannot name a task: letters, digits and _ . - can, at most 64")
    try:
        inside(Path(), task.data)
    except ValueError as exc:
        raise wrong(task.where, f"data = {task.data!r} is no file beside this one: {exc}") from exc
    if not task.data.endswith(".jsonl"):
        raise wrong(task.where, f"data = {task.data!r} should be a JSON lines file, named *.jsonl")
    for ours, theirs in task.fields:
        if ours not in _ROW_FIELDS or not isinstance(theirs, str) or not theirs:
            names = ", ".join(_ROW_FIELDS)
            raise wrong(task.where, f"fields can say what a row calls {names}, not {ours} = {theirs!r}")


def _check_values(task: OwnTask) -> None:
    for metric in task.metrics:
        if metric not in METRICS:
            raise wrong(task.where, f"there is no metric {metric!r}", nearest(metric, METRICS))
    if not task.metrics or len(set(task.metrics)) < len(task.metrics):
        raise wrong(task.where, f"metrics should name at least one, and none twice: {', '.join(METRICS)}")
    if not 0 < task.max_new_tokens <= _MOST_TOKENS:
        raise wrong(task.where, f"max_new_tokens = {task.max_new_tokens} should be from 1 to {_MOST_TOKENS:,}")
    if task.truncation not in TRUNCATIONS:
        raise wrong(task.where, f"truncation = {task.truncation!r} should be one of {', '.join(TRUNCATIONS)}")
    if not all(task.stop):
        raise wrong(task.where, "stop holds an empty text, which would end every answer before it begins")
    if not _LANGUAGE.fullmatch(task.language):
        raise wrong(task.where, f'language = {task.language!r} should be a code such as "en", "zh" or "de"')


def _check_prompt(task: OwnTask) -> None:
    braces = "Braces that stand for themselves are written {{ and }}"
    try:
        names = [name for _, name in template_fields(task.prompt) if name is not None]
    except ValueError as exc:
        raise wrong(task.where, f"the prompt cannot be filled in: {exc}. {braces}") from exc
    for name in names:
        if name not in VARIABLES:
            known = ", ".join(f"{{{one}}}" for one in VARIABLES)
            raise wrong(task.where, f"the prompt names {{{name}}}, and there is only {known}. {braces}")
    if names.count("document") > 1:
        raise wrong(task.where, "the prompt names {document} twice: only one place can be cut where it is too long")
    if not names:
        raise wrong(task.where, "the prompt names neither {document} nor {question}: every sample would be the same")


def samples_in(path: Path, benchmark: str, task: OwnTask) -> Iterator[Sample]:
    """The samples of a task's file, in its order.

    Raises:
        UsageError: a line is wrong; names file and line.
        BundleError: it is no JSON lines file.
    """
    seen: dict[str, str] = {}
    for number, row in enumerate(read_jsonl(path)):
        sample = _sample(row, benchmark, task, number)
        first = seen.setdefault(sample.sample_id, row.where)
        if first is not row.where:
            raise wrong(row.where, f"the id {sample.sample_id!r} is that of {first}")
        yield sample
    if not seen:
        raise wrong(path, "it holds no question")


@while_unchanged
def count_samples(path: Path, benchmark: str, task: OwnTask) -> int:
    """How many samples a task's file has; every one is looked at."""
    return sum(1 for _ in samples_in(path, benchmark, task))


def _sample(row: DataRow, benchmark: str, task: OwnTask, number: int) -> Sample:
    called = dict(task.fields)
    given: dict[str, Any] = {name: row.values.get(called.get(name, name)) for name in _ROW_FIELDS}
    for name in ("references", *sorted(task.variables | ({"choices"} if "accuracy" in task.metrics else set()))):
        if given[name] is None:
            raise wrong(row.where, f"the field {called.get(name, name)!r} is missing, the {name} of {task.name!r}")
    for name in ("document", "question"):
        if given[name] is not None and (not isinstance(given[name], str) or not given[name].strip()):
            raise wrong(row.where, f"the field {called.get(name, name)!r} should be text that is not blank")
    choices = _choices(row, given["choices"])
    document = given["document"] or ""
    meta: dict[str, Any] = {"metrics": list(task.metrics)}
    return Sample(
        benchmark=benchmark,
        task=task.name,
        sample_id=_identifier(row, given["id"], number),
        context=document,
        question=given["question"] or "",
        references=_references(row, given["references"], choices),
        language=task.language,
        length=len("".join(document.split())) if task.language == "zh" else len(document.split()),
        length_unit="characters" if task.language == "zh" else "words",
        meta=meta | ({"choices": choices} if choices else {}),
    )


def _identifier(row: DataRow, value: object, number: int) -> str:
    if value is None:
        return f"{number:04d}"
    name = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_ID or one_line(name) != name:
        raise wrong(
            row.where, f"the id {str(value)[:80]!r} should be a number or a text of at most {_LONGEST_ID} signs"
        )
    return name


def _choices(row: DataRow, value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, list) or not 2 <= len(value) <= len(ascii_uppercase):
        raise wrong(row.where, "the choices should be a list of 2 to 26 texts")
    if not all(isinstance(text, str) and text.strip() for text in value):
        raise wrong(row.where, "one of the choices is no text, or blank")
    return dict(zip(ascii_uppercase, value, strict=False))


def _references(row: DataRow, value: Any, choices: Mapping[str, str]) -> tuple[str, ...]:
    """The accepted answers; of choices their letters, also where a row has a choice's text, or its place from 0."""
    texts = value if isinstance(value, list) else [value]
    if choices:
        letters = {text: letter for letter, text in choices.items()} | {letter: letter for letter in choices}
        letters |= {str(place): letter for place, letter in enumerate(choices) if str(place) not in letters}
        known = [letters.get(str(text)) for text in texts if isinstance(text, str | int) and text is not True]
        texts = known if len(known) == len(texts) else []
        if not texts or None in texts:
            raise wrong(row.where, f"the references should be of the choices: {', '.join(choices)}, or their texts")
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise wrong(row.where, "the references should be a text, or a list of at least one, none of them blank")
    return tuple(texts)
