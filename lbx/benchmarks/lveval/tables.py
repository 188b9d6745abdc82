"""LV-Eval's tables: datasets by length level, with their means, and published figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lbx.base.columns import Column, number_column
from lbx.base.number_key import OVERALL, NumberKey, group_number, task_number
from lbx.benchmarks.base.layout import (
    MODE,
    Board,
    BoardEntry,
    BoardPart,
    Boards,
    CsvRow,
    HeatMap,
    LineChart,
    Paper,
    PublishedFigures,
    TableCell,
)
from lbx.benchmarks.lveval.tasks import DATASETS, LEVELS, split_task


def _figures(row: CsvRow) -> list[tuple[str, NumberKey, str]]:
    return [(row["model"], task_number(f"{row['dataset']}_{row['level']}"), row["score_percent"])]


# Files of published figures have a row for each dataset and level: benchmark,model,dataset,level,score_percent
PUBLISHED = PublishedFigures(("dataset", "level", "score_percent"), _figures)


def _table_cell(key: NumberKey) -> TableCell | None:
    if key.grouping == "length":
        return TableCell("levels", "average", key.name)
    return TableCell("levels", key.name, "average") if key.grouping else TableCell("levels", *split_task(key.name))


PAPER = Paper({"levels": "LV-Eval: datasets by length level"}, _table_cell, averages=(("levels", "average"),))


_ALL = "all"
_OVERALL = group_number(OVERALL, metric="average")
_LEVEL_MEANS = {level: group_number("length", level, metric="average") for level in LEVELS}
_DATASET_MEANS = {name: group_number("dataset", name, metric="average") for name in DATASETS}
_COLUMNS = {level: level for level in LEVELS}


def _complete_entry(entry: BoardEntry) -> BoardEntry:
    """Add the means that an entry's figures determine.

    The mean of all is lbx's own, and never official: it is whole if every level's is.
    """
    if entry.run_id is None:
        return replace(entry, figures={**_means(entry.figures), **entry.figures})
    levels = set(_LEVEL_MEANS.values())
    is_complete = levels <= entry.figures.keys() and not levels & entry.unofficial
    return replace(entry, unofficial=entry.unofficial - {_OVERALL}) if is_complete else entry


def _means(figures: Mapping[NumberKey, float]) -> dict[NumberKey, float]:
    """Return a published model's averages by level, by dataset and over all; an average needs all of its tasks."""
    cells = {split_task(key.task): value for key, value in figures.items() if split_task(key.task)[1] in LEVELS}
    datasets = dict.fromkeys(dataset for dataset, _ in cells)
    parts = {
        **{key: [(dataset, level) for dataset in datasets] for level, key in _LEVEL_MEANS.items()},
        **{_DATASET_MEANS[name]: [(name, level) for level in LEVELS] for name in datasets if name in _DATASET_MEANS},
        _OVERALL: [(dataset, level) for dataset in datasets for level in LEVELS],
    }
    return {
        key: round(sum(cells[cell] for cell in needed) / len(needed), 2)
        for key, needed in parts.items()
        if needed and cells.keys() >= set(needed)
    }


def _part(dataset: str, levels: Mapping[str, NumberKey], mean: NumberKey) -> BoardPart:
    return BoardPart({**levels, "mean": mean}, texts={"dataset": dataset})


BOARDS = Boards(
    {
        "board_lveval": Board(
            "LV-Eval: by dataset and level, with the means of both (percent)",
            (MODE, *(number_column(level, level, across=True) for level in LEVELS), number_column("mean", "mean")),
            [
                _part(_ALL, _LEVEL_MEANS, _OVERALL),
                *(
                    _part(name, {level: task_number(f"{name}_{level}") for level in LEVELS}, mean)
                    for name, mean in _DATASET_MEANS.items()
                ),
            ],
            first=(Column("dataset", "dataset"),),
            ordered_by=_OVERALL,
            charts=[
                LineChart(
                    "LV-Eval: mean over the datasets by level, percent",
                    "Five lengths",
                    _COLUMNS,
                    by="dataset",
                    only=_ALL,
                ),
                HeatMap("LV-Eval: {} by dataset and level, percent", "datasets", _COLUMNS, by="dataset", only=_ALL),
            ],
        )
    },
    complete_entry=_complete_entry,
)
