"""Spec of a run as a value: validated on creation, stored as JSON."""

import functools
import json
import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from lbx.base.errors import UsageError
from lbx.base.inputs import SMALL, read_input
from lbx.base.limits import CONTEXT_TOKENS, SAMPLE_IDS, WORKERS
from lbx.base.option import Option, fields_of, key_values
from lbx.base.outputs import open_output
from lbx.base.run_options import ASKING, AskingOptions
from lbx.base.tables import nearest
from lbx.retrieval import BM25
from lbx.serving.command import ServerCommand, with_absolute_paths
from lbx.spec.settings import Retrieval, RunSettings, SampleChoice

FORMAT = 1
_MARK = "lbx_run"
JUDGE_MARK = "lbx_judge"
_FIX = "Give a run.json written by `lbx submit`, or a results file that contains the run to repeat."

_prompt_option = functools.partial(Option, "What to ask")
_sample_option = functools.partial(Option, "Which samples")
_model_option = functools.partial(Option, "The model")
_retrieval_option = functools.partial(Option, "Retrieval and embeddings")
_output_option = functools.partial(Option, "Output")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ChoosingOptions:
    """Options for the model and the choice of samples."""

    bundle: Annotated[
        str, _prompt_option("Folder created by `lbx unpack`.", "DIR", ("--bundle", "-b"), path=True, judges=True)
    ]
    model: Annotated[
        str,
        _model_option(
            "A model card (.toml, or its name in models/), a .gguf file, or a model folder.", "MODEL", ("--model", "-m")
        ),
    ]
    tasks: Annotated[
        tuple[str, ...],
        _prompt_option(
            "Benchmarks or tasks, separated by commas: leval, longbench/qasper, 'lveval/*_16k', or all.",
            "NAMES",
            ("--tasks", "-t"),
        ),
    ]
    backend: Annotated[
        str | None, _model_option("llamacpp, hf or scripted, if the model supports several.", "NAME", judges=True)
    ] = None
    name: Annotated[
        str | None,
        _output_option("Name of the run; default: derived from model, backend, bundle and settings.", "NAME"),
    ] = None
    limit: Annotated[int | None, _sample_option("Only the first N samples of each task.", "N", ("--limit", "-n"))] = (
        None
    )
    documents: Annotated[
        int | None, _sample_option("Only the first N documents of each task, with all their questions.", "N")
    ] = None
    sample: Annotated[
        int | None,
        _sample_option(
            "Draw whole documents of each task at random until they have N samples. A smaller N draws a subset of a "
            "larger N; --seed changes the draw.",
            "N",
        ),
    ] = None
    ids: Annotated[
        tuple[str, ...],
        _sample_option(
            "Only these samples: ids, with or without their task (leval/tpo/0), separated by commas; or @FILE. Can be "
            "repeated.",
            "NAMES",
            most=SAMPLE_IDS,
        ),
    ] = ()
    questions: Annotated[
        str | None,
        _sample_option(
            "judged: only the questions for judges and raters, which L-Eval marks; all questions of your own benchmark "
            "with a [rubric].",
            "WHICH",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class RunSpec(AskingOptions, ChoosingOptions):
    """A run. Every field is an option of ``lbx run``, defined by its annotation.

    Raises:
        UsageError: a value is of the wrong type, out of range, or excludes another one.
    """

    retriever: Annotated[
        str,
        _retrieval_option(
            "Ranking of the chunks: bm25, bm25-characters (LongBench v1's own script), or an embedding model's card.",
            "CARD",
        ),
    ] = BM25
    chunk_words: Annotated[
        int | None, _retrieval_option("Words in a chunk; default: 500 with bm25, 200 with embeddings.", "N")
    ] = None
    chunk_tokens: Annotated[
        int | None,
        _retrieval_option(
            "Tokens in a chunk, counted with the authors' tokenizer. L-Eval uses 1024 (its default), LongBench v2 128.",
            "N",
        ),
    ] = None
    embedding: Annotated[
        str | None, _retrieval_option("Embedding model's card, for LongBench Pro's summaries (t4).", "CARD")
    ] = None
    serve: Annotated[
        str | None,
        _model_option(
            "Start this model server, use it and stop it; the card's backend is endpoint. lbx fills in {port}, a free "
            "port, and {host}, this machine's name: --serve 'vllm serve DIR --port {port}'.",
            "COMMAND",
            judges=True,
        ),
    ] = None
    serve_timeout_s: Annotated[
        int,
        _model_option(
            "With --serve: seconds in which the server must be ready.", "SECONDS", ("--serve-timeout",), judges=True
        ),
    ] = 3600
    workers: Annotated[
        int,
        Option(
            "How it runs",
            "Worker processes that each load the model, on their share of cores or GPUs. If one dies, no answer is "
            "lost. 0 loads the model in this process.",
            "N",
            judges=True,
            most=WORKERS,
        ),
    ] = 0
    threads: Annotated[
        int | None,
        _model_option(
            "CPU threads of each process that loads a model; overrides its card. Default: one for each usable CPU.",
            "N",
            judges=True,
        ),
    ] = None
    context_window: Annotated[
        int | None,
        _model_option(
            "Tokens that prompt and answer share, no more than the model has; overrides its card. Another window makes "
            "another run. Default: the model's own.",
            "N",
            judges=True,
            most=CONTEXT_TOKENS,
        ),
    ] = None
    hash_weights: Annotated[
        bool,
        _model_option(
            "Identify the model by every byte of its weights. By default, models above 512 MiB are identified by "
            "pieces of every tensor.",
            judges=True,
        ),
    ] = False
    metadata: Annotated[
        tuple[str, ...],
        _output_option(
            "Record a fact about the run that its settings do not contain, for exported result files; not part of its "
            "name. Can be repeated.",
            "KEY=VALUE",
            judges=True,
        ),
    ] = ()

    def __post_init__(self) -> None:
        for name in ("bundle", "model"):
            if isinstance(value := getattr(self, name), os.PathLike):
                object.__setattr__(self, name, os.fspath(value))
        object.__setattr__(self, "tasks", _as_tuple(self.tasks, between=","))
        for name in ("ids", "metadata"):
            object.__setattr__(self, name, _as_tuple(getattr(self, name)))
        for name, field in fields_of(type(self)).items():
            if name not in ASKING:  # RunSettings checks the others
                field.check(getattr(self, name))
        if not self.tasks:
            raise UsageError("A run needs tasks.", fix="Give benchmarks or tasks; `lbx tasks` lists those in a bundle.")
        key_values("--metadata", self.metadata)
        self._check_serve()
        self.retrieval.check()
        _ = self.choice, self.kinds  # each is checked on creation

    def _check_serve(self) -> None:
        if self.serve is None:
            return
        ServerCommand.parse(self.serve)
        if self.workers:
            raise UsageError(
                "--workers is for models that lbx loads itself; --serve starts one server for all questions.",
                fix="Remove --workers. To send more requests at a time, raise concurrency in the model card.",
            )

    @property
    def settings(self) -> RunSettings:
        """Settings without the retriever's name and the model's own sampling, which are not known yet."""
        return RunSettings(**{name: getattr(self, name) for name in ASKING})

    @property
    def kinds(self) -> list[tuple[str | None, RunSettings]]:
        """Name and settings of each of the runs that are executed together."""
        if not self.both_kinds:
            return [(self.name, self.settings)]
        if self.thinking is not None:
            raise UsageError(
                "--both-kinds excludes --thinking and --no-thinking: it asks both with reasoning and without."
            )
        names = (f"{self.name}-{kind}" if self.name else None for kind in ("thinking", "nonthinking"))
        with_reasoning = replace(self.settings, both_kinds=False, thinking=True)
        without = replace(with_reasoning, thinking=False, thinking_tokens=None, reasoning_effort=None)
        return list(zip(names, (with_reasoning, without), strict=True))

    @property
    def choice(self) -> SampleChoice:
        return SampleChoice(self.limit, self.documents, self.sample, self.seed, self.ids, self.questions)

    def copy_inputs(self, folder: Path, mount_path: str) -> Self:
        """Make a spec for shards, copying its input files other than bundle and model into their folder.

        Args:
            mount_path: the folder's path on the shards' machines.
        """
        return self

    def with_absolute_paths(self) -> Self:
        """Make the spec's paths absolute, for a process in another folder that sees the same files."""
        from lbx.backends.weights import full_path

        embedding = None if self.embedding is None else full_path(self.embedding)
        retriever = full_path(self.retriever) if self.retrieval.uses_embeddings else self.retriever
        serve = None if self.serve is None else with_absolute_paths(self.serve)
        return replace(
            self, bundle=str(Path(self.bundle).absolute()), model=full_path(self.model), retriever=retriever,
            embedding=embedding, serve=serve,
        )  # fmt: skip

    @property
    def retrieval(self) -> Retrieval:
        return Retrieval(self.rag, self.retriever, self.chunk_words, self.chunk_tokens, self.threads)

    if not TYPE_CHECKING:  # for type checkers, the fields are the parameters

        def __new__(cls, **values: object) -> Self:
            fields = fields_of(cls)
            if unknown := [name for name in values if name not in fields]:
                raise UsageError(f"{cls.__name__} has no field {unknown[0]!r}.", fix=nearest(unknown[0], fields))
            return super().__new__(cls)

    def to_json(self) -> dict[str, Any]:
        """Values that differ from the defaults, by option."""
        values = {name: (getattr(self, name), field.default) for name, field in fields_of(type(self)).items()}
        return {_MARK: FORMAT, **{name: value for name, (value, default) in values.items() if value != default}}

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the spec to a JSON file, for ``read``."""
        text = json.dumps(self.to_json(), ensure_ascii=False, indent=1)
        with open_output(Path(path)) as file:
            file.write(f"{text}\n".encode())

    @classmethod
    def from_json(cls, values: object, source: str) -> "RunSpec":
        """Make a spec from the values of ``to_json``.

        Raises:
            UsageError: the values are not a spec, or belong to a newer lbx.
        """
        if not isinstance(values, Mapping) or _MARK not in values:
            raise UsageError(f"{source} is not the spec of a run: it has no key {_MARK!r}.", fix=_FIX)
        if values[_MARK] != FORMAT:
            raise UsageError(f"{source} was written by a newer lbx: its {_MARK!r} is not {FORMAT}.", fix="Update lbx.")
        if JUDGE_MARK in values and cls is RunSpec:
            raise UsageError(
                f"{source} is the spec of a judge, not of a run.", fix="lbx.running.judge_spec reads both."
            )
        fields = {name: value for name, value in values.items() if name not in (_MARK, JUDGE_MARK)}
        known_fields = fields_of(cls)
        if unknown := sorted(map(str, fields.keys() - known_fields.keys())):
            raise UsageError(f"{source} has an unknown key: {unknown[0]}.", fix="Remove it, or update lbx.")
        if missing := [name for name, field in known_fields.items() if field.default is MISSING and name not in fields]:
            raise UsageError(f"{source} lacks {' and '.join(missing)}.")
        return cls(**fields)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "RunSpec":
        """Read a spec from a JSON file.

        Raises:
            UsageError: the file cannot be read or is not a spec.
        """
        return cls.from_json(read_values(Path(path)), str(path))


def read_values(path: Path) -> object:
    """Read the content of a spec file. Raises UsageError if it cannot be read or is not JSON."""
    try:
        return json.loads(read_input(path, SMALL))
    except OSError as exc:
        raise UsageError(f"The spec {path} cannot be read: {exc.strerror or exc}.", fix=_FIX) from exc
    except (ValueError, RecursionError) as exc:
        raise UsageError(f"The spec {path} is not JSON: {exc}.", fix=_FIX) from exc


def _as_tuple(value: object, between: str | None = None) -> object:
    """Convert one or several texts to a tuple; other values are left to the check."""
    texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value
    if between is None or not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts):
        return texts
    return tuple(name for text in texts for part in text.split(between) if (name := part.strip()))
