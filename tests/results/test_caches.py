"""Chunks and vectors in the results file: what goes in comes out, whatever the texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.base.records import Chunk, Sample, sha256_text
from lbx.results import Store
from lbx.results.file.caches import (
    EmbeddedText,
    embedding_models,
    find_chunks,
    find_vectors,
    store_chunks,
    store_vectors,
)

ONE = Sample("longbench", "qasper", "q1", "the document", "?", ())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("caches") / "results.duckdb") as opened:
        yield opened


def test_chunks_come_back_in_document_order(store: Store) -> None:
    chunks = [Chunk(5, 0, 0.1 + 0.2, "five"), Chunk(2, 1, -1e-300, "two"), Chunk(9, 2, 0.0, "")]
    other = replace(ONE, task="hotpotqa")
    store_chunks(store, "bm25", [(ONE, chunks), (other, chunks[:1])])
    assert find_chunks(store, "bm25", ONE) == [chunks[1], chunks[0], chunks[2]]
    assert find_chunks(store, "bm25", other) == chunks[:1]
    assert find_chunks(store, "bm26", ONE) is None
    assert find_chunks(store, "bm25", replace(ONE, sample_id="q2")) is None
    assert find_chunks(store, "bm25", replace(ONE, context="another revision")) is None
    store_chunks(store, "bm25", [(ONE, [Chunk(0, 0, 1.0, "again")])])
    (first, *_) = find_chunks(store, "bm25", ONE) or ()
    assert first == Chunk(0, 0, 1.0, "again")


def test_nothing_to_keep(store: Store) -> None:
    store_chunks(store, "none", [])
    store_chunks(store, "none", [(ONE, [])])
    store_vectors(store, [])
    assert find_chunks(store, "none", ONE) is None
    assert find_vectors(store, "none", []) == {}


@settings(max_examples=40)
@given(st.text(st.characters() | st.sampled_from("a\0\ud800\udc00\"'\\{}")), st.floats(allow_nan=False))
def test_any_chunk_can_be_kept(store: Store, text: str, score: float) -> None:
    """Lone surrogates come back as tokenizers are given them."""
    sample = replace(ONE, sample_id="any")
    store_chunks(store, f"by {text}", [(sample, [Chunk(0, 0, score if abs(score) < 1e308 else 0.5, text)])])
    readable = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    (found,) = find_chunks(store, f"by {readable}", sample) or ()
    assert (found.text, found.score) == (readable, score if abs(score) < 1e308 else 0.5)


def test_vectors_come_back_to_the_bit(store: Store) -> None:
    texts = ["", "ship", "\0", "\ud800", "文档", "x" * 100_000]
    made = {sha256_text(text): bytes([number] * 12) + b"\0\xff" for number, text in enumerate(texts)}
    store_vectors(store, [EmbeddedText("m/1", key, vector) for key, vector in made.items()])
    store_vectors(store, [EmbeddedText("n/1", sha256_text("ship"), b"other")])
    assert find_vectors(store, "m/1", [*made, sha256_text("unknown")]) == made
    assert find_vectors(store, "n/1", list(made)) == {sha256_text("ship"): b"other"}
    assert find_vectors(store, "o/1", list(made)) == {}
    assert embedding_models(store) == ["m/1", "n/1"]
    store_vectors(store, [EmbeddedText("n/1", sha256_text("ship"), b"newer")])
    assert find_vectors(store, "n/1", list(made)) == {sha256_text("ship"): b"newer"}
