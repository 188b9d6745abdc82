"""LongBench v2's tables: difficulty, length and domain, the leaderboard plain and with CoT, and published figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lbx.base.columns import Column, number_column
from lbx.base.number_key import OVERALL, NumberKey, group_number
from lbx.benchmarks.base.layout import (
    MODE,
    Board,
    BoardEntry,
    BoardPart,
    BoardRow,
    Boards,
    CsvRow,
    ModelDotChart,
    Paper,
    PublishedFigures,
    TableCell,
    best_of,
    first_value,
)

NUMBERS = {
    "overall": group_number(OVERALL, metric="accuracy"),
    **{name: group_number("difficulty", name, metric="accuracy") for name in ("easy", "hard")},
    **{name: group_number("length", name, metric="accuracy") for name in ("short", "medium", "long")},
}
"""{column of the leaderboard: its number}"""


def _figures(row: CsvRow) -> list[tuple[str, NumberKey, str]]:
    return [(row["model"], key, row[column]) for column, key in NUMBERS.items()]


# Files of published figures have a row for each model: benchmark,model,overall,easy,hard,short,medium,long
PUBLISHED = PublishedFigures(
    columns=tuple(NUMBERS),
    figures=_figures,
    several_rows=False,
    means=(
        (NUMBERS["overall"], {NUMBERS["easy"]: 192, NUMBERS["hard"]: 311}),
        (NUMBERS["overall"], {NUMBERS["short"]: 180, NUMBERS["medium"]: 215, NUMBERS["long"]: 108}),
    ),
)


def _table_cell(key: NumberKey) -> TableCell | None:
    if not key.grouping:
        return None  # the groups repeat it
    return TableCell("domain" if key.grouping == "domain" else "overall", key.metric, key.name)


PAPER = Paper(
    {"overall": "LongBench v2: difficulty and length", "domain": "LongBench v2: domains"},
    _table_cell,
    averages=(("overall", "accuracy"),),
)


_ATTRIBUTES: Mapping[str, Callable[[BoardEntry], object]] = {
    "params": lambda entry: entry.describe("params"),
    "context": lambda entry: entry.describe("context") or entry.window,
    "date": lambda entry: entry.describe("date"),
}


def _overall(row: BoardRow) -> float | None:
    plain, with_cot = best_of("overall")(row), best_of("overall_cot")(row)
    return plain if with_cot is None else with_cot


BOARDS = Boards(
    {
        "board_longbench_v2": Board(
            "LongBench v2: leaderboard (accuracy in percent, plain and with CoT; by Overall with CoT)",
            (
                MODE,
                *(
                    Column(name, name.title(), value=first_value(describe), optional=True, rank=2)
                    for name, describe in _ATTRIBUTES.items()
                ),
                *(
                    number_column(f"{part}{cot}", f"{part.title()}{' w/ CoT' if cot else ''}", across=True)
                    for part in NUMBERS
                    for cot in ("", "_cot")
                ),
            ),
            [BoardPart(NUMBERS, {f"{part}_cot": key for part, key in NUMBERS.items()})],
            by=_overall,
            pairs_modes=True,
            keeps_empty=True,
            charts=[
                ModelDotChart(
                    "LongBench v2: Overall, percent; plain, and with CoT below it",
                    "as in the table",
                    {"overall": "", "overall_cot": "w/ CoT"},
                )
            ],
        )
    },
    reference_models=("Human", "Random"),
)
