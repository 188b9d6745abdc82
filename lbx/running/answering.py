"""Answering of samples in one or two steps, with flags for problems that may have affected an answer.

An ``Asker`` runs the model: in this process or in several others (``lbx.running.workers.pool.WorkerPool``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from types import NoneType
from typing import Any, Protocol, Self, TypeVar

from lbx.base.errors import LbxError, PromptError
from lbx.base.marks import UNFINISHED
from lbx.base.records import Completion, Prompt, Request, Sample, SampleKey
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.engine.batching import TokenCounter, complete_all, ignore_tokens
from lbx.results import GenerationRow, RunRow
from lbx.running.jobs import Job, PendingSample, Prepare, Work

T = TypeVar("T")


class Asker(Protocol):
    """Asker of a run: a loaded model, or several copies in worker processes."""

    @property
    def rows(self) -> Sequence[RunRow]:
        """Rows of the runs that are executed together, for the table ``runs``."""
        ...

    @property
    def process_ids(self) -> Sequence[int]:
        """Ids of the other processes that have loaded the model."""
        ...

    def call(self, function: Callable[[Sequence[Work]], T]) -> T:
        """Call a function, picklable by name, with the ``Work`` of each run, perhaps in another process."""
        ...

    def ask(
        self, jobs: Iterator[Job], on_tokens: Callable[[int], None]
    ) -> Iterator[tuple[PendingSample, GenerationRow]]:
        """Run jobs, and yield each answer with the pending sample as soon as the answer is complete.

        After each earlier step of an answer comes a row with ``error_type`` ``UNFINISHED`` and the finished steps.

        Args:
            on_tokens: called with the number of prompt and answer tokens that the model has just processed.

        Raises:
            LbxError: the model cannot continue.
        """
        ...

    def close(self) -> None: ...


class LocalAsker:
    """Asker that runs jobs in this process. Use as a context manager.

    Args:
        prepare: loads the model; called immediately.
    """

    def __init__(self, prepare: Prepare) -> None:
        self._works = prepare()
        self.rows = tuple(work.row for work in self._works)
        self.process_ids: Sequence[int] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, function: Callable[[Sequence[Work]], T]) -> T:
        return function(self._works)

    def ask(
        self, jobs: Iterator[Job], on_tokens: Callable[[int], None]
    ) -> Iterator[tuple[PendingSample, GenerationRow]]:
        for job in jobs:
            for index, row in answer_job(self._works, job, on_tokens=on_tokens):
                yield job[index], row

    def close(self) -> None:
        self._works[0].backend.close()


@dataclass(frozen=True, slots=True)
class Step:
    prompt: Prompt
    request: Request
    completion: Completion
    prompt_tokens: int | None

    def to_json(self) -> dict[str, Any]:
        ids = self.completion.output_ids
        return {
            "output": self.completion.text,
            "reasoning": self.completion.reasoning,
            "finish_reason": self.completion.finish_reason,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.completion.output_tokens,
            "prompt_sha256": self.request.prompt_sha256,
            "prompt_source": self.prompt.source,
            "output_ids": None if ids is None else list(ids),
        }

    def to_whole_json(self) -> dict[str, Any]:
        """Return ``to_json`` with the fields that an answer's row sums up, for a later ``from_whole_json``."""
        return self.to_json() | {name: getattr(self.completion, name) for name in _SUMMED}

    @classmethod
    def from_whole_json(cls, prompt: Prompt, request: Request, values: Mapping[str, Any]) -> Self:
        """Step from a ``to_whole_json`` value, for the same prompt."""
        ids = values["output_ids"]
        stored = {name: values[name] for name in ("reasoning", "finish_reason", "output_tokens", *_SUMMED)}
        completion = Completion(values["output"], output_ids=None if ids is None else tuple(ids), **stored)
        return cls(prompt, request, completion, values["prompt_tokens"])


_STEP_TYPES: Mapping[str, tuple[type, ...]] = {
    "output": (str,),
    "prompt_sha256": (str,),
    "finish_reason": (str,),
    "reasoning": (str, NoneType),
    **dict.fromkeys(("prompt_tokens", "output_tokens", "reasoning_tokens"), (int, NoneType)),
    "cached_tokens": (int,),
    **dict.fromkeys(("prefill_s", "decode_s"), (float, int)),
    "reasoning_closed": (bool, NoneType),
    "stop_in_reasoning": (bool,),
    "output_ids": (list, NoneType),
}


def _is_whole_step(values: object) -> bool:
    """Whether a value has the form of ``Step.to_whole_json``: other people's files may have any JSON."""
    if not isinstance(values, dict) or not all(
        isinstance(values.get(name, ...), types) for name, types in _STEP_TYPES.items()
    ):
        return False
    return all(isinstance(token, int) for token in values["output_ids"] or ())


