"""Reports that compare runs with each other and with published figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbx.base.columns import Column
from lbx.report.shapes import COVERAGE, PUBLISHED, Report

if TYPE_CHECKING:
    from lbx.store import Table


def _comparison_notes(made: Table) -> list[str]:
    rows = made.dicts()
    pairs = {(row["run_a"], row["run_b"]) for row in rows}
    texts = (
        "A benchmark's average is one test, uncorrected" if len(pairs) == 1 else "Averages are corrected for the pairs"
    )
    lines = [
        "Samples are paired, each with the mean of its answers. "
        f"{texts}; tasks and groups are corrected for their number (Holm). Verdicts are at the 5% level."
    ]
    return [*lines, *cautions(made)]


def cautions(made: Table) -> list[str]:
    """Known or possible differences between the compared runs, other than the model."""
    return [f"Caution: {text}." for text in dict.fromkeys(row["caution"] for row in made.dicts()) if text]


COMPARISONS: dict[str, Report] = {
    "comparison": Report(
        "Runs side by side, on the samples that both answered (percent; points: second less first)",
        "",
        (
            Column("run_a", "first run"),
            Column("run_b", "second run"),
            Column("benchmark", "benchmark"),
            Column("task", "task"),
            Column("n", "paired samples", "count"),
            Column("clusters", "clusters", "count", rank=7),
            COVERAGE,
            Column("score_a", "first", "percent", digits_of=""),
            Column("score_b", "second", "percent", digits_of=""),
            Column("difference", "points", "points", interval=True),
            Column("p_holm", "p", "p", rank=3),
            Column("wins", "wins", "count", rank=5),
            Column("ties", "ties", "count", rank=6),
            Column("losses", "losses", "count", rank=5),
            Column("same_outputs", "same outputs", "count", rank=4),
            Column("detectable", "detectable", "percent", rank=2, digits_of=""),
            Column("verdict", "verdict"),
        ),
        notes=_comparison_notes,
        empty="No two runs have answers to the same samples.",
        takes=("--baseline", "--margin", "--force"),
        page=5,
    ),
    "changes": Report(
        "The answers behind a comparison: largest difference first, then other outputs that score alike",
        "",
        (
            Column("run_a", "first run"),
            Column("run_b", "second run"),
            Column("benchmark", "benchmark"),
            Column("task", "task"),
            Column("sample_id", "sample"),
            Column("score_a", "first", "percent"),
            Column("score_b", "second", "percent"),
            Column("difference", "points", "points"),
            Column("question", "question", rank=3),
            Column("references", "references"),
            Column("output_a", "first says"),
            Column("output_b", "second says"),
            Column("flags_a", "first is", optional=True, rank=1),
            Column("flags_b", "second is", optional=True, rank=1),
        ),
        notes=cautions,
        empty="No answer that both runs have differs.",
        takes=("--baseline", "--force", "--tasks", "--rows"),
    ),
    "reference": Report(
        "Published figures of these benchmarks (their lines in the report paper, in its units)",
        "",
        (
            Column("benchmark", "benchmark"),
            Column("line", "task"),
            Column("model", "model"),
            Column("figure", "figure", "number"),
            Column("source", "source", rank=1),
            Column("doubt", "doubt", optional=True),
        ),
        empty="No figures are published of these benchmarks.",
        takes=PUBLISHED,
    ),
    "expected": Report(
        "Runs compared with published figures (agrees: within the run's own 95% interval, give or take half a digit)",
        "",
        (
            Column("benchmark", "benchmark"),
            Column("line", "task"),
            Column("model", "published of", rank=1),
            Column("figure", "published", "number"),
            Column("run", "run"),
            Column("official", "own", "number", interval=True),
            Column("difference", "difference", "number"),
            Column("verdict", "verdict"),
            Column("why", "why", optional=True),
        ),
        empty="Nothing is expected: name a published model by --expect.",
        takes=("--expect", "--reference"),
        reads="coverage",
    ),
}
