"""Continuous batching of requests: shared prefixes are computed once, and answers are decoded together.

One pass computes, in this order: the next token of every running answer, the rest of prompts that have forked off, and
the next tokens of the trunk (see ``lbx.engine.prefix``). When an answer ends, the next prompt joins the batch.

A prompt is admitted if the memory can store the prompt and all answers at their expected lengths. If that was too
optimistic, the youngest answer is preempted: its cells are freed, and its tokens are prefilled again, before any other
prompt, once enough cells are free. The oldest answer is never preempted, so every answer ends. If sequences cannot fork
anywhere, or single tokens are computed differently from several, answers are admitted by their budgets.

``complete_all`` answers many requests with any backend.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from lbx.base.errors import BackendError, PromptError
from lbx.base.records import Completion, Request
from lbx.engine.decoding import Decoding, TokenWatch
from lbx.engine.model import (
    NO_TOKENS,
    Backend,
    BulkExtension,
    CompletionResult,
    LocalBackend,
    MemoryFullError,
    SequenceExtension,
    SequenceMemory,
    SuppressedTokens,
    bulk_tokens,
)
from lbx.engine.prefix import Admission, AnswerLengths, Branch, PrefixPlan, decode_capacity, plan_prefixes
from lbx.engine.prompter import Tokenizer
from lbx.engine.token_budget import answer_budget, check_fits


@dataclass(slots=True)
class _RunningAnswer:
    """Answer that is being prefilled or decoded.

    Attributes:
        waiting: tokens still to be prefilled: of the prompt, and of the answer after a preemption.
        cached_tokens: leading tokens of the prompt that were reused.
        n_tokens: tokens of the answer so far.
    """

    position: int
    branch: Branch
    request: Request
    decoding: Decoding
    sequence: int
    waiting: Sequence[int]
    cached_tokens: int
    next_token: int | None = None
    n_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0


class BatchFailedError(Exception):
    """The model failed while it computed a batch.

    Args:
        unanswered_indices: indices of the requests without an answer: running answers first, then in order.
        n_suspects: number of leading ``unanswered_indices`` that the failed pass may have contained; at least 1.
    """

    def __init__(self, cause: BackendError, unanswered_indices: Sequence[int], n_suspects: int) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.unanswered_indices = tuple(unanswered_indices)
        self.n_suspects = n_suspects


@dataclass(slots=True)
class DecodeBatch:
    """Batch of requests, with the scheduler of passes.

    Args:
        requests: each not empty, and small enough to fit the memory by itself, answer included.
        eos_ids: tokens that end an answer.
        on_tokens: called after each pass with its number of tokens.
        max_answers: limit of answers decoded together.
        lengths: lengths of the answers that have ended, shared by several batches.

    Attributes:
        plan: order and prefixes of the requests.
        prompt_tokens: prefilled tokens so far, including preempted answers.
    """

    memory: SequenceMemory
    requests: Sequence[Request]
    tokenizer: Tokenizer
    eos_ids: Collection[int]
    on_tokens: Callable[[int], None] | None = None
    max_answers: int | None = None
    watch: TokenWatch | None = None
    lengths: AnswerLengths = field(default_factory=AnswerLengths)
    suppressed_tokens: SuppressedTokens = NO_TOKENS
    plan: PrefixPlan = field(init=False)
    prompt_tokens: int = 0
    _admission: Admission = field(init=False)
    _shared_cells: list[int] = field(init=False)  # cells that each prompt shares with the previous one
    _next_position: int = 0  # of the next prompt to fork off
    _trunks: list[int] = field(init=False)  # the last sequence is the trunk, the others are snapshots of it
    _spare: list[int] = field(init=False)  # sequences for further snapshots
    _rewind_lengths: Sequence[Sequence[int]] = ()
    _trunk_position: int = -1  # of the prompt that the trunk is extended for
    _trunk_s: float = 0.0
    _trunk_cached_tokens: int = 0  # tokens of that prompt that were reused
    _running_answers: list[_RunningAnswer] = field(default_factory=list)  # the oldest first
    _preempted_answers: list[_RunningAnswer] = field(default_factory=list)  # the oldest first
    _full: bool = False  # no answer may start until one has ended
    _free: list[int] = field(init=False)  # sequences for answers

    def __post_init__(self) -> None:
        traits, capacity = self.memory.traits, decode_capacity(self.memory)
        prompts = [request.token_ids for request in self.requests]
        self.plan = plan_prefixes(prompts, traits.follow_limit, traits.long_from, traits.bulk if traits.is_exact else 0)
        answers, trunks = min(capacity.max_answers, self.max_answers or capacity.max_answers), traits.trunks
        self._shared_cells = [branch.reused_tokens for branch in self.plan.branches]
        self._admission = Admission(
            replace(capacity, max_answers=answers),
            [branch.length for branch in self.plan.branches],
            self._shared_cells,
            [answer_budget(self.requests[branch.index]) for branch in self.plan.branches],
            self.lengths if capacity.resumes else None,
        )
        if not traits.forks_anywhere:
            self._rewind_lengths = self.plan.rewind_lengths()
        self._trunks, self._spare = [0], list(range(1, trunks))
        self._free = [*range(trunks, trunks + answers)][::-1]

    def run(self) -> Iterator[tuple[int, Completion]]:
        """Run the batch, and yield (index of the request, completion) as answers end.

        Raises:
            BatchFailedError: the model failed; the memory is empty afterwards.
        """
        traits = self.memory.traits
        if traits.forks_anywhere and not traits.copies:
            self.memory.fit(self._admission.peak_cells())
        try:
            while self._next_position < len(self.plan.branches) or self._running_answers or self._preempted_answers:
                self._admit()
                yield from self._step()
        except BackendError as exc:
            waiting = [answer.branch.index for answer in self._preempted_answers]
            waiting += [branch.index for branch in self.plan.branches[self._next_position :]]
            growing = [answer.branch.index for answer in self._running_answers]
            raise BatchFailedError(exc, growing + waiting, len(growing) + bool(waiting)) from exc
        finally:
            for sequence in range(self.memory.max_sequences):
                self.memory.drop(sequence)
            self.memory.fit(self.memory.max_cells)

    @property
    def _trunk(self) -> int:
        return self._trunks[-1]

    def _admit(self) -> None:
        """Start answers while enough cells are free, preempted answers first."""
        if self._full and self._running_answers:
            return
        self._full = False
        try:
            while self._preempted_answers and self._free:
                if not self._resume(self._preempted_answers[0]):
                    self._full = True
                    return
            self._fork_prompts()
        except MemoryFullError:
            if self._running_answers:
                self._full = True
            elif not self._preempt_youngest():
                raise

    def _fork_prompts(self) -> None:
        """Fork prompts off the trunk while the trunk contains their prefix and enough cells are free."""
        while self._next_position < len(self.plan.branches) and self._free:
            if self._trunk_position != self._next_position and not self._can_admit(self._next_position):
                return
            branch = self.plan.branches[self._next_position]
            request = self.requests[branch.index]
            self._rewind_trunk(self._next_position)
            if self.memory.length(self._trunk) < branch.fork_at:
                return  # the next pass extends it
            self.memory.fork(self._trunk, branch.fork_at, [self._free[-1]])
            sequence = self._free.pop()
            self._running_answers.append(
                _RunningAnswer(
                    self._next_position,
                    branch,
                    request,
                    Decoding(request, self.tokenizer, self.eos_ids, self.watch, self.suppressed_tokens),
                    sequence,
                    request.token_ids[branch.fork_at :],
                    self._trunk_cached_tokens,
                    prefill_s=self._trunk_s,
                )
            )
            self._trunk_s = 0.0
            self._next_position += 1

    def _resume(self, answer: _RunningAnswer) -> bool:
        reused, source = self._longest_prefix_owner(answer.position)
        if not self._admission.admits(
            answer.position,
            self._tokens_per_prompt(),
            self._cells_after_prefill(),
            answer_tokens=answer.n_tokens,
            reused_tokens=reused,
        ):
            return False
        self.memory.fork(source, reused, [self._free[-1]])
        answer.sequence = self._free.pop()
        answer.waiting = [*answer.request.token_ids, *answer.decoding.tokens][reused:]
        answer.next_token = None
        self._running_answers.append(self._preempted_answers.pop(0))
        return True

    def _longest_prefix_owner(self, position: int) -> tuple[int, int]:
        """Return (length, sequence) of the longest prefix of a prompt in the memory."""

        def shared_length(other: int, sequence: int) -> int:
            length, (first, second) = self.memory.length(sequence), sorted((other, position))
            if first < 0 or first == second:
                return length if first == second else 0
            return min(length, self._admission.shared_cells(first, second))

        sequences = [
            (self._trunk_position, self._trunk),
            *((answer.position, answer.sequence) for answer in self._running_answers),
        ]
        return max((shared_length(owner, sequence), sequence) for owner, sequence in sequences)

    def _preempt_youngest(self) -> bool:
        """Free cells: preempt the youngest of several answers, or drop the trunk. Returns whether cells were freed."""
        self._full = True
        if len(self._running_answers) > 1:
            answer = self._running_answers.pop()
            self.memory.drop(answer.sequence)
            self._free.append(answer.sequence)
            self._preempted_answers.insert(0, answer)
        elif self.memory.length(self._trunk):
            self.memory.drop(self._trunk)
            self._trunk_position = -1
        else:
            return False
        return True

    def _tokens_per_prompt(self) -> dict[int, int]:
        return {answer.position: answer.n_tokens for answer in self._running_answers}

    def _cells_after_prefill(self) -> int:
        return self.memory.used_cells + sum(len(answer.waiting) for answer in self._running_answers)

    def _can_admit(self, position: int) -> bool:
        if not self.memory.traits.forks_anywhere:  # a snapshot may be missing for lack of cells
            snapshots, reused = map(self.memory.length, self._trunks), self.plan.branches[position].reused_tokens
            self._shared_cells[position] = max((length for length in snapshots if length <= reused), default=0)
        return self._admission.admits(position, self._tokens_per_prompt(), self._cells_after_prefill())

    def _rewind_trunk(self, position: int) -> None:
        """Cut the trunk back to the prefix that a prompt shares with the previous one.

        If sequences cannot be cut, the longest snapshot of that prefix becomes the trunk. Snapshots that leave too few
        cells for the prompt are dropped, the shortest first.
        """
        if self._trunk_position == position:
            return
        reused = self.plan.branches[position].reused_tokens
        while self.memory.length(self._trunk) > reused:
            if self.memory.traits.forks_anywhere:
                self.memory.fork(self._trunk, reused, [self._spare[-1]])
                self.memory.drop(self._trunk)
                self._trunks[-1], self._spare[-1] = self._spare[-1], self._trunks[-1]
                continue
            self.memory.drop(self._trunk)
            if len(self._trunks) > 1:
                self._spare.append(self._trunks.pop())
        if self.memory.traits.resumes:
            length, source = self._longest_prefix_owner(position)
            if length > self.memory.length(self._trunk):
                self.memory.fork(source, length, [self._trunk])
        self._trunk_position = position
        while len(self._trunks) > 1 and self._cells_to_come() > self.memory.max_cells:
            self._spare.append(self._trunks.pop(0))
            self.memory.drop(self._spare[-1])
        self._trunk_cached_tokens = self.memory.length(self._trunk)

    def _cells_to_come(self) -> int:
        """Peak number of cells in use until the trunk's prompt is answered, if no other answer runs."""
        growth = self._admission.expected_tokens(self._trunk_position) - self.memory.length(self._trunk)
        return self.memory.used_cells + growth + self._copied_cells(self.plan.branches[self._trunk_position].fork_at)

    def _copied_cells(self, length: int) -> int:
        return length if self.memory.traits.copies else 0

    def _snapshot_trunk(self, length: int) -> None:
        """Keep a snapshot of the trunk's first ``length`` tokens if enough cells are free."""
        if self._spare and self._cells_to_come() + self._copied_cells(length) <= self.memory.max_cells:
            self._trunks.append(self._spare.pop())
            self.memory.fork(self._trunks[-2], length, [self._trunk])

    def _step(self) -> Iterator[tuple[int, Completion]]:
        """Run one pass of the model, and yield the answers that end with the pass."""
        items: list[SequenceExtension] = []
        owners: list[_RunningAnswer | None] = []  # None: the trunk
        free_tokens = self.memory.max_step
        for answer in self._running_answers:
            if answer.next_token is not None:
                items.append(SequenceExtension(answer.sequence, (answer.next_token,), True))
                owners.append(answer)
                free_tokens -= 1
        for answer in self._running_answers:
            if answer.waiting and free_tokens > 0:
                bulk = self._bulk_tokens(answer.position, answer.sequence)
                part = answer.waiting[: min(free_tokens, bulk or free_tokens)]
                kind = BulkExtension if bulk else SequenceExtension
                items.append(kind(answer.sequence, part, len(part) == len(answer.waiting)))
                owners.append(answer)
                free_tokens -= len(part)
        part = self._next_trunk_tokens(free_tokens)
        if part:
            bulk = self._bulk_tokens(self._trunk_position, self._trunk)
            items.append((BulkExtension if bulk else SequenceExtension)(self._trunk, part[: bulk or None], False))
            owners.append(None)
        try:
            yield from self._run_pass(items, owners)
        except MemoryFullError:
            if not self._preempt_youngest():
                raise

    def _bulk_tokens(self, position: int, sequence: int) -> int:
        """Number of the next tokens of a prompt that must be computed in bulk."""
        bulk = bulk_tokens(self.plan.branches[position].length, self.memory.traits.bulk)
        return max(0, bulk - self.memory.length(sequence))

    def _next_trunk_tokens(self, free_tokens: int) -> Sequence[int]:
        if self._trunk_position != self._next_position or self._preempted_answers or self._full:
            return ()
        branch = self.plan.branches[self._next_position]
        length, end = self.memory.length(self._trunk), branch.fork_at
        if not self.memory.traits.forks_anywhere and length < end and free_tokens > 0:
            stops = [
                n
                for n in self._rewind_lengths[self._next_position]
                if length <= n < end and end - n <= self.memory.traits.follow_limit
            ]
            if length in stops:
                self._snapshot_trunk(length)
            end = min([end, *(n for n in stops if n > length)])
        return self.requests[branch.index].token_ids[length : min(end, length + free_tokens)]

    def _run_pass(
        self, items: Sequence[SequenceExtension], owners: Sequence[_RunningAnswer | None]
    ) -> Iterator[tuple[int, Completion]]:
        start = time.perf_counter()
        outputs = self.memory.extend(items)
        tokens = sum(len(item.tokens) for item in items)
        share = (time.perf_counter() - start) / tokens
        if self.on_tokens:
            self.on_tokens(tokens)
        for item, answer, logits in zip(items, owners, outputs, strict=True):
            seconds = share * len(item.tokens)
            if answer is not None and answer.waiting:
                answer.waiting = answer.waiting[len(item.tokens) :]
            if answer is None:
                self._trunk_s += seconds
                self.prompt_tokens += len(item.tokens)
                continue
            if answer.next_token is None:
                answer.prefill_s += seconds
                self.prompt_tokens += len(item.tokens)
            else:
                answer.decode_s += seconds
            if logits is None:
                continue
            answer.next_token = answer.decoding.take(logits)
            answer.n_tokens += 1
            if answer.next_token is None:
                self.memory.drop(answer.sequence)
                self._running_answers.remove(answer)
                self.lengths.add(answer.n_tokens)
                self._full = False
                self._free.append(answer.sequence)
                yield (
                    answer.branch.index,
                    answer.decoding.completion(
                        cached_tokens=answer.cached_tokens, prefill_s=answer.prefill_s, decode_s=answer.decode_s
                    ),
                )


