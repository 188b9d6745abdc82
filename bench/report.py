"""What a report of a large results file takes, beside pandas by hand.

    python -m bench.report [--file FILE] [--times N] [--only WORD ...] [--pandas PYTHON]

The file has 100,377 answers of 36 runs, from a fixed seed (``bench.report_file``); FILE keeps it, or is another one to
measure. Each thing is done N times in processes of its own: printed are the medians of their CPU seconds (all threads,
user and system) and peaks of memory beside their targets, what of the seconds is beyond start-up (`lbx report` of an
empty file), and how many times as much pandas takes beyond its own start-up, where a Python that has it is found.
Bytecode is there, as in an installed lbx, whatever the environment says of writing it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figures import ratio, table
from bench.job import REPOSITORY

_ALL_ROWS = "SELECT * FROM generations"
_VIEW_S = 0.5
_WITH_OPTIONS = ("comparison", "changes", "reference", "expected")
"""Views that are measured with their options, or that read no file."""
_BASELINE = "llama-3.1-8b-instruct-F16-longbench"


@dataclass(frozen=True)
class Thing:
    """One thing to measure.

    Attributes:
        arguments: of lbx; FILE stands for the results file, OUT for a file to write.
        by_hand: what ``bench.report_by_hand`` calls the same; "" where it has nothing like it.
        cpu_s, mb: the targets, of the whole process.
    """

    name: str
    arguments: Sequence[str]
    by_hand: str = ""
    cpu_s: float | None = None
    mb: float | None = None


@dataclass(frozen=True)
class Taken:
    """Medians of one thing: CPU seconds and MB."""

    cpu_s: float
    mb: float


def things(views: Sequence[str]) -> list[Thing]:
    """All that is measured."""
    by_hand = ("task_scores", "leaderboard", "length_curve", "truncation", "guards", "failures")
    return [
        Thing("report", ["report", "FILE"], "report", 1.0, 300),
        *(
            Thing(f"report {view}", ["report", "FILE", view], view if view in by_hand else "", _VIEW_S)
            for view in views
            if view not in _WITH_OPTIONS
        ),
        Thing("comparison of all pairs", ["report", "FILE", "comparison", "--force"], "comparison", 1.2),
        Thing("changes against a run", ["report", "FILE", "changes", "--force", "--baseline", _BASELINE]),
        Thing("report --format html", ["report", "FILE", "--format", "html", "-o", "OUT"], "", 4.0, 300),
        *(
            Thing(
                f"sql --format {kind}, all rows", ["sql", "FILE", _ALL_ROWS, "-f", kind, "-o", "OUT"], hand, None, 400
            )
            for kind, hand in (("json", "json"), ("csv", ""), ("parquet", ""))
        ),
    ]


def main() -> int:
    args = _arguments()
    with tempfile.TemporaryDirectory(prefix="lbx-bench-") as temporary:
        folder = Path(temporary)
        file = args.file or folder / "results.duckdb"
        if not file.exists():
            print(f"making {file} ...", file=sys.stderr, flush=True)
            subprocess.run([sys.executable, "-m", "bench.report_file", file], cwd=REPOSITORY, check=True)
        subprocess.run([sys.executable, "-c", _EMPTY, folder / "empty.duckdb"], cwd=REPOSITORY, check=True)
        print(_measured(args, file, folder))
    return 0


_EMPTY = "import sys; from pathlib import Path; from lbx.store import Store; Store(Path(sys.argv[1])).close()"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--file", type=Path, help="the results file; made where it is missing")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], help="only the things whose names have one of these words")
    parser.add_argument(
        "--pandas", type=Path, default=REPOSITORY / ".venv-bench/bin/python", help="a Python that has pandas"
    )
    return parser.parse_args()


def _measured(args: argparse.Namespace, file: Path, folder: Path) -> str:
    from lbx.report.reports import REPORTS

    lbx = [sys.executable, "-P", "-m", "lbx.cli"]
    hand = _pandas(args.pandas)
    start = taken([*lbx, "report", str(folder / "empty.duckdb")], args.times)
    hand_start = taken([*hand, str(file), "nothing"], args.times) if hand else None
    rows = [["start-up", f"{start.cpu_s:.2f}", "", f"{start.mb:.0f}", "", "", _seconds(hand_start), "", ""]]
    for thing in things(list(REPORTS)):
        if args.only and not any(word in thing.name for word in args.only):
            continue
        places = {"FILE": str(file), "OUT": str(folder / "out")}
        ours = taken([*lbx, *(places.get(word, word) for word in thing.arguments)], args.times)
        theirs = taken([*hand, str(file), thing.by_hand], args.times) if hand and thing.by_hand else None
        rows.append(_row(thing, ours, start, theirs, hand_start))
        print(f"{thing.name}: {ours.cpu_s:.2f} s", file=sys.stderr, flush=True)
    help_s = taken([*lbx, "--help"], args.times)
    rows.append(["lbx --help", f"{help_s.cpu_s:.2f}", "0.3", f"{help_s.mb:.0f}", "", "", "", "", ""])
    said = (
        ""
        if hand
        else f"\n{args.pandas} has no pandas, so nothing stands beside it; `just bench-engine` makes one that has."
    )
    return f"Medians of {args.times}, CPU seconds and MB.\n\n{table(_HEADER, rows)}{said}"


_HEADER = (
    "what", "lbx CPU s", "target", "MB", "target", "beyond start", "pandas CPU s", "beyond start", "ratio",
)  # fmt: skip


def _row(thing: Thing, ours: Taken, start: Taken, theirs: Taken | None, hand_start: Taken | None) -> list[str]:
    mine = max(ours.cpu_s - start.cpu_s, 0.005)
    other = theirs.cpu_s - hand_start.cpu_s if theirs and hand_start else None
    return [
        thing.name,
        f"{ours.cpu_s:.2f}",
        "" if thing.cpu_s is None else f"{thing.cpu_s:g}",
        f"{ours.mb:.0f}",
        "" if thing.mb is None else f"{thing.mb:g}",
        f"{mine:.2f}",
        _seconds(theirs),
        "" if other is None else f"{other:.2f}",
        ratio(other, mine),
    ]


def _seconds(found: Taken | None) -> str:
    return f"{found.cpu_s:.2f}" if found else ""


def _pandas(python: Path) -> list[str]:
    """The command that does things by hand, up to its file; [] where that Python has no pandas."""
    probe = [str(python), "-c", "import pandas"]
    if shutil.which(str(python)) is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        return []
    import duckdb

    packages = Path(duckdb.__file__).resolve().parents[1]
    return [str(python), str(REPOSITORY / "bench" / "report_by_hand.py"), str(packages)]


def taken(command: Sequence[str], times: int) -> Taken:
    """Medians over so many runs, after one that is not counted.

    Raises:
        subprocess.CalledProcessError: the command failed.
    """
    _once(command)
    laps = [_once(command) for _ in range(times)]
    return Taken(*(statistics.median(column) for column in zip(*laps, strict=True)))


_LAUNCH = """
import os, sys
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(child, 0)
with open(int(sys.argv[1]), "w") as told:
    told.write(f"{used.ru_utime + used.ru_stime} {used.ru_maxrss}")
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""A child begins with the peak of memory of the process that starts it: this one is small."""


def _once(command: Sequence[str]) -> tuple[float, float]:
    """CPU seconds and MB of a process."""
    with tempfile.TemporaryFile("w+") as told:
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _LAUNCH, str(told.fileno()), *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=REPOSITORY, check=True,
            pass_fds=[told.fileno()], env=_environment(),
        )  # fmt: skip
        told.seek(0)
        seconds, kilobytes = told.read().split()
    return float(seconds), float(kilobytes) / 1024


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "lbx-bench-bytecode")}


if __name__ == "__main__":
    sys.exit(main())
