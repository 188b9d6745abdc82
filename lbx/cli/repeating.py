"""The command that was given, to be repeated with another results file."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from lbx.base.commands import as_command

_OPTIONS = ("-o", "--output")


def with_other_output(words: Sequence[str]) -> str:
    """The command line with an output that does not exist yet.

    Args:
        words: the program's name and its arguments.
    """
    arguments = list(words[1:])
    for at, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name == "--output" and equals:
            arguments[at] = f"{name}={_unused(value)}"
            break
        if word in _OPTIONS and at + 1 < len(arguments):
            arguments[at + 1] = _unused(arguments[at + 1])
            break
    else:
        arguments += ["-o", "FILE"]
    return as_command("lbx", *arguments)


def _unused(name: str) -> str:
    """The name of a new file in the same folder: the given one with a number."""
    path = Path(name)
    names = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2))
    return str(next(one for one in names if not one.exists()))
