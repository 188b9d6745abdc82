"""Results files merged into one, with missing answers by name; and the state of a submitted run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lbx.base.commands import as_command
from lbx.base.errors import LbxError, UsageError
from lbx.base.inputs import open_input
from lbx.base.outputs import passing_folder
from lbx.base.records import SampleKey
from lbx.benchmarks import BENCHMARKS
from lbx.cluster import slurm
from lbx.cluster.folder import RunFolder
from lbx.forecast.shards import ShardPlan
from lbx.judging.journal import journal_of
from lbx.scoring import opinions
from lbx.scoring.adding_up import add_up, add_up_completed
from lbx.store import Store
from lbx.store.copies import alone
from lbx.store.merging import Merging, merge_files
from lbx.store.opening import check_place
from lbx.store.snapshots import read_committed

_SLURM_STATES = {"RUNNING": "running", "COMPLETING": "running", "PENDING": "waiting", "REQUEUED": "waiting"}


@dataclass(frozen=True, slots=True)
class Gap:
    """Answers of one shard and run that no file holds."""

    shard: int
    run: str
    missing: Sequence[SampleKey]


@dataclass(slots=True)
class Merged:
    """What a merge has done.

    Attributes:
        runs: {run: how many of the files hold it}; 0: only the one that was merged into.
        rows: {table: rows in the new file}.
        failures: {run of the files: answers that have failed}.
        gaps: by shard and run, where a shard plan was given.
        notes: what was let pass, and what to do next.
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


def merge(sources: Sequence[Path], output: Path, plan: ShardPlan | None, *, force: bool) -> Merged:
    """Write one results file from several, complete or not at all.

    Args:
        plan: which samples there should be.
        force: merge into the file where it is there: what it alone holds stays.

    Raises:
        UsageError: the file is there, or is one of the sources.
        StoreError: files do not belong together, or cannot be read or written. The file is as it was then.
    """
    output = output.absolute()
    sources = list({path.resolve(): path for path in sources}.values())
    if output.resolve() in {path.resolve() for path in sources}:
        raise UsageError(
            f"{output} is both a source and the output.",
            fix="Leave it out (--force merges into it), or give another with -o.",
        )
    if output.exists() and not force:
        raise UsageError(
            f"{output} already exists.",
            fix="Give another file with -o, or --force to merge into it: what it alone holds stays.",
        )
    check_place(output)
    with alone(output.resolve()):  # two merges into one file would each leave out what the other has added
        Store.check(output)
        return _merged(sources, output, plan)


def _merged(sources: Sequence[Path], output: Path, plan: ShardPlan | None) -> Merged:
    held = output if output.is_file() and output.stat().st_size else None
    place = output.resolve()  # a link stays one
    with passing_folder(place) as (folder, _):
        part = folder / place.name
        with Store(part, beside=[*sources, *([held] if held else [])]) as store:
            merging = merge_files(store, sources, held)
            merged = Merged(output, {run: len(files) for run, files in merging.runs.items()}, notes=merging.notes)
            _add_up(store, merging)
            if plan is not None:
                merged.gaps = gaps(store, plan)
            _close_runs(store, merged)
            merged.rows = merging.rows
            merged.notes += [
                f"{journal_of(path)} has ratings that were not taken in; "
                f"{as_command('lbx', 'rate', path, '--collect')} moves them."
                for path in (*sources, output)
                if journal_of(path).exists()
            ]
            store.checkpoint()
            with open_input(part) as file:
                os.fsync(file.fileno())
            part.replace(place)  # while the old one is attached, so that nobody has written to it meanwhile
    return merged


def _add_up(store: Store, merging: Merging) -> None:
    """Numbers over samples, of the runs that came in parts."""
    for run in merging.joined:
        names = [row[0] for row in store.query(
            "SELECT DISTINCT benchmark FROM generations WHERE run_id = ? ORDER BY ALL", [run]
        ).rows]  # fmt: skip
        for name in names:
            if name in BENCHMARKS:
                add_up(store, run, BENCHMARKS[name])
    store.completed |= merging.completed
    add_up_completed(store, BENCHMARKS)
    opinions.add_up_all(store)  # a run and its judges, or raters, may have lain in different files


def _close_runs(store: Store, merged: Merged) -> None:
    """Nothing runs in the new file; what lacks samples is not done."""
    lacking = {gap.run for gap in merged.gaps}
    for run, status in store.query("SELECT run_id, status FROM runs").rows:
        if status == "running" or (status == "done" and run in lacking):
            with store.transaction() as connection:
                connection.execute("UPDATE runs SET status = 'interrupted' WHERE run_id = ?", [run])
    failed = store.query("SELECT run_id, count(*) FROM generations WHERE error IS NOT NULL GROUP BY ALL ORDER BY ALL")
    merged.failures = {run: count for run, count in failed.rows if merged.runs[run]}


def gaps(store: Store, plan: ShardPlan) -> list[Gap]:
    """What of a shard plan a results file lacks."""
    gaps_found: list[Gap] = []
    for run in plan.runs:
        stored = {
            SampleKey(*row)
            for row in store.query(
                "SELECT benchmark, task, sample_id, iteration FROM generations WHERE run_id = ?", [run]
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
                gaps_found.append(Gap(number, run, missing))
    return sorted(gaps_found, key=lambda gap: gap.shard)


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One shard.

    Attributes:
        state: "done"; "running" or "waiting" as Slurm says; "failed": not done, and Slurm has nothing of it any more;
            "begun" or "missing": the same where Slurm cannot be asked, with and without any answer.
        answered, failed: that its file holds.
        expected: how many answers it is to give.
        said: its run's last line in the log.
    """

    shard: int
    state: str
    answered: int
    failed: int
    expected: int
    said: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def shard_statuses(folder: RunFolder) -> list[ShardStatus]:
    """State of every shard.

    Raises:
        UsageError: the folder is none of ``lbx submit``.
    """
    plan = folder.plan()
    submitted = folder.submitted()
    known = slurm.states(submitted.array_id) if submitted and submitted.array_id else None
    return [_status_of(folder, plan, number, known) for number in range(len(plan.shards))]


def _status_of(folder: RunFolder, plan: ShardPlan, number: int, known: dict[int, str] | None) -> ShardStatus:
    answered, failed = _answer_counts(folder.shard(number), plan)
    expected = plan.expected(number)
    line = _last_line(folder.log(number))
    if answered + failed >= expected:
        state = "done"
    elif known is None:
        state = "begun" if answered or failed or line else "missing"
    elif number in known:
        state = _SLURM_STATES.get(known[number], known[number].lower())
    else:
        state = "failed" if answered or failed or line or folder.output(number).exists() else "missing"
    return ShardStatus(number, state, answered, failed, expected, line)


def _answer_counts(path: Path, plan: ShardPlan) -> tuple[int, int]:
    """Numbers of answers and failures that a shard has committed; its file may be open for writing."""
    if not path.is_file():
        return 0, 0
    counts = (
        "SELECT count(*) FILTER (WHERE error IS NULL), count(*) FILTER (WHERE error IS NOT NULL) "
        "FROM generations WHERE run_id IN (SELECT unnest(?::VARCHAR[]))"
    )
    try:
        ((answered, failed),) = read_committed(path, counts, [list(plan.runs)])
    except (OSError, LbxError):
        return 0, 0  # it has just been made
    return answered, failed


def _last_line(path: Path) -> str:
    try:
        with open_input(path) as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
