"""What people are asked to rate: questions, the answers to each, and in which order a rater sees them.

Everything is drawn from the set's seed, so that the same command gives the same set, and every rater the same letters
again: an answer is A, B or C to one rater at one question, and nobody's name. A set is named by all that it is made of;
answers that have changed are another set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from lbx.base.records import canonical_json, sha256_text
from lbx.store.ratings import RatingItemRow, RatingSetRow

SCORE, PAIR = "score", "pair"
VERDICTS = ("answer", "against", "tie", "both_bad")


@dataclass(frozen=True, slots=True)
class Answer:
    """A stored answer."""

    run_id: str
    iteration: int
    text: str


@dataclass(frozen=True, slots=True)
class Item:
    """A question with the answers to rate: of a pair, two.

    Attributes:
        number: in its set, from 0.
        document: the hash of what the question is about; "" where nobody knows it.
        task_text: what was asked: the question, or without one the official prompt without its document; "" where the
            bundle is not known.
        for_all: whether every rater gets it, so that their agreement can be told.
    """

    number: int
    benchmark: str
    task: str
    sample_id: str
    question: str
    references: tuple[str, ...]
    document: str
    answers: tuple[Answer, ...]
    task_text: str = ""
    for_all: bool = False

    @property
    def name(self) -> str:
        return f"{self.benchmark}/{self.task}/{self.sample_id}"

    @property
    def document_key(self) -> str:
        """What its document is called: by its hash, or by the question's where nobody knows it."""
        return self.document or sha256_text(self.name)

    def meta(self) -> dict[str, Any]:
        """What the results file says of it beside its sample."""
        answers = [{"run_id": a.run_id, "iteration": a.iteration, "sha256": sha256_text(a.text)} for a in self.answers]
        return {"answers": answers, "for_all": self.for_all, "document_sha256": self.document}


@dataclass(frozen=True)
class RatingSet:
    """Questions to rate, and how.

    Attributes:
        source: what chose the questions: "human", "llm", "both", "open", "all".
        low, high: the ends of the scale; of pairs not used.
        raters_per_item: how many raters a question is given to that is not for all; None: to everybody.
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

    @cached_property
    def set_id(self) -> str:
        """By all that it is made of, but for the bundle, which only shows documents."""
        row, items = self.rows("")
        made = {**row.values(), "created_at": "", "bundle_digest": ""}
        return f"{self.kind}-{sha256_text(canonical_json([made, [item.values() for item in items]]))[:12]}"

    def rows(self, set_id: str | None = None) -> tuple[RatingSetRow, list[RatingItemRow]]:
        """As the results file has it."""
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
        items = [
            RatingItemRow(name, item.number, item.benchmark, item.task, item.sample_id, item.number, item.meta())
            for item in self.items
        ]
        return row, items

    def shown(self, item: Item, rater: str) -> list[tuple[Answer, ...]]:
        """The answers in the order in which this rater sees them; equal ones are one, to be rated for all."""
        alike: dict[str, list[Answer]] = {}
        for answer in item.answers:
            alike.setdefault(answer.text, []).append(answer)
        return sorted(map(tuple, alike.values()), key=lambda group: self._chance(rater, item.number, group[0].run_id))

    def queue(self, rater: str, raters: Sequence[str]) -> list[Item]:
        """What a rater is asked, documents in an order of the rater's own, each with all its questions.

        Args:
            raters: everybody who rates.
        """
        dealt = self._dealt(raters)
        mine = [item for item in self.items if item.for_all or rater in dealt[item.document_key]]
        documents = dict.fromkeys(item.document_key for item in mine)
        order = {name: self._chance("order", rater, name) for name in documents}
        return sorted(mine, key=lambda item: (order[item.document_key], item.number))

    def _dealt(self, raters: Sequence[str]) -> dict[str, set[str]]:
        """{document: its raters}: whole documents, because reading takes the time, each to those with the least."""
        each = min(self.raters_per_item or len(raters), len(raters))
        load = dict.fromkeys(raters, 0)
        sizes: dict[str, int] = {}
        for item in self.items:
            sizes[item.document_key] = sizes.get(item.document_key, 0) + (not item.for_all)
        dealt: dict[str, set[str]] = {}
        for name in sorted(sizes, key=lambda one: (-sizes[one], self._chance("deal", one))):
            chosen = sorted(raters, key=lambda rater: (load[rater], self._chance("deal", name, rater)))[:each]
            dealt[name] = set(chosen)
            for rater in chosen:
                load[rater] += sizes[name]
        return dealt

    def _chance(self, *names: object) -> str:
        return hashlib.sha256(canonical_json([self.seed, *names]).encode()).hexdigest()


def agreement_sample(items: Sequence[Item], share: float, seed: int) -> tuple[Item, ...]:
    """Mark whole documents, drawn by the seed, until about this share of the questions is for all raters."""
    wanted = share * len(items)
    documents: dict[str, set[int]] = {}
    for item in items:
        documents.setdefault(item.document_key, set()).add(item.number)
    chosen: set[int] = set()
    for name in sorted(documents, key=lambda one: sha256_text(canonical_json([seed, "agreement", one]))):
        grown = len(chosen) + len(documents[name])
        if abs(grown - wanted) < abs(len(chosen) - wanted):
            chosen |= documents[name]
    return tuple(replace(item, for_all=item.number in chosen) for item in items)


def pairs_of(items: Iterable[Item]) -> tuple[list[Item], int]:
    """Each two answers to a question as an item of their own. Returns them, and how many hold equal answers, which
    are left out: there is nothing to choose.
    """
    pairs: list[Item] = []
    equal = 0
    for item in items:
        for first, second in combinations(item.answers, 2):
            if first.text == second.text:
                equal += 1
            else:
                pairs.append(replace(item, number=len(pairs), answers=(first, second)))
    return pairs, equal
