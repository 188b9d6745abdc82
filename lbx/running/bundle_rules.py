"""Scoring of stored answers by the rules of another bundle's own benchmarks, into a new results file.

An answer is scored if its document and its instructions are those of the new bundle, by hash. Other answers are kept
with a mark and without scores: the new questions can be asked with ``lbx run``.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.base.layout import Bundle
from lbx.base.marks import OUTDATED, QUESTION_CHANGED, QUESTION_REMOVED
from lbx.base.records import PLAIN, Mode
from lbx.base.version import __version__
from lbx.benchmarks.registry import BENCHMARKS, custom_names, reserved_names
from lbx.bundle import check_unchanged
from lbx.running.listening import Listener
from lbx.running.task_revision import TaskChanges, moved_ids, read_revision
from lbx.scoring.scores import Rescoring, rescore
from lbx.store import Store, numbers
from lbx.store.copies import copy_database
from lbx.store.edits import new_results_file
from lbx.store.inserting import json_rows, rows_of_json
from lbx.store.opening import connect, require_file
from lbx.store.rows import as_json
from lbx.store.samples import rename_samples
from lbx.store.texts import require_texts


@dataclass(frozen=True, slots=True)
class NewScores:
    """Result of scoring by the rules of another bundle."""

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
    workers: int = 0,
    listener: Listener | None = None,
) -> NewScores:
    """Copy a results file and score the answers to a bundle's own benchmarks by its rules.

    The new file is written whole or not at all. Its other benchmarks keep their scores.

    Args:
        runs, embedding: options of ``lbx.running.rescoring.score``, which are refused.

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
        check_unchanged(bundle.root, lambda stage, _item, done, total: listener.counted(stage, done, total))
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
            rules = Rescoring({name: BENCHMARKS[name] for name in names}, workers=workers)
            progress = functools.partial(listener.counted, "outputs scored")
            return NewScores(output, rescore(store, rules, progress, listener.said), tasks)


def refuse_new_rules(store: Store, bundle: Bundle) -> None:
    """Raise UsageError if a bundle has other rules or questions than the file, which keeps one revision of them."""
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
    """Own benchmarks that both the file and the bundle have."""
    answered = {name for (name,) in store.query("SELECT DISTINCT benchmark FROM generations").rows}
    return [name for name in custom_names(bundle, reserved_names()) if name in answered]


def _tasks(store: Store, bundle: Bundle, benchmark: str) -> dict[str, int]:
    """{task: number of samples in the bundle} of tasks with answers."""
    answered = store.query("SELECT DISTINCT task FROM generations WHERE benchmark = ?", [benchmark]).rows
    return {task.name: task.samples for task in BENCHMARKS[benchmark].tasks(bundle) if (task.name,) in answered}


def _take_tasks(store: Store, bundle: Bundle, names: Sequence[str]) -> list[TaskChanges]:
    """Replace samples by the bundle's, mark answers to other questions, and record the change in the runs."""
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
    """Prompting options of a run that an own benchmark reads."""
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
    """  # noqa: S608 (our own names)
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

    A run whose answers all belong to these tasks becomes a run of the bundle. Others keep the bundle they were asked
    from.
    """
    counts = {f"{name}/{task}": count for name in names for task, count in _tasks(store, bundle, name).items()}
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
            samples = json.loads(row["task_samples"] or "null")
            connection.execute(
                "UPDATE runs SET bundle_digest = ?, rescorings = ?, task_samples = ? WHERE run_id = ?",
                [
                    bundle.digest if len(own) == len(row["tasks"]) else row["bundle_digest"],
                    as_json([*json.loads(row["rescorings"] or "[]"), entry]),
                    as_json({**samples, **{task: counts[task] for task in own}}) if samples else None,
                    row["run_id"],
                ],
            )
