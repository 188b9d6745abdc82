"""The options that say what a run is, declared once: ``lbx run``, ``lbx plan`` and ``lbx submit`` take the same."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from lbx.base.errors import UsageError
from lbx.base.inputs import SMALL, read_handed
from lbx.base.paths import expanded
from lbx.cli import options as shown

if TYPE_CHECKING:
    from lbx.running.spec import RunSpec

SpecFile = Annotated[
    Path | None,
    typer.Option(
        "--spec",
        metavar="FILE",
        rich_help_panel="What to ask",
        help="A run as a file: what `lbx submit` wrote, or a results file whose run is to be made again (--run names "
        "it). Other options change it.",
    ),
]
_REQUIRED = {"bundle": "--bundle / -b", "model": "--model / -m", "tasks": "--tasks / -t"}


def _optional(option: Any) -> Any:
    """A required option, for commands that may find its value in a file."""
    kind, *told = get_args(option)
    return Annotated[kind | None, *told]


_OPTIONS: dict[str, tuple[Any, object]] = {
    "bundle": (_optional(shown.BundleDir), None),
    "model": (_optional(shown.Model), None),
    "tasks": (_optional(shown.Tasks), None),
    "backend": (shown.BackendName, None),
    "name": (shown.RunName, None),
    "limit": (shown.Limit, None),
    "documents": (shown.Documents, None),
    "sample": (shown.DrawSamples, None),
    "ids": (shown.Ids, None),
    "iterations": (shown.Iterations, None),
    "max_prompt_tokens": (shown.MaxPromptTokens, None),
    "max_new_tokens": (shown.MaxNewTokens, None),
    "sampling": (shown.Sampling, shown.SamplingSource.OFFICIAL),
    "seed": (shown.Seed, 0),
    "chat": (shown.Chat, True),
    "thinking": (shown.Thinking, None),
    "thinking_tokens": (shown.ThinkingTokens, None),
    "reasoning_effort": (shown.ReasoningEffort, None),
    "both_kinds": (shown.BothKinds, False),
    "cot": (shown.Cot, False),
    "no_context": (shown.NoContext, False),
    "length_hint": (shown.LengthHint, True),
    "rag": (shown.Rag, 0),
    "summaries": (shown.Summaries, 0),
    "retriever": (shown.Retriever, "bm25"),
    "chunk_words": (shown.ChunkWords, None),
    "chunk_tokens": (shown.ChunkTokens, None),
    "embedding": (shown.Embedding, None),
    "batching": (shown.Batching, True),
    "workers": (shown.ModelWorkers, 0),
    "threads": (shown.Threads, None),
    "hash_weights": (shown.HashWeights, False),
    "metadata": (shown.Metadata, None),
    "spec_file": (SpecFile, None),
}
"""{field of ``RunSpec``: (how the command line shows it, its default)}, in the order of the help; and --spec."""

_OF_JUDGES: dict[str, tuple[Any, object]] = {
    "bundle": (shown.BundleDir, inspect.Parameter.empty),
    "model": (shown.JudgeModel, inspect.Parameter.empty),
    "runs": (shown.JudgedRuns, None),
    "against": (shown.Against, None),
    "questions": (shown.Questions, None),
    "rubric": (shown.RubricFile, "leval"),
    "orders": (shown.Orders, shown.OrdersOfPairs.BOTH),
    "tasks": (shown.JudgedTasks, None),
    "name": (shown.JudgeName, None),
} | {
    name: _OPTIONS[name]
    for name in (
        "backend", "limit", "max_new_tokens", "sampling", "seed", "chat", "thinking", "thinking_tokens",
        "reasoning_effort", "batching", "workers", "threads", "hash_weights", "metadata",
    )
}  # fmt: skip
"""The same of ``JudgeSpec``."""


def takes_spec(command: Callable[..., None]) -> Callable[..., None]:
    """The command with these options in place of its parameter ``spec``."""
    return _taking(command, _OPTIONS, _spec_of)


def takes_judge(command: Callable[..., None]) -> Callable[..., None]:
    """The command with a judge's options in place of its parameter ``spec``, which is what was said of them."""
    return _taking(command, _OF_JUDGES, _said)


def _taking(
    command: Callable[..., None],
    options: Mapping[str, tuple[Any, object]],
    make: Callable[[Mapping[str, Any], typer.Context], object],
) -> Callable[..., None]:
    @functools.wraps(command)
    def called(context: typer.Context, **values: Any) -> None:
        given = {name: values.pop(name) for name in options}
        if takes_file:
            values["spec_file"] = given["spec_file"]
        command(spec=make(given, context), **values)

    takes_file = "spec_file" in inspect.signature(command).parameters
    hints = get_type_hints(command, localns={"RunSpec": object}, include_extras=True)  # which is not imported for this
    own = [
        parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
        if name not in ("spec", "spec_file")
    ]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *added, *own]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _spec_of(given: Mapping[str, Any], context: typer.Context) -> RunSpec:
    from lbx.running.spec import RunSpec

    values = _said(given, context)
    values.pop("spec_file", None)
    if (file := given["spec_file"]) is not None:
        return dataclasses.replace(_read(file, values.get("name")), **values)
    for name, spelled in _REQUIRED.items():
        if name not in values:
            raise UsageError(f"Missing option {spelled}.", fix="A run needs a bundle, a model and tasks, or --spec.")
    return RunSpec(**values)


def _said(given: Mapping[str, Any], context: typer.Context) -> dict[str, Any]:
    """What was given on the command line."""
    said = {name for name in given if str(getattr(context.get_parameter_source(name), "name", "")) != "DEFAULT"}
    return {name: _plain(name, given[name]) for name in said}


def _plain(name: str, value: Any) -> Any:
    if name == "ids":
        return names_of_samples(value)
    if isinstance(value, Enum):
        return value.value
    return tuple(value) if isinstance(value, list) else value


def _read(file: Path, run: str | None) -> RunSpec:
    """A spec from its own file, or that of a results file's run."""
    from lbx.running.judge_spec import read_spec, spec_of
    from lbx.store import is_results_file
    from lbx.store.sessions import newest_spec

    if not is_results_file(file):
        return read_spec(file)
    return spec_of(newest_spec(file, run), str(file))


def names_of_samples(given: Sequence[str] | None) -> tuple[str, ...]:
    """What --ids names.

    Raises:
        UsageError: nothing, or a file of names cannot be read.
    """
    names = tuple(name for text in given or () for name in _names(text))
    if given and not names:
        raise UsageError("--ids names no sample.", fix="Give names, or @FILE with one name on each line.")
    return names


def _names(text: str) -> Iterator[str]:
    """The names in one --ids: between commas, or a line each of a file."""
    parts = _lines(Path(text[1:])) if text.startswith("@") else text.split(",")
    return (name for part in parts if (name := part.strip()))


def _lines(path: Path) -> list[str]:
    try:
        lines = read_handed(expanded(path), SMALL).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise UsageError(
            f"--ids @{path} cannot be read: {reason}.", fix="It takes a text file with one name on each line."
        ) from exc
    if not any(line.strip() for line in lines):
        raise UsageError(f"--ids @{path} names no sample: the file is empty.", fix="Write one name on each line.")
    return lines
