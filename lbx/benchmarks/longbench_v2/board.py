"""LongBench v2's leaderboard: a row a model, plain and with CoT."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lbx.benchmarks.base.board import (
    MODE,
    Board,
    Boards,
    Entry,
    ModelDots,
    Number,
    Part,
    Row,
    Text,
    best_of,
    first_known,
)
from lbx.benchmarks.longbench_v2.published import NUMBERS

_ABOUT: Mapping[str, Callable[[Entry], object]] = {
    "params": lambda one: one.described("params"),
    "context": lambda one: one.described("context") or one.window,
    "date": lambda one: one.described("date"),
}


def _overall(row: Row) -> float | None:
    plain, with_cot = best_of("overall")(row), best_of("overall_cot")(row)
    return plain if with_cot is None else with_cot


BOARDS = Boards(
    {
        "board_longbench_v2": Board(
            "LongBench v2: leaderboard (accuracy in percent, plain and with CoT; by Overall with CoT)",
            (
                MODE,
                *(Text(name, name.title(), first_known(of), optional=True, rank=2) for name, of in _ABOUT.items()),
                *(
                    Number(f"{part}{cot}", f"{part.title()}{' w/ CoT' if cot else ''}", across=True)
                    for part in NUMBERS
                    for cot in ("", "_cot")
                ),
            ),
            [Part(NUMBERS, {f"{part}_cot": key for part, key in NUMBERS.items()})],
            by=_overall,
            paired=True,
            keeps_empty=True,
            charts=[
                ModelDots(
                    "LongBench v2: Overall, percent; plain, and with CoT below it",
                    "as in the table",
                    {"overall": "", "overall_cot": "w/ CoT"},
                )
            ],
        )
    },
    always=("Human", "Random"),
)
