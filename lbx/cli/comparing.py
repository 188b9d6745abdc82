"""Command ``lbx parity``."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from lbx.backends import ModelCard, resolve_model
from lbx.backends.weights import refuse_embedding
from lbx.base.bundle_folder import Bundle
from lbx.base.columns import Column
from lbx.base.errors import UsageError
from lbx.base.exit_codes import ExitCode
from lbx.base.inputs import read_input
from lbx.base.units import format_count, format_size
from lbx.benchmarks.registry import benchmarks_with
from lbx.cli.error_conversion import reporting_interrupts
from lbx.cli.measure_options import DEFAULT_DEPTH_DOCUMENTS, DEFAULT_PARITY_LIMIT, ParityOptions
from lbx.cli.output import answer, answer_json, note
from lbx.cli.progress import RunBar
from lbx.cli.table_output import show_sheets, show_table
from lbx.options.common import BUNDLE_VARIABLE
from lbx.options.option import changed_options, fields_of
from lbx.options.run_spec import RunSettings, SampleOptions
from lbx.options.sample_selection import select_samples
from lbx.report.format.table_cells import cells, sheet
from lbx.report.report import Report
from lbx.report.rows.depth_parity import DEPTH_PARITY, depth_table, summarise_by_bin
from lbx.report.rows.formats import FORMATS, formats_table
from lbx.results import Store, Table
from lbx.running.depth import Depth, DepthText, compare_by_depth
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

_LARGEST_TEXT = 2**25  # bytes of a text file
_ANSWER_OPTIONS = ("positions", "max_prompt_tokens", "max_new_tokens", "chat", "fail_above")


def compare(options: ParityOptions) -> None:
    if options.depth:
        _compare_by_depth(options)
        return
    if options.texts or options.length:
        raise UsageError("--text and --length choose what --depth reads.", fix="Pass --depth, too.")
    if options.output:
        raise UsageError("A results file stores only comparisons by position.", fix="Pass --depth, too.")
    if len(options.candidates) > 1:
        raise UsageError("Answers are compared of two models at a time.", fix="Give two models, or pass --depth.")
    bundle = options.bundle
    if bundle and not options.task_names and str(bundle) == os.environ.get(BUNDLE_VARIABLE):
        bundle = None
    if (bundle is None) != (not options.task_names):
        raise UsageError("--bundle and --tasks choose the prompts together.", fix="Give both, or neither.")
    opened_bundle = Bundle(bundle) if bundle else None
    names = options.first, *options.candidates
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


def _refuse_unused_options(options: ParityOptions) -> None:
    """Raise UsageError for options that --depth, or --text, does not use."""
    fields = fields_of(ParityOptions)
    changed = set(changed_options(options))
    for reason, names in (
        ("--depth compares distributions, not answers", _ANSWER_OPTIONS),
        ("--text reads files whole, not samples", ("task_names", *fields_of(SampleOptions)) if options.texts else ()),
    ):
        if ignored := [flag for name in names if (flag := fields[name].option_name) in changed]:
            raise UsageError(f"{reason}, so {' and '.join(ignored)} would have no effect.", fix="Leave it out.")


def _compare_by_depth(options: ParityOptions) -> None:
    _refuse_unused_options(options)
    if options.texts and str(options.bundle) == os.environ.get(BUNDLE_VARIABLE):
        options = replace(options, bundle=None)
    if (options.bundle is None) == (not options.texts):
        raise UsageError(
            "--depth reads either the documents of a bundle's tasks, or text files.",
            fix="Pass --bundle and --tasks, or --text.",
        )
    opened_bundle = Bundle(options.bundle) if options.bundle else None
    cards = [_card(name, opened_bundle, options) for name in (options.first, *options.candidates)]
    if opened_bundle is None:
        texts = [DepthText(str(path), _read_text(path)) for path in options.texts]
    else:
        if not options.task_names:
            raise UsageError("--depth needs the tasks with the documents.", fix="Pass --tasks.")
        choice = SampleOptions(**{name: getattr(options, name) for name in fields_of(SampleOptions)})
        if choice.is_unlimited:
            choice = replace(choice, documents=DEFAULT_DEPTH_DOCUMENTS)
        texts = _documents(_prompts(opened_bundle, options.task_names, choice, cards[0]))
    with (
        offline(*(server_address(card) for card in cards)),
        _depth_folder(options.output) as folder,
        RunBar() as bar,
    ):
        result = compare_by_depth(
            [replace(text, max_tokens=options.length or 0) for text in texts],
            lambda: load_model(cards[0], opened_bundle),
            [partial(load_model, card, opened_bundle) for card in cards[1:]],
            folder=folder,
            open_store=partial(Store, options.output) if options.output else nullcontext,
            bundle_digest=opened_bundle.digest if opened_bundle else "",
            progress=lambda model, done, total: bar.on_count(f"Reading with {model}", done, total, "tokens"),
        )
    _show_depth(result, options.output, as_json=options.as_json)


@contextmanager
def _depth_folder(output: Path | None) -> Iterator[Path]:
    """Yield the folder for the reference's distributions, which stays next to the results file after a kill."""
    if output is None:
        with tempfile.TemporaryDirectory(prefix="lbx-depth-") as temporary_folder:
            yield Path(temporary_folder)
        return
    Store.check(output)
    folder = Path(f"{output}.depth")

    def state() -> str:
        if not output.exists():
            return "No text had been read."
        size = format_size(sum(path.stat().st_size for path in folder.glob("*/*.distributions")))
        return f"The texts so far are in {output}, and the reference's distributions in {folder} ({size})."

    with reporting_interrupts(state):
        yield folder
    with suppress(OSError):  # it has the distributions of another comparison
        folder.rmdir()


