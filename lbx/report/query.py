"""Query of reports: options of ``lbx report`` that select and format rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from lbx.options.common import ROWS, RUN, RUN_FORMS, TASKS
from lbx.options.option import Option

_MARGIN = 1.0
_LIMIT = 50


@dataclass(frozen=True, slots=True)
class ReportQuery:
    """Options that select and format the rows of a report.

    Attributes:
        runs, tasks: Runs and tasks to include, or () for all.
        models: Published models to include, each by a substring of the name, or () for all.
        references: Files with published scores, which replace the scores of the package.
        expected_models: Published models that the runs should reproduce, each by a substring of the name.
        with_published_models: Whether the report ``paper`` includes published models.
        attestation: State of the file's attestation, such as "attested", or "" without one.
        baseline: Run that the others are compared with. If ``baseline_file`` is given, it is a run of that file.
        baseline_file: Another results file with the baseline (see ``lbx.report.rows.revisions``).
        margin: Largest difference that counts as negligible, in points.
        allow_different_settings: Whether to compare runs that differ in prompts or settings.
        keep_share: Share of the score at the shortest length that a longer length must retain, or None for the default.
        keep_score: Score in 0..1 that a longer length must reach, in place of ``keep_share``.
    """

    runs: Annotated[Sequence[str], RUN] = ()
    models: Annotated[
        Sequence[str],
        Option(
            "Also show this published model in the reports paper and board; part of its name is enough.",
            "MODEL",
            ("--published",),
        ),
    ] = ()
    references: Annotated[
        Sequence[Path],
        Option(
            "CSV of published scores to use instead of lbx's; shown next to the runs in the reports paper and board, "
            "marked with *.",
            "CSV",
            ("--reference",),
        ),
    ] = ()
    expected_models: Annotated[
        Sequence[str],
        Option(
            "Check the runs against the scores of this published model, given by a part of its name; exit code 1 if "
            "one differs. Can be repeated.",
            "MODEL",
            ("--expect",),
        ),
    ] = ()
    with_published_models: bool = False
    attestation: str = ""
    without_intervals: Annotated[
        bool,
        Option("Show scores without their intervals, as the official scripts print them.", names=("--no-interval",)),
    ] = False
    baseline: Annotated[
        str, Option(f"Compare the other runs with this run: {RUN_FORMS}.", "RUN", completion="runs")
    ] = ""
    baseline_file: Annotated[
        Path | None,
        Option(
            "The results file with the baseline, perhaps of another revision of the data: questions with equal content "
            "are compared.",
            "FILE",
        ),
    ] = None
    margin: Annotated[
        float,
        Option(f"Largest difference in points that counts as equal; default: {_MARGIN:g}.", "POINTS", minimum=0.0),
    ] = _MARGIN
    allow_different_settings: Annotated[
        bool, Option("Compare runs even if their settings differ; each line notes it.")
    ] = False
    tasks: Annotated[Sequence[str], TASKS] = ()
    limit: Annotated[int, ROWS.with_help(f"changes: show at most N; default: {_LIMIT}.")] = _LIMIT
    keep_share: Annotated[
        float | None,
        Option(
            "Effective context: the share of the score at the shortest length to keep; default: 0.85.",
            "SHARE",
            minimum=0.0,
            maximum=1.0,
        ),
    ] = None
    keep_score: Annotated[
        float | None,
        Option("Effective context: the score to reach instead.", "SCORE", minimum=0.0, maximum=1.0),
    ] = None


ALL = ReportQuery()
PUBLISHED = ("--reference", "--published")
"""Options that add published scores to runs."""
