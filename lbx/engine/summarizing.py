"""Summaries in place of documents, as a run of its own before the questions (``lbx.benchmarks.summaries``).

It is asked, kept, continued, shared among workers and merged as any run; questions on a document share its summaries,
and so do runs that differ in their questions only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.summaries import Summaries, join
from lbx.engine.selection import Selection
from lbx.engine.settings import RunSettings
from lbx.errors import BackendError
from lbx.layout import Bundle
from lbx.records import Sample, Task, sha256_text
from lbx.retrieval import word_spans
from lbx.store import Store

_GUESSED_WORDS = 150
"""A summary's 200 tokens, before there is one; of Chinese, characters."""


class InPlaceOfDocuments:
    """Puts summaries in place of documents. It travels to worker processes.

    Args:
        texts: by the documents' SHA-256; a document that is not there stays.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def __call__(self, sample: Sample) -> Sample:
        text = self._texts.get(sha256_text(sample.context))
        return sample if text is None else replace(sample, context=text)


def summaries_of(tasks: Sequence[Task], selection: Selection, size: int) -> Summaries:
    """The parts of the documents that tasks ask about, of so many words."""
    return Summaries(size, partial(_asked_about, tasks, selection))


def _asked_about(tasks: Sequence[Task], selection: Selection, bundle: Bundle) -> Iterator[Sample]:
    for task in tasks:
        samples = BENCHMARKS[task.benchmark].samples(bundle, task.name)
        yield from (sample for _, sample in selection.of(task, samples))


def settings_of_summaries(asked: RunSettings) -> RunSettings:
    """How parts are asked, given how questions are: greedily, once, and without reasoning where that can be said."""
    return RunSettings(
        summaries=asked.summaries,
        chat=asked.chat,
        thinking=False if asked.thinks else asked.thinking,
        batching=asked.batching,
    )


def stored(store: Store, run_id: str, summaries: Summaries, bundle: Bundle) -> InPlaceOfDocuments:
    """What a run of summaries has left in the results file.

    Raises:
        BackendError: some failed, or are not there.
    """
    rows = store.query("SELECT sample_id, output FROM generations WHERE run_id = ? AND error IS NULL", [run_id]).rows
    texts, missing = summaries.joined(bundle, {name: text or "" for name, text in rows})
    if missing:
        raise BackendError(
            f"{missing:,} summaries failed, and no question on their documents can be asked.",
            fix=f"`lbx report {store.path} failures` says why; repeat the command with --retry-failed.",
        )
    return InPlaceOfDocuments(texts)


def guessed(summaries: Summaries, bundle: Bundle) -> InPlaceOfDocuments:
    """Texts of about that length, for a plan: the first words of each part."""
    texts = {}
    for digest, sample, pieces in summaries.documents(bundle):
        parts = [piece.text[: word_spans(piece.text)[:_GUESSED_WORDS][-1][1]] for piece in pieces]
        texts[digest] = join(parts, sample.language)
    return InPlaceOfDocuments(texts)
