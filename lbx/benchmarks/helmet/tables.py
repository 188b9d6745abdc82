"""HELMET's tables: categories and the average by length, datasets by length, published scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lbx.base.columns import Column, number_column
from lbx.base.number import OVERALL, NumberKey, group_number
from lbx.benchmarks.base.paper_tables import (
    MODE,
    Board,
    BoardEntry,
    BoardPart,
    Boards,
    LineChart,
    Paper,
    PublishedScoreFormat,
    TableCell,
)
from lbx.benchmarks.base.predictions import UNOFFICIAL_TASKS
from lbx.benchmarks.helmet.tasks import CATEGORIES, DATASETS, LENGTHS, prompt_limit, split_task

AVERAGE = "average"
_OVERALL = group_number(OVERALL, metric=AVERAGE)
_LENGTH_MEANS = {label: group_number("length", label, metric=AVERAGE) for label in LENGTHS}
_CATEGORY_MEANS = {
    category: {label: group_number(category, label, metric=AVERAGE) for label in LENGTHS} for category in CATEGORIES
}


def _table_cell(key: NumberKey) -> TableCell | None:
    if not key.grouping:
        return TableCell("datasets", *split_task(key.name))
    row = AVERAGE if key.grouping in ("length", OVERALL) else key.grouping
    return TableCell("categories", row, "mean" if key.grouping == OVERALL else key.name)


PAPER = Paper(
    {"categories": "HELMET: categories by length", "datasets": "HELMET: datasets by length"},
    _table_cell,
    averages=(("categories", AVERAGE),),
)

PUBLISHED = PublishedScoreFormat(
    means=[
        (mean, {_CATEGORY_MEANS[category][label]: 1 for category in CATEGORIES})
        for label, mean in _LENGTH_MEANS.items()
    ],
    lengths={tokens: _LENGTH_MEANS[label] for label, tokens in LENGTHS.items()},
)
"""Checks of published scores. Columns of lbx/benchmarks/published/helmet.csv are lines of the report ``paper``."""


def missing_parts(entry: BoardEntry) -> list[str]:
    """Datasets and metrics that the averages of a run lack, at the lengths of the run."""
    answered = {split_task(key.task) for key in entry.numbers if key.kind == "task" and not key.metric}
    labels = {label for _, label in answered}
    missing = []
    for name, dataset in DATASETS.items():
        if dataset.judge_metric:
            missing.append(f"{name} (needs the judge)")
        elif absent := [label for label in LENGTHS if label in labels and (name, label) not in answered]:
            missing.append(f"{name} ({', '.join(absent)})" if len(absent) < len(labels) else name)
        elif dataset.model_metrics:
            missing.append(f"{name} {' and '.join(dataset.model_metrics)} (need a model that is not here)")
    return missing


def _limit_notes(entry: BoardEntry) -> Iterator[str]:
    """Name the limits of prompts that made tasks unofficial: --max-prompt-tokens, the window, or a server's."""
    tasks = {key.task for key in entry.unofficial if key.kind == "task"}
    window, most = (entry.attributes.get(name) for name in ("context_window", "max_prompt_tokens"))
    if isinstance(most, int):
        tasks = {task for task in tasks if most != prompt_limit(task)}
        limit = f"limited to {most:,} tokens (--max-prompt-tokens)"
    elif isinstance(window, int) and (cut := {task for task in tasks if window < LENGTHS[split_task(task)[1]]}):
        tasks, limit = cut, f"cut to the window of {window:,} tokens"
    elif entry.attributes.get("backend.api") == "chat" and entry.attributes.get("backend.tokenizer"):
        limit = "over the limit cut otherwise than officially, for a server"
    else:
        return
    labels = {split_task(task)[1] for task in tasks}
    if labels:
        yield f"{', '.join(label for label in LENGTHS if label in labels)} prompts {limit}"


def _complete_entry(entry: BoardEntry) -> BoardEntry:
    """Name what a run's averages lack. Published averages are complete."""
    if entry.run_id is None:
        return entry
    notes = [*([entry.note] if entry.note else []), *_limit_notes(entry)]
    if isinstance(others := entry.attributes.get(UNOFFICIAL_TASKS), dict):
        notes.append(f"files with other settings: {', '.join(f'{task} ({why})' for task, why in others.items())}")
    if missing := missing_parts(entry):
        notes.append(f"averages without {', '.join(missing)}")
    return replace(entry, note="; ".join(notes) or None)


BOARDS = Boards(
    {
        "board_helmet": Board(
            "HELMET: categories by length (percent)",
            (MODE, *(number_column(label, label, across=True) for label in LENGTHS)),
            [
                BoardPart(dict(keys), texts={"category": category})
                for category, keys in {AVERAGE: _LENGTH_MEANS, **_CATEGORY_MEANS}.items()
            ],
            leading_columns=(Column("category", "category"),),
            order_number=_OVERALL,
            charts=[
                LineChart(
                    "HELMET: {}, percent, by length",
                    "Five lengths",
                    {label: label for label in LENGTHS},
                    split_by="category",
                )
            ],
            small_charts=True,
            note="The judge GPT-4o and an NLI model scored published models (*). LongQA, Summ, Cite and the average of "
            "a run lack these scores.",
        )
    },
    complete_entry=_complete_entry,
)
