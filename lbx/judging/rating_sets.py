"""Sets of questions to rate, with their answers in each rater's order.

All orders are drawn from the set's seed: the same command gives the same set, and every rater the same letters again.
Raters see answers as A, B or C, with a separate order per rater and question, never by name. A set is named by the hash
of its content, so changed answers make another set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from lbx.base.records import canonical_json, sha256_text
from lbx.store.ratings import RatingItemRow, RatingSetRow

SCORE, PAIR = "score", "pair"
CRITERIA = {
    SCORE: "How well is the question answered, according to the document?",
    PAIR: "Which answer is better, according to the document?",
}
"""{kind: question that a rating answers, unless the set has its own}."""
VERDICTS = ("answer", "against", "tie", "both_bad")


@dataclass(frozen=True, slots=True)
class RatingAnswer:
    run_id: str
    iteration: int
    text: str


@dataclass(frozen=True, slots=True)
class Item:
    """A question with its answers to rate; a pair has two.

    Attributes:
        number: in its set, from 0.
        document: hash of the question's document; "" if unknown.
        task_text: the question, or without one the official prompt without its document; "" without a bundle.
        for_all: whether every rater gets it, to measure their agreement.
    """

    number: int
    benchmark: str
    task: str
    sample_id: str
    question: str
    references: tuple[str, ...]
    document: str
    answers: tuple[RatingAnswer, ...]
    task_text: str = ""
    for_all: bool = False

    @property
    def name(self) -> str:
        return f"{self.benchmark}/{self.task}/{self.sample_id}"

    @property
    def document_key(self) -> str:
        """The document's hash, or the question's if the document is unknown."""
        return self.document or sha256_text(self.name)

    def meta(self) -> dict[str, Any]:
        """Value of the column ``meta`` in ``rating_items``."""
        answers = [{"run_id": a.run_id, "iteration": a.iteration, "sha256": sha256_text(a.text)} for a in self.answers]
        return {"answers": answers, "for_all": self.for_all, "document_sha256": self.document}


@dataclass(frozen=True)
class RatingSet:
    """Questions to rate.

    Attributes:
        source: "human", "llm", "both", "open" or "all".
        low, high: the ends of the scale; not used for pairs.
        criterion: question that a rating answers, shown to raters; "" for the default of its kind.
        raters_per_item: number of raters of a question with ``for_all`` unset; None: all raters.
    """

    kind: str
    source: str
    runs: tuple[str, ...]
    items: tuple[Item, ...]
    low: int = 1
    high: int = 5
    seed: int = 0
    raters_per_item: int | None = None
    bundle_digest: str | None = None
    criterion: str = ""

    @property
    def shown_criterion(self) -> str:
        return self.criterion or CRITERIA[self.kind]

    @cached_property
    def set_id(self) -> str:
        """Hash of its content, without the bundle, which only shows documents."""
        row, items = self.rows("")
        return set_id_of(row.values(), [item.values() for item in items])

    def rows(self, set_id: str | None = None) -> tuple[RatingSetRow, list[RatingItemRow]]:
        name = self.set_id if set_id is None else set_id
        row = RatingSetRow(
            name,
            self.kind,
            self.source,
            list(self.runs),
            float(self.low) if self.kind == SCORE else None,
            float(self.high) if self.kind == SCORE else None,
            self.seed,
            self.raters_per_item,
            self.bundle_digest,
        )
        criterion = {"criterion": self.criterion} if self.criterion else {}
        items = [
            RatingItemRow(
                name, item.number, item.benchmark, item.task, item.sample_id, item.number, item.meta() | criterion
            )
            for item in self.items
        ]
        return row, items

    def answer_groups(self, item: Item, rater: str) -> list[tuple[RatingAnswer, ...]]:
        """Answers in this rater's order; equal answers form one group and are rated together."""
        groups: dict[str, list[RatingAnswer]] = {}
        for answer in item.answers:
            groups.setdefault(answer.text, []).append(answer)
        return sorted(map(tuple, groups.values()), key=lambda group: self._draw(rater, item.number, group[0].run_id))

    def queue(self, rater: str, raters: Sequence[str]) -> list[Item]:
        """A rater's questions: documents in the rater's own order, all questions about a document together."""
        assignments = self._assign_documents(raters)
        mine = [item for item in self.items if item.for_all or rater in assignments[item.document_key]]
        documents = dict.fromkeys(item.document_key for item in mine)
        order = {name: self._draw("order", rater, name) for name in documents}
        return sorted(mine, key=lambda item: (order[item.document_key], item.number))

    def _assign_documents(self, raters: Sequence[str]) -> dict[str, set[str]]:
        """Assign each document to the raters with the fewest questions so far; returns {document: its raters}.

        Documents stay whole because reading takes long.
        """
        each = min(self.raters_per_item or len(raters), len(raters))
        load = dict.fromkeys(raters, 0)
        sizes: dict[str, int] = {}
        for item in self.items:
            sizes[item.document_key] = sizes.get(item.document_key, 0) + (not item.for_all)
        assignments: dict[str, set[str]] = {}
        for name in sorted(sizes, key=lambda document: (-sizes[document], self._draw("deal", document))):
            document_raters = sorted(raters, key=lambda rater: (load[rater], self._draw("deal", name, rater)))[:each]
            assignments[name] = set(document_raters)
            for rater in document_raters:
                load[rater] += sizes[name]
        return assignments

    def _draw(self, *names: object) -> str:
        return hashlib.sha256(canonical_json([self.seed, *names]).encode()).hexdigest()


def set_id_of(rating_set: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> str:
    """Hash of a set's row and its items' rows, which have no set yet ("")."""
    content = {**rating_set, "created_at": "", "bundle_digest": ""}
    return f"{rating_set['kind']}-{sha256_text(canonical_json([content, items]))[:12]}"


def agreement_sample(items: Sequence[Item], share: float, seed: int) -> tuple[Item, ...]:
    """Mark all questions of random documents as for all raters, up to about this share of the questions."""
    target = share * len(items)
    documents: dict[str, set[int]] = {}
    for item in items:
        documents.setdefault(item.document_key, set()).add(item.number)
    numbers: set[int] = set()
    for name in sorted(documents, key=lambda document: sha256_text(canonical_json([seed, "agreement", document]))):
        grown = len(numbers) + len(documents[name])
        if abs(grown - target) < abs(len(numbers) - target):
            numbers |= documents[name]
    return tuple(replace(item, for_all=item.number in numbers) for item in items)


def make_pairs(items: Iterable[Item]) -> tuple[list[Item], int]:
    """Make an item of each pair of different answers to a question, and count the equal pairs left out."""
    pairs: list[Item] = []
    equal = 0
    for item in items:
        for first, second in combinations(item.answers, 2):
            if first.text == second.text:
                equal += 1
            else:
                pairs.append(replace(item, number=len(pairs), answers=(first, second)))
    return pairs, equal
