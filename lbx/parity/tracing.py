"""One answer token by token, its logits in view, and where it parts from another answer to the same prompt."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from lbx.backends.base import Backend
from lbx.backends.loop import Decoding, Stepper, check_fits
from lbx.backends.sequence_memory import Extend
from lbx.errors import BackendError
from lbx.records import Completion, Request

if TYPE_CHECKING:
    from lbx.backends.sampling import Logits


@runtime_checkable
class SteppingBackend(Backend, Stepper, Protocol):
    """A backend that hands out the logits of one sequence."""


class Flip(NamedTuple):
    """Where two answers to one prompt part.

    Attributes:
        place: index of the first differing token.
        gap: how far the logit of the token chosen there lies above that of the other answer's; None where the model
            has no such token.
    """

    place: int
    gap: float | None


Watch = Callable[[int, "Logits", int], None]
"""Told of each token: its place in the answer, the logits that it was chosen by (shape (vocabulary,)), the token."""


class FlipWatch:
    """Watches an answer for the first token that is not another answer's.

    Attributes:
        flip: where they part; None as long as they do not.
    """

    def __init__(self, other: Sequence[int]) -> None:
        self._other = other
        self.flip: Flip | None = None

    def __call__(self, place: int, logits: Logits, token: int) -> None:
        if self.flip is None and place < len(self._other) and token != (other := self._other[place]):
            self.flip = Flip(place, float(logits[token] - logits[other]) if other < len(logits) else None)


def trace(backend: SteppingBackend, request: Request, watch: Watch) -> Completion:
    """Answer one request as ``Backend.generate`` does, and say what was chosen from what.

    Raises:
        PromptError: the request does not fit the context window.
        BackendError: the model failed.
    """
    check_fits(request, backend.info.context_window)
    decoding = Decoding(request, backend.tokenizer, backend.eos_ids)
    with _failures(backend, request):
        logits = backend.prefill(request.token_ids).logits
        for place in itertools.count():
            token = decoding.choose(logits)
            watch(place, logits, token)
            if not decoding.push(token):
                break
            logits = backend.step(token)
    return decoding.completion()


def forced(backend: SteppingBackend, request: Request, tokens: Sequence[int]) -> Iterator[Logits]:
    """The logits after a request's prompt, and after each of the tokens that are put behind it.

    Raises:
        BackendError: the model failed.
    """
    with _failures(backend, request):
        yield backend.prefill(request.token_ids).logits
        for token in tokens:
            yield backend.step(token)


def forget(backend: Backend, token: int) -> None:
    """Leave nothing in the model's memory that the next prompt could begin with.

    The memory of many sequences and that of one make each other forget what they hold; so one token in the first,
    dropped again, empties both. Without a memory of many nothing is done.
    """
    memory = backend.sequences()
    if memory is not None:
        memory.extend([Extend(0, (token,), wants_logits=False)])
        memory.drop(0)


@contextlib.contextmanager
def _failures(backend: Backend, request: Request) -> Iterator[None]:
    """What torch raises, as ``Backend.generate`` would have it."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError, IndexError) as exc:
        first = (str(exc).strip() or type(exc).__name__).split("\n", maxsplit=1)[0]
        raise BackendError(
            f"The model {backend.info.model} failed on {request.key} ({len(request.token_ids)} tokens): {first}",
            fix="If memory ran out, lower context_window or prefill_chunk in the model card.",
        ) from exc
