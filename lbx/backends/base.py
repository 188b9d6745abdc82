"""The narrow seam between lbx and whatever runs a model.

A backend offers a tokenizer (``lbx.prompts.Tokenizer``: encode, decode, the chat template's text) and one
verb, ``generate``. It never sees a benchmark: ``Request.key`` is opaque to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from lbx.backends.sequence_memory import SequenceMemory
from lbx.errors import BackendError, PromptError
from lbx.prompts import Tokenizer
from lbx.records import Completion, Request, Sampling


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """What ran, for the ``runs`` table.

    Attributes:
        name: "llamacpp", "hf" or "scripted".
        version: of the library, e.g. "llama-cpp-python 0.3.36".
        model: the name that reports show.
        context_window: tokens; prompt and answer together must fit.
        settings: every option that can change an output (dtype, threads, flash attention, cache types ...).
        hardware: what it ran on (CPU variant, GPU name, threads ...): recorded, not part of the run's identity.
        prefill_chunk: tokens that a prefill step computes at once; 0: each prompt whole.
        trained_context: tokens that the model was trained for; 0 where it does not say.
        default_sampling: what the model's makers recommend, as its files say; None where they say nothing.
        weights_bytes: memory that the weights take; None where they lie elsewhere, or there are none.
        kv_bytes_per_token: memory that a token takes in the cache; None where that is not one number: recurrent
            and hybrid models, caches that keep less of some layers.
        kv_cells: tokens that the cache is made for, or may grow to.
        on_gpu: whether weights and cache lie in a GPU's memory.
        shares_weights: whether processes that load them on one machine hold them in memory once.
        counts_tokens: False: there is no tokenizer here, and prompts are counted in characters.
        wraps_prompts: whether the other side puts prompts into the chat template.
        notes: what who starts a run should read about how it is computed, a sentence each.
    """

    name: str
    version: str
    model: str
    context_window: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    hardware: Mapping[str, Any] = field(default_factory=dict)
    prefill_chunk: int = 0
    trained_context: int = 0
    default_sampling: Sampling | None = None
    weights_bytes: int | None = None
    kv_bytes_per_token: int | None = None
    kv_cells: int = 0
    on_gpu: bool = False
    shares_weights: bool = False
    counts_tokens: bool = True
    wraps_prompts: bool = False
    notes: tuple[str, ...] = ()


class Backend(Protocol):
    """One loaded model."""

    @property
    def info(self) -> BackendInfo: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end an answer: end of sequence and end of turn; none where the backend does not decode itself."""
        ...

    def generate(self, request: Request) -> Completion:
        """Answer one request.

        The output must not depend on which requests came before: a kept prefix is reused only in pieces
        whose arithmetic is the same either way.

        Raises:
            PromptError: the request does not fit the context window.
            BackendError: the model failed.
        """
        ...

    def sequences(self) -> SequenceMemory | None:
        """The model's memory for many sequences, always the same one; None where it can hold but one.

        It may share its room with ``generate``: each makes the other forget what it holds.
        """
        ...

    @property
    def single_reason(self) -> str | None:
        """Why ``sequences`` gives None for a model that computes here, a clause; else None."""
        ...

    def close(self) -> None:
        """Free the model's memory. The backend is unusable afterwards."""
        ...


@runtime_checkable
class ConcurrentBackend(Protocol):
    """A backend whose model runs elsewhere and answers several requests at once."""

    def generate_many(
        self, requests: Sequence[Request]
    ) -> Iterator[tuple[int, Completion | PromptError | BackendError]]:
        """Yields (index, what was said or why nothing was), each index once, as answers come.

        Raises:
            LbxError: nothing more can be answered; what was not yielded was not.
        """
        ...

    def takes_system(self) -> bool:
        """Whether a system message can be a message of its own; for ``BackendInfo.wraps_prompts``."""
        ...
