"""Rubric of a judge, and parsers of rubric tables and of the verdicts in a judge's text.

A custom rubric is a TOML file, or the table [rubric] in the definition of a custom benchmark:

    name = "faithful"                       # of the task in the results file
    kind = "pair"                           # or "score": a single answer
    system = "You compare two summaries."   # optional
    user = '''
    {document}

    Task: {question}
    First: {a}
    Second: {b}
    End with FIRST, SECOND or SAME.'''
    verdicts = [["FIRST", "first"], ["SECOND", "second"], ["SAME", "tie"]]  # in order of priority
    max_new_tokens = 512                    # default: 2,048

A rubric for ratings uses {answer} instead of {a} and {b}. Instead of verdicts it states a pattern and a scale:

    rating = "Rating: {rating}"
    low = 1
    high = 5

{question}, {reference} and {document} are optional. A document comes before everything that varies, so that it is
read once for all models, orders and questions.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

from lbx.base.bundle_folder import Bundle
from lbx.base.records import JudgedAnswer, Sample, Score, canonical_json, sha256_text
from lbx.base.tables import check_table, entry_error, is_name
from lbx.benchmarks.base.sources import template_fields
from lbx.benchmarks.metrics.judged_json import is_formula, rate

PAIR, RATING = "pair", "score"
"""Kinds of rubrics: a pair rubric asks for the better of two answers, a score rubric rates a single answer."""
VERDICT, RATED = "verdict", "rating"
"""Metrics of pair rubrics and of score rubrics."""
FIRST, SECOND, TIE = WINNERS = ("first", "second", "tie")
AMBIGUOUS = "ambiguous"
NEW_TOKENS = 2048
NUMBER = "{rating}"
"""Placeholder for the number in the pattern of ratings."""

_MAX_SCALE = 1_000_000
_EDGES = string.punctuation + string.whitespace + "“”‘’«»。．！"
_COLON = re.compile("[:：]")
_OUTCOMES = {TIE: (0.5, "tie"), True: (1.0, "answer"), False: (0.0, "against")}


@dataclass(frozen=True)
class Rubric:
    """Messages for a judge, and rules to parse the judge's answer.

    Attributes:
        name: task in the results file.
        kind: "pair" or "score".
        system, user: the messages. ``user`` is a ``str.format`` template of {question}, {reference}, {document}, and
            {a} and {b}, or {answer} in a score rubric. Both are "" if a file was imported without messages.
        verdicts: for a pair, (mark, "first" | "second" | "tie") in order of priority.
        pattern: for a rating, the text around the number: "[[{rating}]]", or a formula of the fields of a JSON object
            (``lbx.benchmarks.metrics.judged_json``).
        low, high: ends of the scale of ratings.
        source: file that contains the rubric.
        more_users: further user messages on the same answer, each asked by itself. The judge's text is then the JSON
            list of all replies.
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
    more_users: tuple[str, ...] = ()

    @cached_property
    def sha256(self) -> str:
        """Hash of everything in the rubric that a judgement depends on: messages, marks, scale, token budget."""
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        return sha256_text(canonical_json({k: v for k, v in settings.items() if k not in ("name", "source")}))

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

    def settings(self, orders: str) -> dict[str, str]:
        """Settings of a judge's run that describe the rubric. ``orders`` is "both" or "given"."""
        return {"rubric": self.name, "rubric_sha256": self.sha256, "rubric_source": self.source, "orders": orders}


class RubricTexts(NamedTuple):
    """Texts of a judged answer for a family's rubric.

    Attributes:
        references: texts that the judge reads in addition to question and answer.
        values: {placeholder: text}. "points" is the number in a formula.
    """

    references: tuple[str, ...]
    values: Mapping[str, str]


TextMaker = Callable[[Sample, str], RubricTexts]
"""Function that makes the texts of a judged sample and its answer."""


@dataclass(frozen=True, slots=True)
class FamilyRubrics:
    """Rubrics of a family's authors, by which a judge rates single answers.

    Attributes:
        tasks: {rubric: tasks of the answers that it rates}.
        parser: parses the rubric of a name, which a bundle contains. Raises BundleError.
        text_source: returns the maker of texts for the rubric of a name. Raises BundleError without data that it shows.
    """

    tasks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    parser: Callable[[Bundle, str], Rubric] | None = None
    text_source: Callable[[Bundle, str], TextMaker] | None = None


def winners_in(verdicts: Sequence[Sequence[Any]], text: str) -> list[Any]:
    """Find the winners that a judge's text names. The first winner of the list counts.

    Marks anywhere in the text come in the official order of priority. If there are none, bare marks on separate lines
    are read.

    Args:
        verdicts: pairs as in ``Rubric.verdicts``.
    """
    official = [winner for mark, winner in verdicts if mark and isinstance(mark, str) and mark in text]
    return official or _winners_by_line(verdicts, text)


