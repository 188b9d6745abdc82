"""Fitness of a judge: the judge's win rates of published answers, compared with GPT-4's on the same answers.

A judge is unfit if a win rate of GPT-4 is outside the judge's 95% interval, if the judge significantly reverses an
order of GPT-4, or if too many of the judge's texts contain no verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lbx.benchmarks.registry import official_judge
from lbx.opinions import aggregation as opinions
from lbx.results import Store
from lbx.statistics import LEVEL
from lbx.statistics.differences import difference
from lbx.statistics.estimates import Estimate

_MOST_ERRORS = 0.05
_INPUT_SETTINGS = ("orders",)
"""Settings that describe a judge's inputs rather than the judge."""

FIT, UNFIT, UN_OFFICIAL = "fit", "unfit", "not calibrated"


@dataclass(frozen=True, slots=True)
class JudgeCalibration:
    """A judge's and GPT-4's win rates of a published model, in 0..1.

    Attributes:
        gpt4, win_rate: win rates by GPT-4 and by the judge.
        low, high: 95% interval of ``win_rate``, clustered by document, or twice ``win_rate`` if it is equal for all
            documents.
        questions, rounds: number of judged questions and of prompts.
        errors: number of rounds without a verdict.
    """

    model: str
    gpt4: float
    win_rate: float
    low: float
    high: float
    questions: int
    rounds: int
    errors: int

    @property
    def agrees(self) -> bool:
        return self.low <= self.gpt4 <= self.high


@dataclass(frozen=True, slots=True)
class Fitness:
    """Verdict on a judge, based on the published answers.

    Attributes:
        verdict: "fit", "unfit" or "not calibrated".
        why: reason for the verdict, as a sentence.
        rows: calibrations on the published models that the judge has judged, in GPT-4's order.
    """

    verdict: str
    why: str
    rows: Sequence[JudgeCalibration] = ()

    def __str__(self) -> str:
        return f"{self.verdict}: {self.why}"


def fitness(store: Store, judge_id: str) -> Fitness:
    """Determine the fitness of a judge from all runs of the same judge on the published answers."""
    return fitness_of(store).get(judge_id) or _fitness({})


def fitness_of(store: Store) -> dict[str, Fitness]:
    """Determine {judge: fitness} for all judges in a file."""
    judges = store.query("FROM judges ORDER BY judge_id").dicts()
    calibrations = _calibrations(store) if judges else {}
    who = {row["judge_id"]: (row["model"], row["backend"], _settings(row["settings"])) for row in judges}
    fit = {
        judge: _fitness(*(calibrations.get(other, {}) for other, same in who.items() if same == identity))
        for judge, identity in who.items()
    }
    custom_rubrics = {row["judge_id"]: row["rubric"] for row in judges if row["rubric"] != official_judge.BENCHMARK}
    return fit | {
        judge: _custom_rubric_fitness(rubric) for judge, rubric in custom_rubrics.items() if not fit[judge].rows
    }


def _custom_rubric_fitness(rubric: str | None) -> Fitness:
    """Build the fitness of a judge with an unofficial rubric, for which no judgements are published."""
    by = f"by the rubric {rubric!r}" if rubric else "by its rubric"
    return Fitness(
        UN_OFFICIAL,
        f"no judgements {by} are published; compare it with people with `lbx rate` and the report agreement",
    )


def _fitness(*calibrations: Mapping[str, tuple[JudgeCalibration, Estimate]]) -> Fitness:
    calibration = max(calibrations, key=lambda parts: sum(row.questions for row, _ in parts.values()))
    rows = [row for row, _ in calibration.values()]
    if lacking := [model for model in official_judge.PUBLISHED_RUNS if model not in calibration]:
        return Fitness(UN_OFFICIAL, f"it has not judged the published answers of {_join_names(lacking)}", rows)
    if few := [row for row in rows if row.questions < official_judge.COMPARED_QUESTIONS]:
        listed = _join_names([f"{row.questions} of {row.model}" for row in few])
        return Fitness(
            UN_OFFICIAL,
            f"of {official_judge.COMPARED_QUESTIONS} published answers each, it has judged only {listed}",
            rows,
        )
    why = list(_contradictions(calibration))
    if why:
        return Fitness(UNFIT, "; ".join(why), rows)
    listed = _join_names([f"{_percent(row.win_rate)} [{_percent(row.low)}, {_percent(row.high)}]" for row in rows])
    return Fitness(
        FIT,
        f"{official_judge.JUDGE}'s win rates of {_join_names(list(calibration))} are inside its intervals, {listed}",
        rows,
    )


