"""What a judge is told, and how its text is read: the one place where a verdict is found in a text."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from lbx.base.records import Score, canonical_json, sha256_text
from lbx.benchmarks.base.templates import template_fields

PAIR, RATING = "pair", "score"
"""The kinds of rubrics: which of two answers is better, and how good one is."""
VERDICT, RATED = "verdict", "rating"
"""The metrics of the two kinds."""
FIRST, SECOND, TIE = WINNERS = ("first", "second", "tie")
AMBIGUOUS = "ambiguous"
NEW_TOKENS = 2048
NUMBER = "{rating}"
"""Where a rating's number stands in the text around it."""

_FARTHEST = 1_000_000
_EDGES = string.punctuation + string.whitespace + "“”‘’«»。．！"
_COLON = re.compile("[:：]")
_WON = {TIE: (0.5, "tie"), True: (1.0, "answer"), False: (0.0, "against")}


@dataclass(frozen=True)
class Rubric:
    """What a judge is told, and how its text is read.

    Attributes:
        name: of the task in the results file.
        kind: "pair" or "score".
        system, user: the messages; ``user`` is a ``str.format`` template of {question}, {reference}, {document}, and
            {a} and {b}, or {answer} where one answer is rated. Both "" where a file was imported without them.
        verdicts: of a pair (mark, "first" | "second" | "tie") in the order in which marks are looked for.
        pattern: of a rating: the text around its number, "[[{rating}]]".
        low, high: the scale of ratings.
        max_new_tokens: the judge's budget.
        source: where the texts come from.
    """

    name: str
    kind: str
    system: str
    user: str
    verdicts: tuple[tuple[str, str], ...] = ()
    pattern: str = ""
    low: float = 0
    high: float = 0
    max_new_tokens: int = NEW_TOKENS
    source: str = "lbx"

    @cached_property
    def sha256(self) -> str:
        """Of everything that makes a judgement what it is: texts, marks, scale, budget."""
        settings = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("name", "source")}
        return sha256_text(canonical_json(settings))

    @cached_property
    def shows_document(self) -> bool:
        return self._shows("document")

    @cached_property
    def shows_question(self) -> bool:
        return self._shows("question")

    def _shows(self, variable: str) -> bool:
        return any(name == variable for _, name in template_fields(self.user))

    @property
    def metric(self) -> str:
        return VERDICT if self.kind == PAIR else RATED

    @property
    def reading(self) -> object:
        """``meta["verdicts"]``: how a text is read."""
        if self.kind == PAIR:
            return [list(one) for one in self.verdicts]
        return {"pattern": self.pattern, "low": self.low, "high": self.high}

    def settings(self, orders: str) -> dict[str, str]:
        """What ``runs.settings`` of a judge say of it, beside what any run's do.

        Args:
            orders: "both" or "given".
        """
        return {"rubric": self.name, "rubric_sha256": self.sha256, "rubric_source": self.source, "orders": orders}


def winners_in(verdicts: Sequence[Sequence[Any]], text: str) -> list[Any]:
    """What the marks in a text stand for, in the order in which they are looked for.

    Officially the first one counts, wherever it stands, and a text without any is an error.

    Args:
        verdicts: pairs as of ``Rubric.verdicts``.
    """
    return [winner for mark, winner in verdicts if mark and isinstance(mark, str) and mark in text]


def bare(mark: str) -> str:
    """A mark in lower case, without punctuation around it: a line of a judge's text may have it in this form."""
    return mark.strip(_EDGES).casefold()


def winners_alone(verdicts: Sequence[Sequence[Any]], text: str) -> list[Any]:
    """What the marks in any case stand for that have a line of their own, perhaps behind a label: "Verdict: one."

    Within a sentence "one" may be a pronoun. Where lines differ, the last line of the text counts, and comes first; []
    where that is no mark. Marks in double brackets are read exactly, as the official scripts do.
    """
    winners = {bare(mark): winner for mark, winner in verdicts if isinstance(mark, str) and not mark.startswith("[[")}
    winners.pop("", None)
    lines = [line.strip(_EDGES.replace(":", "")) for line in text.splitlines() if line.strip(_EDGES)]
    found = [
        None if line.endswith((":", "：")) else winners.get(bare(line), winners.get(bare(_COLON.split(line)[-1])))
        for line in lines  # one that ends in a colon is a heading
    ]
    told = [one for one in reversed(found) if one is not None]
    return told if len(set(map(str, told))) == 1 or (found and found[-1] is not None) else []


def judgement(meta: Mapping[str, Any], text: str) -> list[Score]:
    """What a judge's text says of the judged answer; [] where it says nothing.

    Args:
        meta: of a round's sample, be it what it may.
    """
    reading = meta.get("verdicts")
    if meta.get("kind") == RATING:
        return _rating(reading, text) if isinstance(reading, Mapping) else []
    pairs = (
        [one for one in reading if isinstance(one, list | tuple) and len(one) == 2] if isinstance(reading, list) else []
    )
    winners = winners_in(pairs, text) or winners_alone(pairs, text)
    if not winners or winners[0] not in WINNERS:
        return []
    answer_first = meta.get("answer_first") is not False
    value, extracted = _WON[TIE if winners[0] == TIE else (winners[0] == FIRST) is answer_first]
    return [Score(VERDICT, value, extracted, partial=AMBIGUOUS if len(set(map(str, winners))) > 1 else None)]


def _rating(reading: Mapping[str, Any], output: str) -> list[Score]:
    """The first number in the text that the rubric asks for, in any case: 3.5 is a number, and a number outside the
    scale is no rating. A text with different numbers is ambiguous.
    """
    pattern, low, high = (reading.get(name) for name in ("pattern", "low", "high"))
    if not isinstance(pattern, str) or not isinstance(low, int | float) or not isinstance(high, int | float):
        return []
    before, mark, after = pattern.partition(NUMBER)
    if not mark or not -_FARTHEST <= low < high <= _FARTHEST:
        return []
    number = r"(?<![\d.,])((?:(?<!\w)[-\u2212])?\d{1,6}(?:\.\d{1,6})?)(?![.,]?\d)"
    stands = rf"{re.escape(before)}\s{{0,8}}{number}\s{{0,8}}{re.escape(after)}"
    found = re.findall(stands, output) or re.findall(stands, output, re.IGNORECASE)
    ratings = [text.replace("\u2212", "-") for text in found]
    if not ratings or not low <= float(ratings[0]) <= high:
        return []
    several = len(set(map(float, ratings))) > 1
    score = (float(ratings[0]) - low) / (high - low)
    # Digits of other scripts are numbers to Python, and to no table.
    first = ratings[0] if ratings[0].isascii() else f"{float(ratings[0]):g}"
    return [Score(RATED, score, first, partial=AMBIGUOUS if several else None)]
