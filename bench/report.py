"""Reports, pages and merges of large results files: seconds, CPU seconds and memory.

    python -m bench.report [--runs 1000] [--answers 100000] [--many 10000000] [--shards 256] [--folder DIR]

Made inside DuckDB, in lbx's own tables: a file of ``--answers`` answers of 36 runs, of which every report and the page
are made; as many answers of ``--runs`` runs; a tenth of ``--many`` and ``--many`` answers of 50 runs; and one run in
shards, of which all and a quarter are merged. Each command runs in a process of its own. If the microseconds an answer
grow, something is not linear. ``bench.pages`` measures pages, also in Chromium.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.contest import REPOSITORY, table
from lbx.benchmarks.longbench import tasks as longbench_tasks
from lbx.benchmarks.registry import BENCHMARKS
from lbx.results import RunRow, Store
from lbx.results.scoring.adding_up import add_up

_BENCHMARK, _TASKS = "longbench", ("qasper", "hotpotqa", "2wikimqa", "musique", "multifieldqa_en")
_METRIC = longbench_tasks.METRICS[longbench_tasks.kind_of(_TASKS[0]).metric][0]
_FEW, _SEVERAL = 36, 50
_WITHOUT_FILE = ("reference", "expected")
"""Reports that read no results file, or need options."""
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


def make_file(path: Path, runs: int, answers: int, begin: int = 0, end: int | None = None) -> None:
    """Write a results file of runs with ``answers`` each; of each task only the samples from ``begin`` to ``end``."""
    samples = answers // len(_TASKS)
    end = samples if end is None else end
    version = BENCHMARKS[_BENCHMARK].metric_version
    with Store(path) as store:
        for task in _TASKS:
            store.query(_SAMPLES, [task, begin, end])
        for number in range(runs):
            run = f"run-{number:04d}"
            store.begin_run(
                RunRow(
                    run, f"model-{number:04d}", "llamacpp", "0.3.36", {_BENCHMARK: version}, "b" * 64, {"seed": 0}, {},
                    "0.1.0", {f"{_BENCHMARK}/{task}": samples for task in _TASKS},
                )
            )  # fmt: skip
            with store.transaction() as connection:
                for task in _TASKS:
                    connection.execute(_ANSWERS, [run, task, begin, end])
                    connection.execute(_SCORES, [run, task, begin, end, version, _METRIC])
            add_up(store, run, BENCHMARKS[_BENCHMARK])
            store.finish_run(run, "done")


def make_many_runs(path: Path, answers: int) -> None:
    """Write a results file of 36 runs."""
    make_file(path, _FEW, answers // _FEW)


def main() -> int:
    from bench.pages import HEADINGS, measure_pages

    args = parse_arguments()
    folder = Path(tempfile.mkdtemp(prefix="lbx-bench-", dir=args.folder))
    rows: list[list[str]] = []
    try:
        pages = measure_pages(folder, args.answers)
        rows += _measure_reports(folder / "results.duckdb", args.answers)
        for runs, answers in ((args.runs, args.answers), (_SEVERAL, args.many // 10), (_SEVERAL, args.many)):
            if runs and answers >= runs * len(_TASKS):
                rows += _measure_file(folder / "results.duckdb", runs, answers // runs)
        for shards in (args.shards // 4, args.shards):
            if shards:
                rows.append(_measure_merge(folder, shards, args.answers * shards // args.shards))
    finally:
        shutil.rmtree(folder)
    print(table(("what", "answers", "s", "CPU s", "MB", "CPU µs an answer"), rows))
    print(table(HEADINGS, pages))
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--answers", type=int, default=100_000, help="in each of the smaller files")
    parser.add_argument("--many", type=int, default=10_000_000, help="answers in the largest file; 0: none")
    parser.add_argument("--shards", type=int, default=256, help="0: none")
    parser.add_argument("--folder", type=Path, help="for the files; 10 million answers take some GB")
    return parser.parse_args()


def report_commands(file: Path, reports: Sequence[str]) -> dict[str, list[str]]:
    """{title: arguments of lbx}, for each report that reads a file, all of them on one screen, and the page."""
    commands = {name: ["report", str(file), name] for name in reports if name not in _WITHOUT_FILE}
    commands["comparison"].append("--force")
    commands["changes"] += ["--force", "--baseline", "run-0000"]
    page = [str(file), "--format", "html", "-o", str(file.with_suffix(".html"))]
    return {"one screen": ["report", str(file)], **commands, "the page": ["report", *page]}


def _measure_reports(path: Path, answers: int) -> list[list[str]]:
    from lbx.report.reports import REPORTS

    make_many_runs(path, answers)
    rows = [
        _row(f"{title}, of {_FEW} runs", answers, *arguments)
        for title, arguments in report_commands(path, list(REPORTS)).items()
    ]
    path.unlink()
    return rows


def _measure_file(path: Path, runs: int, answers: int) -> list[list[str]]:
    start = time.monotonic()
    make_file(path, runs, answers)
    size, total, suffix = path.stat().st_size / 1e6, runs * answers, f"of {runs:,} runs"
    print(
        f"{total:,} answers {suffix}: {size:,.0f} MB in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True
    )
    two_runs = ("--run", "run-0000", "--run", "run-0001")
    rows = [
        _row(f"open, {suffix}", total, "sql", path, "SELECT 1"),
        _row(f"leaderboard, {suffix}", total, "report", path, "leaderboard"),
        _row(f"task_scores, {suffix}", total, "report", path, "task_scores"),
        _row(f"comparison of two, {suffix}", total, "report", path, "comparison", *two_runs),
    ]
    path.unlink()
    return rows


def _measure_merge(folder: Path, shards: int, answers: int) -> list[str]:
    samples = answers // len(_TASKS)
    ends = [samples * number // shards for number in range(shards + 1)]
    files = [folder / f"shard-{number}.duckdb" for number in range(shards)]
    for file, begin, end in zip(files, ends, ends[1:], strict=False):
        make_file(file, 1, answers, begin, end)
    print(f"{shards} shards made", file=sys.stderr, flush=True)
    row = _row(f"merge of {shards} shards", answers, "merge", *files, "-o", folder / "merged.duckdb")
    for file in (*files, folder / "merged.duckdb"):
        file.unlink()
    return row


def _row(title: str, answers: int, *arguments: object) -> list[str]:
    start = time.monotonic()
    cpu_s, mb = measure([sys.executable, "-P", "-m", "lbx.cli", *map(str, arguments)])
    wall_s = time.monotonic() - start
    print(f"{title}: {cpu_s:.1f} CPU s", file=sys.stderr, flush=True)
    return [title, f"{answers:,}", f"{wall_s:.1f}", f"{cpu_s:.2f}", f"{mb:.0f}", f"{1e6 * cpu_s / answers:.1f}"]


_LAUNCHER = """
import os, sys
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(child, 0)
with open(int(sys.argv[1]), "w") as figures:
    figures.write(f"{used.ru_utime + used.ru_stime} {used.ru_maxrss}")
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""A child begins with the peak of memory of the process that starts it: this one is small."""


def measure(command: Sequence[str]) -> tuple[float, float]:
    """CPU seconds and MB of a process, with bytecode as in an installed lbx.

    Raises:
        subprocess.CalledProcessError: the command failed.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir()) / "lbx-bench-bytecode")
    with tempfile.TemporaryFile("w+") as figures:
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(figures.fileno()), *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=REPOSITORY, check=True,
            pass_fds=[figures.fileno()], env=environment,
        )  # fmt: skip
        figures.seek(0)
        seconds, kilobytes = figures.read().split()
    return float(seconds), float(kilobytes) / 1024


if __name__ == "__main__":
    sys.exit(main())
