"""Families asked by the commands themselves, and what a results file says of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import duckdb

from lbx.results import Store
from tests.command_line import Done, Lbx

PARTS: Mapping[str, str] = {
    "longbench": "longbench/passage_*[!e],longbench/trec",
    "longbench_e": "longbench/passage_*_e,longbench/trec_e",
    "longbench_v2": "longbench_v2",
    "longbench_pro": "longbench_pro/t3.*,longbench_pro/t4.1",
    "lveval": "lveval/factrecall_en_*",
    "leval": "leval/scientific_qa,leval/paper_assistant,leval/sci_fi,leval/topic_retrieval_longchat",
}
"""Whole tasks of each family that cost little, among which something is that the family averages."""

_RESULTS = ("task_results", "group_results", "benchmark_results", "length_results")
_SLOW_S = 4.0
"""How long a slow answer takes."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A family, or a part of it, as ``lbx run`` is to ask it.

    Attributes:
        tasks: what ``--tasks`` says.
        model: the table of answers.
        more: options that make the run what it is.
    """

    lbx: Lbx
    bundle: Path
    tasks: str
    model: Path
    more: Sequence[object] = ()

    def what(self) -> list[object]:
        """The options that say what is asked."""
        # A scripted model's tokens are bytes, of which official budgets would leave a few words.
        return ["-b", self.bundle, "-m", self.model, "-t", self.tasks, "--max-new-tokens", 100_000, *self.more]

    def __call__(self, out: Path, *more: object, code: int = 0) -> Done:
        done = self.lbx("run", *self.what(), "-o", out, "--no-plan", *more)
        assert done.returncode == code, done.stderr
        return done

    def kill(self, out: Path, *more: object) -> None:
        """Begin it in a process of its own, and kill that while it takes its time (``slowed``), with answers kept."""
        command = [sys.executable, "-m", "lbx.cli", "run", *self.what(), "-o", out, "--no-plan", *more]
        process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, start_new_session=True)
        assert process.stderr
        for line in process.stderr:
            if "samples of" in line:
                break
        while process.poll() is None and not any(map(count_in_copy, out.parent.rglob("*.duckdb"))):
            time.sleep(0.1)
        process.kill()
        said = process.communicate()[1]
        assert process.returncode == -9, f"it ended before it was killed: {said}"


def count_in_copy(path: Path, condition: str = "true") -> int:
    """Number of answers in a database that a process has open: a copy is what a kill would leave."""
    with tempfile.TemporaryDirectory() as folder, suppress(OSError, duckdb.Error):
        copy = Path(folder) / "copy.duckdb"
        shutil.copy(path, copy)
        shutil.copy(f"{path}.wal", f"{copy}.wal")
        with duckdb.connect(str(copy)) as connection:
            found = connection.execute(f"SELECT count(*) FROM generations WHERE {condition}").fetchall()
            return int(found[0][0])
    return 0


def results(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every number that was added up, by its table."""
    with Store(path, read_only=True) as store:
        return {table: store.query(f"SELECT * FROM {table} ORDER BY ALL").rows for table in _RESULTS}


def officials(path: Path) -> dict[tuple[str, ...], float | None]:
    """{(task, metric) or (grouping, name, metric): official number}."""
    with Store(path, read_only=True) as store:
        found = store.query("SELECT task, metric, official FROM task_scores").rows
        found += store.query('SELECT "grouping", name, metric, official FROM group_scores').rows
    return {tuple(name): number for *name, number in found}


def slowed(model: Path, tasks: str, folder: Path) -> Path:
    """The same answers, of which one in the middle takes its time: so there is a middle to be killed in."""
    answers = json.loads(model.read_text("utf-8"))
    keys = [key for key in answers if any(fnmatch(key, f"{task}/*") for task in tasks.split(","))]
    slow = keys[len(keys) // 2]
    path = folder / "slowed.json"
    path.write_text(json.dumps(answers | {slow: {"text": answers[slow], "delay_s": _SLOW_S}}))
    return path
