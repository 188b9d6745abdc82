"""What lbx takes where results are many: runs, answers in one file, files that are merged.

    python -m bench.scale [--runs 1000] [--answers 100000] [--many 10000000] [--shards 256] [--folder DIR]

Made is, inside DuckDB and in lbx's own tables: a file of so many answers in all of so many runs; one of ``--many``
answers of 50 runs; and one run of ``--answers`` in so many shards. Printed are, each of a process of its own, seconds,
CPU seconds and the peak of memory: to open a file, for one view, for a comparison of two runs, for the merge of all
shards and of a quarter of them, with what an answer takes: where that grows, something is not linear.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench.figures import table
from bench.report import _once
from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.longbench import tasks as longbench_tasks
from lbx.scoring.adding_up import add_up
from lbx.store import RunRow, Store

_BENCHMARK, _TASKS = "longbench", ("qasper", "hotpotqa", "2wikimqa", "musique", "multifieldqa_en")
_METRIC = longbench_tasks.METRICS[longbench_tasks.kind_of(_TASKS[0]).metric][0]
_OF_MANY = 50
_SAMPLES = """
    INSERT OR IGNORE INTO samples BY NAME
    SELECT 'longbench' AS benchmark, $1 AS task, printf('%07d', n) AS sample_id, 'en' AS language,
           1000 + n % 9000 AS length, 'words' AS length_unit, '["an answer"]' AS "references",
           'question ' || n AS question, sha256($1 || n // 4) AS context_sha256, '{}' AS meta, n AS position
    FROM range($2::BIGINT, $3::BIGINT) made(n)
"""
_ANSWERS = """
    INSERT INTO generations BY NAME
    SELECT $1 AS run_id, 'longbench' AS benchmark, $2 AS task, printf('%07d', n) AS sample_id, 0 AS iteration,
           'an answer of some words, number ' || hash(n, $1) % 5 AS output, 'stop' AS finish_reason,
           1500 + n % 9000 AS prompt_tokens, 1500 + n % 9000 AS original_tokens, 0 AS cached_tokens,
           8 AS output_tokens, false AS truncated, 0 AS tokens_cut, 'lbx' AS prompt_source, 0.5 AS prefill_s,
           0.1 AS decode_s, 0 AS seed, 1 AS bos_tokens, TIMESTAMP '2026-03-02 06:00:00' AS created_at
    FROM range($3::BIGINT, $4::BIGINT) made(n)
"""
_SCORES = """
    INSERT INTO scores BY NAME
    SELECT $1 AS run_id, 'longbench' AS benchmark, $2 AS task, printf('%07d', n) AS sample_id, 0 AS iteration,
           $6 AS metric, $5::INTEGER AS metric_version, (hash(n, $1, 's') % 101) / 100 AS score, true AS headline
    FROM range($3::BIGINT, $4::BIGINT) made(n)
"""


def make(path: Path, runs: int, each: int, begin: int = 0, end: int | None = None) -> None:
    """A file of runs with so many answers each, of all their tasks alike; of each task those from ``begin`` on."""
    of_task = each // len(_TASKS)
    end = of_task if end is None else end
    version = BENCHMARKS[_BENCHMARK].metric_version
    with Store(path) as store:
        for task in _TASKS:
            store.query(_SAMPLES, [task, begin, end])
        for number in range(runs):
            run = f"run-{number:04d}"
            store.begin_run(
                RunRow(
                    run, f"model-{number:04d}", "llamacpp", "0.3.36", {_BENCHMARK: version}, "b" * 64, {"seed": 0}, {},
                    "0.1.0", {f"{_BENCHMARK}/{task}": of_task for task in _TASKS},
                )
            )  # fmt: skip
            with store.transaction() as connection:
                for task in _TASKS:
                    connection.execute(_ANSWERS, [run, task, begin, end])
                    connection.execute(_SCORES, [run, task, begin, end, version, _METRIC])
            add_up(store, run, BENCHMARKS[_BENCHMARK])
            store.finish_run(run, "done")


def main() -> int:
    args = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="lbx-scale-", dir=args.folder))
    rows: list[list[str]] = []
    try:
        for runs, answers in ((args.runs, args.answers), (_OF_MANY, args.many // 10), (_OF_MANY, args.many)):
            if runs and answers >= runs * len(_TASKS):
                rows += _of_one_file(folder / "results.duckdb", runs, answers // runs)
        for shards in (args.shards // 4, args.shards):
            if shards:
                rows += _of_shards(folder, shards, args.answers * shards // args.shards)
    finally:
        shutil.rmtree(folder)
    print(table(("what", "answers", "s", "CPU s", "MB", "CPU µs an answer"), rows))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--answers", type=int, default=100_000, help="of all these runs; and of the run in shards")
    parser.add_argument("--many", type=int, default=10_000_000, help="answers in one file; 0: none")
    parser.add_argument("--shards", type=int, default=256)
    parser.add_argument("--folder", type=Path, help="where the files are made; 10 million answers take some GB")
    return parser.parse_args()


def _of_one_file(path: Path, runs: int, each: int) -> list[list[str]]:
    begun = time.monotonic()
    make(path, runs, each)
    size = path.stat().st_size / 1e6
    print(f"{runs * each:,} answers of {runs:,} runs: {size:,.0f} MB in {time.monotonic() - begun:.0f} s",
          file=sys.stderr, flush=True)  # fmt: skip
    what = f"of {runs:,} runs"
    found = [
        _row(f"open, {what}", runs * each, "sql", path, "SELECT 1"),
        _row(f"leaderboard, {what}", runs * each, "report", path, "leaderboard"),
        _row(f"task_scores, {what}", runs * each, "report", path, "task_scores"),
        _row(f"comparison of two, {what}", runs * each, "report", path, "comparison", "--run", "run-0000", "--run",
             "run-0001"),
    ]  # fmt: skip
    path.unlink()
    return found


def _of_shards(folder: Path, shards: int, answers: int) -> list[list[str]]:
    of_task = answers // len(_TASKS)
    ends = [of_task * number // shards for number in range(shards + 1)]
    files = [folder / f"shard-{number}.duckdb" for number in range(shards)]
    for file, begin, end in zip(files, ends, ends[1:], strict=False):
        make(file, 1, answers, begin, end)
    print(f"{shards} shards made", file=sys.stderr, flush=True)
    made = _row(f"merge of {shards} shards", answers, "merge", *files, "-o", folder / "merged.duckdb")
    for file in (*files, folder / "merged.duckdb"):
        file.unlink()
    return [made]


def _row(what: str, answers: int, *arguments: object) -> list[str]:
    begun = time.monotonic()
    cpu_s, mb = _once([sys.executable, "-P", "-m", "lbx.cli", *map(str, arguments)])
    wall = time.monotonic() - begun
    print(f"{what}: {cpu_s:.1f} CPU s", file=sys.stderr, flush=True)
    return [what, f"{answers:,}", f"{wall:.1f}", f"{cpu_s:.2f}", f"{mb:.0f}", f"{1e6 * cpu_s / answers:.1f}"]


if __name__ == "__main__":
    sys.exit(main())
