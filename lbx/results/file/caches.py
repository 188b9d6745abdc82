"""Cached results that are expensive to compute and equal for every run: text embeddings, and retrieved chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lbx.base.records import Chunk, Sample, TableRow, sha256_text
from lbx.results.file.inserting import insert
from lbx.results.file.store import Store


@dataclass(frozen=True, slots=True)
class EmbeddedText:
    """Row of ``embeddings``. ``vector`` consists of float32 numbers, little endian, of unit length."""

    model: str
    text_sha256: str
    vector: bytes


@dataclass(frozen=True, slots=True)
class _RetrievalRow(TableRow):
    retriever: str
    benchmark: str
    task: str
    sample_id: str
    context_sha256: str
    rank: int
    chunk_index: int
    score: float
    text: str


def embedding_models(store: Store, of: Sequence[str] = ()) -> list[str]:
    """List the models with stored vectors of any text, or of a text with a hash in ``of``."""
    condition = "WHERE list_contains(?::VARCHAR[], text_sha256)" if of else ""
    rows = store.query(f"SELECT DISTINCT model FROM embeddings {condition} ORDER BY ALL", [list(of)] if of else [])
    return [row[0] for row in rows.rows]


def find_vectors(store: Store, model: str, hashes: Sequence[str]) -> dict[str, bytes]:
    """Return the stored vectors of texts by their hashes, as {hash: vector}. Texts without a vector are absent."""
    rows = store.query(
        "SELECT text_sha256, vector FROM embeddings WHERE model = ? AND text_sha256 IN (SELECT unnest(?::VARCHAR[]))",
        [model, list(hashes)],
    )
    return dict(rows.rows)


def store_vectors(store: Store, rows: Sequence[EmbeddedText]) -> None:
    """Commit vectors, all or none."""
    if not rows:
        return
    columns = [[row.model for row in rows], [row.text_sha256 for row in rows], [row.vector for row in rows]]
    with store.transaction() as connection:
        connection.execute(
            "INSERT OR REPLACE INTO embeddings SELECT unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), unnest(?::BLOB[])",
            columns,
        )


def find_chunks(store: Store, retriever: str, sample: Sample) -> list[Chunk] | None:
    """Return a sample's chunks in document order, or None if the retriever has not processed the sample.

    None is also returned for an empty document, because its processing is free.
    """
    rows = store.query(
        "SELECT chunk_index, rank, score, text FROM retrievals "
        "WHERE retriever = ? AND benchmark = ? AND task = ? AND sample_id = ? AND context_sha256 = ? "
        "ORDER BY chunk_index",
        [retriever, *chunks_key(sample)],
    ).rows
    return [Chunk(*row) for row in rows] or None


def chunks_key(sample: Sample) -> tuple[str, str, str, str]:
    """Return the key of a sample's chunks among the chunks of a retriever."""
    return sample.benchmark, sample.task, sample.sample_id, sha256_text(sample.context)


def all_chunks(store: Store, retriever: str) -> dict[tuple[str, ...], list[Chunk]]:
    """Return all chunks that a retriever found, as {key of ``chunks_key``: chunks in document order}."""
    chunks_of: dict[tuple[str, ...], list[Chunk]] = {}
    for row in store.query(
        "SELECT benchmark, task, sample_id, context_sha256, chunk_index, rank, score, text FROM retrievals "
        "WHERE retriever = ? ORDER BY ALL",
        [retriever],
    ).rows:
        chunks_of.setdefault(row[:4], []).append(Chunk(*row[4:]))
    return chunks_of


def store_chunks(store: Store, retriever: str, chunks_of_samples: Sequence[tuple[Sample, Sequence[Chunk]]]) -> None:
    """Commit the chunks of several samples, all or none."""
    rows = [
        _RetrievalRow(retriever, *chunks_key(sample), chunk.rank, chunk.index, chunk.score, chunk.text)
        for sample, chunks in chunks_of_samples
        for chunk in chunks
    ]
    with store.transaction() as connection:
        insert(connection, "retrievals", rows)
