"""What ``lbx status`` and ``lbx merge`` do."""

from __future__ import annotations

import json

import typer

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.cli.cluster_options import Status
from lbx.cli.exchange_options import Merge
from lbx.cli.output import answer, answer_json, note
from lbx.cli.tables import show_table
from lbx.cluster.folder import RunFolder
from lbx.cluster.merge import Merged
from lbx.cluster.merge import merge as join
from lbx.cluster.status import status as look
from lbx.forecast.shards import read_shards
from lbx.report.sheets import plain_columns
from lbx.store import Table

_EXIT_GAPS = 3
_NAMED = 5


def show_status(options: Status) -> None:
    """See ``lbx status``."""
    folder = options.folder
    shards = look(RunFolder(folder))
    if options.as_json:
        answer_json(json.dumps([shard.to_json() for shard in shards], ensure_ascii=False))
        return
    columns = ["shard", "state", "answered", "failed", "of", "said last"]
    rows = [
        (str(one.shard), one.state, f"{one.answered:,}", f"{one.failed:,}", f"{one.expected:,}", one.said)
        for one in shards
    ]
    show_table("", plain_columns(Table(columns, rows)))
    states = {state: sum(one.state == state for one in shards) for state in dict.fromkeys(one.state for one in shards)}
    answers = sum(one.answered + one.failed for one in shards)
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    answer(f"{counts}; {answers:,} of {sum(one.expected for one in shards):,} answers are in {folder}")


def merge_files(options: Merge) -> None:
    """See ``lbx merge``."""
    sources, output = options.sources, options.output
    plan = read_shards(options.shards) if options.shards else None
    if len(sources) == 1 and sources[0].is_dir():
        folder = RunFolder(sources[0])
        plan = plan or folder.plan()
        files = [path for number in range(len(plan.shards)) if (path := folder.shard(number)).is_file()]
        output = output or folder.results
        if not files:
            raise UsageError(
                f"No shard of {folder.root} has written anything yet.", command=as_command("lbx", "status", folder.root)
            )
    else:
        files = [*sources]
    if output is None:
        raise UsageError("No output file given.", fix="Name the new results file with -o.")
    merged = join(files, output, plan, force=options.force)
    _tell(merged, as_json=options.as_json)
    if merged.gaps or any(merged.failures.values()):
        raise typer.Exit(_EXIT_GAPS)


def _tell(merged: Merged, *, as_json: bool) -> None:
    if as_json:
        answer_json(json.dumps(merged.to_json(), ensure_ascii=False))
    else:
        for run, files in merged.runs.items():
            failed = f", {merged.failures[run]:,} failed" if merged.failures.get(run) else ""
            answer(f"{run}: {f'from {files} file' + 's' * (files > 1) if files else 'kept'}{failed}")
        answer(f"{merged.rows['generations']:,} answers in {merged.output}")
    for text in merged.notes:
        note(text)
    for gap in merged.gaps:
        named = ", ".join(map(str, gap.missing[:_NAMED]))
        more = f" and {len(gap.missing) - _NAMED:,} more (--json names all)" if len(gap.missing) > _NAMED else ""
        note(f"Shard {gap.shard} of {gap.run} lacks {named}{more}")
