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
from lbx.benchmarks.base.layout import BoardEntry, IntervalValues, file_names
from lbx.benchmarks.registry import BENCHMARKS, unit_of
from lbx.report.expecting import answer_counts
from lbx.report.labels import number_label
from lbx.report.reference import PublishedModel, find_published, load_published
from lbx.report.report_types import ReportQuery
from lbx.store import Store
from lbx.store.imports import harness_of
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


def entries(store: Store, query: ReportQuery, benchmark: str) -> list[BoardEntry]:
    """Entries for the benchmark's runs, then for the requested published models and the models that are always shown.

    Raises:
        UsageError: no benchmark of the file has a requested model.
    """
    runs = [run for run in _run_entries(store, benchmark) if not query.runs or run.run_id in query.runs]
    if not runs:
        return []
    boards = BENCHMARKS[benchmark].boards
    published_models = find_published(store, query) if query.models or query.references else []
    if boards.reference_models:
        published_models += [
            model
            for model in load_published()
            if model.model in boards.reference_models and model not in published_models
        ]
    models = runs + [_published_entry(model) for model in published_models if model.benchmark == benchmark]
    return [boards.complete_entry(model) for model in models]


_READ: WeakKeyDictionary[Store, dict[str, list[BoardEntry]]] = WeakKeyDictionary()
"""Runs of read-only files by benchmark, cached because seven boards share them."""


def _run_entries(store: Store, benchmark: str) -> list[BoardEntry]:
    cached_entries = _READ.setdefault(store, {}) if store.read_only else {}
    if benchmark not in cached_entries:
        runs = store.query(_RUNS, [benchmark]).dicts()
        numbers: dict[str, list[dict[str, Any]]] = {}
        for row in store.query(_NUMBERS, [benchmark]).dicts() if runs else ():
            numbers.setdefault(row["run_id"], []).append(row)
        sample_counts = answer_counts(store) if runs else {}
        closed_shares = {
            run_id: _coverage_text(*counts) for run_id, *counts in store.query(_CLOSED, [benchmark]).rows if runs
        }
        cached_entries[benchmark] = [
            _run_entry(run, benchmark, numbers.get(run["run_id"], []), sample_counts, closed_shares) for run in runs
        ]
    return cached_entries[benchmark]


def _run_entry(
    run: Mapping[str, Any],
    benchmark: str,
    numbers: Iterable[Mapping[str, Any]],
    sample_counts: Mapping[tuple[str, str, str | None], tuple[int, int]],
    closed_shares: Mapping[str, str | None],
) -> BoardEntry:
    unit = unit_of(benchmark)
    settings, metadata = _object(run["settings"]), _object(run["metadata"])
    figures: dict[NumberKey, float] = {}
    sure: dict[NumberKey, IntervalValues] = {}
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
    note = _coverage_text(*sample_counts.get((run["run_id"], benchmark, None), (0, 0))) or _coverage_text(
        *_least_complete(incomplete)
    )
    if (harness := harness_of(settings)) and harness.unofficial_tasks:
        note = "; ".join(filter(None, (note, f"asked by {harness.title}")))
    if run["status"] == "running":
        note = "; ".join(filter(None, ("running", note)))
    mode = run["mode"] or ""
    return BoardEntry(
        run["model"], run["run_id"], run["backend"],
        mode=run["mode"], mode_without_reasoning=re.sub(r"\b(no thinking|thinking|cot)\b", "", mode).strip() or None,
        differs_in=run["differs_in"],
        reasons=bool(re.search(r"(?<!no )\bthinking\b|\bcot\b", mode)) or _is_reasoning_file(settings),
        attributes={**settings, "made": run["backend"] != "import", "metadata": metadata},
        figures=figures, unofficial=frozenset(lacking), intervals=sure,
        cluster_by="sample" if "sample" in clusters else next(filter(None, clusters), None), note=note,
        remark=f"reasoning closed in {part}" if (part := closed_shares.get(run["run_id"])) else None,
    )  # fmt: skip


def _least_complete(parts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """(answered, asked) of the part with the most samples asked; of several, the one with the fewest answered."""
    return max(parts, key=lambda part: (part[1], -part[0]), default=(0, 0))


def _coverage_text(some: int, every: int) -> str | None:
    return f"{some:,} of {every:,}" if some < every else None


def _object(text: str | None) -> dict[str, Any]:
    value = json.loads(text or "{}")
    return value if isinstance(value, dict) else {}


def _is_reasoning_file(settings: Mapping[str, Any]) -> bool:
    return any(re.search(r"(?<!non)thinking", name) for name in file_names(settings))


@cache
def _keys_by_label(benchmark: str) -> dict[str, NumberKey]:
    """Keys of a benchmark's board numbers by their labels in files of published figures."""
    boards = BENCHMARKS[benchmark].boards.tables.values()
    parts = [part for board in boards for part in board.parts]
    keys = {key for part in parts for key in (*part.numbers.values(), *part.reasoning_numbers.values())}
    return {number_label(key): key for key in keys}


Pair = tuple[BoardEntry | None, BoardEntry | None]
"""(plain, reasoning) entries of a model; None if missing."""

_REASONING = re.compile(r" \((?:w/ CoT|thinking)\)")
_PLAIN = re.compile(r" \(nonthinking\)")


def _published_entry(model: PublishedModel) -> BoardEntry:
    """Build the entry of a published model, with the mode removed from its name so that both modes share a row."""
    keys = _keys_by_label(model.benchmark)
    return BoardEntry(
        _PLAIN.sub("", _REASONING.sub("", model.model)) + "*",
        reasons=bool(_REASONING.search(model.model)),
        attributes={**model.about, "published": model.model},
        figures={keys.get(label, task_number(label)): figure.value for label, figure in model.figures.items()},
        note=model.doubt,
    )


def pair_entries(models: Iterable[BoardEntry], always: Collection[str] = ()) -> list[Pair]:
    """Pair plain and reasoning entries of each model; duplicates get rows of their own.

    Args:
        always: published models that fill both sides.
    """
    rows: list[tuple[tuple[object, ...], list[BoardEntry | None]]] = []
    for entry in models:
        key = (entry.model, entry.run_id is None, entry.backend, entry.mode_without_reasoning, entry.differs_in)
        if entry.run_id is None and entry.model.rstrip("*") in always:
            rows.append((key, [entry, entry]))
            continue
        side = int(entry.reasons)
        free = next((pair for other, pair in rows if other == key and pair[side] is None), None)
        if free is None:
            free = [None, None]
            rows.append((key, free))
        free[side] = entry
    return [(pair[0], pair[1]) for _, pair in rows]
