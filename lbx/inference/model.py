"""The narrow seam between lbx and whatever runs a model.

A backend offers a tokenizer (``prompting.prompts.Tokenizer``: encode, decode, the chat template's text) and a memory
that ``inference.batching`` computes in, or answers. It never sees a benchmark: ``Request.key`` is opaque to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from lbx.base.errors import BackendError, PromptError
from lbx.base.records import Completion, Request, Sampling
from lbx.inference.sequence_memory import SequenceMemory
from lbx.prompting.prompter import Tokenizer


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
        earlier: the settings that an earlier lbx wrote otherwise, as it wrote them; None: it did not write them.
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
    earlier: Mapping[str, Any] = field(default_factory=dict)
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


class _Loaded(Protocol):
    """One loaded model."""

    @property
    def info(self) -> BackendInfo: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end an answer: end of sequence and end of turn; none where the backend does not decode itself."""
        ...

    def close(self) -> None:
        """Free the model's memory. The backend is unusable afterwards."""
        ...


@runtime_checkable
class LocalBackend(_Loaded, Protocol):
    """A model that computes in this process."""

    def sequences(self) -> SequenceMemory:
        """The model's memory, always the same one.

        Raises:
            BackendError: the model is closed.
        """
        ...


Outcome = Completion | PromptError | BackendError
"""What comes of a request: what was said, or why nothing was."""


@runtime_checkable
class AnsweringBackend(_Loaded, Protocol):
    """A model that is asked for answers: it runs elsewhere, or there is none."""

    def generate_many(self, requests: Sequence[Request], *, one_by_one: bool = False) -> Iterator[tuple[int, Outcome]]:
        """Yields (index, what was said or why nothing was), each index once, as answers come.

        Args:
            one_by_one: ask for each answer when the one before is there.

        Raises:
            LbxError: nothing more can be answered; what was not yielded was not.
        """
        ...

    def takes_system(self) -> bool:
        """Whether a system message can be a message of its own; for ``BackendInfo.wraps_prompts``."""
        ...


Backend = LocalBackend | AnsweringBackend
