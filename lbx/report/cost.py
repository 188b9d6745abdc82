"""The report ``cost``: what scores were paid with, in tokens, seconds and hours of hardware.

Tokens are those that were computed: a prompt's less what it shared with another's, and the answer's. Seconds are the
model's own, prefill and decode. What a correct answer cost is all of a task's cost over the sum of its scores: a ratio
of two sums, linearised for its interval, which is made of its logarithm, as a price is never below 0.

A judge costs as any model does, and has no score: a line for its rubric stands behind those of the models.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lbx.benchmarks.aggregates import average
from lbx.benchmarks.columns import Array, ScoredRows
from lbx.report.scored import SURE, WHO, Tasks, as_table, known, named, number, scored, told
from lbx.report.shapes import Wanted
from lbx.statistics.estimates import Codes, Estimate, Floats, Stratum, interval
from lbx.statistics.tails import t_quantile
from lbx.store import Store, Table
from lbx.store.views import MODE_OF_RUN

_PER_CORRECT = tuple(f"{what}_per_correct{end}" for what in ("tokens", "seconds") for end in ("", "_low", "_high"))
COLUMNS = (
    *WHO, "benchmark", "task", "n", "score", *SURE, "measured", "prompt_tokens", "cached_tokens", "output_tokens",
    "prefill_s", "decode_s", "prefill_tokens_s", "decode_tokens_s", "cached_share", "seconds_saved",
    "seconds_per_answer", *_PER_CORRECT, "hours", "hours_of", "untimed_sessions", "unbeaten",
)  # fmt: skip

_GPU_LIBRARY = re.compile(r"\b(?:CUDA|ROCm|HIP|Metal|MTL|Vulkan|SYCL|MUSA)\d* :")
_SESSIONS = """
    WITH parts AS (
        SELECT *, coalesce(prefill_s + decode_s, 0) AS own,
               row_number() OVER () AS place, epoch(started_at)::BIGINT AS second, round(wall_s) AS took
        FROM sessions
    )
    SELECT run_id, workers, hardware::VARCHAR,
           -- Runs that are made together have the same time, which is of all of them.
           wall_s * CASE WHEN sum(own) OVER together > 0 THEN own / sum(own) OVER together
                         ELSE 1 / count(*) OVER together END
    FROM parts
    WINDOW together AS (PARTITION BY spec::VARCHAR, second, took,
                        CASE WHEN spec IS NULL OR wall_s IS NULL THEN place END)
    ORDER BY run_id, place
"""

_JUDGES = f"""
    SELECT r.run_id, r.model, r.backend, {MODE_OF_RUN} AS mode, d.differs_in, g.task, g.prompt_tokens, g.cached_tokens,
           g.output_tokens, g.prefill_s, g.decode_s
    FROM generations g JOIN runs r USING (run_id) JOIN distinctions d USING (run_id)
    WHERE g.benchmark = 'judge' AND g.error IS NULL AND (len($1::VARCHAR[]) = 0 OR list_contains($1::VARCHAR[], run_id))
    ORDER BY run_id, task
"""  # noqa: S608 (our own names)
_MEASURED = ("prompt_tokens", "cached_tokens", "output_tokens", "prefill_s", "decode_s")

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Paid:
    """Answers' costs in arrays, NaN where nobody measured; of each its sample, its cluster and its headline score."""

    samples: Codes
    clusters: Codes
    scores: Floats
    prompt: Floats
    cached: Floats
    output: Floats
    prefill_s: Floats
    decode_s: Floats

    @classmethod
    def of(cls, rows: ScoredRows) -> Paid:
        names = ("samples", "clusters", "score", *_MEASURED)
        return cls(*(rows.column(name) for name in names))

    @classmethod
    def unscored(cls, measured: Mapping[str, Array]) -> Paid:
        """Answers that have no score, each for itself."""
        values = [np.ma.filled(measured[name].astype(float), np.nan) for name in _MEASURED]
        places = np.arange(len(values[0]))
        return cls(places, places, np.full(len(places), np.nan), *values)

    @classmethod
    def together(cls, parts: Sequence[Paid]) -> Paid:
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))

    @property
    def seconds(self) -> Floats:
        return self.prefill_s + self.decode_s

    @property
    def tokens(self) -> Floats:
        """Computed ones; what was shared counts as nothing where nobody said how much it is."""
        return self.prompt - np.nan_to_num(self.cached) + self.output


