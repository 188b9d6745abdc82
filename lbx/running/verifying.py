"""Whether answering together changed answers: some of a run's samples asked again alone, and where they part.

On a CPU with default settings they never should. Flash attention, a quantised KV cache or a GPU's kernels compute a
batch in another order than one prompt, and then the nearest ties fall the other way; how often, and how near they
were, is what this measures.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from lbx.base.errors import LbxError, UsageError
from lbx.base.records import Completion, Request, Sample, SampleKey
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.inference.completing import complete
from lbx.inference.model import LocalBackend
from lbx.inference.prefix import capacity_of
from lbx.parity.tracing import FlipWatch
from lbx.planning.work import Agenda, Work
from lbx.running.answering import make_prompt
from lbx.store import GenerationRow, Store
from lbx.store.verifications import (
    StoredStep,
    Verification,
    VerificationRow,
    answered,
    keep_verifications,
    stored_steps,
    summary,
    verified,
)

T = TypeVar("T")
Call = Callable[[Callable[[Sequence[Work]], T]], T]
"""Calls a function of the works where the model is (``lbx.running.answering.Asker.call``)."""


@dataclass(frozen=True, slots=True)
class Again:
    """One answered sample that is to be asked again alone.

    Attributes:
        run_id: the run's name in the results file.
        run: which of the runs that are made together.
        steps: what is stored for each of its prompts.
    """

    run_id: str
    run: int
    sample: Sample
    iteration: int
    steps: tuple[StoredStep, ...]


def refuse_unverifiable(works: Sequence[Work]) -> None:
    """Raise UsageError where no answer is made together with others, or none can be followed token by token."""
    backend = works[0].backend
    name = backend.info.model
    fix = "Remove --verify-batching."
    if not works[0].settings.batching:
        raise UsageError(
            "--verify-batching and --no-batching exclude each other: answers that were made alone need no check.",
            fix="Remove one of them.",
        )
    if not isinstance(backend, LocalBackend):
        raise UsageError(
            f"--verify-batching does not apply to the backend {backend.info.name}: it computes nothing here, and shows "
            "no logits.",
            fix=fix,
        )
    memory = backend.sequences()
    if memory.traits.single_reason or (memory.traits.forks_anywhere and capacity_of(memory).answers == 1):
        raise UsageError(
            f"--verify-batching has nothing to verify: {name} answers one prompt at a time, so each was asked alone.",
            fix=fix,
        )


def verify(
    store: Store,
    run_id: str,
    agenda: Agenda,
    count: int,
    call: Call[list[VerificationRow] | str],
    *,
    run: int = 0,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Verification:
    """Ask some of a run's answered samples again, one at a time from an empty memory, and store what differs.

    Each is committed at once; a sample that an earlier call has asked again is left alone.

    Args:
        count: how many samples, spread evenly over what the tasks of this agenda have answers to, greedy ones first.
        run: the agenda's place among runs that are made together.

    Raises:
        StoreError: the results file cannot be written.
        BundleError: a data file is damaged.
    """
    chosen = choose(store, run_id, agenda, count)
    done = verified(store, run_id)
    left = [key for key in chosen if key not in done]
    problems: list[str] = []
    for number, again in enumerate(_samples(store, run_id, agenda, left, run), start=len(chosen) - len(left) + 1):
        rows = call(functools.partial(ask_again, again))
        if isinstance(rows, str):
            problems.append(rows)
        else:
            keep_verifications(store, rows)
        progress(number, len(chosen))
    return summary(store, run_id, chosen, problems)


def choose(store: Store, run_id: str, agenda: Agenda, count: int) -> list[SampleKey]:
    """Which samples to ask again: always the same ones for the same answers."""
    kept: dict[tuple[str, str], list[SampleKey]] = {}
    for key in answered(store, run_id):
        kept.setdefault(key[:2], []).append(key)
    greedy: list[SampleKey] = []
    sampled: list[SampleKey] = []
    for task in agenda.tasks:
        if keys := kept.get((task.benchmark, task.name)):
            benchmark = agenda.benchmarks[task.benchmark]
            (greedy if _is_greedy(agenda, benchmark, task.name) else sampled).extend(keys)
    first = _spread(greedy, count)
    return first + _spread(sampled, count - len(first))


def _spread(keys: Sequence[SampleKey], count: int) -> list[SampleKey]:
    """So many keys, evenly over all (van der Corput's sequence): more of them begin with those that fewer are."""
    places: dict[int, None] = {}
    number = 0
    while len(places) < min(count, len(keys)):
        bits = number.bit_length()
        fraction = int(f"{number:b}"[::-1], 2) / 2**bits if number else 0.0
        places.setdefault(int(fraction * len(keys)))
        number += 1
    return [keys[place] for place in sorted(places)]


def _is_greedy(agenda: Agenda, benchmark: Benchmark, task: str) -> bool:
    """A task's prompts are all sampled in one way."""
    sample = next(iter(benchmark.samples(agenda.bundle, task)))
    return agenda.settings.sampling_for(benchmark.prompt(agenda.bundle, sample), 0).temperature == 0


def _samples(store: Store, run_id: str, agenda: Agenda, keys: Sequence[SampleKey], run: int) -> Iterator[Again]:
    """The keys' samples with their documents, task by task."""
    wanted: dict[SampleKey, list[int]] = {}
    for key in keys:
        wanted.setdefault(key._replace(iteration=0), []).append(key.iteration)
    for benchmark, task in dict.fromkeys(key[:2] for key in keys):
        for sample in agenda.benchmarks[benchmark].samples(agenda.bundle, task):
            for iteration in wanted.get(sample.key, ()):
                key = sample.key._replace(iteration=iteration)
                yield Again(run_id, run, sample, iteration, tuple(stored_steps(store, run_id, key)))


def ask_again(again: Again, works: Sequence[Work]) -> list[VerificationRow] | str:
    """Ask all of a sample's prompts, each alone; or say in a sentence why that cannot be."""
    work = works[again.run]
    try:
        return [
            _check(work, again, request, step)
            for step, (request, _) in enumerate(zip(_requests(work, again), again.steps, strict=True))
        ]
    except LbxError as exc:
        return str(exc)


def _requests(work: Work, again: Again) -> Iterator[Request]:
    """The prompts as the run made them; a second step's is made of the stored first answer."""
    question = make_prompt(work, again.sample, again.iteration)
    if isinstance(question, GenerationRow):
        raise LbxError(question.error or "")
    if question.request.prompt_sha256 != again.steps[0].prompt_sha256:
        raise LbxError(f"{question.request.key} has a different prompt now than when it was answered.")
    yield question.request
    for step in again.steps[:-1]:
        prompt = question.benchmark.follow_up(work.bundle, again.sample, work.mode, step.output)
        if prompt is None:
            raise LbxError(f"{question.request.key} is asked in one step now, and was asked in two.")
        yield work.request(question.request.key, prompt)


def _check(work: Work, again: Again, request: Request, number: int) -> VerificationRow:
    backend, step = work.backend, again.steps[number]
    parting = FlipWatch(step.output_ids or ())
    alone = complete(backend, request, parting)
    flip = parting.flip
    text = alone.text
    if number == len(again.steps) - 1:  # whose answer is stored as the authors join it with the earlier ones
        benchmark, earlier = work.benchmarks[again.sample.benchmark], [one.output for one in again.steps[:-1]]
        text = benchmark.final_answer(again.sample, work.mode, [*earlier, alone.text])
    return VerificationRow(
        again.run_id,
        *request.key,
        step=number,
        equal=_is_stored(replace(alone, text=text), step),
        first_difference=flip.place if flip else None,
        logit_gap=flip.gap if flip and not request.sampling.temperature else None,
        output_alone=alone.text,
        checked_at=datetime.now(UTC),
    )


def _is_stored(alone: Completion, step: StoredStep) -> bool:
    """Whether an answer is the stored one in all that was stored of it."""
    return (
        (alone.text, alone.reasoning, alone.output_tokens) == (step.output, step.reasoning, step.output_tokens)
        and step.finish_reason in (None, alone.finish_reason)
        and (step.output_ids is None or tuple(step.output_ids) == alone.output_ids)
    )
