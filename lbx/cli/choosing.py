"""``--limit``, ``--documents``, ``--sample`` and ``--ids``: from the command line to a selection of samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lbx.errors import UsageError

if TYPE_CHECKING:
    from lbx.engine.selection import Choice, Selection
    from lbx.layout import Bundle
    from lbx.records import Task


def choice_of(
    limit: int | None, documents: int | None, sample: int | None, seed: int, ids: Sequence[str] | None
) -> Choice:
    """What the options say.

    Raises:
        UsageError: they exclude each other, or a file of ids cannot be read or is empty.
    """
    from lbx.engine.selection import Choice

    names = tuple(name for text in ids or () for name in _names(text))
    if ids and not names:
        raise UsageError("--ids names no sample.", fix="Give names, or @FILE with a name a line.")
    return Choice(limit, documents, sample, seed, names)


def choose_samples(bundle: Bundle, tasks: Sequence[Task], choice: Choice) -> Selection:
    """What they mean in the bundle.

    Raises:
        UsageError: a sample does not exist.
        BundleError: a data file is damaged.
    """
    from lbx.benchmarks import BENCHMARKS
    from lbx.engine.selection import select_samples

    return select_samples(choice, bundle, tasks, BENCHMARKS)


def _names(text: str) -> Iterator[str]:
    """The names in one --ids: between commas, or a line each of a file."""
    parts = _lines(Path(text[1:])) if text.startswith("@") else text.split(",")
    return (name for part in parts if (name := part.strip()))


def _lines(path: Path) -> list[str]:
    try:
        lines = path.expanduser().read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise UsageError(
            f"--ids @{path} cannot be read: {reason}.", fix="It takes a text file, a name a line."
        ) from exc
    if not any(line.strip() for line in lines):
        raise UsageError(f"--ids @{path} names no sample: the file is empty.", fix="It takes a name a line.")
    return lines
