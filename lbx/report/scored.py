"""The scored answers of a results file, as benchmarks add them up, with what else bears on a score beside each."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.aggregates import estimate, mean
from lbx.benchmarks.base import Benchmark
from lbx.records import Sample, ScoredSample, TaskScore
from lbx.statistics.estimates import Interval
from lbx.store import Store, Table
from lbx.store.rows import NO_DOCUMENT

Array = npt.NDArray[Any]

SURE = ("low", "high", "clusters", "cluster_by", "method", "se", "df")
"""The views' columns that say how sure a number is."""
WHO = ("run_id", "model", "backend", "mode", "differs_in")


class Row(NamedTuple):
    """A scored answer, and of its row in ``generations`` what bears on length and cost; None where nobody knows.

    The sample has neither document nor references, which no number needs; the headline is the first of its scores.
    """

    scored: ScoredSample
    original_tokens: int | None
    truncated: bool | None
    reference_cut: bool | None
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    prefill_s: float | None
    decode_s: float | None
    output_hash: int | None


Tasks = Mapping[str, Sequence[Row]]
"""Answers in the data's order by their task, in the paper's order."""

_BESIDE = Row._fields[1:]
_ANSWERS = f"""
    SELECT r.place AS run, a.rowid AS sample, g.iteration, c.headline, m.place AS metric, c.score,
           c.partial IS NOT NULL AS partial, {", ".join(f"g.{column}" for column in _BESIDE[:-1])},
           {{output}} AS output_hash
    FROM newest_scores c
    JOIN generations g USING (run_id, benchmark, task, sample_id, iteration)
    JOIN samples a USING (benchmark, task, sample_id)
    JOIN (SELECT unnest(?::VARCHAR[]) AS run_id, unnest(range(?)) AS place) r USING (run_id)
    JOIN (SELECT unnest(?::VARCHAR[]) AS metric, unnest(range(?)) AS place) m USING (metric)
    WHERE g.error IS NULL AND g.benchmark <> 'judge'
      AND (len(?::VARCHAR[]) = 0 OR list_contains(?::VARCHAR[], g.benchmark))
"""  # noqa: S608 (our own names)
_SAMPLES = f"""
    SELECT rowid, benchmark, task, position, sample_id, question, language, length, length_unit, meta,
           CASE WHEN context_sha256 = '{NO_DOCUMENT}' THEN '' ELSE context_sha256 END AS document
    FROM samples WHERE benchmark <> 'judge'
"""  # noqa: S608 (our own names)


def scored(
    store: Store, runs: Collection[str] = (), benchmarks: Collection[str] = (), *, outputs: bool = False
) -> Mapping[tuple[str, str], Tasks]:
    """{(run, benchmark): its answers that have scores}, runs by name; of some runs and benchmarks, or of all.

    Args:
        outputs: whether ``output_hash`` is wanted, for which every output has to be read.
    """
    names = [name for (name,) in store.query("SELECT run_id FROM runs ORDER BY ALL").rows if not runs or name in runs]
    asked = (names, list(benchmarks), store.query("SELECT getvariable('lbx_metric_versions')::VARCHAR").rows)
    if (kept := _KEPT.get(store)) and kept.asked == asked and kept.outputs >= outputs:
        return kept.found
    found = _read(store, names, list(benchmarks), outputs=outputs)
    if store.read_only:
        _KEPT[store] = _Kept(asked, outputs, found)
    return found


class _Kept(NamedTuple):
    asked: tuple[Any, ...]
    outputs: bool
    found: Mapping[tuple[str, str], Tasks]


_KEPT: WeakKeyDictionary[Store, _Kept] = WeakKeyDictionary()
"""What was last read of a file that nobody writes: a page has several reports of the same answers."""


def _read(
    store: Store, names: Sequence[str], benchmarks: list[str], *, outputs: bool
) -> Mapping[tuple[str, str], Tasks]:
    metrics = [name for (name,) in store.query("SELECT DISTINCT metric FROM scores ORDER BY ALL").rows]
    with _without_collector():
        samples = Samples(store)
        held = store.arrays(
            _ANSWERS.format(output="hash(g.output)" if outputs else "NULL"),
            [names, len(names), metrics, len(metrics), benchmarks, benchmarks],
        )
        held["sample"] = samples.ranks[held["sample"]]
        order = np.lexsort((held["metric"], ~held["headline"], held["iteration"], held["sample"], held["run"]))
        held = {name: column[order] for name, column in held.items()}
        starts = np.append(starts_of(held["run"], held["sample"], held["iteration"]), len(order))
        answers = starts[:-1]
        bounds = [*starts_of(held["run"][answers], samples.tasks[held["sample"][answers]]), len(answers)]
        found: dict[tuple[str, str], dict[str, Sequence[Row]]] = {}
        for begin, end in itertools.pairwise(bounds):
            rows = _rows(held, starts[begin : end + 1], samples, metrics)
            run, sample = names[held["run"][answers[begin]]], rows[0].scored.sample
            found.setdefault((run, sample.benchmark), {})[sample.task] = rows
    return found


