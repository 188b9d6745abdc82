"""Entries of boards, for runs and published models, with numbers by key."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from lbx.base.number_key import NumberKey, task_number
from lbx.benchmarks import BENCHMARKS, unit_of
from lbx.benchmarks.base.layout import Entry, Sure, file_names
from lbx.report.expecting import answered
from lbx.report.labels import number_label
from lbx.report.reference import Published, published, published_beside
from lbx.report.shapes import ReportQuery
from lbx.store import Store
from lbx.store.numbers import key_of
from lbx.store.views import MODE_OF_RUN, NUMBERS_OF_TASKS_AND_GROUPS

_RUNS = f"""
    SELECT r.run_id, r.model, r.backend, {MODE_OF_RUN} AS mode, d.differs_in, r.status, r.settings, r.metadata
    FROM runs r JOIN distinctions d USING (run_id)
    WHERE r.run_id IN (SELECT run_id FROM generations WHERE benchmark = ?)
    ORDER BY r.model, r.backend, r.run_id
"""  # noqa: S608 (our own names)
_NUMBERS = f"SELECT * FROM ({NUMBERS_OF_TASKS_AND_GROUPS}) WHERE benchmark = ? ORDER BY part, place, position"  # noqa: S608
_CLOSED = """
    SELECT run_id, count(*) FILTER (WHERE reasoning_closed IS DISTINCT FROM false), count(*)
    FROM generations WHERE benchmark = ? AND error IS NULL GROUP BY ALL
"""


def entries(store: Store, query: ReportQuery, benchmark: str) -> list[Entry]:
    """Entries for the benchmark's runs, then for the requested published models and those always shown.

    Raises:
        UsageError: no benchmark of the file has a requested model.
    """
    runs = [one for one in _of_runs(store, benchmark) if not query.runs or one.run_id in query.runs]
    if not runs:
        return []
    boards = BENCHMARKS[benchmark].boards
    beside = published_beside(store, query) if query.models or query.references else []
    if boards.always:
        beside += [one for one in published() if one.model in boards.always and one not in beside]
    models = runs + [_of_published(one) for one in beside if one.benchmark == benchmark]
    return [boards.completed(one) for one in models]


_READ: WeakKeyDictionary[Store, dict[str, list[Entry]]] = WeakKeyDictionary()
"""Runs of read-only files by benchmark, cached because seven boards share them."""


def _of_runs(store: Store, benchmark: str) -> list[Entry]:
    known = _READ.setdefault(store, {}) if store.read_only else {}
    if benchmark not in known:
        runs = store.query(_RUNS, [benchmark]).dicts()
        numbers: dict[str, list[dict[str, Any]]] = {}
        for row in store.query(_NUMBERS, [benchmark]).dicts() if runs else ():
            numbers.setdefault(row["run_id"], []).append(row)
        done = answered(store) if runs else {}
        closed = {run_id: _part(*counts) for run_id, *counts in store.query(_CLOSED, [benchmark]).rows if runs}
        known[benchmark] = [_of_run(run, benchmark, numbers.get(run["run_id"], []), done, closed) for run in runs]
    return known[benchmark]


def _of_run(
    run: Mapping[str, Any],
    benchmark: str,
    numbers: Iterable[Mapping[str, Any]],
    done: Mapping[tuple[str, str, str | None], tuple[int, int]],
    closed: Mapping[str, str | None],
) -> Entry:
    unit = unit_of(benchmark)
    settings, metadata = _object(run["settings"]), _object(run["metadata"])
    figures: dict[NumberKey, float] = {}
    sure: dict[NumberKey, Sure] = {}
    lacking, clusters = set(), {}
    incomplete: list[tuple[int, int]] = []
    for row in numbers:
        key = key_of({**row, "run_id": "", "benchmark": ""})
        official, score, counts = row["official"], row["score"], (row["answered"], row["asked"])
        low, high = (None if row[end] is None else unit * row[end] for end in ("low", "high"))
        sure[key] = (low, high, row["method"], row["cluster_by"])
        clusters[row["cluster_by"]] = True
        if None not in counts and counts[0] < counts[1]:
            incomplete.append(counts)
        value = unit * score if official is None and score is not None else official
        if value is not None and math.isfinite(value):  # other programs' files may have any value
            figures[key] = value
        if official is None:
            lacking.add(key)
    # Where all samples have an answer, some answers may have no part in a number.
    note = _part(*done.get((run["run_id"], benchmark, None), (0, 0))) or _part(*_least_complete(incomplete))
    if run["status"] == "running":
        note = "; ".join(filter(None, ("running", note)))
    mode = run["mode"] or ""
    return Entry(
        run["model"], run["run_id"], run["backend"],
        mode=run["mode"], way=re.sub(r"\b(no thinking|thinking|cot)\b", "", mode).strip() or None,
        differs_in=run["differs_in"],
        reasons=bool(re.search(r"(?<!no )\bthinking\b|\bcot\b", mode)) or _said_by_file(settings),
        about={**settings, "made": run["backend"] != "import", "metadata": metadata},
        figures=figures, open=frozenset(lacking), sure=sure,
        cluster_by="sample" if "sample" in clusters else next(filter(None, clusters), None), note=note,
        remark=f"reasoning closed in {part}" if (part := closed.get(run["run_id"])) else None,
    )  # fmt: skip


def _least_complete(parts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """The (answered, asked) with most samples asked, and of these with fewest answered."""
    return max(parts, key=lambda part: (part[1], -part[0]), default=(0, 0))


def _part(some: int, every: int) -> str | None:
    return f"{some:,} of {every:,}" if some < every else None


def _object(text: str | None) -> dict[str, Any]:
    value = json.loads(text or "{}")
    return value if isinstance(value, dict) else {}


def _said_by_file(settings: Mapping[str, Any]) -> bool:
    """Whether the name of an imported file indicates reasoning."""
    return any(re.search(r"(?<!non)thinking", name) for name in file_names(settings))


@cache
def _keys_by_label(benchmark: str) -> dict[str, NumberKey]:
    """Keys of a benchmark's board numbers, by their labels in files of published figures."""
    boards = BENCHMARKS[benchmark].boards.tables.values()
    parts = [part for board in boards for part in board.parts]
    keys = {key for part in parts for key in (*part.numbers.values(), *part.reasoned.values())}
    return {number_label(key): key for key in keys}


