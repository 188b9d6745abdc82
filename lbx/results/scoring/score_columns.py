"""Reading of a results file's scored answers as arrays, which benchmarks aggregate."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from lbx.base.number import INTERVAL_COLUMNS as WHOLE
from lbx.base.number import Number
from lbx.base.records import Sample, ScoredSample
from lbx.benchmarks.base.aggregates import Array, ScoreColumns, ScoredRows, overall_number, task_score
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.registry import BENCHMARKS
from lbx.results import Store, Table
from lbx.results.rows import interval_columns
from lbx.results.views import MODE_OF_RUN
from lbx.statistics.estimates import Interval, encode_labels

INTERVAL_COLUMNS = tuple(name for name in WHOLE if name != "within")
"""Columns of the views that describe uncertainty, except the effect of further answers to the same samples."""
RUN_COLUMNS = ("run_id", "model", "backend", "mode", "differs_in")


RowsByTask = Mapping[str, ScoredRows]
"""{task: scored answers in the data's order}, with the tasks in the paper's order.

Samples lack document and references, which numbers do not need. The headline is the first score.

Columns in addition to those in ``Columns``: "score" (headline), "iteration", "reasoned", "output_hash" (0 unless
requested), the columns in ``Samples`` and in ``_ANSWER_COLUMNS`` (NaN if unknown; booleans are 1 and 0).
"""

_SAMPLE_COLUMNS = ("samples", "ids", "documents", "clusters", "clustered", "length", "length_unit")
_ANSWER_COLUMNS = (
    "original_tokens", "truncated", "reference_cut", "prompt_tokens", "cached_tokens", "output_tokens", "prefill_s",
    "decode_s",
)  # fmt: skip
_UNKNOWN = "coalesce({0}::DOUBLE, 'nan') AS {0}"
_KNOWN = "(SELECT rowid AS number, * FROM samples)"
_EVERY = """(
    WITH unknown AS (
        SELECT DISTINCT benchmark, task, sample_id FROM generations
        ANTI JOIN samples USING (benchmark, task, sample_id)
    )
    SELECT rowid AS number, * FROM samples
    UNION ALL BY NAME
    SELECT *, row_number() OVER (ORDER BY benchmark, task, sample_id)
                  + (SELECT coalesce(max(rowid), -1) FROM samples) AS number,
           '' AS question, '' AS language, 0 AS length, '' AS length_unit, '{}' AS meta
    FROM unknown
)"""
"""Query for all samples, including samples of imported failures, of which the file contains only the names."""
_NUMBERED = """
    SELECT asked.run, a.number AS sample, t.iteration, {columns}
    FROM {table} t JOIN (SELECT unnest($1::VARCHAR[]) AS run_id, unnest(range(len($1::VARCHAR[]))) AS run) asked
        USING (run_id)
    JOIN {samples} a USING (benchmark, task, sample_id)
    WHERE benchmark <> 'judge' AND (len($2::VARCHAR[]) = 0 OR list_contains($2::VARCHAR[], benchmark)) AND {where}
"""
_NAMED = f"""
    SELECT run_id, r.model, r.backend, {MODE_OF_RUN} AS mode, d.differs_in, r.settings,
           CASE WHEN r.benchmark_versions->>'judge' IS NOT NULL THEN r.settings->>'rubric' END AS rubric
    FROM runs r JOIN distinctions d USING (run_id)
"""
_SAMPLES = """
    SELECT number, benchmark, task, sample_id, coalesce(text_hashes->>'question', question) AS question, language,
           length, length_unit, meta,
           coalesce(context_sha256, '') AS document
    FROM {samples} WHERE benchmark <> 'judge' AND (len($1::VARCHAR[]) = 0 OR list_contains($1::VARCHAR[], benchmark))
    ORDER BY position, sample_id
"""


def read_scores(
    store: Store, runs: Collection[str] = (), benchmarks: Collection[str] = (), *, outputs: bool = False
) -> Mapping[tuple[str, str], RowsByTask]:
    """Read {(run, benchmark): scored answers}, sorted by run, of the given runs and benchmarks, or of all.

    Args:
        outputs: whether to compute ``output_hash``, for which all outputs are read.
    """
    names = [name for (name,) in store.query("SELECT run_id FROM runs ORDER BY ALL").rows if not runs or name in runs]
    if (cached := _CACHE.get(store)) and cached.outputs >= outputs and cached.covers(names, benchmarks):
        run_ids = {*names}
        return {
            key: tasks
            for key, tasks in cached.answers.items()
            if key[0] in run_ids and (not benchmarks or key[1] in benchmarks)
        }
    samples = query_scores(store, names, list(benchmarks), "scores", outputs=outputs)
    if store.read_only:
        _CACHE[store] = _CachedScores(names, benchmarks, outputs, samples)
    return samples


class _CachedScores(NamedTuple):
    runs: Collection[str]
    benchmarks: Collection[str]
    outputs: bool
    answers: Mapping[tuple[str, str], RowsByTask]

    def covers(self, runs: Collection[str], benchmarks: Collection[str]) -> bool:
        every = not self.benchmarks or (benchmarks and {*benchmarks} <= {*self.benchmarks})
        return bool(every) and {*runs} <= {*self.runs}


_CACHE: WeakKeyDictionary[Store, _CachedScores] = WeakKeyDictionary()
"""{file that is open read-only: last result}, because a page contains several reports on the same answers."""


def query_scores(
    store: Store, names: Sequence[str], benchmarks: Sequence[str], scores: str, *, outputs: bool = False
) -> Mapping[tuple[str, str], RowsByTask]:
    """Read scored answers of these runs (see ``read_scores``) from a table, a view or a query of scores."""
    metrics = [name for (name,) in store.query("SELECT DISTINCT metric FROM scores ORDER BY ALL").rows]
    samples = Samples(store, benchmarks)
    output = "hash(coalesce(output_sha256, output))" if outputs else "0"
    answers = samples.read_columns(
        names, "generations",
        f"{', '.join(map(_UNKNOWN.format, _ANSWER_COLUMNS))}, reasoning_closed IS NOT NULL AS reasoned, "
        f"({output})::UBIGINT AS output_hash",
        condition="error IS NULL",
    )  # fmt: skip
    metric = "list_position($3::VARCHAR[], metric) - 1"
    columns = f"{metric} AS metric, NOT headline AS further, score, partial IS NOT NULL AS partial"
    score_rows = samples.read_columns(names, scores, columns, parameters=[metrics], order_by=("further", "metric"))
    score_rows, places = match_keys(score_rows, answers["key"])
    firsts = starts_of(places)
    of = _columns(score_rows, firsts, {name: column[places[firsts]] for name, column in answers.items()}, samples)
    ends = np.append(firsts, len(places))
    bounds = [*starts_of(of["run"], samples.tasks[of["rank"]]).tolist(), len(firsts)]
    samples_of: dict[tuple[str, str], dict[str, ScoredRows]] = {}
    for begin, end in itertools.pairwise(bounds):
        benchmark, task = samples.names[samples.tasks[of["rank"][begin]]]
        part = {name: column[begin:end] for name, column in of.items()}
        part_scores = _ScoreArrays.from_rows(score_rows, ends[begin : end + 1], metrics)
        rows = ScoredRows(
            ScoreColumns(part, part_scores.by_metric(), partial(_scored_samples, part, part_scores, samples))
        )
        samples_of.setdefault((names[of["run"][begin]], benchmark), {})[task] = rows
    return samples_of


def _columns(
    score_rows: Mapping[str, Array], firsts: Array, answers: Mapping[str, Array], samples: Samples
) -> dict[str, Array]:
    """Build columns with a value per answer. ``firsts`` are the indices of the answers' first score rows."""
    ranks = answers["sample"]
    return {
        "run": answers["run"],
        "rank": ranks,
        **{name: getattr(samples, name)[ranks] for name in _SAMPLE_COLUMNS},
        "iteration": answers["iteration"],
        "score": score_rows["score"][firsts],
        "partial": np.logical_or.reduceat(score_rows["partial"], firsts) if len(firsts) else score_rows["partial"],
        "reasoned": answers["reasoned"],
        "output_hash": answers["output_hash"],
        **{name: answers[name] for name in _ANSWER_COLUMNS},
    }


class _ScoreArrays(NamedTuple):
    """Scores of answers as arrays: indices of metric names, and values, headline first.

    The scores of an answer are between two consecutive ``ends``.
    """

    metrics: Sequence[str]
    metric_indices: Array
    values: Array
    ends: Array

    @classmethod
    def from_rows(cls, score_rows: Mapping[str, Array], ends: Array, metrics: Sequence[str]) -> _ScoreArrays:
        begin, end = ends[0], ends[-1]
        return cls(metrics, score_rows["metric"][begin:end], score_rows["score"][begin:end], ends - begin)

    def by_metric(self) -> dict[str, tuple[Array, Array | None]]:
        """Return {metric: (values, mask of the answers with the metric)}, with None as the mask of all answers."""
        width, count = int(self.ends[1]), len(self.ends) - 1
        first = self.metric_indices[:width]
        if width * count == len(self.metric_indices) and (self.metric_indices.reshape(-1, width) == first).all():
            return {self.metrics[at]: (self.values[offset::width], None) for offset, at in enumerate(first)}
        owners = np.repeat(np.arange(count), np.diff(self.ends))
        columns: dict[str, tuple[Array, Array | None]] = {}
        for at in dict.fromkeys(self.metric_indices.tolist()):
            column, present, of_it = np.zeros(count), np.zeros(count, bool), self.metric_indices == at
            column[owners[of_it]], present[owners[of_it]] = self.values[of_it], True
            columns[self.metrics[at]] = (column, present)
        return columns

    def of_answers(self, places: slice) -> Iterator[dict[str, float]]:
        bounds = np.append(self.ends[:-1][places], self.ends[1:][places][-1:])
        cells = slice(bounds[0], bounds[-1])
        names = map(self.metrics.__getitem__, self.metric_indices[cells].tolist())
        pairs = list(zip(names, self.values[cells].tolist(), strict=True))
        return (dict(pairs[a:b]) for a, b in itertools.pairwise((bounds - bounds[0]).tolist()))


def _scored_samples(
    of: Mapping[str, Array], scores: _ScoreArrays, samples: Samples, places: slice
) -> list[ScoredSample]:
    names = ("rank", "iteration", "partial", "reasoned")
    ranks, *columns = (of[name][places].tolist() for name in names)
    return [
        ScoredSample(samples.sample(rank), scores_by_metric, iteration, lacks, samples.labels[rank], reasoned)
        for rank, scores_by_metric, iteration, lacks, reasoned in zip(
            ranks, scores.of_answers(places), *columns, strict=True
        )
    ]


def find_benchmark(benchmark: str) -> Benchmark | None:
    """Find a benchmark by name. Returns None for an invalid name, which another program may have written."""
    try:
        return BENCHMARKS[benchmark]
    except KeyError:
        return None


def headline_of(benchmark: str, task: str, rows: Sequence[ScoredSample]) -> Number | None:
    """Compute a task's headline, or a plain mean for a task unknown to lbx. Returns None without answers."""
    family = find_benchmark(benchmark) if rows else None
    if family and family.catalogue.has_task(task):
        return family.headline(task, rows)
    return next(iter(plain_numbers(rows)), None)


def benchmark_score(benchmark: str, tasks: RowsByTask, heads: Sequence[Number]) -> Number | None:
    """Compute a run's benchmark score over the benchmark's tasks, or the mean of the headlines of the run's tasks."""
    family = find_benchmark(benchmark)
    tasks_of_benchmark = {task: rows for task, rows in tasks.items() if family and family.catalogue.has_task(task)}
    return overall_number(
        family.groups(tasks_of_benchmark, averages_only=True) if family and tasks_of_benchmark else [], heads
    )


def plain_numbers(rows: Sequence[ScoredSample]) -> list[Number]:
    """Compute the means of a task's metrics, headline first, for a task unknown to lbx."""
    metrics = dict.fromkeys(metric for row in rows for metric in row.scores)
    return [score for metric in metrics for score in task_score(metric, rows, metric, None)]


class Samples:
    """Samples of a results file in the order of papers and data, of some benchmarks or of all.

    Args:
        unknown: whether to include the samples of failures without a row in ``samples``.

    Attributes:
        ranks: rank in that order, by sample number.
        names: (benchmark, task)s in the order of their ranks.
        tasks: index in ``names``, by rank.
        samples, clusters: as in ``Stratum``, by rank.
        ids: number of the sample's name, by rank. Equal names in other tasks have the same number.
        documents: number of the document, by rank, or number of the sample if the document is unknown.
        labels: name of the cluster, by rank, or "" if unknown.
        clustered, length, length_unit: columns by rank.
    """

    def __init__(self, store: Store, benchmarks: Sequence[str] = (), *, unknown: bool = False) -> None:
        self._store, self._benchmarks = store, list(benchmarks)
        self._source = _EVERY if unknown else _KNOWN
        sample_rows = store.arrays(_SAMPLES.format(samples=self._source), [self._benchmarks])
        task_keys = list(zip(sample_rows["benchmark"].tolist(), sample_rows["task"].tolist(), strict=True))
        self._families = {name: find_benchmark(name) for name, _ in dict.fromkeys(task_keys)}
        self.names = sorted(dict.fromkeys(task_keys), key=self._sort_key)
        families = [self._families[name] for name, _ in self.names]
        # Other benchmarks cluster by document, which needs no Sample object.
        self._clustering_families = [
            family if family and type(family).cluster is not Benchmark.cluster else None for family in families
        ]
        codes = {name: code for code, name in enumerate(self.names)}
        tasks = np.fromiter(map(codes.__getitem__, task_keys), np.int64, len(task_keys))
        order = np.argsort(tasks, kind="stable")
        self.tasks = tasks[order]
        self.ranks = np.zeros(sample_rows["number"].max(initial=-1) + 1, np.int64)
        self.ranks[sample_rows["number"][order]] = np.arange(len(order))
        self.length, self.length_unit = sample_rows["length"][order], sample_rows["length_unit"][order]
        self._columns = {name: column[order].tolist() for name, column in sample_rows.items()}
        self._sample_cache: dict[int, Sample] = {}
        ids = [f"{task}/{name}" for task, name in zip(self._columns["task"], self._columns["sample_id"], strict=True)]
        self.labels: list[str] = self._columns["document"]
        self.documents = encode_labels(label or name for label, name in zip(self.labels, ids, strict=True))
        for rank, task in enumerate(self.tasks.tolist()):
            if family := self._clustering_families[task]:
                self.labels[rank] = family.cluster(self.sample(rank), self.labels[rank])
        self.samples = encode_labels(ids)
        self.ids = encode_labels(self._columns["sample_id"])
        self.clusters = encode_labels(label or name for label, name in zip(self.labels, ids, strict=True))
        self.clustered = np.array([bool(label) for label in self.labels], bool)

    def _sort_key(self, name: tuple[str, str]) -> tuple[str, float, str]:
        benchmark, task = name
        family = self._families[benchmark]
        tasks = family.catalogue.names if family else ()
        return benchmark, tasks.index(task) if task in tasks else math.inf, task

    def read_columns(
        self,
        runs: Sequence[str],
        table: str,
        columns: str,
        *,
        condition: str = "true",
        parameters: Sequence[object] = (),
        order_by: Sequence[str] = (),
    ) -> dict[str, Array]:
        """Read rows of a table of answers as columns, sorted by run, by the data's order, then by the columns
        ``order_by``.

        "run" is an index in ``runs``, "sample" a rank; "key" is a single number for both and the iteration.

        Joining two tables by numbers takes a fraction of the time of joining by names.
        """
        sql = _NUMBERED.format(samples=self._source, table=table, columns=columns, where=condition)
        answer_rows = self._store.arrays(sql, [list(runs), self._benchmarks, *parameters])
        answer_rows["sample"] = self.ranks[answer_rows["sample"]]
        answer_rows["key"] = ((answer_rows["run"] * len(self.tasks) + answer_rows["sample"]) << 16) + answer_rows[
            "iteration"
        ]
        order = np.lexsort([*(answer_rows[name] for name in reversed(order_by)), answer_rows["key"]])
        return {name: column[order] for name, column in answer_rows.items()}

    def sample(self, rank: int) -> Sample:
        """Return the sample at index ``rank`` with the fields that aggregation reads."""
        if rank not in self._sample_cache:
            of = {name: column[rank] for name, column in self._columns.items()}
            self._sample_cache[rank] = Sample(
                of["benchmark"], of["task"], of["sample_id"], "", of["question"], (), of["language"], of["length"],
                of["length_unit"], json.loads(of["meta"]),
            )  # fmt: skip
        return self._sample_cache[rank]


def match_keys(rows: dict[str, Array], keys: Array) -> tuple[dict[str, Array], Array]:
    """Select the rows with a key in ``keys`` (both sorted by key), and return each row's index in ``keys``."""
    places = np.searchsorted(keys, rows["key"])
    present = np.append(keys, -1)[places] == rows["key"]
    return rows if present.all() else {name: column[present] for name, column in rows.items()}, places[present]


def starts_of(*columns: Array) -> Array:
    """Find the indices at which groups of equal values in sorted columns start."""
    if not len(columns[0]):
        return np.zeros(0, np.int64)
    changes = np.logical_or.reduce([np.diff(column) != 0 for column in columns])
    return np.append(0, 1 + np.flatnonzero(changes))


def runs_by_id(store: Store) -> dict[str, dict[str, Any]]:
    """Return {run: row with ``RUN_COLUMNS``, settings and, for a judge, rubric}."""
    return store.compute_once("named", lambda: {row["run_id"]: row for row in store.query(_NAMED).dicts()})


def score_interval_columns(interval: Interval, family: Benchmark | None, *, clustered: bool) -> dict[str, Any]:
    """Convert the interval of a score to the columns of the views."""
    return interval_columns(interval, family.scoring.cluster_name if family and clustered else "sample")


def as_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Table:
    """Build a table from rows by column name. Missing and non-finite values become None."""
    return Table(columns, [tuple(_finite(row.get(name)) for name in columns) for row in rows])


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
