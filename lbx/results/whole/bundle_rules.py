"""Scoring of stored answers by a newer revision of an own benchmark, into a new results file.

An answer is scored if the hashes of the document and the instructions are those of the new bundle. Other answers are
kept with a mark and without scores, and ``lbx run`` can ask the new questions.

A task of an own benchmark then exists in two revisions: in the results file and in the bundle.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import UsageError
from lbx.base.listener import Listener
from lbx.base.marks import OUTDATED, QUESTION_CHANGED, QUESTION_REMOVED
from lbx.base.records import canonical_json, sha256_text
from lbx.base.units import format_count
from lbx.base.version import __version__
from lbx.base.visible import as_command
from lbx.benchmarks.registry import BENCHMARKS, custom_names, reserved_names
from lbx.bundle import check_unchanged
from lbx.options.asking import PLAIN, Mode
from lbx.results import SampleRow, Store
from lbx.results.file import numbers
from lbx.results.file.identity import ASKED_META, RULES
from lbx.results.file.inserting import json_rows, rows_of_json
from lbx.results.file.opening import connect, require_file
from lbx.results.file.samples import differing_parts, rename_samples
from lbx.results.file.texts import require_texts
from lbx.results.rows import EARLIER, as_json
from lbx.results.scoring.scores import Rescoring, rescore
from lbx.results.whole.commit_copies import copy_database
from lbx.results.whole.edits import new_results_file


@dataclass(slots=True)
class TaskChanges:
    """Differences of a task's samples between a results file and a bundle, and their effect on stored answers.

    Attributes:
        rules: digests of the scoring rules in the file and in the bundle.
        questions: {sample_id: fields that differ}, of samples that differ.
        move_count: number of questions with another id.
        score_count, change_count, removal_count: numbers of answers with scores, to changed and to removed questions.
        example: the first changed sample, and the fields that differ.
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

    def describe_changes(self) -> str:
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
        return f"{self.name} by the rules of the bundle: {'; '.join(changes)}"

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
    """A task in a bundle, for the samples that a results file contains.

    Attributes:
        stored_rows, new_rows: rows of ``samples`` by id, in the file and in the bundle.
        instructions: {(sample_id, mode): ``Prompt.instructions_sha256``} in the bundle.
    """

    stored_rows: Mapping[str, dict[str, Any]]
    new_rows: Mapping[str, dict[str, Any]]
    instructions: Mapping[tuple[str, Mode], str]
    changes: TaskChanges

    def reason(self, sample_id: str, mode: Mode, instructions_sha256: str | None, *, is_known: bool) -> str:
        """Name the fields of a prompt that differ from the bundle's prompt. Returns "" if the prompts are equal.

        Unknown prompts, of imported and failed answers, count as equal if the samples do not differ.
        """
        parts = [
            part for part in self.changes.questions.get(sample_id, ()) if part in ("document", "question", *ASKED_META)
        ]
        if parts or not is_known or instructions_sha256 == self.instructions[sample_id, mode]:
            return ", ".join(parts)
        return "instructions"

    def merged_rows(self, changed: Collection[str]) -> list[dict[str, Any]]:
        """Return the bundle's rows of samples, with the earlier content of changed questions in ``meta``."""
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
    """Compare a task's samples in a results file with the samples in a bundle.

    Args:
        modes: modes of the runs with answers to the task.

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
    """Compute the digest of the rules that score a sample, or "" without rules, as for an imported sample."""
    rules = {name: meta[name] for name in RULES if name in meta}
    return sha256_text(canonical_json([language, rules])) if rules else ""


def moved_ids(store: Store, bundle: Bundle, benchmark: str, task: str) -> tuple[dict[str, str], dict[str, str]]:
    """Match stored questions with the bundle's questions by content.

    Returns:
        {stored id: id in the bundle} of moved questions, and {id taken by a moved question: free id for the question
        that had this id}.

    Lines without ids are named by their position, so that one new line changes the ids of all following lines.
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
    """Compute the digest of the texts of a sample that the model reads, or "" if it is unknown, as for imports."""
    if not row["context_sha256"] and not (row["question"] and "metrics" in meta):
        return ""
    return sha256_text(canonical_json([row["context_sha256"], row["question"], meta.get("choices"), meta.get("turns")]))


@dataclass(frozen=True, slots=True)
class NewScores:
    """Scores that ``score_by_bundle`` wrote, and the changes of tasks that it found."""

    results: Path
    score_count: int
    tasks: Sequence[TaskChanges]

    def to_json(self) -> dict[str, Any]:
        return {
            "results": str(self.results),
            "scored": self.score_count,
            "tasks": {task.name: task.to_json() for task in self.tasks},
        }


