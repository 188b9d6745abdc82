"""Options as dataclass fields. An annotation declares the option's type, help text, names and checks.

Modules with such fields omit ``from __future__ import annotations``: as strings, the annotations would have to be
compiled at each start.
"""

from __future__ import annotations

import functools
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple, Self, Union, get_args, get_origin

from lbx.base.errors import UsageError
from lbx.base.limits import LIST_ITEMS, SET_CONTEXT_TOKENS, TEXT_CHARACTERS, WHOLE_NUMBER

_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates, except those that Python uses for undecodable bytes of file names (``surrogateescape``)."""
_LONGEST_VALUE = 40
UNLIMITED = -math.inf
"""Value of ``Option.minimum`` for numbers of any sign."""


@dataclass(frozen=True, slots=True)
class Option:
    """Metadata of an option, in the annotation of a field.

    Example: ``Annotated[int, process_option("Worker processes.", "N")] = 0``. The option has the field's type and
    default; the field's name is also the key in JSON.

    Attributes:
        help: a sentence or two in ``--help``, or "" in definitions that each command completes by ``with_help``.
        metavar: placeholder of the value in the help, or None for a switch.
        names: names on the command line; by default derived from the field's name.
        panel: panel of ``--help`` that contains the option, or "" for the common one.
        path: whether a text is the path of a file or folder, for shell completion.
        name_files: whether texts are names separated by commas, or @FILE with one on each line.
        completion: function of ``lbx.cli.shell_completion`` with the values that a shell offers, or a function of the
            beginning of a value.
        variable: environment variable with the default.
        minimum: smallest number; by default 0 for whole numbers, and 1 if they may be None, which replaces 0.
        maximum: largest number, or maximum number of texts in a list. With ``minimum``, the help shows the range.
        choices: texts that are allowed.
        judges: True: ``lbx judge`` also accepts it; False: a judge's spec rejects it; None: neither.
        lengthens: whether it affects the length of answers.
        label: label of a non-default value in the views' column ``mode``, followed by the number or text.
    """

    help: str
    metavar: str | None = None
    names: tuple[str, ...] = ()
    panel: str = ""
    path: bool = False
    name_files: bool = False
    completion: str | Callable[[str], list[str]] = ""
    variable: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    judges: bool | None = None
    lengthens: bool = False
    label: str = ""

    def with_help(self, text: str, **changes: Any) -> Self:
        """Return the option of a command that uses it for its own purpose, perhaps with other attributes."""
        return replace(self, help=text, **changes)


class Argument(Option):
    """Positional argument of a command."""

    __slots__ = ()


class CardOption(Option):
    """Option that is a key of the table ``[options]`` in a model card. Messages call it by the field's name."""

    __slots__ = ()


question_option, sample_option, model_option, retrieval_option, process_option, shard_option, output_option = (
    functools.partial(Option, panel=panel)
    for panel in (
        "What to ask", "Which samples", "The model", "Retrieval and embeddings", "How it runs", "One shard of many",
        "Output",
    )
)  # fmt: skip
page_option = functools.partial(Option, panel="The page")


