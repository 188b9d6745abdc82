"""The report ``depth_parity``: difference of candidates from a reference by position in texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lbx.base.columns import Column, number_column
from lbx.base.units import format_count
from lbx.report.draw.charts import Point, Series, curve
from lbx.report.draw.figures import Figure, FigureSource, group_rows
from lbx.report.format.digits import number, short_length
from lbx.report.format.labels import labels
from lbx.report.query import ReportQuery
from lbx.report.report import PagePlace, Report
from lbx.results import DepthRow, Store, Table
from lbx.results.file.depth import DepthPair, read_depth_pairs
from lbx.results.rows import as_json
from lbx.results.scoring.score_columns import as_table
from lbx.statistics.estimates import t_quantile

MIN_TEXTS = 6
"""Smallest number of texts with an interval."""
LARGEST_ERROR = 1e-4
"""Mean error of the divergence at single positions, in nats, above which there is a warning."""
READING = ("all_texts", "read_texts", "invalid_texts")
"""Columns of ``reading_columns``."""
COLUMNS = (
    "pair_id", "comparison_id", "reference", "model", "label", "backend", "start", "stop", "bin", "texts", "positions",
    "kl", "kl_low", "kl_high", "kl_p99", "kl_p99_low", "kl_p99_high", "same_top", "same_top_low", "same_top_high",
    "perplexity_ratio", "perplexity_ratio_low", "perplexity_ratio_high", "tokens_per_s", "kl_error", "kl_error_max",
    "audited_positions", *READING,
)  # fmt: skip


def table(store: Store, _query: ReportQuery) -> Table:
    return depth_table(read_depth_pairs(store))


def depth_table(pairs: Iterable[DepthPair]) -> Table:
    """Build the rows of the report: one for each candidate and bin that a text covers, or one without numbers."""
    pairs = list(pairs)
    label_of = candidate_labels(pairs)
    return as_table(
        COLUMNS,
        [
            {
                "pair_id": pair.row.pair_id,
                "comparison_id": pair.row.comparison_id,
                "reference": pair.row.reference_model,
                "model": pair.row.model,
                "label": label_of[pair.row.pair_id],
                "backend": pair.row.backend,
                **reading_columns(pair),
                **row,
            }
            for pair in pairs
            for row in summarise_by_bin(pair.bins) or [{"texts": 0}]
        ],
    )


def reading_columns(pair: DepthPair) -> dict[str, int]:
    """Columns that count the texts of a comparison, and those that a candidate read."""
    return dict(zip(READING, (pair.row.texts, pair.read_texts, pair.invalid_texts), strict=True))


def reading_notes(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Write notes on positions in few texts, and on each candidate that did not read all texts."""
    if any(0 < row["texts"] < MIN_TEXTS for row in rows):
        yield f"Positions in fewer than {MIN_TEXTS} texts have no interval."
    unread = []
    for label, texts, read, invalid in dict.fromkeys(
        (row["label"], *(row[name] for name in READING)) for row in rows if row["pair_id"]
    ):
        if invalid:
            yield (
                f"{label}: left out {format_count(invalid, 'text')} with impossible numbers. Repeat the comparison's "
                "command to read them again."
            )
        if read + invalid < texts:
            unread.append(f"{label}: has read {read:,} of {format_count(texts, 'text')}")
    if unread:
        yield f"{'; '.join(unread)}, others may have read more. Repeat the comparison's command."


def candidate_labels(pairs: Iterable[DepthPair]) -> dict[str, str]:
    """Make unique labels of candidates: {pair: model, with differing settings if names repeat}."""
    return labels(
        {
            "run_id": row.pair_id,
            "model": row.model,
            "backend": row.backend,
            "settings": as_json(
                {**row.settings, "reference": row.reference_model, "texts": row.texts, "length": longest_text(pair)}
            ),
        }
        for pair in pairs
        for row in [pair.row]
    )


def longest_text(pair: DepthPair) -> int | None:
    """Number of tokens of the longest text, including the last, after which nothing is compared."""
    return max((row.start + row.positions + 1 for row in pair.bins), default=None)


def summarise_by_bin(bins: Iterable[DepthRow]) -> list[dict[str, Any]]:
    """Summarise a candidate's texts by bin of positions. Bins that no text covers are left out.

    Intervals are 95% intervals of the mean over texts (t). They are missing below ``MIN_TEXTS`` texts.
    """
    by_bin: dict[tuple[int, int], list[DepthRow]] = {}
    for row in bins:
        if row.is_covered:
            by_bin.setdefault((row.start, row.stop), []).append(row)
    return [_summarise(start, stop, rows) for (start, stop), rows in sorted(by_bin.items())]


