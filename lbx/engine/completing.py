"""From requests to completions on whatever backend: in lock-step where it can hold many sequences, else one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lbx.backends.base import Backend, ConcurrentBackend
from lbx.backends.sequences import SequenceMemory
from lbx.engine.batching import Batch, BatchFailedError
from lbx.engine.prefix import plan_prefixes
from lbx.errors import BackendError, PromptError
from lbx.records import Completion, Request

_LEAST_SEQUENCES = 4
"""Two of them are the trunk; with fewer than two answers at once nothing is won."""


def complete_all(
    backend: Backend, requests: Sequence[Request], *, batching: bool
) -> Iterator[tuple[int, Completion | PromptError | BackendError]]:
    """Answer every request; yields (its index, what was said or why nothing was) in the order in which answers end.

    Args:
        batching: False asks one request at a time, in an order in which kept prefixes serve what follows.
    """
    if batching and isinstance(backend, ConcurrentBackend):
        yield from backend.generate_many(requests)
        return
    memory = backend.sequences() if batching and len(requests) > 1 else None
    if memory is None or memory.max_sequences < _LEAST_SEQUENCES:
        yield from _one_by_one(backend, requests, range(len(requests)))
        return
    together = [index for index, request in enumerate(requests) if _fits(request, memory)]
    alone = [index for index, request in enumerate(requests) if not _fits(request, memory)]
    batch = Batch(memory, [requests[index] for index in together], backend.tokenizer, backend.eos_ids)
    try:
        for place, completion in batch.run():
            yield together[place], completion
    except BatchFailedError as failure:
        # One request may have broken the pass for all: alone, each of them shows whether it was the one.
        alone += [together[place] for place in failure.unanswered]
    yield from _one_by_one(backend, requests, alone)


def _fits(request: Request, memory: SequenceMemory) -> bool:
    needed = len(request.token_ids) + request.thinking_tokens + request.max_new_tokens
    return bool(request.token_ids) and request.max_new_tokens > 0 and needed <= memory.max_cells


def _one_by_one(
    backend: Backend, requests: Sequence[Request], indices: Sequence[int]
) -> Iterator[tuple[int, Completion | PromptError | BackendError]]:
    for index in _in_order(requests, indices):
        try:
            yield index, backend.generate(requests[index])
        except (PromptError, BackendError) as exc:
            yield index, exc


def _in_order(requests: Sequence[Request], indices: Sequence[int]) -> list[int]:
    """Those that share a beginning one after the other; empty prompts, which the backend refuses, first."""
    empty = [index for index in indices if not requests[index].token_ids]
    rest = [index for index in indices if requests[index].token_ids]
    plan = plan_prefixes([requests[index].token_ids for index in rest])
    return empty + [rest[branch.index] for branch in plan.branches]
