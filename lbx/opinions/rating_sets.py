"""Sets of questions to rate: choice of questions, names of sets, and answers in each rater's order.

All orders are drawn from the set's seed, so that the same command gives the same set, and each rater the same letters.
Raters see answers as A, B or C, with a separate order per rater and question, never by name. A set is named by the hash
of its content, so that changed answers make another set.

Rounds of judges are also named by a hash. The hashed contents include the names of runs. After runs are renamed, rounds
are renamed too, because a judge that continues would otherwise judge the same answers twice, and a merge refuses
two sets of the same name with different contents.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import UsageError
from lbx.base.records import RoundSample, canonical_json, sha256_text
from lbx.benchmarks.base.benchmark import MARKS_BY_NAME, marks_in, needs_model
from lbx.benchmarks.judge import NAME, JudgeBenchmark, Round
from lbx.benchmarks.registry import BENCHMARKS
from lbx.opinions.rating_rows import RatingItemRow, RatingSetRow
from lbx.opinions.rounds import task_text
from lbx.results import Store
from lbx.results.read.stored_answers import pattern_condition
from lbx.results.rows import stored_sample
from lbx.results.whole.edits import read_rounds

SCORE, PAIR = "score", "pair"
CRITERIA = {
    SCORE: "How well is the question answered, according to the document?",
    PAIR: "Which answer is better, according to the document?",
}
"""{kind: default of the question that a rating answers}"""
VERDICTS = ("answer", "against", "tie", "both_bad")


@dataclass(frozen=True, slots=True)
class RatingAnswer:
    run_id: str
    iteration: int
    text: str


@dataclass(frozen=True, slots=True)
class Item:
    """A question with the answers to rate. A pair is an item with two answers.

    Attributes:
        number: index in the set, from 0.
        document: hash of the question's document, or "" if unknown.
        task_text: the question, or else the official prompt without the document, or "" without a bundle.
        for_all: whether all raters get the question, to measure agreement.
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
        """Hash of the document, or of the question's name if the document is unknown."""
        return self.document or sha256_text(self.name)

    def meta(self) -> dict[str, Any]:
        """Build the value of the column ``meta`` of ``rating_items``."""
        answers = [{"run_id": a.run_id, "iteration": a.iteration, "sha256": sha256_text(a.text)} for a in self.answers]
        return {"answers": answers, "for_all": self.for_all, "document_sha256": self.document}


