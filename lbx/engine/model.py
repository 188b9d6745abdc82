"""Protocols of the backends that run models.

A ``LocalBackend`` has a tokenizer and a ``SequenceMemory`` where ``lbx.engine.batching`` computes answers; an
``AnsweringBackend`` returns answers itself. Backends know no benchmark: ``Request.key`` is opaque to them.

Two questions about one document, which is computed and stored once:

    memory = backend.sequences()
    memory.extend([SequenceExtension(0, document, wants_logits=False)])  # prefill, at most ``max_step`` tokens per call
    memory.fork(0, len(document), targets=[1, 2])
    rows = memory.extend([SequenceExtension(1, question_a, wants_logits=True), SequenceExtension(2, question_b,
    wants_logits=True)]) rows = memory.extend([SequenceExtension(n, [int(row.argmax())], True) for n, row in
    enumerate(rows, 1)])  # decode, batched memory.drop(1)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from lbx.base.errors import BackendError, PromptError
from lbx.base.records import Completion, CountedIn, Request, Sampling
from lbx.engine.prompter import Tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Logits = NDArray[np.float32]


MIN_SEQUENCES = 3
"""Minimum number of sequences: two for the trunk and its cut, one for an answer."""
NO_LIMIT = 2**62
NEVER_EXTENDS = -1
ONE_BY_ONE_LIMIT = 256
"""``follow_limit`` of models that extend sequences by single tokens. So many tokens take as long as a document."""
NO_CROSS_ATTENTION = 2**62
"""``pass_price`` of memories with sequences that attend only to their own cells."""


class MemoryFullError(BackendError):
    """Too few cells are free for an operation. No sequence has changed."""


class SequenceExtension(NamedTuple):
    """Extension of one sequence by new tokens, computed in a pass.

    Attributes:
        sequence: 0 <= sequence < ``SequenceMemory.max_sequences``.
        tokens: at least one.
        wants_logits: whether to return the logits after the last token.
    """

    sequence: int
    tokens: Sequence[int]
    wants_logits: bool


class BulkExtension(SequenceExtension):
    """Extension by tokens that are among a prompt's ``bulk_tokens``, without logits."""

    __slots__ = ()


class ScoredExtension(SequenceExtension):
    """Extension of the only sequence of a pass, which returns the logits after every token: (tokens, vocabulary)."""

    __slots__ = ()


def bulk_tokens(length: int, bulk: int) -> int:
    """Number of a prompt's leading tokens that are computed in bulk.

    Args:
        bulk: as in ``MemoryTraits``.
    """
    return (length - 1) // bulk * bulk if bulk else 0


def check_extensions(items: Sequence[SequenceExtension], max_sequences: int, max_step: int) -> int:
    """Check the extensions of a pass, and return their number of tokens. Raises ValueError like ``extend``."""
    for item in items:
        check_sequence(item.sequence, max_sequences)
        if not len(item.tokens):
            raise ValueError(f"sequence {item.sequence} has no new tokens")
    if len({item.sequence for item in items}) < len(items):
        raise ValueError(f"a sequence occurs twice in {[item.sequence for item in items]}")
    tokens = sum(len(item.tokens) for item in items)
    if tokens > max_step:
        raise ValueError(f"{tokens} tokens exceed the limit of {max_step} per step")
    return tokens


def check_sequence(sequence: int, max_sequences: int) -> None:
    if not 0 <= sequence < max_sequences:
        raise ValueError(f"sequence {sequence} is out of range: there are {max_sequences} sequences")


@dataclass(frozen=True, slots=True)
class MemoryTraits:
    """Traits of a sequence memory: abilities and costs that the scheduler plans with.

    Attributes:
        cheap_cells: cells that a token may attend to before attention costs as much as the rest of the model: 6 x
            hidden size.
        pass_price: fixed cost of a pass, in (token, cell) pairs: the number of tokens that cost the same, times
            ``cheap_cells``. Compared with the pairs of tokens and other sequences' masked cells that a larger batch
            attends to.
        grain: cells per block; a sequence owns whole blocks, and full blocks can be shared.
        forks_anywhere: whether a fork may share any prefix of its source, rather than its whole length only.
        trunks: number of sequences for prefixes of prompts; the others are for answers. If sequences fork
            anywhere, two of them take turns: one is cut back by forking its prefix into the other.
        copies: whether a fork copies its cells instead of sharing them.
        follow_limit: maximum number of tokens by which a stored prefix is worth extending, for models that extend token
            by token; ``NEVER_EXTENDS`` if prompts cannot share prefixes.
        long_from: prompts with more tokens are computed differently from their first token on (longrope).
        bulk: a prompt's tokens up to the last multiple of ``bulk`` are computed by other kernels than the rest
            (``BulkExtension``), which round differently; 0: the same kernels compute all tokens.
        is_exact: whether a prompt's logits equal those of the prompt computed alone, to the bit. Prompts then only
            share tokens that both compute in bulk, or neither.
        single_reason: why prompts cannot share prefixes, a clause, or None if they can.
    """

    cheap_cells: int
    pass_price: int
    grain: int = 1
    forks_anywhere: bool = True
    trunks: int = 2
    copies: bool = False
    follow_limit: int = NO_LIMIT
    long_from: int = NO_LIMIT
    bulk: int = 0
    is_exact: bool = False
    single_reason: str | None = None

    @property
    def resumes(self) -> bool:
        """Whether a preempted answer can resume: be prefilled again at the cost of a few passes."""
        return self.forks_anywhere and not self.copies and self.follow_limit == self.long_from == NO_LIMIT