def table(store: Store, wanted: Wanted) -> Table:
    """The report's rows: of each run and benchmark all tasks together, then each task."""
    names, found = named(store), scored(store, wanted.runs)
    paid = {key: {task: Paid.of(rows) for task, rows in tasks.items()} for key, tasks in found.items()}
    totals: dict[str, float] = {}
    for (run, _), parts in paid.items():
        totals[run] = totals.get(run, 0.0) + sum(_total(part.seconds) or 0.0 for part in parts.values())
    hours = _hours(store)
    lines: list[Line] = []
    for (run, benchmark), tasks in found.items():
        alone = sum(name == run for name, _ in found) == 1
        for line, part in _lines(benchmark, tasks, paid[run, benchmark]):
            share = (_total(part.seconds) or 0.0) / totals[run] if totals[run] else None
            if share is None and alone and line["task"] is None:
                share = 1.0
            lines.append(names[run] | {"benchmark": benchmark} | line | _costs(part) | _shared(hours, run, share))
    _mark_unbeaten(lines, found)
    return as_table(COLUMNS, [*lines, *_of_judges(store, wanted, hours)])


def _of_judges(store: Store, wanted: Wanted, hours: Mapping[str, Line]) -> Iterator[Line]:
    rows = store.arrays(_JUDGES, [list(wanted.runs)])
    keys = list(zip(rows["run_id"].tolist(), rows["task"].tolist(), strict=True))
    for run, rubric in dict.fromkeys(keys):
        chosen = np.array([key == (run, rubric) for key in keys])
        who = {name: rows[name][chosen].tolist()[0] for name in WHO}
        of_run = Paid.unscored({name: rows[name][rows["run_id"] == run] for name in _MEASURED})
        part = Paid.unscored({name: rows[name][chosen] for name in _MEASURED})
        total = _total(of_run.seconds)
        share = (_total(part.seconds) or 0.0) / total if total else None
        line = {"benchmark": "judge", "task": rubric, "n": int(chosen.sum())}
        yield who | line | _costs(part) | _shared(hours, run, share)


def _lines(benchmark: str, tasks: Tasks, paid: Mapping[str, Paid]) -> Iterator[tuple[Line, Paid]]:
    family = known(benchmark)
    heads = {task: number(benchmark, task, rows) for task, rows in tasks.items()}
    estimates = {task: one.estimate if one else None for task, one in heads.items()}
    parts = [(None, average(list(estimates.values())), Paid.together(list(paid.values())))]
    for task, made, part in [*parts, *((task, estimates[task], paid[task]) for task in tasks)]:
        line: Line = {"task": task}
        if made is not None:
            sure = interval(made)
            line |= {"n": sure.n, "score": sure.value, **told(sure, family, clustered=made.clustered)}
        yield line, part


