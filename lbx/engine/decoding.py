"""Decoding of one answer, from logits to text.

This module never calls the model, so many answers can grow at once. ``lbx.engine.sampler`` chooses each token. The end
of the reasoning (``lbx.engine.reasoning_block``), stop strings and stop tokens (``lbx.engine.stopping``) are found
while the answer grows, and ``lbx.engine.token_budget`` limits it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from lbx.base.records import Completion, Request
from lbx.engine.model import NO_TOKENS, SuppressedTokens
from lbx.engine.prompter import Tokenizer
from lbx.engine.reasoning_block import INCOMPLETE_CHARACTER, Phase, ReasoningBlock
from lbx.engine.sampler import Sampler
from lbx.engine.stopping import StopSearch, stop_token_ids
from lbx.engine.token_budget import answer_budget, token_limit

if TYPE_CHECKING:
    from lbx.engine.model import Logits


TokenWatch = Callable[[int, "Logits", int], None]
"""Callback for each token: its index in the answer, the logits of its step (shape (vocabulary,)), and the token."""


class _Ending(NamedTuple):
    """End of an answer: number of tokens that belong to the answer, and number of tokens that is reported.

    ``text`` is the text before a stop string, or None for the text of all tokens.
    """

    tokens: int
    counted_tokens: int
    text: str | None
    finish_reason: str


class Decoding:
    """Decoding of one answer in progress, which separates reasoning from answer.

    Without a block of reasoning the answer ends at an end of sequence, a stop string or its budget. As long as only
    blanks or an incomplete mark were generated, a block may still begin, and inside a block stop strings and budget do
    not end the answer: an ending found by then is deferred until the next words decide.

    Args:
        eos_ids: tokens that end the answer: end of sequence and end of turn.
        watch: callback for each chosen token.
        suppressed_tokens: tokens that are not chosen.
    """

    def __init__(
        self,
        request: Request,
        tokenizer: Tokenizer,
        eos_ids: Collection[int],
        watch: TokenWatch | None = None,
        suppressed_tokens: SuppressedTokens = NO_TOKENS,
    ) -> None:
        self._watch = watch
        self._suppressed_tokens = suppressed_tokens
        self._request = request
        self._tokenizer = tokenizer
        controls = tokenizer.hidden_tokens if request.stop else {}  # never seen in a text
        self._eos_ids = frozenset(eos_ids) | {controls[stop] for stop in request.stop if stop in controls}
        self._block = ReasoningBlock(tokenizer, opened=request.opens_reasoning)
        self._stop_tokens = stop_token_ids(request.stop_tokens, tokenizer)
        self._stop = StopSearch(request.stop, tokenizer, request.min_new_tokens, tokens=self._stop_tokens)
        stops = self._stop_tokens | stop_token_ids(request.stop, tokenizer) if request.min_new_tokens else frozenset()
        self._endings = self._eos_ids | stops
        self._first_endings = self._eos_ids | {i for i in stops if tokenizer.decode([i]).strip()}
        self._sampler = Sampler(request)
        self._all_ids: list[int] = []  # every token, in order
        self._ids: list[int] = []  # counted ones: without an ending token, cut back to a deferred ending
        self._first: int | None = None  # tokens before the first word of an answer that follows its reasoning
        self._answer_stop: StopSearch | None = None
        self._deferred_ending: _Ending | None = None
        self._ending: _Ending | None = None

    def take(self, logits: Logits) -> int | None:
        """Choose the next token and return the token to feed to the model, or None if the answer has ended."""
        token = self._sampler.choose(logits, len(self._ids), self._forbidden())
        if self._watch:
            self._watch(len(self._all_ids), logits, token)
        return token if self.push(token) else None

    def push(self, token: int) -> bool:
        """Add a token. Returns False if the answer has ended."""
        self._all_ids.append(token)
        if token in self._eos_ids or self._block.ends_answer(self._all_ids):
            self._end(self._deferred_ending or _Ending(len(self._ids), len(self._ids), None, "stop"))
            return False
        self._ids.append(token)
        self._block.observe(self._ids)
        if self._block.is_present:
            self._deferred_ending = None
            ending = self._ending_with_block()
        else:
            self._deferred_ending = self._deferred_ending or self._ending_without_block()
            undecided = self._block.phase is Phase.OPENING and len(self._ids) < answer_budget(self._request)
            ending = None if undecided else self._deferred_ending
        if ending is not None:
            self._end(ending)
        return ending is None

    @property
    def tokens(self) -> Sequence[int]:
        """Tokens so far, including reasoning."""
        return self._all_ids

    def completion(self, *, cached_tokens: int = 0, prefill_s: float = 0.0, decode_s: float = 0.0) -> Completion:
        """Completion of the answer so far, with the given counts and times."""
        count = len(self._ids)
        ending = self._ending or self._deferred_ending or _Ending(count, count, None, "length")
        answer = Completion(
            text=ending.text if ending.text is not None else self._tokenizer.decode(self._ids[: ending.tokens]),
            output_tokens=ending.counted_tokens,
            finish_reason=ending.finish_reason,
            cached_tokens=cached_tokens,
            prefill_s=prefill_s,
            decode_s=decode_s,
            ended_by_stop=ending.text is not None,
            output_ids=tuple(self._all_ids),
        )
        return self._split_reasoning(answer, ending) if self._block.is_present else answer

    def _split_reasoning(self, completion: Completion, ending: _Ending) -> Completion:
        block = self._block
        reasoning, before = block.split(self._ids)
        answer = ""
        if block.closed:
            text = block.answer(self._ids) if ending.text is None else ending.text
            answer = before + text.lstrip()
        return replace(
            completion,
            text=answer,
            reasoning=reasoning.strip(),
            reasoning_tokens=block.tokens if block.closed else len(self._ids),
            reasoning_closed=block.closed,
            stop_in_reasoning=any(stop in reasoning for stop in self._request.stops),
        )

    def _end(self, ending: _Ending) -> None:
        del self._ids[ending.tokens :]
        self._ending = ending

    def _ending_without_block(self) -> _Ending | None:
        count = len(self._ids)
        text = self._stop.find(self._ids)
        if text is not None:
            return _Ending(count, count - 1, text, "stop")
        return self._ending_by_budget()

    def _ending_with_block(self) -> _Ending | None:
        text = self._stopped_answer() if self._block.closed else None
        if text is not None:
            # A token that closes the block and also contains a whole stop string counts as part of the block.
            count = len(self._ids)
            return _Ending(count, max(count - 1, self._block.end), text, "stop")
        return self._ending_by_budget()

    def _ending_by_budget(self) -> _Ending | None:
        count = len(self._ids)
        return _Ending(count, count, None, "length") if count >= token_limit(self._request, self._block) else None

    def _stopped_answer(self) -> str | None:
        if not self._request.stop and not self._request.stop_tokens and not self._request.min_new_tokens:
            return None
        if self._answer_stop is None:
            text = self._block.answer(self._ids)
            if not text.strip():
                self._first = None  # a half character has turned out to be a blank
                return None
            if self._first is None:
                self._first = max(self._block.end, len(self._ids) - 1)
            if not text.rstrip(INCOMPLETE_CHARACTER).strip():
                return None
            exempt = self._request.min_new_tokens
            self._answer_stop = StopSearch(
                self._request.stop,
                self._tokenizer,
                self._first + exempt if exempt else 0,
                tokens=self._stop_tokens,
                view=self._block.answer,
                skip_blank=True,
                prefix_ids=self._ids[max(0, self._block.end - 1) : -1],
            )
        return self._answer_stop.find(self._ids)

    def _forbidden(self) -> frozenset[int]:
        """Tokens that must not come next: suppressed tokens, and endings before ``min_new_tokens`` tokens."""
        always, first = self._suppressed_tokens
        suppressed = always if self._all_ids else always | first
        least, block = self._request.min_new_tokens, self._block
        if not least or block.phase is Phase.REASONING:
            return suppressed
        if block.closed and self._first is None:
            return suppressed | self._first_endings  # a line break before the answer's first word is no end
        return suppressed | self._endings if len(self._ids) - (self._first or 0) < least else suppressed
