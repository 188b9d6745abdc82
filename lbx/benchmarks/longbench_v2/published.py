"""What is published of LongBench v2. Other files have a model a row:

benchmark,model,overall,easy,hard,short,medium,long
"""

from __future__ import annotations

from lbx.base.number_key import OVERALL, NumberKey, group_number
from lbx.benchmarks.base.published import PublishedFigures, Row

NUMBERS = {
    "overall": group_number(OVERALL, metric="accuracy"),
    **{name: group_number("difficulty", name, metric="accuracy") for name in ("easy", "hard")},
    **{name: group_number("length", name, metric="accuracy") for name in ("short", "medium", "long")},
}
"""{column of the leaderboard: its number}"""


def _figures(row: Row) -> list[tuple[str, NumberKey, str]]:
    return [(row["model"], key, row[column]) for column, key in NUMBERS.items()]


PUBLISHED = PublishedFigures(
    columns=tuple(NUMBERS),
    figures=_figures,
    several_rows=False,
    means=(
        (NUMBERS["overall"], {NUMBERS["easy"]: 192, NUMBERS["hard"]: 311}),
        (NUMBERS["overall"], {NUMBERS["short"]: 180, NUMBERS["medium"]: 215, NUMBERS["long"]: 108}),
    ),
)
