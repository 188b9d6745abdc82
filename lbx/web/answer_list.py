"""Page of `lbx browse` with the list of answers: filtered, sorted, 50 at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from lbx.store import Store
from lbx.store.answers import LISTED, SORTS, AnswerFilter, AnswerKey, AnswerOrder, count_answers, list_page
from lbx.store.runs import run_names
from lbx.web.pages import page, parse_number
from lbx.web.results_source import ResultsSource, answer_link, run_labels

PAGE_SIZE = 50
"""Answers per page of the list."""
PREFIX = "list-"
"""Of a list's parameters in the URLs of other pages."""
_FILTERS = ("run", "task", "mark", "least", "below", "q")
_LONGEST_ID = 20
_COLUMNS = {
    "score": "score",
    "run": "run",
    "sample": "task, sample",
    "question": "question",
    "answer": "answer",
    "reference": "reference",
    "tokens": "tokens",
    "marks": "marks",
}
"""{key of ``SORTS``: heading}."""
_LARGEST_FIRST = ("score", "tokens", "marks")


@dataclass(frozen=True)
class ListQuery:
    """Filters and order of a list, as in its URL.

    Attributes:
        values: parameters of the URL that are set: filters, and "sort" with "-" before a descending one.
    """

    values: Mapping[str, str]

    @classmethod
    def parse(cls, parameters: Mapping[str, str], prefix: str = "") -> ListQuery:
        """Read the parameters of a list's URL, ignoring unknown ones; other pages' URLs have them with ``PREFIX``."""
        names = (*_FILTERS, "sort")
        return cls({name: value for name in names if (value := parameters.get(prefix + name, "").strip())})

    @property
    def prefixed(self) -> dict[str, str]:
        """Parameters for the URL of another page."""
        return {PREFIX + name: value for name, value in self.values.items()}

    def link(self, **changes: object) -> str:
        """Link to the list, with other or more parameters."""
        values = {name: value for name, value in {**self.values, **changes}.items() if value != ""}
        return f"/?{urlencode(values)}" if values else "/"

    def filter(self, source: ResultsSource) -> AnswerFilter:
        values = self.values
        mark = values.get("mark", "")
        return AnswerFilter(
            runs=[values["run"]] if "run" in values else list(source.runs),
            tasks=[values["task"]] if "task" in values else list(source.tasks),
            mark=mark if mark in (*LISTED, "any") else "",
            at_least=_parse_share(values.get("least", "")),
            below=_parse_share(values.get("below", "")),
            text=values.get("q", ""),
        )

    def order(self, labels: Mapping[str, str]) -> AnswerOrder:
        """Order of the list; runs are sorted by their labels."""
        name = self.values.get("sort", "")
        runs = sorted(labels, key=lambda run: labels[run])
        return AnswerOrder(name.removeprefix("-"), name.startswith("-"), runs)

    def heads(self) -> list[dict[str, str]]:
        """Column heads: label, link that sorts by the column or reverses its order, and ``aria-sort``."""
        current = self.values.get("sort", "")
        heads = []
        for name in SORTS:
            first = f"-{name}" if name in _LARGEST_FIRST else name
            other = name if name in _LARGEST_FIRST else f"-{name}"
            is_current = current.removeprefix("-") == name
            direction = "" if not is_current else "descending" if current.startswith("-") else "ascending"
            sort = other if current == first else first
            heads.append({"name": name, "label": _COLUMNS[name], "link": self.link(sort=sort), "sort": direction})
        return heads


def answer_list(source: ResultsSource, request: Request) -> Response:
    """Respond with the list of answers."""
    query = ListQuery.parse(request.query_params)
    choice = query.filter(source)
    first = max(1, parse_number(request.query_params.get("from", ""), 1))
    with source.connect(request) as (store, values):
        labels = run_labels(store)
        count = count_answers(store, choice)
        rows = list_page(store, choice, query.order(labels), PAGE_SIZE, skip=first - 1).dicts()
        runs, tasks = source.runs or run_names(store), source.tasks or _task_names(store)
    return page(
        "answers.html",
        **values,
        found=count,
        first=first,
        step=PAGE_SIZE,
        heads=query.heads(),
        rows=[_row(row, labels, query) for row in rows],
        before=query.link(**{"from": max(1, first - PAGE_SIZE)}) if first > 1 else "",
        after=query.link(**{"from": first + PAGE_SIZE}) if first + PAGE_SIZE <= count else "",
        asked={name: query.values.get(name, "") for name in (*_FILTERS, "sort")},
        choices={
            "run": [(run, labels[run]) for run in sorted(runs, key=lambda run: labels[run])],
            "task": [(task, task) for task in tasks],
            "mark": [(mark, mark) for mark in (*LISTED, "any")],
        },
    )


def _task_names(store: Store) -> list[str]:
    sql = "SELECT DISTINCT benchmark || '/' || task FROM generations ORDER BY ALL"
    return [name for (name,) in store.query(sql).rows]


def _row(row: Mapping[str, Any], labels: Mapping[str, str], query: ListQuery) -> dict[str, Any]:
    key = AnswerKey(*(row[name] for name in AnswerKey._fields))
    more = (row["reference_count"] or 0) - 1
    return {
        "link": answer_link(key, query.prefixed),
        "run": labels.get(key.run_id, key.run_id),
        "sample": str(key.sample._replace(sample_id=_cut_middle(key.sample_id))),
        "name": str(key.sample),
        "score": row["score"],
        "question": first_line(row["question"]),
        "answer": first_line(row["answer"]),
        "reference": first_line(row["reference"]) + (f" (+{more})" if more > 0 else ""),
        "tokens": row["output_tokens"],
        "marks": row["marks"],
    }


def first_line(text: str | None) -> str:
    """First line with visible text, of a text that was cut."""
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), "")


def _cut_middle(text: str) -> str:
    """Shorten a long name, such as a hash, in the middle."""
    return text if len(text) <= _LONGEST_ID else f"{text[: _LONGEST_ID // 2]}…{text[-_LONGEST_ID // 2 + 1 :]}"


def _parse_share(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
