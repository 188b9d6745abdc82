"""The narrow seam between lbx and whatever runs a model.

A backend offers a tokenizer (``prompting.prompter.Tokenizer``: encode, decode, the chat template's text) and a memory
that ``inference.batching`` computes in, or answers. It never sees a benchmark: ``Request.key`` is opaque to it.

The memory holds many sequences, each shared token once. A sequence is named by a small number. It begins empty, or as
the first tokens of another one (``fork``), grows by ``extend`` and is forgotten by ``drop``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from lbx.base.errors import BackendError, PromptError
from lbx.base.records import Completion, Request, Sampling
from lbx.prompting.prompter import Tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Logits = NDArray[np.float32]


LEAST_SEQUENCES = 3
"""Two take turns as the trunk, from which answers branch off."""
NO_LIMIT = 2**62
NOTHING_FOLLOWS = -1
SINGLY = 256
"""So many tokens, computed one by one, take about as long as a document: the ``follow_limit`` of models that must."""
NO_FOREIGN_CELLS = 2**62
"""The price of a pass beside which strangers' cells cost nothing."""


class MemoryFullError(BackendError):
    """More cells are needed than are free; no sequence has changed."""


class Extend(NamedTuple):
    """What one sequence grows by.

    Attributes:
        sequence: its number, 0 <= sequence < ``SequenceMemory.max_sequences``.
        tokens: at least one.
        wants_logits: whether the logits after the last of them are wanted.
    """

    sequence: int
    tokens: Sequence[int]
    wants_logits: bool


def check_items(items: Sequence[Extend], max_sequences: int, max_step: int) -> int:
    """How many tokens a step has. Raises ValueError as ``SequenceMemory.extend`` does."""
    for item in items:
        check_number(item.sequence, max_sequences)
        if not len(item.tokens):
            raise ValueError(f"sequence {item.sequence} is to grow by no token")
    if len({item.sequence for item in items}) < len(items):
        raise ValueError(f"a sequence is named twice: {[item.sequence for item in items]}")
    tokens = sum(len(item.tokens) for item in items)
    if tokens > max_step:
        raise ValueError(f"{tokens} tokens are more than a step takes: {max_step}")
    return tokens


def check_number(sequence: int, max_sequences: int) -> None:
    if not 0 <= sequence < max_sequences:
        raise ValueError(f"there is no sequence {sequence} among {max_sequences}")


@dataclass(frozen=True, slots=True)
class MemoryTraits:
    """What a memory can do and what that costs: what the engine plans by, besides its size.

    Attributes:
        cheap_cells: how many cells a token may attend to before that costs as much as the rest of the model: 6 x hidden
            size.
        pass_price: what a pass costs besides its tokens: as many tokens as take as long, times ``cheap_cells``. Where a
            pass attends to every cell in use, strangers' masked out, this is how many (token, stranger's cell) pairs
            one pass less is worth. ``NO_FOREIGN_CELLS`` where a sequence attends to its own cells only.
        grain: a sequence's own tokens take cells in blocks of so many; blocks that are full can be shared.
        forks_anywhere: whether a sequence may begin as any first part of another one, and shares its cells; otherwise
            as the whole of it alone.
        trunks: how many of the sequences hold what prompts begin with; the others are answers. Where sequences fork
            anywhere two of them take turns: one is cut back by forking its beginning into the other.
        copies: whether a fork takes cells of its own for all its tokens.
        follow_limit: how many tokens may follow others before that costs as much as a long text: some models take them
            singly. ``NOTHING_FOLLOWS`` where prompts share nothing that is computed.
        long_from: prompts of more tokens than this are computed otherwise from their first one on.
        single_reason: why prompts share nothing, a clause; None: they do.
    """

    cheap_cells: int
    pass_price: int
    grain: int = 1
    forks_anywhere: bool = True
    trunks: int = 2
    copies: bool = False
    follow_limit: int = NO_LIMIT
    long_from: int = NO_LIMIT
    single_reason: str | None = None

    @property
    def resumes(self) -> bool:
        """Whether tokens that were computed one by one can be read again in one go, behind what others hold, for what
        a few passes cost."""
        return self.forks_anywhere and not self.copies and self.follow_limit == self.long_from == NO_LIMIT


class SequenceMemory(Protocol):
    """A model with room for at least ``LEAST_SEQUENCES``; two are enough where prompts share nothing."""

    @property
    def traits(self) -> MemoryTraits: ...

    @property
    def max_sequences(self) -> int:
        """How many sequences there may be at once."""
        ...

    @property
    def max_cells(self) -> int:
        """How many tokens the memory holds, shared ones counted once."""
        ...

    @property
    def used_cells(self) -> int:
        """How many of them are taken."""
        ...

    @property
    def max_step(self) -> int:
        """How many tokens one ``extend`` may add, all sequences together."""
        ...

    def fit(self, cells: int) -> None:
        """No more than so many tokens will be held at once, shared ones counted once, until the next call; less than
        ``max_cells`` may make it faster. Without effect where something is held.
        """
        ...

    def length(self, sequence: int) -> int:
        """How many tokens a sequence has; 0 for one that was dropped or never began."""
        ...

    def extend(self, items: Sequence[Extend]) -> list[Logits | None]:
        """Append tokens to sequences, each named once, in one pass of the model.

        Returns:
            For each item the logits after its last token, shape (vocabulary,), a copy; None where not wanted.

        Raises:
            ValueError: an item is empty, a sequence is named twice, or there are more than ``max_step`` tokens.
            MemoryFullError: nothing has changed.
            BackendError: the model failed: the sequences named are dropped; others may be, too: see ``length``.
        """
        ...

    def fork(self, source: int, length: int, targets: Sequence[int]) -> None:
        """Let the targets, which are dropped first, begin as the source's first ``length`` tokens, shared with it.

        Raises:
            MemoryFullError: the targets are dropped, and nothing else has changed.
        """
        ...

    def drop(self, sequence: int) -> None:
        """Forget a sequence; cells that no other one shares are free again. Forgetting nothing is no error."""
        ...


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
        declared_context: context window that the model's files declare, in tokens; 0 if they declare none.
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
    declared_context: int = 0
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


RequestResult = Completion | PromptError | BackendError
"""What comes of a request: what was said, or why nothing was."""


@runtime_checkable
class AnsweringBackend(_Loaded, Protocol):
    """A model that is asked for answers: it runs elsewhere, or there is none."""

    def generate_many(
        self, requests: Sequence[Request], *, one_by_one: bool = False
    ) -> Iterator[tuple[int, RequestResult]]:
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