def score_by_bundle(
    results: Path,
    output: Path,
    bundle: Bundle | None,
    *,
    runs: Sequence[str] = (),
    embedding: str | None = None,
    processes: int | None = None,
    listener: Listener | None = None,
) -> NewScores:
    """Copy a results file, and score the answers to a bundle's own benchmarks by the bundle's rules.

    The new file is written whole or not at all. Scores of other benchmarks are copied.

    Args:
        runs, embedding: options of ``lbx.results.whole.run_changes.score``, which are refused.

    Raises:
        UsageError: the output exists, the bundle has no own benchmark of the file, or options exclude each other.
        StoreError: a file cannot be read or written.
        BundleError: the bundle changed since it was unpacked.
    """
    if bundle is None:
        raise UsageError(
            "-o needs --bundle: the new file has scores by the rules of a bundle.", fix="Pass --bundle DIR."
        )
    if runs or embedding:
        option = "--run" if runs else "--embedding"
        raise UsageError(
            f"{option} and -o exclude each other: the new file has one rule for the answers of all runs, and own "
            "benchmarks need no embedding model.",
            fix=f"Leave out {option}.",
        )
    listener = listener or Listener()
    require_file(results)
    with Store(results, read_only=True) as store:
        require_texts(store, "Scoring needs answers and references.")
    with new_results_file(output) as part:
        check_unchanged(bundle.root, lambda stage, _item, done, total: listener.on_count(stage, done, total))
        with closing(connect(results, read_only=True)[0]):  # locks out writers meanwhile
            copy_database(results, part)
        with Store(part) as store:
            names = _own_benchmarks(store, bundle)
            if not names:
                raise UsageError(
                    f"The bundle {bundle.root} has none of the own benchmarks that {results} has answers to.",
                    fix="Built-in benchmarks have no rules in bundles: leave out -o to score them again.",
                    command=as_command("lbx", "tasks", "--bundle", bundle.root),
                )
            tasks = _take_tasks(store, bundle, names)
            rules = Rescoring({name: BENCHMARKS[name] for name in names}, processes=processes)
            progress = functools.partial(listener.on_count, "Scoring", unit="outputs")
            return NewScores(output, rescore(store, rules, progress, listener.on_message), tasks)


def refuse_new_rules(store: Store, bundle: Bundle) -> None:
    """Raise UsageError if a bundle's rules or questions differ from the file's, which can store only one revision."""
    for name in _own_benchmarks(store, bundle):
        for task in _tasks(store, bundle, name):
            changes = read_revision(store, bundle, name, task).changes
            if not changes.has_new_rule and not changes.questions:
                continue
            sample, parts = next(iter(changes.questions.items()), ("", ()))
            differences = f"{name}/{task}/{sample} ({', '.join(parts)})" if sample else f"the rules of {name}/{task}"
            new = store.path.with_stem(f"{store.path.stem}-rescored")
            raise UsageError(
                f"The bundle {bundle.root} differs from {store.path} in {differences}, and a results file has one "
                "revision of a question and its rules. The file is unchanged.",
                fix="Write scores by the bundle's rules to a new file. To score by the stored rules, leave out "
                "--bundle and LBX_BUNDLE.",
                command=as_command("lbx", "score", store.path, "--bundle", bundle.root, "-o", new),
            )


def _own_benchmarks(store: Store, bundle: Bundle) -> list[str]:
    """List the own benchmarks that both the file and the bundle contain."""
    answered = {name for (name,) in store.query("SELECT DISTINCT benchmark FROM generations").rows}
    return [name for name in custom_names(bundle, reserved_names()) if name in answered]


def _tasks(store: Store, bundle: Bundle, benchmark: str) -> dict[str, int]:
    """Return {task: number of samples in the bundle} for the tasks with answers."""
    answered = store.query("SELECT DISTINCT task FROM generations WHERE benchmark = ?", [benchmark]).rows
    return {task.name: task.samples for task in BENCHMARKS[benchmark].tasks(bundle) if (task.name,) in answered}


def _take_tasks(store: Store, bundle: Bundle, names: Sequence[str]) -> list[TaskChanges]:
    """Replace samples by the bundle's samples, mark answers to other questions, and record the change in the runs."""
    sql = "SELECT run_id, backend, settings FROM runs SEMI JOIN generations USING (run_id)"
    runs = {run: (_mode(json.loads(text)), backend == "import") for run, backend, text in store.query(sql).rows}
    changes: dict[str, TaskChanges] = {}
    for name in names:
        for task in _tasks(store, bundle, name):
            moves, replaced = moved_ids(store, bundle, name, task)
            if moves:
                rename_samples(store, name, task, moves | replaced)
            changes[f"{name}/{task}"] = _take_task(store, bundle, name, task, runs)
            changes[f"{name}/{task}"].move_count = len(moves)
        with store.transaction() as connection:
            numbers.delete_numbers(connection, ["task", "length", "group", "mean"], ["benchmark"], [(name,)])
    _record(store, bundle, names, changes)
    return [*changes.values()]


