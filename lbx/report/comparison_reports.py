"""Reports that compare runs with each other and with published figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lbx.base.columns import Column
from lbx.base.units import format_count
from lbx.report.report_types import COVERAGE, PUBLISHED, ReportDefinition
from lbx.statistics import LEVEL

if TYPE_CHECKING:
    from lbx.results import Table


def _comparison_notes(table: Table) -> list[str]:
    rows = table.dicts()
    pairs = {(row["run_a"], row["run_b"]) for row in rows}
    texts = (
        "A benchmark's average is one test, uncorrected" if len(pairs) == 1 else "Averages are corrected for the pairs"
    )
    lines = [
        "Samples are paired, each with the mean of its answers. "
        f"{texts}; tasks and groups are corrected for their number (Holm). Verdicts are at the 5% level."
    ]
    return [*lines, *_undecided_notes(rows), *cautions(table)]


def _undecided_notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say why the verdict on a difference is open although its interval excludes 0, once for each reason."""
    reasons: dict[str, None] = {}
    for row in rows:
        low, high, verdict = row.get("low"), row.get("high"), row.get("verdict") or ""
        if low is None or high is None or low <= 0 <= high or not verdict.startswith("undecided"):
            continue
        p, p_holm = row["p"] or 0.0, row["p_holm"] or 0.0
        differing = 1 - round(math.log2(p)) if p else 0
        if p >= LEVEL and row["test"] != "t" and p == 2.0 ** (1 - differing):  # the least p of so few
            reasons[f"the exact test over {format_count(differing, 'document')} cannot go below p = {p:.3g}"] = None
        elif p < LEVEL <= p_holm:
            reasons["p is corrected for the number of comparisons (Holm), intervals are not"] = None
        else:
            reasons["fewer than ten documents differ, so that an exact test decides"] = None
    return [f"An interval may exclude 0 where the verdict is undecided: {'; '.join(reasons)}."] if reasons else []


def _harness_notes(table: Table) -> list[str]:
    notes = {
        "comparable": "comparable: asked like the official script, as far as known",
        "differs": "differs: comparable only with answers under the same conditions",
        "not comparable": "not comparable: another measurement",
        "unknown": "unknown: the files do not record enough",
    }
    rows = table.dicts()
    verdicts = {row["verdict"] for row in rows}
    texts = [text for verdict, text in notes.items() if verdict in verdicts]
    unknowns = Counter(text for row in rows for text in (row["unknown"] or "").split("; ") if text)
    return [
        *([f"Verdicts: {'; '.join(texts)}. Only comparable tasks have an official number."] if texts else []),
        *(f"Unknown for {format_count(count, 'task')}: {text}." for text, count in unknowns.items()),
    ]


def _revisions_notes(table: Table) -> list[str]:
    rows = table.dicts()
    reasons = {
        "changed": "Changed: the same id, but another document, question or choices.",
        "ambiguous": "Ambiguous: several questions with the same content and different references.",
        "unknown": "Unknown: the document or the question is not in the file, as in imports without a bundle.",
        "asked_again": "Asked again: the answers of the same run differ between the files.",
    }
    return [
        "Only paired questions are compared.",
        *(note for name, note in reasons.items() if any(row[name] for row in rows)),
    ]


def cautions(table: Table) -> list[str]:
    """Known or possible differences between the compared runs, other than the model."""
    return [f"Caution: {text}." for text in dict.fromkeys(row["caution"] for row in table.dicts()) if text]


COMPARISONS: dict[str, ReportDefinition] = {
    "comparison": ReportDefinition(
        "Runs side by side, on the samples that both answered (percent; points: second minus first)",
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
        takes=("--baseline", "--baseline-file", "--margin", "--force"),
        page=5,
    ),
    "changes": ReportDefinition(
        "Answers that differ between two runs: largest score difference first, then equal scores, different outputs",
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
            Column("output_a", "first output"),
            Column("output_b", "second output"),
            Column("flags_a", "first marks", optional=True, rank=1),
            Column("flags_b", "second marks", optional=True, rank=1),
        ),
        notes=cautions,
        empty="No answers differ: on their common samples, the runs have the same outputs and scores.",
        takes=("--baseline", "--baseline-file", "--force", "--tasks", "--rows"),
    ),
    "revisions": ReportDefinition(
        "Questions of the baseline's file and of this file, paired by document, question and choices",
        "",
        (
            Column("run_a", "baseline"),
            Column("benchmark", "benchmark"),
            Column("task", "task"),
            Column("paired", "paired", "count"),
            Column("only_in_baseline", "only in baseline", "count"),
            Column("only_in_file", "only in this file", "count"),
            Column("changed", "changed", "count"),
            Column("references_changed", "references changed", "count"),
            Column("rules_changed", "rules changed", "count"),
            Column("ambiguous", "ambiguous", "count", rank=1),
            Column("unknown", "unknown", "count", rank=1),
            Column("asked_again", "asked again", "count", rank=1),
        ),
        notes=_revisions_notes,
        empty="No other results file given. Name it with --baseline-file.",
        takes=("--baseline", "--baseline-file"),
    ),
    "reference": ReportDefinition(
        "Published figures for these benchmarks (lines and units of the report paper)",
        "",
        (
            Column("benchmark", "benchmark"),
            Column("line", "task"),
            Column("model", "model"),
            Column("figure", "figure", "number"),
            Column("source", "source", rank=1),
            Column("doubt", "doubt", optional=True),
        ),
        empty="No published figures for these benchmarks.",
        takes=PUBLISHED,
    ),
    "harness": ReportDefinition(
        "Answers from other harnesses: their own score and lbx's (percent; points: lbx's minus theirs)",
        "",
        (
            Column("model", "model"),
            Column("harness", "harness"),
            Column("harness_version", "version", optional=True, rank=3),
            Column("benchmark", "benchmark", rank=4),
            Column("task", "task"),
            Column("task_version", "task version", "quantity", optional=True, rank=3),
            Column("n", "scored", "count", rank=2),
            Column("harness_score", "harness's", "percent"),
            Column("score", "lbx's", "percent"),
            Column("difference", "points", "points"),
            Column("verdict", "verdict"),
            Column("why", "why", optional=True, missing=""),
        ),
        notes=_harness_notes,
        empty="No run was imported from another evaluation harness.",
        reads="numbers",
        page=17,
    ),
    "expected": ReportDefinition(
        "Runs compared with published figures (agrees: in the run's 95% interval, plus or minus half a last digit)",
        "",
        (
            Column("benchmark", "benchmark"),
            Column("line", "task"),
            Column("model", "published model", rank=1),
            Column("figure", "published", "number"),
            Column("run", "run"),
            Column("official", "official", "number", interval=True),
            Column("difference", "difference", "number"),
            Column("verdict", "verdict"),
            Column("why", "why", optional=True),
        ),
        empty="No expected model given. Name a published model with --expect.",
        takes=("--expect", "--reference"),
        reads="coverage",
    ),
}