_SUMMED = ("cached_tokens", "prefill_s", "decode_s", "reasoning_tokens", "reasoning_closed", "stop_in_reasoning")


@dataclass(slots=True)
class PendingAnswer:
    """Sample that waits for one answer.

    Attributes:
        prompt, request: prompt and request of the next step.
        steps: finished steps.
    """

    benchmark: Benchmark
    sample: Sample
    prompt: Prompt
    request: Request
    steps: list[Step] = field(default_factory=list)


def make_prompt(work: Work, sample: Sample, iteration: int) -> PendingAnswer | GenerationRow:
    """Make a sample's prompt and request, or a failed row if the prompt cannot be sent.

    Raises:
        BundleError: the bundle lacks the benchmark's prompt.
    """
    benchmark = work.benchmarks[sample.benchmark]
    key = sample.key._replace(iteration=iteration)
    prompt = work.prompt(sample)
    try:
        return PendingAnswer(benchmark, sample, prompt, work.request(key, prompt))
    except PromptError as exc:
        return failed_row(work, key, prompt, exc)


def repeat_answer(work: Work, question: PendingAnswer, iteration: int) -> PendingAnswer:
    """Copy of a question for another iteration, with the seed of that iteration."""
    sampling = work.settings.sampling_for(question.prompt, iteration)
    request = replace(question.request, key=question.request.key._replace(iteration=iteration), sampling=sampling)
    return PendingAnswer(question.benchmark, question.sample, question.prompt, request)


def failed_row(
    work: Work, key: SampleKey, prompt: Prompt, error: LbxError, steps: Sequence[Step] = ()
) -> GenerationRow:
    """Row of a failed answer, with the finished steps, after which a repetition continues."""
    return GenerationRow(
        work.run_id,
        *key,
        prompt_source=prompt.source,
        error=str(error),
        error_type=type(error).__name__,
        steps=[step.to_whole_json() for step in steps] or None,
    )


def answer_job(
    works: Sequence[Work], job: Job, *, on_tokens: TokenCounter = ignore_tokens
) -> Iterator[tuple[int, GenerationRow]]:
    """Answer all items of a job, and yield (item index, row) as soon as each answer is complete (see ``Asker.ask``).

    Args:
        works: work of each run, indexed by the items' ``run``.
        on_tokens: see ``Asker.ask``.

    Raises:
        BundleError: the bundle lacks a benchmark's prompt.
    """
    waiting: list[tuple[int, Work, PendingAnswer]] = []
    for index, item in enumerate(job):
        work = works[item.run]
        first: PendingAnswer | GenerationRow | None = None
        for iteration in item.iterations:
            if not isinstance(first, PendingAnswer):
                first = make_prompt(work, item.sample, iteration)
            if isinstance(first, GenerationRow):
                yield index, first
                continue
            question = repeat_answer(work, first, iteration)
            if row := _take_steps(work, question, item.finished_steps.get(iteration, ())):
                yield index, row
            else:
                waiting.append((index, work, question))
    while waiting:
        unfinished: list[tuple[int, Work, PendingAnswer]] = []
        requests = [question.request for _, _, question in waiting]
        # All first steps before any second one.
        backend, batching = works[0].backend, works[0].settings.batching
        for position, result in complete_all(backend, requests, batching=batching, on_tokens=on_tokens):
            index, work, question = waiting[position]
            row = _next_step(work, question, result)
            if row is None:
                unfinished.append((index, work, question))
            yield index, row or _unfinished_row(work, question)
        waiting = unfinished


def _take_steps(
    work: Work, question: PendingAnswer, finished_steps: Sequence[Mapping[str, Any]]
) -> GenerationRow | None:
    """Continue a question after stored steps, up to the first with another prompt. Returns as ``_add_step``."""
    for values in finished_steps:
        if not _is_whole_step(values) or values["prompt_sha256"] != question.request.prompt_sha256:
            break
        if row := _add_step(work, question, Step.from_whole_json(question.prompt, question.request, values)):
            return row
    return None


def _unfinished_row(work: Work, question: PendingAnswer) -> GenerationRow:
    return GenerationRow(
        work.run_id,
        *question.request.key,
        prompt_source=question.prompt.source,
        error="The run ended before all prompts of this answer were answered. Run the same command again to continue.",
        error_type=UNFINISHED,
        steps=[step.to_whole_json() for step in question.steps],
    )


