"""A sample from its prompt to its answer, in one step or two, with the flags of things that may have spoilt it.

Who asks is an ``Asker``: this process, or several others (``lbx.running.workers.pool.WorkerPool``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Protocol, Self, TypeVar

from lbx.base.errors import LbxError, PromptError
from lbx.base.records import Completion, Prompt, Request, Sample, SampleKey
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.inference.completing import TokenCounter, complete_all, ignore_tokens
from lbx.spec.jobs import Job, PendingSample, Prepare, Work
from lbx.store import GenerationRow, RunRow

T = TypeVar("T")


class Asker(Protocol):
    """A loaded model, or several copies of it."""

    @property
    def rows(self) -> Sequence[RunRow]:
        """Rows of the runs that are made together."""
        ...

    @property
    def process_ids(self) -> Sequence[int]:
        """Processes that hold the model, without this one."""
        ...

    def call(self, function: Callable[[Sequence[Work]], T]) -> T:
        """What a function of the works returns. It may be called in another process, so it travels by its name."""
        ...

    def ask(
        self, jobs: Iterator[Job], computed: Callable[[int], None]
    ) -> Iterator[tuple[PendingSample, GenerationRow]]:
        """Ask jobs; yields each answer with what was asked, as answers end.

        Args:
            computed: told how many more tokens, of prompts and answers, went through the model.

        Raises:
            LbxError: nothing more can be asked.
        """
        ...

    def close(self) -> None: ...


class LocalAsker:
    """Asks in this process. Use it as a context manager.

    Args:
        prepare: called at once; what it raises is passed on.
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
        self, jobs: Iterator[Job], computed: Callable[[int], None]
    ) -> Iterator[tuple[PendingSample, GenerationRow]]:
        for job in jobs:
            for index, row in answer_job(self._works, job, computed=computed):
                yield job[index], row

    def close(self) -> None:
        self._works[0].backend.close()


@dataclass(frozen=True, slots=True)
class Step:
    """A prompt, its request and its completion."""

    prompt: Prompt
    request: Request
    completion: Completion

    @property
    def prompt_tokens(self) -> int:
        """As the server counts them if lbx cannot."""
        counted = self.completion.prompt_tokens
        return len(self.request.token_ids) if counted is None else counted

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


@dataclass(slots=True)
class PendingAnswer:
    """One sample to be asked once, while it waits for its answer.

    Attributes:
        prompt, request: of the step that comes next.
        steps: those that are over.
    """

    benchmark: Benchmark
    sample: Sample
    prompt: Prompt
    request: Request
    steps: list[Step] = field(default_factory=list)


def make_prompt(work: Work, sample: Sample, iteration: int) -> PendingAnswer | GenerationRow:
    """A sample's question, or the row that says why it cannot be asked.

    Raises:
        BundleError: the bundle lacks the benchmark's prompt.
    """
    benchmark = work.benchmarks[sample.benchmark]
    key = sample.key._replace(iteration=iteration)
    prompt = work.prompt(sample)
    try:
        return PendingAnswer(benchmark, sample, prompt, work.request(key, prompt))
    except PromptError as exc:
        return failed(work, key, prompt, exc)


def again(work: Work, question: PendingAnswer, iteration: int) -> PendingAnswer:
    """The same question for another iteration, with its own seed."""
    sampling = work.settings.sampling_for(question.prompt, iteration)
    request = replace(question.request, key=question.request.key._replace(iteration=iteration), sampling=sampling)
    return PendingAnswer(question.benchmark, question.sample, question.prompt, request)


def failed(work: Work, key: SampleKey, prompt: Prompt, error: LbxError) -> GenerationRow:
    return GenerationRow(
        work.run_id, *key, prompt_source=prompt.source, error=str(error), error_type=type(error).__name__
    )


