"""A custom rubric, as a TOML file, or as the table [rubric] in the definition of a custom benchmark:

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

A rating has {answer} instead of {a} and {b}, and the text around its number and its scale instead of verdicts:

    rating = "Rating: {rating}"
    low = 1
    high = 5

{question}, {reference} and {document} are optional. A document comes before everything that varies, so that it is
read once for all models, orders and questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lbx.base.tables import check_table, entry_error, is_name
from lbx.benchmarks.base.rubric import NEW_TOKENS, NUMBER, PAIR, RATING, WINNERS, Rubric, bare_mark
from lbx.benchmarks.base.templates import template_fields

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
        reserved_names: reserved names -> their meanings.

    Raises:
        UsageError: the table is invalid; names the key.
    """
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise entry_error(location, f"kind must be {' or '.join(map(repr, _KINDS))}, not {str(kind)[:40]!r}")
    key_types = _KINDS[kind]
    needed = [key for key in key_types if key not in ("system", "max_new_tokens")]
    check_table(table, key_types, f"{location}:", needed)
    _check_name(table["name"], location, reserved_names)
    _check_template(table["user"], kind, location)
    if not 0 < table.get("max_new_tokens", 1) <= _MAX_TOKENS:
        raise entry_error(location, f"max_new_tokens = {table['max_new_tokens']} must be from 1 to {_MAX_TOKENS:,}")
    values: dict[str, Any] = (
        {"verdicts": _parse_verdicts(table["verdicts"], location)} if kind == PAIR else _parse_scale(table, location)
    )
    budget = table.get("max_new_tokens", NEW_TOKENS)
    system, user = table.get("system", ""), table["user"]
    return Rubric(table["name"], kind, system, user, max_new_tokens=budget, source=source, **values)


def _check_name(name: str, location: str, reserved_names: Mapping[str, str]) -> None:
    if not is_name(name):
        raise entry_error(
            location, f"name = {name!r} is not a valid rubric name: use at most 64 letters, digits and _ . -"
        )
    if meaning := reserved_names.get(name):
        raise entry_error(location, f"name = {name!r} is reserved: it means {meaning}")


def _check_template(template: str, kind: str, location: str) -> None:
    braces = "Write literal braces as {{ and }}"
    try:
        names = [name for _, name in template_fields(template) if name is not None]
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
            raise entry_error(location, f"user does not contain {{{name}}}, so the judge would not see that answer")
    if "document" in names and (names.count("document") > 1 or names[0] != "document"):
        raise entry_error(
            location,
            "user must contain {document} only once, before the other fields: the judge then reads a document once, "
            "not once for each question, model and order",
        )


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
            raise entry_error(location, f"verdicts has no mark for {winner}, so a judge could never prefer that answer")
    marks = [pair[0] for pair in pairs]
    for index, mark in enumerate(marks):
        for other in marks[:index] + marks[index + 1 :]:
            if mark in other or bare_mark(mark) == bare_mark(other):
                raise entry_error(
                    location, f"the mark {mark!r} of verdicts is part of {other!r}, so the two would be confused"
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
