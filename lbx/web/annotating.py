"""Pages of `lbx annotate`, which show the documents of a dataset with editable questions and answers."""

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
from lbx.exchange.annotation.dataset import ANSWERS, DOCUMENT, QUESTIONS, Dataset, PairField
from lbx.web import limits
from lbx.web.documents import Documents
from lbx.web.pages import FormText, form_route, page, parse_number

PAGE_SIZE = 50
"""Documents per page of the list."""
_LISTED = 300


@dataclass(frozen=True, slots=True)
class _PairField:
    """Question or answer on the page: ``text`` for the form, ``spelling`` to display invisible characters."""

    name: str
    label: str
    text: FormText
    note: str
    spelling: str


class AnnotationPages:
    """Routes of a dataset's pages.

    Args:
        dataset: dataset to show, and to edit unless it is open read-only.
        new_pairs: number of empty pairs that are offered for each document.
    """

    def __init__(self, dataset: Dataset, new_pairs: int = 0) -> None:
        self._dataset = dataset
        self._new_pairs = new_pairs
        self._documents = Documents(self._document_text)
        self._notice = ""

    @property
    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self._list),
            Route("/document/{number:number}", self._document),
            form_route("/document/{number:number}/pair/{pair:number}", self._save, limits.PAIR_BYTES),
            form_route("/undo", self._undo),
            form_route("/write", self._write),
            *self._documents.routes,
        ]

    def _document_text(self, key: str) -> str | None:
        index = parse_number(key) - 1
        return str(self._dataset.line(index).values()[DOCUMENT]) if 0 <= index < len(self._dataset) else None

    def _page_values(self, request: Request) -> dict[str, Any]:
        notice, self._notice = self._notice, ""
        data = self._dataset
        return {
            "root": request.scope["root_path"],
            "told": notice,
            "file": data.path.name,
            "out": data.out.name if data.out else "",
            "changed": data.changed_count,
            "undoable": data.undoable,
            "total": len(data),
        }

    # The list

    def _list(self, request: Request) -> Response:
        query = request.query_params.get("q", "").strip()
        first = max(1, parse_number(request.query_params.get("from", "")))
        indices: Sequence[int] = list(self._dataset.search(query)) if query else range(len(self._dataset))
        rows: list[dict[str, Any]] = []
        for index in islice(indices, first - 1, first - 1 + PAGE_SIZE):
            line = self._dataset.line(index)
            values, pairs = line.values(), line.pairs()
            rows.append(
                {
                    "number": index + 1,
                    "source": _shorten(values.get("source", "")),
                    "evaluation": _shorten(values.get("evaluation", "")),
                    "pairs": len(pairs),
                    "first": (pairs[0][0].text or "")[:_LISTED] if pairs else "",
                    "changed": self._dataset.is_changed(index),
                }
            )
        return page(
            "annotations.html",
            **self._page_values(request),
            document=None,
            has_document=None,
            rows=rows,
            wanted=query,
            first=first,
            found=len(indices),
            step=PAGE_SIZE,
        )

    # A document

    def _document_index(self, request: Request) -> int:
        index: int = request.path_params["number"] - 1
        if not 0 <= index < len(self._dataset):
            raise UsageError(f"Document {index + 1} does not exist: the file has {len(self._dataset):,}.")
        return index

    def _document(self, request: Request) -> Response:
        index = self._document_index(request)
        line = self._dataset.line(index)
        values, pairs = line.values(), line.pairs()
        offered = self._dataset.entries[index].pairs + self._new_pairs - len(pairs)
        editable = self._dataset.out is not None
        pair_fields = [(number, _fields(number, question, answer)) for number, (question, answer) in enumerate(pairs)]
        if editable and (offered > 0 or "new" in request.query_params):
            pair_fields.append((len(pairs), _fields(len(pairs), PairField(None), PairField(None))))
        return page(
            "annotation.html",
            **self._page_values(request),
            number=index + 1,
            pairs=pair_fields,
            count=len(pairs),
            offered=max(0, offered),
            editable=editable,
            shape=self._dataset.shape(index),
            others=[
                (key, _shorten(value)) for key, value in values.items() if key not in (QUESTIONS, ANSWERS, DOCUMENT)
            ],
            line=self._dataset.entries[index].number,
            document=self._documents.get(str(index + 1)),
            has_document=request.headers.get("lbx-document"),
        )

    def _save(self, request: Request, fields: Mapping[str, str]) -> str:
        index, pair = self._document_index(request), request.path_params["pair"]
        shape = parse_number(fields.get("shape", ""), -1)
        if fields.get("do") == "remove":
            self._dataset.remove(index, pair, shape)
            self._notice = f"Pair {pair + 1} removed."
        else:
            changed = [
                self._dataset.set(index, pair, key, fields[key].replace("\r\n", "\n"), shape)
                for key in (QUESTIONS, ANSWERS)
                if key in fields
            ]
            self._notice = f"Pair {pair + 1} saved." if any(changed) else "No changes."
        return f"/document/{index + 1}"

    def _undo(self, request: Request, fields: Mapping[str, str]) -> str:
        what = self._dataset.undoable
        index = self._dataset.undo()
        self._notice = f"Undone: {what} of document {index + 1}." if index is not None else "No change to undo."
        return f"/document/{index + 1}" if index is not None else "/"

    def _write(self, request: Request, fields: Mapping[str, str]) -> str:
        path = self._dataset.write()
        self._notice = f"{path.name} written."
        number = parse_number(fields.get("number", ""))
        return f"/document/{number}" if number else "/"


def _fields(number: int, question: PairField, answer: PairField) -> list[_PairField]:
    return [
        _PairField(key, f"{label} {number + 1}", FormText(field.text or ""), field.explanation, _visible_text(field))
        for key, label, field in ((QUESTIONS, "Question", question), (ANSWERS, "Answer", answer))
    ]


def _visible_text(field: PairField) -> str:
    text = (field.text or "").replace("\r\n", "\n")
    return text if visible(text) != text or field.explanation else ""


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LISTED else f"{text[:_LISTED]}..."
