"""RULER's scores, the number of a task, and the averages of RULER's README.

Source: evaluate.py, and the table of README.md, of
https://github.com/NVIDIA/RULER/tree/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a

evaluate.py prints a number for each task and no average. The README states the mean of the 13 tasks at each of six
lengths, the mean of the lengths, two weighted means (weights 1 to 6 by length, rising and falling), and the effective
length: the longest length with an average of at least 85.6, the average of Llama-2-7B-chat at 4k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lbx.base.number import ALL, OVERALL, Number
from lbx.base.records import Sample, Score, ScoredSample
from lbx.benchmarks.base.aggregates import Average, ScoredRows, mean, task_score
from lbx.benchmarks.metrics import ruler
from lbx.benchmarks.metrics.loose_match import is_loose_match
from lbx.benchmarks.ruler.tasks import LENGTHS, QUESTIONS, TASKS, split_task
from lbx.statistics.estimates import Estimate, Stratum

MATCH_ALL, MATCH_PART, NULL = "string_match_all", "string_match_part", "null"
WITHOUT_REFERENCES = "without_references"
"""Key of ``Sample.meta`` for files in which the first reference is null, so that evaluate.py gives the whole file 0."""
NO_REFERENCES = "The sample has no reference, at which the official script stops."

AVERAGE, RISING, FALLING, EFFECTIVE = "average", "weighted_increasing", "weighted_decreasing", "effective_length_k"
"""Metrics of the group "overall". ``EFFECTIVE`` is in units of 1,024 tokens, and 0 for less than 4k."""
THRESHOLD = 85.6


def metrics_of(task: str) -> tuple[str, ...]:
    """Metrics of a task, the headline first. ``NULL`` is 1 for an answer without text."""
    return MATCH_PART if split_task(task)[0] in QUESTIONS else MATCH_ALL, NULL


def score(sample: Sample, output: str) -> list[Score]:
    """Score an output by the official match, and by whether it is empty."""
    headline, null = metrics_of(sample.task)
    prediction = ruler.clean_prediction(output)
    match = ruler.string_match_part if headline == MATCH_PART else ruler.string_match_all
    without = bool(sample.meta.get(WITHOUT_REFERENCES))
    value = 0.0 if without else match(prediction, sample.references)
    error = None if without or sample.references else NO_REFERENCES
    text = prediction.lower()
    found = [reference for reference in sample.references if reference.lower() in text]
    matched = max(found, key=len, default="") if headline == MATCH_PART else "".join(found)
    loose = is_loose_match(value, prediction, matched)
    return [Score(headline, value, error=error, loose=loose), Score(null, float(not prediction))]


def cluster_of(sample: Sample) -> str:
    """Cluster of a sample: the sample itself, or in qa the question, because each length asks the same questions."""
    base, _, _ = sample.task.rpartition("_")
    if base in QUESTIONS:
        return f"{base}/{sample.sample_id.partition('-')[0]}"
    return f"{sample.task}/{sample.sample_id}"


def aggregate(task: str, rows: Sequence[ScoredSample]) -> list[Number]:
    """Aggregate a task into evaluate.py's number (sum / n x 100, two decimals), and the share of empty answers."""
    null = metrics_of(task)[1]
    first = headline(task, rows)
    return [first, *task_score(null, rows, null, None)] if first else []


def headline(task: str, rows: Sequence[ScoredSample]) -> Number | None:
    """First number of ``aggregate``."""
    metric = metrics_of(task)[0]
    values = ScoredRows.of(rows).with_metric(metric)[1]
    if not len(values):
        return None
    return replace(task_score(metric, rows, metric, None)[0], official=round(mean(values) * 100, 2))


def length_label(length: int) -> str:
    """Format a length as in the README: "4k" for 4096, or the number if it is no multiple of 1024."""
    return f"{length // 1024}k" if length % 1024 == 0 else str(length)


LABELS = {length: length_label(length) for length in LENGTHS}


def effective_length(averages: Mapping[int, float]) -> int:
    """Longest standard length with an average of at least ``THRESHOLD``, or 0 if there is none."""
    return max((length for length in LENGTHS if averages.get(length, 0.0) >= THRESHOLD), default=0)


def groups(tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[Number]:
    """Average the 13 tasks at each length, then the six lengths as in the README's table.

    The average at a length is official if no task is missing. An average of lengths is official if all of these are.
    """
    scores: dict[int, dict[str, Number]] = {}
    for task, rows in tasks.items():
        base, length = split_task(task)
        if base in TASKS and (number := headline(task, rows)):
            scores.setdefault(length, {})[base] = number
    averages = {
        length: average
        for length, by_task in sorted(scores.items())
        if (average := Average.of([*by_task.values()], complete=by_task.keys() == {*TASKS}))
    }
    lengths = [
        average.to_group_number("length", length_label(length))
        for length, average in averages.items()
        if len(scores[length]) > 1
    ]
    standard = {length: averages[length] for length in LENGTHS if length in averages}
    if sum(len(scores[length]) for length in standard) < 2:
        return lengths
    if averages_only:
        return [_over_lengths(AVERAGE, standard), *lengths]
    return [
        *lengths,
        _over_lengths(AVERAGE, standard),
        *(_over_lengths(metric, standard) for metric in (RISING, FALLING) if len(standard) > 1),
        _effective(standard),
    ]


def length_weights(metric: str, lengths: Sequence[int]) -> list[int]:
    """Weights of standard lengths in an average."""
    places = [LENGTHS.index(length) for length in lengths]
    if metric == RISING:
        return [place + 1 for place in places]
    return [len(LENGTHS) - place if metric == FALLING else 1 for place in places]


def _over_lengths(metric: str, averages: Mapping[int, Average]) -> Number:
    parts, weights = list(averages.values()), length_weights(metric, list(averages))
    estimates = [part.estimate for part in parts if part.estimate is not None]
    mean_of_lengths = Average(
        n=sum(part.n for part in parts),
        score=_weighted_mean([part.score for part in parts], weights),
        percent=_weighted_mean([part.percent for part in parts], weights),
        complete=len(averages) == len(LENGTHS) and all(part.complete for part in parts),
        partial=any(part.partial for part in parts),
        estimate=_weighted_estimate(estimates, weights) if len(estimates) == len(parts) else None,
    )
    return mean_of_lengths.to_group_number(OVERALL, ALL, metric)


def _weighted_mean(values: Sequence[float], weights: Sequence[int]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)


def _weighted_estimate(estimates: Sequence[Estimate], weights: Sequence[int]) -> Estimate:
    strata = (
        Stratum(weight / sum(weights) * stratum.weight, stratum.samples, stratum.clusters, stratum.values)
        for weight, part in zip(weights, estimates, strict=True)
        for stratum in part.strata
    )
    return Estimate(tuple(strata), all(part.clustered for part in estimates), all(part.linear for part in estimates))


def _effective(averages: Mapping[int, Average]) -> Number:
    """Number of the effective length, official if no task is missing at a standard length up to the longest."""
    complete = all(part.complete for part in averages.values()) and [*averages] == [*LENGTHS[: len(averages)]]
    length = effective_length({length: round(part.percent, 1) for length, part in averages.items()}) / 1024
    n = sum(part.n for part in averages.values())
    partial = any(part.partial for part in averages.values())
    return Number(
        kind="group",
        grouping=OVERALL,
        name=ALL,
        metric=EFFECTIVE,
        n=n,
        score=length / 100,
        official=length if complete else None,
        partial=partial,
    )
