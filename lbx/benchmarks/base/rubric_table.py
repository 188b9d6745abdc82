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

from lbx.base.tables import check_table, is_name, wrong
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


def rubric_in(table: Mapping[str, Any], where: str, source: str, taken: Mapping[str, str]) -> Rubric:
    """Parse the rubric in a table.

    Args:
        where: file and table, for messages.
        source: name of the file in results files.
        taken: reserved names -> their meanings.

    Raises:
        UsageError: the table is invalid; names the key.
    """
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise wrong(where, f"kind must be {' or '.join(map(repr, _KINDS))}, not {str(kind)[:40]!r}")
    known = _KINDS[kind]
    needed = [key for key in known if key not in ("system", "max_new_tokens")]
    check_table(table, known, f"{where}:", needed)
    _check_name(table["name"], where, taken)
    _check_user(table["user"], kind, where)
    if not 0 < table.get("max_new_tokens", 1) <= _MAX_TOKENS:
        raise wrong(where, f"max_new_tokens = {table['max_new_tokens']} must be from 1 to {_MAX_TOKENS:,}")
    values: dict[str, Any] = {"verdicts": _verdicts(table["verdicts"], where)} if kind == PAIR else _scale(table, where)
    budget = table.get("max_new_tokens", NEW_TOKENS)
    system, user = table.get("system", ""), table["user"]
    return Rubric(table["name"], kind, system, user, max_new_tokens=budget, source=source, **values)


def _check_name(name: str, where: str, taken: Mapping[str, str]) -> None:
    if not is_name(name):
        raise wrong(where, f"name = {name!r} is not a valid rubric name: use at most 64 letters, digits and _ . -")
    if meaning := taken.get(name):
        raise wrong(where, f"name = {name!r} is reserved: it means {meaning}")


def _check_user(template: str, kind: str, where: str) -> None:
    braces = "Write literal braces as {{ and }}"
    try:
        names = [name for _, name in template_fields(template) if name is not None]
    except ValueError as exc:
        raise wrong(where, f"cannot fill in user: {exc}. {braces}") from exc
    answer_fields = _ANSWER_FIELDS[kind]
    for name in names:
        if name not in (*answer_fields, *_OPTIONAL_FIELDS):
            known = ", ".join(f"{{{field}}}" for field in (*answer_fields, *_OPTIONAL_FIELDS))
            raise wrong(where, f"user contains {{{name}}}, but kind = {kind!r} has only {known}. {braces}")
    for name in answer_fields:
        if name not in names:
            raise wrong(where, f"user does not contain {{{name}}}, so the judge would not see that answer")
    if "document" in names and (names.count("document") > 1 or names[0] != "document"):
        raise wrong(
            where,
            "user must contain {document} only once, before the other fields: the judge then reads a document once, "
            "not once for each question, model and order",
        )


def _verdicts(entries: Sequence[Any], where: str) -> tuple[tuple[str, str], ...]:
    pairs = [tuple(entry) if isinstance(entry, list) else () for entry in entries]
    for pair in pairs:
        if len(pair) != 2 or not all(isinstance(text, str) for text in pair) or pair[1] not in WINNERS:
            raise wrong(where, 'verdicts must be pairs such as ["[[A]]", "first"]: a mark, then first, second or tie')
        if not pair[0].strip() or len(pair[0]) > _MAX_MARK_LENGTH:
            raise wrong(
                where, f"the mark {pair[0][:40]!r} of verdicts must be text of 1 to {_MAX_MARK_LENGTH} characters"
            )
    for winner in WINNERS[:2]:
        if winner not in [pair[1] for pair in pairs]:
            raise wrong(where, f"verdicts has no mark for {winner}, so a judge could never prefer that answer")
    marks = [pair[0] for pair in pairs]
    for place, mark in enumerate(marks):
        for other in marks[:place] + marks[place + 1 :]:
            if mark in other or bare_mark(mark) == bare_mark(other):
                raise wrong(where, f"the mark {mark!r} of verdicts is part of {other!r}, so the two would be confused")
    return tuple((mark, winner) for mark, winner in pairs)


def _scale(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    pattern, low, high = table["rating"], table["low"], table["high"]
    if pattern.count(NUMBER) != 1 or len(pattern) > _MAX_MARK_LENGTH:
        raise wrong(where, f'rating = {pattern[:40]!r} must be a short text with one {NUMBER}, such as "[[{NUMBER}]]"')
    if not 0 <= low < high <= 1000:
        raise wrong(where, f"low = {low} and high = {high} must be a scale such as 1 to 5 or 1 to 10")
    return {"pattern": pattern, "low": low, "high": high}
