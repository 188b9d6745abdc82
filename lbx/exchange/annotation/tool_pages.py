"""Import and export of the files of L-Eval's own annotation tool.

Source: Tools/web_annotate_jsonl.py of
https://github.com/OpenLMLab/LEval/tree/cd34b050269148aed75acbbe4a599873ad0f37e9

    jsons/{n}_cleaned.json   a document's saved page: "instruction #i", "output #i" and everything else
    X.cleaned.jsonl          a row per document: instructions, outputs, input, source

This format loses ``evaluation`` and all other keys, and drops blank texts from each list separately, so that pairs
shift. It is therefore written only on request, in addition to the complete dataset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lbx.base.errors import UsageError
from lbx.exchange.annotation.dataset import ANSWERS, DOCUMENT, QUESTIONS, Dataset
from lbx.opinions.rating_pages import page_line

_PAGE = re.compile(r"(\d+)_cleaned\.json")
_MOST_DIGITS = 4300
_NO_ANSWER = "pad"
"""Placeholder of the tool for the missing answers of a document with fewer answers than questions."""


def apply_pages(dataset: Dataset, folder: Path) -> int:
    """Apply texts entered in the tool's pages to the dataset, and return the number of changed documents.

    Args:
        folder: the tool's folder jsons/, or the parent folder.

    Raises:
        UsageError: the folder contains no page, or a page is of another document. The message names the file.
    """
    pages = folder / "jsons" if (folder / "jsons").is_dir() else folder
    if not pages.is_dir():
        raise UsageError(f"The folder {folder} does not exist.", fix="Give the folder written by L-Eval's own tool.")
    files = {int(match[1]): entry for entry in sorted(pages.iterdir()) if (match := _PAGE.fullmatch(entry.name))}
    if not files:
        raise UsageError(f"{folder} contains no N_cleaned.json.", fix="Give the folder written by L-Eval's own tool.")
    read = {number: page_line(file).values for number, file in sorted(files.items())}
    for number, page in read.items():
        is_same_document = number < len(dataset) and dataset.line(number).values()[DOCUMENT] == page.get(DOCUMENT)
        if not is_same_document:
            raise UsageError(
                f"{files[number]} is a page of another document than line "
                f"{dataset.entries[number].number if number < len(dataset) else 'none'} of {dataset.path}.",
                fix="No page was imported. Give the file from which these pages were made.",
            )
    return sum(_apply_page(dataset, number, page) for number, page in read.items())


def _apply_page(dataset: Dataset, index: int, page: Mapping[str, Any]) -> bool:
    changed, number = False, 0
    blank_pairs = []
    while f"instruction #{number}" in page or f"output #{number}" in page:
        question, answer = (str(page.get(f"{kind} #{number}", "")) for kind in ("instruction", "output"))
        pairs = dataset.line(index).pairs()
        blank = not question and not answer
        if number >= len(pairs):
            changed |= not blank and dataset.add(index, question, answer)
        elif blank:
            blank_pairs.append(number)
        else:
            old = pairs[number]
            fields = {QUESTIONS: question, ANSWERS: "" if not old[1].text and answer == _NO_ANSWER else answer}
            for key, text in fields.items():
                plain = (old[key == ANSWERS].text or "").replace("\r", "")
                if not old[key == ANSWERS].explanation and text != plain:
                    changed |= dataset.set(index, number, key, text, dataset.shape(index))
        number += 1
    for blank_pair in reversed(blank_pairs):
        changed |= dataset.remove(index, blank_pair, dataset.shape(index))
    return changed


def official_files(dataset: Dataset, new_pairs: int = 0) -> dict[str, str]:
    """Build a dataset's files in the tool's format, as {path in the folder: text}.

    Args:
        new_pairs: number of empty pairs that the tool would have offered. Pages include those that are still empty.
    """
    pages = {}
    for index in range(len(dataset)):
        line = dataset.line(index)
        loaded: dict[str, Any] = json.loads(line.raw.strip("\ufeff \t\r"), parse_int=_parse_integer)
        page = {key: _form_value(value) for key, value in loaded.items() if key not in (QUESTIONS, ANSWERS)}
        page[DOCUMENT] = loaded[DOCUMENT]
        before = dataset.original(index).pairs()
        pairs = [(question.text or "", answer.text or "") for question, answer in line.pairs()]
        pairs += [("", "")] * (len(before) + new_pairs - len(pairs))
        for number, (question, answer) in enumerate(pairs):
            lacked = number < len(before) and before[number][1].text is None and not answer
            page[f"instruction #{number}"] = _form_value(question)
            page[f"output #{number}"] = _NO_ANSWER if lacked else _form_value(answer)
        pages[f"jsons/{index}_cleaned.json"] = page
    rows = "".join(f"{json.dumps(_row(page))}\n" for _, page in sorted(pages.items()))
    name = re.sub(r"(\.jsonl)$", ".cleaned.jsonl", dataset.path.name)
    pages_as_json = {index: json.dumps(page) for index, page in pages.items()}
    return pages_as_json | {name if name != dataset.path.name else f"{name}.cleaned.jsonl": rows}


def _parse_integer(digits: str) -> int | str:
    """Parse an integer. An integer with too many digits for Python to read or print remains text."""
    return int(digits) if len(digits) < _MOST_DIGITS else digits


def _form_value(value: object) -> str:
    return "" if value is None else str(value).replace("\r", "")


def _row(page: Mapping[str, str]) -> dict[str, object]:
    lists: dict[str, list[str]] = {}
    for kind, key in (("instruction", QUESTIONS), ("output", ANSWERS)):
        values = (page[name] for name in page if re.fullmatch(rf"{kind} #\d+", name))
        lists[key] = [text for text in values if text]
    return {**lists, DOCUMENT: page[DOCUMENT], "source": page.get("source", "")}


def lost_content(dataset: Dataset) -> list[str]:
    """Describe in sentences which content of a dataset the tool's format loses."""
    keys = {key for index in range(len(dataset)) for key in dataset.line(index).values()}
    other = sorted(keys - {QUESTIONS, ANSWERS, DOCUMENT, "source"})
    shifted = [
        dataset.entries[index].number
        for index in range(len(dataset))
        if any((question.text == "") != (answer.text == "") for question, answer in dataset.line(index).pairs())
    ]
    reasons = [f"L-Eval's format does not include {', '.join(other)}."] if other else []
    if shifted:
        lines = ", ".join(map(str, shifted[:10])) + (" ..." if shifted[10:] else "")
        reasons.append(
            f"L-Eval's format drops empty texts, so that pairs shift in line{'s' * (len(shifted) > 1)} {lines}."
        )
    return reasons
