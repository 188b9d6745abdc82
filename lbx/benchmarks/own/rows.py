"""Reader of a custom benchmark's data files, which converts rows to samples.

Rows may name text files with documents (``fields = { document_file = "file" }``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path, PurePosixPath
from string import ascii_uppercase
from typing import Any

from lbx.base.inputs import path_inside, read_input
from lbx.base.limits import RECORD_BYTES, TEXT_CHARACTERS
from lbx.base.records import Sample, replace_surrogates
from lbx.base.tables import entry_error, suggest_names
from lbx.base.visible import one_line
from lbx.benchmarks.base.data_files import DataRow, cached_by_mtime
from lbx.benchmarks.metrics.registry import ScoringTarget, unscorable_reason
from lbx.benchmarks.own.definition import (
    DOCUMENT_FILE,
    MAX_NEW_TOKENS,
    OPTIONAL_FIELDS,
    READERS,
    STANDARD_FIELDS,
    CustomTask,
)


class DocumentReader:
    """Reader of the documents below a data file's folder.

    The last document is cached, because questions on the same document are consecutive rows.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last = ("", "")

    def document(self, row: DataRow, values: Mapping[str, object], names: Mapping[str, object]) -> object:
        """Return the document of a row: the value of the field "document", or the text of the file that the row names.

        Args:
            values: {field: value}.
            names: {field: name of the field in the row}.

        Raises:
            UsageError: the row contains both, or the file cannot be read as text. The message names row and field.
        """
        document, path = values["document"], values.get(DOCUMENT_FILE)
        if path is None:
            if isinstance(document, str) and self._is_file(document):
                name = names["document"]
                fix = f'To read the file, set fields = {{ {DOCUMENT_FILE} = "{name}" }}.'
                raise entry_error(row.location, f"the field {name!r} has the name of a file, not a text", fix)
            return document
        name = names[DOCUMENT_FILE]
        if document is not None:
            raise entry_error(row.location, f"it has both {names['document']!r} and {name!r}", "Remove one of them.")
        if not isinstance(path, str) or not path:
            raise entry_error(row.location, f"the field {name!r} must be the path of a text file")
        if path != self._last[0]:
            try:
                self._last = path, _read_text(self._folder, path)
            except ValueError as exc:
                reason = f"the field {name!r} names {one_line(path)[:80]!r}, which {exc}"
                raise entry_error(row.location, reason, f"Paths begin at {self._folder}.") from exc
        return self._last[1]

    def _is_file(self, text: str) -> bool:
        try:
            return len(text) < TEXT_CHARACTERS and path_inside(self._folder, text).is_file()
        except (ValueError, OSError):
            return False