def bare_mark(mark: str) -> str:
    """Mark in lower case, without punctuation around it, to compare it with a line of a judge's text."""
    return mark.strip(_EDGES).casefold()


def _winners_by_line(verdicts: Sequence[Sequence[Any]], text: str) -> list[Any]:
    """Find winners by marks that fill a line, in any case, also after a label: "Verdict: one."

    Within a sentence "one" may be a pronoun. If lines differ, the last line of the text counts and comes first. The
    result is [] if that line is not a mark. Marks in double brackets are matched exactly, as in the official scripts.
    """
    winners = {
        bare_mark(mark): winner for mark, winner in verdicts if isinstance(mark, str) and not mark.startswith("[[")
    }
    winners.pop("", None)
    lines = [line.strip(_EDGES.replace(":", "")) for line in text.splitlines() if line.strip(_EDGES)]
    found = [
        None
        if line.endswith((":", "："))  # a heading
        else winners.get(bare_mark(line), winners.get(bare_mark(_COLON.split(line)[-1])))
        for line in lines
    ]
    from_end = [winner for winner in reversed(found) if winner is not None]
    return from_end if len(set(map(str, from_end))) == 1 or (found and found[-1] is not None) else []


def judgement(subject: JudgedAnswer, text: str) -> list[Score]:
    """Parse a judge's text into the score of the judged answer, or [] without a verdict.

    Args:
        subject: the judged answer. It may come from a file, so its marks may be of any type.
    """
    if subject.kind == RATING:
        return _rating(subject, text)
    winners = winners_in([pair for pair in subject.verdicts or () if len(pair) == 2], text)
    if not winners or winners[0] not in WINNERS:
        return []
    answer_first = subject.answer_first is not False
    value, extracted = _OUTCOMES[TIE if winners[0] == TIE else (winners[0] == FIRST) is answer_first]
    return [Score(VERDICT, value, extracted, partial=AMBIGUOUS if len(set(map(str, winners))) > 1 else None)]


def _rating(subject: JudgedAnswer, text: str) -> list[Score]:
    """Parse a rating: the first number in the text that matches the rubric's pattern, in any case.

    3.5 is a number, and a number outside the scale is not a rating. A text with different ratings is ambiguous.
    """
    pattern, low, high = subject.pattern, subject.scale_low, subject.scale_high
    if pattern is None or low is None or high is None:
        return []
    if is_formula(pattern):
        rating = rate(pattern, text)
        if rating is None or not low < high:
            return []
        # The F1 of a judge who finds more points than there are is above the scale, so that the score is above 1: the
        # authors average it as it is.
        return [Score(RATED, (rating - low) / (high - low), repr(float(rating)))]
    before, mark, after = pattern.partition(NUMBER)
    if not mark or not -_MAX_SCALE <= low < high <= _MAX_SCALE:
        return []
    number = r"(?<![\d.,])((?:(?<!\w)[-\u2212])?\d{1,6}(?:\.\d{1,6})?)(?![.,]?\d)"
    rated = rf"{re.escape(before)}\s{{0,8}}{number}\s{{0,8}}{re.escape(after)}"
    found = re.findall(rated, text) or re.findall(rated, text, re.IGNORECASE)
    ratings = [digits.replace("\u2212", "-") for digits in found]
    if not ratings or not low <= float(ratings[0]) <= high:
        return []
    ambiguous = len(set(map(float, ratings))) > 1
    # float() accepts digits of other scripts, but tables cannot show them.
    first = ratings[0] if ratings[0].isascii() else f"{float(ratings[0]):g}"
    return [Score(RATED, (float(ratings[0]) - low) / (high - low), first, partial=AMBIGUOUS if ambiguous else None)]


_MAX_TOKENS = 1 << 20
_SHARED: dict[str, type] = {"name": str, "kind": str, "system": str, "user": str, "max_new_tokens": int}
_KINDS: dict[str, dict[str, type]] = {
    PAIR: {**_SHARED, "verdicts": list},
    RATING: {**_SHARED, "rating": str, "low": int, "high": int},
}
_ANSWER_FIELDS = {PAIR: ("a", "b"), RATING: ("answer",)}
_OPTIONAL_FIELDS = ("question", "reference", "document")
_MAX_MARK_LENGTH = 200


