"""Whether a judge can be believed: its win rates of published answers beside GPT-4's, who judged the same ones.

L-Eval's authors had GPT-4 compare published answers of Claude-100k, GPT-4-32k and llama2-13b-chat with turbo-16k's, to
96 questions (figs/overall.png of OpenLMLab/LEval, cd34b05). A judge is unfit where a win rate of GPT-4's lies outside
its own 95% interval, where it surely reverses an order that GPT-4 tells, or where its texts too often hold no verdict.
Of Claude and GPT-4-32k no order is asked: GPT-4's win rates of them lie within one another's intervals.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lbx.benchmarks.base.official_judge import PUBLISHED, published_run_id
from lbx.benchmarks.leval.tasks import BASELINE
from lbx.statistics.differences import difference
from lbx.statistics.estimates import Estimate
from lbx.store import Store, opinions

GPT4: Mapping[str, float] = {"claude-100k": 60.94, "gpt4-32k": 54.16, "llama2-13b-chat-4k": 42.44}
"""GPT-4's win rates against turbo-16k-0613, in percent."""
QUESTIONS = 96

_ORDERED = (("claude-100k", "llama2-13b-chat-4k"), ("gpt4-32k", "llama2-13b-chat-4k"))
"""(better, worse) by GPT-4."""
_MOST_ERRORS = 0.05
_ASKS = ("orders",)
"""Settings that say what a judge is asked, not what it is."""

FIT, UNFIT, UNKNOWN = "fit", "unfit", "not calibrated"


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A judge's win rate of a published model against turbo-16k-0613, beside GPT-4's; both in 0..1.

    Attributes:
        low, high: the 95% interval of ``win_rate``, clustered by document; both are the win rate, where every document
            has the same.
        questions, rounds: how many were judged, and in how many prompts.
        errors: of these, those without a verdict.
        holds: whether GPT-4's lies within the interval.
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
    def holds(self) -> bool:
        return self.low <= self.gpt4 <= self.high


@dataclass(frozen=True, slots=True)
class Fitness:
    """What the published answers say of a judge.

    Attributes:
        verdict: "fit", "unfit" or "not calibrated".
        why: a sentence.
        rows: of the published models that it has judged, in GPT-4's order.
    """

    verdict: str
    why: str
    rows: Sequence[Calibrated] = ()

    def __str__(self) -> str:
        return f"{self.verdict}: {self.why}"


def fitness(store: Store, judge_id: str) -> Fitness:
    """What a judge, or another run of the same judge, made of the published answers."""
    return fitness_of(store).get(judge_id) or _fitness({})


def fitness_of(store: Store) -> dict[str, Fitness]:
    """The same of every judge of the file."""
    judges = store.query("FROM judges ORDER BY judge_id").dicts()
    made = _calibrations(store) if judges else {}
    who = {row["judge_id"]: (row["model"], row["backend"], _settings(row["settings"])) for row in judges}
    return {
        judge: _fitness(*(made.get(other, {}) for other, same in who.items() if same == one))
        for judge, one in who.items()
    }


def _fitness(*made: Mapping[str, tuple[Calibrated, Estimate]]) -> Fitness:
    """By whichever calibration is of the most questions."""
    known = max(made, key=lambda parts: sum(row.questions for row, _ in parts.values()))
    rows = [row for row, _ in known.values()]
    if lacking := [model for model in GPT4 if model not in known]:
        return Fitness(UNKNOWN, f"it has not judged the published answers of {_and(lacking)}", rows)
    if few := [row for row in rows if row.questions < QUESTIONS]:
        said = _and([f"{row.questions} of {row.model}" for row in few])
        return Fitness(UNKNOWN, f"of {QUESTIONS} published answers each it has judged only {said}", rows)
    why = list(_contradictions(known))
    if why:
        return Fitness(UNFIT, "; ".join(why), rows)
    said = _and([f"{_percent(row.win_rate)} [{_percent(row.low)}, {_percent(row.high)}]" for row in rows])
    return Fitness(FIT, f"its win rates of {_and(list(known))}, {said}, hold GPT-4's", rows)


def _contradictions(known: Mapping[str, tuple[Calibrated, Estimate]]) -> Iterator[str]:
    for row, _ in known.values():
        if row.errors > _MOST_ERRORS * row.rounds:
            yield f"{row.errors} of {row.rounds} texts on {row.model} hold no verdict"
        if not row.holds and row.errors < row.rounds:
            yield (
                f"it has {row.model} win {_percent(row.win_rate)} [{_percent(row.low)}, {_percent(row.high)}] against "
                f"{BASELINE}, GPT-4 {_percent(row.gpt4)}"
            )
    for better, worse in _ORDERED:
        if _surely_above(known[worse][1], known[better][1]):
            yield f"it puts {worse} above {better}"


def _calibrations(store: Store) -> dict[str, dict[str, tuple[Calibrated, Estimate]]]:
    """{judge: {published model that it has compared with turbo: the row, and the estimate behind it}}."""
    rounds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in store.query(
        "SELECT * FROM judged_rounds WHERE kind = 'pair' AND against_run_id = ? "
        "AND list_contains(?::VARCHAR[], run_id) AND (len(marks) = 0 OR list_contains(marks, 'LLM')) ORDER BY ALL",
        [published_run_id(BASELINE), [published_run_id(model) for model in GPT4]],
    ).dicts():
        rounds.setdefault((row["judge_id"], row["run_id"].removeprefix(PUBLISHED)), []).append(row)
    found: dict[str, dict[str, tuple[Calibrated, Estimate]]] = {}
    for judge, model in sorted(rounds, key=lambda key: list(GPT4).index(key[1])):
        found.setdefault(judge, {})[model] = _calibrated(model, rounds[judge, model])
    return found


def _calibrated(model: str, rounds: Sequence[Mapping[str, Any]]) -> tuple[Calibrated, Estimate]:
    made = opinions.estimate(rounds)
    said = [row["score"] for row in rounds if row["score"] is not None]
    rate = sum(said) / len(said) if said else 0.0
    sure = opinions.sureness(made)
    low, high = (rate if sure[end] is None else sure[end] for end in ("low", "high"))
    questions = len({(row["task"], row["sample_id"]) for row in rounds})
    row = Calibrated(model, GPT4[model] / 100, rate, low, high, questions, len(rounds), len(rounds) - len(said))
    return row, made


def _settings(text: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(text).items() if name not in _ASKS}


def _surely_above(upper: Estimate, lower: Estimate) -> bool:
    """Whether the first is higher beyond its interval, on the questions that both have a verdict on."""
    both = set.intersection(*(set(one.strata[0].samples.tolist()) if one.strata else set() for one in (upper, lower)))
    if not both:
        return False
    found = difference(*(_only(one, both) for one in (lower, upper)))
    return found.interval.low is not None and found.interval.low > 0


def _only(made: Estimate, samples: set[int]) -> Estimate:
    (stratum,) = made.strata
    return replace(made, strata=(stratum.at(np.isin(stratum.samples, sorted(samples))),))


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
