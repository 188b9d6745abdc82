"""Merge results files, list missing answers, and report the state of a submitted run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lbx.base.errors import LbxError, StoreError, UsageError
from lbx.base.inputs import open_input
from lbx.base.marks import UNFINISHED
from lbx.base.outputs import temporary_folder
from lbx.base.records import SampleKey
from lbx.base.visible import as_command
from lbx.benchmarks.registry import BENCHMARKS
from lbx.cluster.folder import RunFolder, Submission
from lbx.cluster.schedulers import SCHEDULERS
from lbx.opinions import aggregation as opinions
from lbx.opinions.journal import journal_of
from lbx.results import Store
from lbx.results.file.opening import check_path
from lbx.results.file.snapshots import query_committed
from lbx.results.file.texts import texts_of
from lbx.results.scoring.aggregation import aggregate_scores, recompute_completed_samples
from lbx.results.whole.commit_copies import exclusive_lock, repair_wal
from lbx.results.whole.edits import replace_file
from lbx.results.whole.merging import MergeState, merge_files
from lbx.running.forecast.shards import ShardPlan


@dataclass(frozen=True, slots=True)
class Gap:
    """Missing answers of a run in one shard."""

    shard: int
    run: str
    missing: Sequence[SampleKey]


@dataclass(slots=True)
class MergeSummary:
    """Summary of a merge, for ``lbx merge``.

    Attributes:
        runs: {run: number of source files that contain it}, 0 for runs found only in the existing output file.
        rows: {table: rows in the new file}.
        failures: {run of the source files: number of failed answers}.
        gaps: missing answers by shard and run, if a shard plan was given.
        notes: tolerated problems and next steps.
    """

    output: Path
    runs: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        return sum(len(gap.missing) for gap in self.gaps)

    def to_json(self) -> dict[str, Any]:
        return {
            "results": str(self.output),
            "runs": self.runs,
            "rows": self.rows,
            "failures": self.failures,
            "missing": self.missing,
            "gaps": [
                {"shard": gap.shard, "run_id": gap.run, "missing": [str(key) for key in gap.missing]}
                for gap in self.gaps
            ],
            "notes": self.notes,
        }


def merge(sources: Sequence[Path], output: Path, plan: ShardPlan | None, *, update: bool) -> MergeSummary:
    """Merge results files into a new file, atomically.

    Args:
        plan: expected samples, or None to skip the search for missing answers.
        update: merge into an existing output file, and keep its own content.

    Raises:
        UsageError: the output exists and ``update`` is not set, or is one of the sources.
        StoreError: files do not belong together, or cannot be read or written; the output is then unchanged.
    """
    output = output.absolute()
    sources = list({path.resolve(): path for path in sources}.values())
    if output.resolve() in {path.resolve() for path in sources}:
        raise UsageError(
            f"{output} is both a source and the output.",
            fix="Omit it from the sources and pass --update to merge into it, or choose another output with -o.",
        )
    if output.exists() and not update:
        raise UsageError(
            f"{output} already exists.",
            fix="Choose another file with -o, or pass --update to merge into it; its other rows are kept.",
        )
    check_path(output)
    with exclusive_lock(output.resolve()):  # two concurrent merges into one file would each drop the other's additions
        Store.check(output)
        return _merge_atomically(sources, output, plan)


def _merge_atomically(sources: Sequence[Path], output: Path, plan: ShardPlan | None) -> MergeSummary:
    existing = output if output.is_file() and output.stat().st_size else None
    repairs: list[str] = []
    for source in sources:
        repair_wal(source, repairs.append)
    target = output.resolve()  # keeps a symbolic link a link
    with temporary_folder(target) as (folder, _):
        part = folder / target.name
        with Store(part, allowed_files=[*sources, *([existing] if existing else [])]) as store:
            merging = merge_files(store, sources, existing)
            summary = MergeSummary(
                output, {run: len(files) for run, files in merging.runs.items()}, notes=[*repairs, *merging.notes]
            )
            _aggregate_joined_runs(store, merging)
            if plan is not None:
                summary.gaps = find_gaps(store, plan)
            _close_runs(store, summary, merging.joined_runs, plan)
            summary.rows = merging.rows
            summary.notes += [
                f"{journal_of(path)} has ratings that are not in the results file; "
                f"{as_command('lbx', 'rate', path, '--collect')} moves them."
                for path in (*sources, output)
                if journal_of(path).exists()
            ]
            store.checkpoint()
            replace_file(target, part)  # the old file is still attached, so no other process can have written to it
    return summary


def _aggregate_joined_runs(store: Store, merging: MergeState) -> None:
    """Compute the aggregate scores of runs with answers from several files.

    Raises:
        StoreError: texts that the scores need were removed from the files.
    """
    if texts_of(store):
        _require_numbers(store, merging.joined_runs)
        opinions.aggregate_all_opinions(store)
        return
    for run in merging.joined_runs:
        names = [row[0] for row in store.query(
            "SELECT DISTINCT benchmark FROM generations WHERE run_id = ? ORDER BY ALL", [run]
        ).rows]  # fmt: skip
        for name in names:
            if name in BENCHMARKS:
                aggregate_scores(store, run, BENCHMARKS[name])
    store.completed_tasks |= merging.completed_tasks
    recompute_completed_samples(store, BENCHMARKS)
    opinions.aggregate_all_opinions(store)  # a run and its judges or raters may come from different files


def _require_numbers(store: Store, runs: Sequence[str]) -> None:
    """Raise StoreError if a run lacks aggregate numbers: no file contained all answers."""
    unknown = store.query(
        "SELECT run_id FROM (FROM scores ANTI JOIN (FROM numbers WHERE kind <> 'opinion') USING (run_id, benchmark)) "
        "WHERE benchmark <> 'judge' AND list_contains(?::VARCHAR[], run_id) ORDER BY ALL LIMIT 1",
        [runs],
    ).rows
    if unknown:
        raise StoreError(
            f"Each file has only a part of the run {unknown[0][0]!r}, and its numbers cannot be computed without the "
            "texts that `lbx runs extract --without-texts` removed. All files are unchanged.",
            fix="Merge the files with texts first, then extract the runs.",
        )


_COMPLETE_RUNS = """
    SELECT run_id FROM coverage LEFT JOIN (
        SELECT run_id, benchmark, task, count(*) AS asked FROM generations
        WHERE error_type IS DISTINCT FROM ? GROUP BY ALL
    ) USING (run_id, benchmark, task)
    WHERE list_contains(?::VARCHAR[], run_id)
    GROUP BY run_id HAVING bool_and(coalesce(coalesce(asked, 0) >= bundle_answers, false))
