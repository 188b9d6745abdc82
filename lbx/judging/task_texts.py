"""Texts of samples without a question: the official prompt, with a placeholder for the document."""

from __future__ import annotations

from dataclasses import replace

from lbx.base.errors import BundleError
from lbx.base.layout import Bundle
from lbx.base.records import Sample
from lbx.benchmarks.base.benchmark import needs_model
from lbx.benchmarks.registry import BENCHMARKS

_DOCUMENT = "[...]"
_QUESTION = "{the question}"


def task_text(bundle: Bundle | None, sample: Sample, document: str) -> str:
    """Return a stored sample's question, or else its official prompt, which may ask for a summary.

    "" if the bundle lacks the prompt, or if the question is unknown: an import without its data.

    Args:
        document: hash of the sample's document; "" if unknown.
    """
    family = BENCHMARKS.get(sample.benchmark)
    known = family is not None and family.catalogue.has_task(sample.task) and not needs_model(family)
    if sample.question.strip() or bundle is None or family is None or not known:
        return sample.question
    try:
        prompt = family.prompt(bundle, replace(sample, context="", question=_QUESTION))
    except BundleError:
        return ""
    parts = (text.strip() for text in (prompt.system, prompt.before, _DOCUMENT, prompt.after))
    text = "\n".join(part for part in parts if part)
    return "" if _QUESTION in text and not document else text.replace(_QUESTION, "")