def _next_step(work: Work, question: PendingAnswer, completion: Completion | LbxError) -> GenerationRow | None:
    """Add a model's result to a question. Returns as ``_add_step``."""
    if isinstance(completion, LbxError):
        return failed_row(work, question.request.key, question.prompt, completion, question.steps)
    prompt_tokens = completion.prompt_tokens
    if prompt_tokens is None and work.backend.info.knows_prompt_tokens:
        prompt_tokens = len(question.request.token_ids)
    return _add_step(work, question, Step(question.prompt, question.request, completion, prompt_tokens))


def _add_step(work: Work, question: PendingAnswer, step: Step) -> GenerationRow | None:
    """Add a finished step to a question. Returns the answer's row after the last step, or None if a step follows."""
    key = question.request.key
    question.steps.append(step)
    outputs = [step.completion.text for step in question.steps]
    answer = question.benchmark.next_step(work.bundle, question.sample, work.mode, outputs)
    if isinstance(answer, Prompt):
        question.prompt = answer
        try:
            question.request = work.request(key, answer)
        except PromptError as exc:
            return failed_row(work, key, answer, exc, question.steps)
        return None
    first = question.steps[0]
    cut = is_reference_cut(question.benchmark.evidence(question.sample), first.prompt, first.request)
    return _answer_row(work.run_id, question.steps, answer, cut)


def _answer_row(run_id: str, steps: Sequence[Step], answer: str, evidence_cut: bool | None) -> GenerationRow:
    """Make an answer's row: prompt columns from the first step, tokens and seconds summed over all steps."""
    first, last = steps[0], steps[-1]
    completions = [step.completion for step in steps]
    read = [step.request for step in steps]
    closed = [completion.reasoning_closed for completion in completions if completion.reasoning_closed is not None]
    return GenerationRow(
        run_id,
        *first.request.key,
        output=answer,
        # A benchmark may put the beginning of the answer before an empty one, which counts as empty all the same.
        output_words=0 if answer.strip() and not last.completion.text.strip() else None,
        reasoning=last.completion.reasoning,
        finish_reason="length" if any(completion.finish_reason == "length" for completion in completions) else "stop",
        prompt_tokens=_known_sum(step.prompt_tokens for step in steps),
        cached_tokens=sum(completion.cached_tokens for completion in completions),
        output_tokens=_known_sum(completion.output_tokens for completion in completions),
        original_tokens=sum(request.original_tokens for request in read),
        truncated=any(request.truncated for request in read),
        prompt_sha256=first.request.prompt_sha256,
        prompt_source=first.prompt.source,
        prefill_s=sum(completion.prefill_s for completion in completions),
        decode_s=sum(completion.decode_s for completion in completions),
        seed=first.request.sampling.seed,
        reasoning_tokens=_known_sum(completion.reasoning_tokens for completion in completions),
        reasoning_closed=all(closed) if closed else None,
        stop_in_reasoning=any(completion.stop_in_reasoning for completion in completions),
        tokens_cut=sum(request.tokens_cut for request in read),
        reference_cut=evidence_cut,
        bos_tokens=max(request.bos_tokens for request in read),
        system_prompt=first.request.system_place,
        instructions_sha256=first.prompt.instructions_sha256,
        served_model=last.completion.served_model,
        ended_by_stop=last.completion.ended_by_stop,
        steps=[step.to_json() for step in steps[:-1]] or None,
        output_ids=last.completion.output_ids,
    )


def _known_sum(counts: Iterable[int | None]) -> int | None:
    """Sum of the counts, or None if a count is unknown."""
    known = list(counts)
    return None if None in known else sum(count or 0 for count in known)


def is_reference_cut(evidence: Sequence[str], prompt: Prompt, request: Request) -> bool | None:
    """Whether truncation removed every occurrence of all evidence texts from the document, ignoring case.

    None if the prompt was not truncated or the document contains none of the texts.
    """
    if not request.truncated:
        return None
    document = prompt.document.casefold()
    standing = [text for text in (passage.strip().casefold() for passage in evidence) if text and text in document]
    if not standing:
        return None
    # Ignore text around the document: a multiple-choice question contains its own answer. The cut may extend into that
    # text, so match it from either end.
    before = (prompt.with_system_in_text if request.system_place == "text" else prompt).before
    remaining = request.kept[_common_length(request.kept, before) :]
    # Separate messages, and the answer's prefix after a template, are not part of the remaining text.
    endings = (prompt.with_turns_in_text.with_prefix_in_text.after, prompt.with_turns_in_text.after)
    after = next((ending for ending in endings if remaining.endswith(ending)), prompt.after)
    remaining = remaining[: len(remaining) - _common_length(reversed(remaining), reversed(after))].casefold()
    return not any(text in remaining for text in standing)


def _common_length(first: Iterable[str], second: Iterable[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
