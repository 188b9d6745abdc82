"""Decoding of one answer, from logits to text: token choice, reasoning, and stopping.

This module never calls the model, so many answers can grow at once. The same logits give the same token on every
backend.

Reasoning is found while the answer grows token by token, as are stop strings and stop tokens (``lbx.engine.stopping``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lbx.base.errors import BackendError, PromptError
from lbx.base.records import Completion, Request
from lbx.engine.model import NO_TOKENS, SuppressedTokens
from lbx.engine.prompter import Tokenizer
from lbx.engine.reasoning import ReasoningMarks, begins_message, opening_end, remove_headers
from lbx.engine.stopping import StopSearch, TokenTail, stop_token_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbx.engine.model import Logits


INCOMPLETE_CHARACTER = "\ufffd"
"""Character that an incomplete UTF-8 sequence decodes to."""


class Phase(Enum):
    """Phase of the output: whether the next token belongs to the reasoning or to the answer.

    OPENING: only blanks so far, or an incomplete mark: a block may begin.
    REASONING: inside the block.
    ANSWER: no block has opened, or it is closed.
    """

    OPENING = "opening"
    REASONING = "reasoning"
    ANSWER = "answer"


class ReasoningTag:
    """Opening or closing mark of reasoning, as a tokenizer encodes and decodes it.

    A tag with a control token never appears in decoded text: it is found by its ids, and ``TaggedText`` represents it
    by a lone surrogate, which decoded text cannot contain.
    """

    def __init__(self, text: str, tokenizer: Tokenizer, stand_in: str) -> None:
        controls = any(control in text for control in tokenizer.hidden_tokens)
        self.ids = tokenizer.encode(text, special=True) if controls else []
        self.text = stand_in if self.ids else text
        self.plain = tokenizer.decode(self.ids)

    def is_suffix_of(self, ids: Sequence[int]) -> bool:
        """Whether ``ids`` end with this tag. Always False for a tag without control tokens."""
        return bool(self.ids) and list(ids[-len(self.ids) :]) == self.ids

    def partial_length(self, ids: Sequence[int]) -> int:
        """Number of trailing ids that are the beginning of this tag. Always 0 for a tag without control tokens."""
        for count in range(min(len(self.ids) - 1, len(ids)), 0, -1):
            if list(ids[-count:]) == self.ids[:count]:
                return count
        return 0


class TaggedText:
    """Decoder that keeps the control tokens of reasoning tags in the text, as stand-in characters."""

    def __init__(self, tokenizer: Tokenizer, tags: Sequence[ReasoningTag]) -> None:
        self._tokenizer = tokenizer
        self._tags = [tag for tag in tags if tag.ids]

    def decode(self, ids: Sequence[int]) -> str:
        if not self._tags:
            return self._tokenizer.decode(ids)
        ids = list(ids)
        pieces: list[str] = []
        start = at = 0
        while at < len(ids):
            tag = next((m for m in self._tags if ids[at : at + len(m.ids)] == m.ids), None)
            if tag is None:
                at += 1
                continue
            pieces += [self._tokenizer.decode(ids[start:at]), tag.text]
            start = at = at + len(tag.ids)
        return "".join([*pieces, self._tokenizer.decode(ids[start:])])

    def plain(self, text: str) -> str:
        """Replace the stand-ins of tags in decoded text by the text that the tokenizer decodes the tags to."""
        for tag in self._tags:
            text = text.replace(tag.text, tag.plain)
        return text


class ReasoningBlock:
    """Incremental search for the reasoning block of an answer, as ``lbx.engine.reasoning`` defines it.

    Call ``observe`` after every token. Positions in the text are safe to keep: once a mark is complete, no later token
    changes the text up to it.

    Args:
        opened: the prompt ended in the opening mark.

    Attributes:
        phase: phase that the next token belongs to.
        is_present: whether there is a block.
        end: number of tokens up to the end of the closing mark.
        tokens: number of tokens in the block, including the marks.
    """

    def __init__(self, tokenizer: Tokenizer, *, opened: bool) -> None:
        marks = tokenizer.reasoning_marks
        self._opening = ReasoningTag(marks.open, tokenizer, "\ud800")
        self._closing = ReasoningTag(marks.close, tokenizer, "\ud801")
        header = [ReasoningTag(text, tokenizer, chr(0xD802 + number)) for number, text in enumerate(marks.header)]
        self._text = TaggedText(tokenizer, (self._opening, self._closing, *header))
        self._marks = ReasoningMarks(self._opening.text, self._closing.text, tuple(tag.text for tag in header))
        self._message_end = header[0] if header else None
        self._tail = TokenTail(() if self._closing.ids else (self._closing.text,), tokenizer)
        self._blank = 0  # number of leading tokens known to be blank
        self._leading_text = self._reasoning = ""
        self._answer_at = 0
        self.phase = Phase.REASONING if opened else Phase.OPENING
        self._opened_by_prompt = opened
        self.is_present = opened
        self.closed = False
        self.end = self.tokens = 0

    def observe(self, ids: Sequence[int]) -> None:
        """Update the search by the last of ``ids``."""
        if self.closed:
            return
        if self.phase is Phase.OPENING:
            self._look_for_opening(ids)
        self._tail.push(ids[-1])
        if self._closing.is_suffix_of(ids) or self._tail.may_contain_string():
            text, closing, opening = self._text.decode(ids), self._closing.text, self._opening.text
            start = opening_end(text, opening)
            at = text.find(closing, start)
            # only the tail looked like a mark, or it overlaps the opening mark
            if not at < 0:
                first = 0
                alone = not self._opened_by_prompt and not start and not self._marks.header
                if alone and (opening_at := text.find(opening, 0, at)) >= 0:
                    self._leading_text, start = text[:opening_at], opening_at + len(opening)
                    first = self._token_count_at(ids, opening_at)
                self._reasoning = text[start:at]
                self._answer_at = at + len(closing)
                self.phase, self.is_present, self.closed = Phase.ANSWER, True, True
                self.end, self.tokens = len(ids), len(ids) - first

    def ends_answer(self, ids: Sequence[int]) -> bool:
        """Whether the last token ends the answer's message. Always False for models that write no messages."""
        return self.closed and self._message_end is not None and self._message_end.is_suffix_of(ids)

    def split(self, ids: Sequence[int]) -> tuple[str, str]:
        """Return (reasoning, text before the block). Requires ``is_present``."""
        if self.closed:
            return self._words(self._reasoning), self._text.plain(self._leading_text)
        text = self._text.decode(ids)
        return self._words(text[opening_end(text, self._opening.text) :]), ""

    def answer(self, ids: Sequence[int]) -> str:
        """Text after the closing mark, including blanks. Requires ``closed``."""
        return self._text.plain(self._text.decode(ids)[self._answer_at :])

    def _words(self, reasoning: str) -> str:
        if header := self._marks.header:
            reasoning = remove_headers(reasoning.replace(self._opening.text, "".join(header[-2:])), self._marks)
        return self._text.plain(reasoning)

    def _look_for_opening(self, ids: Sequence[int]) -> None:
        recent = ids[self._blank :]
        tags = (self._opening, self._closing)  # a closing mark without an opening mark is a block, too
        n_partial = max(tag.partial_length(recent) for tag in tags)
        words = self._text.decode(recent[: len(recent) - n_partial]).lstrip()
        if words.startswith(self._opening.text) or begins_message(words, self._marks):
            self.phase, self.is_present = Phase.REASONING, True
        elif not words:
            self._blank = len(ids) - n_partial
        elif not any(tag.text.startswith(words.rstrip(INCOMPLETE_CHARACTER)) for tag in tags):
            self.phase = Phase.ANSWER

    def _token_count_at(self, ids: Sequence[int], position: int) -> int:
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if len(self._text.decode(ids[:middle])) <= position else (low, middle - 1)
        return low


