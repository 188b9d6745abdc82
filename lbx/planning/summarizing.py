"""Summaries in place of documents, as a run of its own before the questions (``lbx.benchmarks.base.summaries``).

It is asked, kept, continued, shared among workers and merged as any run; questions on a document share its summaries,
and so do runs that differ in their questions only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from lbx.base.commands import as_command
from lbx.base.errors import BackendError
from lbx.base.layout import Bundle
from lbx.base.records import Sample, Task, sha256_text
from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.base.summaries import Summaries, join
from lbx.planning.selection import Selection
from lbx.planning.settings import RunSettings
from lbx.retrieval.words import word_spans
from lbx.store import Store

_GUESSED_WORDS = 150
"""A summary's 200 tokens, before there is one; of Chinese, characters."""


def _in_place(texts: Mapping[str, str], sample: Sample) -> Sample:
    """The sample with the text of its document's SHA-256 in the document's place, where there is one."""
    text = texts.get(sha256_text(sample.context))
    return sample if text is None else replace(sample, context=text)


def summaries_of(tasks: Sequence[Task], selection: Selection, size: int) -> Summaries:
    """The parts of the documents that tasks ask about, of so many words."""
    return Summaries(size, partial(_asked_about, tasks, selection))


def _asked_about(tasks: Sequence[Task], selection: Selection, bundle: Bundle) -> Iterator[Sample]:
    for task in tasks:
        samples = BENCHMARKS[task.benchmark].samples(bundle, task.name)
        yield from (sample for _, sample in selection.of(task, samples))


def settings_of_summaries(settings: RunSettings) -> RunSettings:
    """How parts are asked, given how questions are: greedily, once, and without reasoning where that can be said."""
    return RunSettings(
        summaries=settings.summaries,
        chat=settings.chat,
        thinking=False if settings.thinks else settings.thinking,
        batching=settings.batching,
    )


def stored(store: Store, run_id: str, summaries: Summaries, bundle: Bundle) -> Callable[[Sample], Sample]:
    """What puts the summaries of a run in the results file in place of documents. It travels to worker processes.

    Raises:
        BackendError: some failed, or are not there.
    """
    rows = store.query("SELECT sample_id, output FROM generations WHERE run_id = ? AND error IS NULL", [run_id]).rows
    texts, missing = summaries.joined(bundle, {name: text or "" for name, text in rows})
    if missing:
        raise BackendError(
            f"{missing:,} summaries failed, and no question on their documents can be asked.",
            fix=f"`{as_command('lbx', 'report', store.path, 'failures')}` says why; repeat the command with "
            "--retry-failed.",
        )
    return partial(_in_place, texts)


def guessed(summaries: Summaries, bundle: Bundle) -> Callable[[Sample], Sample]:
    """The same with texts of about that length, for a plan: the first words of each part."""
    texts = {}
    for digest, sample, parts in summaries.documents(bundle):
        texts[digest] = join([part[: word_spans(part)[:_GUESSED_WORDS][-1][1]] for part in parts], sample.language)
    return partial(_in_place, texts)
