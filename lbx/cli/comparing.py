"""Command ``lbx parity``."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from lbx.backends import ModelCard, resolve_model
from lbx.backends.weights import refuse_embedding
from lbx.base.bundle_folder import Bundle
from lbx.base.columns import Column
from lbx.base.errors import UsageError
from lbx.base.exit_codes import ExitCode
from lbx.benchmarks.registry import benchmarks_with
from lbx.cli.measure_options import DEFAULT_PARITY_LIMIT, ParityOptions
from lbx.cli.output import answer, answer_json, note
from lbx.cli.progress import RunBar
from lbx.cli.table_output import show_table
from lbx.options.common import BUNDLE_VARIABLE
from lbx.options.option import fields_of
from lbx.options.run_spec import RunSettings, SampleOptions
from lbx.options.sample_selection import select_samples
from lbx.report.format.table_cells import cells
from lbx.report.report import Report
from lbx.results import Table
from lbx.running.models import bind_families, choose_tasks, load_model, make_prompter, server_address
from lbx.running.offline import offline
from lbx.running.parity import Parity as Measured
from lbx.running.parity import (
    ParityModel,
    ParityPrompt,
    built_in_prompts,
    bundle_prompts,
    compare_models,
    explain_excess,
    summarise_by_task,
    to_json,
)


def compare(options: ParityOptions) -> None:
    bundle = options.bundle
    if bundle and not options.task_names and str(bundle) == os.environ.get(BUNDLE_VARIABLE):
        bundle = None
    if (bundle is None) != (not options.task_names):
        raise UsageError("--bundle and --tasks choose the prompts together.", fix="Give both, or neither.")
    opened_bundle = Bundle(bundle) if bundle else None
    names = options.first, options.second
    cards = [_card(name, opened_bundle, options) for name in names]

    settings = RunSettings(
        chat=options.chat, max_prompt_tokens=options.max_prompt_tokens, max_new_tokens=options.max_new_tokens
    )

    def load_side(card: ModelCard) -> ParityModel:
        backend = load_model(card, opened_bundle)
        return ParityModel(backend, make_prompter(card, backend, settings))

    choice = SampleOptions(**{name: getattr(options, name) for name in fields_of(SampleOptions)})
    with (
        offline(*(server_address(card) for card in cards)),
        tempfile.TemporaryDirectory(prefix="lbx-parity-") as folder,
        RunBar() as bar,
    ):
        result = compare_models(
            _prompts(opened_bundle, options.task_names, choice, cards[0]),
            (lambda: load_side(cards[0]), lambda: load_side(cards[1])),
            positions=options.positions,
            folder=Path(folder),
            progress=lambda model, done, total: bar.on_count(f"Answering with {model}", done, total, "prompts"),
        )
    _show_parity(result, names, as_json=options.as_json)
    _exit_if_above(result, options.fail_above)


def _card(name: str, bundle: Bundle | None, options: ParityOptions) -> ModelCard:
    card = resolve_model(name, bundle=bundle, threads=options.threads, context_window=options.context_window)
    refuse_embedding(card)
    return card


def _prompts(bundle: Bundle | None, names: Sequence[str], choice: SampleOptions, card: ModelCard) -> list[ParityPrompt]:
    """Make the prompts for both models. Samples that depend on the model are those of the first model, ``card``."""
    if bundle is None:
        if not choice.is_everything:
            raise UsageError("Samples can be chosen only from a bundle's tasks.", fix="Pass --bundle and --tasks, too.")
        return built_in_prompts()
    task_names = [part.strip() for name in names for part in name.split(",") if part.strip()]
    benchmarks = benchmarks_with(*bind_families(bundle, task_names, RunSettings(), lambda: card))
    tasks = choose_tasks(bundle, task_names, RunSettings(), benchmarks)
    selection = select_samples(
        replace(choice, limit=DEFAULT_PARITY_LIMIT) if choice.is_unlimited else choice, bundle, tasks, benchmarks
    )
    return list(bundle_prompts(bundle, tasks, benchmarks, selection))


def _show_parity(result: Measured, names: tuple[str, str], *, as_json: bool) -> None:
    if as_json:
        answer_json(json.dumps(to_json(result), ensure_ascii=False, indent=2))
        return
    for which, name, info in zip(("first", "second"), names, (result.first, result.second), strict=True):
        answer(f"{which}: {info.model} ({name}; {info.version}, window {info.context_window:,})")
    rows = [{**task.to_json(), **(task.to_json()["logits"] or {})} for task in summarise_by_task(result)]
    for title, columns in (("Token ids and logits", _logit_columns()), ("Greedy answers", _answer_columns())):
        names_of = [column.name for column in columns]
        table = Table(names_of, [tuple(row.get(name) for name in names_of) for row in rows])
        show_table(title, cells(Report("", title, columns), table))
    for reason in result.not_compared:
        note(reason)
    problems = [comparison for comparison in result.prompts if comparison.problem]
    for comparison in problems[:3]:
        note(f"{comparison.prompt.key} was not compared. {comparison.problem}")
    if len(problems) > 3:
        note(f"{len(problems) - 3} more prompts were not compared (--json lists them).")


def _logit_columns() -> tuple[Column, ...]:
    return (
        Column("task", "task"),
        Column("prompts", "prompts", "count"),
        Column("same_ids", "same ids", "count"),
        Column("same_prompts", "same as fed", "count"),
        Column("positions", "positions", "count"),
        Column("max_abs", "logits: largest |d|", "number"),
        Column("mean_abs", "mean |d|", "number"),
        Column("kl", "KL, mean", "number"),
        Column("max_kl", "KL, largest", "number"),
        Column("top_agreement", "same top token %", "percent"),
    )


def _answer_columns() -> tuple[Column, ...]:
    return (
        Column("task", "task"),
        Column("compared", "answered by both", "count"),
        Column("same_outputs", "same", "count"),
        Column("median_first_difference", "first differing token, median", "number", optional=True),
        Column("median_gap", "logit gap at that token, median", "number", optional=True),
        Column("max_gap", "largest", "number", optional=True),
        Column("metric", "metric", optional=True),
        Column("score_first", "first", "percent", optional=True),
        Column("score_second", "second", "percent", optional=True),
        Column("difference", "points", "points", optional=True),
    )


def _exit_if_above(parity: Measured, max_difference: float | None) -> None:
    if max_difference is None:
        return
    if reason := explain_excess(parity, max_difference):
        note(f"Not the same within {max_difference:g}: {reason}.")
        raise typer.Exit(ExitCode.FAILED)
    note(f"The same within {max_difference:g}.")
