"""The report ``formats``: whether a format of a model may be used in place of the reference.

Each row joins the difference by position (``depth_parity``) with the difference of scores, if the file contains one run
of the reference and one of the candidate. Runs belong to a model by the settings of the backend, which contain the
digest of the weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from lbx.base.columns import Column, number_column
from lbx.base.units import format_count
from lbx.report.pairs import RefusedPair
from lbx.report.query import ReportQuery
from lbx.report.report import PagePlace, Report
from lbx.report.rows.comparison import ON_MARGIN, ComparisonRow, compare_pairs, is_no_worse
from lbx.report.rows.depth_parity import (
    READING,
    candidate_labels,
    longest_text,
    reading_columns,
    reading_notes,
    summarise_by_bin,
)
from lbx.results import DepthPairRow, Store, Table
from lbx.results.file.depth import DepthPair, read_depth_pairs
from lbx.results.file.identity import FULL_HASH
from lbx.results.read.runs import failed_samples, unfinished_part
from lbx.results.scoring.score_columns import as_table

_BIN = ("kl", "kl_low", "kl_high", "same_top", "same_top_low", "same_top_high", "tokens_per_s")
COLUMNS = (
    "pair_id", "comparison_id", "reference", "model", "label", "backend", "format", "weights_bytes", "length",
    "memory_bytes", "bin", "texts", *READING, *_BIN,
    "benchmark", "reference_run", "run", "n", "difference", "difference_low", "difference_high", "difference_method",
    "margin", "verdict", "caution",
)  # fmt: skip
NOT_RUN, NOT_CHOSEN, SEVERAL_RUNS, NOT_COMPARED = "not run", "not chosen", "several runs", "not compared"
_WEIGHTS = "backend.weights"


def table(store: Store, query: ReportQuery) -> Table:
    pairs = read_depth_pairs(store)
    runs = store.query("SELECT * FROM runs ANTI JOIN judges ON run_id = judge_id ORDER BY run_id").dicts()
    scores = {pair.row.pair_id: list(_compare_scores(store, query, pair.row, runs)) for pair in pairs}
    return formats_table(pairs, scores)


def formats_table(pairs: Iterable[DepthPair], scores: Mapping[str, Iterable[Mapping[str, Any]]]) -> Table:
    """Build the rows of the report: a row for each candidate and benchmark of ``scores``.

    Args:
        scores: {pair: columns about scores}.
    """
    pairs = list(pairs)
    label_of = candidate_labels(pairs)
    rows: list[dict[str, Any]] = []
    for comparison_id, group in groupby(pairs, lambda pair: pair.row.comparison_id):
        candidates = [(pair, longest_text(pair), (summarise_by_bin(pair.bins) or [{}])[-1]) for pair in group]
        pair, length, deepest = max(candidates, key=lambda one: (one[1] or 0, one[0].read_texts))
        row = pair.row
        rows.append(
            {"comparison_id": comparison_id, "reference": row.reference_model, "model": row.reference_model}
            | {"label": f"{row.reference_model}, the reference", "length": length}
            | {"format": _format_name(row.reference_settings, row.reference_hardware)}
            | {"bin": deepest.get("bin"), "texts": deepest.get("texts", 0)}
            | {"tokens_per_s": deepest.get("reference_tokens_per_s")}
            | _memory(row.reference_weights_bytes, row.reference_kv_bytes_per_token, length)
        )
        for pair, length, deepest in candidates:
            row = pair.row
            known = {
                "pair_id": row.pair_id,
                "comparison_id": comparison_id,
                "reference": row.reference_model,
                "model": row.model,
                "label": label_of[row.pair_id],
                "backend": row.backend,
                "format": _format_name(row.settings, row.hardware),
                "length": length,
                "bin": deepest.get("bin"),
                "texts": deepest.get("texts", 0),
                **reading_columns(pair),
                **_memory(row.weights_bytes, row.kv_bytes_per_token, length),
                **{name: deepest.get(name) for name in _BIN},
            }
            rows += [{**known, **line} for line in scores.get(row.pair_id, [{}])]
    return as_table(COLUMNS, rows)


def _memory(weights: int | None, cache: int | None, tokens: int | None) -> dict[str, int | None]:
    both = None if weights is None or cache is None or tokens is None else weights + cache * tokens
    return {"weights_bytes": weights, "memory_bytes": both}


def _format_name(settings: Mapping[str, Any], hardware: Mapping[str, Any]) -> str:
    """Number formats of the weights, and of the KV cache if it is a setting."""
    of = {name.removeprefix("backend."): value for name, value in settings.items()}
    weights = of.get("quantization") or of.get("dtype") or hardware.get("stored_as") or "unknown"
    caches = dict.fromkeys(str(of[name]) for name in ("cache_type_k", "cache_type_v") if of.get(name))
    return f"{weights}, KV {'/'.join(caches)}" if caches else str(weights)


def _compare_scores(
    store: Store, query: ReportQuery, pair: DepthPairRow, runs: Iterable[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield the columns about scores for each benchmark that both models answered."""
    runs = list(runs)
    references = _runs_of(runs, pair.reference_model, pair.reference_backend, pair.reference_settings)
    candidates = _runs_of(runs, pair.model, pair.backend, pair.settings)
    if not references or not candidates:
        yield {"verdict": NOT_RUN}
        return
    if query.runs:
        chosen = [[run for run in side if run in query.runs] for side in (references, candidates)]
        if excluded := [
            run for side, kept in zip((references, candidates), chosen, strict=True) if not kept for run in side
        ]:
            yield {"verdict": NOT_CHOSEN, "caution": f"--run leaves out {' and '.join(excluded)}"}
            return
        references, candidates = chosen
    if len(references) > 1 or len(candidates) > 1:
        names = [*references, *candidates]
        yield {"verdict": SEVERAL_RUNS, "caution": f"several runs match ({', '.join(names)})"}
        return
    (reference,), (candidate,) = references, candidates
    if reference == candidate:
        yield {"verdict": NOT_RUN}
        return
    lines, refused = compare_pairs(
        store,
        ReportQuery(runs=[candidate], baseline=reference, allow_different_settings=query.allow_different_settings),
    )
    known = {"reference_run": reference, "run": candidate}
    averages = [line for line in lines if line.first.level == "benchmark"]
    gaps = [f"{run} {part}" for run in known.values() if (part := unfinished_part(store, run))]
    failed = {run: failed_samples(store, run) for run in known.values()}
    for line in averages:
        columns = _score_columns(line, query.margin)
        parts = _answered_parts(store, reference, candidate, line.benchmark)
        failures = [
            f"{format_count(counts[line.benchmark], 'sample')} of {run} failed; repeat its command with --retry-failed"
            for run, counts in failed.items()
            if line.benchmark in counts
        ]
        if gaps:
            columns["verdict"] = "undecided: unfinished run"
        elif failures:
            columns["verdict"], parts = "undecided: failed samples", failures
        yield known | columns | {"caution": "; ".join([*filter(None, [columns["caution"]]), *(gaps or parts)]) or None}
    yield from (known | _refusal_columns(one) for one in refused)
    if not averages and not refused:
        yield known | {"verdict": NOT_RUN}


