"""HELMET's tables: categories and the average by length, datasets by length, published scores."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from lbx.base.columns import Column, number_column
from lbx.base.errors import StoreError
from lbx.base.number import OVERALL, NumberKey, group_number, task_number
from lbx.base.units import format_count
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
    TaskRating,
)
from lbx.benchmarks.base.predictions import UNOFFICIAL_TASKS
from lbx.benchmarks.helmet.tasks import (
    CATEGORIES,
    DATASETS,
    LENGTHS,
    LONG_QA,
    SUMM,
    TASKS,
    asked_task,
    dataset_of,
    split_task,
)

AVERAGE = "average"
_OVERALL = group_number(OVERALL, metric=AVERAGE)
_LENGTH_MEANS = {label: group_number("length", label, metric=AVERAGE) for label in LENGTHS}
_CATEGORY_MEANS = {
    category: {label: group_number(category, label, metric=AVERAGE) for label in LENGTHS} for category in CATEGORIES
}
_JUDGED = "{} (judge)"
"""Name of a category, or of the average, with a judge's ratings. Files store no such numbers."""
_JUDGED_MEANS = {
    category: {label: group_number(_JUDGED.format(category), label, metric=AVERAGE) for label in LENGTHS}
    for category in (LONG_QA, SUMM)
}
_JUDGED_LENGTH_MEANS = {label: group_number(_JUDGED.format("length"), label, metric=AVERAGE) for label in LENGTHS}
PUBLISHED_JUDGE = "gpt-4o-2024-05-13"
DIGITS = 10
"""Digits of official numbers. The authors' script prints all."""


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


def _missing_notes(entry: BoardEntry, rated_tasks: Collection[str] = ()) -> list[str]:
    """Name the datasets and metrics that the averages of a run lack, at the lengths of the run.

    Args:
        rated_tasks: tasks whose ratings by a judge are part of the averages.
    """
    answered = {split_task(key.task) for key in entry.numbers if key.kind == "task" and not key.metric}
    labels = [label for label in LENGTHS if any(label == other for _, other in answered)]
    found = {name: [label for label in labels if (name, label) in answered] for name in DATASETS}
    missing: list[str] = []
    in_part: dict[str, list[str]] = {}
    for category in CATEGORIES:
        names = [name for name, dataset in DATASETS.items() if dataset.category == category]
        if not any(found[name] for name in names):
            missing.append(category)
            continue
        for name in names:
            metrics = DATASETS[name].model_metrics
            if DATASETS[name].judge_metric:
                rated = [label for label in labels if f"{name}_{label}" in rated_tasks]
                if not rated:
                    missing.append(f"{name} (needs the judge)")
                elif rated != labels:
                    in_part.setdefault(f"rated only at {', '.join(rated)}", []).append(name)
            elif not found[name]:
                missing.append(name)
            elif found[name] != labels:
                in_part.setdefault(f"only at {', '.join(found[name])}", []).append(name)
            if metrics and found[name]:
                missing.append(f"{name} {' and '.join(metrics)} (need a model that is not here)")
    return [
        *([f"averages without {', '.join(missing)}"] if missing else []),
        *(f"{where}: {', '.join(names)}" for where, names in in_part.items()),
    ]


def _limit_notes(entry: BoardEntry) -> Iterator[str]:
    """Name the limits of prompts that made tasks unofficial.

    Of a run with few of the samples none is named, because all tasks are unofficial for that reason.
    """
    settings, served = entry.attributes, ""
    if entry.note or entry.backend == "import":
        return
    if "backend.api" in settings and not settings.get("backend.tokenizer"):
        served = "over the limit sent whole, because the server's card has no [tokenizer]"
    elif settings.get("backend.api") == "chat":
        served = "over the limit cut otherwise than officially, for a server"
    unofficial = {key.task for key in entry.unofficial if key.kind == "task"}
    labels: dict[str, list[str]] = {}
    for task in sorted(unofficial.intersection(TASKS), key=lambda task: LENGTHS[split_task(task)[1]]):
        with suppress(StoreError):
            if limit := asked_task(task, settings).limit_reason or served:
                labels.setdefault(limit, []).append(split_task(task)[1])
    yield from (f"{', '.join(dict.fromkeys(found))} prompts {limit}" for limit, found in labels.items())