TokenWatch = Callable[[int, "Logits", int], None]
"""Callback for each token: its index in the answer, the logits of its step (shape (vocabulary,)), and the token."""


def gumbel_noise(seed: int, key: str, step: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise for sampling, one number for each of at least one token ids.

    The noise depends only on the arguments: not on order, batch, or library versions (numpy promises to keep the bits
    of Philox, but not the output of its generators).
    """

    digest = hashlib.sha256(f"{seed}\n{key}\n{step}".encode("utf-8", "surrogatepass")).digest()
    bits = np.random.Philox(key=int.from_bytes(digest[:16], "big")).random_raw(int(ids.max()) + 1)[ids]
    uniform = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) / 2**52  # never 0 and never 1
    gumbel: NDArray[np.float64] = -np.log(-np.log(uniform))
    return gumbel


class Sampler:
    """Sampler of an answer's tokens, by the sampling settings and the key of the request."""

    def __init__(self, request: Request) -> None:
        self._sampling = request.sampling
        self._key = str(request.key)

    def choose(self, logits: Logits, step: int, forbidden: Collection[int] = ()) -> int:
        """Choose the next token of the answer.

        Args:
            logits: shape (vocabulary,), float32; not changed.
            step: number of tokens generated before.
            forbidden: ids that may not be chosen now.

        Raises:
            BackendError: the logits contain NaN, e.g. from broken weights or an overflow of float16.
        """
        import numpy as np

        if forbidden:
            logits = logits.copy()
            logits[sorted(forbidden)] = -np.inf
        best = int(np.argmax(logits))
        if not np.isfinite(logits[best]):
            raise BackendError(
                "The model produced NaN or infinite logits for the next token.",
                fix="Either its weights are damaged or the number format overflows: try dtype float32 or bfloat16.",
            )
        if self._sampling.temperature == 0:
            return best
        # Apply temperature and cuts, and take the remaining token with the largest sum of logit and noise. Such a draw
        # follows the softmax exactly (the Gumbel-max trick), and as each token's noise is its own, logits that differ
        # in their last bits give another token only at a near-tie. Drawing by cumulated probabilities is less stable:
        # if two of many unlikely tokens change places, all tokens after them shift.
        import numpy as np

        candidates = self._candidate_ids(logits)
        gumbel = gumbel_noise(self._sampling.seed, self._key, step, candidates)
        return int(candidates[np.argmax(logits[candidates].astype(np.float64) / self._sampling.temperature + gumbel)])

    def _candidate_ids(self, logits: Logits) -> NDArray[np.int64]:
        """Token ids that remain after top-k, top-p and min-p, applied in this order, as in transformers."""
        import numpy as np

        sampling = self._sampling
        if not sampling.top_k and sampling.top_p >= 1 and not sampling.min_p:
            return np.arange(len(logits))
        ids = np.arange(len(logits))
        if 0 < sampling.top_k < len(ids):  # to sort these and their ties takes a tenth of the time
            ids = np.flatnonzero(logits >= np.partition(logits, -sampling.top_k)[-sampling.top_k])
        # Sorted, so that each cut is a prefix; stable, so that ties fall to the lower id as argmax has it.
        order = ids[np.argsort(-logits[ids], kind="stable")]
        if sampling.top_k:
            order = order[: sampling.top_k]
        scaled = logits[order].astype(np.float64) / sampling.temperature
        weights = np.exp(scaled - scaled[0])
        if sampling.top_p < 1:
            before = np.cumsum(weights) - weights
            weights = weights[before < sampling.top_p * weights.sum()]
        if sampling.min_p > 0:
            weights = weights[weights >= sampling.min_p * weights[0]]
        return order[: len(weights)]


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
            undecided = self._block.phase is Phase.OPENING and len(self._ids) < self._total_budget
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

    @property
    def _total_budget(self) -> int:
        return self._request.thinking_tokens + self._request.max_new_tokens

    def _end(self, ending: _Ending) -> None:
        del self._ids[ending.tokens :]
        self._ending = ending

    def _ending_without_block(self) -> _Ending | None:
        count = len(self._ids)
        text = self._stop.find(self._ids)
        if text is not None:
            return _Ending(count, count - 1, text, "stop")
        return _Ending(count, count, None, "length") if count >= self._request.max_new_tokens else None

    def _ending_with_block(self) -> _Ending | None:
        count, thinking = len(self._ids), self._request.thinking_tokens
        spent = _Ending(count, count, None, "length")
        if not self._block.closed:
            return spent if count >= (thinking or self._request.max_new_tokens) else None
        text = self._stopped_answer()
        if text is not None:
            # A token that closes the block and also contains a whole stop string counts as part of the block.
            return _Ending(count, max(count - 1, self._block.end), text, "stop")
        budget = self._total_budget
        if thinking:
            budget = min(budget, self._block.end + self._request.max_new_tokens)
        return spent if count >= budget else None

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


def check_fits(request: Request, window: int) -> None:
    """Raise PromptError if prompt and answer together exceed the context window, or the prompt is empty."""
    prompt, new, thinking = len(request.token_ids), request.max_new_tokens, request.thinking_tokens
    if prompt + thinking + new > window:
        reasoning = f" and its reasoning {thinking}" if thinking else ""
        raise PromptError(
            f"The prompt of {request.key} has {prompt} tokens and its answer may take {new}{reasoning}: "
            f"together {prompt + thinking + new}, but the context window is {window}.",
            fix="Use a larger context_window in the model card, or allow lbx to truncate the prompt.",
        )
    if not prompt or new < 1 or thinking < 0:
        raise PromptError(f"The prompt of {request.key} has {prompt} tokens, and its answer may take {new}.")
