"""Makes the golden records that travel: synthetic texts, scored by the authors' own code (README.md beside records/).

python make.py UPSTREAM RECORDS [FAMILY ...]        UPSTREAM: a folder with the four repositories, as README.md says
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.golden.making import official

HERE = Path(__file__).resolve().parent
Record = dict[str, Any]
DEEP = 2_000_000


def module(folder: Path, name: str) -> Any:
    """A module of an official repository, imported afresh: several have the same names, and that of a library."""
    for known in list(sys.modules):
        if (folder / f"{known}.py").exists():
            del sys.modules[known]
    sys.path.insert(0, str(folder))
    try:
        return __import__(name, fromlist=["_"])
    finally:
        sys.path.pop(0)


def run(script: Path, *arguments: object, cwd: Path) -> str:
    """What an official script prints, run unmodified as the program."""
    command = [sys.executable, HERE / "official.py", script, *map(str, arguments)]
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def scored(score: Callable[[], float]) -> tuple[float | None, str | None]:
    """A score, or the name of the exception that the official code ends with."""
    try:
        return float(score()), None
    except Exception as exc:
        return None, type(exc).__name__


def unlimited(score: Callable[[], float]) -> float | None:
    """The score without Python's recursion limit, which ROUGE-L's backtrace meets."""
    found: list[float | None] = []

    def act() -> None:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(DEEP)
        found.append(scored(score)[0])
        sys.setrecursionlimit(before)

    threading.stack_size(512 << 20)
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    return found[0]


def write_rows(path: Path, rows: Iterable[Record]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def keep(folder: Path, name: str, records: list[Record], **aggregates: Any) -> None:
    """The family's records, and its aggregates by their name, as ``case.py`` reads them."""
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), 9, mtime=0))
    for aggregate, content in aggregates.items():
        text = json.dumps(content, ensure_ascii=False)
        (folder / f"{aggregate}_aggregate.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{name}: {len(records)} records")


def main() -> None:
    from tests.golden.making import babilong, infinitebench, leval, longbench, longbench_pro, longbench_v2, lveval

    official.stand_in()
    upstream, folder = (Path(argument).resolve() for argument in sys.argv[1:3])
    folder.mkdir(exist_ok=True)
    wanted = sys.argv[3:]
    for family in (longbench, longbench_v2, longbench_pro, lveval, leval, babilong, infinitebench):
        if wanted and family.__name__.rpartition(".")[2] not in wanted:
            continue
        with tempfile.TemporaryDirectory(prefix="golden-") as work:
            family.make(upstream, Path(work), folder)


if __name__ == "__main__":
    sys.modules["make"] = sys.modules["__main__"]
    main()
