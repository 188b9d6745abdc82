"""Print how close lbx comes to the official scores: `python tests/golden/table.py`; exit status 1 where it differs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from tests.golden.case import SHARED, Case
from tests.golden.families import Key, all_cases

Counts = dict[str, list[Case]]


def main() -> int:
    """Compare everything and print it; the exit status."""
    console = Console()
    if not console.is_terminal:
        console.width = 120
    compared = all_cases()
    for source, where in (("travels", "travel with the code"), ("shared", "need ../shared")):
        count = sum(len(found) for key, found in compared.items() if key[0] == source)
        console.print(f"{count:,} official numbers that {where}." if count else f"None of those that {where} are here.")
    if not SHARED.is_dir():
        console.print(f"Those on real texts would lie at {SHARED}.", soft_wrap=True)
    return report(console, compared)


def report(console: Console, compared: Mapping[Key, Sequence[Case]]) -> int:
    """One line per benchmark and metric, then their total, then the first of what differs; 1 where anything does."""
    lines: dict[tuple[str, str], Counts] = {}
    total: Counts = {}
    for (_, family, _, metric, kind), found in compared.items():
        lines.setdefault((family, metric), {}).setdefault(kind, []).extend(found)
        total.setdefault(kind, []).extend(found)
    table = Table("benchmark", "metric", title="lbx beside the official scores")
    for heading in ("records", "largest difference", "aggregates", "largest difference"):
        table.add_column(heading, justify="right")
    for (family, metric), counts in lines.items():
        table.add_row(family, metric, *_cells(counts))
    table.add_section()
    table.add_row("total", "", *_cells(total), style="bold")
    console.print(table)
    every = [case for found in total.values() for case in found]
    wrong = [case for case in every if not case.equal]
    for case in wrong[:20]:
        where = f"{case.benchmark}/{case.task} {case.metric} {case.name}"
        console.print(f"{where}: {case.got!r}, officially {case.wanted!r}", soft_wrap=True, markup=False)
    console.print(f"{len(every):,} numbers compared, {len(wrong):,} differ.")
    return 1 if wrong else 0


def _cells(counts: Counts) -> list[str]:
    return [cell for kind in ("records", "aggregates") for cell in _pair(counts.get(kind, ()))]


def _pair(found: Sequence[Case]) -> tuple[str, str]:
    if not found:
        return "", ""
    largest = max(case.difference for case in found)
    return f"{len(found):,}", "0" if largest == 0 else "different" if largest == float("inf") else f"{largest:.1e}"


if __name__ == "__main__":
    sys.exit(main())
