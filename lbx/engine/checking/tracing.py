"""One answer token by token, its logits in view: what comparing two ways of decoding needs beyond an answer's text."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lbx.backends.base import Backend
from lbx.backends.loop import Decoding, Stepper, check_fits
from lbx.backends.sequences import Extend
from lbx.errors import BackendError
from lbx.records import Completion, Request

if TYPE_CHECKING:
    from lbx.backends.sampling import Logits


@runtime_checkable
class SteppingBackend(Backend, Stepper, Protocol):
    """A backend that hands out the logits of one sequence."""


@dataclass(frozen=True, slots=True)
class Trace:
    """An answer and its tokens.

    Attributes:
        tokens: as they were chosen, the one that ended the answer included.
    """

    completion: Completion
    tokens: tuple[int, ...]


Watch = Callable[[int, "Logits", int], None]
"""Told of each token: its place in the answer, the logits that it was chosen by (shape (vocabulary,)), the token."""


def trace(backend: SteppingBackend, request: Request, watch: Watch) -> Trace:
    """Answer one request as ``Backend.generate`` does, and say what was chosen from what.

    Raises:
        PromptError: the request does not fit the context window.
        BackendError: the model failed.
    """
    check_fits(request, backend.info.context_window)
    decoding = Decoding(request, backend.tokenizer, backend.eos_ids)
    tokens: list[int] = []
    with _failures(backend, request):
        logits = backend.prefill(request.token_ids).logits
        while True:
            token = decoding.choose(logits)
            watch(len(tokens), logits, token)
            tokens.append(token)
            if not decoding.push(token):
                return Trace(decoding.completion(), tuple(tokens))
            logits = backend.step(token)


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
