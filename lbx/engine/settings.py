"""What a run is asked to do, checked when it is made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from lbx.errors import UsageError
from lbx.records import Prompt, Sampling


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How samples are asked. Two runs with equal settings on the same model and bundle are the same run.

    Attributes:
        iterations: how often each sample is asked; iterations differ in their seed only.
        max_prompt_tokens: a prompt limit instead of the benchmark's own, before chat wrapping.
        max_new_tokens: an answer budget instead of the benchmark's own.
        sampling: "official" takes each benchmark's own temperature, "model" the card's [sampling] table.
        model_sampling: that table.
        chat: False feeds every prompt as plain text.
        seed: from which every sampled answer's seed is derived.

    Raises:
        UsageError: a value is out of range.
    """

    iterations: int = 1
    max_prompt_tokens: int | None = None
    max_new_tokens: int | None = None
    sampling: str = "official"
    model_sampling: Sampling = field(default_factory=Sampling)
    chat: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (
            ("--iterations", self.iterations),
            ("--max-prompt-tokens", self.max_prompt_tokens),
            ("--max-new-tokens", self.max_new_tokens),
        ):
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}.")
        if self.sampling not in ("official", "model"):
            raise UsageError(f"--sampling is 'official' or 'model', not {self.sampling!r}.")

    def sampling_for(self, prompt: Prompt, iteration: int) -> Sampling:
        """How the answer to one prompt is sampled."""
        chosen = self.model_sampling if self.sampling == "model" else Sampling(temperature=prompt.temperature or 0.0)
        return Sampling(chosen.temperature, chosen.top_p, chosen.top_k, chosen.min_p, self.seed + iteration)

    def to_json(self) -> dict[str, Any]:
        """For ``runs.settings``; the card's sampling only where it is used."""
        values = asdict(self)
        if self.sampling == "official":
            del values["model_sampling"]
        return values
