"""What is published of LongBench v2. Other files have a model a row:

benchmark,model,overall,easy,hard,short,medium,long
"""

from __future__ import annotations

from lbx.benchmarks.base.published import PublishedFigures, Row

LINES = {
    "overall": "overall: accuracy",
    "easy": "difficulty easy: accuracy",
    "hard": "difficulty hard: accuracy",
    "short": "length short: accuracy",
    "medium": "length medium: accuracy",
    "long": "length long: accuracy",
}
"""{column of the leaderboard: line}"""


def _figures(row: Row) -> list[tuple[str, str, str]]:
    return [(row["model"], line, row[column]) for column, line in LINES.items()]


PUBLISHED = PublishedFigures(
    columns=tuple(LINES),
    figures=_figures,
    several_rows=False,
    means=(
        (LINES["overall"], {LINES["easy"]: 192, LINES["hard"]: 311}),
        (LINES["overall"], {LINES["short"]: 180, LINES["medium"]: 215, LINES["long"]: 108}),
    ),
)
