"""Retrieval of the chunks that replace documents, before a language model takes the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lbx.base.errors import BundleError, UsageError
from lbx.base.records import Chunk, Sample
from lbx.base.visible import as_command
from lbx.benchmarks.retrieval.chunks import ChunkTokenizer, split_between_words
from lbx.benchmarks.retrieval.retriever import (
    BM25_SIZE,
    EMBEDDING_SIZE,
    ChunkingRule,
    RetrievalRules,
    bm25_retriever,
    embedding_retriever,
    word_chunking,
)
from lbx.options.asking import BM25
from lbx.options.run_spec import RetrievalOptions
from lbx.options.sample_selection import EVERYTHING, Selection
from lbx.results import Store
from lbx.results.file.caches import all_chunks, chunks_key, find_chunks, store_chunks

if TYPE_CHECKING:
    from lbx.backends.embedding import Embedder
    from lbx.base.bundle_folder import Bundle
    from lbx.base.records import Task
    from lbx.benchmarks.base.benchmark import Benchmark

_BATCH = 32
_PLAIN = RetrievalRules()

RetrievalProgress = Callable[[str, int, int], None]
"""Callback for progress: task name, number of finished samples, number of samples."""


class ChunkFinder:
    """Finder of a document's best chunks for the question of a sample.

    Args:
        bundle: bundle with the official wording of questions and the tokenizer of chunks.
        options: the user's options.
        embedder: the embedding model that ranks chunks; None ranks them by BM25.
        rules: retrieval rules of the benchmark families in this run.

    Raises:
        UsageError: the families do not measure chunks in the requested unit.
        BundleError: the bundle is damaged or lacks the tokenizer.
        BackendError: the library that reads the tokenizer is not installed.
    """

    def __init__(
        self,
        bundle: Bundle,
        options: RetrievalOptions,
        embedder: Embedder | None = None,
        rules: RetrievalRules = _PLAIN,
    ) -> None:
        self._bundle = bundle
        self._best = options.rag
        self._embedder = embedder
        chunking = _chunking_rule(bundle, options, rules)
        if embedder is None:
            ranking = rules.bm25 if options.retriever == BM25 else options.retriever
            self._retriever = bm25_retriever(chunking, ranking)
        else:
            info = embedder.info
            self._retriever = embedding_retriever(embedder.embed, info.name, info.fingerprint[:12], chunking)

    @property
    def name(self) -> str:
        """Name of the retriever with all settings: equal names find equal chunks."""
        return f"{self._retriever.name}, best {self._best}"

    def find(self, benchmark: Benchmark, sample: Sample) -> Sequence[Chunk]:
        return self._retriever.retrieve(sample.context, benchmark.query(sample, self._bundle), self._best)

    def close(self) -> None:
        if self._embedder is not None:
            self._embedder.close()


def common_retrieval_rules(benchmarks: Iterable[Benchmark], options: RetrievalOptions) -> RetrievalRules:
    """Return the retrieval rules that the authors of all given families share.

    Raises:
        UsageError: the rules differ; a run has only one way to retrieve.
    """
    families = {family.name: family.protocol.retrieval for family in benchmarks}
    wanted_rules = dict.fromkeys(families.values())
    if options.chunk_words and options.retriever != BM25:  # the rules are not used in this case
        return _PLAIN
    if len({(rules.tokens, rules.bm25, rules.tokenizer if options.chunk_tokens else "") for rules in wanted_rules}) > 1:
        raise UsageError(
            f"{' and '.join(families)} use different chunks and rankings, but a run can only use one.",
            fix="Use a separate run for each.",
        )
    return next(iter(wanted_rules), _PLAIN)


def _chunking_rule(bundle: Bundle, options: RetrievalOptions, rules: RetrievalRules) -> ChunkingRule:
    tokens = options.chunk_tokens or (None if options.chunk_words else rules.tokens)
    if tokens is None:
        return word_chunking(
            options.chunk_words or (EMBEDDING_SIZE if options.has_embedding_retriever else BM25_SIZE), options.retriever
        )
    if not rules.tokenizer:
        raise UsageError(
            "--chunk-tokens does not apply to these tasks: their chunks are measured in words.",
            fix="Pass --chunk-words N.",
        )
    folder = bundle.snapshot("model", rules.tokenizer)
    if folder is None:
        raise BundleError(
            f"The bundle at {bundle.root} lacks {rules.tokenizer}. Its tokenizer measures these chunks.",
            fix="Bundle it on a connected machine, or measure chunks in words (--chunk-words N).",
            command=as_command("lbx", "bundle", rules.recipe),
        )
    tokenizer = ChunkTokenizer(folder / "tokenizer.json")
    way = partial(split_between_words, tokenizer=tokenizer) if rules.between_words else tokenizer.split
    name = f"{tokens} tokens of {rules.tokenizer.rpartition('/')[2]}:{tokenizer.fingerprint[:12]}"
    return ChunkingRule(name, partial(way, size=tokens))


def retrieve_all(
    store: Store,
    finder: ChunkFinder,
    bundle: Bundle,
    tasks: Sequence[tuple[Benchmark, Task]],
    *,
    selection: Selection = EVERYTHING,
    progress: RetrievalProgress = lambda _task, _done, _total: None,
) -> None:
    """Find and store the chunks of every selected sample that the results file does not yet contain.

    Raises:
        BackendError: the embedding model failed. Chunks found before any error are stored.
    """
    chunks_of: list[tuple[Sample, Sequence[Chunk]]] = []
    try:
        for benchmark, task in tasks:
            selected = selection.select(task, benchmark.samples(bundle, task.name))
            for done, (_, sample) in enumerate(selected, start=1):
                if find_chunks(store, finder.name, sample) is None:
                    chunks_of.append((sample, finder.find(benchmark, sample)))
                if len(chunks_of) == _BATCH:
                    store_chunks(store, finder.name, chunks_of)
                    chunks_of.clear()
                progress(task.full_name, done, selection.count(task))
    finally:
        store_chunks(store, finder.name, chunks_of)


class StoredChunks:
    """Stored chunks of a results file, as a picklable function for ``Work.chunks`` in worker processes."""

    def __init__(self, store: Store, retriever: str) -> None:
        self._chunks = all_chunks(store, retriever)

    def __call__(self, _benchmark: Benchmark, sample: Sample) -> Sequence[Chunk]:
        return self._chunks.get(chunks_key(sample), ())
