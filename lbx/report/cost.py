"""The report ``cost``: tokens, seconds and hardware hours spent on scores.

Tokens are computed tokens: those of the prompt without shared ones, and those of the answer. Seconds are the model's
prefill and decode time. The prefill of a document is divided among all answers about it, regardless of their order.

The cost per correct answer is a task's total cost over the sum of its scores: a ratio of two sums, linearised for its
interval. The interval is computed on the logarithm because a price is never negative.

A judge has costs but no score: its rubrics have rows after those of the models.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from lbx.benchmarks.base.columns import Array, Bools, ScoredRows
from lbx.report.shapes import ReportQuery
from lbx.scoring.scored import SURE, WHO, Tasks, as_table, known, named, number, overall, scored, told
from lbx.statistics.estimates import Codes, Design, Estimate, Floats, Stratum, interval, interval_of
from lbx.statistics.tails import t_quantile
from lbx.store import Store, Table
from lbx.store.same_runs import is_on_gpu
from lbx.store.views import MODE_OF_RUN

_PER_CORRECT = tuple(f"{what}_per_correct{end}" for what in ("tokens", "seconds") for end in ("", "_low", "_high"))
COLUMNS = (
    *WHO, "benchmark", "task", "n", "score", *SURE, "measured", "prompt_tokens", "cached_tokens", "output_tokens",
    "prefill_s", "decode_s", "prefill_tokens_s", "decode_tokens_s", "cached_share", "seconds_saved",
    "seconds_per_answer", *_PER_CORRECT, "hours", "hours_of", "untimed_sessions", "unbeaten",
)  # fmt: skip

_SESSIONS = """
    WITH parts AS (
        SELECT *, coalesce(prefill_s + decode_s, 0) AS own,
               row_number() OVER () AS place, epoch(started_at)::BIGINT AS second, round(wall_s) AS took
        FROM sessions
    )
    SELECT run_id, workers, hardware::VARCHAR,
           -- Runs of one session have the same wall time, which is divided among them.
           wall_s * CASE WHEN sum(own) OVER together > 0 THEN own / sum(own) OVER together
                         ELSE 1 / count(*) OVER together END
    FROM parts
    WINDOW together AS (PARTITION BY spec::VARCHAR, second, took,
                        CASE WHEN spec IS NULL OR wall_s IS NULL THEN place END)
    ORDER BY run_id, place
"""

_MEASURED = ("prompt_tokens", "cached_tokens", "output_tokens", "prefill_s", "decode_s")
_JUDGES = f"""
    SELECT r.run_id, r.model, r.backend, {MODE_OF_RUN} AS mode, d.differs_in, g.task,
           {", ".join(f"coalesce(g.{name}::DOUBLE, 'nan') AS {name}" for name in _MEASURED)}
    FROM generations g JOIN runs r USING (run_id) JOIN distinctions d USING (run_id)
    WHERE g.benchmark = 'judge' AND g.error IS NULL AND (len($1::VARCHAR[]) = 0 OR list_contains($1::VARCHAR[], run_id))
    ORDER BY run_id, task