def _answered_parts(store: Store, reference: str, candidate: str, benchmark: str) -> list[str]:
    """Describe the runs that did not answer all samples, or tasks that the other run was not asked."""
    sql = """
        WITH asked AS (
            SELECT *, count(*) OVER (PARTITION BY task) = 2 AS is_common FROM coverage
            WHERE run_id IN (?, ?) AND benchmark = ?
        )
        SELECT run_id, sum(samples), sum(bundle_samples), count(*) FILTER (is_common), count(*) FROM asked
        GROUP BY run_id ORDER BY run_id
    """
    parts = []
    for run, some, every, common, tasks in store.query(sql, [reference, candidate, benchmark]).rows:
        if every is not None and some < every:
            parts.append(f"{run} has answered {some:,} of {every:,} samples")
        if common < tasks:
            parts.append(f"{common:,} of {tasks:,} tasks of {run} {'is' if common == 1 else 'are'} compared")
    return parts


def _runs_of(runs: Iterable[Mapping[str, Any]], model: str, backend: str, settings: Mapping[str, Any]) -> list[str]:
    """Names of the runs of a model. Without a digest of weights, the model's name has to be equal, too."""
    return [
        run["run_id"]
        for run in runs
        if run["backend"] == backend
        and (settings.get(_WEIGHTS) or run["model"] == model)
        and _of_backend(json.loads(run["settings"])) == _of_backend(settings)
    ]


