"""A model whose next token depends on every token before, so that a wrong cell changes the answer."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from lbx.backends.scripted import ByteTokenizer
from lbx.base.errors import BackendError
from lbx.base.records import Completion, Request
from lbx.engine.decoding import Decoding
from lbx.engine.model import (
    NO_LIMIT,
    BackendInfo,
    MemoryFullError,
    MemoryTraits,
    SequenceExtension,
    check_extensions,
    check_sequence,
)

VOCABULARY = 258
EOS = 257


def logits_after(tokens: Sequence[int]) -> np.ndarray:
    """Printable characters, and now and then the end, by a hash of all tokens."""
    digest = hashlib.sha256(repr(list(tokens)).encode()).digest()
    logits = np.zeros(VOCABULARY, dtype=np.float32)
    logits[97 + digest[0] % 16] = 1
    if digest[1] < 24:
        logits[EOS] = 2
    return logits


@dataclass
class ToyMemory:
    """Memory of cells that store their token; counts computed tokens and asserts that a batch stays in its limits.

    With a grain above 1 only full blocks are shared, and there are two more blocks for trunks. With ``copies``
    sequences share no cell.
    """

    max_sequences: int = 8
    max_cells: int = 400
    max_step: int = 16
    cheap_cells: int = 10_000
    pass_price: int = 40_000
    grain: int = 1
    forks_anywhere: bool = True
    trunks: int | None = None
    follow_limit: int = NO_LIMIT
    copies: bool = False
    fails_on: int | None = None
    computed: int = 0
    most_cells: int = 0
    passes: list[tuple[SequenceExtension, ...]] = field(default_factory=list)
    sequences: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    limit: int | None = None
    _cell: int = 0

    @property
    def traits(self) -> MemoryTraits:
        return MemoryTraits(
            self.cheap_cells,
            self.pass_price,
            self.grain,
            self.forks_anywhere,
            (2 if self.forks_anywhere else self.max_sequences - 1) if self.trunks is None else self.trunks,
            self.copies,
            self.follow_limit,
        )

    def fit(self, cells: int) -> None:
        if not self.used_cells:
            self.limit = cells

    def length(self, sequence: int) -> int:
        check_sequence(sequence, self.max_sequences)
        return len(self.sequences.get(sequence, ()))

    @property
    def used_cells(self) -> int:
        return self._cells(self.sequences)

    def _cells(self, sequences: dict[int, list[tuple[int, int]]]) -> int:
        if self.copies:
            return sum(map(len, sequences.values()))
        blocks = set()
        for sequence, held in sequences.items():
            for at in range(0, len(held), self.grain):
                full = at + self.grain <= len(held)
                blocks.add(tuple(held[at : at + self.grain]) if full else (sequence, at))
        return len(blocks) * self.grain

    def _take(self, changed: dict[int, list[tuple[int, int]]]) -> None:
        after, ends = self.sequences | changed, 2 * self.grain if self.grain > 1 else 0
        assert self.limit is None or self._cells(after) <= self.limit + ends or self.limit >= self.max_cells
        if self._cells(after) > self.max_cells + ends:
            raise MemoryFullError("the memory is full")
        self.sequences = after

    def extend(self, items: Sequence[SequenceExtension]) -> list[np.ndarray | None]:
        added = check_extensions(items, self.max_sequences, self.max_step)
        if not items:
            return []
        if any(self.fails_on in item.tokens for item in items):
            for item in items:
                self.drop(item.sequence)
            raise BackendError("the model failed")
        numbers = count(self._cell)
        self._take(
            {
                item.sequence: [*self.sequences.get(item.sequence, ()), *zip(numbers, item.tokens, strict=False)]
                for item in items
            }
        )
        self._cell = next(numbers)
        self.computed += added
        self.passes.append(tuple(items))
        self.most_cells = max(self.most_cells, self.used_cells)
        return [
            logits_after([token for _, token in self.sequences[item.sequence]]) if item.wants_logits else None
            for item in items
        ]

    @property
    def steps(self) -> int:
        return len(self.passes)

    def fork(self, source: int, length: int, targets: Sequence[int]) -> None:
        for sequence in (source, *targets):
            check_sequence(sequence, self.max_sequences)
        if source in targets or not (0 if self.forks_anywhere else self.length(source)) <= length <= self.length(
            source
        ):
            raise ValueError(f"sequence {source} cannot fork at {length} to {targets}")
        for target in targets:
            self.drop(target)
        self._take({target: list(self.sequences.get(source, ())[:length]) for target in targets})

    def drop(self, sequence: int) -> None:
        check_sequence(sequence, self.max_sequences)
        self.sequences.pop(sequence, None)


TOKENIZER = ByteTokenizer()


class ToyBackend:
    tokenizer, eos_ids = TOKENIZER, frozenset({EOS})
    info = BackendInfo("toy", "1", "toy", 100)

    def __init__(self, memory: ToyMemory) -> None:
        self.sequences = lambda: memory

    def close(self) -> None:
        pass


def alone(request: Request) -> Completion:
    """Answer of the model to this request alone."""
    decoding, tokens = Decoding(request, TOKENIZER, {EOS}), list(request.token_ids)
    while (token := decoding.take(logits_after(tokens))) is not None:
        tokens.append(token)
    return decoding.completion()
