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
        prompts: number of prompts.
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
    for one in parity.prompts:
        tasks.setdefault(one.prompt.task, []).append(one)
    rows = [_add_up(task, prompts, scored=True) for task, prompts in tasks.items()]
    return [*rows, _add_up(ALL, parity.prompts, scored=len(tasks) == 1)]


def _add_up(task: str, prompts: Sequence[PromptParity], *, scored: bool) -> TaskParity:
    gaps = [one.flip.gap for one in prompts if one.flip and one.flip.gap is not None]
    places = [one.flip.place for one in prompts if one.flip]
    metric, first, second = _scores(prompts) if scored else ("", None, None)
    return TaskParity(
        task=task,
        prompts=len(prompts),
        compared=sum(one.same_output is not None for one in prompts),
        same_ids=_count([one.same_ids for one in prompts]),
        same_prompts=_count([one.same_prompt for one in prompts]),
        logits=merge(one.logits for one in prompts),
        same_outputs=sum(bool(one.same_output) for one in prompts),
        median_first_difference=median(places) if places else None,
        median_gap=median(gaps) if gaps else None,
        max_gap=max(gaps) if gaps else None,
        metric=metric,
        score_first=first,
        score_second=second,
    )


def _count(flags: Sequence[bool | None]) -> int | None:
    known = [flag for flag in flags if flag is not None]
    return sum(known) if known else None


def _scores(prompts: Sequence[PromptParity]) -> tuple[str, float | None, float | None]:
    """Headline metric and its official aggregate for each model."""
    both = [one for one in prompts if one.outputs is not None and one.prompt.benchmark is not None]
    if not both:
        return "", None, None
    scores = [_score(both, side) for side in (0, 1)]
    return scores[0][0], scores[0][1], scores[1][1]


def _score(prompts: Sequence[PromptParity], side: int) -> tuple[str, float]:
    rows: list[ScoredSample] = []
    for one in prompts:
        benchmark, sample, outputs = one.prompt.benchmark, one.prompt.sample, one.outputs
        assert benchmark is not None and sample is not None and outputs is not None
        scores = benchmark.score(sample, outputs[side])
        values = {score.metric: score.score for score in scores}
        rows.append(ScoredSample(sample, values, reasoned=one.reasoned[side]))
    benchmark = prompts[0].prompt.benchmark
    assert benchmark is not None
    headline = benchmark.aggregate(prompts[0].prompt.key.task, rows)[0]
    return headline.metric, headline.score


def excess(parity: Parity, bound: float) -> str:
    """Explain how the difference of two models exceeds a bound on logits; "" if it does not."""
    (*_, whole) = by_task(parity)
    if whole.compared < whole.prompts:
        return f"{whole.prompts - whole.compared} of {whole.prompts} prompts were not answered by both models"
    if whole.same_ids != whole.prompts:
        return f"{whole.prompts - (whole.same_ids or 0)} of {whole.prompts} prompts do not have equal token ids"
    if not whole.logits.positions:
        return "no logits could be compared"
    if not whole.logits.max_abs <= bound:
        return f"the largest logit difference is {whole.logits.max_abs:.3g}"
    return ""


def to_json(parity: Parity) -> dict[str, Any]:
    *tasks, whole = by_task(parity)
    return {
        "first": _info(parity.first),
        "second": _info(parity.second),
        "same_vocabulary": parity.same_vocabulary,
        "not_compared": list(parity.not_compared),
        "all": whole.to_json(),
        "tasks": [task.to_json() for task in tasks],
        "prompts": [_prompt(one) for one in parity.prompts],
    }


def _info(info: BackendInfo) -> dict[str, Any]:
    settings: Mapping[str, Any] = info.settings
    return {
        "model": info.model,
        "backend": info.name,
        "version": info.version,
        "context_window": info.context_window,
        "settings": dict(settings),
    }


def _prompt(one: PromptParity) -> dict[str, Any]:
    return {
        "task": one.prompt.task,
        "sample_id": one.prompt.key.sample_id,
        "prompt_tokens": one.prompt_tokens,
        "same_ids": one.same_ids,
        "first_id_difference": one.first_id_difference,
        "same_prompt": one.same_prompt,
        "logits": one.logits.to_json() if one.logits.positions else None,
        "same_output": one.same_output,
        "first_difference": one.flip.place if one.flip else None,
        "gap": one.flip.gap if one.flip else None,
        "outputs": list(one.outputs) if one.outputs else None,
        "problem": one.problem or None,
    }