def answer_job(
    works: Sequence[Work], job: Job, *, computed: TokenCounter = ignore_tokens
) -> Iterator[tuple[int, GenerationRow]]:
    """Ask all of a job; yields (index of the item, its row) as soon as each answer ends.

    Args:
        works: of each run that the items name.
        computed: told how many more tokens went through the model.

    Raises:
        BundleError: the bundle lacks a benchmark's prompt.
    """
    waiting: list[tuple[int, Work, PendingAnswer]] = []
    for index, item in enumerate(job):
        work = works[item.run]
        question: PendingAnswer | GenerationRow | None = None
        for iteration in item.iterations:
            if isinstance(question, PendingAnswer):
                question = again(work, question, iteration)
            else:
                question = make_prompt(work, item.sample, iteration)
            if isinstance(question, GenerationRow):
                yield index, question
            else:
                waiting.append((index, work, question))
    while waiting:
        unfinished: list[tuple[int, Work, PendingAnswer]] = []
        requests = [question.request for _, _, question in waiting]
        # All first steps before any second one.
        backend, batching = works[0].backend, works[0].settings.batching
        for place, result in complete_all(backend, requests, batching=batching, computed=computed):
            index, work, question = waiting[place]
            row = _take(work, question, result)
            if row is None:
                unfinished.append((index, work, question))
            else:
                yield index, row
        waiting = unfinished


def _take(work: Work, question: PendingAnswer, completion: Completion | LbxError) -> GenerationRow | None:
    """The row if that was the last step; otherwise the question gets its next one."""
    key = question.request.key
    if isinstance(completion, LbxError):
        return failed(work, key, question.prompt, completion)
    question.steps.append(Step(question.prompt, question.request, completion))
    outputs = [step.completion.text for step in question.steps]
    answer = question.benchmark.next_step(work.bundle, question.sample, work.mode, outputs)
    if isinstance(answer, Prompt):
        question.prompt = answer
        try:
            question.request = work.request(key, answer)
        except PromptError as exc:
            return failed(work, key, answer, exc)
        return None
    first = question.steps[0]
    cut = reference_cut(question.benchmark.evidence(question.sample), first.prompt, first.request)
    return _row(work.run_id, question.steps, answer, cut)


def _row(run_id: str, steps: Sequence[Step], answer: str, cut: bool | None) -> GenerationRow:
    """The answer, with the first step's prompt and all steps' tokens and seconds."""
    first, last = steps[0], steps[-1]
    completions = [step.completion for step in steps]
    read = [step.request for step in steps]
    closed = [one.reasoning_closed for one in completions if one.reasoning_closed is not None]
    return GenerationRow(
        run_id,
        *first.request.key,
        output=answer,
        reasoning=last.completion.reasoning,
        finish_reason="length" if any(one.finish_reason == "length" for one in completions) else "stop",
        prompt_tokens=sum(step.prompt_tokens for step in steps),
        cached_tokens=sum(one.cached_tokens for one in completions),
        output_tokens=sum(one.output_tokens for one in completions),
        original_tokens=sum(one.original_tokens for one in read),
        truncated=any(one.truncated for one in read),
        prompt_sha256=first.request.prompt_sha256,
        prompt_source=first.prompt.source,
        prefill_s=sum(one.prefill_s for one in completions),
        decode_s=sum(one.decode_s for one in completions),
        seed=first.request.sampling.seed,
        reasoning_tokens=sum(one.reasoning_tokens for one in completions),
        reasoning_closed=all(closed) if closed else None,
        stop_in_reasoning=any(one.stop_in_reasoning for one in completions),
        tokens_cut=sum(one.tokens_cut for one in read),
        reference_cut=cut,
        bos_tokens=max(one.bos_tokens for one in read),
        system_prompt=first.request.system_place,
        steps=[step.to_json() for step in steps[:-1]] or None,
        output_ids=last.completion.output_ids,
    )


def reference_cut(evidence: Sequence[str], prompt: Prompt, request: Request) -> bool | None:
    """Whether truncation cut away every place in the document where one of the texts stood, compared without case.

    None where nothing was cut, or none of the texts stands in the document to begin with.
    """
    if not request.truncated:
        return None
    document = prompt.document.casefold()
    standing = [text for text in (one.strip().casefold() for one in evidence) if text and text in document]
    if not standing:
        return None
    # What stands around the document is no evidence: a multiple-choice question spells out its own answer. A cut may
    # go into it, so what is left of it is what agrees from either end.
    before = (prompt.system_in_text if request.system_place == "text" else prompt).before
    kept = request.kept[_agreeing(request.kept, before) :]
    after = prompt.in_one_message.after
    after = after if kept.endswith(after) else prompt.after  # messages of their own are not in what is kept
    kept = kept[: len(kept) - _agreeing(reversed(kept), reversed(after))].casefold()
    return not any(text in kept for text in standing)


def _agreeing(one: Iterable[str], other: Iterable[str]) -> int:
    """Length of the common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
