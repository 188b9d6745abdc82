"""What a run is in for, said before its first sample: by ``lbx plan`` at length, by ``lbx run`` in short."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from lbx.cli.output import announce, note, stdout

if TYPE_CHECKING:
    from lbx.engine.askers import Asker
    from lbx.engine.planning.estimate import Costs, Estimate
    from lbx.engine.planning.memory_use import Free, MemoryFit
    from lbx.engine.planning.outlook import Outlook
    from lbx.engine.planning.plan import TaskPlan
    from lbx.records import SampleKey
    from lbx.store import RunRow, Store

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def look_ahead_of_run(
    store: Store, asker: Asker, done: Sequence[AbstractSet[SampleKey]], free: Free, workers: int
) -> Outlook:
    """Count what a run is about to read, and say it in its first lines.

    Args:
        done: of each of the runs that are made together, what is answered already.
        free: memory, before the model was loaded.

    Raises:
        BundleError: a data file is damaged.
        BackendError: the model failed while it was measured.
    """
    from lbx.engine.planning.outlook import look_ahead

    known = known_costs(store, asker.rows[0], workers)
    outlook = asker.call(
        functools.partial(look_ahead, free=free, done=done, workers=workers, known=known, say=announce)
    )
    for line in brief(outlook):
        note(line)
    return outlook


def known_costs(store: Store, run: RunRow, workers: int) -> Costs | None:
    """What earlier sessions in a results file say of a model's speed; None: nothing."""
    from lbx.engine.planning.estimate import costs_from
    from lbx.store.sessions import answer_lengths, history

    found = history(store, run, workers=workers)
    return None if found is None else costs_from(found, answer_lengths(store, run))


def brief(outlook: Outlook) -> list[str]:
    """The outlook in three lines."""
    total, memory, time = outlook.total, outlook.memory, outlook.time
    if not total.samples:
        return ["Nothing to ask: every prompt has its answer."]
    tokens = "characters" if outlook.in_characters else "tokens"
    spoilt = [f"{n:,} {what}" for n, what in ((total.truncated, "truncated"), (total.refused, "refused")) if n]
    lines = [
        f"To ask: {total.samples:,} prompts of {total.prompt_tokens:,} {tokens}, {total.distinct_tokens:,} distinct "
        f"({total.shared_factor:.1f} times shared); {', '.join(spoilt) or 'none truncated'}"
    ]
    if memory.weights_bytes is not None:
        lines.append(memory_line(memory))
    lines.append("Time: unknown" if time is None else time_line(time))
    return lines


def memory_line(memory: MemoryFit) -> str:
    """What the model needs beside what there is, and whether that is enough."""
    parts = [f"weights {size(memory.weights_bytes)}{_each(memory.weights_copies)}"]
    if memory.kv_bytes is None or memory.kv_bytes_per_token is None:
        parts.append("KV cache unknown (this kind of model keeps other amounts in other layers)")
    else:
        parts.append(
            f"KV cache {size(memory.kv_bytes)} ({memory.kv_bytes_per_token:,} bytes a token, "
            f"{memory.kv_cells:,} tokens{_each(memory.copies)})"
        )
    parts.append(f"free {memory.device} {size(memory.available_bytes)}")
    verdict = {True: "fits", False: "does not fit", None: "whether it fits is unknown"}[memory.fits]
    if memory.fits is False:
        window = memory.window_that_fits
        verdict += f"; a context window of {window:,} tokens would" if window else ": the weights alone are too large"
    return f"Memory: {', '.join(parts)}: {verdict}"


def _each(copies: int) -> str:
    return f" in each of {copies} processes" if copies > 1 else ""


def time_line(time: Estimate) -> str:
    """How long it takes, of what, and how one knows."""
    other = f", tokenizing {duration(time.other_s)}" if time.other_s >= 1 else ""
    tokens = sum(time.answer_tokens.values())
    return (
        f"Time: about {duration(time.total_s)} (reading {time.computed_tokens:,} tokens {duration(time.prefill_s)}, "
        f"{tokens:,} tokens of answers {duration(time.decode_s)}{other}), by {time.basis}"
    )


def show(outlook: Outlook) -> None:
    """The outlook on standard output, a line a task."""
    from lbx.report import render
    from lbx.store import Table

    title = "Characters (this model has no tokenizer here)" if outlook.in_characters else "Tokens"
    names = [
        "task", "samples", "prompt", "distinct", "shared", "longest", "truncated", "refused", "answers at most",
    ]  # fmt: skip
    rows = [_row(task) for task in [*outlook.tasks, outlook.total]]
    stdout().print(render.rich_table(title, render.plain_columns(Table(names, rows))))
    if outlook.memory.weights_bytes is not None:
        stdout().print(memory_line(outlook.memory), highlight=False)
    stdout().print("Time: unknown" if outlook.time is None else time_line(outlook.time), highlight=False)
    stdout().print(f"Counted in {duration(outlook.counting_s)}", highlight=False)


def _row(task: TaskPlan) -> tuple[str, ...]:
    counts = (f"{n:,}" for n in (task.longest, task.truncated, task.refused, task.new_tokens))
    before = (f"{n:,}" for n in (task.samples, task.prompt_tokens, task.distinct_tokens))
    return (task.task, *before, f"{task.shared_factor:.2f}", *counts)


def duration(seconds: float) -> str:
    """As people say it: "40 s", "12 min", "3 h 20 min", "2 d 4 h"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < _DAY:
        hours, rest = divmod(round(seconds / _MINUTE), 60)
        return f"{hours} h {rest} min"
    days, rest = divmod(round(seconds / _HOUR), 24)
    return f"{days} d {rest} h"


def size(count: int | None) -> str:
    """Bytes, in binary units."""
    if count is None:
        return "unknown"
    value = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
