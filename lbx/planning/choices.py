"""What several options of a run say together: which samples are asked, and how chunks are found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from lbx.base.errors import UsageError
from lbx.retrieval.ranking import BM25, BM25_CHARACTERS


@dataclass(frozen=True, slots=True)
class SampleChoice:
    """What --limit, --documents, --sample, --seed and --ids say; nothing means every sample.

    Attributes:
        limit: the first so many samples of each task; ``documents`` and ``sample`` choose among these.
        documents: the first so many documents of each task, with all their questions.
        sample: documents of each task, drawn at random and with all their questions, until they have so many samples.
        seed: of ``sample``.
        ids: samples by name: "sample_id", of whatever task, or "benchmark/task/sample_id".

    Raises:
        UsageError: two of them exclude each other.
    """

    limit: int | None = None
    documents: int | None = None
    sample: int | None = None
    seed: int = 0
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ways = {"--documents": self.documents, "--sample": self.sample, "--ids": self.ids or None}
        named = [option for option, value in ways.items() if value is not None]
        if self.ids and self.limit is not None:
            named.append("--limit")
        if len(named) > 1:
            raise UsageError(f"{' and '.join(named)} exclude each other.", fix="Give one of them.")

    @property
    def everything(self) -> bool:
        return self.limit is None and self.documents is None and self.sample is None and not self.ids


class Retrieval(NamedTuple):
    """What --rag, --retriever, --chunk-words, --chunk-tokens and --threads say.

    Attributes:
        best: so many chunks stand in place of the document; 0 means the document.
        retriever: "bm25", "bm25-characters", or the card of an embedding model.
        words, tokens: of a chunk; None for both as the family's authors have it.
        threads: of the embedding model.
    """

    best: int = 0
    retriever: str = BM25
    words: int | None = None
    tokens: int | None = None
    threads: int | None = None

    @property
    def embeds(self) -> bool:
        """Whether an embedding model ranks."""
        return self.retriever not in (BM25, BM25_CHARACTERS)

    def check(self) -> None:
        """Raise UsageError where it says how to find chunks and none are asked for, or how large they are twice."""
        for option, value in (
            ("--retriever", self.retriever != BM25),
            ("--chunk-words", self.words),
            ("--chunk-tokens", self.tokens),
        ):
            if value and not self.best:
                raise UsageError(
                    f"{option} needs --rag: it says how chunks are found.",
                    fix="Give the number of chunks in place of the document (--rag N), or remove it.",
                )
        if self.words and self.tokens:
            raise UsageError(
                "--chunk-words and --chunk-tokens exclude each other: both set the size of a chunk.",
                fix="Leave one out.",
            )
