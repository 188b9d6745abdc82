"""What a run is in for, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from lbx.base.units import duration, size
from lbx.planning.estimate import Estimate
from lbx.planning.memory_use import MemoryFit
from lbx.planning.outlook import Outlook


def brief(outlook: Outlook) -> list[str]:
    """The outlook in a few lines."""
    total, memory, time = outlook.total, outlook.memory, outlook.time
    if not total.samples:
        return ["Nothing to ask: every prompt has its answer."]
    tokens = "characters" if outlook.in_characters else "tokens"
    spoilt = [f"{n:,} {what}" for n, what in ((total.truncated, "truncated"), (total.refused, "refused")) if n]
    lines = [
        f"To ask: {total.samples:,} prompts of {total.prompt_tokens:,} {tokens}, {total.distinct_tokens:,} distinct "
        f"({total.shared_factor:.1f} times shared); {', '.join(spoilt) or 'none truncated'}"
    ]
    lines += sharing_lines(outlook)
    if memory.weights_bytes is not None:
        lines.append(memory_line(memory))
    lines.append(time_line(time))
    return lines


def by_time(outlooks: Sequence[Outlook]) -> list[tuple[Outlook, Estimate]]:
    """Plans of the same run whose time is known, the fastest first."""
    known = [(one, one.time) for one in outlooks if one.time is not None]
    return sorted(known, key=lambda one: one[1].total_s)


def name_of(outlook: Outlook) -> str:
    """A model, and in what it is computed where: "smollm2 on hf in bfloat16"."""
    return f"{outlook.model} on {outlook.backend}" + (f" in {outlook.dtype}" if outlook.dtype else "")


def faster_line(outlooks: Sequence[Outlook]) -> str:
    """Which of several models is the fastest here."""
    ordered = by_time(outlooks)
    if len(ordered) < 2:
        return "Which is faster is unknown: too little of them could be measured."
    (best, best_time), *others = ordered
    told = (f"{time.total_s / best_time.total_s:.1f} times as fast as {name_of(one)}" for one, time in others)
    return f"Fastest here: {name_of(best)}, {', '.join(told)}"


def sharing_lines(outlook: Outlook) -> list[str]:
    """What is wrong where prompts that share a document do not share the reading of it."""
    return [f"Every prompt is read from its beginning: {outlook.not_shared}"] if outlook.not_shared else []


def memory_line(memory: MemoryFit) -> str:
    """What the model needs beside what there is, and whether that is enough."""
    parts = [f"weights {size(memory.weights_bytes)}{_each(memory.weights_copies)}"]
    if memory.kv_bytes is None or memory.kv_bytes_per_token is None:
        tokens = f"; {memory.kv_cells:,} tokens{_windows(memory.windows)}" if memory.windows > 1 else ""
        parts.append(f"KV cache unknown (this kind of model keeps other amounts in other layers{tokens})")
    else:
        parts.append(
            f"KV cache {size(memory.kv_bytes)} ({memory.kv_bytes_per_token:,} bytes a token, "
            f"{memory.kv_cells:,} tokens{_windows(memory.windows)}{_each(memory.copies)})"
        )
    parts.append(f"free {memory.device} {size(memory.available_bytes)}")
    verdict = {True: "fits", False: "does not fit", None: "whether it fits is unknown"}[memory.fits]
    if memory.fits is False:
        window = memory.window_that_fits
        verdict += f"; a context window of {window:,} tokens would" if window else ": the weights alone are too large"
    return f"Memory: {', '.join(parts)}: {verdict}"


def _windows(windows: int) -> str:
    return f" for copies of sequences, {windows} context windows" if windows > 1 else ""


def _each(copies: int) -> str:
    return f" in each of {copies} processes" if copies > 1 else ""


def time_line(time: Estimate | None) -> str:
    """How long it takes, of what, and how one knows."""
    if time is None:
        return "Time: unknown"
    other = f", tokenizing {duration(time.other_s)}" if time.other_s >= 1 else ""
    tokens = sum(time.answer_tokens.values())
    return (
        f"Time: about {duration(time.total_s)} (reading {time.computed_tokens:,} tokens {duration(time.prefill_s)}, "
        f"{tokens:,} tokens of answers {duration(time.decode_s)}{other}), by {time.basis}"
    )