def _mode(settings: Any) -> Mode:
    """Read the prompting options that affect an own benchmark from a run's settings."""
    if not isinstance(settings, dict):  # another program may have written the file
        return PLAIN
    return Mode(no_context=settings.get("no_context") is True, rag=int(bool(settings.get("rag"))))


def _take_task(
    store: Store, bundle: Bundle, benchmark: str, task: str, runs: Mapping[str, tuple[Mode, bool]]
) -> TaskChanges:
    outdated = OUTDATED.format(g="g")
    sql = f"""
        SELECT run_id, sample_id, iteration, instructions_sha256, error IS NOT NULL
        FROM generations g JOIN samples USING (benchmark, task, sample_id) SEMI JOIN runs USING (run_id)
        WHERE (benchmark, task) = (?, ?) AND NOT {outdated} ORDER BY position, sample_id, run_id, iteration
    """
    answers = store.query(sql, [benchmark, task]).rows
    revision = read_revision(store, bundle, benchmark, task, {runs[run][0] for run, *_ in answers})
    changes, marks = revision.changes, []
    for run, sample_id, iteration, instructions_sha256, has_failed in answers:
        mode, is_import = runs[run]
        if sample_id not in revision.new_rows:
            changes.removal_count += 1
            reason, kind = "The benchmark no longer has this question.", QUESTION_REMOVED
        elif differs := revision.reason(sample_id, mode, instructions_sha256, is_known=not (is_import or has_failed)):
            changes.change_count += 1
            changes.example = changes.example or f"{sample_id}, {differs}"
            reason, kind = f"The question has changed since this answer: {differs}.", QUESTION_CHANGED
        else:
            changes.score_count += not has_failed
            continue
        marks.append({"run_id": run, "sample_id": sample_id, "iteration": iteration, "error": reason, "kind": kind})
    changed = {mark["sample_id"] for mark in marks} & changes.questions.keys()
    _write_task(store, (benchmark, task), revision.merged_rows(changed), marks)
    return changes


def _write_task(
    store: Store, names: tuple[str, str], rows: Sequence[Mapping[str, Any]], marks: Sequence[Mapping[str, Any]]
) -> None:
    columns = {**dict.fromkeys(("run_id", "sample_id", "error", "kind"), "VARCHAR"), "iteration": "INTEGER"}
    with store.transaction() as connection:
        connection.execute(
            f"INSERT OR REPLACE INTO samples BY NAME {rows_of_json(connection, 'samples')}", [as_json(rows)]
        )
        connection.execute(f"CREATE OR REPLACE TEMP TABLE lbx_marks AS {json_rows(columns)}", [as_json(marks)])
        for statement in (
            "UPDATE generations g SET error = m.error, error_type = m.kind FROM lbx_marks m",
            "DELETE FROM scores g USING lbx_marks m",
        ):
            connection.execute(
                f"{statement} WHERE (g.benchmark, g.task) = (?, ?) "
                "AND (g.run_id, g.sample_id, g.iteration) = (m.run_id, m.sample_id, m.iteration)",
                list(names),
            )


def _record(store: Store, bundle: Bundle, names: Sequence[str], changes: Mapping[str, TaskChanges]) -> None:
    """Record the earlier bundle and rules in the runs.

    A run whose answers all belong to these tasks becomes a run of the new bundle. Other runs keep their old bundle.
    A task without an answer that the new bundle lacks is no longer part of a run.
    """
    counts = {f"{name}/{task.name}": task.samples for name in names for task in BENCHMARKS[name].tasks(bundle)}
    sql = """
        SELECT run_id, bundle_digest, rescorings, task_samples, list(DISTINCT g.benchmark || '/' || g.task) AS tasks
        FROM runs JOIN generations g USING (run_id) WHERE g.benchmark <> 'judge' GROUP BY ALL
    """
    with store.transaction() as connection:
        for row in store.query(sql).dicts():
            own = {task: list(changes[task].rules) for task in sorted(row["tasks"]) if task in changes}
            if not own:
                continue
            entry = {"bundle_digest": row["bundle_digest"], "lbx_version": __version__, "rules": own}
            samples = {
                task: counts.get(task, count)
                for task, count in json.loads(row["task_samples"] or "{}").items()
                if task in counts or task in row["tasks"] or task.partition("/")[0] not in names
            }
            connection.execute(
                "UPDATE runs SET bundle_digest = ?, rescorings = ?, task_samples = ? WHERE run_id = ?",
                [
                    bundle.digest if len(own) == len(row["tasks"]) else row["bundle_digest"],
                    as_json([*json.loads(row["rescorings"] or "[]"), entry]),
                    as_json(samples) if samples else None,
                    row["run_id"],
                ],
            )
