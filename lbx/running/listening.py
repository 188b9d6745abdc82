"""Listeners of a run, for a bar on a terminal or a cell of a notebook."""

from __future__ import annotations

from dataclasses import dataclass

from lbx.base.units import duration, size


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is.

    Attributes:
        over, samples: samples asked so far, and to be asked; those that were done before are in neither.
        failed: of those over.
        fraction: 0 to 1, by prompt tokens answered, or by samples where those are not known.
        prompt_tokens, planned_prompt_tokens: answered and in all; None where nothing was counted before.
        tokens_per_s: of prompts and answers, computed lately.
        left_s: to the end; None: unknown.
        memory_bytes: that all processes of the run hold; gpu_bytes: in use on the GPUs, None without any.
        task: that the newest answer is of.
        ended: whether this is the last word.
    """

    over: int
    samples: int
    failed: int
    fraction: float
    prompt_tokens: int
    planned_prompt_tokens: int | None
    tokens_per_s: float
    left_s: float | None
    memory_bytes: int
    gpu_bytes: int | None
    task: str
    ended: bool = False

    @property
    def pace(self) -> str:
        """How fast it goes, in words."""
        left = "time left unknown" if self.left_s is None else f"{duration(self.left_s)} left"
        gpu = "" if self.gpu_bytes is None else f" and {size(self.gpu_bytes)} of GPU memory"
        return f"{self.tokens_per_s:,.0f} tokens/s computed, {left}, {size(self.memory_bytes)} of memory{gpu}"

    def __str__(self) -> str:
        if not self.samples:
            return "Nothing left to ask."
        parts = [f"{100 * self.fraction:.0f}%"]
        if self.planned_prompt_tokens is not None:
            parts.append(f"{self.prompt_tokens:,} of {self.planned_prompt_tokens:,} prompt tokens answered")
        failed = f" ({self.failed:,} failed)" if self.failed else ""
        parts.append(f"{self.over:,} of {self.samples:,} samples{failed}")
        return ", ".join(part for part in [*parts, self.pace, self.task] if part)


class Listener:
    """What a run tells. A base class whose methods do nothing; they are called from any thread."""

    def progress(self, progress: RunProgress) -> None:
        """Called every second, and when the run has ended."""

    def said(self, text: str) -> None:
        """A sentence about what is left undone, and why."""

    def counted(self, what: str, done: int, total: int) -> None:
        """What is done before and after the questions are asked: files checked, tokens counted, texts embedded.

        Args:
            what: in words, without numbers: "chunks retrieved".
            done, total: bytes, samples or texts.
        """
