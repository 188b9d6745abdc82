"""BABILong's accuracy: the answer must name the right label, and no other.

Source: preprocess_output and compare_answers of
https://github.com/booydar/babilong/blob/7a6efee29f5cac03c3c410e6799c80fd2ffe3610/babilong/metrics.py

Only the first sentence counts, up to "<context>" or "<example>", with which a model begins another prompt. Texts are
compared in lower case. A label counts as a substring: "no" in "nothing". Labels in the question do not count. (The
official cut at "Question" never applies, because the text is in lower case by then.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_END = re.compile(r"\.|<context>|<example>")
_SHORTEST_LIST = 4
"""Length of the shortest target that is a list of labels. Shorter ones with a comma are a label, such as "s,e"."""


def first_sentence(output: str) -> str:
    """Return the part of an output that counts, in lower case."""
    return _END.split(output.lower(), maxsplit=1)[0]


def named_labels(output: str, question: str, labels: Iterable[str]) -> list[str]:
    """List the labels that the first sentence of an output names and the question does not, sorted."""
    sentence, asked = first_sentence(output), question.lower()
    return sorted({name for label in labels if (name := label.lower()) in sentence and name not in asked})


def target_labels(target: str) -> list[str]:
    """List the labels of a target, which is one label or several with commas in between, sorted."""
    target = target.lower()
    return sorted(target.split(",")) if len(target) >= _SHORTEST_LIST else [target]
