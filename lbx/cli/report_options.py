"""The options of ``lbx report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from lbx.cli.options import ReportFormat
from lbx.report.opinion_reports import OPINIONS
from lbx.report.score_reports import SCORES
from lbx.report.shapes import BOARD

_REPORTS = (*SCORES, *OPINIONS, BOARD)


def _reports(incomplete: str) -> list[str]:
    names: Sequence[str] = _REPORTS
    if incomplete.startswith(BOARD):  # whose tables are the benchmarks' own
        from lbx.report.reports import REPORTS

        names = (*REPORTS, BOARD)
    return [name for name in names if name.startswith(incomplete)]


MaybeResults = Annotated[
    Path | None,
    typer.Argument(help="The results file; published figures (reference) need none.", metavar="RESULTS"),
]
View = Annotated[
    str | None,
    typer.Argument(
        help=f"{', '.join(_REPORTS)} (or one table of it); "
        "default: the file on one screen, or in other formats than table those usually read.",
        autocompletion=_reports,
    ),
]
Format = Annotated[ReportFormat, typer.Option("--format", "-f", help="How to print.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file.")]
Versions = Annotated[
    list[str] | None,
    typer.Option(
        "--metric-version",
        metavar="BENCHMARK=N",
        help="This version's scores instead of the newest ones'. Can be repeated.",
    ),
]
NoInterval = Annotated[
    bool,
    typer.Option("--no-interval", help="Scores alone, without their intervals, as the official scripts print them."),
]
References = Annotated[
    list[Path] | None,
    typer.Option(
        "--reference",
        metavar="CSV",
        help="CSV of published figures, in place of those that lbx has; shown beside the runs in the reports paper and "
        "board, marked with *.",
    ),
]
Against = Annotated[
    list[str] | None,
    typer.Option(
        "--against",
        metavar="MODEL",
        help="These published models beside the runs in the reports paper and board, each by a part of its name.",
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option("--baseline", help="Compare the other runs with this one, by its name or its model's.", metavar="RUN"),
]
Margin = Annotated[
    float,
    typer.Option(
        "--margin", metavar="POINTS", min=0.0, help="The difference, in points, that is none worth speaking of."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Compare runs that were not asked alike; each line says so.")]
Tasks = Annotated[
    list[str] | None,
    typer.Option("--task", metavar="TASK", help="Only this task's changes: leval/tpo. Can be repeated."),
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="The most changes to show.")]
Expected = Annotated[
    list[str] | None,
    typer.Option(
        "--expect",
        metavar="MODEL",
        help="Hold the runs against the figures of this published model, named by a part; exit code 1 where one "
        "differs. Can be repeated.",
    ),
]
Keep = Annotated[
    float | None,
    typer.Option(
        "--keep",
        metavar="SHARE",
        min=0.0,
        max=1.0,
        help="Effective context: the share of the score at the shortest length to keep; default: 0.85.",
    ),
]
AtLeast = Annotated[
    float | None,
    typer.Option(
        "--at-least",
        metavar="SCORE",
        min=0.0,
        max=1.0,
        help="Effective context: the score to have instead, as RULER asks for 0.856.",
    ),
]
AsciiOnly = Annotated[bool, typer.Option("--ascii", help="Tables in ASCII alone; other characters are spelled out.")]
Chars = Annotated[
    int, typer.Option("--chars", min=0, metavar="N", help="HTML: so much of each of an answer's texts is in the page.")
]
