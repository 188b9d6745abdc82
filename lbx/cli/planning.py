"""What ``lbx plan`` does."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lbx.base.units import duration, size
from lbx.cli.measure_options import Plan
from lbx.cli.output import RunBar, answer_json, stdout
from lbx.cli.tables import show_table
from lbx.forecast.outlook import Outlook
from lbx.forecast.run_plan import TaskPlan
from lbx.forecast.summary import by_time, faster_line, memory_line, sharing_lines, time_line
from lbx.report.sheets import plain_columns
from lbx.running.plan import plan_each
from lbx.store import Table


def show_plan(options: Plan) -> None:
    """See ``lbx plan``."""
    with RunBar() as bar:
        outlook, *others = plan_each(
            options.spec, options.against, options.output, calibrate=options.calibrate, listener=bar
        )
    if options.as_json:
        document = outlook.to_json() | ({"against": [other.to_json() for other in others]} if others else {})
        answer_json(json.dumps(document, ensure_ascii=False))
        return
    show_outlook(outlook)
    if others:
        _compare([outlook, *others])


def show_outlook(outlook: Outlook) -> None:
    """On standard output, a line a task."""
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