class OptionField(NamedTuple):
    """Field of a class of options: name, type, default (``MISSING`` if required) and option (None for other fields)."""

    name: str
    value_type: Any
    default: Any
    option: Option | None

    @property
    def option_name(self) -> str:
        """Name of the option in messages: the first of the command-line names, or the key of a card."""
        if isinstance(self.option, CardOption):
            return self.name
        if self.option and self.option.names:
            return self.option.names[0].partition("/")[0]
        return f"--{self.name.replace('_', '-')}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names on the command line, including ``--no-NAME`` for switches that are not off by default."""
        if self.option and self.option.names:
            return self.option.names
        return (
            f"{self.option_name}/--no-{self.option_name[2:]}"
            if self.is_switch and self.default is not False
            else self.option_name,
        )

    @property
    def is_switch(self) -> bool:
        return bool in (self.value_type, *get_args(self.value_type))

    @property
    def minimum(self) -> float | None:
        """Smallest number that the option accepts, or None without a limit and for other types."""
        if self.option and self.option.minimum is not None:
            return None if self.option.minimum == UNLIMITED else self.option.minimum
        return 0 if self.value_type is int else 1 if int in get_args(self.value_type) else None

    def check(self, value: object) -> None:
        """Raise UsageError if the option does not accept ``value``."""
        if not _fits(value, self.value_type):
            raise UsageError(f"{self.option_name} must be {_type_name(self.value_type)}, not {value!r}.")
        if isinstance(value, int | float) and not isinstance(value, bool):
            self._check_number(value)
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
            if self.option and self.option.choices and text not in self.option.choices:
                choices = ", ".join(choice or repr("") for choice in self.option.choices)
                raise UsageError(f"{self.option_name} must be {choices}, not {text!r}.")

    def _check_number(self, value: float) -> None:
        if self.minimum is not None and not value >= self.minimum:  # NaN is not, either
            raise UsageError(f"{self.option_name} must be at least {self.minimum}, not {value}.")
        default = SET_CONTEXT_TOKENS if isinstance(self.option, CardOption) else WHOLE_NUMBER
        if value > (most := self._maximum(math.inf if self.value_type is float else default)):
            raise UsageError(f"{self.option_name} must be at most {most:,}, not {f'{value:,}'[:_LONGEST_VALUE]}.")

    def _maximum(self, default: float) -> float:
        return default if self.option is None or self.option.maximum is None else self.option.maximum


def fields_of(options: type) -> Mapping[str, OptionField]:
    """Return {name: field} of a class of options, in the order of ``--help``."""
    return {field.name: _field(field.name, field.type, field.default) for field in fields(options) if field.init}


def option_of(options: type, name: str) -> Option:
    """Return the option of a field, to declare the same option in another class."""
    option = fields_of(options)[name].option
    assert option is not None
    return option


def changed_options(options: object) -> list[str]:
    """Return the names of an instance's options with other values than the defaults."""
    return [
        field.option_name
        for name, field in fields_of(type(options)).items()
        if field.option and getattr(options, name) != field.default
    ]


def _field(name: str, annotation: Any, default: object) -> OptionField:
    option = next((entry for entry in getattr(annotation, "__metadata__", ()) if isinstance(entry, Option)), None)
    return OptionField(name, annotation.__origin__ if option else annotation, default, option)


def _fits(value: object, kind: Any) -> bool:
    if get_origin(kind) in (Union, types.UnionType):
        return any(_fits(value, member) for member in get_args(kind))
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(isinstance(text, str) for text in value)
    if kind is str or get_origin(kind) is Literal:  # callers check the words of a Literal
        return isinstance(value, str)
    if kind is float:
        return type(value) in (int, float)
    return type(value) is (get_origin(kind) or kind)


def _type_name(kind: Any) -> str:
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_type_name(member) for member in get_args(kind) if member is not type(None))
    names = {int: "a whole number", float: "a number", bool: "true or false", dict: "a table", tuple: "a list of texts"}
    return names.get(get_origin(kind) or kind, "text")


def parse_key_values(option: str, texts: Sequence[str], example: str = "PE=no") -> dict[str, str]:
    """Parse KEY=VALUE texts into {KEY: VALUE}, stripping white space around keys and values.

    Args:
        option: name of the option, for the error message.
        example: a right text, for the error message.

    Raises:
        UsageError: a text lacks the key or the "=".
    """
    pairs = [(text, *map(str.strip, text.partition("=")[::2])) for text in texts]
    for text, key, _ in pairs:
        if not key or "=" not in text:
            raise UsageError(f"{option} must be KEY=VALUE, not {text!r}.", fix=f"For example: {example}.")
    return {key: value for _, key, value in pairs}
