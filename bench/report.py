"""Reports, pages and merges of large results files: seconds, CPU seconds and memory.

    python -m bench.report [--runs 1000] [--answers 100000] [--many 10000000] [--shards 256] [--folder DIR]

Made inside DuckDB, in lbx's own tables: a file of ``--answers`` answers of 36 runs, of which every report and the page
are made; as many answers of ``--runs`` runs; a tenth of ``--many`` and ``--many`` answers of 50 runs; and one run in
shards, of which all and a quarter are merged. Each command runs in a process of its own. If the microseconds an answer
grow, something is not linear. ``bench.pages`` measures pages, also in Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.contest import measure, table
from bench.large_files import FEW_RUNS, TASKS, make_file, make_many_runs
from bench.pages import HEADINGS, measure_pages
from lbx.report.reports import REPORTS

_SEVERAL = 50
_WITHOUT_FILE = ("reference", "expected")
"""Reports that read no results file, or need options."""


def main() -> int:
    args = parse_arguments()
    folder = Path(tempfile.mkdtemp(prefix="lbx-bench-", dir=args.folder))
    rows: list[list[str]] = []
    try:
        pages = measure_pages(folder, args.answers)
        rows += _measure_reports(folder / "results.duckdb", args.answers)
        for runs, answers in ((args.runs, args.answers), (_SEVERAL, args.many // 10), (_SEVERAL, args.many)):
            if runs and answers >= runs * len(TASKS):
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
    commands["comparison"].append("--allow-different-settings")
    commands["changes"] += ["--allow-different-settings", "--baseline", "run-0000"]
    page = [str(file), "--format", "html", "-o", str(file.with_suffix(".html"))]
    return {"one screen": ["report", str(file)], **commands, "the page": ["report", *page]}


def _measure_reports(path: Path, answers: int) -> list[list[str]]:
    make_many_runs(path, answers)
    rows = [
        _row(f"{title}, of {FEW_RUNS} runs", answers, *arguments)
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
    samples = answers // len(TASKS)
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


if __name__ == "__main__":
    sys.exit(main())