def known(benchmark: str) -> Benchmark | None:
    """The benchmark of this name; None where nothing can be called so, as a foreign tool may have."""
    try:
        return BENCHMARKS[benchmark]
    except KeyError:
        return None


def number(benchmark: str, task: str, rows: Sequence[ScoredSample]) -> TaskScore | None:
    """The task's own headline over some of its answers; a plain mean where lbx knows no such task. None without any."""
    family = known(benchmark)
    if not rows:
        return None
    if family and task in (family.known_tasks or (task,)):
        return next(iter(family.aggregate(task, rows)), None)
    head = next(iter(rows[0].scores))
    rows = [row for row in rows if head in row.scores]
    values = [row.scores[head] for row in rows]
    return TaskScore(head, len(values), mean(values), None, estimate=estimate(rows, values))


class Samples:
    """The file's samples in the order of their benchmark's papers and data.

    Attributes:
        ranks: by their row in the file, their place in that order.
        tasks: by rank, a number that those of one task share.
    """

    def __init__(self, store: Store) -> None:
        held = store.arrays(_SAMPLES)
        columns = [column.tolist() for column in held.values()]
        families = {name: known(name) for name in dict.fromkeys(columns[1])}
        places = {
            (name, task): at
            for name, family in families.items()
            for at, task in enumerate(family.known_tasks if family else ())
        }
        metas: dict[str, Any] = {}
        rows = []
        for row, benchmark, task, position, name, question, language, length, unit, meta, document in zip(
            *columns, strict=True
        ):
            if meta not in metas:
                metas[meta] = json.loads(meta)
            sample = Sample(benchmark, task, name, "", question, (), language, length, unit, metas[meta])
            family = families[benchmark]
            place = places.get((benchmark, task), math.inf)
            cluster = family.cluster(sample, document) if family else document
            rows.append((benchmark, place, task, position, name, row, sample, cluster))
        rows.sort(key=lambda row: row[:5])
        self.samples = [row[6] for row in rows]
        self.clusters = [row[7] for row in rows]
        self.ranks = np.zeros(max((row[5] for row in rows), default=-1) + 1, np.int64)
        self.ranks[[row[5] for row in rows]] = np.arange(len(rows))
        codes: dict[tuple[str, str], int] = {}
        self.tasks = np.array([codes.setdefault((row[0], row[2]), len(codes)) for row in rows], np.int64)


def _rows(held: Mapping[str, Array], starts: Array, samples: Samples, metrics: Sequence[str]) -> list[Row]:
    """One task's rows: its answers begin at ``starts``, the last of which is their end."""
    begin, end, first = starts[0], starts[-1], starts[:-1]
    named, values = held["metric"][begin:end], held["score"][begin:end].tolist()
    width = int(starts[1] - begin)
    if (np.diff(starts) == width).all() and (named.reshape(-1, width) == named[:width]).all():
        heads = [metrics[at] for at in named[:width]]
        scores = [dict(zip(heads, some, strict=True)) for some in zip(*[iter(values)] * width, strict=True)]
    else:
        pairs = [(metrics[at], value) for at, value in zip(named, values, strict=True)]
        scores = [dict(pairs[a:b]) for a, b in itertools.pairwise((starts - begin).tolist())]
    places = held["sample"][first].tolist()
    partial = np.logical_or.reduceat(held["partial"][begin:end], first - begin).tolist()
    answers = map(
        ScoredSample,
        [samples.samples[at] for at in places],
        scores,
        held["iteration"][first].tolist(),
        partial,
        [samples.clusters[at] for at in places],
    )
    return list(map(Row, answers, *(held[column][first].tolist() for column in _BESIDE)))


def starts_of(*columns: Array) -> Array:
    """Where any of some sorted columns has another value than before."""
    if not len(columns[0]):
        return np.zeros(0, np.int64)
    changes = np.logical_or.reduce([np.diff(column) != 0 for column in columns])
    return np.append(0, 1 + np.flatnonzero(changes))


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Some hundred thousand objects that all stay: to look for unused ones among them takes as long as making them."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Who:
    """A run as reports name it: columns of the views."""

    run_id: str
    model: str
    backend: str
    mode: str | None
    differs_in: str | None


def named(store: Store) -> dict[str, Who]:
    """{run: its name} of those that have answers."""
    table = store.query(
        "SELECT DISTINCT t.run_id, t.model, t.backend, t.mode, d.differs_in FROM truncation t "
        "JOIN distinctions d USING (run_id)"
    )
    return {row[0]: Who(*row) for row in table.rows}


def told(found: Interval, family: Benchmark | None, *, clustered: bool) -> dict[str, Any]:
    """An interval as the views' columns."""
    columns = {name: getattr(found, name) for name in SURE if name != "cluster_by"}
    return columns | {"cluster_by": family.clustered_by if family and clustered else "sample"}


def as_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Table:
    """Rows by column names; what one lacks is NULL, and so is what is no number."""
    return Table(columns, [tuple(_finite(row.get(name)) for name in columns) for row in rows])


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