def _of_backend(settings: object) -> dict[str, Any]:
    if not isinstance(settings, Mapping):  # which a foreign tool wrote
        return {}
    return {name: value for name, value in settings.items() if name.startswith("backend.") and name != FULL_HASH}


def _score_columns(line: ComparisonRow, margin: float) -> dict[str, Any]:
    interval = line.difference.interval
    no_worse, missing = is_no_worse(line, margin)
    return {
        "benchmark": line.benchmark,
        "n": interval.n,
        "difference": interval.value,
        "difference_low": interval.low,
        "difference_high": interval.high,
        "difference_method": interval.method,
        "margin": margin,
        "verdict": missing or ("yes" if no_worse else "no"),
        "caution": line.caution or None,
    }


def _refusal_columns(pair: RefusedPair) -> dict[str, Any]:
    return {"benchmark": pair.benchmark, "verdict": NOT_COMPARED, "caution": pair.reason}


def _notes(rows_table: Table) -> Iterator[str]:
    rows = rows_table.dicts()
    for row in rows:
        if row["backend"] == "endpoint":
            yield f"{row['label']}: KL is a lower bound, and tokens/s an average over whole texts."
    bins = {row["label"]: row["bin"] for row in rows if row["pair_id"] and row["bin"]}
    each = ", ".join(f"{label}: {found}" for label, found in bins.items())
    where = f"positions {next(iter(bins.values()))}" if len({*bins.values()}) == 1 else f"the last positions ({each})"
    if bins:
        yield f"Memory includes the KV cache at this length. KL, same top token and tokens/s are averages over {where}."
    yield from reading_notes(rows)
    for margin in dict.fromkeys(row["margin"] for row in rows if row["margin"] is not None):
        yield f"No worse: by at most {margin:g} points, with 95% (one-sided)."
    if any(row["verdict"] == ON_MARGIN for row in rows):
        yield "Where the difference is the margin, no number of further questions is expected to decide."
    if any(row["verdict"] == NOT_RUN for row in rows):
        yield "not run: the file has no runs of both models. Run both on the same tasks."
    for row in rows:
        if row["verdict"] == SEVERAL_RUNS:
            yield f"{row['label']}: {row['caution']}. Choose one of each model with --run."
        elif row["caution"]:
            yield f"{', '.join(filter(None, (row['label'], row['benchmark'])))}: {row['caution']}."


FORMATS = Report(
    name="formats",
    title="Cost of formats (score difference in points; KL divergence in nats)",
    columns=(
        Column("reference", "reference"),
        Column("model", "model"),
        Column("format", "format"),
        Column("weights_bytes", "weights", "size"),
        Column("length", "length", "count"),
        Column("texts", "texts", "count", rank=4),
        Column("memory_bytes", "memory", "size"),
        Column("tokens_per_s", "tokens/s", "quantity", rank=2),
        number_column("kl", "KL, mean", "quantity"),
        Column("same_top", "same top token %", "percent", rank=1),
        Column("benchmark", "benchmark", optional=True),
        Column("n", "questions", "count", optional=True, rank=3),
        Column("difference", "score", "points", interval=True, interval_prefix="difference_", optional=True),
        Column("verdict", "no worse", missing="", optional=True),
    ),
    notes=lambda rows: list(_notes(rows)),
    empty="No models were compared by position. Compare them with `lbx parity A B --depth -o FILE`.",
    takes=("--margin", "--allow-different-settings"),
    reads="coverage",
    rows=table,
    page=PagePlace("Cost and faults", 19),
)
