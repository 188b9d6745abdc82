"""``lbx tasks`` and ``lbx run``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.cli.options import (
    AsJson,
    CopyEvery,
    CountFirst,
    HashBundle,
    Log,
    ResultsOutput,
    RetryEmpty,
    RetryFailed,
    Scratch,
    ShardNumber,
    Shards,
    VerifyBatching,
)
from lbx.cli.output import RunBar, answer, answer_json, note, show_table
from lbx.cli.spec_options import of_run, takes_spec
from lbx.cli.stopping import saying
from lbx.running.spec import RunSpec

if TYPE_CHECKING:
    from lbx.planning.shards import ShardPlan
    from lbx.running.runner import Outcome

_EXIT_SOME_FAILED = 3


def tasks(bundle: Annotated[Path, of_run("bundle")], as_json: AsJson = False) -> None:
    """List what the bundle holds to run.

    Example: lbx tasks --bundle demo
    """
    from lbx.base.layout import Bundle
    from lbx.benchmarks import everything
    from lbx.report import render
    from lbx.report.cells import plain_columns
    from lbx.store import Table

    found = everything(Bundle(bundle))
    columns = ["task", "language", "samples", "metrics"]
    table = Table(columns, [(t.full_name, t.language, t.samples, ", ".join(t.metrics)) for t in found])
    if as_json:
        answer_json(render.json_pieces(table.columns, table.rows))
    else:
        show_table("", plain_columns(table))
    if not any(task.benchmark == "needle" for task in found):
        note("The built-in needle needs no data and was not bundled: --tasks needle asks it all the same.")


@takes_spec
def run(
    *,
    spec: RunSpec,
    spec_file: Path | None,
    output: ResultsOutput,
    verify_batching: VerifyBatching = 0,
    retry_failed: RetryFailed = False,
    retry_empty: RetryEmpty = False,
    plan: CountFirst = True,
    log: Log = None,
    shards: Shards = None,
    shard: ShardNumber = None,
    scratch: Scratch = None,
    copy_every: CopyEvery = 10.0,
    hash_bundle: HashBundle = False,
    as_json: AsJson = False,
) -> None:
    """Ask a model every sample and write answers and scores to one file. The same command again continues.

    Never touches the network, but for the one address of a card with backend = "endpoint". Exit code 3 means done,
    but some samples failed.

    Example: lbx run --bundle demo --model demo-hf --tasks needle -o results.duckdb
    """
    from lbx.running.running import run as run_spec

    with saying(lambda: left_in(output)), RunBar() as bar:
        outcomes = run_spec(
            spec,
            output,
            listener=bar,
            retry_failed=retry_failed,
            retry_empty=retry_empty,
            verify_batching=verify_batching,
            plan=plan,
            hash_bundle=hash_bundle,
            log_file=log,
            shard=_shard(shards, shard, spec_file),
            scratch=scratch,
            copy_every=copy_every,
        )
    finish(outcomes, output, as_json=as_json)


def left_in(output: Path) -> str:
    """What an interruption leaves behind, a sentence."""
    return f"Every answer so far is in {output}." if output.is_file() else "Nothing was asked yet."


def _shard(plan: Path | None, number: int | None, spec_file: Path | None) -> tuple[ShardPlan, int] | None:
    from lbx.planning.shards import read_shards

    if plan is None and number is not None and spec_file is not None:
        plan = spec_file.with_name("shards.json")  # as `lbx submit` puts them
    if (plan is None) != (number is None):
        raise UsageError("--shards and --shard go together: the plan, and which of its shards to run.")
    return None if plan is None or number is None else (read_shards(plan), number)


def finish(
    outcomes: Mapping[str, Outcome], output: Path, *, as_json: bool, more: Mapping[str, object] | None = None
) -> None:
    """Say what was done, in JSON with ``more``. Raises typer.Exit where some samples failed."""
    if as_json:
        told = [
            {"run_id": name, "results": str(output), **dataclasses.asdict(one), **(more or {})}
            for name, one in outcomes.items()
        ]
        answer_json(json.dumps(told[0] if len(told) == 1 else told))
    for name, outcome in outcomes.items():
        if not as_json:
            found = f", {outcome.found:,} found done" if outcome.found else ""
            if outcome.samples < outcome.bundle_samples:
                found += f"; {outcome.samples:,} of {outcome.bundle_samples:,} samples have an answer"
            answer(f"{name}: {outcome.answered:,} answered, {outcome.failed:,} failed{found}; results in {output}")
        if outcome.verification:
            note(f"{name}: {outcome.verification}")
        if outcome.unclosed:
            note(
                f"{outcome.unclosed:,} answers are empty because their budget ran out inside the reasoning: give it "
                "more (--thinking-tokens N), or ask for less (--reasoning-effort low) or none (--no-thinking)."
            )
    if any(outcome.failures for outcome in outcomes.values()):
        note(f"Why they failed: {as_command('lbx', 'report', output, 'failures')}")
        raise typer.Exit(_EXIT_SOME_FAILED)
