"""Settings of a run, its choice of samples and its retrieval options, each validated on creation."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

from lbx.base.errors import UsageError
from lbx.base.records import Mode, Prompt, Sampling
from lbx.base.run_options import ASKING, CARD_TEMPLATE, EFFORTS, MODES, AskingOptions
from lbx.retrieval import BM25, BM25_CHARACTERS

LONG_WINDOW = 262_144
"""Minimum context window for a reasoning budget of 32k tokens instead of 8k."""
JUDGED = "judged"
"""Value of ``SampleChoice.questions``."""
_ALWAYS = ("sampling", "model_sampling", "chat", "seed")


@dataclass(frozen=True)
class RunSettings(AskingOptions):
    """Settings of a run. Equal settings with the same model and bundle identify the same run.

    Attributes:
        model_sampling: recommendation of the model's makers, from the card's [sampling] table or the model's files;
            None if both lack it.
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
        """Prompting options in the form that benchmarks take."""
        modes = {name: getattr(self, name) for name in MODES}
        return Mode(
            **modes, thinking=self.thinks, thinking_tokens=self.thinking_tokens or 0, context_window=context_window
        )

    def reasoning_budget(self, context_window: int) -> int:
        """Tokens for reasoning, in addition to the answer; 0 if the model is not asked to reason.

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
        """Values for ``runs.settings``: differences from the defaults, and the sampling that some benchmarks take."""
        plain = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in asdict(self).items() if name in _ALWAYS or value != plain[name]}


@dataclass(frozen=True, slots=True)
class SampleChoice:
    """Choice of samples by --limit, --documents, --sample, --seed, --ids and --questions; every sample by default.

    Attributes:
        limit: number of first samples of each task; ``documents`` and ``sample`` choose among these.
        documents: number of first documents of each task, with all their questions.
        sample: number of samples of each task: documents are drawn at random, with all their questions, until
            they reach it.
        seed: for ``sample``.
        ids: samples by name: "sample_id", in any task, or "benchmark/task/sample_id".
        questions: ``JUDGED`` for the questions that judges and raters are asked about; the numbers above count these.

    Raises:
        UsageError: two of them exclude each other, or ``questions`` has another value.
    """

    limit: int | None = None
    documents: int | None = None
    sample: int | None = None
    seed: int = 0
    ids: tuple[str, ...] = ()
    questions: str | None = None

    def __post_init__(self) -> None:
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
        """Whether no option gives samples by number or name."""
        return self.limit is None and self.documents is None and self.sample is None and not self.ids


class Retrieval(NamedTuple):
    """Values of --rag, --retriever, --chunk-words, --chunk-tokens and --threads.

    Attributes:
        best: number of chunks that replace the document; 0 means the document.
        retriever: "bm25", "bm25-characters", or the card of an embedding model.
        words, tokens: chunk size; None for both uses the size of the benchmark family's authors.
        threads: of the embedding model.
    """

    best: int = 0
    retriever: str = BM25
    words: int | None = None
    tokens: int | None = None
    threads: int | None = None

    @property
    def uses_embeddings(self) -> bool:
        return self.retriever not in (BM25, BM25_CHARACTERS)

    def check(self) -> None:
        """Raise UsageError if a retrieval option is given without --rag, or if two chunk sizes are given."""
        for option, value in (
            ("--retriever", self.retriever != BM25),
            ("--chunk-words", self.words),
            ("--chunk-tokens", self.tokens),
        ):
            if value and not self.best:
                raise UsageError(
                    f"{option} needs --rag: it configures retrieval.",
                    fix="Pass --rag N to replace the document with N chunks, or remove the option.",
                )
        if self.words and self.tokens:
            raise UsageError(
                "--chunk-words and --chunk-tokens exclude each other: both set the size of a chunk.",
                fix="Leave one out.",
            )
