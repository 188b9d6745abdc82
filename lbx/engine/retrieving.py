"""Finding the chunks that stand in place of a document, before a language model takes the memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lbx.engine.selection import EVERYTHING, Selection
from lbx.errors import UsageError
from lbx.records import Chunk, Sample
from lbx.retrieval.retriever import BM25_SIZE, EMBEDDING_SIZE, bm25_retriever, embedding_retriever
from lbx.store import Store
from lbx.store.caches import all_retrieved, chunks_key, keep_retrieved, retrieved

if TYPE_CHECKING:
    from lbx.backends.embedding import Embedder
    from lbx.benchmarks.base import Benchmark
    from lbx.layout import Bundle
    from lbx.records import Task

BM25 = "bm25"
_BATCH = 32

Progress = Callable[[str, int, int], None]
"""Called with a task's name, how many of its samples are done, and of how many."""


class Retrieval(NamedTuple):
    """What --rag, --retriever, --chunk-words and --threads say.

    Attributes:
        best: so many chunks stand in place of the document; 0 means the document.
        retriever: "bm25", or the card of an embedding model.
        words: of a chunk; None as LongBench's authors have it.
        threads: of the embedding model.
    """

    best: int = 0
    retriever: str = BM25
    words: int | None = None
    threads: int | None = None

    def check(self) -> None:
        """Raise UsageError where it says how to find chunks, and none are asked for."""
        for option, given in (("--retriever", self.retriever != BM25), ("--chunk-words", self.words)):
            if given and not self.best:
                raise UsageError(
                    f"{option} says how chunks are found, and without --rag none are asked for.",
                    fix="Say how many stand in place of the document (--rag N), or leave it out.",
                )


class Finder:
    """Finds a document's best chunks for a query.

    Args:
        best: how many.
        embedder: the embedding model that ranks them; None ranks by BM25.
        words: of a chunk; None as LongBench's authors have it (500 for BM25, 200 for embedding models).
    """

    def __init__(self, best: int, embedder: Embedder | None = None, words: int | None = None) -> None:
        self._best = best
        self._embedder = embedder
        if embedder is None:
            self._retriever = bm25_retriever(words or BM25_SIZE)
        else:
            info = embedder.info
            self._retriever = embedding_retriever(
                embedder.embed, info.name, info.fingerprint[:12], words or EMBEDDING_SIZE
            )

    @property
    def name(self) -> str:
        """What identifies it, its settings included: equal names find equal chunks."""
        return f"{self._retriever.name}, best {self._best}"

    def find(self, benchmark: Benchmark, sample: Sample) -> Sequence[Chunk]:
        """A sample's best chunks, in document order."""
        return self._retriever.retrieve(sample.context, benchmark.query(sample), sample.language, self._best)

    def close(self) -> None:
        """Free the embedding model's memory."""
        if self._embedder is not None:
            self._embedder.close()


def find_all(
    store: Store,
    finder: Finder,
    bundle: Bundle,
    tasks: Sequence[tuple[Benchmark, Task]],
    *,
    selection: Selection = EVERYTHING,
    progress: Progress = lambda _task, _done, _total: None,
) -> None:
    """Find every chosen sample's chunks and store them; those that the results file holds are left alone.

    Raises:
        BackendError: the embedding model failed. Whatever ends it, what was found before is stored.
    """
    found: list[tuple[Sample, Sequence[Chunk]]] = []
    try:
        for benchmark, task in tasks:
            chosen = selection.of(task, benchmark.samples(bundle, task.name))
            for done, (_, sample) in enumerate(chosen, start=1):
                if retrieved(store, finder.name, sample) is None:
                    found.append((sample, finder.find(benchmark, sample)))
                if len(found) == _BATCH:
                    keep_retrieved(store, finder.name, found)
                    found.clear()
                progress(task.full_name, done, selection.count(task))
    finally:
        keep_retrieved(store, finder.name, found)


class StoredChunks:
    """Samples' chunks from the results file, for ``Work.chunks``. They travel to worker processes."""

    def __init__(self, store: Store, retriever: str) -> None:
        self._chunks = all_retrieved(store, retriever)

    def __call__(self, _benchmark: Benchmark, sample: Sample) -> Sequence[Chunk]:
        return self._chunks.get(chunks_key(sample), ())