"""  # noqa: S608 (our own names)

Line = dict[str, Any]


_COSTS = (*_MEASURED, "computed_prompt", "seconds", "tokens")


@dataclass(frozen=True, eq=False)
class Paid:
    """Costs and headline scores of one or more answers, with their samples, documents and clusters.

    ``costs`` has a row for each of _COSTS, NaN if not measured. ``tokens`` are computed tokens; all tokens of a prompt
    count as computed if the number of shared ones is unknown.
    """

    samples: Codes
    documents: Codes
    clusters: Codes
    scores: Floats
    costs: Floats

    @classmethod
    def of(cls, rows: ScoredRows) -> Paid:
        measured = [rows.column(name) for name in _MEASURED]
        samples, documents, clusters, scores = map(rows.column, ("samples", "documents", "clusters", "score"))
        return cls(samples, documents, clusters, scores, _with_sums(*measured))

    @classmethod
    def unscored(cls, measured: Mapping[str, Array]) -> Paid:
        """Build from answers without scores, each a sample of its own."""
        values = [measured[name] for name in _MEASURED]
        places = np.arange(len(values[0]))
        return cls(places, places, places, np.full(len(places), np.nan), _with_sums(*values))

    @classmethod
    def together(cls, parts: Sequence[Paid]) -> Paid:
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in names))

    def split(self, sizes: Sequence[int]) -> list[Paid]:
        """Split into consecutive parts of the given sizes."""
        ends = np.cumsum(sizes)[:-1]
        parts = [np.split(getattr(self, field.name), ends, axis=-1) for field in fields(self)]
        return [Paid(*part) for part in zip(*parts, strict=True)]

    def with_shared_prefill(self) -> Paid:
        """Divide the prefill of each document among its answers, in proportion to their prompt tokens.

        Only the first prompt with a document computed it: the others found its prefix in the KV cache.
        """
        prompt, cached, output, prefill_s, decode_s = self.costs[: len(_MEASURED)]
        _, document = np.unique(self.documents, return_inverse=True)

        def of_document(values: Floats, chosen: Bools) -> Floats:
            return np.asarray(np.bincount(document, np.where(chosen, values, 0))[document])

        known = np.isfinite(prompt) & np.isfinite(cached) & (prompt > 0)
        known &= of_document(cached, known) > 0
        timed = known & np.isfinite(prefill_s)
        with np.errstate(invalid="ignore", divide="ignore"):
            computed = prompt / of_document(prompt, known) * of_document(prompt - cached, known)
            seconds = prompt / of_document(prompt, timed) * of_document(prefill_s, timed)
        costs = (
            prompt,
            np.where(known, prompt - computed, cached),
            output,
            np.where(timed, seconds, prefill_s),
            decode_s,
        )
        return replace(self, costs=_with_sums(*costs))

    def at(self, known: Bools) -> Paid:
        return self if known.all() else Paid(*(getattr(self, field.name)[..., known] for field in fields(self)))

    @cached_property
    def design(self) -> Design:
        return Estimate((Stratum(1.0, self.samples, self.clusters, self.scores),)).design

    @cached_property
    def _known(self) -> Bools:
        return np.isfinite(self.costs)

    @cached_property
    def measured(self) -> dict[str, int]:
        """Number of answers with a known value, per cost."""
        return dict(zip(_COSTS, np.count_nonzero(self._known, axis=1).tolist(), strict=True))

    @cached_property
    def _sums(self) -> dict[str, float]:
        return dict(zip(_COSTS, self.costs.sum(axis=1).tolist(), strict=True))

    def total(self, cost: str, beside: str | None = None) -> float | None:
        """Sum of known values, only over answers that also have the cost ``beside``; None if there are none."""
        if self.measured[cost] == self.measured[beside or cost] == len(self.scores):
            return self._sums[cost]
        known = self._known[_COSTS.index(cost)] & self._known[_COSTS.index(beside or cost)]
        return float(self.costs[_COSTS.index(cost), known].sum()) if known.any() else None


def _with_sums(prompt: Floats, cached: Floats, output: Floats, prefill_s: Floats, decode_s: Floats) -> Floats:
    made = [prompt - cached, prefill_s + decode_s, prompt - np.nan_to_num(cached) + output]
    return np.stack([prompt, cached, output, prefill_s, decode_s, *made])


def table(store: Store, query: ReportQuery) -> Table:
    """Build the report: for each run and benchmark all tasks together, then each task."""
    names, samples = named(store), scored(store, query.runs)
    paid = _paid(samples)
    totals: dict[str, float] = {}
    for (run, _), parts in paid.items():
        totals[run] = totals.get(run, 0.0) + sum(part.total("seconds") or 0.0 for part in parts.values())
    hours = _hours(store)
    lines: list[Line] = []
    for (run, benchmark), tasks in samples.items():
        alone = sum(name == run for name, _ in samples) == 1
        for line, part in _lines(benchmark, tasks, paid[run, benchmark]):
            share = (part.total("seconds") or 0.0) / totals[run] if totals[run] else None
            if share is None and alone and line["task"] is None:
                share = 1.0
            lines.append(names[run] | {"benchmark": benchmark} | line | _costs(part) | _shared(hours, run, share))
    _mark_unbeaten(lines, samples)
    return as_table(COLUMNS, [*lines, *_of_judges(store, query, hours)])


def _paid(samples: Mapping[tuple[str, str], Tasks]) -> dict[tuple[str, str], dict[str, Paid]]:
    """Costs by (run, benchmark) and task; tasks of a run share the prefill of their documents."""
    runs: dict[str, dict[tuple[str, str], Paid]] = {}
    for (run, benchmark), tasks in samples.items():
        runs.setdefault(run, {}).update({(benchmark, task): Paid.of(rows) for task, rows in tasks.items()})
    paid: dict[tuple[str, str], dict[str, Paid]] = {}
    for run, parts in runs.items():
        shared = Paid.together([*parts.values()]).with_shared_prefill()
        split = shared.split([len(part.scores) for part in parts.values()])
        for (benchmark, task), part in zip(parts, split, strict=True):
            paid.setdefault((run, benchmark), {})[task] = part
    return paid


def _of_judges(store: Store, query: ReportQuery, hours: Mapping[str, Line]) -> Iterator[Line]:
    rows = store.arrays(_JUDGES, [list(query.runs)])
    keys = list(zip(rows["run_id"].tolist(), rows["task"].tolist(), strict=True))
    for run, rubric in dict.fromkeys(keys):
        chosen = np.array([key == (run, rubric) for key in keys])
        who = {name: rows[name][chosen].tolist()[0] for name in WHO}
        of_run = Paid.unscored({name: rows[name][rows["run_id"] == run] for name in _MEASURED})
        part = Paid.unscored({name: rows[name][chosen] for name in _MEASURED})
        total = of_run.total("seconds")
        share = (part.total("seconds") or 0.0) / total if total else None
        line = {"benchmark": "judge", "task": rubric, "n": int(chosen.sum())}
        yield who | line | _costs(part) | _shared(hours, run, share)


def _lines(benchmark: str, tasks: Tasks, paid: Mapping[str, Paid]) -> Iterator[tuple[Line, Paid]]:
    family = known(benchmark)
    heads = {task: number(benchmark, task, rows) for task, rows in tasks.items()}
    estimates = {task: one.estimate if one else None for task, one in heads.items()}
    whole = overall(benchmark, tasks, [one for one in heads.values() if one])
    parts = [(None, whole.estimate if whole else None, Paid.together(list(paid.values())))]
    for task, made, part in [*parts, *((task, estimates[task], paid[task]) for task in tasks)]:
        line: Line = {"task": task}
        if made is not None:
            sure = interval(made)
            line |= {"n": sure.n, "score": sure.value, **told(sure, family, clustered=made.clustered)}
        yield line, part


def _costs(paid: Paid) -> Line:
    total = paid.total
    saved = _ratio(total("prefill_s", "computed_prompt"), total("computed_prompt", "prefill_s"))
    cached = total("cached_tokens", "prompt_tokens")
    return {
        "measured": paid.measured["seconds"],
        **{name: _whole(total(name)) for name in ("prompt_tokens", "cached_tokens", "output_tokens")},
        "prefill_s": total("prefill_s"),
        "decode_s": total("decode_s"),
        "prefill_tokens_s": _ratio(total("computed_prompt", "prefill_s"), total("prefill_s", "computed_prompt")),
        "decode_tokens_s": _ratio(total("output_tokens", "decode_s"), total("decode_s", "output_tokens")),
        "cached_share": _ratio(cached, total("prompt_tokens", "cached_tokens")),
        "seconds_saved": None if cached is None or saved is None else cached * saved,
        "seconds_per_answer": _ratio(total("seconds"), paid.measured["seconds"]),
        **_per_correct("tokens", paid),
        **_per_correct("seconds", paid),
    }


def _per_correct(what: str, paid: Paid) -> Line:
    """Cost per correct answer, over answers with both cost and score; empty if no answer is correct."""
    paid = paid.at(np.isfinite(paid.costs[_COSTS.index(what)]) & np.isfinite(paid.scores))
    scores, costs = paid.scores, paid.costs[_COSTS.index(what)]
    score, cost = float(scores.sum()), float(costs.sum())
    if score <= 0 or cost <= 0:
        return {}
    ratio = cost / score
    estimate = interval_of(paid.design, ratio + (costs - ratio * scores) / scores.mean(), bounded=False)
    line: Line = {f"{what}_per_correct": ratio}
    if estimate.se and estimate.df:
        spread = math.exp(min(t_quantile(0.975, estimate.df) * estimate.se / ratio, 700))
        line |= {f"{what}_per_correct_low": ratio / spread, f"{what}_per_correct_high": ratio * spread}
    return line


def _hours(store: Store) -> dict[str, Line]:
    """Hardware hours by run, with their unit and the number of untimed sessions, such as killed ones."""
    hours_of: dict[str, Line] = {}
    for run, workers, hardware, wall_s in store.query(_SESSIONS).rows:
        line = hours_of.setdefault(run, {"hours": 0.0, "hours_of": None, "untimed_sessions": 0})
        kind, units = _units(json.loads(hardware), max(workers, 1))
        if wall_s is None:
            line["untimed_sessions"] += 1
        elif not units or line["hours_of"] not in (None, kind) or line["hours"] is None:
            line["hours"] = None
        else:
            line |= {"hours": line["hours"] + wall_s * units / 3600, "hours_of": kind}
    return {run: line | ({} if line["hours"] else {"hours": None, "hours_of": None}) for run, line in hours_of.items()}


def _units(hardware: Any, processes: int) -> tuple[str, int]:
    """Unit of a session's hours (GPU or core) and number of units; 0 if unknown."""
    if not isinstance(hardware, dict):
        return "core", 0
    if "gpu" in hardware:
        return "GPU", processes * max(len(hardware.get("devices", ())), 1)
    if is_on_gpu(hardware):
        return "GPU", processes
    cores = hardware.get("threads") or hardware.get("cores")
    return "core", processes * cores if isinstance(cores, int) else 0


