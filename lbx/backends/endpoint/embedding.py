"""Embedding models on an OpenAI-compatible server: llama-server, vLLM, text-embeddings-inference, or hosted.

Every number of an answer is checked: there is one vector per text, all are as long as the first, and all are finite. A
server's name for its weights is no proof; vectors are stored under the names of the card and of the server's model.

The authors of LongBench v1 and L-Eval also rank chunks with OpenAI's text-embedding-ada-002. Its weights are not
published: no local backend can compute that retrieval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.backends.cards import ModelCard
from lbx.backends.embedding import EmbedderInfo, fingerprint_of, unit_rows
from lbx.backends.endpoint.answers import count_of, table_of
from lbx.backends.endpoint.http import RefusedError, Server, UnreachableError
from lbx.backends.endpoint.options import EndpointEmbeddingOptions
from lbx.backends.endpoint.probe import read_facts
from lbx.base.errors import BackendError
from lbx.base.records import replace_surrogates

if TYPE_CHECKING:
    from lbx.backends.embedding import Vectors

_PROBE = "A probe."
_MOST_DIMENSIONS = 1 << 16


class EndpointEmbedder:
    """Embedding model on a server."""

    def __init__(self, server: Server, model: str, version: str, name: str, options: EndpointEmbeddingOptions) -> None:
        self._server = server
        self._model = model
        self._options = options
        dimensions = len(self._ask([_PROBE])[0])
        settings = {
            "dimensions": dimensions,
            "max_characters": options.max_characters,
            "prompts": [options.query_prefix, options.document_prefix],
        }
        self.info = EmbedderInfo(
            name=name,
            backend="endpoint_embedding",
            version=version,
            fingerprint=fingerprint_of("endpoint_embedding", model, settings),
            dimensions=dimensions,
            max_tokens=0,
        )

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Compute the vectors of texts like ``Embedder.embed``. Empty texts, which most servers refuse, get zeros.

        Raises:
            BackendError: the server failed on the texts, or returned invalid vectors.
            EndpointError: the server is gone, or refuses every request.
        """
        import numpy as np

        prefix = self._options.query_prefix if query else self._options.document_prefix
        rows: Vectors = np.zeros((len(texts), self.info.dimensions), np.float32)
        limit = self._options.max_characters or None
        rows_and_texts = [
            (row, text) for row, text in enumerate(replace_surrogates(prefix + text)[:limit] for text in texts) if text
        ]
        for start in range(0, len(rows_and_texts), self._options.batch_texts):
            part = rows_and_texts[start : start + self._options.batch_texts]
            vectors = self._ask([text for _, text in part])
            if len(vectors[0]) != self.info.dimensions:
                raise self._answer_error(
                    f"vectors of length {len(vectors[0])} after vectors of length {self.info.dimensions}"
                )
            rows[[row for row, _ in part]] = vectors
        return unit_rows(rows, self.info.name)

    def close(self) -> None:
        self._server.close()

    def _ask(self, texts: Sequence[str]) -> list[list[float]]:
        """Compute the vectors of texts in one request, checked to be equally long."""
        payload: dict[str, Any] = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        if self._options.dimensions:
            payload["dimensions"] = self._options.dimensions
        try:
            reply = self._server.post("/embeddings", payload)
        except UnreachableError as exc:
            raise self._server.to_error(exc) from exc
        except RefusedError as exc:
            if exc.is_general:
                raise self._server.to_error(exc) from exc
            if exc.status >= 500:
                raise BackendError(
                    f"The embedding server {self._server.url} failed ({exc}).", fix="Check the server's log."
                ) from exc
            raise BackendError(
                f"The embedding server {self._server.url} refuses {len(texts)} texts ({exc}).",
                fix="If a text is too long for the model, set max_characters in the card or use smaller chunks. If "
                "there are too many, lower batch_texts.",
            ) from exc
        return self._vectors(reply, len(texts))

    def _vectors(self, body: Mapping[str, Any], count: int) -> list[list[float]]:
        """Return the vectors in an answer, in the order of the texts."""
        data = body.get("data")
        entries = [table_of(entry) for entry in data] if isinstance(data, list) else []
        indices = [count_of(entry.get("index")) for entry in entries]
        if sorted(-1 if index is None else index for index in indices) != list(range(count)):
            raise self._answer_error(f"{len(entries)} vectors for {count} texts, or with wrong indices")
        rows = [_numbers(entry.get("embedding")) for entry in sorted(entries, key=lambda entry: entry["index"])]
        if None in rows or len({len(row) for row in rows if row is not None}) != 1:
            raise self._answer_error("something other than vectors of finite numbers of one length")
        return [row for row in rows if row is not None]

    def _answer_error(self, what: str) -> BackendError:
        return BackendError(
            f"The embedding server {self._server.url} answered with {what}.",
            fix="Check that the card's url and model belong to an embedding model, and check the server's log.",
        )


def _numbers(value: Any) -> list[float] | None:
    """Return a value as a vector if its numbers are within float32's range, or else None."""
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_DIMENSIONS:
        return None
    # Comparing an integer of any length is cheap; converting it to float may overflow.
    fit = all(type(number) in (int, float) and -3e38 < number < 3e38 for number in value)  # NaN is neither
    return [float(number) for number in value] if fit else None


def load(card: ModelCard, weights: Path | None, *, debug: bool = False) -> EndpointEmbedder:
    """Connect to a server.

    Raises:
        UsageError: the server does not have the card's model, or has several and the card names none.
        BackendError: the server's vectors are invalid.
        EndpointError: the server does not answer, or refuses the key.
    """
    options = card.options_as(EndpointEmbeddingOptions)
    server = Server(options.connection)
    try:
        facts = read_facts(server, card, options.connection)
        return EndpointEmbedder(server, facts.model, f"{facts.kind} {facts.version}".strip(), card.name, options)
    except BaseException:
        server.close()
        raise
