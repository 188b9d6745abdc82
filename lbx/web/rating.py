"""The pages of `lbx rate`: one question after the other, its answers blind, each key saved before the page says so."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from lbx.base.errors import UsageError
from lbx.base.visible import visible
from lbx.judging.rating_session import Book, Opinion
from lbx.judging.rating_sets import SCORE, Item
from lbx.web.documents import Documents, blocks_of
from lbx.web.pages import number_in, page, saving

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_VERDICTS = {"a": "A is better", "b": "B is better", "tie": "a tie", "both_bad": "both bad"}
_VERDICT_KEYS = {"a": "a", "b": "b", "tie": "t", "both_bad": "x"}


class RatingPages:
    """Routes for a set's raters.

    Args:
        book: what is said.
        documents: what the questions are about, by ``Item.document_key``.
        reference_open: show references without being asked.
    """

    def __init__(self, book: Book, documents: Documents, *, reference_open: bool = False) -> None:
        self._book = book
        self._documents = documents
        self._reference_open = reference_open
        self._told: dict[str, str] = {}
        self._since: dict[tuple[str, int], float] = {}

    @property
    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self._first),
            Route("/overview", self._overview),
            Route("/item/{number:number}", self._item),
            saving("/item/{number:number}", self._save),
            *self._documents.routes,
        ]

    # Pages

    def _first(self, request: Request) -> Response:
        item = self._book.next_open(request.state.person)
        return RedirectResponse(request.scope["root_path"] + (_place(item) if item else "/overview"), status_code=303)

    def _item(self, request: Request) -> Response:
        rater = request.state.person
        item = self._book.item(rater, request.path_params["number"])
        self._since[rater, item.number] = time.monotonic()
        answers = self._answers(rater, item)
        at = number_in(request.query_params.get("at", ""), len(answers))
        current = at if at < len(answers) else self._first_open(rater, item)
        return page(
            "rating.html",
            **self._common(request),
            item=item,
            place=[one.number for one in self._book.queue(rater)].index(item.number) + 1,
            answers=answers,
            current=current,
            scale=[(value, _key_of(value, self._book.set.low)) for value in self._scale],
            low=self._book.set.low,
            high=self._book.set.high,
            pair=None if self._book.set.kind == SCORE else self._pair(rater, item),
            reference_open=self._reference_open,
            document=self._documents.get(item.document_key),
            has_document=request.headers.get("lbx-document"),
        )

    def _overview(self, request: Request) -> Response:
        rater = request.state.person
        items = [(item, self._state(rater, item)) for item in self._book.queue(rater)]
        return page("rated.html", **self._common(request), items=items, document=None)

    def _common(self, request: Request) -> dict[str, Any]:
        rater = request.state.person
        progress = self._book.progress(rater)
        left = progress.seconds_left
        minutes = None if left is None or progress.done == progress.total else max(1, round(left / 60))
        return {
            "root": request.scope["root_path"],
            "rater": rater,
            "kind": self._book.set.kind,
            "progress": progress,
            "minutes": minutes,
            "told": self._told.pop(rater, ""),
        }

    def _answers(self, rater: str, item: Item) -> list[dict[str, Any]]:
        values, rows = self._book.values(rater, item), self._book.latest(rater, item)
        answers = []
        for at, group in enumerate(self._book.set.shown(item, rater)):
            row = rows[at] if at < len(rows) else None
            value = values[at] if at < len(values) and self._book.set.kind == SCORE else None
            answers.append(
                {
                    "place": at,
                    "letter": letter(at),
                    "blocks": blocks_of(visible(group[0].text)) if group[0].text.strip() else [],
                    "same": len(group),
                    "value": value,
                    "comment": (row.comment if row else None) or "",
                }
            )
        return answers

    def _pair(self, rater: str, item: Item) -> dict[str, Any]:
        (row,), (value,) = self._book.latest(rater, item), self._book.values(rater, item)
        if value in ("answer", "against") and row is not None:
            value = "ab"[row.shown_at or 0] if value == "answer" else "ab"[1 - (row.shown_at or 0)]
        choices = [(name, words, _VERDICT_KEYS[name], name == value) for name, words in _VERDICTS.items()]
        return {"choices": choices, "comment": (row.comment if row else None) or ""}

    def _first_open(self, rater: str, item: Item) -> int:
        values = self._book.values(rater, item)
        return values.index(None) if None in values else 0

    def _state(self, rater: str, item: Item) -> str:
        if self._book.is_done(rater, item):
            return "rated"
        return "left open" if self._book.is_passed(rater, item) else "not seen yet"

    @property
    def _scale(self) -> range:
        return range(self._book.set.low, self._book.set.high + 1)

    # What is said

    def _save(self, request: Request, fields: Mapping[str, str]) -> str:
        rater = request.state.person
        item = self._book.item(rater, request.path_params["number"])
        done = fields.get("do", "save")
        was_done = self._book.is_done(rater, item)
        typed = self._typed(rater, item, fields)
        undone = self._undone(rater, item) if done == "undo" else ""  # before what came along becomes the last
        problems = self._said(rater, item, typed, done)
        since = self._since.get((rater, item.number))
        new = self._book.say(rater, item, problems, seconds=None if since is None else time.monotonic() - since)
        if undone:
            return undone
        if done in ("next", "skip"):
            self._told[rater] = f"Question {self._place_of(rater, item)} is left open." if done == "skip" else ""
            return self._behind(rater, item)
        if done == "back":
            return self._before(rater, item)
        self._told[rater] = self._words(rater, item, done) if new or done != "save" else ""
        if self._book.is_done(rater, item) and not was_done and done != "save":
            return self._behind(rater, item)
        return f"{_place(item)}?at={self._next_answer(rater, item, done)}"

    def _typed(self, rater: str, item: Item, fields: Mapping[str, str]) -> dict[int, str]:
        """{place: its comment} where that was changed on the page."""
        held = [(row.comment if row else None) or "" for row in self._book.latest(rater, item)]
        comments = {place: fields.get(f"comment-{place}", comment) for place, comment in enumerate(held)}
        return {place: comment for place, comment in comments.items() if comment.strip() != held[place]}

    def _said(self, rater: str, item: Item, typed: Mapping[int, str], done: str) -> list[Opinion]:
        """Everything that came with a button: what it stands for, and each comment that was changed."""
        rated = self._rated(done)
        problems = []
        for place, value in enumerate(self._book.values(rater, item)):
            if rated and rated[0] == place:
                problems.append(Opinion(place, rated[1], typed.get(place)))
            elif place in typed or (done == "skip" and value is None):
                problems.append(Opinion(place, self._as_said(value), typed.get(place)))
        if rated and rated[0] not in {one.place for one in problems}:
            raise UsageError("There is no such answer.")
        return problems

    def _as_said(self, value: float | str | None) -> int | str | None:
        return int(value) if isinstance(value, float) else value

    def _rated(self, done: str) -> tuple[int, int | str] | None:
        """The place and the value that a button stands for; None for a button of another kind."""
        if self._book.set.kind == SCORE:
            match = re.fullmatch(r"rate-([0-9]{1,3})-(-?[0-9]{1,6})", done)
            value: int | str = int(match[2]) if match else 0
        else:
            match = re.fullmatch(r"rate-(0)-(a|b|tie|both_bad)", done)
            value = match[2] if match else ""
        if match is None and done not in ("save", "next", "skip", "undo", "back"):
            raise UsageError("No page of lbx sends such a form.", fix="Nothing was saved.")
        return (int(match[1]), value) if match else None

    def _words(self, rater: str, item: Item, done: str) -> str:
        rated, place = self._rated(done), self._place_of(rater, item)
        if rated is None:
            return "Saved."
        what = f"{letter(rated[0])}: {rated[1]}" if self._book.set.kind == SCORE else _VERDICTS[str(rated[1])]
        return f"Saved: question {place}, {what}. u undoes it."

    def _undone(self, rater: str, item: Item) -> str:
        undone = self._book.undo(rater)
        if undone is None:
            self._told[rater] = "There is nothing to undo since lbx was started. Rate it again instead."
            return _place(item)
        self._told[rater] = f"Taken back: question {self._place_of(rater, undone[0])}."
        return f"{_place(undone[0])}?at={undone[1] if self._book.set.kind == SCORE else 0}"

    # Ways

    def _place_of(self, rater: str, item: Item) -> int:
        return self._book.queue(rater).index(item) + 1

    def _next_answer(self, rater: str, item: Item, done: str) -> int:
        """The next answer without a rating, else the one behind the one that was rated."""
        values, rated = self._book.values(rater, item), self._rated(done)
        at = rated[0] if rated else 0
        open_ = [place for place, value in enumerate(values) if value is None]
        if rated is None:
            return open_[0] if open_ else 0
        behind = [place for place in open_ if place > at] + open_
        return behind[0] if behind else min(at + 1, len(values) - 1)

    def _behind(self, rater: str, item: Item) -> str:
        following = self._book.next_open(rater, item.number)
        return _place(following) if following else "/overview"

    def _before(self, rater: str, item: Item) -> str:
        queue = self._book.queue(rater)
        return _place(queue[max(0, queue.index(item) - 1)])


def letter(place: int) -> str:
    """What an answer is called: A to Z, then AA, AB ..."""
    return (letter(place // 26 - 1) if place >= 26 else "") + LETTERS[place % 26]


def _place(item: Item) -> str:
    return f"/item/{item.number}"


def _key_of(value: int, low: int) -> str:
    """The key for a number of the scale; "" where it has none."""
    return str(value) if 0 <= value <= 9 else "0" if value == 10 and low > 0 else ""
