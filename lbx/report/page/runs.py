"""The sections about the runs themselves: settings, bundle and hardware of each, and what failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lbx.report.page.html import Section, cut, quiet, run_name, table
from lbx.report.page.source import Source
from lbx.report.shapes import Column


def settings(source: Source) -> Section:
    """Every run: settings, bundle, hardware."""
    columns = [Column(name, heading) for name, heading in _RUN_COLUMNS.items()]
    runs = list(source.runs.values())
    body = [[run_name(run.mark, run.label), *(_told(run.row[name]) for name in list(_RUN_COLUMNS)[1:])] for run in runs]
    first = table("Runs", columns, body, marks=[run.mark for run in runs])
    names = sorted({name for run in runs for name in _settings(run.row)})
    rows = [[run_name(run.mark, run.label), *(_told(_settings(run.row).get(name)) for name in names)] for run in runs]
    alike = [i for i in range(1, len(names) + 1) if len({row[i] for row in rows}) == 1]
    same = "; ".join(f"{names[i - 1]} {rows[0][i]}" for i in alike) if len(rows) > 1 else ""
    kept = [i for i in range(len(names) + 1) if not same or i not in alike]
    heads = [Column("run", "run"), *(Column(name, name) for name in names)]
    second = table(
        "Settings",
        [heads[i] for i in kept],
        [[row[i] for i in kept] for row in rows],
        marks=[run.mark for run in runs],
    )
    note = [quiet(f"Alike in all runs: {same}.")] if same else []
    return Section("runs", "Runs, settings and bundles", [first, *note, second])


def failures(source: Source) -> Section | None:
    """What failed, by message."""
    rows = source.failures()
    if not rows:
        return None
    columns = (Column("run", "run"), Column("benchmark", "benchmark"), Column("error", "message"))
    marks = [source.mark_of(row["run_id"]) for row in rows]
    body = [
        [run_name(mark, source.label(row["run_id"])), row["benchmark"], row["error"], f"{row['n']:,}"]
        for row, mark in zip(rows, marks, strict=True)
    ]
    shown = table("Failures by message", [*columns, Column("n", "times", "count")], body, marks=marks)
    return Section("failures", "Failures", [shown])


_RUN_COLUMNS = {
    "label": "run", "run_id": "name", "status": "status", "backend": "backend", "backend_version": "version",
    "bundle_digest": "bundle digest", "lbx_version": "lbx", "started_at": "started (UTC)", "finished_at": "finished",
    "hardware": "hardware",
}  # fmt: skip


def _settings(row: Mapping[str, Any]) -> dict[str, Any]:
    settings = json.loads(row["settings"] or "{}")
    return settings if isinstance(settings, dict) else {}


def _told(value: object) -> str:
    text = "" if value is None else value if isinstance(value, str) else str(value)
    if isinstance(value, datetime):
        text = value.isoformat(" ", "seconds")
    if isinstance(value, (dict, list)):
        text = json.dumps(value, ensure_ascii=False)
    return cut(text, 200)
