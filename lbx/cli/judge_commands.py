"""``lbx judge``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lbx.base.commands import as_command
from lbx.cli.options import (
    AsJson,
    Calibrate,
    CopyEvery,
    CountFirst,
    HashBundle,
    JudgeOutput,
    Log,
    RetryEmpty,
    RetryFailed,
    SaveSpec,
    Scratch,
)
from lbx.cli.output import RunBar, answer, note, show_table
from lbx.cli.run_commands import finish, left_in
from lbx.cli.spec_options import takes_judge
from lbx.cli.stopping import saying

if TYPE_CHECKING:
    from lbx.report.fitness import Fitness

Answers = Annotated[Path, typer.Argument(help="The results file with the answers.", metavar="RESULTS")]


@takes_judge
def judge(
    *,
    results: Answers,
    spec: Mapping[str, Any],
    calibrate: Calibrate = False,
    retry_failed: RetryFailed = False,
    retry_empty: RetryEmpty = False,
    plan: CountFirst = True,
    output: JudgeOutput = None,
    save_spec: SaveSpec = None,
    log: Log = None,
    scratch: Scratch = None,
    copy_every: CopyEvery = 10.0,
    hash_bundle: HashBundle = False,
    as_json: AsJson = False,
) -> None:
    """Have a model judge stored answers: which of two is better, or how good one is. The same command again continues.

    Judges by L-Eval's rubric, which the bundle brings, or by one of your own. Before you believe a judge, calibrate
    it: `--calibrate` has it judge answers of which is known what GPT-4 said.

    Example: lbx judge results.duckdb --bundle long --judge my-judge.toml --run RUN --against turbo-16k-0613

    Calibrate: lbx judge results.duckdb --bundle long --judge my-judge.toml --calibrate
    """
    from lbx.running.judge_run import calibrating, judge_spec, with_baselines
    from lbx.running.running import run

    place = output or results
    told = {**spec, "answers": (str(results),)}
    made = with_baselines(calibrating(told) if calibrate else judge_spec(told), place)
    if save_spec is not None:
        made.settled().write(save_spec)
        shards = as_command("lbx", "submit", "slurm", "--spec", save_spec, "--shards", "N", "-o", "DIR")
        note(f"Nothing was asked. To ask it in shards: {shards}")
        return
    with saying(lambda: left_in(place)), RunBar() as bar:
        outcomes = run(
            made,
            place,
            listener=bar,
            retry_failed=retry_failed,
            retry_empty=retry_empty,
            plan=plan,
            hash_bundle=hash_bundle,
            log_file=log,
            scratch=scratch,
            copy_every=copy_every,
        )
    found = [_calibration(place, judge_id) for judge_id in outcomes if calibrate]
    if not as_json:
        for fit in found:
            _show(fit)
    finish(outcomes, place, as_json=as_json, more={"calibration": dataclasses.asdict(found[0])} if found else None)


def _calibration(results: Path, judge_id: str) -> Fitness:
    from lbx.report.fitness import fitness
    from lbx.store import Store

    with Store(results, read_only=True) as store:
        return fitness(store, judge_id)


def _show(fit: Fitness) -> None:
    """The judge's win rates beside GPT-4's, in GPT-4's order, and what to think of the judge."""
    from lbx.report.cells import plain_columns
    from lbx.store import Table

    rows = []
    for row in fit.rows:
        said = [f"{100 * row.win_rate:.2f}", f"{100 * row.low:.2f} to {100 * row.high:.2f}"]
        said.append(str(1 + sum(one.win_rate > row.win_rate for one in fit.rows)))
        if row.errors == row.rounds:
            said = ["–"] * len(said)
        rows.append((row.model, f"{100 * row.gpt4:.2f}", *said, row.rounds, row.errors))
    columns = ["answers of", "GPT-4", "this judge", "95% interval", "place", "rounds", "no verdict"]
    show_table("Win rates against turbo-16k-0613", plain_columns(Table(columns, rows)))
    answer(f"This judge is {fit}.")
