"""What is asked of which model and how, as one value: checked when it is made, and the same in a JSON file."""

from __future__ import annotations

import json
import os
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

from lbx.backends.weights import CARDS
from lbx.base.errors import UsageError
from lbx.base.inputs import read_input
from lbx.base.outputs import answer_file
from lbx.base.paths import expanded
from lbx.base.records import key_values
from lbx.planning.retrieving import Retrieval
from lbx.planning.selection import SampleChoice
from lbx.planning.settings import RunSettings
from lbx.retrieval import BM25

FORMAT = 1
_MARK = "lbx_run"
JUDGE_MARK = "lbx_judge"
_MOST_BYTES = 1 << 26
"""A spec may name every sample of a bundle."""
_FIX = "Give the run.json that `lbx submit` wrote, or a results file whose run is to be made again."
_FOUND_OUT = ("model_sampling", "stop", "retriever", "summarizer")
_SETTINGS = tuple(field.name for field in fields(RunSettings) if field.name not in _FOUND_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """A run. Every field is the option of ``lbx run`` that has its name.

    Attributes:
        bundle: the folder of an unpacked bundle.
        model: a model card or its name, a .gguf file, or a model folder.
        tasks: benchmarks, tasks or patterns of them; a text may name several between commas.
        backend: "llamacpp", "hf" or "scripted", where the model leaves a choice.
        name: of the run in the results file; None makes one from model and settings.
        limit, documents, sample, ids: which samples; see ``SampleChoice``.
        iterations, max_prompt_tokens, max_new_tokens, sampling, seed, chat, thinking, thinking_tokens,
            reasoning_effort, cot, no_context, length_hint, rag, summaries, batching: how they are asked; see
            ``RunSettings``.
        retriever, chunk_words, chunk_tokens: what finds the chunks of ``rag``; see ``Retrieval``.
        embedding: card of the embedding model for LongBench Pro's summaries.
        both_kinds: ask with reasoning and without, as two runs that read each document once.
        workers: processes that hold the model; 0 loads it in this one.
        threads: CPU threads of each process that holds a model; None means every core.
        hash_weights: tell the model from others by every byte of its weights.
        metadata: texts KEY=VALUE to be kept beside the run; they are no part of what it is.

    Raises:
        UsageError: a value is of the wrong type, out of range, or excludes another one.
    """

    bundle: str
    model: str
    tasks: tuple[str, ...]
    backend: str | None = None
    name: str | None = None
    limit: int | None = None
    documents: int | None = None
    sample: int | None = None
    ids: tuple[str, ...] = ()
    iterations: int | None = None
    max_prompt_tokens: int | None = None
    max_new_tokens: int | None = None
    sampling: str = "official"
    seed: int = 0
    chat: bool = True
    thinking: bool | None = None
    thinking_tokens: int | None = None
    reasoning_effort: str | None = None
    cot: bool = False
    no_context: bool = False
    length_hint: bool = True
    rag: int = 0
    summaries: int = 0
    retriever: str = BM25
    chunk_words: int | None = None
    chunk_tokens: int | None = None
    embedding: str | None = None
    batching: bool = True
    both_kinds: bool = False
    workers: int = 0
    threads: int | None = None
    hash_weights: bool = False
    metadata: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("bundle", "model"):
            if isinstance(value := getattr(self, name), os.PathLike):
                object.__setattr__(self, name, os.fspath(value))
        object.__setattr__(self, "tasks", _tuple(self.tasks, between=","))
        for name in ("ids", "metadata"):
            object.__setattr__(self, name, _tuple(getattr(self, name)))
        hints = get_type_hints(type(self))
        for field in fields(self):
            _check(field.name, getattr(self, field.name), hints[field.name])
        if not self.tasks:
            raise UsageError("A run needs tasks.", fix="Name benchmarks or tasks; `lbx tasks` lists what a bundle has.")
        key_values("--metadata", self.metadata)
        self.retrieval.check()
        _ = self.choice, self.kinds  # each is checked as it is made

    @property
    def settings(self) -> RunSettings:
        """How samples are asked; the retriever's name and the model's own sampling are not known yet."""
        return RunSettings(**{name: getattr(self, name) for name in _SETTINGS})

    @property
    def kinds(self) -> list[tuple[str | None, RunSettings]]:
        """Name and settings of each of the runs that are made together."""
        if not self.both_kinds:
            return [(self.name, self.settings)]
        if self.thinking is not None:
            raise UsageError("--both-kinds asks with reasoning and without; --thinking and --no-thinking choose one.")
        if self.summaries:
            raise UsageError(
                "--both-kinds does not go together with --summaries.",
                fix="Ask with --thinking, then with --no-thinking: both read the same summaries.",
            )
        names = (f"{self.name}-{kind}" if self.name else None for kind in ("thinking", "nonthinking"))
        without = replace(self.settings, thinking=False, thinking_tokens=None, reasoning_effort=None)
        settings = (replace(self, both_kinds=False, thinking=True).settings, without)
        return list(zip(names, settings, strict=True))

    @property
    def choice(self) -> SampleChoice:
        """Which samples of the tasks."""
        return SampleChoice(self.limit, self.documents, self.sample, self.seed, self.ids)

    def carried(self, folder: Path, seen_as: str) -> RunSpec:
        """The spec for shards: what it reads beside bundle and model is copied into their folder.

        Args:
            seen_as: the folder's path on their machines.
        """
        return self

    def settled(self) -> Self:
        """The same with full paths, for a process in another folder that sees the same files."""
        embedding = None if self.embedding is None else full_path(self.embedding)
        retriever = full_path(self.retriever) if self.retrieval.embeds else self.retriever
        return replace(
            self, bundle=str(Path(self.bundle).absolute()), model=full_path(self.model), retriever=retriever,
            embedding=embedding,
        )  # fmt: skip

    @property
    def retrieval(self) -> Retrieval:
        """How chunks are found."""
        return Retrieval(self.rag, self.retriever, self.chunk_words, self.chunk_tokens, self.threads)

    def to_json(self) -> dict[str, Any]:
        """What differs from the defaults."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {field.name: field.default for field in fields(self)}
        return {_MARK: FORMAT, **{name: value for name, value in given.items() if value != plain[name]}}

    def write(self, path: Path) -> None:
        """Into a file of its own, which ``read`` reads."""
        text = json.dumps(self.to_json(), ensure_ascii=False, indent=1)
        with answer_file(path) as file:
            file.write(f"{text}\n".encode())

    @classmethod
    def from_json(cls, values: object, source: str) -> RunSpec:
        """From what ``to_json`` gave.

        Args:
            source: where they come from, for messages.

        Raises:
            UsageError: they are no spec, or one of a newer lbx.
        """
        if not isinstance(values, Mapping) or _MARK not in values:
            raise UsageError(f"{source} is not the spec of a run: it has no {_MARK!r}.", fix=_FIX)
        if values[_MARK] != FORMAT:
            raise UsageError(f"{source} is of a newer lbx: its {_MARK!r} is not {FORMAT}.", fix="Update lbx.")
        if JUDGE_MARK in values and cls is RunSpec:
            raise UsageError(
                f"{source} is the spec of a judge, not of a run.", fix="lbx.running.judge_spec reads both."
            )
        given = {name: value for name, value in values.items() if name not in (_MARK, JUDGE_MARK)}
        known = {field.name for field in fields(cls)}
        if unknown := sorted(map(str, given.keys() - known)):
            raise UsageError(
                f"{source} has a key that lbx does not know: {unknown[0]}.", fix="Remove it, or update lbx."
            )
        needed = (field.name for field in fields(cls) if field.default is MISSING)
        if missing := [name for name in needed if name not in given]:
            raise UsageError(f"{source} does not say the run's {' and '.join(missing)}.")
        return cls(**given)

    @classmethod
    def read(cls, path: Path) -> RunSpec:
        """From a JSON file.

        Raises:
            UsageError: it cannot be read, or is no spec.
        """
        return cls.from_json(read_values(path), str(path))


def full_path(model: str) -> str:
    """Where the card, file or folder lies that ``resolve_model`` takes a name for; the name itself, where none does."""
    path, card = expanded(Path(model)), CARDS / f"{model}.toml"
    found = card if "/" not in model and card.is_file() and path.suffix != ".toml" else path
    return str(found.absolute()) if found.exists() else model


def read_values(path: Path) -> object:
    """What a spec's file says. Raises UsageError: it cannot be read, or is no JSON."""
    try:
        return json.loads(read_input(path, _MOST_BYTES))
    except OSError as exc:
        raise UsageError(f"The spec {path} cannot be read: {exc.strerror or exc}.", fix=_FIX) from exc
    except (ValueError, RecursionError) as exc:
        raise UsageError(f"The spec {path} is not JSON: {exc}.", fix=_FIX) from exc


def _tuple(given: object, between: str | None = None) -> object:
    """One text or several as a tuple; what is neither is left to the check."""
    texts = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list) else given
    if between is None or not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts):
        return texts
    return tuple(name for text in texts for part in text.split(between) if (name := part.strip()))


def _check(name: str, value: object, hint: Any) -> None:
    if _fits(value, hint):
        least = 1 if get_args(hint) else 0  # None, not 0, is what an optional number is without
        if isinstance(value, int) and value < least and not isinstance(value, bool):
            raise UsageError(f"{_option(name)} must be at least {least}, not {value}.")
        return
    raise UsageError(f"{_option(name)} cannot be {value!r}: it takes {_described(hint)}.")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _fits(value: object, hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(isinstance(one, str) for one in value)
    return type(value) is hint or (hint is str and isinstance(value, str))


def _described(hint: Any) -> str:
    kinds = [one for one in get_args(hint) or (hint,) if one not in (type(None), Ellipsis)]
    names = {int: "a whole number", bool: "true or false", str: "text"}
    return "a list of texts" if get_origin(hint) is tuple else " or ".join(names[kind] for kind in kinds)
