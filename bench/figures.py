"""The benchmark's own arithmetic: what a result means beside another one, and tables of it. Nothing here computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.job import Job, Result

MOST_COMPUTED = 1.02


@dataclass(frozen=True)
class Standing:
    """A contender's figures, made comparable with those of contenders that answered more prompts.

    Attributes:
        scale: prompt tokens of all prompts over those of the prompts it answered; 1 where it answered all.
        computed: prompt tokens that went through the model: all tokens but those of the answers, of which every
            one but the last is fed back.
    """

    result: Result
    scale: float
    computed: float

    @property
    def wall_s(self) -> float:
        return self.result.wall_s * self.scale

    @property
    def cpu_s(self) -> float:
        return self.result.cpu_s * self.scale


def standing(job: Job, every: int, result: Result) -> Standing:
    """What answering every so many-th of the job's prompts comes to for all of them."""
    part = job.part(every)
    scale = job.prompt_tokens / part.prompt_tokens
    fed_back = len(part.prompts) * (job.new_tokens - 1)
    return Standing(result, scale, (result.tokens - fed_back) * scale)


def equal_outputs(first: Sequence[str], second: Sequence[str], every: int = 1) -> tuple[int, int]:
    """How many texts are equal, of how many, where ``second`` answers every so many-th prompt only."""
    pairs = list(zip(first[::every], second, strict=True))
    return sum(a == b for a, b in pairs), len(pairs)


def texts(outputs: Sequence[list[int]] | Sequence[str], decode: Callable[[Sequence[int]], str]) -> list[str]:
    """Answers as texts, whichever way a contender gave them."""
    return [one if isinstance(one, str) else decode(one) for one in outputs]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side, the first one flush left, the others flush right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in cells).rstrip()
        for cells in (enumerate(zip(row, widths, strict=True)) for row in [header, *rows])
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def ratio(slow: float | None, fast: float | None) -> str:
    """How many times as much, or "" where one is unknown."""
    return f"{slow / fast:.2f}" if slow and fast else ""
