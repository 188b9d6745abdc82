"""Similarities for metrics, from an embedding model; each text is embedded once and stored in the results file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.base.records import SimilarityInput, sha256_text
from lbx.store import Store
from lbx.store.caches import EmbeddedText, embedding_models, find_vectors, store_vectors

if TYPE_CHECKING:
    from lbx.backends.embedding import Embedder

_BATCH = 256


class Similarities:
    """Maximum cosine similarity between a text and its references.

    Args:
        embedder: the model; None uses only stored vectors.
        model: name of the model of stored vectors, without an embedder; None for the only model that has vectors of
            any of the answers.
        progress: called with the number of embedded texts and their total.
    """

    def __init__(
        self,
        embedder: Embedder | None = None,
        *,
        model: str | None = None,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> None:
        self._embedder = embedder
        self._model = identity(embedder) if embedder else model
        self._progress = progress

    def compute(self, store: Store, comparisons: Sequence[SimilarityInput | None]) -> list[float | None]:
        """Compute a float32 cosine for each of ``comparisons``; None if a vector is missing.

        Texts without a stored vector are embedded and stored first, in batches that are committed one by one.

        Raises:
            UsageError: the file has vectors of several models, and no model was chosen.
            BackendError: the embedding model failed.
        """
        texts = {
            sha256_text(text): text
            for comparison in comparisons
            if comparison is not None
            for text in (comparison.text, *comparison.references)
        }
        model = self._model or (
            _only_model(store, [comparison.text for comparison in comparisons if comparison is not None])
            if texts
            else None
        )
        if not texts or model is None:
            return [None] * len(comparisons)
        vector_of = {key: np.frombuffer(value, "<f4") for key, value in find_vectors(store, model, list(texts)).items()}
        vector_of |= self._embed(store, model, {key: text for key, text in texts.items() if key not in vector_of})
        return [None if comparison is None else _largest_cosine(comparison, vector_of) for comparison in comparisons]

    def _embed(self, store: Store, model: str, missing: dict[str, str]) -> dict[str, np.ndarray]:
        if self._embedder is None:
            return {}
        new_vectors: dict[str, np.ndarray] = {}
        # By length, like the embedder's batches: texts of equal length need no padding.
        keys = sorted(missing, key=lambda key: len(missing[key]))
        for start in range(0, len(keys), _BATCH):
            part = keys[start : start + _BATCH]
            rows = self._embedder.embed([missing[key] for key in part]).astype("<f4")
            new_vectors |= dict(zip(part, rows, strict=True))
            store_vectors(store, [EmbeddedText(model, key, new_vectors[key].tobytes()) for key in part])
            self._progress(len(new_vectors), len(keys))
        return new_vectors


def identity(embedder: Embedder) -> str:
    """Name of an embedding model in the results file: equal names give equal vectors."""
    return f"{embedder.info.name}/{embedder.info.fingerprint[:12]}"


def _only_model(store: Store, texts: Sequence[str]) -> str | None:
    """The model that embedded the answers; their references may also belong to other runs."""
    models = embedding_models(store, list(map(sha256_text, texts)))
    if len(models) > 1:
        raise UsageError(
            f"{store.path} has embeddings from several models: {', '.join(models)}.",
            fix="Choose one with --embedding: pass its card or one of these names.",
            command=as_command("lbx", "score", store.path, "--embedding", "NAME"),
        )
    return models[0] if models else None


def _largest_cosine(comparison: SimilarityInput, vector_of: dict[str, np.ndarray]) -> float | None:
    vector = vector_of.get(sha256_text(comparison.text))
    reference_vectors = [vector_of.get(sha256_text(reference)) for reference in comparison.references]
    if vector is None or not reference_vectors or any(other is None for other in reference_vectors):
        return None
    return max(float(np.float32(other @ vector)) for other in reference_vectors if other is not None)