def _complete_entry(entry: BoardEntry) -> BoardEntry:
    """Name what a run's averages lack, and add averages with a judge's ratings. Published averages are complete."""
    if entry.run_id is None:
        return entry
    notes = [*([entry.note] if entry.note else []), *_limit_notes(entry)]
    if isinstance(others := entry.attributes.get(UNOFFICIAL_TASKS), dict):
        notes.append(f"files with other settings: {', '.join(f'{task} ({why})' for task, why in others.items())}")
    asked = {key.task for key in entry.numbers if key.kind == "task"}.intersection(TASKS)
    if entry.attributes.get("backend.api") == "chat" and not all(dataset_of(task).chat for task in asked):
        notes.append("chat template in every category, as the authors ask API models")
    rated_tasks, faults = _choose_ratings(entry.ratings)
    notes += faults
    judged_notes = [*notes, *_name_judges(rated_tasks.values())]
    judged_notes += _missing_notes(entry, rated_tasks)
    notes += _missing_notes(entry)
    if rated_tasks:
        notes.append('with ratings: the rows "(judge)"')
    judged = _judged_means(entry, rated_tasks)
    return replace(
        entry,
        numbers={**entry.numbers, **judged},
        unofficial=entry.unofficial | judged.keys(),
        note="; ".join(notes) or None,
        judged_note="; ".join(judged_notes),
    )


def _choose_ratings(ratings: Iterable[TaskRating]) -> tuple[dict[str, TaskRating], list[str]]:
    """Return the ratings of tasks of which one judge rated every answer once, and notes on the other tasks."""
    by_task: dict[str, list[TaskRating]] = {}
    for rating in ratings:
        by_task.setdefault(rating.task, []).append(rating)
    chosen, faults = {}, []
    for task in filter(by_task.__contains__, TASKS):
        first, *others = by_task[task]
        replies = first.n_rounds - first.n_failed
        if others:
            judges = ", ".join(rating.judge for rating in by_task[task])
            faults.append(f"{task} rated by several judges ({judges}), of which none is chosen")
        elif first.n_rounds > first.n_questions:
            faults.append(f"{task} rated more than once by {first.judge}")
        elif replies < first.n_answers:
            faults.append(f"{task} rated in part by {first.judge} ({replies:,} of {first.n_answers:,} answers)")
        else:
            chosen[task] = first
    return chosen, faults


def _name_judges(ratings: Iterable[TaskRating]) -> list[str]:
    names: dict[str, dict[str, int]] = {}
    for rating in ratings:
        left_out = names.setdefault(rating.judge, {})
        name = split_task(rating.task)[0]
        left_out[name] = left_out.get(name, 0) + rating.n_none
    sentences = []
    for judge, left_out in names.items():
        sentence = f"{', '.join(left_out)} rated by {judge} (published: {PUBLISHED_JUDGE})"
        if count := sum(left_out.values()):
            sentence += f", {format_count(count, 'answer')} without a rating left out"
        sentences.append(sentence)
    return sentences


def _judged_means(entry: BoardEntry, rated_tasks: Mapping[str, TaskRating]) -> dict[NumberKey, float]:
    """Averages by category and over the categories, with the ratings of tasks, at each length with ratings."""
    means: dict[NumberKey, float] = {}
    for label in LENGTHS:
        found = {category: entry.numbers.get(keys[label]) for category, keys in _CATEGORY_MEANS.items()}
        for category, keys in _JUDGED_MEANS.items():
            tasks = [f"{name}_{label}" for name, dataset in DATASETS.items() if dataset.category == category]
            if not any(task in rated_tasks for task in tasks):
                continue
            parts = [
                100 * rated_tasks[task].score if task in rated_tasks else entry.numbers[task_number(task)]
                for task in tasks
                if task in rated_tasks or (not dataset_of(task).judge_metric and task_number(task) in entry.numbers)
            ]
            found[category] = means[keys[label]] = round(sum(parts) / len(parts), DIGITS)
            values = [value for value in found.values() if value is not None]
            means[_JUDGED_LENGTH_MEANS[label]] = round(sum(values) / len(values), DIGITS)
    return means


BOARDS = Boards(
    {
        "board_helmet": Board(
            "HELMET: categories by length (percent)",
            (MODE, *(number_column(label, label, across=True) for label in LENGTHS)),
            [
                BoardPart(dict(keys), texts={"category": category})
                for category, keys in {AVERAGE: _LENGTH_MEANS, **_CATEGORY_MEANS}.items()
            ]
            + [
                BoardPart(dict(keys), texts={"category": _JUDGED.format(category)}, has_ratings=True)
                for category, keys in {AVERAGE: _JUDGED_LENGTH_MEANS, **_JUDGED_MEANS}.items()
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
            note=f"The judge {PUBLISHED_JUDGE} and an NLI model scored published models (*). LongQA, Summ, Cite and "
            'the average of a run lack these scores. The rows "(judge)" have ratings by the judge in the note, and are '
            "not official.",
        )
    },
    complete_entry=_complete_entry,
)
