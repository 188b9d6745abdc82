"""Answers to many requests in one memory: shared prefixes are computed once, and answers decoded in lock-step.

One pass of the model takes, in this order: the next token of every answer that grows, the rest of prompts that have
branched off, and a piece of the trunk (see ``lbx.inference.prefix``). An answer that ends leaves at once, and the next
prompt takes its place.

A prompt is admitted when the memory has room for it and for answers as long as all are likely to become. Where that
was too hopeful, the youngest answer gives its cells back, and its tokens are read again in one go when there is room,
before any other prompt. The oldest is never thrown out, so that each comes to its end. Where sequences cannot fork
anywhere, or tokens are computed otherwise one by one, the longest possible answers have room.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from lbx.base.errors import BackendError
from lbx.base.records import Completion, Request
from lbx.inference.decoding import Decoding, TokenWatch
from lbx.inference.model import Extend, MemoryFullError, SequenceMemory
from lbx.inference.prefix import Admission, AnswerLengths, Branch, PrefixPlan, capacity_of, plan_prefixes
from lbx.prompting.prompter import Tokenizer


@dataclass(slots=True)
class _DecodingAnswer:
    """A prompt that has branched off, until its answer ends.

    Attributes:
        waiting: its next tokens to be read: of the prompt, or once it was thrown out, of its answer, too.
    """

    place: int
    branch: Branch
    request: Request
    decoding: Decoding
    sequence: int
    waiting: Sequence[int]
    kept: int
    next_token: int | None = None
    made: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0


def budget(request: Request) -> int:
    """How many tokens an answer may take, its reasoning included."""
    return request.thinking_tokens + request.max_new_tokens


class BatchFailedError(Exception):
    """The model failed in the middle of a batch.

    Args:
        cause: what it said.
        unanswered: indices of the requests without an answer, those first whose answers grew or were to grow next.
        computed: how many of these, from the first on, the pass that failed may have computed something of; at least 1.
    """

    def __init__(self, cause: BackendError, unanswered: Sequence[int], computed: int) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.unanswered = tuple(unanswered)
        self.computed = computed


@dataclass(slots=True)
class DecodeBatch:
    """Answers requests on one memory of sequences.

    Args:
        requests: at least one token each, and each fits the memory alone, answer included.
        eos_ids: tokens that end an answer.
        computed: told after each pass how many tokens it had, of prompts and answers together.
        answers: how many may grow at a time; of one, every pass is that answer's or reads its prompt.
        watch: of all answers; whoever needs to know whose a token is asks for one.
        lengths: of answers that ended in batches before, and end in this one.

    Attributes:
        plan: the walk over the requests' prefix tree.
        prompt_tokens: computed so far of prompts, and of answers that were thrown out.
    """

    memory: SequenceMemory
    requests: Sequence[Request]
    tokenizer: Tokenizer
    eos_ids: Collection[int]
    computed: Callable[[int], None] | None = None
    answers: int | None = None
    watch: TokenWatch | None = None
    lengths: AnswerLengths = field(default_factory=AnswerLengths)
    plan: PrefixPlan = field(init=False)
    prompt_tokens: int = 0
    _admission: Admission = field(init=False)
    _shared: list[int] = field(init=False)  # of each prompt with the one before, in the memory
    _place: int = 0  # of the next prompt to branch off
    _trunks: list[int] = field(init=False)  # the last one grows; the others wait at lengths that it returns to
    _spare: list[int] = field(init=False)  # for more trunks
    _returns: Sequence[Sequence[int]] = ()
    _trunk_place: int = -1  # of the prompt that the trunk is cut back for, and grows for
    _trunk_s: float = 0.0
    _kept: int = 0  # of the prompt that the trunk grows for
    _active: list[_DecodingAnswer] = field(default_factory=list)  # the oldest first
    _thrown_out: list[_DecodingAnswer] = field(default_factory=list)  # the oldest first
    _crowded: bool = False  # nothing may begin until an answer has ended
    _free: list[int] = field(init=False)

    def __post_init__(self) -> None:
        traits, capacity = self.memory.traits, capacity_of(self.memory)
        prompts = [request.token_ids for request in self.requests]
        self.plan = plan_prefixes(prompts, traits.follow_limit, traits.long_from)
        answers, trunks = min(capacity.answers, self.answers or capacity.answers), traits.trunks
        self._shared = [branch.kept for branch in self.plan.branches]
        self._admission = Admission(
            replace(capacity, answers=answers),
            [branch.length for branch in self.plan.branches],
            self._shared,
            [budget(self.requests[branch.index]) for branch in self.plan.branches],
            self.lengths if capacity.resumes else None,
        )
        if not traits.forks_anywhere:
            self._returns = self.plan.returns()
        self._trunks, self._spare = [0], list(range(1, trunks))
        self._free = [*range(trunks, trunks + answers)][::-1]

    def run(self) -> Iterator[tuple[int, Completion]]:
        """Yields (index of the request, its completion) as answers end.

        Raises:
            BatchFailedError: the model failed; nothing of this batch is left in the memory.
        """
        traits = self.memory.traits
        if traits.forks_anywhere and not traits.copies:
            self.memory.fit(self._admission.most_cells())
        try:
            while self._place < len(self.plan.branches) or self._active or self._thrown_out:
                self._admit()
                yield from self._step()
        except BackendError as exc:
            waiting = [answer.branch.index for answer in self._thrown_out]
            waiting += [branch.index for branch in self.plan.branches[self._place :]]
            growing = [answer.branch.index for answer in self._active]
            raise BatchFailedError(exc, growing + waiting, len(growing) + bool(waiting)) from exc
        finally:
            for sequence in range(self.memory.max_sequences):
                self.memory.drop(sequence)
            self.memory.fit(self.memory.max_cells)

    @property
    def _trunk(self) -> int:
        return self._trunks[-1]

    def _admit(self) -> None:
        """Let answers begin, as long as there is room: those that were thrown out first."""
        if self._crowded and self._active:
            return
        self._crowded = False
        try:
            while self._thrown_out and self._free:
                if not self._takes_back(self._thrown_out[0]):
                    self._crowded = True
                    return
            self._branch_off()
        except MemoryFullError:
            if self._active:
                self._crowded = True
            elif not self._make_room():
                raise

    def _branch_off(self) -> None:
        """Let prompts branch off as long as the trunk holds what they share and there is room."""
        while self._place < len(self.plan.branches) and self._free:
            if self._trunk_place != self._place and not self._admits(self._place):
                return
            branch = self.plan.branches[self._place]
            request = self.requests[branch.index]
            self._turn_trunk_to(self._place)
            if self.memory.length(self._trunk) < branch.trunk:
                return  # the next pass computes more of it
            self.memory.fork(self._trunk, branch.trunk, [self._free[-1]])
            sequence = self._free.pop()
            self._active.append(
                _DecodingAnswer(
                    self._place,
                    branch,
                    request,
                    Decoding(request, self.tokenizer, self.eos_ids, self.watch),
                    sequence,
                    request.token_ids[branch.trunk :],
                    self._kept,
                    prefill_s=self._trunk_s,
                )
            )
            self._trunk_s = 0.0
            self._place += 1

    def _takes_back(self, answer: _DecodingAnswer) -> bool:
        """Let an answer that was thrown out go on, if there is room."""
        kept, source = self._holder(answer.place)
        if not self._admission.admits(answer.place, self._made(), self._cells_soon(), begun=answer.made, kept=kept):
            return False
        self.memory.fork(source, kept, [self._free[-1]])
        answer.sequence = self._free.pop()
        answer.waiting = [*answer.request.token_ids, *answer.decoding.tokens][kept:]
        answer.next_token = None
        self._active.append(self._thrown_out.pop(0))
        return True

    def _holder(self, place: int) -> tuple[int, int]:
        """The sequence that has most of a prompt's first tokens, behind how many these are."""

        def shared(other: int, sequence: int) -> int:
            length, (first, second) = self.memory.length(sequence), sorted((other, place))
            if first < 0 or first == second:
                return length if first == second else 0
            return min(length, self._admission.shared(first, second))

        sequences = [(self._trunk_place, self._trunk), *((one.place, one.sequence) for one in self._active)]
        return max((shared(*one), one[1]) for one in sequences)

    def _make_room(self) -> bool:
        """Throw out the youngest answer; where there is but one, what was read of the next prompt."""
        self._crowded = True
        if len(self._active) > 1:
            answer = self._active.pop()
            self.memory.drop(answer.sequence)
            self._free.append(answer.sequence)
            self._thrown_out.insert(0, answer)
        elif self.memory.length(self._trunk):
            self.memory.drop(self._trunk)
            self._trunk_place = -1
        else:
            return False
        return True

    def _made(self) -> dict[int, int]:
        return {answer.place: answer.made for answer in self._active}

    def _cells_soon(self) -> int:
        return self.memory.used_cells + sum(len(answer.waiting) for answer in self._active)

    def _admits(self, place: int) -> bool:
        if not self.memory.traits.forks_anywhere:  # there may have been no sequence, or no room, for a copy
            copies, kept = map(self.memory.length, self._trunks), self.plan.branches[place].kept
            self._shared[place] = max((length for length in copies if length <= kept), default=0)
        return self._admission.admits(place, self._made(), self._cells_soon())

    def _turn_trunk_to(self, place: int) -> None:
        """Cut the trunk back to what a prompt shares with the one before it; once for each prompt.

        Where that cannot be, the longest copy that was left within it takes its place; copies that leave no room for
        this prompt go, the shortest first.
        """
        if self._trunk_place == place:
            return
        kept = self.plan.branches[place].kept
        while self.memory.length(self._trunk) > kept:
            if self.memory.traits.forks_anywhere:
                self._cut_trunk(kept)
                continue
            self.memory.drop(self._trunk)
            if len(self._trunks) > 1:
                self._spare.append(self._trunks.pop())
        if self.memory.traits.resumes:
            held, source = self._holder(place)
            if held > self.memory.length(self._trunk):
                self.memory.fork(source, held, [self._trunk])
        self._trunk_place = place
        while len(self._trunks) > 1 and self._cells_to_come() > self.memory.max_cells:
            self._spare.append(self._trunks.pop(0))
            self.memory.drop(self._spare[-1])
        self._kept = self.memory.length(self._trunk)

    def _cut_trunk(self, length: int) -> None:
        self.memory.fork(self._trunk, length, [self._spare[-1]])
        self.memory.drop(self._trunk)
        self._trunks[-1], self._spare[-1] = self._spare[-1], self._trunks[-1]

    def _cells_to_come(self) -> int:
        """How many cells are in use at most until the trunk's prompt is answered, where no other answer grows."""
        growth = self._admission.longest(self._trunk_place) - self.memory.length(self._trunk)
        return self.memory.used_cells + growth + self._copied_cells(self.plan.branches[self._trunk_place].trunk)

    def _copied_cells(self, length: int) -> int:
        return length if self.memory.traits.copies else 0

    def _leave_copy(self, length: int) -> None:
        """Leave a copy of the trunk where it will return to, before it grows on, if there is room."""
        if self._spare and self._cells_to_come() + self._copied_cells(length) <= self.memory.max_cells:
            self._trunks.append(self._spare.pop())
            self.memory.fork(self._trunks[-2], length, [self._trunk])

    def _step(self) -> Iterator[tuple[int, Completion]]:
        """One pass of the model, and what it ends."""
        items: list[Extend] = []
        fed: list[_DecodingAnswer | None] = []
        room = self.memory.max_step
        for answer in self._active:
            if answer.next_token is not None:
                items.append(Extend(answer.sequence, (answer.next_token,), True))
                fed.append(answer)
                room -= 1
        for answer in self._active:
            if answer.waiting and room > 0:
                part = answer.waiting[:room]
                items.append(Extend(answer.sequence, part, len(part) == len(answer.waiting)))
                fed.append(answer)
                room -= len(part)
        part = self._trunk_part(room)
        if part:
            items.append(Extend(self._trunk, part, False))
            fed.append(None)
        try:
            yield from self._pass(items, fed)
        except MemoryFullError:
            if not self._make_room():
                raise

    def _trunk_part(self, room: int) -> Sequence[int]:
        if self._trunk_place != self._place or self._thrown_out or self._crowded:
            return ()
        branch = self.plan.branches[self._place]
        length, end = self.memory.length(self._trunk), branch.trunk
        if not self.memory.traits.forks_anywhere and length < end and room > 0:
            stops = [
                n
                for n in self._returns[self._place]
                if length <= n < end and end - n <= self.memory.traits.follow_limit
            ]
            if length in stops:
                self._leave_copy(length)
            end = min([end, *(n for n in stops if n > length)])
        return self.requests[branch.index].token_ids[length : min(end, length + room)]

    def _pass(
        self, items: Sequence[Extend], told: Sequence[_DecodingAnswer | None]
    ) -> Iterator[tuple[int, Completion]]:
        start = time.perf_counter()
        outputs = self.memory.extend(items)
        tokens = sum(len(item.tokens) for item in items)
        share = (time.perf_counter() - start) / tokens
        if self.computed:
            self.computed(tokens)
        for item, answer, logits in zip(items, told, outputs, strict=True):
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
            answer.made += 1
            if answer.next_token is None:
                self.memory.drop(answer.sequence)
                self._active.remove(answer)
                self.lengths.add(answer.made)
                self._crowded = False
                self._free.append(answer.sequence)
                yield (
                    answer.branch.index,
                    answer.decoding.completion(
                        cached_tokens=answer.kept, prefill_s=answer.prefill_s, decode_s=answer.decode_s
                    ),
                )
