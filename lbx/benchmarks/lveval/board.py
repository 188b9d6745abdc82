"""LV-Eval's board: a part for all datasets and one for each, a column a level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lbx.benchmarks.base.board import MODE, Board, Boards, Entry, Heat, Lines, Number, Part, Text
from lbx.benchmarks.lveval.tasks import DATASETS, LEVELS

_ALL, _OVERALL = "all", "overall: average"
_OF_LEVELS = {level: f"length {level}: average" for level in LEVELS}
_COLUMNS = {level: level for level in LEVELS}


def _completed(entry: Entry) -> Entry:
    """With the means that it has the parts of. The mean of all is ours, and never official: it is whole where every
    level's is.
    """
    if entry.run_id is None:
        return replace(entry, figures={**_means(entry.figures), **entry.figures})
    levels = set(_OF_LEVELS.values())
    whole = levels <= entry.figures.keys() and not levels & entry.open
    return replace(entry, open=entry.open - {_OVERALL}) if whole else entry


def _means(figures: Mapping[str, float]) -> dict[str, float]:
    """The averages of a published model by level, by dataset and of all, where no task of them lacks."""
    cells = {line: value for line, value in figures.items() if line.rpartition("_")[2] in LEVELS}
    datasets = dict.fromkeys(line.rpartition("_")[0] for line in cells)
    wanted = {
        **{line: [f"{dataset}_{level}" for dataset in datasets] for level, line in _OF_LEVELS.items()},
        **{f"dataset {dataset}: average": [f"{dataset}_{level}" for level in LEVELS] for dataset in datasets},
        _OVERALL: [f"{dataset}_{level}" for dataset in datasets for level in LEVELS],
    }
    return {
        line: round(sum(cells[task] for task in tasks) / len(tasks), 2)
        for line, tasks in wanted.items()
        if tasks and cells.keys() >= set(tasks)
    }


def _part(dataset: str, line: str, mean: str) -> Part:
    return Part({**{level: line.format(level=level) for level in LEVELS}, "mean": mean}, texts={"dataset": dataset})


BOARDS = Boards(
    {
        "board_lveval": Board(
            "LV-Eval: by dataset and level, with the means of both (percent)",
            (MODE, *(Number(level, level, across=True) for level in LEVELS), Number("mean", "mean")),
            [
                _part(_ALL, "length {level}: average", _OVERALL),
                *(_part(name, f"{name}_{{level}}", f"dataset {name}: average") for name in DATASETS),
            ],
            first=(Text("dataset", "dataset"),),
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
