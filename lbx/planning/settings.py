"""How samples are asked: the options that are part of what a run is, and what is found out beside them."""

import functools
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, Literal, get_args

from lbx.base.errors import UsageError
from lbx.base.records import Mode, Prompt, Sampling
from lbx.planning.option import Option, fields_of

LONG_WINDOW = 262_144
"""A context window from which on a reasoning budget is 32k tokens instead of 8k, as LongBench Pro has it."""

Effort = Literal["low", "medium", "high"]
"""How much a model may be asked to reason."""
EFFORTS: tuple[str, ...] = get_args(Effort)
_ALWAYS = ("sampling", "model_sampling", "chat", "seed")

_asked = functools.partial(Option, "What to ask")
_found = functools.partial(Option, "Retrieval and embeddings")


@dataclass(frozen=True, kw_only=True)
class AskingOptions:
    """How samples are asked: what is not as by default stands in the run's settings, of which its name is made.

    Of a spec with ``both_kinds`` two runs are made, whose settings say ``thinking`` instead.
    """

    rag: Annotated[
        int,
        _found("Put the N best chunks in place of the document (LongBench v1, v2, L-Eval).", metavar="N", judges=False),
    ] = 0
    summaries: Annotated[
        int,
        _found(
            "Have the model sum up each document in parts of N words first, and ask about the summaries (lbx's own).",
            metavar="N",
            judges=False,
        ),
    ] = 0
    iterations: Annotated[
        int | None, _asked("Ask each sample N times; default: as often as its authors do.", metavar="N")
    ] = None
    max_prompt_tokens: Annotated[
        int | None, _asked("Longest prompt; default: the benchmark's own limit.", metavar="N")
    ] = None
    max_new_tokens: Annotated[
        int | None,
        _asked("Longest answer; default: the benchmark's own limit.", metavar="N", judges=True, lengthens=True),
    ] = None
    sampling: Annotated[
        Literal["official", "model"],
        _asked(
            "official: the benchmark's own temperature; model: what the model's makers recommend.",
            metavar="KIND",
            judges=True,
        ),
    ] = "official"
    seed: Annotated[
        int,
        Option("Which samples", "Seed for sampled answers, and for --sample's draw.", metavar="N", judges=True),
    ] = 0
    chat: Annotated[
        bool,
        _asked("Wrap prompts in the model's chat template where the benchmark does.", judges=True, lengthens=True),
    ] = True
    thinking: Annotated[
        bool | None,
        _asked(
            "Have the model reason before it answers, or not; default: as its chat template decides.",
            judges=True,
            lengthens=True,
        ),
    ] = None
    thinking_tokens: Annotated[
        int | None,
        _asked(
            "Token budget for reasoning, beside the answer's; implies --thinking.",
            metavar="N",
            judges=True,
            lengthens=True,
        ),
    ] = None
    reasoning_effort: Annotated[
        Effort | None,
        _asked(
            "How much to reason: low, medium or high, where the model's chat template knows it; implies --thinking.",
            metavar="LEVEL",
            judges=True,
            lengthens=True,
        ),
    ] = None
    both_kinds: Annotated[
        bool,
        _asked(
            "Ask with reasoning and without it, as two runs that read each document once (LongBench Pro's two "
            "prompts).",
            judges=False,
        ),
    ] = False
    cot: Annotated[
        bool,
        _asked("LongBench v2: reason about the document first, then answer.", judges=False, lengthens=True),
    ] = False
    no_context: Annotated[bool, _asked("LongBench v2: ask without the document.", judges=False)] = False
    length_hint: Annotated[
        bool,
        _asked(
            "L-Eval's open questions say how many words the reference has, as its published answers were asked; "
            "without, as its founding README has it for judges and people.",
            lengthens=True,
        ),
    ] = True
    batching: Annotated[
        bool,
        Option("How it runs", "Decode many answers together, or ask one prompt after the other.", judges=True),
    ] = True


ASKING = fields_of(AskingOptions)
MODES = tuple(field.name for field in fields(Mode) if field.name in ASKING and not field.name.startswith("thinking"))
"""The options that benchmarks know or do not: ``Benchmark.modes``."""
OF_LENGTH = tuple(name for name, field in ASKING.items() if field.option and field.option.lengthens)
"""Those that bear on how long answers are."""


@dataclass(frozen=True)
class RunSettings(AskingOptions):
    """The settings of a run. Two with equal settings on the same model and bundle are the same run.

    Attributes:
        model_sampling: what the model's makers recommend, from the card's [sampling] table or the model's files; None
            where neither has any.
        stop: the card's strings that end an answer, beside the benchmark's own.
        retriever: which retriever finds the chunks of ``rag``.
        summarizer: the run that has the summaries; "" in that run itself.

    Raises:
        UsageError: a value is of the wrong type, out of range, or excludes another one.
    """

    model_sampling: Sampling | None = None
    stop: tuple[str, ...] = ()
    retriever: str = ""
    summarizer: str = ""

    def __post_init__(self) -> None:
        for name, field in ASKING.items():
            field.check(getattr(self, name))
        if self.sampling not in ("official", "model"):
            raise UsageError(f"--sampling is 'official' or 'model', not {self.sampling!r}.")
        if self.thinking_tokens and self.thinking is False:
            raise UsageError("--thinking-tokens gives reasoning a budget, and --no-thinking forbids it.")
        if self.reasoning_effort not in (None, *EFFORTS):
            raise UsageError(f"--reasoning-effort is one of {', '.join(EFFORTS)}, not {self.reasoning_effort!r}.")
        if self.reasoning_effort and self.thinking is False:
            raise UsageError("--reasoning-effort says how much to reason, and --no-thinking forbids it.")
        if self.no_context and self.rag:
            raise UsageError(
                "--no-context leaves nothing to retrieve from, and --rag retrieves.", fix="Drop one of them."
            )
        if self.summaries and (self.no_context or self.rag):
            raise UsageError("--summaries, --rag and --no-context each say what stands in place of the document.")

    @property
    def thinks(self) -> bool:
        """Whether the model is asked to reason; a budget for it or how much asks, too."""
        return bool(self.thinking or self.thinking_tokens or self.reasoning_effort)

    def mode(self, context_window: int) -> Mode:
        """The way to ask, as benchmarks take it."""
        asked = {name: getattr(self, name) for name in MODES}
        return Mode(
            **asked, thinking=self.thinks, thinking_tokens=self.thinking_tokens or 0, context_window=context_window
        )

    def reasoning_budget(self, context_window: int) -> int:
        """Tokens for reasoning apart from the answer; 0 where the model is not asked to reason.

        Without --thinking-tokens as LongBench Pro gives its models, but never more than a quarter of the window.
        """
        if not self.thinks:
            return 0
        return self.thinking_tokens or min(32_768 if context_window >= LONG_WINDOW else 8_192, context_window // 4)

    def sampling_for(self, prompt: Prompt, iteration: int) -> Sampling:
        """How the answer to one prompt is sampled."""
        recommended = self.model_sampling
        if self.sampling == "model":
            chosen = recommended or Sampling()
        elif prompt.model_sampling:
            chosen = recommended or Sampling(temperature=1.0)
        else:
            chosen = Sampling(temperature=prompt.temperature or 0.0)
        return replace(chosen, seed=self.seed + iteration)

    def to_json(self) -> dict[str, Any]:
        """For ``runs.settings``: what differs from the plain way, and the sampling that some benchmarks take."""
        plain = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in asdict(self).items() if name in _ALWAYS or value != plain[name]}