Pair = tuple[Entry | None, Entry | None]
"""Plain and reasoning entries of a model."""

_REASONING = re.compile(r" \((?:w/ CoT|thinking)\)")
_PLAIN = re.compile(r" \(nonthinking\)")


def _of_published(one: Published) -> Entry:
    """Build the entry of a published model, with the mode removed from its name so that both modes share a row."""
    keys = _keys_by_label(one.benchmark)
    return Entry(
        _PLAIN.sub("", _REASONING.sub("", one.model)) + "*",
        reasons=bool(_REASONING.search(one.model)),
        about={**one.about, "published": one.model},
        figures={keys.get(label, task_number(label)): figure.value for label, figure in one.figures.items()},
        note=one.doubt,
    )


def paired(models: Iterable[Entry], always: Collection[str] = ()) -> list[Pair]:
    """Pair plain and reasoning entries of each model; duplicates get rows of their own.

    Args:
        always: published models that fill both sides.
    """
    rows: list[tuple[tuple[object, ...], list[Entry | None]]] = []
    for one in models:
        key = (one.model, one.run_id is None, one.backend, one.way, one.differs_in)
        if one.run_id is None and one.model.rstrip("*") in always:
            rows.append((key, [one, one]))
            continue
        side = int(one.reasons)
        free = next((pair for other, pair in rows if other == key and pair[side] is None), None)
        if free is None:
            free = [None, None]
            rows.append((key, free))
        free[side] = one
    return [(pair[0], pair[1]) for _, pair in rows]
