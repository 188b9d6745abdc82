"""What a run is asked to do, checked when it is made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.records import Mode, Prompt, Sampling
from lbx.base.run_options import ASKING, EFFORTS, MODES, AskingOptions

LONG_WINDOW = 262_144
"""A context window from which on a reasoning budget is 32k tokens instead of 8k."""
_ALWAYS = ("sampling", "model_sampling", "chat", "seed")


@dataclass(frozen=True)
class RunSettings(AskingOptions):
    """The settings of a run. Two with equal settings on the same model and bundle are the same run.

    Attributes:
        model_sampling: what the model's makers recommend, from the card's [sampling] table or the model's files; None
            where neither has any.
        stop: the card's strings that end an answer, beside the benchmark's own.
        retriever: which retriever finds the chunks of ``rag``.

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
                "--thinking-tokens and --no-thinking exclude each other: one gives reasoning a budget, "
                "the other forbids it."
            )
        if self.reasoning_effort not in (None, *EFFORTS):
            raise UsageError(f"--reasoning-effort must be one of {', '.join(EFFORTS)}, not {self.reasoning_effort!r}.")
        if self.reasoning_effort and self.thinking is False:
            raise UsageError(
                "--reasoning-effort and --no-thinking exclude each other: one says how much to reason, "
                "the other forbids it."
            )
        if self.no_context and self.rag:
            raise UsageError(
                "--no-context and --rag exclude each other: without the document there is nothing to retrieve from.",
                fix="Remove one of them.",
            )

    @property
    def thinks(self) -> bool:
        """Whether the model is asked to reason; a budget for it or how much asks, too."""
        return bool(self.thinking or self.thinking_tokens or self.reasoning_effort)

    def mode(self, context_window: int) -> Mode:
        """The way to ask, as benchmarks take it."""
        modes = {name: getattr(self, name) for name in MODES}
        return Mode(
            **modes, thinking=self.thinks, thinking_tokens=self.thinking_tokens or 0, context_window=context_window
        )

    def reasoning_budget(self, context_window: int) -> int:
        """Tokens for reasoning apart from the answer; 0 where the model is not asked to reason.

        Without --thinking-tokens 8k, for long windows 32k, but never more than a quarter of the window.
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