@dataclass(frozen=True)
class RatingSet:
    """A set of questions to rate.

    Attributes:
        source: selection of the questions: "human", "llm", "both", "open" or "all".
        low, high: ends of the scale, which pairs do not use.
        criterion: question that a rating answers, shown to raters, or "" for the default of ``kind``.
        raters_per_item: number of raters of a question with ``for_all`` unset, or None for all raters.
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
        """Hash of the set's content, without the bundle, which is used only to show documents."""
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
        """Return an item's answers in a rater's order. Equal answers form a group and are rated together."""
        groups: dict[str, list[RatingAnswer]] = {}
        for answer in item.answers:
            groups.setdefault(answer.text, []).append(answer)
        return sorted(map(tuple, groups.values()), key=lambda group: self._draw(rater, item.number, group[0].run_id))

    def queue(self, rater: str, raters: Sequence[str]) -> list[Item]:
        """List a rater's questions: documents in the rater's order, all questions about a document together."""
        assignments = self._assign_documents(raters)
        mine = [item for item in self.items if item.for_all or rater in assignments[item.document_key]]
        documents = dict.fromkeys(item.document_key for item in mine)
        order = {name: self._draw("order", rater, name) for name in documents}
        return sorted(mine, key=lambda item: (order[item.document_key], item.number))

    def _assign_documents(self, raters: Sequence[str]) -> dict[str, set[str]]:
        """Assign each document to the raters with the fewest questions so far. Returns {document: raters}.

        The questions about a document stay together, because reading a document takes long.
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
    """Compute the name of a set, which contains the hash of the set's row and of the items' rows with ``set_id`` ""."""
    content = {**rating_set, "created_at": "", "bundle_digest": ""}
    return f"{rating_set['kind']}-{sha256_text(canonical_json([content, items]))[:12]}"


def mark_agreement_sample(items: Sequence[Item], share: float, seed: int) -> tuple[Item, ...]:
    """Set ``for_all`` for all questions about random documents, up to about this share of the questions."""
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
    """Make an item of each pair of different answers to a question, and count the equal pairs that are left out."""
    pairs: list[Item] = []
    equal = 0
    for item in items:
        for first, second in combinations(item.answers, 2):
            if first.text == second.text:
                equal += 1
            else:
                pairs.append(replace(item, number=len(pairs), answers=(first, second)))
    return pairs, equal


OPEN_METRICS = frozenset({"f1", "keyword_f1", "rouge_l", "geometric_mean", "summary"})
"""Headline metrics of free-text answers, which people might judge better."""


def make_rating_set(
    store: Store,
    runs: Sequence[str],
    *,
    kind: str,
    questions: str | None = None,
    patterns: Sequence[str] = (),
    limit: int | None = None,
    scale: tuple[int, int] = (1, 5),
    seed: int = 0,
    raters_per_item: int | None = None,
    agreement: float = 0.2,
    bundle: Bundle | None = None,
    criterion: str = "",
) -> tuple[RatingSet, int]:
    """Make a set of the questions that all of these runs have answered.

    Args:
        runs: () for all runs with answers in the file.
        questions: "human", "llm", "both", "open" or "all", or None for the first of human, open, all with a question.
        patterns: see ``lbx.results.read.stored_answers.AnswerFilter``.
        limit: number of questions.
        criterion: see ``RatingSet``.

    Returns:
        The set, and the number of pairs left out because their answers are equal.

    Raises:
        UsageError: no question can be rated, or pairs are requested for fewer than two runs.
    """
    answers = _answered_questions(store, runs, patterns, bundle)
    runs = tuple(runs or dict.fromkeys(sorted(answer.run_id for _, item in answers for answer in item.answers)))
    if kind == PAIR and len(runs) < 2:
        raise UsageError("Pairs need the answers of at least two runs.", fix="Pass them with --run A --run B.")
    common = [(marks, item) for marks, item in answers if {a.run_id for a in item.answers} == {*runs}]
    source, selection = _select_questions(common, questions)
    if not selection:
        raise UsageError(
            f"{store.path} contains no question{'' if questions is None else f' of the kind {questions!r}'} "
            f"that all of these runs have answered: {', '.join(runs) or 'no runs'}.",
            fix="`lbx show` lists the answered questions; --questions all includes all of them.",
        )
    items, equal = make_pairs(selection[:limit]) if kind == PAIR else (selection[:limit], 0)
    if not items:
        raise UsageError(
            f"The answers of {' and '.join(runs)} are all equal, so there are no pairs to compare.",
            fix="Compare other runs, or rate single answers with --kind score.",
        )
    numbered = mark_agreement_sample(
        [replace(item, number=number) for number, item in enumerate(items)], agreement, seed
    )
    digest = bundle.digest if bundle else None
    return RatingSet(kind, source, runs, numbered, *scale, seed, raters_per_item, digest, criterion), equal


def _answered_questions(
    store: Store, runs: Sequence[str], patterns: Sequence[str], bundle: Bundle | None
) -> list[tuple[frozenset[str], Item]]:
    """Return answered questions with marks and the first answer of each run, in the data's order."""
    rows = store.query(
        f"""
        SELECT g.run_id, g.benchmark, g.task, g.sample_id, g.iteration, coalesce(g.output, '') AS output, s.question,
               s."references", s.meta, s.language, s.length, s.length_unit, s.context_sha256 AS document, h.metric
        FROM generations g JOIN samples s USING (benchmark, task, sample_id)
        LEFT JOIN (SELECT DISTINCT benchmark, task, metric FROM scores WHERE headline) h USING (benchmark, task)
        WHERE g.error IS NULL AND (len($1) = 0 OR list_contains($1, g.run_id)) AND g.benchmark <> $2
            AND (len($3) = 0 OR {pattern_condition("g", "$3")})
        QUALIFY row_number() OVER (PARTITION BY g.run_id, benchmark, task, sample_id ORDER BY g.iteration, h.metric) = 1
        ORDER BY g.benchmark, g.task, s.position, g.sample_id
        """,
        [list(runs), JudgeBenchmark.name, list(patterns)],
    ).dicts()
    order = {run: at for at, run in enumerate(runs)}
    questions: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        questions.setdefault((row["benchmark"], row["task"], row["sample_id"]), []).append(row)
    return [
        _question(sorted(same, key=lambda r: (order.get(r["run_id"], 0), r["run_id"])), bundle)
        for same in questions.values()
    ]


