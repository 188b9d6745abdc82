"""Options as fields: their annotations are the command line, its help, the names in JSON and the checks of values.

Modules with such fields omit ``from __future__ import annotations``: as strings, the annotations would have to be
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from lbx.base.errors import UsageError
from lbx.base.limits import LIST_ITEMS, TEXT_CHARACTERS, WHOLE_NUMBER

_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates, except those that Python uses for undecodable bytes of file names (``surrogateescape``)."""


@dataclass(frozen=True, slots=True)
class Option:
    """Command-line metadata in a field's annotation.

    Example: ``Annotated[int, Option("How it runs", "Worker processes.", "N")] = 0``.

    Attributes:
        panel: panel of ``--help`` that contains the option.
        metavar: placeholder of the value in the help; None for a switch.
        names: names on the command line; by default derived from the field's name.
        path: whether the value is the path of a file or folder, for shell completion.
        judges: True: ``lbx judge`` also accepts it; False: a judge's spec rejects it; None: neither.
        lengthens: whether it affects the length of answers.
        most: maximum of a number, or maximum number of texts in a list.
        label: label of a non-default value in the views' column ``mode``, followed by the number or text.
    """

    panel: str
    help: str
    metavar: str | None = None
    names: tuple[str, ...] = ()
    path: bool = False
    judges: bool | None = None
    lengthens: bool = False
    most: int | None = None
    label: str = ""


class SpecField(NamedTuple):
    """A field of a spec, with its type, default (``MISSING`` if required) and option (None without one)."""

    name: str
    kind: Any
    default: Any
    option: Option | None

    @property
    def option_name(self) -> str:
        """Name in messages: the first of the command-line names."""
        if self.option and self.option.names:
            return self.option.names[0].partition("/")[0]
        return f"--{self.name.replace('_', '-')}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names on the command line, including a ``--no-`` form for switches that are not off by default."""
        if self.option and self.option.names:
            return self.option.names
        return (
            f"{self.option_name}/--no-{self.option_name[2:]}"
            if self.is_switch and self.default is not False
            else self.option_name,
        )

    @property
    def is_switch(self) -> bool:
        return bool in (self.kind, *get_args(self.kind))

    @property
    def minimum(self) -> int | None:
        """Smallest value; None for other types. It is 1 for optional numbers, which use None instead of 0."""
        return 0 if self.kind is int else 1 if int in get_args(self.kind) else None

    def check(self, value: object) -> None:
        """Raise UsageError if the field cannot have this value."""
        if not _fits(value, self.kind):
            raise UsageError(f"{self.option_name} must be {_type_name(self.kind)}, not {value!r}.")
        if self.minimum is not None and isinstance(value, int):
            if value < self.minimum:
                raise UsageError(f"{self.option_name} must be at least {self.minimum}, not {value}.")
            if value > (most := self._maximum(WHOLE_NUMBER)):
                raise UsageError(f"{self.option_name} must be at most {most:,}, not {value:,}.")
        texts = value if isinstance(value, tuple) else (value,) if isinstance(value, str) else ()
        if len(texts) > (most := self._maximum(LIST_ITEMS)):
            raise UsageError(f"{self.option_name} accepts at most {most:,} names, not {len(texts):,}.")
        for text in texts:
            if len(text) > TEXT_CHARACTERS:
                raise UsageError(
                    f"{self.option_name} contains a text of {len(text):,} characters; the limit is {TEXT_CHARACTERS:,}."
                )
            if _HALF.search(text):
                raise UsageError(
                    f"{self.option_name} contains an incomplete character: {text!r}.", fix="Type it again."
                )

    def _maximum(self, default: int) -> int:
        return default if self.option is None or self.option.most is None else self.option.most


def fields_of(spec: type) -> Mapping[str, SpecField]:
    """Return {name: field} of a spec class, in the order of its help."""
    return {field.name: _field(field.name, field.type, field.default) for field in fields(spec)}


def _field(name: str, kind: Any, default: object) -> SpecField:
    option = next((entry for entry in getattr(kind, "__metadata__", ()) if isinstance(entry, Option)), None)
    return SpecField(name, kind.__origin__ if option else kind, default, option)


def _fits(value: object, kind: Any) -> bool:
    if get_origin(kind) in (Union, types.UnionType):
        return any(_fits(value, member) for member in get_args(kind))
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(isinstance(text, str) for text in value)
    if kind is str or get_origin(kind) is Literal:  # callers check the words of a Literal
        return isinstance(value, str)
    return type(value) is kind


def _type_name(kind: Any) -> str:
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_type_name(member) for member in get_args(kind) if member is not type(None))
    return {int: "a whole number", bool: "true or false", tuple: "a list of texts"}.get(
        get_origin(kind) or kind, "text"
    )


def key_values(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Parse texts of the form KEY=VALUE into {KEY: VALUE}, stripping white space around both.

    Args:
        option: name of the option, for the error message.

    Raises:
        UsageError: a text has no key or no "=".
    """
    pairs = [(text, *map(str.strip, text.partition("=")[::2])) for text in texts]
    for text, key, _ in pairs:
        if not key or "=" not in text:
            raise UsageError(f"{option} must be KEY=VALUE, not {text!r}.", fix="For example: PE=no.")
    return {key: value for _, key, value in pairs}
