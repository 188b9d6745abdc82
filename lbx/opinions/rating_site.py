"""Pages of `lbx rate`, which show a question after another with anonymous answers, and save ratings before showing."""

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
from lbx.opinions.rating_session import Opinion, RatingSession
from lbx.opinions.rating_sets import SCORE, Item
from lbx.web.documents import Documents, blocks_of
from lbx.web.pages import form_route, page, parse_number

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_VERDICTS = {"a": "A is better", "b": "B is better", "tie": "a tie", "both_bad": "both bad"}
_VERDICT_KEYS = {"a": "a", "b": "b", "tie": "t", "both_bad": "x"}
_Rating = tuple[int, int | str]
"""Position and value of a rated answer."""


class RatingPages:
    """Routes of a rating set's pages.

    Args:
        documents: documents by ``Item.document_key``.
    """

    def __init__(self, session: RatingSession, documents: Documents, *, reference_open: bool = False) -> None:
        self._session = session
        self._documents = documents
        self._reference_open = reference_open
        self._messages: dict[str, str] = {}
        self._opened_at: dict[tuple[str, int], float] = {}

    @property
    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self._first_page),
            Route("/overview", self._overview),
            Route("/item/{number:number}", self._item),
            form_route("/item/{number:number}", self._save),
            *self._documents.routes,
        ]

    # Pages

    def _first_page(self, request: Request) -> Response:
        item = self._session.next_open(request.state.person)
        return RedirectResponse(
            request.scope["root_path"] + (_item_path(item) if item else "/overview"), status_code=303
        )

    def _item(self, request: Request) -> Response:
        rater = request.state.person
        item = self._session.item(rater, request.path_params["number"])
        self._opened_at[rater, item.number] = time.monotonic()
        answers = self._answers(rater, item)
        at = parse_number(request.query_params.get("at", ""), len(answers))
        current = at if at < len(answers) else self._first_open(rater, item)
        return page(
            "rating.html",
            **self._page_values(request),
            item=item,
            place=[entry.number for entry in self._session.queue(rater)].index(item.number) + 1,
            answers=answers,
            current=current,
            scale=[(value, _key_of(value, self._session.set.low)) for value in self._scale_values],
            low=self._session.set.low,
            high=self._session.set.high,
            pair=None if self._session.set.kind == SCORE else self._pair(rater, item),
            reference_open=self._reference_open,
            document=self._documents.get(item.document_key),
            has_document=request.headers.get("lbx-document"),
        )

    def _overview(self, request: Request) -> Response:
        rater = request.state.person
        items = [(item, self._state(rater, item)) for item in self._session.queue(rater)]
        return page("rated.html", **self._page_values(request), items=items, document=None)

    def _page_values(self, request: Request) -> dict[str, Any]:
        rater = request.state.person
        progress = self._session.progress(rater)
        seconds_left = progress.seconds_left
        minutes = None if seconds_left is None or progress.done == progress.total else max(1, round(seconds_left / 60))
        return {
            "root": request.scope["root_path"],
            "rater": rater,
            "kind": self._session.set.kind,
            "criterion": self._session.set.shown_criterion,
            "progress": progress,
            "minutes": minutes,
            "told": self._messages.pop(rater, ""),
        }

    def _answers(self, rater: str, item: Item) -> list[dict[str, Any]]:
        values, rows = self._session.values(rater, item), self._session.latest(rater, item)
        answers = []
        for at, group in enumerate(self._session.set.answer_groups(item, rater)):
            row = rows[at] if at < len(rows) else None
            value = values[at] if at < len(values) and self._session.set.kind == SCORE else None
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
        (row,), (value,) = self._session.latest(rater, item), self._session.values(rater, item)
        if value in ("answer", "against") and row is not None:
            value = "ab"[row.shown_at or 0] if value == "answer" else "ab"[1 - (row.shown_at or 0)]
        choices = [(name, words, _VERDICT_KEYS[name], name == value) for name, words in _VERDICTS.items()]
        return {"choices": choices, "comment": (row.comment if row else None) or ""}

    def _first_open(self, rater: str, item: Item) -> int:
        values = self._session.values(rater, item)
        return values.index(None) if None in values else 0

    def _state(self, rater: str, item: Item) -> str:
        if self._session.is_done(rater, item):
            return "rated"
        return "left open" if self._session.is_passed(rater, item) else "not seen yet"

    @property
    def _scale_values(self) -> range:
        return range(self._session.set.low, self._session.set.high + 1)

    # Forms

    def _save(self, request: Request, fields: Mapping[str, str]) -> str:
        rater = request.state.person
        item = self._session.item(rater, request.path_params["number"])
        button = fields.get("do", "save")
        rating = self._parse_button(button)
        was_done = self._session.is_done(rater, item)
        comments = self._changed_comments(rater, item, fields)
        undone = self._undo(rater, item) if button == "undo" else ""  # before the comments become the last opinion
        opinions = self._opinions(rater, item, rating, comments, skipped=button == "skip")
        since = self._opened_at.get((rater, item.number))
        new = self._session.save(rater, item, opinions, seconds=None if since is None else time.monotonic() - since)
        if undone:
            return undone
        if button in ("next", "skip"):
            self._messages[rater] = f"Question {self._number_of(rater, item)} left open." if button == "skip" else ""
            return self._next_page(rater, item)
        if button == "back":
            return self._previous_page(rater, item)
        self._messages[rater] = self._saved_message(rater, item, rating) if new or button != "save" else ""
        if self._session.is_done(rater, item) and not was_done and button != "save":
            return self._next_page(rater, item)
        return f"{_item_path(item)}?at={self._next_answer(rater, item, rating)}"

    def _changed_comments(self, rater: str, item: Item, fields: Mapping[str, str]) -> dict[int, str]:
        saved = [(row.comment if row else None) or "" for row in self._session.latest(rater, item)]
        comments = {position: fields.get(f"comment-{position}", comment) for position, comment in enumerate(saved)}
        return {position: comment for position, comment in comments.items() if comment.strip() != saved[position]}

    def _opinions(
        self, rater: str, item: Item, rating: _Rating | None, comments: Mapping[int, str], *, skipped: bool
    ) -> list[Opinion]:
        opinions = []
        for position, value in enumerate(self._session.values(rater, item)):
            if rating and rating[0] == position:
                opinions.append(Opinion(position, rating[1], comments.get(position)))
            elif position in comments or (skipped and value is None):
                opinions.append(
                    Opinion(position, int(value) if isinstance(value, float) else value, comments.get(position))
                )
        if rating and rating[0] not in {opinion.position for opinion in opinions}:
            raise UsageError("This answer does not exist.")
        return opinions

    def _parse_button(self, button: str) -> _Rating | None:
        """Parse position and value of a rating button. Returns None for other buttons."""
        if self._session.set.kind == SCORE:
            match = re.fullmatch(r"rate-([0-9]{1,3})-(-?[0-9]{1,6})", button)
            value: int | str = int(match[2]) if match else 0
        else:
            match = re.fullmatch(r"rate-(0)-(a|b|tie|both_bad)", button)
            value = match[2] if match else ""
        if match is None and button not in ("save", "next", "skip", "undo", "back"):
            raise UsageError("This form does not come from a page of lbx.", fix="No changes were saved.")
        return (int(match[1]), value) if match else None

    def _saved_message(self, rater: str, item: Item, rating: _Rating | None) -> str:
        if rating is None:
            return "Saved."
        what = f"{letter(rating[0])}: {rating[1]}" if self._session.set.kind == SCORE else _VERDICTS[str(rating[1])]
        return f"Saved: question {self._number_of(rater, item)}, {what}. Press u to undo."

    def _undo(self, rater: str, item: Item) -> str:
        undone = self._session.undo(rater)
        if undone is None:
            self._messages[rater] = "No rating to undo since lbx started. Rate the question again instead."
            return _item_path(item)
        self._messages[rater] = f"Undone: question {self._number_of(rater, undone[0])}."
        return f"{_item_path(undone[0])}?at={undone[1] if self._session.set.kind == SCORE else 0}"

    # Navigation

    def _number_of(self, rater: str, item: Item) -> int:
        return self._session.queue(rater).index(item) + 1

    def _next_answer(self, rater: str, item: Item, rating: _Rating | None) -> int:
        """Return the position of the next answer without a rating, else the position after the rated answer."""
        values = self._session.values(rater, item)
        open_ = [position for position, value in enumerate(values) if value is None]
        if rating is None:
            return open_[0] if open_ else 0
        following = [position for position in open_ if position > rating[0]] + open_
        return following[0] if following else min(rating[0] + 1, len(values) - 1)

    def _next_page(self, rater: str, item: Item) -> str:
        following = self._session.next_open(rater, item.number)
        return _item_path(following) if following else "/overview"

    def _previous_page(self, rater: str, item: Item) -> str:
        queue = self._session.queue(rater)
        return _item_path(queue[max(0, queue.index(item) - 1)])


def letter(position: int) -> str:
    """Return the letters for the answer at a position: A to Z, then AA, AB ..."""
    return (letter(position // 26 - 1) if position >= 26 else "") + LETTERS[position % 26]


def _item_path(item: Item) -> str:
    return f"/item/{item.number}"


def _key_of(value: int, low: int) -> str:
    return str(value) if 0 <= value <= 9 else "0" if value == 10 and low > 0 else ""
