"""The judge of a benchmark's authors, its files and published answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbx.base.layout import Bundle
from lbx.base.records import Sample
from lbx.benchmarks.base.judge_files import JudgeForm
from lbx.benchmarks.base.prediction_lines import PredictionLine
from lbx.benchmarks.base.rubric import Rubric

PUBLISHED = "published-"
"""What names of runs of published answers begin with."""


def published_run_id(model: str, *, length_hint: bool = True) -> str:
    """The run of a model's published answers, told how many words the reference has or not."""
    return f"{PUBLISHED}{model}" + ("" if length_hint else "-no-length-hint")


@dataclass(frozen=True, slots=True)
class OfficialJudge:
    """How a benchmark's authors had answers judged, and what their judge is known to say of published ones: what any
    other judge is held against.

    Attributes:
        title: the benchmark, to people.
        name: of the judge, to people.
        source: where a bundle has the rubric, which ``rubric`` reads; it raises BundleError where that is another one.
        baseline: the model that every other one is judged against.
        win_rates: {model: the win rate of its published answers against those of the baseline, in percent}.
        ordered: (better, worse) models, where the order of their win rates is beyond doubt.
        questions, mark: how many answers of each model were compared, and the mark of these questions.
        form: of their files of judgements.
        answer_files: their files of answers for a judge, and which marks of questions each means; ``row`` makes a row
            of the model, the sample, its mark, the prompt and the answer.
        settings_of: what such rows tell of how they were asked, as settings of a run.
        samples: each question for a judge or people in the official runners' order: its sample, and who judges it. A
            question that both judge is two. Raises BundleError: the bundle has no open task.
        published: {model: the bundle's files with its judged answers}, sorted; of those that were told how many words
            the reference has, or with ``length_hint=False`` of the others.
    """

    benchmark: str
    title: str
    name: str
    source: str
    baseline: str
    win_rates: Mapping[str, float]
    ordered: Sequence[tuple[str, str]]
    questions: int
    mark: str
    form: JudgeForm
    answer_files: Mapping[str, tuple[str, ...]]
    rubric: Callable[[Path], Rubric]
    row: Callable[[str, Sample, str, str, str], dict[str, Any]]
    settings_of: Callable[[Sequence[PredictionLine]], Mapping[str, Any]]
    samples: Callable[[Bundle], Iterator[tuple[Sample, str]]]
    published: Callable[[Bundle, bool], Mapping[str, Sequence[str]]]

    @property
    def baseline_run(self) -> str:
        """The run of the baseline's published answers."""
        return published_run_id(self.baseline)

    @property
    def runs(self) -> dict[str, str]:
        """{model of ``win_rates``: the run of its published answers}."""
        return {model: published_run_id(model) for model in self.win_rates}
