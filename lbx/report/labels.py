"""What a run is called wherever people read of it: one rule for tables in every format, charts, the page and exports.

A run is its model, and how it was asked where not in the plain way ("M (cot)"). Where runs that stand beside each other
would be called alike, what tells them apart stands in the parentheses: the backend, the settings that differ, or else
the run's own name. No two runs of a table have one label, and none is a run's name alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from lbx.scoring.scored import named
from lbx.store import Store, Table

Row = Mapping[str, Any]

LABELS = {
    "run_id": "label",
    "run_a": "label_a",
    "run_b": "label_b",
    "against": "label_against",
    "against_run_id": "label_against",
}
"""{column of a report that names a run: the column of its label}."""


def labels(runs: Iterable[Row]) -> dict[str, str]:
    """{run: its label} among these.

    Args:
        runs: ``run_id`` and ``model``, and where they are known ``mode``, ``backend`` and ``differs_in``.
    """
    rows = {row["run_id"]: row for row in runs}
    ways = [
        [_label(row, row.get("mode")) for row in rows.values()],
        [_label(row, row.get("mode"), row.get("backend")) for row in rows.values()],
        [_label(row, row.get("differs_in") or row["run_id"]) for row in rows.values()],
        [_label(row, row["run_id"]) for row in rows.values()],
    ]
    counts = [Counter(way) for way in ways]
    differing = {
        run: next((way[at] for way, count in zip(ways, counts, strict=True) if count[way[at]] == 1), run)
        for at, run in enumerate(rows)
    }
    alike = Counter(differing.values())  # a model may be called as another run's label is
    return {run: label if alike[label] == 1 else f"{label} [{run}]" for run, label in differing.items()}


def _label(row: Row, *what: str | None) -> str:
    text = ", ".join(dict.fromkeys(filter(None, what)))
    return f"{row['model']} ({text})" if text else str(row["model"])


def labelled(store: Store, table: Table, among: Collection[str] = ()) -> Table:
    """A report's rows with the labels of the runs that they name; ``run``, which is a label, is set to it.

    Args:
        among: runs that are shown beside these, as on a page.
    """
    columns = [name for name in LABELS if name in table.columns]
    if not columns:
        return table
    who = named(store)
    places = [table.columns.index(name) for name in columns]
    held = {str(row[place]) for row in table.rows for place in places if row[place] is not None}
    shown = labels(who[run] for run in sorted(held.union(among)) if run in who)
    made = Table(
        [*table.columns, *(LABELS[name] for name in columns)],
        [(*row, *(shown.get(row[place], row[place]) for place in places)) for row in table.rows],
    )
    if "run" not in table.columns:
        return made
    rows = made.dicts()
    for row in rows:
        if row["run_id"] is not None:
            row["run"] = f"{row['label']}{_part(row['run'])}"
    return Table(made.columns, [tuple(row.values()) for row in rows])


def labelled_models(store: Store, table: Table) -> Table:
    """The same of a board: a row may be two runs', or a published model's, and a name may say how it was asked."""
    rows = table.dicts()
    keys = [row["run_id"] or row.get("reasoning_run_id") for row in rows]
    who = named(store)
    runs = {run: who[run] | {"model": row["model"]} for row, run in zip(rows, keys, strict=True) if run}
    shown = labels(row if row["model"] == who[run]["model"] else row | {"mode": None} for run, row in runs.items())
    for row, run in zip(rows, keys, strict=True):
        row["label"] = shown[run] if run else row["model"]
    return _with(table, rows, ["label"])


def _part(run: str) -> str:
    """Of "M (3 of 269 samples)" what is behind the name."""
    _, bracket, rest = run.rpartition(" (")
    return f"{bracket}{rest}" if rest.endswith(" samples)") else ""


def _with(table: Table, rows: Sequence[Row], more: Sequence[str]) -> Table:
    columns = [*table.columns, *more]
    return Table(columns, [tuple(row.get(name) for name in columns) for row in rows])
