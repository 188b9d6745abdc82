"""Commands ``lbx tasks`` and ``lbx run``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import UsageError
from lbx.base.exit_codes import ExitCode
from lbx.base.records import Task
from lbx.base.units import format_count
from lbx.base.visible import as_command, one_line
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.registry import BENCHMARKS, all_tasks, available_benchmarks
from lbx.cli.command_builder import import_object
from lbx.cli.error_conversion import reporting_interrupts
from lbx.cli.measure_options import PlanOptions, RunOptions, TasksOptions
from lbx.cli.options import LocalSessionOptions
from lbx.cli.output import answer, answer_json, note
from lbx.cli.progress import RunBar
from lbx.cli.table_output import show_table
from lbx.options.common import BUNDLE_VARIABLE
from lbx.report.format import render
from lbx.report.format.sheets import plain_columns
from lbx.results import Table
from lbx.running.execution import run as run_spec
from lbx.running.forecast.shards import ShardPlan, read_shards
from lbx.running.runner import Outcome


def show_tasks(options: TasksOptions) -> None:
    """Carry out ``lbx tasks``."""
    if options.bundle is None:
        _list_supported_tasks(as_json=options.as_json)
        return
    bundle = Bundle(options.bundle)
    tasks = all_tasks(bundle)
    if options.as_json:
        rows = [(task.full_name, task.language, task.samples, ", ".join(task.metrics)) for task in tasks]
        answer_json(render.json_pieces(["task", "language", "samples", "metrics"], rows))
    else:
        _show_bundled_tasks(available_benchmarks(bundle, BENCHMARKS), tasks)
    if not any(task.benchmark == "needle" for task in tasks):
        note("The built-in task needle is not in this bundle and needs no data: run it with --tasks needle.")


def _show_bundled_tasks(families: Iterable[Benchmark], tasks: Sequence[Task]) -> None:
    """Print the benchmarks of a bundle, then its tasks. Many tasks that differ by length share rows."""
    suites: list[tuple[Any, ...]] = []
    rows: dict[str, list[Task]] = {}
    for family in families:
        found = [task for task in tasks if task.benchmark == family.name]
        if found:
            suites.append((family.name, len(found), sum(task.samples for task in found), *_facts(family)))
        groups = family.catalogue.length_groups if len(found) > _MOST_ROWS else {}
        for task in found:
            name = f"{groups[task.name]}_*" if task.name in groups else task.name
            rows.setdefault(f"{family.name}/{name}", []).append(task)
    show_table("", plain_columns(Table(["benchmark", "tasks", "samples", *_FACTS], suites)))
    cells = [
        (
            name if (is_group := len(members) > 1) else members[0].full_name,
            members[0].language,
            sum(task.samples for task in members),
            " ".join(task.full_name.removeprefix(name[:-1]) for task in members) if is_group else None,
            ", ".join(members[0].metrics),
        )
        for name, members in rows.items()
    ]
    show_table("", plain_columns(Table(["task", "language", "samples", "lengths", "metrics"], cells)))


_MOST_ROWS = 40
"""Number of tasks of a benchmark that have a row each."""
_FACTS = ("licences (data, scripts)", "real rows seen by lbx's tests", "not measured")


def _facts(family: Benchmark) -> tuple[str | None, ...]:
    return family.data.licences or None, family.data.real_rows or None, family.scoring.missing_metrics or None


def _list_supported_tasks(*, as_json: bool) -> None:
    """Print the tasks known to lbx by benchmark family. A bundle may also contain custom benchmarks."""
    facts = {name: (family.data.recipe or "none (built in)", *_facts(family)) for name, family in BENCHMARKS.items()}
    names = {name: family.catalogue.names or ("*",) for name, family in BENCHMARKS.items()}
    rows = [(f"{name}/{task}", *facts[name]) for name in BENCHMARKS for task in names[name]]
    if as_json:
        answer_json(render.json_pieces(["task", "recipe", "licences", "real_rows", "not_measured"], rows))
        return
    suites = [(name, len(names[name]), *facts[name]) for name in BENCHMARKS]
    headings = ["benchmark", "tasks", "recipe", *_FACTS]
    show_table("", plain_columns(Table(headings, suites)))
    show_table("", plain_columns(Table(["task", "recipe"], [row[:2] for row in rows])))
    note(
        "No bundle given, so this lists everything that lbx supports. `lbx bundle RECIPE` fetches the data; "
        f"pass --bundle DIR or set {BUNDLE_VARIABLE} to list a bundle's tasks."
    )


def run(options: RunOptions) -> None:
    """Carry out ``lbx run``."""
    output = options.output
    if options.dry_run:
        if options.shard is not None:
            raise UsageError("--dry-run plans all shards; --shard runs one.", fix="Remove one of them.")
        spec = {name: getattr(options, name) for name in ("spec_values", "spec_file", "stored")}
        import_object("cli.planning:show_plan")(PlanOptions(**spec, history=output, as_json=options.as_json))
        return
    with reporting_interrupts(lambda: describe_answers(output)), RunBar() as bar:
        outcomes = run_spec(
            options.spec,
            output,
            listener=bar,
            shard=_shard(options.shard_plan, options.shard, options.spec_file),
            **session_arguments(options),
        )
    print_outcomes(outcomes, output, as_json=options.as_json)


def session_arguments(options: LocalSessionOptions) -> dict[str, Any]:
    """Convert options of a command to arguments of ``lbx.running.execution.run``."""
    return {
        "retry_failed": options.retry_failed,
        "retry_empty": options.retry_empty,
        "plan": options.plan,
        "hash_bundle": options.hash_bundle,
        "log_file": options.log,
        "scratch": options.scratch,
    }


def describe_answers(output: Path) -> str:
    """Describe in a sentence the answers left by an interruption."""
    return f"All answers so far are in {output}." if output.is_file() else "No answer was generated yet."


def _shard(plan: Path | None, number: int | None, spec_file: Path | None) -> tuple[ShardPlan, int] | None:
    if plan is None and number is not None and spec_file is not None:
        plan = spec_file.with_name("shards.json")  # the location used by `lbx submit`
    if (plan is None) != (number is None):
        raise UsageError("Pass --shard-plan and --shard together: the plan, and the shard to run.")
    return None if plan is None or number is None else (read_shards(plan), number)


def print_outcomes(
    outcomes: Mapping[str, Outcome], output: Path, *, as_json: bool, more: Mapping[str, object] | None = None
) -> None:
    """Print the outcomes of runs, in JSON with the values of ``more``. Raises typer.Exit if some samples failed."""
    if as_json:
        parts = [
            {"run_id": name, "results": str(output), **dataclasses.asdict(outcome), **(more or {})}
            for name, outcome in outcomes.items()
        ]
        answer_json(json.dumps(parts[0] if len(parts) == 1 else parts))
    for name, outcome in outcomes.items():
        if not as_json:
            already_done = f", {outcome.done_before:,} already done" if outcome.done_before else ""
            if outcome.samples < outcome.bundle_samples:
                already_done += f"; {outcome.samples:,} of {outcome.bundle_samples:,} samples have an answer"
            answer(
                f"{name}: {outcome.answered:,} answered, {outcome.failed:,} failed{already_done}; results in {output}"
            )
        if outcome.unclosed:
            note(
                f"{outcome.unclosed:,} answers are empty because their budget ran out inside the reasoning. "
                "Raise the budget (--thinking-tokens N), or ask for less reasoning (--reasoning-effort low) "
                "or none (--no-thinking)."
            )
        if outcome.empty_by_stop:
            verb = "is empty: it" if outcome.empty_by_stop == 1 else "are empty: they"
            note(
                f"{format_count(outcome.empty_by_stop, 'answer')} {verb} began with a stop string of the benchmark or "
                f"the card, and --retry-empty would repeat that. Look at one: {as_command('lbx', 'show', output)}"
            )
        if empty := outcome.empty - outcome.empty_by_stop:
            only = f"; {outcome.only_reasoning:,} of them contain only reasoning" if outcome.only_reasoning else ""
            note(
                f"{empty:,} of {format_count(outcome.answered, 'answer')} are empty{only}. The model may have ended "
                "them at once; a server may also put answers into its reasoning field, or drop them. Look at one with "
                f"{as_command('lbx', 'show', output)}, then repeat them with --retry-empty."
            )
        if outcome.marks:
            note(
                f"{sum(outcome.marks.values()):,} of {format_count(outcome.answered, 'answer')} begin with "
                f"{', '.join(outcome.marks)}. These reasoning tags are not the model's, so the reasoning is "
                'scored as part of the answers. Add them to the card: reasoning = ["OPENING", "CLOSING"] under [chat].'
            )
        if outcome.unextracted:
            note(
                f"No answer could be extracted from {outcome.unextracted:,} of "
                f"{format_count(outcome.answered, 'output')}; they are scored as wrong. Look at some: "
                f"{as_command('lbx', 'show', output, '--mark', 'nothing extracted')}"
            )
        _note_server(name, outcome)
    if failures := sum(outcome.failures for outcome in outcomes.values()):
        unfit = sum(outcome.unfit_prompts for outcome in outcomes.values())
        note(
            f"{format_count(failures, 'sample')} failed: {as_command('lbx', 'report', output, 'failures')} shows "
            f"the reasons; {_retry_advice(failures, unfit)}"
        )
        raise typer.Exit(ExitCode.INCOMPLETE)


def _note_server(name: str, outcome: Outcome) -> None:
    if len(outcome.served_models) > 1:
        models = ", ".join(f"{one_line(model)} ({count:,})" for model, count in outcome.served_models.items())
        note(
            f"The answers of {name} come from {len(outcome.served_models)} models, by the names in the server's "
            f"answers: {models}. Its scores mix them. Column served_model of generations has the name of each "
            "answer; start a new run (--name) with a server that keeps its model."
        )
    if outcome.cut_at is not None:
        note(
            f"The longest prompts of {name} have different lengths, but the server read {outcome.cut_at:,} tokens "
            "of each: it probably cut them. Start it with a larger context window (Ollama: num_ctx), or set "
            "[tokenizer] and context_window in the card, so that lbx cuts prompts as the benchmark defines it. "
            "Then start a new run (--name)."
        )
    if outcome.without_counts:
        note(
            f"The server gave no token counts for {format_count(outcome.without_counts, 'answer')}: their counts are "
            "NULL in the results file, and sums of tokens leave them out. lbx cannot check that it read the "
            "whole prompts."
        )


def _retry_advice(failures: int, unfit: int) -> str:
    """Clauses on --retry-failed, which does not help samples with prompts that do not fit."""
    retry = "repeat the command with --retry-failed to retry"
    if not unfit:
        return f"{retry} them."
    which, others = ("they", "") if unfit == failures else (f"{unfit:,} of them", f"; {retry} the others")
    return f"{which} would fail again because of their prompts, so change what the reason names{others}."
