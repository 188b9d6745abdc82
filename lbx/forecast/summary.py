"""A forecast in sentences, for the terminal and the log."""

from __future__ import annotations

from collections.abc import Sequence

from lbx.base.counts import counted
from lbx.base.units import duration, size
from lbx.forecast.estimate import TimeEstimate
from lbx.forecast.memory_use import MemoryFit
from lbx.forecast.outlook import Outlook


def summary_lines(outlook: Outlook) -> list[str]:
    total, memory, time = outlook.total, outlook.memory, outlook.time
    if not total.samples:
        return ["Nothing left to ask: every prompt was asked."]
    tokens = "characters" if outlook.in_characters else "tokens"
    spoilt = [f"{n:,} {what}" for n, what in ((total.truncated, "truncated"), (total.refused, "refused")) if n]
    lines = [
        f"To ask: {counted(total.samples, 'prompt')} of {total.prompt_tokens:,} {tokens}, "
        f"{total.distinct_tokens:,} distinct ({total.shared_factor:.1f} times shared); "
        f"{', '.join(spoilt) or 'none truncated'}"
    ]
    lines += sharing_lines(outlook)
    if memory.weights_bytes is not None:
        lines.append(memory_line(memory))
    lines.append(time_line(time))
    return lines


def by_time(outlooks: Sequence[Outlook]) -> list[tuple[Outlook, TimeEstimate]]:
    """Forecasts with a known time, the fastest first."""
    known = [(one, one.time) for one in outlooks if one.time is not None]
    return sorted(known, key=lambda one: one[1].total_s)


def name_of(outlook: Outlook) -> str:
    """Model, backend and number format: "smollm2 on hf in bfloat16"."""
    return f"{outlook.model} on {outlook.backend}" + (f" in {outlook.dtype}" if outlook.dtype else "")


def faster_line(outlooks: Sequence[Outlook]) -> str:
    ordered = by_time(outlooks)
    if len(ordered) < 2:
        return "Which one is faster is unknown: too few of them could be measured."
    (best, best_time), *others = ordered
    ratios = ((one, f"{time.total_s / best_time.total_s:.1f}") for one, time in others)
    comparisons = (f"{'' if ratio == '1.0' else f'{ratio} times '}as fast as {name_of(one)}" for one, ratio in ratios)
    return f"Fastest here: {name_of(best)}, {', '.join(comparisons)}"


def sharing_lines(outlook: Outlook) -> list[str]:
    """The reason if prompts that share a document do not share its computation."""
    return [f"Every prompt is read from its beginning: {outlook.not_shared}"] if outlook.not_shared else []


def memory_line(memory: MemoryFit) -> str:
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


def time_line(time: TimeEstimate | None) -> str:
    if time is None:
        return "Time: unknown"
    other = f", tokenizing {duration(time.other_s)}" if time.other_s >= 1 else ""
    tokens = sum(time.answer_tokens.values())
    return (
        f"Time: about {duration(time.total_s)} (reading {time.computed_tokens:,} tokens {duration(time.prefill_s)}, "
        f"{tokens:,} tokens of answers {duration(time.decode_s)}{other}), by {time.basis}"
    )
