"""What a sample without a question asks: its official prompt, with a mark in the place of the document."""

from __future__ import annotations

from dataclasses import replace

from lbx.base.errors import BundleError
from lbx.base.layout import Bundle
from lbx.base.records import Sample
from lbx.benchmarks import BENCHMARKS

_DOCUMENT = "[...]"
_QUESTION = "{the question}"


def task_text(bundle: Bundle | None, sample: Sample, document: str) -> str:
    """A stored sample's question; without one the text of its official prompt, which asks for a summary, say.

    "" where the bundle does not hold the prompt, or where the question is not known: an import without its data.

    Args:
        document: the hash of the sample's document; "" where it is not known.
    """
    family = BENCHMARKS.get(sample.benchmark)
    if sample.question.strip() or bundle is None or family is None or not family.knows(sample.task):
        return sample.question
    try:
        prompt = family.prompt(bundle, replace(sample, context="", question=_QUESTION))
    except BundleError:
        return ""
    parts = (text.strip() for text in (prompt.system, prompt.before, _DOCUMENT, prompt.after))
    text = "\n".join(part for part in parts if part)
    return "" if _QUESTION in text and not document else text.replace(_QUESTION, "")
