"""Embedding models: the interface that computes one vector per text.

    embedder = load_embedder(resolve_embedder("qwen3-embedding", bundle=bundle), bundle=bundle)
    vectors = embedder.embed(texts)                 # float32, (texts, dimensions), rows of length 1
    cosines = vectors[:1] @ vectors[1:].T

LongBench Pro compares summaries by embeddings, and retrieval ranks chunks. A card is either for an embedding model or
for a text-generating model.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lbx.backends.cards import ModelCard, load_backend, missing_library_error
from lbx.backends.weights import refuse_generation, weights_path
from lbx.base.errors import BackendError
from lbx.base.records import canonical_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lbx.base.bundle_folder import Bundle

    Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EmbedderInfo:
    """Description of an embedding model, which identifies the vectors.

    Attributes:
        backend: key of ``KINDS``.
        version: library version, e.g. "sentence-transformers 6.2.0".
        fingerprint: hex digest of the weights and of every setting that changes a vector. Vectors of equal
            fingerprints may be compared and kept; the device and the library's version only move their rounding.
        dimensions: length of a vector.
        max_tokens: longer texts are truncated at the end, special tokens counted; 0 leaves that to the server.
    """

    name: str
    backend: str
    version: str
    fingerprint: str
    dimensions: int
    max_tokens: int


class Embedder(Protocol):
    """Embedding model, loaded or on a server."""

    @property
    def info(self) -> EmbedderInfo: ...

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Compute the vectors of texts.

        Other texts of a call change a text's vector only by rounding: llama.cpp computes each text by itself, so the
        same text always gives the same bits; sentence-transformers and servers compute batches, and their shape changes
        the last digits (differences of about 1e-7 in float32, 1e-3 in bfloat16).

        Args:
            texts: any texts, even empty texts or texts with lone surrogates (which count as U+FFFD); texts
                longer than ``max_tokens`` are truncated at the end.
            query: put the prompt for queries before each text, instead of the prompt for documents.

        Returns:
            Shape (len(texts), dimensions), float32. Rows have length 1; texts without a token get a zero row.

        Raises:
            BackendError: the model failed, memory ran out, or a vector is not finite.
        """
        ...

    def close(self) -> None:
        """Free the model's memory. The embedder cannot be used afterwards."""
        ...


def load_embedder(card: ModelCard, *, bundle: Bundle | None = None, debug: bool = False) -> Embedder:
    """Load the embedding model of a card.

    Args:
        debug: pass the library's own log to stderr.

    Raises:
        UsageError: the card is for a model that writes text, or needs a bundle and none was given.
        BackendError: the weights are missing or damaged, or the library is not installed.
    """
    refuse_generation(card)
    weights = None if card.kind.remote else weights_path(card, bundle)
    loaded: Embedder = load_backend(card, weights, debug=debug)
    return loaded


def check_embedder(card: ModelCard, bundle: Bundle | None = None) -> None:
    """Check an embedding model as far as possible without loading it.

    Raises:
        UsageError: the card is for a model that writes text, or needs a bundle and none was given.
        BackendError: the weights are missing, or the library is not installed.
    """
    refuse_generation(card)
    if card.kind.remote:
        return
    weights_path(card, bundle)
    library = card.kind.library
    if importlib.util.find_spec(library) is None:
        raise missing_library_error(card, f"No module named {library!r}")


def fingerprint_of(backend: str, weights: str, settings: Mapping[str, Any]) -> str:
    """Fingerprint for ``EmbedderInfo``, from the fingerprint of the weights and the settings that change vectors."""
    described = {"backend": backend, "weights": weights, "settings": dict(settings)}
    return hashlib.sha256(canonical_json(described).encode()).hexdigest()


def batches(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Group texts into batches that, padded to the longest text, contain at most ``limit`` tokens.

    Args:
        lengths: lengths of the texts, in tokens. Texts without a token are omitted.
        limit: tokens of a batch; a longer text is its own batch.

    Returns:
        Batches of indices, the longest texts first, so that memory runs out early if at all.
    """
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if not lengths[index]:
            continue
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= limit:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def unit_rows(vectors: Vectors, name: str) -> Vectors:
    """Scale vectors to length 1. Zero vectors stay zero.

    Raises:
        BackendError: a number is infinite or NaN.
    """
    import numpy as np

    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise BackendError(
            f"{name} produced a vector with NaN or infinite values.",
            fix="Set dtype = 'float32' or 'bfloat16' in its card. If it is already set, the weights are damaged.",
        )
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
