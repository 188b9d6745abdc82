"""One row of the table for each family, each looked at in a process of its own kind, which may die."""

from __future__ import annotations

import multiprocessing
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.tiny_families import twin
from tests.tiny_families.answers import Found, Said, look
from tests.tiny_families.configs import FAMILIES
from tests.tiny_families.making import make
from tests.tiny_families.twin import Twin


@dataclass
class Row:
    """What was found out.

    Attributes:
        problem: why there is no model to look at; None: there is.
        twin: how llama.cpp's logits compare; ``untwinned``: why they cannot be.
    """

    name: str
    found: Found = field(default_factory=Found)
    problem: str | None = None
    twin: Twin | None = None
    untwinned: str | None = None


class Apart:
    """Calls functions in another process, made anew where it died: llama.cpp ends it where it meets what it cannot."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Raises RuntimeError with what the function raised, or where the process died."""
        context = multiprocessing.get_context("spawn")
        self._pool = self._pool or ProcessPoolExecutor(1, mp_context=context, initializer=_quiet)
        try:
            value, reason = self._pool.submit(_tried, function, *arguments).result()
        except BrokenProcessPool:
            self._pool = None
            raise RuntimeError("it ends the process (an assertion of its own)") from None
        if reason is not None:
            raise RuntimeError(reason)
        return value

    def close(self) -> None:
        if self._pool:
            self._pool.shutdown()


def _tried(function: Callable[..., Any], *arguments: Any) -> tuple[Any, str | None]:
    """What it returns, or why it raised: not every exception can be carried from one process to another."""
    try:
        return function(*arguments), None
    except Exception as exc:  # whatever transformers raises is what the table says of it
        return None, _said(exc)


def _quiet() -> None:
    import torch
    import transformers

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def rows(names: Sequence[str], *, twins: bool) -> Iterator[Row]:
    """Looks at each family in turn.

    Args:
        twins: hold it against llama.cpp, too.
    """
    with tempfile.TemporaryDirectory(prefix="lbx-architectures-") as temporary:
        apart = Apart()
        try:
            folders = {name: Path(temporary) / f"m{number:02}" for number, name in enumerate(names)}
            made = {name: Row(name, problem=_reason(apart, make_one, name, folders[name])) for name in names}
            there = [folders[name] for name in names if not made[name].problem]
            refused = twin.convert(there) if twins and there else {}
            for name, row in made.items():
                if not row.problem:
                    _look(apart, row, folders[name])
                    _hold(apart, row, folders[name], refused)
                yield row
        finally:
            apart.close()


def make_one(name: str, folder: Path) -> None:
    from tests.backends.tiny import make_tokenizer

    make(FAMILIES[name], folder, make_tokenizer())


def _reason(apart: Apart, function: Callable[..., Any], *arguments: Any) -> str | None:
    try:
        apart(function, *arguments)
    except RuntimeError as exc:
        return str(exc)
    return None


def _look(apart: Apart, row: Row, folder: Path) -> None:
    try:
        row.found = apart(look, folder)
    except RuntimeError as exc:
        row.found = Found(refused=str(exc).replace(f"{folder.name}-hf", "the model"))


def _hold(apart: Apart, row: Row, folder: Path, refused: dict[Path, str | None]) -> None:
    if folder not in refused:
        return
    if refused[folder]:
        row.untwinned = f"converter: {refused[folder]}"
        return
    if row.found.refused:
        row.untwinned = "not compared"
        return
    try:
        row.twin = apart(twin.compare, folder)
    except RuntimeError as exc:
        said = re.sub(r"^llama.cpp cannot load .*?(error loading model: )+", "", str(exc))
        row.untwinned = "llama.cpp: " + said.partition("; llama_model_load")[0]


def _said(exc: BaseException) -> str:
    """The first line of what an exception says, without what lbx advises; the next one, too, where it leads to that."""
    lines = [line.strip() for line in str(getattr(exc, "cause", None) or exc).splitlines() if line.strip()]
    return " ".join(lines[: 1 + lines[0].endswith(":")]) if lines else type(exc).__name__


def all_said(row: Row) -> list[Said]:
    return [*row.found.cold, *row.found.after, *row.found.among]