def parse_rubric_table(
    table: Mapping[str, Any], location: str, source: str, reserved_names: Mapping[str, str]
) -> Rubric:
    """Parse a rubric from a TOML table.

    Args:
        location: file and table, for messages.
        source: name of the file in results files.
        reserved_names: {name that a rubric must not use: meaning of the name}.

    Raises:
        UsageError: the table is invalid. The message names the key.
    """
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        given = "and is not set" if kind is None else f"not {str(kind)[:40]!r}"
        raise entry_error(location, f"kind must be {' or '.join(map(repr, _KINDS))}, {given}")
    key_types = _KINDS[kind]
    needed = [key for key in key_types if key not in ("system", "max_new_tokens")]
    check_table(table, key_types, f"{location}:", needed)
    name = table["name"]
    if not is_name(name):
        raise entry_error(
            location, f"name = {name!r} is not a valid rubric name: use at most 64 letters, digits and _ . -"
        )
    if meaning := reserved_names.get(name):
        raise entry_error(location, f"name = {name!r} is reserved: it means {meaning}", "Choose another name.")
    braces = "Write literal braces as {{ and }}"
    try:
        names = [name for _, name in template_fields(table["user"]) if name is not None]
    except ValueError as exc:
        raise entry_error(location, f"cannot fill in user: {exc}. {braces}") from exc
    answer_fields = _ANSWER_FIELDS[kind]
    for name in names:
        if name not in (*answer_fields, *_OPTIONAL_FIELDS):
            allowed_fields = ", ".join(f"{{{field}}}" for field in (*answer_fields, *_OPTIONAL_FIELDS))
            raise entry_error(
                location, f"user contains {{{name}}}, but kind = {kind!r} has only {allowed_fields}. {braces}"
            )
    for name in answer_fields:
        if name not in names:
            raise entry_error(
                location,
                f"user does not contain {{{name}}}, so the judge would not see that answer",
                f"Add {{{name}}} to it.",
            )
    if "document" in names and (names.count("document") > 1 or names[0] != "document"):
        raise entry_error(
            location,
            "user must contain {document} only once, before the other fields: the judge then reads a document once, "
            "not once for each question, model and order",
        )
    if not 0 < table.get("max_new_tokens", 1) <= _MAX_TOKENS:
        raise entry_error(location, f"max_new_tokens = {table['max_new_tokens']} must be from 1 to {_MAX_TOKENS:,}")
    values: dict[str, Any] = (
        {"verdicts": _parse_verdicts(table["verdicts"], location)} if kind == PAIR else _parse_scale(table, location)
    )
    budget = table.get("max_new_tokens", NEW_TOKENS)
    system, user = table.get("system", ""), table["user"]
    return Rubric(table["name"], kind, system, user, max_new_tokens=budget, source=source, **values)


def _parse_verdicts(entries: Sequence[Any], location: str) -> tuple[tuple[str, str], ...]:
    pairs = [tuple(entry) if isinstance(entry, list) else () for entry in entries]
    for pair in pairs:
        if len(pair) != 2 or not all(isinstance(text, str) for text in pair) or pair[1] not in WINNERS:
            raise entry_error(
                location, 'verdicts must be pairs such as ["[[A]]", "first"]: a mark, then first, second or tie'
            )
        if not pair[0].strip() or len(pair[0]) > _MAX_MARK_LENGTH:
            raise entry_error(
                location, f"the mark {pair[0][:40]!r} of verdicts must be text of 1 to {_MAX_MARK_LENGTH} characters"
            )
    for winner in WINNERS[:2]:
        if winner not in [pair[1] for pair in pairs]:
            raise entry_error(
                location,
                f"verdicts has no mark for {winner}, so a judge could never prefer that answer",
                f'Add one, such as ["[[A]]", "{winner}"].',
            )
    marks = [pair[0] for pair in pairs]
    for index, mark in enumerate(marks):
        for other in marks[:index] + marks[index + 1 :]:
            if mark in other or bare_mark(mark) == bare_mark(other):
                raise entry_error(
                    location,
                    f"the mark {mark!r} of verdicts is part of {other!r}, so the two would be confused",
                    "Choose another mark.",
                )
    return tuple((mark, winner) for mark, winner in pairs)


def _parse_scale(table: Mapping[str, Any], location: str) -> dict[str, Any]:
    pattern, low, high = table["rating"], table["low"], table["high"]
    if pattern.count(NUMBER) != 1 or len(pattern) > _MAX_MARK_LENGTH:
        raise entry_error(
            location, f'rating = {pattern[:40]!r} must be a short text with one {NUMBER}, such as "[[{NUMBER}]]"'
        )
    if not 0 <= low < high <= 1000:
        raise entry_error(location, f"low = {low} and high = {high} must be a scale such as 1 to 5 or 1 to 10")
    return {"pattern": pattern, "low": low, "high": high}
