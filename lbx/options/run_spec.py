"""Spec of a run: the values of the options of ``lbx run``, validated on creation and stored as JSON.

``RunSettings`` are the options that identify the run. Other code also accepts ``SampleOptions`` and
``RetrievalOptions``.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from lbx.backends.serving.command import ServerCommand, with_absolute_paths
from lbx.base.errors import UsageError
from lbx.base.inputs import SMALL, read_input
from lbx.base.limits import CONTEXT_TOKENS, SAMPLE_IDS, WORKERS
from lbx.base.outputs import open_output
from lbx.base.records import Prompt, Sampling
from lbx.base.tables import suggest_names
from lbx.options.asking import (
    ASKING,
    BM25,
    BM25_CHARACTERS,
    CARD_TEMPLATE,
    EFFORTS,
    MODES,
    AskingOptions,
    Mode,
    Rag,
    Seed,
)
from lbx.options.common import BUNDLE, LIMIT, MODEL, NAME, TASKS, WHICH_QUESTIONS
from lbx.options.option import (
    OptionField,
    fields_of,
    model_option,
    output_option,
    parse_key_values,
    process_option,
    retrieval_option,
    sample_option,
)

LONG_WINDOW = 262_144
"""Least context window with which the default reasoning budget is 32k tokens instead of 8k."""
JUDGED = "judged"
"""Value of ``SampleOptions.questions``."""
_ALWAYS = ("sampling", "model_sampling", "chat", "seed")


@dataclass(frozen=True)
class RunSettings(AskingOptions):
    """Settings of a run. Equal settings with the same model and bundle identify the same run.

    Attributes:
        model_sampling: sampling recommended by the model's authors, from the card's [sampling] table or the model's
            files; None if both lack it.
        stop: the card's strings that end an answer, in addition to the benchmark's own.
        retriever: identity of the retriever that finds the chunks of ``rag``.

    Raises:
        UsageError: a value is of the wrong type, out of range, or excludes another one.
    """

    model_sampling: Sampling | None = None
    stop: tuple[str, ...] = ()
    retriever: str = ""

    def __post_init__(self) -> None:
        for name, field in ASKING.items():
            field.check(getattr(self, name))
        if self.sampling not in ("official", "model"):
            raise UsageError(f"--sampling must be 'official' or 'model', not {self.sampling!r}.")
        if self.thinking_tokens and self.thinking is False:
            raise UsageError(
                "--thinking-tokens and --no-thinking exclude each other: one sets a budget for reasoning, "
                "the other disables it."
            )
        if self.reasoning_effort not in (None, *EFFORTS):
            raise UsageError(f"--reasoning-effort must be one of {', '.join(EFFORTS)}, not {self.reasoning_effort!r}.")
        if self.reasoning_effort and self.thinking is False:
            raise UsageError(
                "--reasoning-effort and --no-thinking exclude each other: one sets the amount of reasoning, "
                "the other disables it."
            )
        if self.template == CARD_TEMPLATE and not self.chat:
            raise UsageError(
                "--prompt-template card and --no-chat exclude each other: one uses the model's chat template, "
                "the other does not.",
                fix="Remove one of them.",
            )
        if self.no_context and self.rag:
            raise UsageError(
                "--no-context and --rag exclude each other: retrieval needs the document.",
                fix="Remove one of them.",
            )

    @property
    def thinks(self) -> bool:
        """Whether the model is asked to reason, which a budget or an effort implies."""
        return bool(self.thinking or self.thinking_tokens or self.reasoning_effort)

    def mode(self, context_window: int) -> Mode:
        """Prompting options as benchmarks accept them."""
        modes = {name: getattr(self, name) for name in MODES}
        return Mode(
            **modes, thinking=self.thinks, thinking_tokens=self.thinking_tokens or 0, context_window=context_window
        )

    def reasoning_budget(self, context_window: int) -> int:
        """Token budget for reasoning, in addition to the answer's, or 0 if the model is not asked to reason.

        The default of --thinking-tokens is 8k, or 32k for long windows, but never more than a quarter of the window.
        """
        if not self.thinks:
            return 0
        return self.thinking_tokens or min(32_768 if context_window >= LONG_WINDOW else 8_192, context_window // 4)

    def sampling_for(self, prompt: Prompt, iteration: int) -> Sampling:
        recommended = self.model_sampling
        if self.sampling == "model":
            sampling = recommended or Sampling()
        elif prompt.model_sampling:
            sampling = recommended or Sampling(temperature=1.0)
        else:
            sampling = Sampling(temperature=prompt.temperature or 0.0)
        return replace(sampling, seed=self.seed + iteration)

    def to_json(self) -> dict[str, Any]:
        """Values for the column ``runs.settings``: the sampling options, and differences from the defaults."""
        plain = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in asdict(self).items() if name in _ALWAYS or value != plain[name]}


FORMAT = 1
_MARK = "lbx_run"
JUDGE_MARK = "lbx_judge"
_FIX = "Give a run.json written by `lbx submit`, or a results file that contains the run to repeat."


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class InputOptions:
    """Options that name the inputs of a run: bundle, model and tasks."""

    bundle: Annotated[
        str, BUNDLE.with_help("Folder created by `lbx unpack`.", panel="What to ask", path=True, judges=True)
    ]
    model: Annotated[
        str,
        MODEL.with_help(
            "A model card (.toml, or its name in models/), a .gguf file, or a model folder.",
            panel="The model",
            completion="models",
        ),
    ]
    tasks: Annotated[
        tuple[str, ...],
        TASKS.with_help(
            "Benchmarks or tasks, separated by commas: leval, longbench/qasper, 'lveval/*_16k', or all.",
            panel="What to ask",
        ),
    ]
    backend: Annotated[
        str | None, model_option("llamacpp, hf or scripted, if the model supports several.", "NAME", judges=True)
    ] = None
    name: Annotated[
        str | None,
        NAME.with_help("Name of the run; default: derived from model, backend, bundle and settings.", panel="Output"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """Options that choose samples, by default all. ``documents`` and ``sample`` choose from the first ``limit``.

    Raises:
        UsageError: two options exclude each other, or ``questions`` is not ``JUDGED``.
    """

    limit: Annotated[int | None, LIMIT.with_help("Only the first N samples of each task.", panel="Which samples")] = (
        None
    )
    documents: Annotated[
        int | None, sample_option("Only the first N documents of each task, with all their questions.", "N")
    ] = None
    sample: Annotated[
        int | None,
        sample_option(
            "Draw whole documents of each task at random until they have N samples. A smaller N draws a subset of a "
            "larger N; --seed changes the draw.",
            "N",
        ),
    ] = None
    ids: Annotated[
        tuple[str, ...],
        sample_option(
            "Only these samples: ids, with or without their task (leval/tpo/0), separated by commas; or @FILE. Can be "
            "repeated.",
            "NAMES",
            maximum=SAMPLE_IDS,
            name_files=True,
        ),
    ] = ()
    questions: Annotated[
        str | None,
        WHICH_QUESTIONS.with_help(
            "judged: only the questions for judges and raters, which L-Eval marks; all questions of your own benchmark "
            "with a [rubric].",
            panel="Which samples",
        ),
    ] = None
    seed: Seed = 0

    def __post_init__(self) -> None:
        self.check_choice()

    def check_choice(self) -> None:
        """Raise UsageError if two options exclude each other, or if ``questions`` is not ``JUDGED``."""
        if self.questions not in (None, JUDGED):
            raise UsageError(f"--questions must be {JUDGED}, not {self.questions!r}.")
        ways = {"--documents": self.documents, "--sample": self.sample, "--ids": self.ids or None}
        options = [option for option, value in ways.items() if value is not None]
        if self.ids:
            options += [option for option, value in (("--limit", self.limit), ("--questions", self.questions)) if value]
        if len(options) > 1:
            raise UsageError(f"{' and '.join(options)} exclude each other.", fix="Give one of them.")

    @property
    def is_everything(self) -> bool:
        return self.is_unlimited and self.questions is None

    @property
    def is_unlimited(self) -> bool:
        """Whether no option limits the samples by number or name."""
        return self.limit is None and self.documents is None and self.sample is None and not self.ids


@dataclass(frozen=True, kw_only=True)
class RetrievalOptions:
    """Options of retrieval: ``rag`` requests chunks, the others configure the retriever.

    Raises:
        UsageError: an option is given without ``rag``, or two chunk sizes are given.
    """

    rag: Rag = 0
    retriever: Annotated[
        str,
        retrieval_option(
            "Ranking of the chunks: bm25, bm25-characters (LongBench v1's own script), or an embedding model's card.",
            "CARD",
        ),
    ] = BM25
    chunk_words: Annotated[
        int | None, retrieval_option("Words in a chunk; default: 500 with bm25, 200 with embeddings.", "N")
    ] = None
    chunk_tokens: Annotated[
        int | None,
        retrieval_option(
            "Tokens in a chunk, counted with the authors' tokenizer. L-Eval uses 1024 (its default), LongBench v2 128.",
            "N",
        ),
    ] = None

    def __post_init__(self) -> None:
        self.check_retrieval()

    def check_retrieval(self) -> None:
        """Raise UsageError if an option is given without --rag, or if two chunk sizes are given."""
        for option, value in (
            ("--retriever", self.retriever != BM25),
            ("--chunk-words", self.chunk_words),
            ("--chunk-tokens", self.chunk_tokens),
        ):
            if value and not self.rag:
                raise UsageError(
                    f"{option} needs --rag: it configures retrieval.",
                    fix="Pass --rag N to replace the document with N chunks, or remove the option.",
                )
        if self.chunk_words and self.chunk_tokens:
            raise UsageError(
                "--chunk-words and --chunk-tokens exclude each other: both set the size of a chunk.",
                fix="Leave one out.",
            )

    @property
    def has_embedding_retriever(self) -> bool:
        """Whether an embedding model ranks the chunks."""
        return self.retriever not in (BM25, BM25_CHARACTERS)


@dataclass(frozen=True, kw_only=True)
class RunSpec(RetrievalOptions, AskingOptions, SampleOptions, InputOptions):
    """Spec of a run. Every field is an option of ``lbx run``, declared by its annotation.

    Raises:
        UsageError: a value is of the wrong type, out of range, or excludes another one.
    """

    embedding: Annotated[
        str | None,
        retrieval_option("Embedding model's card, for LongBench Pro's summaries (t4).", "CARD", completion="models"),
    ] = None
    serve: Annotated[
        str | None,
        model_option(
            "Start this model server, use it and stop it; the card's backend is endpoint. lbx fills in {port}, a free "
            "port, and {host}, this machine's name: --serve 'vllm serve DIR --port {port}'.",
            "COMMAND",
            judges=True,
        ),
    ] = None
    serve_timeout_s: Annotated[
        int,
        model_option(
            "With --serve: seconds in which the server must be ready.", "SECONDS", ("--serve-timeout",), judges=True
        ),
    ] = 3600
    workers: Annotated[
        int,
        process_option(
            "Worker processes that each load the model, on their share of cores or GPUs. If one dies, no answer is "
            "lost. 0 loads the model in this process.",
            "N",
            judges=True,
            maximum=WORKERS,
        ),
    ] = 0
    threads: Annotated[
        int | None,
        model_option(
            "CPU threads of each process that loads a model; overrides its card. Default: one for each usable CPU.",
            "N",
            judges=True,
        ),
    ] = None
    context_window: Annotated[
        int | None,
        model_option(
            "Tokens that prompt and answer share, no more than the model has; overrides its card. Another window makes "
            "another run. Default: the model's own.",
            "N",
            judges=True,
            maximum=CONTEXT_TOKENS,
        ),
    ] = None
    hash_weights: Annotated[
        bool,
        model_option(
            "Identify the model by every byte of its weights. By default, models above 512 MiB are identified by "
            "pieces of every tensor.",
            judges=True,
        ),
    ] = False
    metadata: Annotated[
        tuple[str, ...],
        output_option(
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
        object.__setattr__(self, "tasks", _as_tuple(self.tasks, separator=","))
        for name in ("ids", "metadata"):
            object.__setattr__(self, name, _as_tuple(getattr(self, name)))
        for name, field in fields_of(type(self)).items():
            if name not in ASKING:  # RunSettings checks the others
                field.check(getattr(self, name))
        if not self.tasks:
            raise UsageError("A run needs tasks.", fix="Give benchmarks or tasks; `lbx tasks` lists those in a bundle.")
        parse_key_values("--metadata", self.metadata)
        self._check_serve()
        self.check_retrieval()
        self.choice.check_choice()
        _ = self.variants  # checked on creation

    def _check_serve(self) -> None:
        if self.serve is None:
            return
        ServerCommand.parse(self.serve)
        if self.workers:
            raise UsageError(
                "--workers is for models that lbx loads itself; --serve starts one server for all questions.",
                fix="Remove --workers. To send more requests at a time, raise concurrency in the model card.",
            )

    @classmethod
    def command_line_fields(cls) -> Mapping[str, OptionField]:
        """Fields that are options of a command with this spec, in the order of ``--help``."""
        return fields_of(cls)

    @property
    def settings(self) -> RunSettings:
        """Settings of the run without the retriever's name and the model's own sampling, which are unknown so far."""
        return RunSettings(**{name: getattr(self, name) for name in ASKING})

    @property
    def variants(self) -> list[tuple[str | None, RunSettings]]:
        """Name and settings of each run of the spec: one, or two with --both-kinds, which are executed together."""
        if not self.both_kinds:
            return [(self.name, self.settings)]
        if self.thinking is not None:
            raise UsageError(
                "--both-kinds excludes --thinking and --no-thinking: it asks both with reasoning and without.",
                fix="Leave out one of them.",
            )
        names = (f"{self.name}-{kind}" if self.name else None for kind in ("thinking", "nonthinking"))
        with_reasoning = replace(self.settings, both_kinds=False, thinking=True)
        without = replace(with_reasoning, thinking=False, thinking_tokens=None, reasoning_effort=None)
        return list(zip(names, (with_reasoning, without), strict=True))

    @property
    def choice(self) -> SampleOptions:
        """Options that choose the samples of this spec's tasks."""
        return self

    def copy_inputs(self, folder: Path, mount_path: str) -> Self:
        """Copy the spec's input files, except bundle and model, into a folder, and return the spec of the shards.

        Args:
            mount_path: the folder's path on the shards' machines.
        """
        return self

    def with_absolute_paths(self) -> Self:
        """Copy of the spec with absolute paths, for a process in another folder."""
        from lbx.backends.weights import full_path

        embedding = None if self.embedding is None else full_path(self.embedding)
        retriever = full_path(self.retriever) if self.has_embedding_retriever else self.retriever
        serve = None if self.serve is None else with_absolute_paths(self.serve)
        return replace(
            self, bundle=str(Path(self.bundle).absolute()), model=full_path(self.model), retriever=retriever,
            embedding=embedding, serve=serve,
        )  # fmt: skip

    if not TYPE_CHECKING:  # for type checkers, the fields are the parameters

        def __new__(cls, **values: object) -> Self:
            fields = fields_of(cls)
            if unknown := [name for name in values if name not in fields]:
                raise UsageError(f"{cls.__name__} has no field {unknown[0]!r}.", fix=suggest_names(unknown[0], fields))
            return super().__new__(cls)

    def to_json(self) -> dict[str, Any]:
        """Values that differ from the defaults, by option, with the mark of the file format."""
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
            UsageError: the values are not a spec, or were written by a newer lbx.
        """
        if not isinstance(values, Mapping) or _MARK not in values:
            raise UsageError(f"{source} is not the spec of a run: it has no key {_MARK!r}.", fix=_FIX)
        if values[_MARK] != FORMAT:
            raise UsageError(f"{source} was written by a newer lbx: its {_MARK!r} is not {FORMAT}.", fix="Update lbx.")
        if JUDGE_MARK in values and cls is RunSpec:
            raise UsageError(
                f"{source} is the spec of a judge, not of a run.", fix="lbx.opinions.judge_spec reads both."
            )
        fields = {name: value for name, value in values.items() if name not in (_MARK, JUDGE_MARK)}
        known_fields = fields_of(cls)
        if unknown := sorted(map(str, fields.keys() - known_fields.keys())):
            raise UsageError(f"{source} has an unknown key: {unknown[0]}.", fix="Remove it, or update lbx.")
        if missing := [name for name, field in known_fields.items() if field.default is MISSING and name not in fields]:
            raise UsageError(f"{source} lacks {' and '.join(missing)}.", fix=_FIX)
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


def _as_tuple(value: object, separator: str | None = None) -> object:
    """Convert a text or a list to a tuple of texts, split at ``separator``. ``OptionField.check`` refuses the rest."""
    texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value
    if separator is None or not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts):
        return texts
    return tuple(name for text in texts for item in text.split(separator) if (name := item.strip()))