class SequenceMemory(Protocol):
    """KV memory of a model, for at least ``MIN_SEQUENCES`` sequences. A fork shares the cells of its source.

    Sequences are numbered from 0. A sequence starts empty, or as a fork of another sequence.
    """

    @property
    def traits(self) -> MemoryTraits: ...

    @property
    def max_sequences(self) -> int: ...

    @property
    def max_cells(self) -> int:
        """Capacity in tokens, with shared tokens counted once."""
        ...

    @property
    def used_cells(self) -> int: ...

    @property
    def max_step(self) -> int:
        """Maximum number of tokens of one ``extend``, all sequences together."""
        ...

    def fit(self, cells: int) -> None:
        """Limit the cells in use until the next ``fit``, which may make passes faster. No effect on a memory in use."""
        ...

    def length(self, sequence: int) -> int:
        """Number of tokens of a sequence, or 0 if the sequence was dropped or never started."""
        ...

    def extend(self, items: Sequence[SequenceExtension]) -> list[Logits | None]:
        """Append tokens to sequences in one pass of the model.

        Returns:
            For each item a copy of the logits after the last token, shape (vocabulary,), or None if not wanted.

        Raises:
            ValueError: an item is empty, two items name one sequence, or there are more than ``max_step`` tokens.
            MemoryFullError: no sequence has changed.
            BackendError: the model failed; the sequences of the items are dropped, and others may be, see ``length``.
        """
        ...

    def fork(self, source: int, length: int, targets: Sequence[int]) -> None:
        """Replace the target sequences by the first ``length`` tokens of the source, sharing cells.

        Raises:
            ValueError: the source is shorter, or is a target.
            MemoryFullError: the targets are dropped; no other sequence has changed.
        """
        ...

    def drop(self, sequence: int) -> None:
        """Remove a sequence, and free the cells that no other sequence shares. No effect on an empty sequence."""
        ...


class SuppressedTokens(NamedTuple):
    """Tokens that a model's files exclude from its answers, such as marks of images: ``suppress_tokens`` of
    ``generate``.

    Attributes:
        token_ids: excluded at every position.
        first_token_ids: excluded as the first token only.
    """

    token_ids: frozenset[int] = frozenset()
    first_token_ids: frozenset[int] = frozenset()

    def settings(self) -> dict[str, list[int]]:
        """Suppressed tokens as JSON, for ``BackendInfo.settings``."""
        names = {"suppress_tokens": self.token_ids, "begin_suppress_tokens": self.first_token_ids}
        return {name: sorted(ids) for name, ids in names.items() if ids}


NO_TOKENS = SuppressedTokens()


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """Description of a loaded backend, for the ``runs`` table.

    Attributes:
        name: "llamacpp", "hf" or "scripted".
        version: name and version of the library, e.g. "llama-cpp-python 0.3.36".
        model: name of the model in reports.
        context_window: tokens of prompt and answer together.
        settings: every option that can change an output (dtype, threads, flash attention, cache types ...).
        hardware: CPU variant, GPU name, threads ...; recorded, not part of the run's identity.
        declared_context: context window that the model's files declare, in tokens, or 0 if they declare none.
        default_sampling: sampling settings recommended in the model's files.
        weights_bytes: memory of the weights, or None if they are not on this machine.
        kv_bytes_per_token: memory of a token in the cache, or None if it is not constant: recurrent and hybrid models,
            caches that keep less of some layers.
        kv_cells: capacity of the cache in tokens.
        on_gpu: whether weights or cache are in a GPU's memory.
        is_split: whether weights and cache are partly on a GPU and partly in RAM.
        free_gpu_bytes: memory of all GPUs that was free before the model was loaded, or None if its library cannot
            tell.
        shares_weights: whether processes on one machine share the weights in memory.
        counted_in: what prompts and answers are counted in: "tokens", "characters" without a tokenizer, or "bytes" by
            a table of answers.
        wraps_prompts: whether the server applies the chat template.
        suppressed_tokens: tokens that a ``LocalBackend`` never chooses; servers apply their own.
        notes: sentences on how answers are computed, shown at the start of a run.
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
    is_split: bool = False
    free_gpu_bytes: int | None = None
    shares_weights: bool = False
    counted_in: CountedIn = "tokens"
    wraps_prompts: bool = False
    suppressed_tokens: SuppressedTokens = NO_TOKENS
    notes: tuple[str, ...] = ()

    @property
    def counts_tokens(self) -> bool:
        """Whether limits in tokens apply (to a table of answers, in bytes)."""
        return self.counted_in != "characters"

    @property
    def knows_prompt_tokens(self) -> bool:
        """Whether the model reads exactly the tokens in a request."""
        return self.counts_tokens and not self.wraps_prompts


class _BackendBase(Protocol):
    """Base class of local and remote backends: description, tokenizer, closing."""

    @property
    def info(self) -> BackendInfo: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end an answer: end of sequence and end of turn. Empty if lbx does not decode the answers."""
        ...

    def close(self) -> None:
        """Free the model's memory. The backend cannot be used afterwards."""
        ...