TokenCounter = Callable[[int], None]


def ignore_tokens(_tokens: int) -> None:
    """Empty token callback."""


def complete_all(
    backend: Backend,
    requests: Sequence[Request],
    *,
    batching: bool,
    on_tokens: TokenCounter = ignore_tokens,
    watch: TokenWatch | None = None,
) -> Iterator[tuple[int, CompletionResult]]:
    """Answer every request, and yield (index, result) in the order of the answers' ends.

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
    max_tokens = min(memory.max_cells, backend.info.context_window)  # the memory may be larger than the window
    for index, request in enumerate(requests):
        try:
            check_fits(request, max_tokens)
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

    yield from _complete_locally(batch, fitting, decode_capacity(memory, batching=batching).max_answers)


MakeBatch = Callable[[Sequence[int], int], DecodeBatch]
"""Function (indices of requests, maximum number of answers decoded together) -> batch."""


def _complete_locally(
    make: MakeBatch, remaining: Sequence[int], answers: int
) -> Iterator[tuple[int, CompletionResult]]:
    """Answer requests together. After a failed pass, the requests in that pass run one by one, the others together."""
    while remaining:
        suspects: Sequence[int] = ()
        try:
            yield from _run_batch(make, remaining, answers)
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


def _run_batch(make: MakeBatch, indices: Sequence[int], answers: int) -> Iterator[tuple[int, CompletionResult]]:
    """Run the requests at ``indices`` as a batch, and yield (index from ``indices``, completion)."""
    try:
        for index, completion in make(indices, answers).run():
            yield indices[index], completion
    except BatchFailedError as failure:
        unanswered = [indices[index] for index in failure.unanswered_indices]
        raise BatchFailedError(failure.cause, unanswered, failure.n_suspects) from failure.cause


def complete(backend: Backend, request: Request, watch: TokenWatch | None = None) -> Completion:
    """Answer one request.

    Raises:
        PromptError: the request does not fit the context window.
        BackendError: the model failed.
    """
    ((_, result),) = complete_all(backend, [request], batching=False, watch=watch)
    if isinstance(result, Completion):
        return result
    raise result
