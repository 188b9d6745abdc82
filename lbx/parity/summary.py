"""Summary of a comparison of two models: by task, over all prompts, and against a bound on logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from lbx.base.records import ScoredSample
from lbx.inference.model import BackendInfo
from lbx.parity.differences import LogitDifference, merge
from lbx.parity.measuring import Parity, PromptParity

ALL = "all"


@dataclass(frozen=True, slots=True)
class TaskParity:
    """Comparison summed over the prompts of a task, or over all.

    Attributes:
        compared: number of prompts that both models answered.
        same_ids, same_prompts: number of prompts with the same ids, as plain text and as fed by a run; None if token
            ids could not be compared.
        logits: differences at the positions of all prompts.
        same_outputs: number of equal greedy answers among ``compared``.
        median_first_difference: median place of the first differing token over differing answers; None without any, or
            without known tokens.
        median_gap, max_gap: the second model's preference for its own token there.
        metric: headline metric; "" for answers without one.
        score_first, score_second: score of each model, in 0..1, over the ``compared`` prompts.
    """

    task: str
    prompts: int
    compared: int
    same_ids: int | None
    same_prompts: int | None
    logits: LogitDifference
    same_outputs: int
    median_first_difference: float | None
    median_gap: float | None
    max_gap: float | None
    metric: str = ""
    score_first: float | None = None
    score_second: float | None = None

    @property
    def difference(self) -> float | None:
        """Score of the second model minus score of the first."""
        return None if self.score_first is None or self.score_second is None else self.score_second - self.score_first

    def to_json(self) -> dict[str, Any]:
        logits = self.logits.to_json() if self.logits.positions else None
        return asdict(self) | {"logits": logits, "metric": self.metric or None, "difference": self.difference}


def by_task(parity: Parity) -> list[TaskParity]:
    """Summarise each task, then all prompts together; the total of several tasks has no score."""
    tasks: dict[str, list[PromptParity]] = {}
    for comparison in parity.prompts:
        tasks.setdefault(comparison.prompt.task, []).append(comparison)
    rows = [_summarise(task, prompts, with_scores=True) for task, prompts in tasks.items()]
    return [*rows, _summarise(ALL, parity.prompts, with_scores=len(tasks) == 1)]


def _summarise(task: str, prompts: Sequence[PromptParity], *, with_scores: bool) -> TaskParity:
    gaps = [comparison.flip.gap for comparison in prompts if comparison.flip and comparison.flip.gap is not None]
    positions = [comparison.flip.position for comparison in prompts if comparison.flip]
    metric, first, second = _scores(prompts) if with_scores else ("", None, None)
    return TaskParity(
        task=task,
        prompts=len(prompts),
        compared=sum(comparison.same_output is not None for comparison in prompts),
        same_ids=_count([comparison.same_ids for comparison in prompts]),
        same_prompts=_count([comparison.same_prompt for comparison in prompts]),
        logits=merge(comparison.logits for comparison in prompts),
        same_outputs=sum(bool(comparison.same_output) for comparison in prompts),
        median_first_difference=median(positions) if positions else None,
        median_gap=median(gaps) if gaps else None,
        max_gap=max(gaps) if gaps else None,
        metric=metric,
        score_first=first,
        score_second=second,
    )


def _count(flags: Sequence[bool | None]) -> int | None:
    values = [flag for flag in flags if flag is not None]
    return sum(values) if values else None


def _scores(prompts: Sequence[PromptParity]) -> tuple[str, float | None, float | None]:
    """Headline metric and its official aggregate for each model."""
    both = [
        comparison
        for comparison in prompts
        if comparison.outputs is not None and comparison.prompt.benchmark is not None
    ]
    if not both:
        return "", None, None
    scores = [_score(both, side) for side in (0, 1)]
    return scores[0][0], scores[0][1], scores[1][1]


def _score(prompts: Sequence[PromptParity], side: int) -> tuple[str, float]:
    rows: list[ScoredSample] = []
    for comparison in prompts:
        benchmark, sample, outputs = comparison.prompt.benchmark, comparison.prompt.sample, comparison.outputs
        assert benchmark is not None and sample is not None and outputs is not None
        scores = benchmark.score(sample, outputs[side])
        values = {score.metric: score.score for score in scores}
        rows.append(ScoredSample(sample, values, reasoned=comparison.reasoned[side]))
    benchmark = prompts[0].prompt.benchmark
    assert benchmark is not None
    headline = benchmark.aggregate(prompts[0].prompt.key.task, rows)[0]
    return headline.metric, headline.score


def explain_excess(parity: Parity, bound: float) -> str:
    """Explain how the difference of two models exceeds a bound on logits; "" if it does not."""
    (*_, total) = by_task(parity)
    if total.compared < total.prompts:
        return f"{total.prompts - total.compared} of {total.prompts} prompts were not answered by both models"
    if total.same_ids != total.prompts:
        return f"{total.prompts - (total.same_ids or 0)} of {total.prompts} prompts do not have equal token ids"
    if not total.logits.positions:
        return "no logits could be compared"
    if not total.logits.max_abs <= bound:
        return f"the largest logit difference is {total.logits.max_abs:.3g}"
    return ""


def to_json(parity: Parity) -> dict[str, Any]:
    *tasks, total = by_task(parity)
    return {
        "first": _info_json(parity.first),
        "second": _info_json(parity.second),
        "same_vocabulary": parity.same_vocabulary,
        "not_compared": list(parity.not_compared),
        "all": total.to_json(),
        "tasks": [task.to_json() for task in tasks],
        "prompts": [_prompt_json(comparison) for comparison in parity.prompts],
    }


def _info_json(info: BackendInfo) -> dict[str, Any]:
    settings: Mapping[str, Any] = info.settings
    return {
        "model": info.model,
        "backend": info.name,
        "version": info.version,
        "context_window": info.context_window,
        "settings": dict(settings),
    }


def _prompt_json(comparison: PromptParity) -> dict[str, Any]:
    return {
        "task": comparison.prompt.task,
        "sample_id": comparison.prompt.key.sample_id,
        "prompt_tokens": comparison.prompt_tokens,
        "same_ids": comparison.same_ids,
        "first_id_difference": comparison.first_id_difference,
        "same_prompt": comparison.same_prompt,
        "logits": comparison.logits.to_json() if comparison.logits.positions else None,
        "same_output": comparison.same_output,
        "first_difference": comparison.flip.position if comparison.flip else None,
        "gap": comparison.flip.gap if comparison.flip else None,
        "outputs": list(comparison.outputs) if comparison.outputs else None,
        "problem": comparison.problem or None,
    }