@runtime_checkable
class LocalBackend(_BackendBase, Protocol):
    """Backend that computes a model in this process."""

    def sequences(self) -> SequenceMemory:
        """Return the KV memory of the model, the same object at each call.

        Raises:
            BackendError: the model is closed.
        """
        ...


_TEXT_LOGITS_BYTES = 40_000_000


def text_chunk(vocabulary: int) -> int:
    """Number of tokens of a text with logits from one pass: 128, or 64 if 128 take more than 40 MB.

    Kernels for few tokens are slower, and llama.cpp's round otherwise. 64 take 67 MB with a vocabulary of 262,144.
    """
    return 128 if 4 * 128 * vocabulary <= _TEXT_LOGITS_BYTES else 64


@runtime_checkable
class TextBackend(_BackendBase, Protocol):
    """Backend that returns the logits at every position of a text."""

    def text_logits(self, tokens: Sequence[int], chunk: int = 0) -> Iterator[Logits]:
        """Yield the logits after each token of a text, as views of shape (up to ``chunk`` tokens, vocabulary).

        They are computed as for a prompt: by the same attention, with the same types of keys and values. A view is
        valid until the next one is yielded. All sequences of the memory are dropped.

        Args:
            chunk: number of tokens of a pass; 0: ``text_chunk`` of the vocabulary.

        Raises:
            BackendError: the model failed, or cannot compute a text in chunks.
        """
        ...


@dataclass(frozen=True, slots=True)
class TopLogProbs:
    """Log probabilities of the likeliest tokens after each token of a text.

    Attributes:
        ids: tokens at each position, each once, with the text's next token among them; -1 for missing ones.
        log_probs: their log probabilities, negative infinity where ``ids`` is -1.
        top: likeliest token, or -1 after the text's last token.
        next_log_probs: log probability of the text's next token, or NaN after the last one.
    """

    ids: NDArray[np.int64]
    log_probs: NDArray[np.float64]
    top: NDArray[np.int64]
    next_log_probs: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.top)

    def slice(self, start: int, stop: int) -> TopLogProbs:
        """Log probabilities after ``tokens[start:stop]``."""
        return TopLogProbs(*(getattr(self, name)[start:stop] for name in self.__slots__))


@runtime_checkable
class TopBackend(_BackendBase, Protocol):
    """Backend that returns the likeliest tokens at every position of a text, as some servers do.

    Attributes:
        max_text_tokens: number of tokens of the longest text.
    """

    max_text_tokens: int

    def text_top_log_probs(self, tokens: Sequence[int]) -> TopLogProbs:
        """Return the log probabilities of the likeliest tokens after each token of a text.

        Raises:
            BackendError: the server does not return them, or failed.
            EndpointError: the server is gone, or refuses every request.
        """
        ...


CompletionResult = Completion | PromptError | BackendError
"""Completion of a request, or the error that the request failed with."""


@runtime_checkable
class AnsweringBackend(_BackendBase, Protocol):
    """Backend that returns whole answers: a model server, or a scripted table."""

    def generate_many(
        self, requests: Sequence[Request], *, one_by_one: bool = False
    ) -> Iterator[tuple[int, CompletionResult]]:
        """Request answers, and yield (index, result) as they arrive, each index once.

        Args:
            one_by_one: request an answer only after the previous one has arrived.

        Raises:
            LbxError: no further request can be answered.
        """
        ...

    def takes_system(self) -> bool:
        """Whether the server accepts system messages. Only called if ``BackendInfo.wraps_prompts``."""
        ...


Backend = LocalBackend | AnsweringBackend