def _summarise(start: int, stop: int, rows: Sequence[DepthRow]) -> dict[str, Any]:
    losses = _estimate("perplexity_ratio", [row.reference_log_prob - row.log_prob for row in rows])
    positions = sum(row.positions for row in rows)
    audited = [row for row in rows if row.kl_error is not None]
    count = sum(row.audited_positions for row in audited)
    return {
        "start": start,
        "stop": stop,
        "bin": f"{short_length(start)} to {short_length(stop)}",
        "texts": len(rows),
        "positions": positions,
        **_estimate("kl", [row.kl for row in rows], lowest=0.0),
        **_estimate("kl_p99", [row.kl_p99 for row in rows], lowest=0.0),
        **_estimate("same_top", [row.same_top for row in rows], lowest=0.0, highest=1.0),
        **{name: None if value is None else math.exp(min(value, 700.0)) for name, value in losses.items()},
        "tokens_per_s": _speed(positions, sum(row.seconds for row in rows)),
        "reference_tokens_per_s": _speed(positions, sum(row.reference_seconds for row in rows)),
        "kl_error": sum(row.audited_positions * (row.kl_error or 0.0) for row in audited) / count if count else None,
        "kl_error_max": max((row.kl_error_max or 0.0 for row in audited), default=None),
        "audited_positions": count,
    }


def _speed(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if seconds else None


def _estimate(
    name: str, values: Sequence[float], lowest: float = -math.inf, highest: float = math.inf
) -> dict[str, float | None]:
    mean, low, high = float(np.mean(values)), None, None
    if len(values) >= MIN_TEXTS:
        half = t_quantile(0.975, len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
        low, high = max(mean - half, lowest), min(mean + half, highest)
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


def _notes(rows_table: Table) -> Iterator[str]:
    rows = rows_table.dicts()
    if any(row.get("kl_low") is not None for row in rows):
        yield "Values are followed by 95% intervals of the mean over texts."
    yield from reading_notes(rows)
    if audited := [row for row in rows if row["kl_error"] is not None]:
        yield (
            f"KL is off by at most {number(max(row['kl_error_max'] for row in audited))} nats at "
            f"{format_count(sum(row['audited_positions'] for row in audited), 'position')} with whole distributions."
        )
    for (_, label), bins in group_rows(rows, "pair_id", "label"):
        measured = [row for row in bins if row["kl_error"] is not None]
        if count := sum(row["audited_positions"] for row in measured):
            mean = sum(row["audited_positions"] * row["kl_error"] for row in measured) / count
            if mean > LARGEST_ERROR:
                yield f"{label}: KL is less exact than {number(LARGEST_ERROR)} nats: the distributions differ too much."
        if bins[0]["backend"] == "endpoint":
            yield (
                f"{label}: its server gives only the likeliest tokens. All others count as one, so that KL is a lower "
                "bound."
            )


def _draw_figures(source: FigureSource) -> Iterator[Figure]:
    """Draw KL over position for each reference and set of texts, with a line for each candidate."""
    every = [row for row in source.rows("depth_parity") if row["texts"]]
    for (_, reference), rows in group_rows(every, "comparison_id", "reference"):
        stops = sorted({row["stop"] for row in rows})
        lines = [
            Series(label, source.mark_of(pair), _points(bins, stops))
            for (pair, label), bins in group_rows(rows, "pair_id", "label")
        ]
        title = f"KL divergence from {reference} by position"
        about = f"Nats, on a logarithmic scale, at positions up to {stops[0]:,} to {stops[-1]:,}."
        drawing = curve(title, about, list(map(short_length, stops)), lines, is_log=True)
        is_partial = any(row["texts"] < MIN_TEXTS for row in rows)
        hollow = f" Hollow marks: fewer than {MIN_TEXTS} texts, without an interval." if is_partial else ""
        yield Figure(title, drawing, f"Mean KL divergence in nats, on a logarithmic scale, by position.{hollow}")


def _points(bins: Sequence[Mapping[str, Any]], stops: Sequence[int]) -> list[Point | None]:
    by_stop = {row["stop"]: row for row in bins}
    return [
        Point(row["kl"], row["kl_low"], row["kl_high"], format_count(row["texts"], "text"))
        if (row := by_stop.get(stop))
        else None
        for stop in stops
    ]


DEPTH_PARITY = Report(
    name="depth_parity",
    title="Difference from the reference by position (KL divergence in nats)",
    columns=(
        Column("reference", "reference"),
        Column("model", "model"),
        Column("bin", "positions"),
        Column("texts", "texts", "count"),
        number_column("kl", "KL, mean", "quantity"),
        number_column("kl_p99", "KL, 99th percentile, mean of texts", "quantity"),
        number_column("same_top", "same top token %", "percent"),
        number_column("perplexity_ratio", "perplexity ratio", "ratio"),
        Column("tokens_per_s", "tokens/s", "quantity", rank=1),
    ),
    notes=lambda rows: list(_notes(rows)),
    empty="No models were compared by position. Compare them with `lbx parity A B --depth -o FILE`.",
    rows=table,
    run_columns=(),
    draw=_draw_figures,
    page=PagePlace("Length", 18),
)
