"""``lbx judge``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

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
from lbx.cli.spec_options import takes_judge

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
    from lbx.cli.judging import judge_answers

    judge_answers(
        results=results,
        spec=spec,
        calibrate=calibrate,
        retry_failed=retry_failed,
        retry_empty=retry_empty,
        plan=plan,
        output=output,
        save_spec=save_spec,
        log=log,
        scratch=scratch,
        copy_every=copy_every,
        hash_bundle=hash_bundle,
        as_json=as_json,
    )
