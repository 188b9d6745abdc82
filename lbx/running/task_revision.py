"""A task of an own benchmark in two revisions: in a results file and in a bundle."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from lbx.base.layout import Bundle
from lbx.base.records import Mode, canonical_json, sha256_text
from lbx.base.units import format_count
from lbx.benchmarks.registry import BENCHMARKS
from lbx.store import SampleRow, Store
from lbx.store.identity import ASKED_META, RULES
from lbx.store.rows import EARLIER
from lbx.store.samples import differing_parts


@dataclass(slots=True)
class TaskChanges:
    """Differences of a task's samples between a results file and a bundle, and their effect on stored answers.

    Attributes:
        rules: digests of the scoring rules in the file and in the bundle.
        questions: {sample_id: names of the parts that differ}, of samples that differ.
        move_count: number of questions with another id.
        score_count, change_count, removal_count: numbers of answers with scores, to changed and to removed questions.
        example: the first changed sample, and its difference.
    """

    name: str
    rules: tuple[str, str]
    questions: Mapping[str, Sequence[str]]
    move_count: int = 0
    score_count: int = 0
    change_count: int = 0
    removal_count: int = 0
    example: str = ""

    @property
    def references(self) -> int:
        return sum("references" in parts for parts in self.questions.values())

    @property
    def has_new_rule(self) -> bool:
        return self.rules[0] != self.rules[1]

    def __str__(self) -> str:
        moves = format_count(self.move_count, "question has", "questions have")
        changes = [
            *([f"{moves} another id"] if self.move_count else []),
            *(["the rules changed"] if self.has_new_rule else []),
            *([f"the references of {format_count(self.references, 'question')} changed"] if self.references else []),
        ]
        counts = {"changed": self.change_count, "removed": self.removal_count}
        effects = [f"{format_count(self.score_count, 'answer')} scored"]
        effects += [f"{format_count(n, 'answer')} to {kind} questions not scored" for kind, n in counts.items() if n]
        example = f" (the first: {self.example})" if self.example else ""
        changes.append(f"{', '.join(effects)}{example}")
        return f"{self.name}: {'; '.join(changes)}"

    def to_json(self) -> dict[str, Any]:
        return {
            "rules_changed": self.has_new_rule,
            "references_changed": self.references,
            "ids_changed": self.move_count,
            "scored": self.score_count,
            "question_changed": self.change_count,
            "question_removed": self.removal_count,
        }


@dataclass(frozen=True, slots=True)
class TaskRevision:
    """A task in a bundle, for the samples that a results file has.

    Attributes:
        stored_rows, new_rows: rows of ``samples`` by id, in the file and in the bundle.
        instructions: {(sample_id, mode): ``Prompt.instructions_sha256``} in the bundle.
    """

    stored_rows: Mapping[str, dict[str, Any]]
    new_rows: Mapping[str, dict[str, Any]]
    instructions: Mapping[tuple[str, Mode], str]
    changes: TaskChanges

    def reason(self, sample_id: str, mode: Mode, instructions_sha256: str | None, *, is_known: bool) -> str:
        """Names of the parts of a prompt that differ from the bundle's; "" if the prompt is the same.

        Unknown prompts, of imported and failed answers, count as the same if the samples do not differ.
        """
        parts = [
            part for part in self.changes.questions.get(sample_id, ()) if part in ("document", "question", *ASKED_META)
        ]
        if parts or not is_known or instructions_sha256 == self.instructions[sample_id, mode]:
            return ", ".join(parts)
        return "instructions"

    def merged_rows(self, changed: Collection[str]) -> list[dict[str, Any]]:
        """New rows of samples, with the earlier content of changed questions in their ``meta``."""
        rows = []
        for sample_id, row in self.new_rows.items():
            old = self.stored_rows[sample_id]
            meta = _meta(old)
            earlier = [*meta[EARLIER]] if isinstance(meta.get(EARLIER), list) else []
            if sample_id in changed:
                content = {name: meta[name] for name in ASKED_META if name in meta}
                references = json.loads(old["references"])
                earlier.append({"question": old["question"], "references": references, **content})
            rows.append({**row, "meta": {**row["meta"], **({EARLIER: earlier} if earlier else {})}})
        return rows


def read_revision(
    store: Store, bundle: Bundle, benchmark: str, task: str, modes: Collection[Mode] = ()
) -> TaskRevision:
    """Compare a task's samples in a results file with the bundle's.

    Args:
        modes: of the runs with answers to the task.

    Raises:
        BundleError: the bundle lacks the task, or a data file is damaged.
    """
    family = BENCHMARKS[benchmark]
    sql = 'SELECT sample_id, language, question, "references", meta FROM samples WHERE (benchmark, task) = (?, ?)'
    stored_rows = {row["sample_id"]: row for row in store.query(sql, [benchmark, task]).dicts()}
    new_rows: dict[str, dict[str, Any]] = {}
    instructions: dict[tuple[str, Mode], str] = {}
    for position, sample in enumerate(family.samples(bundle, task)):
        if sample.sample_id in stored_rows:
            new_rows[sample.sample_id] = SampleRow(sample, position).values()
            for mode in modes:
                instructions[sample.sample_id, mode] = family.prompt(bundle, sample, mode).instructions_sha256
    old_rows = (row for sample_id, row in stored_rows.items() if sample_id in new_rows)
    old_rules = {_rules_digest(row["language"], _meta(row)) for row in old_rows} - {""}
    new_rules = {_rules_digest(row["language"], row["meta"]) for row in new_rows.values()} or old_rules
    rules = [sha256_text(canonical_json(sorted(digests))) for digests in (old_rules, new_rules)]
    parts = {sample: parts for sample, parts in differing_parts(store, [*new_rows.values()]).items() if parts}
    changes = TaskChanges(f"{benchmark}/{task}", (rules[0] if old_rules else rules[1], rules[1]), parts)
    return TaskRevision(stored_rows, new_rows, instructions, changes)


def _meta(stored_row: Mapping[str, Any]) -> dict[str, Any]:
    meta = json.loads(stored_row["meta"])
    return meta if isinstance(meta, dict) else {}


def _rules_digest(language: str, meta: Mapping[str, Any]) -> str:
    """Digest of the rules that score a sample; "" if it has none, as an imported row that the bundle lacked."""
    rules = {name: meta[name] for name in RULES if name in meta}
    return sha256_text(canonical_json([language, rules])) if rules else ""


def moved_ids(store: Store, bundle: Bundle, benchmark: str, task: str) -> tuple[dict[str, str], dict[str, str]]:
    """New ids of questions that have another id in the bundle, found by their content, and of those they replace.

    Rows without ids are named by their position, so one new row moves all that follow it.
    """
    names = [benchmark, task]
    sql = "SELECT * FROM samples WHERE (benchmark, task) = (?, ?) ORDER BY position, sample_id"
    stored = {row["sample_id"]: _content(row, _meta(row)) for row in store.query(sql, names).dicts()}
    samples = BENCHMARKS[benchmark].samples(bundle, task)
    new = {sample.sample_id: _content(SampleRow(sample, 0).values(), sample.meta) for sample in samples}
    free: dict[str, list[str]] = {}
    for sample_id, content in new.items():
        if content and stored.get(sample_id) != content:
            free.setdefault(content, []).append(sample_id)
    moves = {
        sample_id: free[content].pop(0)
        for sample_id, content in stored.items()
        if new.get(sample_id) != content and free.get(content)
    }
    answered = store.query("SELECT DISTINCT sample_id FROM generations WHERE (benchmark, task) = (?, ?)", names).rows
    used = {*stored, *(name for (name,) in answered)}
    replaced = [name for name in moves.values() if name in used and name not in moves]
    unused = (name for n in count(1) if (name := f"removed-{n}") not in {*used, *new})
    return moves, dict(zip(replaced, unused, strict=False))


def _content(row: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
    """Digest of what the model reads of a sample; "" if it is not known, as in imports."""
    if not row["context_sha256"] and not (row["question"] and "metrics" in meta):
        return ""
    return sha256_text(canonical_json([row["context_sha256"], row["question"], meta.get("choices"), meta.get("turns")]))
