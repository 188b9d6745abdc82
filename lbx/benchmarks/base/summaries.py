"""Summaries in place of documents: their parts, as something to ask before the questions. An idea of LongBench's.

``LongBench/summ/compress.py`` of THUDM/LongBench cuts a document into parts of about 500 words, has the model sum up
each of them in 200 tokens, and joins what it said under headings that count the parts; the benchmark then runs on that
text. As published it never does: the joined text is read before it is set, and the exception puts the whole document
back. So there is no number of the authors' to match. This is lbx's own: its parts end with sentences and have at most
so many words; its words are lbx's, its greedy answers and 200 tokens the script's. A document of one part stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from lbx.base.layout import Bundle
from lbx.base.records import (
    PLAIN,
    Chunk,
    Mode,
    Prompt,
    Sample,
    Score,
    ScoredSample,
    Task,
    TaskScore,
    Truncation,
    sha256_text,
)
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.retrieval.chunks import split
from lbx.retrieval.words import words

NAME = "document_summaries"
TASK = "parts"
NEW_TOKENS = 200

_ASK = {
    "en": "\n\nSum up the text above in at most 200 words. Keep names, numbers and what is said of them. Write nothing "
    "but the summary.",
    "zh": "\n\n请用不超过200个字概括上面的文字，保留人名、数字以及与之有关的内容。只写概括，不写别的。",
}
_HEADINGS = {"en": "Summary of part {}: {}", "zh": "第{}部分的概括：{}"}

Documents = Callable[[Bundle], Iterator[Sample]]
"""The samples whose documents are meant. It travels to worker processes."""


def _no_documents(_bundle: Bundle) -> Iterator[Sample]:
    return iter(())


class Summaries(Benchmark):
    """Each part of each document once, whatever asks about it. Without documents it has no task.

    Args:
        size: words of a part.
    """

    name = NAME
    metric_version = 1

    def __init__(self, size: int = 0, documents: Documents = _no_documents) -> None:
        self._size = size
        self._documents = documents

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """One, which is scored by nothing."""
        count = sum(1 for _ in self.samples(bundle, TASK))
        return [Task(NAME, TASK, (), count)] if count else []

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """The parts, document by document."""
        for digest, sample, parts in self.documents(bundle):
            for number, part in enumerate(parts):
                yield Sample(
                    benchmark=NAME,
                    task=TASK,
                    sample_id=part_id(digest, self._size, number),
                    context=part,
                    question="",
                    references=(),
                    language=sample.language,
                    length=len(words(part)),
                    meta={"document_sha256": digest, "part": number},
                )

    def documents(self, bundle: Bundle) -> Iterator[tuple[str, Sample, list[str]]]:
        """(SHA-256, a sample of it, parts) of each document that has more than one part."""
        seen: set[str] = set()
        for sample in self._documents(bundle):
            digest = sha256_text(sample.context)
            if digest not in seen:
                seen.add(digest)
                parts = split(sample.context, self._size)
                if len(parts) > 1:
                    yield digest, sample, parts

    def joined(self, bundle: Bundle, summaries: Mapping[str, str]) -> tuple[dict[str, str], int]:
        """{SHA-256 of a document: what stands in its place}, and how many parts have no summary.

        Args:
            summaries: by the parts' sample ids.
        """
        summary_of, missing = {}, 0
        for digest, sample, parts in self.documents(bundle):
            texts = [summaries.get(part_id(digest, self._size, number)) for number in range(len(parts))]
            missing += texts.count(None)
            summary_of[digest] = join([text or "" for text in texts], sample.language)
        return summary_of, missing

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """The part, then lbx's own words. A part that is too long for the model is cut in its middle."""
        return Prompt(
            before="",
            document=sample.context,
            after=_ASK["zh" if sample.language == "zh" else "en"],
            max_new_tokens=NEW_TOKENS,
            truncation=Truncation.DOCUMENT_MIDDLE,
        )

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """Nothing: what a summary is worth shows in the answers."""
        return []

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[TaskScore]:
        return []


def join(summaries: Sequence[str], language: str) -> str:
    """A document's summaries, each under its heading."""
    heading = _HEADINGS["zh" if language == "zh" else "en"]
    return "\n".join(heading.format(number, text.strip()) for number, text in enumerate(summaries, start=1))


def part_id(document: str, size: int, part: int) -> str:
    """Parts of other sizes are other samples."""
    return f"{document[:16]}-{size}-{part:05d}"
