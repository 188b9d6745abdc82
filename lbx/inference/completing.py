"""Answers to many requests from any backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from lbx.base.errors import PromptError
from lbx.base.records import Completion, Request
from lbx.inference.batching import BatchFailedError, DecodeBatch
from lbx.inference.decoding import TokenWatch, check_fits
from lbx.inference.model import Backend, CompletionResult, LocalBackend
from lbx.inference.prefix import AnswerLengths, decode_capacity

TokenCounter = Callable[[int], None]


def ignore_tokens(_tokens: int) -> None:
    """Discard a number of tokens: the callback of callers that do not count."""


def complete_all(
    backend: Backend,
    requests: Sequence[Request],
    *,
    batching: bool,
    on_tokens: TokenCounter = ignore_tokens,
    watch: TokenWatch | None = None,
) -> Iterator[tuple[int, CompletionResult]]:
    """Answer every request; yields (index, result) in the order in which answers end.

    Args:
        batching: decode several answers at a time.
        on_tokens: called with the number of tokens computed, of prompts and answers.
        watch: called with each token of a ``LocalBackend``.

    Raises:
        LbxError: no further request can be answered.
    """
    if not isinstance(backend, LocalBackend):
        for index, result in backend.generate_many(requests, one_by_one=not batching):
            if isinstance(result, Completion):
                prompt = result.prompt_tokens
                if prompt is None:
                    prompt = len(requests[index].token_ids) if backend.info.knows_prompt_tokens else 0
                on_tokens(prompt - result.cached_tokens + (result.output_tokens or 0))
            yield index, result
        return
    memory, fitting, lengths = backend.sequences(), list[int](), AnswerLengths()
    room = min(memory.max_cells, backend.info.context_window)  # the memory may be larger than the window
    for index, request in enumerate(requests):
        try:
            check_fits(request, room)
            fitting.append(index)
        except PromptError as exc:
            yield index, exc

    def batch(indices: Sequence[int], answers: int) -> DecodeBatch:
        batch_requests = [requests[index] for index in indices]
        return DecodeBatch(
            memory,
            batch_requests,
            backend.tokenizer,
            backend.eos_ids,
            on_tokens,
            answers,
            watch,
            lengths,
            backend.info.suppressed_tokens,
        )

    yield from _complete_locally(batch, fitting, decode_capacity(memory, batching=batching).answers)


MakeBatch = Callable[[Sequence[int], int], DecodeBatch]
"""Makes a batch of the requests with these indices, with a limit of answers decoded at a time."""


def _complete_locally(
    make: MakeBatch, remaining: Sequence[int], answers: int
) -> Iterator[tuple[int, CompletionResult]]:
    """Answer requests together. After a failed pass its requests run one by one, and the others together again."""
    while remaining:
        suspects: Sequence[int] = ()
        try:
            yield from _run(make, remaining, answers)
            remaining = ()
        except BatchFailedError as failure:
            suspects, remaining = (
                failure.unanswered_indices[: failure.n_suspects],
                failure.unanswered_indices[failure.n_suspects :],
            )
            if answers == 1:
                yield suspects[0], failure.cause
                suspects, remaining = (), (*suspects[1:], *remaining)
        culprits = 0
        for index, outcome in _complete_locally(make, suspects, 1):
            culprits += not isinstance(outcome, Completion)
            yield index, outcome
        if not culprits:  # there were too many at a time
            answers = max(1, answers // 2)


def _run(make: MakeBatch, indices: Sequence[int], answers: int) -> Iterator[tuple[int, CompletionResult]]:
    """Run the requests at ``indices`` as a batch; yields each completion with its entry of ``indices``."""
    try:
        for index, completion in make(indices, answers).run():
            yield indices[index], completion
    except BatchFailedError as failure:
        unanswered = [indices[index] for index in failure.unanswered_indices]
        raise BatchFailedError(failure.cause, unanswered, failure.n_suspects) from failure.cause


def complete(backend: Backend, request: Request, watch: TokenWatch | None = None) -> Completion:
    """Answer one request.

    Raises:
        PromptError: it does not fit the context window.
        BackendError: the model failed.
    """
    ((_, result),) = complete_all(backend, [request], batching=False, watch=watch)
    if isinstance(result, Completion):
        return result
    raise result
