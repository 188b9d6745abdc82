"""``lbx plan``: what a run would read and take, computed without running it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lbx.base.units import duration
from lbx.cli.options import AsJson
from lbx.cli.output import RunBar, answer_json, show_table, stdout
from lbx.cli.spec_options import takes_spec
from lbx.running.spec import RunSpec

if TYPE_CHECKING:
    from lbx.planning.outlook import Outlook
    from lbx.planning.run_plan import TaskPlan


@takes_spec
def plan(
    *,
    spec: RunSpec,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Base the estimate on the sessions in this results file."),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate/--no-calibrate", help="Compute for a few seconds to estimate how long a run takes."),
    ] = True,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="MODEL",
            help="Plan the same with this model, too, and say which is faster here: the GGUF of a folder, or the "
            "folder of a GGUF. Transformers on a CPU is measured in float32 and bfloat16, unless its card names one. "
            "Can be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count what a run would read and take: tokens, shared prefixes, truncation, memory, time.

    Nothing is run but a calibration of a few seconds, and none where a results file (-o) tells of earlier sessions.

    Example: lbx plan --bundle demo --model demo-hf --tasks needle
    """
    from lbx.running.forecast import plan_each

    with RunBar() as bar:
        outlook, *others = plan_each(spec, against or (), output, calibrate=calibrate, listener=bar)
    if as_json:
        told = outlook.to_json() | ({"against": [other.to_json() for other in others]} if against else {})
        answer_json(json.dumps(told, ensure_ascii=False))
        return
    _show(outlook)
    if against:
        _compare([outlook, *others])


def _show(outlook: Outlook) -> None:
    """On standard output, a line a task."""
    from lbx.report.cells import plain_columns
    from lbx.running.forecast import memory_line, sharing_lines, time_line
    from lbx.store import Table

    title = "Characters (this model has no tokenizer here)" if outlook.in_characters else "Tokens"
    names = [
        "task", "samples", "prompt", "distinct", "shared", "longest", "truncated", "refused", "answers at most",
    ]  # fmt: skip
    rows = [_row(task) for task in [*outlook.tasks, outlook.total]]
    show_table(title, plain_columns(Table(names, rows)))
    for line in sharing_lines(outlook):
        stdout().print(line, highlight=False)
    if outlook.memory.weights_bytes is not None:
        stdout().print(memory_line(outlook.memory), highlight=False)
    stdout().print(time_line(outlook.time), highlight=False)
    stdout().print(f"Counted in {duration(outlook.counting_s)}", highlight=False)


def _compare(outlooks: Sequence[Outlook]) -> None:
    """The models beside each other, the fastest first, on standard output."""
    from lbx.base.units import size
    from lbx.report.cells import plain_columns
    from lbx.running.forecast import by_time, faster_line
    from lbx.store import Table

    names = ["model", "backend", "dtype", "weights", "reading", "answers", "time", "x fastest"]
    ordered = by_time(outlooks)
    rows = [
        (
            one.model, one.backend, one.dtype or "", size(one.memory.weights_bytes), duration(time.prefill_s),
            duration(time.decode_s), duration(time.total_s), f"{time.total_s / ordered[0][1].total_s:.1f}",
        )
        for one, time in ordered
    ]  # fmt: skip
    show_table("The same run on this machine", plain_columns(Table(names, rows)))
    stdout().print(faster_line(outlooks), highlight=False)


def _row(task: TaskPlan) -> tuple[str, ...]:
    counts = (f"{n:,}" for n in (task.longest, task.truncated, task.refused, task.new_tokens))
    before = (f"{n:,}" for n in (task.samples, task.prompt_tokens, task.distinct_tokens))
    return (task.task, *before, f"{task.shared_factor:.2f}", *counts)