def _costs(paid: Paid) -> Line:
    computed = paid.prompt - paid.cached
    saved = _ratio(_total(paid.prefill_s, computed), _total(computed, paid.prefill_s))
    cached = _total(paid.cached, paid.prompt)
    return {
        "measured": int(np.isfinite(paid.seconds).sum()),
        "prompt_tokens": _whole(_total(paid.prompt)),
        "cached_tokens": _whole(_total(paid.cached)),
        "output_tokens": _whole(_total(paid.output)),
        "prefill_s": _total(paid.prefill_s),
        "decode_s": _total(paid.decode_s),
        "prefill_tokens_s": _ratio(_total(computed, paid.prefill_s), _total(paid.prefill_s, computed)),
        "decode_tokens_s": _ratio(_total(paid.output, paid.decode_s), _total(paid.decode_s, paid.output)),
        "cached_share": _ratio(cached, _total(paid.prompt, paid.cached)),
        "seconds_saved": None if cached is None or saved is None else cached * saved,
        "seconds_per_answer": _ratio(_total(paid.seconds), float(np.isfinite(paid.seconds).sum())),
        **_per_correct("tokens", paid.tokens, paid),
        **_per_correct("seconds", paid.seconds, paid),
    }


def _per_correct(what: str, costs: Floats, paid: Paid) -> Line:
    """All costs over the sum of scores, of the answers of which both are known; nothing where no answer is correct."""
    known = np.isfinite(costs) & np.isfinite(paid.scores)
    costs, scores = costs[known], paid.scores[known]
    if not known.any() or scores.sum() <= 0 or costs.sum() <= 0:
        return {}
    ratio = float(costs.sum() / scores.sum())
    linear = ratio + (costs - ratio * scores) / scores.mean()
    found = interval(Estimate((Stratum(1.0, paid.samples[known], paid.clusters[known], linear),)), bounded=False)
    line: Line = {f"{what}_per_correct": ratio}
    if found.se and found.df:
        spread = math.exp(min(t_quantile(0.975, found.df) * found.se / ratio, 700))
        line |= {f"{what}_per_correct_low": ratio / spread, f"{what}_per_correct_high": ratio * spread}
    return line


def _hours(store: Store) -> dict[str, Line]:
    """{run: hours of its hardware, of what, and how many sessions nobody timed, as of those that were killed}."""
    found: dict[str, Line] = {}
    for run, workers, hardware, wall_s in store.query(_SESSIONS).rows:
        line = found.setdefault(run, {"hours": 0.0, "hours_of": None, "untimed_sessions": 0})
        kind, units = _units(json.loads(hardware), max(workers, 1))
        if wall_s is None:
            line["untimed_sessions"] += 1
        elif not units or line["hours_of"] not in (None, kind) or line["hours"] is None:
            line["hours"] = None
        else:
            line |= {"hours": line["hours"] + wall_s * units / 3600, "hours_of": kind}
    return {run: line | ({} if line["hours"] else {"hours": None, "hours_of": None}) for run, line in found.items()}


def _units(hardware: Any, processes: int) -> tuple[str, int]:
    """What a session's hours are counted in, and how many of them it had; 0 where nobody knows."""
    if not isinstance(hardware, dict):
        return "core", 0
    if "gpu" in hardware:
        return "GPU", processes * max(len(hardware.get("devices", ())), 1)
    if hardware.get("n_gpu_layers") and _GPU_LIBRARY.search(str(hardware.get("features", ""))):
        return "GPU", processes
    cores = hardware.get("threads") or hardware.get("cores")
    return "core", processes * cores if isinstance(cores, int) else 0


def _shared(hours: Mapping[str, Line], run: str, share: float | None) -> Line:
    """A part's hours: the run's by the part's seconds of the model."""
    line = hours.get(run, {})
    if line.get("hours") is None or share is None:
        return {"untimed_sessions": line.get("untimed_sessions")}
    return {**line, "hours": line["hours"] * share}


def _mark_unbeaten(lines: Sequence[Line], found: Mapping[tuple[str, str], Tasks]) -> None:
    """Of runs on the same tasks: whether none other scores as much for less, or more for as little."""
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


def _total(values: Floats, beside: Floats | None = None) -> float | None:
    """The sum of what is known, where ``beside`` is known, too; None where nothing is."""
    known = np.isfinite(values) if beside is None else np.isfinite(values) & np.isfinite(beside)
    return float(values[known].sum()) if known.any() else None


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
