"""Labels of runs, shared by tables in every format, charts, the page and exports.

A label names the model and, except for the plain mode, the mode: "M (cot)". The label of a judge names model and
rubric. If runs of a table would get equal labels, the parentheses also contain the fewest settings that distinguish
them, or else the name of the run. Labels are unique within a table.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lbx.base.number import ALL, NumberKey
from lbx.report.format.sheets import Sheet
from lbx.results import Store, Table
from lbx.results.file.sessions import progress_of_runs
from lbx.results.scoring.score_columns import runs_by_id
from lbx.results.views import RUN_COVERAGE

Row = Mapping[str, Any]

LABELS = {
    "run_id": "label",
    "run_a": "label_a",
    "run_b": "label_b",
    "leader": "label_leader",
    "rival": "label_rival",
    "against": "label_against",
    "against_run_id": "label_against",
    "judge_id": "label_judge",
}
"""{column with the name of a run: column with the label of the run}."""
_LONGEST = 24
"""Maximum length of a setting's value in a label. Longer values are hashes and tables."""


def number_label(key: NumberKey) -> str:
    """Label of a score or group mean in tables and files: "qasper", "qasper, rouge1", "domain Law: accuracy"."""
    if key.kind == "task":
        return f"{key.task}, {key.metric}" if key.metric else key.task
    group = "" if key.group == ALL else f" {key.group}"
    return f"{key.grouping}{group}: {key.metric}"


def labels(runs: Iterable[Row]) -> dict[str, str]:
    """Make unique labels of runs: {run: label}.

    Args:
        runs: rows with ``run_id`` and ``model``, and if known ``mode``, ``rubric``, ``backend`` and ``settings``
            (JSON).
    """
    rows = {row["run_id"]: row for row in runs}
    alike: dict[tuple[Any, Any], list[Row]] = {}
    for row in rows.values():
        alike.setdefault((row["model"], _mode(row)), []).append(row)
    words = {run: texts for group in alike.values() for run, texts in _distinguishing_words(group).items()}
    label_of = {run: _label(row, _mode(row), *words[run]) for run, row in rows.items()}
    counts = Counter(label_of.values())  # a model's name may equal another run's label
    return {run: label if counts[label] == 1 else f"{label} [{run}]" for run, label in label_of.items()}


def _mode(run: Row) -> str | None:
    mode = re.sub(r" judge$", ", judge", run.get("mode") or "")  # "no chat template judge"
    return ": ".join(filter(None, (mode, run.get("rubric")))) or None


def _distinguishing_words(runs: Sequence[Row]) -> dict[str, list[str]]:
    """Find words that distinguish runs: {run: the backend, the fewest settings, or else the name of the run}.

    A setting that a run does not store has the default value, and is not named.
    """
    if len(runs) == 1:
        return {runs[0]["run_id"]: []}
    words = {row["run_id"]: _words(row) for row in runs}
    names = sorted({name for run_words in words.values() for name in run_words}, key=_setting_sort_key)
    setting_names: list[str] = []

    def kinds(more: Sequence[str]) -> Counter[tuple[str, ...]]:
        return Counter(
            tuple(run_words.get(name, "") for name in (*setting_names, *more)) for run_words in words.values()
        )

    while len(kinds([])) < len(runs) and names:
        best = max(names, key=lambda name: len(kinds([name])))
        if len(kinds([best])) == len(kinds([])):
            break
        setting_names.append(best)
    counts = kinds([])
    return {
        run: [run_words[name] for name in setting_names if name in run_words]
        if counts[tuple(run_words.get(name, "") for name in setting_names)] == 1
        else [run]
        for run, run_words in words.items()
    }


def _setting_sort_key(name: str) -> tuple[bool, bool, bool, str]:
    """Sort key of equally distinctive settings: settings of the input before settings of the computation."""
    return name != "backend", name.startswith("backend."), name == "seed", name


def _words(run: Row) -> dict[str, str]:
    settings = json.loads(run.get("settings") or "{}")
    words = {"backend": run["backend"]} if run.get("backend") else {}
    for name, value in settings.items() if isinstance(settings, dict) else ():
        text, short = value if isinstance(value, str) else json.dumps(value), name.removeprefix("backend.")
        if value is not None and len(text) <= _LONGEST:
            words[name] = {"true": short, "false": f"no {short}"}.get(text, f"{short} {text}")
    return words


def _label(row: Row, *what: str | None) -> str:
    text = ", ".join(dict.fromkeys(filter(None, what)))
    return f"{row['model']} ({text})" if text else str(row["model"])


def with_labels(store: Store, table: Table, among: Collection[str] = ()) -> Table:
    """Add columns with labels to the rows of a report. A column ``run`` gets the label, and the coverage if partial.

    Args:
        among: runs shown together with these, such as the runs of a page.
    """
    columns = [name for name in LABELS if name in table.columns]
    if not columns:
        return table
    who = runs_by_id(store)
    indices = [table.columns.index(name) for name in columns]
    run_ids = {str(row[index]) for row in table.rows for index in indices if row[index] is not None}
    label_of = labels(who[run] for run in sorted(run_ids.union(among)) if run in who)
    result = Table(
        [*table.columns, *(LABELS[name] for name in columns)],
        [(*row, *(label_of.get(row[index], row[index]) for index in indices)) for row in table.rows],
    )
    if "run" not in table.columns:
        return result
    covered = store.compute_once("covered", lambda: dict(store.query(RUN_COVERAGE).rows))
    rows = result.dicts()
    for row in rows:
        if row["run_id"] is not None:
            coverage = covered.get(row["run_id"])
            row["run"] = f"{row['label']} ({coverage})" if coverage else row["label"]
    return Table(result.columns, [tuple(row.values()) for row in rows])


def with_model_labels(store: Store, table: Table) -> Table:
    """Add labels to the rows of a board, which may be two runs or a published model, with names that state the mode."""
    rows = table.dicts()
    keys = [row["run_id"] or row.get("reasoning_run_id") for row in rows]
    who = runs_by_id(store)
    runs = {run: who[run] | {"model": row["model"]} for row, run in zip(rows, keys, strict=True) if run}
    label_of = labels(row if row["model"] == who[run]["model"] else row | {"mode": None} for run, row in runs.items())
    for row, run in zip(rows, keys, strict=True):
        row["label"] = label_of[run] if run else row["model"]
    return _with_columns(table, rows, ["label"])


def _with_columns(table: Table, rows: Sequence[Row], more: Sequence[str]) -> Table:
    columns = [*table.columns, *more]
    return Table(columns, [tuple(row.get(name) for name in columns) for row in rows])


def progress(store: Store, runs: Collection[str] = ()) -> str:
    """Describe the progress of running runs: "running, 212 of 643", or "" if none is running.

    The text includes labels unless exactly one run is selected.

    Args:
        runs: runs to include, or () for all.
    """
    going_on = progress_of_runs(store)
    if not going_on:
        return ""
    rows = [row for row in runs_by_id(store).values() if not runs or row["run_id"] in runs]
    if len(rows) == 1:
        return going_on.get(rows[0]["run_id"], "")
    label_of = labels(rows)
    return "; ".join(f"{label_of[run]} {how_far}" for run, how_far in going_on.items() if run in label_of)


def with_progress(sheets: Iterable[Sheet], progress: str) -> list[Sheet]:
    """Add the progress of runs to the titles of sheets."""
    return [replace(sheet, title=headline(sheet.title, progress)) for sheet in sheets]


def headline(title: str, progress: str) -> str:
    return f"{title}: {progress}" if title and progress else title