"""


def _close_runs(store: Store, summary: MergeSummary, joined_runs: Sequence[str], plan: ShardPlan | None) -> None:
    """Mark incomplete done runs as interrupted, and complete joined runs as done.

    Also count the failed answers of each run.
    """
    lacking = {gap.run for gap in summary.gaps}
    complete = {run for (run,) in store.query(_COMPLETE_RUNS, [UNFINISHED, list(joined_runs)]).rows}
    complete |= set(plan.runs if plan else ())
    with store.transaction() as connection:
        connection.execute(
            "UPDATE runs SET status = 'interrupted' WHERE status = 'done' AND list_contains(?::VARCHAR[], run_id)",
            [list(lacking)],
        )
        connection.execute(
            "UPDATE runs SET status = 'done', finished_at = "
            "(SELECT max(created_at) FROM generations WHERE generations.run_id = runs.run_id) "
            "WHERE status <> 'done' AND list_contains(?::VARCHAR[], run_id)",
            [sorted(complete - lacking)],
        )
    failed = store.query("SELECT run_id, count(*) FROM generations WHERE error IS NOT NULL GROUP BY ALL ORDER BY ALL")
    summary.failures = {run: count for run, count in failed.rows if summary.runs[run]}


def find_gaps(store: Store, plan: ShardPlan) -> list[Gap]:
    """List answers of a shard plan that are missing in a results file, by shard and run."""
    gaps: list[Gap] = []
    for run in plan.runs:
        stored = {
            SampleKey(*row)
            for row in store.query(
                "SELECT benchmark, task, sample_id, iteration FROM generations "
                "WHERE run_id = ? AND error_type IS DISTINCT FROM ?",
                [run, UNFINISHED],
            ).rows
        }
        for number, shard in enumerate(plan.shards):
            missing = [
                key
                for task, places in shard.samples.items()
                for benchmark, _, name in [task.partition("/")]
                for sample_id, _ in places.values()
                for n in range(plan.iterations[task])
                if (key := SampleKey(benchmark, name, sample_id, n)) not in stored
            ]
            if missing:
                gaps.append(Gap(number, run, missing))
    return sorted(gaps, key=lambda gap: gap.shard)


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """Status of one shard, for ``lbx status``.

    Attributes:
        shard: number of the shard, from 0.
        state: "done"; "running", "waiting" or another state reported by the scheduler; "failed" if not done and no
            longer known to the scheduler; "missing" if without answer, log and output; "begun" instead of "failed" if
            the scheduler cannot be asked.
        answered, failed: numbers of answers and failures in the shard's file.
        expected: number of answers in the shard plan.
        last_log_line: last line of the run's log, or "" without a log.
    """

    shard: int
    state: str
    answered: int
    failed: int
    expected: int
    last_log_line: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def shard_statuses(folder: RunFolder) -> list[ShardStatus]:
    """Determine the status of every shard of a submitted run.

    Raises:
        UsageError: the folder was not written by ``lbx submit``.
    """
    plan = folder.plan()
    submission = folder.submission()
    states = _shard_states(submission) if submission else None
    return [_status_of(folder, plan, number, states) for number in range(len(plan.shards))]


def _shard_states(submission: Submission) -> Mapping[int, str] | None:
    """Return {shard: state} of unfinished shards, or None if lbx submitted no job or the scheduler cannot be asked."""
    scheduler = SCHEDULERS.get(submission.kind)
    states = scheduler.shard_states(submission.array_id) if scheduler and submission.array_id else None
    if states is None or not submission.shards:
        return states
    return {shard: states[number] for number, shard in enumerate(submission.shards) if number in states}


def _status_of(folder: RunFolder, plan: ShardPlan, number: int, states: Mapping[int, str] | None) -> ShardStatus:
    answered, failed = _answer_counts(folder.shard(number), plan)
    expected = plan.answer_count(number)
    line = _last_line(folder.log(number))
    if answered + failed >= expected:
        state = "done"
    elif states is None:
        state = "begun" if answered or failed or line else "missing"
    elif number in states:
        state = states[number]
    elif folder.is_waiting(number):
        state = "waiting"
    else:
        state = "failed" if answered or failed or line or folder.output(number).exists() else "missing"
    return ShardStatus(number, state, answered, failed, expected, line)


def _answer_counts(path: Path, plan: ShardPlan) -> tuple[int, int]:
    """Count a shard's committed answers and failures. Another process may be writing the file."""
    if not path.is_file():
        return 0, 0
    counts = (
        "SELECT count(*) FILTER (WHERE error IS NULL), count(*) FILTER (WHERE error IS NOT NULL) "
        "FROM generations WHERE error_type IS DISTINCT FROM ? AND run_id IN (SELECT unnest(?::VARCHAR[]))"
    )
    try:
        ((answered, failed),) = query_committed(path, counts, [UNFINISHED, list(plan.runs)])
    except (OSError, LbxError):
        return 0, 0  # the file was just created
    return answered, failed


def _last_line(path: Path) -> str:
    try:
        with open_input(path) as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