def _read_text(folder: Path, name: str) -> str:
    """Read a text file below a folder, without a byte order mark.

    Raises:
        ValueError: the file cannot be read as text; the message continues a sentence about it.
    """
    try:
        path = path_inside(folder, name)
    except ValueError as exc:
        raise ValueError(f"cannot be used: {exc}") from exc
    try:
        if any(part.is_symlink() for part in (path, *path.parents[: name.count("/")])):
            raise ValueError("cannot be used: it is a link")
        return read_input(path, RECORD_BYTES).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise ValueError("does not exist") from exc
    except OSError as exc:
        raise ValueError(f"cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ValueError(f"is not UTF-8 ({exc.reason})") from exc


def document_files(path: Path, task: CustomTask) -> list[str]:
    """Paths of the documents that the rows of a checked data file name, relative to the definition's folder."""
    field = dict(task.fields).get(DOCUMENT_FILE)
    if not isinstance(field, str):
        return []
    folder = PurePosixPath(task.data).parent
    names = dict.fromkeys(row.values.get(field) for row in READERS[path.suffix].read_rows(path))
    return [str(folder / name) for name in names if name is not None]


_MAX_ID_LENGTH = 200
_LISTS = ("choices", "references", "turns", "stop")
_ROLES = ("user", "assistant")
_LIST_IN_TEXT = re.compile(r"\s*\[\s*[\"'“”„‘’]")


def samples_in(path: Path, benchmark: str, task: CustomTask) -> Iterator[Sample]:
    """Read the samples of a task's data file, in the file's order.

    Raises:
        UsageError: a line is invalid, contains an unknown field, a document that cannot be read or a reference that a
            metric cannot score. The message names file and line.
        BundleError: the file cannot be read as data.
    """
    seen: dict[str, str] = {}
    documents = DocumentReader(path.parent)
    for number, row in enumerate(READERS[path.suffix].read_rows(path)):
        if not _is_encodable(row.values):
            raise entry_error(
                row.location, "it contains half of a surrogate pair, such as \\ud83d", "Write both halves."
            )
        _refuse_unknown(row, task)
        sample = _sample(row, documents, benchmark, task, number, cells=path.suffix == ".csv")
        _refuse_unscorable(row, sample, task)
        first_location = seen.setdefault(sample.sample_id, row.location)
        if first_location is not row.location:
            raise entry_error(
                row.location,
                f"the id {sample.sample_id!r} is also used at {first_location}",
                "Give each row an id of its own.",
            )
        yield sample
    if not seen:
        raise entry_error(path, "it contains no questions", "Write one question in each row.")


def _is_encodable(value: object) -> bool:
    """Whether UTF-8 can encode all texts of a JSON value, because none contains a lone surrogate."""
    if isinstance(value, str):
        return value.isascii() or replace_surrogates(value) == value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(map(_is_encodable, parts))


@cached_by_mtime
def count_samples(path: Path) -> int:
    """Count the samples of a task's data file without checking them (as ``samples_in`` does). Raises BundleError."""
    return READERS[path.suffix].count_rows(path)


def _refuse_unknown(row: DataRow, task: CustomTask) -> None:
    field_names = dict(task.fields)
    names = [field_names.get(name, name) for name in STANDARD_FIELDS] + [
        field_names[key] for key in OPTIONAL_FIELDS if key in field_names
    ]
    read_fields = {field for name in names for field in (name if isinstance(name, tuple) else (name,))}
    for key in row.values:
        if key in read_fields or key in task.ignore:
            continue
        fix = f'To ignore it, set ignore = ["{key}"].'
        if key in OPTIONAL_FIELDS:
            read = f'To read it, set fields = {{ {key} = "{key}" }}.'
        elif (read := suggest_names(key, read_fields)).startswith("Available"):
            read += f' If it is one of these under another name, set fields = {{ document = "{key}" }}, for example.'
        raise entry_error(row.location, f"unknown field {one_line(key)[:80]!r}", f"{read} {fix}")


def _refuse_unscorable(row: DataRow, sample: Sample, task: CustomTask) -> None:
    target = ScoringTarget(sample.references, task.language, sample.meta.get("choices", {}), task.answer_cues)
    for metric in task.metrics:
        for reference in sample.references:
            if reason := unscorable_reason(metric, reference, target):
                excerpt = one_line(reference)[:80]
                raise entry_error(
                    row.location, f"{metric} cannot score the reference {excerpt!r}: {reason}", "Choose another metric."
                )


def _sample(
    row: DataRow, documents: DocumentReader, benchmark: str, task: CustomTask, number: int, *, cells: bool
) -> Sample:
    field_names = {name: name for name in STANDARD_FIELDS} | dict(task.fields)
    values = {
        standard_name: _value(row, standard_name, row_name, cells=cells)
        for standard_name, row_name in field_names.items()
    }
    values["document"] = documents.document(row, values, field_names)
    if DOCUMENT_FILE in field_names:
        field_names["document"] = field_names[DOCUMENT_FILE]  # for messages
    for name in ("references", *sorted(task.variables | ({"choices"} if "accuracy" in task.metrics else set()))):
        if values[name] is None:
            raise entry_error(
                row.location,
                f"the field {field_names[name]!r} is missing (the {name} of {task.name!r})",
                "Add it, or set `fields` to the names in your data.",
            )
    for name in ("document", "question"):
        if values[name] is not None and (not isinstance(values[name], str) or not values[name].strip()):
            raise entry_error(row.location, f"the field {field_names[name]!r} must be text, and not blank")
    choices = _choices(row, values["choices"])
    value = values["references"]
    texts = value if isinstance(value, list) else [value]
    if choices and texts:
        references = tuple(_right_letter(row, text, choices) for text in texts)
    else:
        if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            raise entry_error(
                row.location, "the references must be a text or a non-empty list of texts, without blank texts"
            )
        _refuse_list_in_text(row, "references", texts)
        references = tuple(texts)
    document = values["document"] or ""
    # Stored with every sample, so that it can be scored without a bundle; missing values of the row are left out.
    extra_meta = {
        "extract": task.extract or None,
        "choices": choices or None,
        "answer_cues": list(task.answer_cues) or None,
        "turns": _turns(row, values.get("turns")),
        "max_new_tokens": _budget(row, values.get("max_new_tokens")),
        "stop": _stop(row, values.get("stop")),
    }
    return Sample(
        benchmark=benchmark,
        task=task.name,
        sample_id=_sample_id(row, values["id"], number),
        context=document,
        question=values["question"] or "",
        references=references,
        language=task.language,
        length=len("".join(document.split())) if task.language == "zh" else len(document.split()),
        length_unit="characters" if task.language == "zh" else "words",
        meta={"metrics": list(task.metrics)} | {name: value for name, value in extra_meta.items() if value is not None},
    )


def _value(row: DataRow, standard_name: str, row_name: str | tuple[str, ...], *, cells: bool) -> Any:
    """Value of a field in a row, or None if it is missing. A cell of CSV may be a list in JSON, or a number."""
    if isinstance(row_name, tuple):
        return _columns(row, row_name)
    value = row.values.get(row_name)
    if (
        cells
        and value is not None
        and (standard_name == "max_new_tokens" or (standard_name in _LISTS and value.lstrip().startswith("[")))
    ):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def _columns(row: DataRow, names: tuple[str, ...]) -> list[Any] | None:
    """Choices from separate columns. Only the last may be empty, because earlier gaps would shift the letters."""
    values = [row.values.get(name) for name in names]
    while values and _is_empty(values[-1]):
        values.pop()
    for index, value in enumerate(values):
        if _is_empty(value):
            raise entry_error(
                row.location,
                f"the choice {names[index]!r} is empty but {names[index + 1]!r} follows, so the letters would shift",
                "Fill it, or move it to the end and correct the references.",
            )
    return values or None


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _turns(row: DataRow, value: object) -> list[str] | None:
    """Messages before the question, from a user message to an assistant message, or None without messages."""
    entries = [] if value is None else value
    if not isinstance(entries, list) or len(entries) % 2:
        raise entry_error(row.location, "the turns must be a list from a user message to an assistant message")
    for index, entry in enumerate(entries):
        role, text = (entry.get("role"), entry.get("content")) if isinstance(entry, dict) else (None, None)
        if role != _ROLES[index % 2] or len(entry) != 2 or not isinstance(text, str) or not text.strip():
            should = f'{{"role": "{_ROLES[index % 2]}", "content": "..."}}'
            raise entry_error(row.location, f"turn {index + 1} must be {should}, and not blank")
    return [entry["content"] for entry in entries] or None


def _budget(row: DataRow, value: object) -> int | None:
    if value is not None and (type(value) is not int or not 0 < value <= MAX_NEW_TOKENS):
        raise entry_error(row.location, f"max_new_tokens must be a whole number from 1 to {MAX_NEW_TOKENS:,}")
    return value


def _stop(row: DataRow, value: object) -> list[str] | None:
    if value is None:
        return None
    stop = value if isinstance(value, list) else [value]
    texts = [text for text in stop if isinstance(text, str) and text]
    if len(texts) < len(stop):
        raise entry_error(row.location, "stop must be a text or a list of texts, without empty texts")
    _refuse_list_in_text(row, "stop", texts)
    return texts


def _refuse_list_in_text(row: DataRow, name: str, texts: Sequence[object]) -> None:
    """Raise UsageError for a list that was saved as text, such as "['a', 'b']": it would count as one text."""
    if len(texts) == 1 and isinstance(texts[0], str) and _LIST_IN_TEXT.match(texts[0]):
        raise entry_error(
            row.location,
            f"{name} is a Python or JSON list inside a text, {one_line(texts[0])[:80]}",
            'Write a JSON list of texts: ["...", "..."].',
        )


def _sample_id(row: DataRow, value: object, number: int) -> str:
    if value is None:
        return f"{number:04d}"
    is_number = type(value) is int or (isinstance(value, float) and isfinite(value))
    name = str(value) if is_number else value
    if not isinstance(name, str) or not name.strip() or len(name) > _MAX_ID_LENGTH or one_line(name) != name:
        raise entry_error(
            row.location,
            f"the id {str(value)[:80]!r} must be a number or one line of at most {_MAX_ID_LENGTH} characters",
        )
    return name


def _choices(row: DataRow, value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, list) or not 2 <= len(value) <= len(ascii_uppercase):
        raise entry_error(row.location, "the choices must be a list of 2 to 26 texts")
    for number, text in enumerate(value, 1):
        if not isinstance(text, str) or not text.strip():
            raise entry_error(row.location, f"choice {number} is blank or not text", "Write its text.")
    return dict(zip(ascii_uppercase, value, strict=False))


def _right_letter(row: DataRow, reference: object, choices: Mapping[str, str]) -> str:
    """Letter of the choice that a reference means.

    A number is a position from 0. A text is a letter, a choice's text or a position.

    Raises:
        UsageError: the reference means no choice, or more than one.
    """
    letters = list(choices)
    readings: dict[str, str] = {}
    if isinstance(reference, str):
        readings |= {letter: "its text" for letter in letters if choices[letter] == reference}
        readings |= {reference: "its letter"} if reference in choices else {}
    number = str(reference)
    if isinstance(reference, int | str) and number.isdecimal() and len(number) < 3 and int(number) < len(letters):
        readings.setdefault(letters[int(number)], "its position from 0")
    if not readings:
        raise entry_error(
            row.location, f"the references must be letters of the choices ({', '.join(choices)}) or their texts"
        )
    if len(readings) > 1:
        means = " and ".join(f"choice {letter} by {how}" for letter, how in readings.items())
        raise entry_error(
            row.location, f"the reference {one_line(str(reference))[:80]!r} means {means}", "Write the letter."
        )
    (letter,) = readings
    same = [other for other in letters if choices[other] == choices[letter]]
    if len(same) > 1:
        raise entry_error(
            row.location,
            f"several choices have the text of the right one: {' and '.join(same)}",
            "Keep one of them.",
        )
    return letter
