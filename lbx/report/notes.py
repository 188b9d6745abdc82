"""Sentences below tables that their rows call for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line asks for reports' names, and is not to load DuckDB
    from lbx.store import Table


def comparison(made: Table) -> list[str]:
    """Which tests are corrected for what, and what of the runs is not alike or not known."""
    rows = made.dicts()
    pairs = {(row["run_a"], row["run_b"]) for row in rows}
    said = (
        "A benchmark's average is one test, uncorrected" if len(pairs) == 1 else "Averages are corrected for the pairs"
    )
    found = [f"{said}; tasks and groups are corrected for their number (Holm). Verdicts are at the 5% level."]
    found += [f"Caution: {text}." for text in dict.fromkeys(row["caution"] for row in rows) if text]
    if any(row["cluster_by"] == "sample" for row in rows):
        found.append("Documents are unknown: each sample stands alone, and intervals may be too narrow.")
    return found


def truncation_effect(made: Table) -> list[str]:
    """What the lines can say, and what they cannot."""
    parts = {row["prompts"] for row in made.dicts()}
    found = []
    if "whole less cut, unpaired" in parts:
        found.append("Prompts that are cut are the longer ones: whole less cut is not all the cut's doing.")
    if "unknown" in parts:
        found.append("Whether prompts were cut is unknown of imported answers.")
    if "second less first, paired" in parts:
        found.append("Pairs: the run's score less that of the run against, on samples whose prompt neither cut.")
    return found
