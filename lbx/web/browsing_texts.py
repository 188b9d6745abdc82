"""Documents and rebuilt prompts for the pane of `lbx browse`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lbx.base.errors import LbxError
from lbx.base.layout import Bundle
from lbx.base.records import sha256_text
from lbx.benchmarks.base.benchmark import needs_model
from lbx.benchmarks.registry import BENCHMARKS
from lbx.store import Store
from lbx.store.answers import StoredAnswer
from lbx.web.documents import Documents, SearchableDocument
from lbx.web.results_source import ResultsSource

_MOST_PROMPTS = 16
_HASH_REMARKS = {
    True: "This is the prompt that was answered: the hashes match.",
    False: "This is NOT the prompt that was answered: the hashes differ.",
    None: "The results file has no hash to compare it with.",
}

PromptBuilder = Callable[[StoredAnswer], Sequence[Mapping[str, Any]]]
"""Rebuilds an answer's prompts: ``text``, ``prompt_sha256``, ``error`` of each step. Raises LbxError."""


class BrowsingTexts:
    """Documents by their hash, and rebuilt prompts by keys of their own.

    Args:
        read_document: Returns a document by its hash; None if it is unknown.
        make_prompts: Rebuilds an answer's prompts; None if that is not possible.
    """

    def __init__(self, read_document: Callable[[str], str | None], make_prompts: PromptBuilder | None) -> None:
        self._make_prompts = make_prompts
        self._prompts: OrderedDict[str, str] = OrderedDict()
        self.documents = Documents(lambda key: self._prompts.get(key) or read_document(key))

    def document(self, key: str | None) -> SearchableDocument | None:
        return self.documents.get(key or "")

    def rebuild_prompt(self, answer: StoredAnswer) -> tuple[str, str]:
        """Return the prompt's key for the pane and a remark on its hash, or "" and the reason for a failure."""
        if self._make_prompts is None:
            return "", "Rebuilding a prompt needs the bundle. Pass --bundle DIR."
        try:
            prompts = self._make_prompts(answer)
        except LbxError as error:
            return "", str(error)
        steps = [str(prompt.get("text") or prompt["error"]) for prompt in prompts]
        text = steps[0] + "".join(f"\n\n[step {step}]\n{output}" for step, output in enumerate(steps[1:], 2))
        key = f"prompt-{sha256_text(text)[:24]}"
        self._prompts[key] = text
        while len(self._prompts) > _MOST_PROMPTS:
            self._prompts.popitem(last=False)
        sent = answer.values["prompt_sha256"]
        return key, _HASH_REMARKS[prompts[0].get("prompt_sha256") == sent if sent else None]


def bundle_document(source: ResultsSource, bundle: Bundle, key: str) -> str | None:
    """Text of a document of a bundle by its hash; None if no sample of the results file has it."""
    with Store(source.path, allow_writer=True) as store:
        names = store.query(
            "SELECT benchmark, task, min(sample_id) FROM samples WHERE context_sha256 = ? GROUP BY ALL", [key]
        ).rows
    for benchmark, task, _ in names:
        family = BENCHMARKS[benchmark]
        if needs_model(family):  # its documents are in the prompts, which are made with the run's model
            continue
        if any(candidate.name == task for candidate in family.tasks(bundle, [task])):
            for sample in family.samples(bundle, task):
                if sha256_text(sample.context) == key:
                    return sample.context
    return None
