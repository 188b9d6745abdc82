"""What headings say of runs that go on while their file is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from lbx.report.labels import labels
from lbx.report.sheets import Sheet
from lbx.scoring.scored import named
from lbx.store import Store
from lbx.store.sessions import progress_of_runs


def progress(store: Store, runs: Collection[str] = ()) -> str:
    """As in "running, 212 of 643", with the run's label where the file holds others; "" where no run goes on.

    Args:
        runs: only these; () for all.
    """
    going_on = progress_of_runs(store)
    if not going_on:
        return ""
    rows = [row for row in named(store).values() if not runs or row["run_id"] in runs]
    if len(rows) == 1:
        return going_on.get(rows[0]["run_id"], "")
    label_of = labels(rows)
    return "; ".join(f"{label_of[run]} {how_far}" for run, how_far in going_on.items() if run in label_of)


def headed(sheets: Iterable[Sheet], progress: str) -> list[Sheet]:
    """The sheets, whose titles say how far runs are."""
    return [replace(sheet, title=headline(sheet.title, progress)) for sheet in sheets]


def headline(title: str, progress: str) -> str:
    return f"{title}: {progress}" if title and progress else title
