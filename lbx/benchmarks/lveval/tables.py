"""LV-Eval's tables: datasets by length level, with their means, and published figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lbx.base.columns import Column, number_column
from lbx.base.number_key import OVERALL, NumberKey, group_number, task_number
from lbx.benchmarks.base.layout import (
    MODE,
    Board,
    Boards,
    CsvRow,
    Entry,
    Heat,
    Lines,
    Paper,
    Part,
    Place,
    PublishedFigures,
)
from lbx.benchmarks.lveval.tasks import DATASETS, LEVELS, split_task


def _figures(row: CsvRow) -> list[tuple[str, NumberKey, str]]:
    return [(row["model"], task_number(f"{row['dataset']}_{row['level']}"), row["score_percent"])]


# Files of published figures have a dataset and level a row: benchmark,model,dataset,level,score_percent
PUBLISHED = PublishedFigures(("dataset", "level", "score_percent"), _figures)


def _place(key: NumberKey) -> Place | None:
    if key.grouping == "length":
        return Place("levels", "average", key.name)
    return Place("levels", key.name, "average") if key.grouping else Place("levels", *split_task(key.name))


PAPER = Paper({"levels": "LV-Eval: datasets by length level"}, _place, averages=(("levels", "average"),))


_ALL = "all"
_OVERALL = group_number(OVERALL, metric="average")
_OF_LEVELS = {level: group_number("length", level, metric="average") for level in LEVELS}
_OF_DATASETS = {name: group_number("dataset", name, metric="average") for name in DATASETS}
_COLUMNS = {level: level for level in LEVELS}


def _completed(entry: Entry) -> Entry:
    """Add the means of an entry that has their parts.

    The mean of all is lbx's own, and never official: it is whole if every level's is.
    """
    if entry.run_id is None:
        return replace(entry, figures={**_means(entry.figures), **entry.figures})
    levels = set(_OF_LEVELS.values())
    whole = levels <= entry.figures.keys() and not levels & entry.open
    return replace(entry, open=entry.open - {_OVERALL}) if whole else entry


def _means(figures: Mapping[NumberKey, float]) -> dict[NumberKey, float]:
    """Return the averages of a published model by level, by dataset and of all, if none of their tasks is missing."""
    cells = {split_task(key.task): value for key, value in figures.items() if split_task(key.task)[1] in LEVELS}
    datasets = dict.fromkeys(dataset for dataset, _ in cells)
    parts = {
        **{key: [(dataset, level) for dataset in datasets] for level, key in _OF_LEVELS.items()},
        **{_OF_DATASETS[name]: [(name, level) for level in LEVELS] for name in datasets if name in _OF_DATASETS},
        _OVERALL: [(dataset, level) for dataset in datasets for level in LEVELS],
    }
    return {
        key: round(sum(cells[cell] for cell in needed) / len(needed), 2)
        for key, needed in parts.items()
        if needed and cells.keys() >= set(needed)
    }


def _part(dataset: str, levels: Mapping[str, NumberKey], mean: NumberKey) -> Part:
    return Part({**levels, "mean": mean}, texts={"dataset": dataset})


BOARDS = Boards(
    {
        "board_lveval": Board(
            "LV-Eval: by dataset and level, with the means of both (percent)",
            (MODE, *(number_column(level, level, across=True) for level in LEVELS), number_column("mean", "mean")),
            [
                _part(_ALL, _OF_LEVELS, _OVERALL),
                *(
                    _part(name, {level: task_number(f"{name}_{level}") for level in LEVELS}, mean)
                    for name, mean in _OF_DATASETS.items()
                ),
            ],
            first=(Column("dataset", "dataset"),),
            ordered_by=_OVERALL,
            charts=[
                Lines(
                    "LV-Eval: mean over the datasets by level, percent",
                    "Five lengths",
                    _COLUMNS,
                    by="dataset",
                    only=_ALL,
                ),
                Heat("LV-Eval: {} by dataset and level, percent", "datasets", _COLUMNS, by="dataset", only=_ALL),
            ],
        )
    },
    completed=_completed,
)
