"""From requests to completions on whatever backend: in lock-step where it can hold many sequences, else one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from lbx.backends.base import Backend, ConcurrentBackend
from lbx.engine.batching import BatchFailedError, DecodeBatch
from lbx.engine.prefix import plan_prefixes
from lbx.errors import BackendError, PromptError
from lbx.records import Completion, Request

LEAST_SEQUENCES = 4
"""Two of them are the trunk; with fewer than two answers at once nothing is won."""


Computed = Callable[[int], None]


def nobody(_tokens: int) -> None:
    """For callers that do not count tokens."""


def complete_all(
    backend: Backend, requests: Sequence[Request], *, batching: bool, computed: Computed = nobody
) -> Iterator[tuple[int, Completion | PromptError | BackendError]]:
    """Answer every request; yields (its index, what was said or why nothing was) in the order in which answers end.

    Args:
        batching: False asks one request at a time, in an order in which kept prefixes serve what follows.
        computed: told how many more tokens, of prompts and answers, went through the model.
    """
    if batching and isinstance(backend, ConcurrentBackend):
        for index, said in backend.generate_many(requests):
            _tell(computed, requests[index], said)
            yield index, said
        return
    memory = backend.sequences() if batching and len(requests) > 1 else None
    if memory is None or memory.max_sequences < LEAST_SEQUENCES:
        yield from _one_by_one(backend, requests, range(len(requests)), computed)
        return
    room = min(memory.max_cells, backend.info.context_window)  # the memory may have cells beyond the window
    together = [index for index, request in enumerate(requests) if _fits(request, room)]
    alone = [index for index, request in enumerate(requests) if not _fits(request, room)]
    batch = DecodeBatch(memory, [requests[index] for index in together], backend.tokenizer, backend.eos_ids, computed)
    try:
        for place, completion in batch.run():
            yield together[place], completion
    except BatchFailedError as failure:
        # One request may have broken the pass for all: alone, each of them shows whether it was the one.
        alone += [together[place] for place in failure.unanswered]
    yield from _one_by_one(backend, requests, alone, computed)


def _fits(request: Request, room: int) -> bool:
    needed = len(request.token_ids) + request.thinking_tokens + request.max_new_tokens
    return bool(request.token_ids) and request.max_new_tokens > 0 and needed <= room


def _one_by_one(
    backend: Backend, requests: Sequence[Request], indices: Sequence[int], computed: Computed
) -> Iterator[tuple[int, Completion | PromptError | BackendError]]:
    for index in _in_order(requests, indices):
        said: Completion | PromptError | BackendError
        try:
            said = backend.generate(requests[index])
        except (PromptError, BackendError) as exc:
            said = exc
        _tell(computed, requests[index], said)
        yield index, said


def _tell(computed: Computed, request: Request, said: Completion | PromptError | BackendError) -> None:
    if isinstance(said, Completion):
        prompt = len(request.token_ids) if said.prompt_tokens is None else said.prompt_tokens
        computed(prompt - said.cached_tokens + said.output_tokens)


def _in_order(requests: Sequence[Request], indices: Sequence[int]) -> list[int]:
    """Those that share a beginning one after the other; empty prompts, which the backend refuses, first."""
    empty = [index for index in indices if not requests[index].token_ids]
    rest = [index for index in indices if requests[index].token_ids]
    plan = plan_prefixes([requests[index].token_ids for index in rest])
    return empty + [rest[branch.index] for branch in plan.branches]
