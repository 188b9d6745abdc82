"""Pages of `lbx annotate`: the documents of a dataset, each with its editable questions and answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lbx.base.errors import UsageError
from lbx.base.visible import visible
from lbx.exchange.annotation.dataset import Dataset
from lbx.exchange.annotation.pairs import ANSWERS, DOCUMENT, QUESTIONS, Field
from lbx.web import limits
from lbx.web.documents import Documents
from lbx.web.pages import AsTyped, number_in, page, saving

SHOWN = 50
"""Documents per page of the list."""
_LISTED = 300


@dataclass(frozen=True, slots=True)
class _Shown:
    """Question or answer on the page: ``text`` for the form, ``spelled`` to display if it has invisible characters."""

    name: str
    label: str
    text: AsTyped
    note: str
    spelled: str


class AnnotationPages:
    """Routes of a dataset's pages.

    Args:
        dataset: Dataset to show, and to edit unless it is open read-only.
        new_pairs: Number of empty pairs offered for each document.
    """

    def __init__(self, dataset: Dataset, new_pairs: int = 0) -> None:
        self._dataset = dataset
        self._new_pairs = new_pairs
        self._documents = Documents(self._document_text)
        self._told = ""

    @property
    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self._list),
            Route("/document/{number:number}", self._document),
            saving("/document/{number:number}/pair/{pair:number}", self._save, limits.PAIR_BYTES),
            saving("/undo", self._undo),
            saving("/write", self._write),
            *self._documents.routes,
        ]

    def _document_text(self, key: str) -> str | None:
        place = number_in(key) - 1
        return str(self._dataset.line(place).checked()[DOCUMENT]) if 0 <= place < len(self._dataset) else None

    def _common(self, request: Request) -> dict[str, Any]:
        notice, self._told = self._told, ""
        data = self._dataset
        return {
            "root": request.scope["root_path"],
            "told": notice,
            "file": data.path.name,
            "out": data.out.name if data.out else "",
            "changed": data.changed,
            "undoable": data.undoable,
            "total": len(data),
        }

    # The list

    def _list(self, request: Request) -> Response:
        wanted = request.query_params.get("q", "").strip()
        first = max(1, number_in(request.query_params.get("from", "")))
        places: Sequence[int] = list(self._dataset.search(wanted)) if wanted else range(len(self._dataset))
        rows = [self._row(place) for place in islice(places, first - 1, first - 1 + SHOWN)]
        return page(
            "annotations.html",
            **self._common(request),
            document=None,
            has_document=None,
            rows=rows,
            wanted=wanted,
            first=first,
            found=len(places),
            step=SHOWN,
        )

    def _row(self, place: int) -> dict[str, Any]:
        line = self._dataset.line(place)
        values, pairs = line.checked(), line.pairs()
        return {
            "number": place + 1,
            "source": _told(values.get("source", "")),
            "evaluation": _told(values.get("evaluation", "")),
            "pairs": len(pairs),
            "first": (pairs[0][0].text or "")[:_LISTED] if pairs else "",
            "changed": self._dataset.is_changed(place),
        }

    # A document

    def _place(self, request: Request) -> int:
        place: int = request.path_params["number"] - 1
        if not 0 <= place < len(self._dataset):
            raise UsageError(f"Document {place + 1} does not exist: the file has {len(self._dataset):,}.")
        return place

    def _document(self, request: Request) -> Response:
        place = self._place(request)
        line = self._dataset.line(place)
        values, pairs = line.checked(), line.pairs()
        offered = self._dataset.entries[place].pairs + self._new_pairs - len(pairs)
        editable = self._dataset.out is not None
        shown = [(number, _fields(number, question, answer)) for number, (question, answer) in enumerate(pairs)]
        if editable and (offered > 0 or "new" in request.query_params):
            shown.append((len(pairs), _fields(len(pairs), Field(None), Field(None))))
        return page(
            "annotation.html",
            **self._common(request),
            number=place + 1,
            pairs=shown,
            count=len(pairs),
            offered=max(0, offered),
            editable=editable,
            shape=self._dataset.shape(place),
            others=[(key, _told(value)) for key, value in values.items() if key not in (QUESTIONS, ANSWERS, DOCUMENT)],
            line=self._dataset.entries[place].number,
            document=self._documents.get(str(place + 1)),
            has_document=request.headers.get("lbx-document"),
        )

    def _save(self, request: Request, fields: Mapping[str, str]) -> str:
        place, pair = self._place(request), request.path_params["pair"]
        shape = number_in(fields.get("shape", ""), -1)
        if fields.get("do") == "remove":
            self._dataset.remove(place, pair, shape)
            self._told = f"Pair {pair + 1} removed."
        else:
            changed = [
                self._dataset.set(place, pair, key, fields[key].replace("\r\n", "\n"), shape)
                for key in (QUESTIONS, ANSWERS)
                if key in fields
            ]
            self._told = f"Pair {pair + 1} saved." if any(changed) else "No changes."
        return f"/document/{place + 1}"

    def _undo(self, request: Request, fields: Mapping[str, str]) -> str:
        what = self._dataset.undoable
        place = self._dataset.undo()
        self._told = f"Undone: {what} of document {place + 1}." if place is not None else "No change to undo."
        return f"/document/{place + 1}" if place is not None else "/"

    def _write(self, request: Request, fields: Mapping[str, str]) -> str:
        path = self._dataset.write()
        self._told = f"{path.name} written."
        shown = number_in(fields.get("number", ""))
        return f"/document/{shown}" if shown else "/"


def _fields(number: int, question: Field, answer: Field) -> list[_Shown]:
    return [
        _Shown(key, f"{label} {number + 1}", AsTyped(field.text or ""), field.note, _spelled(field))
        for key, label, field in ((QUESTIONS, "Question", question), (ANSWERS, "Answer", answer))
    ]


def _spelled(field: Field) -> str:
    text = (field.text or "").replace("\r\n", "\n")
    return text if visible(text) != text or field.note else ""


def _told(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LISTED else f"{text[:_LISTED]}..."
