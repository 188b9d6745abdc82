"""Command ``lbx judge``."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from lbx.base.units import format_count
from lbx.base.visible import as_command
from lbx.cli.error_conversion import reporting_interrupts
from lbx.cli.output import answer, answer_json, note
from lbx.cli.people_options import JudgeOptions
from lbx.cli.planning import show_forecast
from lbx.cli.progress import RunBar
from lbx.cli.running import describe_answers, print_outcomes, session_arguments
from lbx.cli.table_output import show_table
from lbx.opinions.fitness import Fitness, fitness
from lbx.opinions.judge_run import calibration_spec, import_published_models, judge_spec
from lbx.opinions.judge_spec import JudgeSpec
from lbx.report.format.sheets import plain_columns
from lbx.results import Store, Table
from lbx.running.execution import run
from lbx.running.plan import plan


def judge_answers(options: JudgeOptions) -> None:
    output = options.output or options.results
    values = {**options.judge.values, "answers": (str(options.results),)}
    spec = calibration_spec(values) if options.calibrate else judge_spec(values)
    if options.dry_run and options.save_spec is None:
        with TemporaryDirectory(prefix="lbx-") as folder:
            _show_plan(
                import_published_models(spec, Path(folder) / "published.duckdb", quiet=True), as_json=options.as_json
            )
        return
    spec = import_published_models(spec, output)
    if options.save_spec is not None:
        spec.with_absolute_paths().write(options.save_spec)
        shards = as_command("lbx", "submit", "slurm", "--spec", options.save_spec, "-o", "DIR")
        note(f"The judge was not run. To run it in shards: {shards}")
        return
    with reporting_interrupts(lambda: describe_answers(output)), RunBar() as bar:
        outcomes = run(spec, output, listener=bar, **session_arguments(options))
    for judge_id in outcomes:
        _note_texts_without_verdict(output, judge_id)
    calibrations = [_calibration(output, judge_id) for judge_id in outcomes if options.calibrate]
    if not options.as_json:
        for fit in calibrations:
            _show_calibration(fit)
    more = {"calibration": dataclasses.asdict(calibrations[0])} if calibrations else None
    print_outcomes(outcomes, output, as_json=options.as_json, more=more)


def _show_plan(spec: JudgeSpec, *, as_json: bool) -> None:
    with RunBar() as bar:
        forecast = plan(spec, measure_speed=False, listener=bar)
    if as_json:
        answer_json(json.dumps(forecast.to_json(), ensure_ascii=False))
        return
    total = forecast.total
    show_forecast(forecast)
    answer(
        f"{total.samples:,} verdicts. Prompts have {total.prompt_tokens:,} {forecast.counted_in}, "
        f"{total.distinct_tokens:,} of them distinct: each is shared by {total.shared_factor:.2f} prompts on average. "
        "The judge was not run."
    )


def _note_texts_without_verdict(results: Path, judge_id: str) -> None:
    """Note how many of the judge's texts contain no verdict. Failed answers are reported elsewhere."""
    with Store(results, read_only=True) as store:
        ((count, total),) = store.query(
            "SELECT count(*) FILTER (WHERE state IN ('cut', 'none')), count(*) FROM judged_rounds WHERE judge_id = ?",
            [judge_id],
        ).rows
    if count:
        command = as_command("lbx", "show", results, "--run", judge_id)
        texts = f"{count:,} of {format_count(total, 'text')} {'contains' if count == 1 else 'contain'} no verdict"
        note(f"{judge_id}: {texts}. Read them with: {command}")


def _calibration(results: Path, judge_id: str) -> Fitness:
    with Store(results, read_only=True) as store:
        return fitness(store, judge_id)


def _show_calibration(fit: Fitness) -> None:
    """Print win rates by the judge and by GPT-4, in GPT-4's order, and an assessment of the judge."""
    rows = []
    for row in fit.rows:
        cells = [f"{100 * row.win_rate:.2f}", f"{100 * row.low:.2f} to {100 * row.high:.2f}"]
        cells.append(str(1 + sum(other.win_rate > row.win_rate for other in fit.rows)))
        if row.errors == row.rounds:
            cells = ["–"] * len(cells)
        rows.append((row.model, f"{100 * row.gpt4:.2f}", *cells, row.rounds, row.errors))
    columns = ["answers of", "GPT-4", "this judge", "95% interval", "place", "rounds", "no verdict"]
    show_table("Win rates against turbo-16k-0613", plain_columns(Table(columns, rows)))
    answer(f"This judge is {fit}.")