def _contradictions(calibration: Mapping[str, tuple[JudgeCalibration, Estimate]]) -> Iterator[str]:
    for row, _ in calibration.values():
        if row.errors > _MOST_ERRORS * row.rounds:
            yield f"{row.errors} of {row.rounds} texts on {row.model} have no verdict"
        if not row.agrees and row.errors < row.rounds:
            yield (
                f"its win rate of {row.model} against {official_judge.BASELINE_MODEL} is {_percent(row.win_rate)} "
                f"[{_percent(row.low)}, {_percent(row.high)}], {official_judge.JUDGE}'s {_percent(row.gpt4)}"
            )
    for better, worse in official_judge.ORDERED:
        if _is_significantly_above(calibration[worse][1], calibration[better][1]):
            yield f"it ranks {worse} above {better}"


def _calibrations(store: Store) -> dict[str, dict[str, tuple[JudgeCalibration, Estimate]]]:
    """Compute the calibrations of all judges, as {judge: {published model: (calibration, estimate)}}."""
    models = {run_id: model for model, run_id in official_judge.PUBLISHED_RUNS.items()}
    rounds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in store.query(
        "SELECT * FROM judged_rounds WHERE kind = 'pair' AND against_run_id = ? "
        "AND list_contains(?::VARCHAR[], run_id) AND (len(marks) = 0 OR list_contains(marks, ?)) ORDER BY ALL",
        [official_judge.BASELINE_RUN, list(models), official_judge.COMPARED_MARK],
    ).dicts():
        rounds.setdefault((row["judge_id"], models[row["run_id"]]), []).append(row)
    calibrations: dict[str, dict[str, tuple[JudgeCalibration, Estimate]]] = {}
    for judge, model in sorted(rounds, key=lambda key: list(official_judge.PUBLISHED_RUNS).index(key[1])):
        calibrations.setdefault(judge, {})[model] = _calibrate(model, rounds[judge, model])
    return calibrations


def _calibrate(model: str, rounds: Sequence[Mapping[str, Any]]) -> tuple[JudgeCalibration, Estimate]:
    estimate = opinions.estimate(rounds)
    ratings = [row["score"] for row in rounds if row["score"] is not None]
    rate = sum(ratings) / len(ratings) if ratings else 0.0
    interval_values = opinions.opinion_interval_columns(estimate)
    low, high = (rate if interval_values[end] is None else interval_values[end] for end in ("low", "high"))
    questions = len({(row["task"], row["sample_id"]) for row in rounds})
    row = JudgeCalibration(
        model,
        official_judge.WIN_RATES[model] / 100,
        rate,
        low,
        high,
        questions,
        len(rounds),
        len(rounds) - len(ratings),
    )
    return row, estimate


def _settings(text: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(text).items() if name not in _INPUT_SETTINGS}


def _is_significantly_above(upper: Estimate, lower: Estimate) -> bool:
    """Whether ``upper`` is significantly higher than ``lower``, on questions with a verdict in both."""
    both = set.intersection(
        *(set(rate.strata[0].samples.tolist()) if rate.strata else set() for rate in (upper, lower))
    )
    if not both:
        return False
    estimate = difference(*(_restrict(rate, both) for rate in (lower, upper)))
    return estimate.p is not None and estimate.p < LEVEL and estimate.interval.value > 0


def _restrict(estimate: Estimate, samples: set[int]) -> Estimate:
    (stratum,) = estimate.strata
    return replace(estimate, strata=(stratum.select(np.isin(stratum.samples, sorted(samples))),))


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _join_names(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
