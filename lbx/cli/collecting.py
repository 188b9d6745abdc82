"""What ``lbx rate --collect`` does: it needs no library of pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lbx.cli.output import note
from lbx.judging.people.collecting import collect


def collect_ratings(results: Path, journals: Sequence[Path]) -> None:
    """See ``lbx rate --collect``."""
    found = collect(results, journals)
    if found.torn:
        note(f"A line that was cut off when lbx was killed, and never shown as saved, is now in {found.torn}.")
    for path, raters in found.spoke_for.items():
        who = ", ".join(f"{rater} ({lines:,})" for rater, lines in sorted(raters.items()))
        note(f"{path} speaks for {who or 'nobody'}; nothing shows that these people wrote it.")
    note(f"Moved into {results}: {found.ratings:,} ratings and revisions.")