def _read_text(path: Path) -> str:
    try:
        return read_input(path, _LARGEST_TEXT).decode("utf-8-sig")
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror}.", fix="Give a text file.") from exc
    except UnicodeDecodeError as exc:
        raise UsageError(f"{path} is not UTF-8 text: {exc}.", fix="Give a text file in UTF-8.") from exc


def _documents(prompts: Sequence[ParityPrompt]) -> list[DepthText]:
    """Different documents of the prompts' samples, each named after the first sample."""
    documents: dict[str, str] = {}
    for prompt in prompts:
        if prompt.sample is not None and prompt.sample.context:
            documents.setdefault(prompt.sample.context, str(prompt.key))
    if not documents:
        raise UsageError("The chosen samples have no documents.", fix="Choose other tasks, or pass --text.")
    return [DepthText(name, text) for text, name in documents.items()]


def _show_depth(result: Depth, output: Path | None, *, as_json: bool) -> None:
    if as_json:
        answer_json(json.dumps(_depth_json(result), ensure_ascii=False, indent=2))
    else:
        show_sheets([sheet(FORMATS, formats_table(result.pairs, {})), sheet(DEPTH_PARITY, depth_table(result.pairs))])
    reference = result.pairs[0].row.reference_model
    if result.stored_bytes:
        note(f"The distributions of {reference} took {format_size(result.stored_bytes)} of disk.")
    if result.known_texts:
        note(f"{format_count(result.known_texts, 'text')} had been compared before, and {output} had the numbers.")
    if result.known_servers:
        note(
            f"The numbers of {' and '.join(result.known_servers)} are from an earlier command. lbx cannot see whether "
            "the server computes in another number format since then: give each format a model card with another name."
        )


def _depth_json(result: Depth) -> dict[str, Any]:
    """Return the comparison as JSON: models, bins over texts, and bins of each text."""
    row = asdict(result.pairs[0].row)
    prefix = "reference_"
    return {
        "comparison_id": row["comparison_id"],
        "reference": {name.removeprefix(prefix): row[name] for name in row if name.startswith(prefix)},
        "stored_bytes": result.stored_bytes,
        "candidates": [
            {
                **{name: value for name, value in pair.row.values().items() if not name.startswith(prefix)},
                "bins": summarise_by_bin(pair.bins),
                "texts": [item.values() for item in pair.bins],
            }
            for pair in result.pairs
        ],
    }


def _show_rows(title: str, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
    names = [column.name for column in columns]
    table = Table(names, [tuple(row.get(name) for name in names) for row in rows])
    show_table(title, cells(Report("", title, columns), table))


def _show_parity(result: Measured, names: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        answer_json(json.dumps(to_json(result), ensure_ascii=False, indent=2))
        return
    for which, name, info in zip(("first", "second"), names, (result.first, result.second), strict=True):
        answer(f"{which}: {info.model} ({name}; {info.version}, window {info.context_window:,})")
    rows = [{**task.to_json(), **(task.to_json()["logits"] or {})} for task in summarise_by_task(result)]
    for title, columns in (("Token ids and logits", _logit_columns()), ("Greedy answers", _answer_columns())):
        _show_rows(title, columns, rows)
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
        Column("top_agreement", "same top token %", "percent", decimals=2),
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
