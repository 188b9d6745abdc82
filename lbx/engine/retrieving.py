"""Finding the chunks that stand in place of a document, before a language model takes the memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from lbx.records import Chunk, Sample, SampleKey
from lbx.store import Store
from lbx.store.caches import keep_retrieved, retrieved

if TYPE_CHECKING:
    from lbx.benchmarks.base import Benchmark
    from lbx.layout import Bundle
    from lbx.records import Task

_BATCH = 32

Progress = Callable[[str, int, int], None]
"""Called with a task's name, how many of its samples are done, and of how many."""


class Finds(Protocol):
    """Something that finds a document's best chunks for a query."""

    @property
    def name(self) -> str:
        """What identifies it, its settings included: equal names find equal chunks."""
        ...

    def __call__(self, document: str, query: str, language: str) -> Sequence[Chunk]:
        """The best chunks, in document order."""
        ...


def find_all(
    store: Store,
    find: Finds,
    bundle: Bundle,
    tasks: Sequence[tuple[Benchmark, Task]],
    *,
    limit: int | None,
    progress: Progress = lambda _task, _done, _total: None,
) -> None:
    """Find every sample's chunks and store them; those that the results file holds are left alone.

    Raises:
        BackendError: the embedding model failed. What was found before is stored.
    """
    for benchmark, task in tasks:
        total = task.samples if limit is None else min(limit, task.samples)
        found: dict[SampleKey, Sequence[Chunk]] = {}
        for done, sample in enumerate(islice(benchmark.samples(bundle, task.name), limit), start=1):
            if retrieved(store, find.name, sample.key) is None:
                found[sample.key] = find(sample.context, benchmark.query(sample), sample.language)
            if len(found) == _BATCH or done == total:
                keep_retrieved(store, find.name, found)
                found = {}
            progress(task.full_name, done, total)


class StoredChunks:
    """A sample's chunks from the results file, for ``Work.chunks``."""

    def __init__(self, store: Store, retriever: str) -> None:
        self._store = store
        self._retriever = retriever

    def __call__(self, sample: Sample) -> Sequence[Chunk]:
        return retrieved(self._store, self._retriever, sample.key) or ()
