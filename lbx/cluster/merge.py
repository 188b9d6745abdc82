"""Results files as one, added up, with what is missing by name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.base.inputs import open_input
from lbx.base.outputs import passing_folder
from lbx.base.records import SampleKey
from lbx.benchmarks import BENCHMARKS, official_judge
from lbx.benchmarks.base.judge_marks import MARKS
from lbx.benchmarks.judge import Judging
from lbx.judging.journal import journal_of
from lbx.planning.shards import ShardPlan
from lbx.scoring.adding_up import add_up, add_up_completed
from lbx.store import Store, opinions
from lbx.store.copies import alone
from lbx.store.merging import Merging, merge_files
from lbx.store.opening import check_place


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
            _add_up(store, merging, merged)
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


def _add_up(store: Store, merging: Merging, merged: Merged) -> None:
    """Numbers over samples, of the runs that came in parts."""
    for run in merging.joined:
        names = [row[0] for row in store.query(
            "SELECT DISTINCT benchmark FROM generations WHERE run_id = ? ORDER BY ALL", [run]
        ).rows]  # fmt: skip
        for name in names:
            if name not in BENCHMARKS:
                continue
            add_up(store, run, BENCHMARKS[name])
            if name != Judging.name and (behind := _behind(store, run, name)):  # a text may hold no verdict
                merged.notes.append(
                    f"{run}: {behind:,} answers of {name} have no score of metric version "
                    f"{BENCHMARKS[name].metric_version}; "
                    f"{as_command('lbx', 'score', merged.output, '--run', run)} adds it."
                )
    store.completed |= merging.completed
    add_up_completed(store, BENCHMARKS)
    opinions.add_up_all(store)  # a run and its judges, or raters, may have lain in different files


def _behind(store: Store, run: str, name: str) -> int:
    """Answers that ``lbx score`` has something to do for: those for judges and people alone have no score."""
    rows = store.query(
        """
        SELECT count(*) FROM generations g
        JOIN runs r ON r.run_id = g.run_id AND (r.settings->>'judged') IS DISTINCT FROM 'true'
        LEFT JOIN samples a ON a.benchmark = g.benchmark AND a.task = g.task AND a.sample_id = g.sample_id
        ANTI JOIN (SELECT * FROM scores WHERE metric_version = ?) s
            ON s.run_id = g.run_id AND s.benchmark = g.benchmark AND s.task = g.task AND s.sample_id = g.sample_id
            AND s.iteration = g.iteration
        WHERE g.run_id = ? AND g.benchmark = ? AND g.error IS NULL
            AND NOT list_contains(?::VARCHAR[], coalesce(a.meta->>'evaluation', ''))
        """,
        [BENCHMARKS[name].metric_version, run, name, MARKS if name == official_judge.BENCHMARK else ()],
    )
    return int(rows.rows[0][0])


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
