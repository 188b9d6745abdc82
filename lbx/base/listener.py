"""Listeners that observe a run, such as the progress bar of a terminal or a notebook."""

from __future__ import annotations

from dataclasses import dataclass

from lbx.base.units import format_duration, format_size


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Progress of a run, as shown to the user.

    Attributes:
        n_finished, samples: number of samples finished so far, and in total, without samples of earlier sessions.
        failed: failed samples among the finished ones.
        fraction: 0 to 1, by answered prompt tokens, or by samples if tokens are unknown.
        prompt_tokens, planned_prompt_tokens: answered and total, or None without a forecast.
        tokens_per_s: prompt and answer tokens computed recently.
        left_s: to the end, or None if unknown.
        memory_bytes: memory used by all processes of the run.
        gpu_bytes: in use on the GPUs, or None without a GPU.
        task: task of the newest answer.
        ended: whether this is the final update.
        counted_in: unit of the tokens: "bytes" for a table of answers, which has no tokenizer.
    """

    n_finished: int
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
    counted_in: str = "tokens"

    @property
    def time_left(self) -> str:
        return "time left unknown" if self.left_s is None else f"{format_duration(self.left_s)} left"

    @property
    def speed(self) -> str:
        return f"{self.tokens_per_s:,.0f} {self.counted_in}/s computed"

    @property
    def memory(self) -> str:
        gpu = "" if self.gpu_bytes is None else f" and {format_size(self.gpu_bytes)} of GPU memory"
        return f"{format_size(self.memory_bytes)} of memory{gpu}"

    def __str__(self) -> str:
        if not self.samples:
            return "All prompts already have answers."
        parts = [f"{100 * self.fraction:.0f}%"]
        if self.planned_prompt_tokens is not None:
            planned = f"{self.planned_prompt_tokens:,} prompt {self.counted_in}"
            parts.append(f"{self.prompt_tokens:,} of {planned} processed")
        failed = f" ({self.failed:,} failed)" if self.failed else ""
        parts.append(f"{self.n_finished:,} of {self.samples:,} samples{failed}")
        return ", ".join(part for part in [*parts, self.speed, self.time_left, self.memory, self.task] if part)


class Listener:
    """Base class for observers of a run, with empty methods. They may be called from any thread."""

    def on_progress(self, progress: RunProgress) -> None:
        """Handle an update, sent every second and at the end of the run."""

    def on_message(self, text: str) -> None:
        """Handle a message about a skipped step and its reason."""

    def on_count(self, activity: str, done: int, total: int, unit: str = "") -> None:
        """Handle progress before and after the questions: files checked, tokens counted, texts embedded.

        Args:
            activity: the work, such as "Counting tokens".
            done, total: amounts in ``unit``.
            unit: "samples", "texts", "%" and so on, or "" for bytes.
        """
