"""Answers to many requests from any backend: computed here, together in one memory, or asked for elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from lbx.base.errors import PromptError
from lbx.base.records import Completion, Request
from lbx.inference.batching import BatchFailedError, DecodeBatch
from lbx.inference.decoding import TokenWatch, check_fits
from lbx.inference.model import Backend, LocalBackend, RequestResult
from lbx.inference.prefix import AnswerLengths, capacity_of

TokenCounter = Callable[[int], None]


def nobody(_tokens: int) -> None:
    """For callers that do not count tokens."""


def complete_all(
    backend: Backend,
    requests: Sequence[Request],
    *,
    batching: bool,
    computed: TokenCounter = nobody,
    watch: TokenWatch | None = None,
) -> Iterator[tuple[int, RequestResult]]:
    """Answer every request; yields (its index, what was said or why nothing was) in the order in which answers end.

    Args:
        batching: False lets one answer grow at a time.
        computed: told how many more tokens, of prompts and answers, went through the model.
        watch: of a ``LocalBackend``'s tokens.

    Raises:
        LbxError: nothing more can be answered.
    """
    if not isinstance(backend, LocalBackend):
        for index, result in backend.generate_many(requests, one_by_one=not batching):
            if isinstance(result, Completion):
                prompt = len(requests[index].token_ids) if result.prompt_tokens is None else result.prompt_tokens
                computed(prompt - result.cached_tokens + result.output_tokens)
            yield index, result
        return
    memory, fitting, lengths = backend.sequences(), list[int](), AnswerLengths()
    room = min(memory.max_cells, backend.info.context_window)  # the memory may have cells beyond the window
    for index, request in enumerate(requests):
        try:
            check_fits(request, room)
            fitting.append(index)
        except PromptError as exc:
            yield index, exc

    def batch(indices: Sequence[int], answers: int) -> DecodeBatch:
        batch_requests = [requests[index] for index in indices]
        return DecodeBatch(
            memory, batch_requests, backend.tokenizer, backend.eos_ids, computed, answers, watch, lengths
        )

    yield from _complete_here(batch, fitting, capacity_of(memory, batching=batching).answers)


MakeBatch = Callable[[Sequence[int], int], DecodeBatch]
"""A batch of the requests of these indices, of which so many answers may grow at a time."""


def _complete_here(make: MakeBatch, left: Sequence[int], answers: int) -> Iterator[tuple[int, RequestResult]]:
    """Answer them together. Where a pass fails, those in it are asked alone, and the others together again."""
    while left:
        suspects: Sequence[int] = ()
        try:
            yield from _run(make, left, answers)
            left = ()
        except BatchFailedError as failure:
            suspects, left = failure.unanswered[: failure.computed], failure.unanswered[failure.computed :]
            if answers == 1:
                yield suspects[0], failure.cause
                suspects, left = (), (*suspects[1:], *left)
        culprits = 0
        for index, outcome in _complete_here(make, suspects, 1):
            culprits += not isinstance(outcome, Completion)
            yield index, outcome
        if not culprits:  # it was too much at a time
            answers = max(1, answers // 2)


def _run(make: MakeBatch, indices: Sequence[int], answers: int) -> Iterator[tuple[int, RequestResult]]:
    """``DecodeBatch.run`` with the requests' own indices."""
    try:
        for place, completion in make(indices, answers).run():
            yield indices[place], completion
    except BatchFailedError as failure:
        unanswered = [indices[place] for place in failure.unanswered]
        raise BatchFailedError(failure.cause, unanswered, failure.computed) from failure.cause


def complete(backend: Backend, request: Request, watch: TokenWatch | None = None) -> Completion:
    """Answer one request. Of a ``LocalBackend``, ``watch`` is told of its tokens.

    Raises:
        PromptError: it does not fit the context window.
        BackendError: the model failed.
    """
    ((_, result),) = complete_all(backend, [request], batching=False, watch=watch)
    if isinstance(result, Completion):
        return result
    raise result
