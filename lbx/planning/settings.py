"""What a run is asked to do, checked when it is made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.records import Mode, Prompt, Sampling

LONG_WINDOW = 262_144
"""A context window from which on a reasoning budget is 32k tokens instead of 8k, as LongBench Pro has it."""

EFFORTS = ("low", "medium", "high")
"""How much a model may be asked to reason."""
_ALWAYS = ("sampling", "model_sampling", "chat", "seed")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How samples are asked. Two runs with equal settings on the same model and bundle are the same run.

    Attributes:
        iterations: how often each sample is asked, None as often as its benchmark's authors do; iterations differ
            in their seed only.
        max_prompt_tokens: a prompt limit instead of the benchmark's own, before chat wrapping.
        max_new_tokens: an answer budget instead of the benchmark's own.
        sampling: "official" takes each benchmark's own temperature, "model" the makers' recommendation.
        model_sampling: that recommendation, from the card's [sampling] table or the model's files; None where
            neither has any.
        stop: the card's strings that end an answer, beside the benchmark's own.
        chat: False feeds every prompt as plain text.
        seed: from which every sampled answer's seed is derived.
        thinking: whether the model is to reason before it answers; None leaves that to its template and card.
        thinking_tokens: a reasoning budget apart from the answer's; None means a default where thinking is True.
        reasoning_effort: how much the model is to reason, one of ``EFFORTS``; None leaves that to template and card.
        cot, no_context: LongBench v2's other ways to ask.
        length_hint: False asks L-Eval's open questions without the reference's length.
        rag: how many retrieved chunks stand in place of the document; 0 means the document.
        retriever: which retriever finds them.
        summaries: the document is summed up in parts of so many words, and the summaries stand in its place; 0 means
            the document.
        summarizer: the run that has them; "" in that run itself.
        batching: answer many prompts in lock-step where the backend can; False asks one after the other.

    Raises:
        UsageError: a value is out of range.
    """

    iterations: int | None = None
    max_prompt_tokens: int | None = None
    max_new_tokens: int | None = None
    sampling: str = "official"
    model_sampling: Sampling | None = None
    stop: tuple[str, ...] = ()
    chat: bool = True
    seed: int = 0
    thinking: bool | None = None
    thinking_tokens: int | None = None
    reasoning_effort: str | None = None
    cot: bool = False
    no_context: bool = False
    length_hint: bool = True
    rag: int = 0
    retriever: str = ""
    summaries: int = 0
    summarizer: str = ""
    batching: bool = True

    def __post_init__(self) -> None:
        for name, value in (
            ("--iterations", self.iterations),
            ("--max-prompt-tokens", self.max_prompt_tokens),
            ("--max-new-tokens", self.max_new_tokens),
            ("--thinking-tokens", self.thinking_tokens),
        ):
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}.")
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
        return Mode(
            thinking=self.thinks,
            cot=self.cot,
            no_context=self.no_context,
            rag=self.rag,
            length_hint=self.length_hint,
            thinking_tokens=self.thinking_tokens or 0,
            context_window=context_window,
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
