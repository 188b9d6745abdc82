"""The decode loop, the same for every backend that hands out logits.

``Decoding`` is the state of one answer. It asks nothing of the model, so an engine that steps many sequences at
once can hold many of them; ``answer`` is the loop for one.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from lbx.backends.sampling import Sampler
from lbx.backends.text import StopStrings, stop_ids
from lbx.errors import PromptError
from lbx.prompts import Tokenizer
from lbx.records import Completion, Request

if TYPE_CHECKING:
    from lbx.backends.sampling import Logits


class Prefilled(NamedTuple):
    """The logits after a prompt's last token, shape (vocabulary,), and how many prompt tokens were kept."""

    logits: Logits
    cached_tokens: int


class Stepper(Protocol):
    """A model with one sequence in its KV cache."""

    def prefill(self, ids: Sequence[int]) -> Prefilled:
        """Make the cache hold exactly these tokens (at least one), reusing what it can of the previous prompt."""
        ...

    def step(self, token: int) -> Logits:
        """Append one token; the logits after it."""
        ...


class Decoding:
    """One answer as it grows.

    Args:
        eos_ids: tokens that end it: end of sequence and end of turn.
    """

    def __init__(self, request: Request, tokenizer: Tokenizer, eos_ids: Collection[int]) -> None:
        self._request = request
        self._tokenizer = tokenizer
        self._eos_ids = frozenset(eos_ids)
        self._stop = StopStrings(request.stop, tokenizer, request.min_new_tokens)
        endings = self._eos_ids | stop_ids(request.stop, tokenizer) if request.min_new_tokens else self._eos_ids
        self._sampler = Sampler(request, endings)
        self._ids: list[int] = []
        self._text: str | None = None  # set when the answer has ended before its budget
        self._uncounted = 0

    def take(self, logits: Logits) -> int | None:
        """Choose the next token. None: the answer has ended; otherwise the token to feed to the model."""
        token = self._sampler.choose(logits, len(self._ids))
        return token if self.push(token) else None

    def push(self, token: int) -> bool:
        """Add a token; False when the answer has ended with it."""
        if token in self._eos_ids:
            self._text = self._tokenizer.decode(self._ids)
            return False
        self._ids.append(token)
        self._text = self._stop.find(self._ids)
        self._uncounted = int(self._text is not None)
        return self._text is None and len(self._ids) < self._request.max_new_tokens

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens so far, an end of sequence left out, one that completed a stop string included."""
        return tuple(self._ids)

    def completion(self, *, cached_tokens: int = 0, prefill_s: float = 0.0, decode_s: float = 0.0) -> Completion:
        """What was said."""
        return Completion(
            text=self._tokenizer.decode(self._ids) if self._text is None else self._text,
            output_tokens=len(self._ids) - self._uncounted,
            finish_reason="length" if self._text is None else "stop",
            cached_tokens=cached_tokens,
            prefill_s=prefill_s,
            decode_s=decode_s,
        )


def check_fits(request: Request, window: int) -> None:
    """Raise PromptError where prompt and answer together exceed the context window, or the prompt is empty."""
    prompt, new = len(request.token_ids), request.max_new_tokens
    if prompt + new > window:
        raise PromptError(
            f"The prompt of {request.key} has {prompt} tokens and its answer may take {new}: "
            f"together {prompt + new}, but the context window is {window}.",
            fix="Use a larger context_window in the model card, or let the prompt be truncated.",
        )
    if not prompt or new < 1:
        raise PromptError(f"The prompt of {request.key} has {prompt} tokens, and its answer may take {new}.")


def answer(
    model: Stepper, request: Request, *, tokenizer: Tokenizer, eos_ids: Collection[int], window: int
) -> Completion:
    """Prefill, then one token after the other until the answer ends."""
    check_fits(request, window)
    decoding = Decoding(request, tokenizer, eos_ids)
    start = time.perf_counter()
    logits, cached = model.prefill(request.token_ids)
    prefilled = time.perf_counter()
    while (token := decoding.take(logits)) is not None:
        logits = model.step(token)
    return decoding.completion(
        cached_tokens=cached, prefill_s=prefilled - start, decode_s=time.perf_counter() - prefilled
    )


def reusable(kept: Sequence[int], prompt: Sequence[int], chunk: int) -> int:
    """How many leading tokens of the prompt need not be computed again, given those whose KV is kept.

    Only whole chunks, counted from position 0, are taken over: each was computed in a step of the same shape and
    content as the prompt would compute it in, so the answer is the same to the bit with or without them. The chunk
    with the prompt's last token is always computed, since its logits are wanted.

    Args:
        kept: tokens that were prefilled in chunks (no generated ones).
    """
    limit = min(len(kept) // chunk, (len(prompt) - 1) // chunk)
    whole = 0
    while whole < limit and kept[whole * chunk : (whole + 1) * chunk] == prompt[whole * chunk : (whole + 1) * chunk]:
        whole += 1
    return whole * chunk
