"""The questions of a benchmark of one's own: rows of its data files, each made into a sample."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from lbx.base.records import Sample
from lbx.base.tables import nearest, wrong
from lbx.base.visible import one_line
from lbx.benchmarks.base.files import DataRow, while_unchanged
from lbx.benchmarks.own.definition import ALWAYS_READ, MOST_TOKENS, READ_WHERE_NAMED, READERS, OwnTask

_LONGEST_ID = 200
_LISTS = ("choices", "references", "turns", "stop")
_ROLES = ("user", "assistant")


def samples_in(path: Path, benchmark: str, task: OwnTask, *, strict: bool = False) -> Iterator[Sample]:
    """The samples of a task's file, in its order.

    Args:
        strict: refuse fields that nothing reads. What lies in a bundle may be of before they were refused.

    Raises:
        UsageError: a line is wrong; names file and line.
        BundleError: it is no such file.
    """
    seen: dict[str, str] = {}
    for number, row in enumerate(READERS[path.suffix](path)):
        if strict:
            _refuse_unknown(row, task)
        sample = _sample(row, benchmark, task, number, cells=path.suffix == ".csv")
        first = seen.setdefault(sample.sample_id, row.where)
        if first is not row.where:
            raise wrong(row.where, f"the id {sample.sample_id!r} is that of {first}")
        yield sample
    if not seen:
        raise wrong(path, "it holds no question")


@while_unchanged
def count_samples(path: Path, benchmark: str, task: OwnTask, strict: bool) -> int:
    """How many samples a task's file has; every one is looked at."""
    return sum(1 for _ in samples_in(path, benchmark, task, strict=strict))


def _refuse_unknown(row: DataRow, task: OwnTask) -> None:
    called = dict(task.fields)
    names = [called.get(name, name) for name in ALWAYS_READ] + [
        called[key] for key in READ_WHERE_NAMED if key in called
    ]
    known = {one for name in names for one in (name if isinstance(name, tuple) else (name,))}
    for key in row.values:
        if key in known or key in task.ignore:
            continue
        fix = f'Where nothing should read it: ignore = ["{key}"].'
        read = f'fields = {{ {key} = "{key}" }} has it read.' if key in READ_WHERE_NAMED else nearest(key, known)
        raise wrong(row.where, f"nothing reads the field {one_line(key)[:80]!r}", f"{read} {fix}")


def _sample(row: DataRow, benchmark: str, task: OwnTask, number: int, *, cells: bool) -> Sample:
    called = {name: name for name in ALWAYS_READ} | dict(task.fields)
    values = {ours: _value(row, ours, theirs, cells=cells) for ours, theirs in called.items()}
    for name in ("references", *sorted(task.variables | ({"choices"} if "accuracy" in task.metrics else set()))):
        if values[name] is None:
            raise wrong(row.where, f"the field {called[name]!r} is missing, the {name} of {task.name!r}")
    for name in ("document", "question"):
        if values[name] is not None and (not isinstance(values[name], str) or not values[name].strip()):
            raise wrong(row.where, f"the field {called[name]!r} should be text that is not blank")
    choices = _choices(row, values["choices"])
    document = values["document"] or ""
    # What is stored of every sample scores it where there is no bundle; what a row does not say is not there.
    more = {
        "extract": task.extract or None,
        "choices": choices or None,
        "turns": _turns(row, values.get("turns")),
        "max_new_tokens": _budget(row, values.get("max_new_tokens")),
        "stop": _stop(row, values.get("stop")),
    }
    return Sample(
        benchmark=benchmark,
        task=task.name,
        sample_id=_identifier(row, values["id"], number),
        context=document,
        question=values["question"] or "",
        references=_references(row, values["references"], choices),
        language=task.language,
        length=len("".join(document.split())) if task.language == "zh" else len(document.split()),
        length_unit="characters" if task.language == "zh" else "words",
        meta={"metrics": list(task.metrics)} | {name: value for name, value in more.items() if value is not None},
    )


def _value(row: DataRow, ours: str, theirs: str | tuple[str, ...], *, cells: bool) -> Any:
    """What a row says; None where it says nothing. A cell of CSV may hold a list as JSON, or a number."""
    if isinstance(theirs, tuple):
        return [row.values[name] for name in theirs if row.values.get(name) is not None] or None
    value = row.values.get(theirs)
    if (
        cells
        and value is not None
        and (ours == "max_new_tokens" or (ours in _LISTS and value.lstrip().startswith("[")))
    ):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def _turns(row: DataRow, value: object) -> list[str] | None:
    """The messages before the question: the user's first, the assistant's last; None for none."""
    entries = [] if value is None else value
    if not isinstance(entries, list) or len(entries) % 2:
        raise wrong(row.where, "the turns should be a list that begins with the user and ends with the assistant")
    for place, entry in enumerate(entries):
        role, text = (entry.get("role"), entry.get("content")) if isinstance(entry, dict) else (None, None)
        if role != _ROLES[place % 2] or len(entry) != 2 or not isinstance(text, str) or not text.strip():
            should = f'{{"role": "{_ROLES[place % 2]}", "content": "..."}}'
            raise wrong(row.where, f"number {place + 1} of the turns should be {should}, and not blank")
    return [entry["content"] for entry in entries] or None


def _budget(row: DataRow, value: object) -> int | None:
    if value is not None and (type(value) is not int or not 0 < value <= MOST_TOKENS):
        raise wrong(row.where, f"max_new_tokens should be a whole number from 1 to {MOST_TOKENS:,}")
    return value


def _stop(row: DataRow, value: object) -> list[str] | None:
    if value is None:
        return None
    stop = value if isinstance(value, list) else [value]
    texts = [text for text in stop if isinstance(text, str) and text]
    if len(texts) < len(stop):
        raise wrong(row.where, "stop should be a text or a list of texts, none of them empty")
    return texts


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
            raise wrong(
                row.where, f"the references should be letters of the choices ({', '.join(choices)}) or their texts"
            )
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise wrong(row.where, "the references should be a text, or a list of at least one, none of them blank")
    return tuple(texts)