def _question(rows: Sequence[Mapping[str, Any]], bundle: Bundle | None) -> tuple[frozenset[str], Item]:
    row = rows[0]
    marks = {*marks_in(json.loads(row["meta"]))}
    references = json.loads(row["references"])
    if row["metric"] in OPEN_METRICS or marks:
        marks.add("open")
    item = Item(
        0,
        row["benchmark"],
        row["task"],
        row["sample_id"],
        row["question"],
        tuple(map(str, references)) if isinstance(references, list) else (),
        row["document"] or "",
        tuple(RatingAnswer(answer["run_id"], answer["iteration"], answer["output"]) for answer in rows),
        task_text(bundle, stored_sample(row["benchmark"], row["task"], row), row["document"] or ""),
    )
    return frozenset(marks), item


def _select_questions(common: Sequence[tuple[frozenset[str], Item]], questions: str | None) -> tuple[str, list[Item]]:
    for name in (questions,) if questions else ("human", "open", "all"):
        allowed_marks = {*MARKS_BY_NAME.get(name, ("open",))}
        if selection := [item for marks, item in common if name == "all" or marks & allowed_marks]:
            return name, selection
    return questions or "all", []


def documents(bundle: Bundle, items: Collection[Item]) -> dict[str, str]:
    """Return {``Item.document_key``: document} for the items' documents in the bundle.

    For an imported question without a document, the document of the bundle's sample with the same name and wording is
    used. Documents of benchmarks that need a model are left out.
    """
    texts: dict[str, str] = {}
    for benchmark, task in sorted({(item.benchmark, item.task) for item in items}):
        task_items = [item for item in items if (item.benchmark, item.task) == (benchmark, task)]
        digests = {item.document for item in task_items} - {""}
        unknown = {item.sample_id: item for item in task_items if not item.document}
        family = BENCHMARKS[benchmark]
        if needs_model(family) or not any(bundled.name == task for bundled in family.tasks(bundle, [task])):
            continue
        for sample in family.samples(bundle, task):
            item = unknown.get(sample.sample_id)
            if item and item.question == sample.question:
                texts[item.document_key] = sample.context
            if digests and (digest := sha256_text(sample.context)) in digests:
                texts[digest] = sample.context
    return texts


RoundKey = tuple[str, str]
"""(rubric, name)"""


def renamed_rounds(store: Store, old: str, new: str) -> dict[RoundKey, str]:
    """Return {round: new name} for the renaming of a run, before the run is renamed.

    A round on an answer that has changed since gets an arbitrary new name, because no judge is asked about it again.
    """
    names: dict[RoundKey, str] = {}
    for row in read_rounds(store, old):
        key, round_, rubric_sha256 = (row["task"], row["sample_id"]), _round_of(row), row["rubric_sha256"] or ""
        if round_.round_id(rubric_sha256) == key[1]:
            run_id, against = (new if name == old else name for name in (round_.run_id, round_.against_run_id))
            names[key] = replace(round_, run_id=run_id or "", against_run_id=against).round_id(rubric_sha256)
        else:
            names.setdefault(key, sha256_text(canonical_json([key[1], new]))[: len(key[1])])
    return names


def _round_of(row: Mapping[str, Any]) -> Round:
    sample = stored_sample(NAME, row["task"], row)
    assert isinstance(sample, RoundSample)
    judged = sample.subject
    return Round(
        benchmark=judged.benchmark,
        task=judged.task,
        sample_id=judged.sample_id,
        question=sample.question,
        references=sample.references,
        run_id=judged.run_id,
        answer=row["answer"],
        iteration=judged.iteration,
        against_run_id=judged.against_run_id,
        against_iteration=judged.against_iteration,
        against=row["opponent"],
        answer_first=judged.answer_first is not False,
        language=sample.language,
        document_sha256=judged.document_sha256,
        marks=judged.marks,
    )


def content_set_ids(store: Store) -> dict[str, str]:
    """Return {set of ratings: name by the set's content}, which differs from the name that a user gave."""
    rows = store.query("SELECT * FROM rating_items ORDER BY set_id, item").dicts()
    items: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        items.setdefault(row["set_id"], []).append({**row, "set_id": "", "meta": json.loads(row["meta"])})
    return {
        row["set_id"]: set_id_of({**row, "set_id": "", "runs": json.loads(row["runs"])}, items.get(row["set_id"], []))
        for row in store.query("SELECT * FROM rating_sets ORDER BY set_id").dicts()
    }