def _shared(hours: Mapping[str, Line], run: str, share: float | None) -> Line:
    """Hours of a part of a run, in proportion to its share of the model's seconds."""
    line = hours.get(run, {})
    if line.get("hours") is None or share is None:
        return {"untimed_sessions": line.get("untimed_sessions")}
    return {**line, "hours": line["hours"] * share}


def _mark_unbeaten(lines: Sequence[Line], found: Mapping[tuple[str, str], Tasks]) -> None:
    """Mark runs that no other run on the same tasks beats in score and seconds per answer."""
    heads = [line for line in lines if line["task"] is None]
    for line in heads:
        tasks = found[line["run_id"], line["benchmark"]].keys()
        point = _point(line)
        others = [
            other
            for one in heads
            if one is not line and one["benchmark"] == line["benchmark"] and (other := _point(one))
            and found[one["run_id"], one["benchmark"]].keys() == tasks
        ]  # fmt: skip
        if point:
            score, seconds = point
            line["unbeaten"] = not any(other[0] >= score and other[1] <= seconds and other != point for other in others)


def _point(line: Line) -> tuple[float, float] | None:
    score, seconds = line.get("score"), line.get("seconds_per_answer")
    return (score, seconds) if score is not None and seconds is not None and math.isfinite(score) else None


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
