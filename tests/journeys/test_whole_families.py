"""Whole benchmarks from the hub to their papers' tables, by the commands, at the tasks' real counts.

Each family is bundled, verified, unpacked and asked of a scripted model whose answers were published or are golden
(``made_families``), until every number that its authors print of these answers is there, and equal (``papers``). Then
it is asked again in all the ways in which a run can be asked, broken off and put together; each ends in the same rows.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock
from zlib import crc32

import pytest

from lbx.backends.scripted import ScriptedBackend
from lbx.base.errors import BackendError
from lbx.base.records import Completion, Request
from lbx.benchmarks.registry import BENCHMARKS
from lbx.cluster.folder import RunFolder
from lbx.report.format import render
from lbx.report.format.table_cells import sheet
from lbx.report.reports import REPORTS, read_report
from lbx.report.rows.board import BOARDS
from lbx.results import Store
from tests import profiles
from tests.cluster.same_rows import same_rows
from tests.command_line import Lbx
from tests.journeys.asking import Asking, officials, results, slowed
from tests.journeys.made_families import FAMILIES
from tests.journeys.papers import METRICS, PRINTED

FINISHED = pytest.mark.parametrize("family", profiles.chosen([*FAMILIES], ["longbench_e", "longbench_v2", "leval"]))
"""Of a finished run; longbench has the tasks of longbench_e, and lveval's answers take a minute."""
INTERRUPTED = pytest.mark.parametrize("family", profiles.chosen([*FAMILIES], ["longbench_v2", "leval"]))

Shared = Callable[[str], Path]
OURS = {
    "longbench": {"rouge_l_unlimited"},
    "longbench_e": {"rouge_l_unlimited", *METRICS},  # over all lengths
    "longbench_v2": {"accuracy_all", "empty"},
    "lveval": {"rouge_l_unlimited", "keyword_f1_paper"},
}
"""Metrics of ours among the official numbers, which no authors' script prints."""


@FINISHED
def test_every_number_of_the_paper_is_there(family: str, asked_whole: Path, shared: Shared) -> None:
    printed = PRINTED[family](FAMILIES[family](shared), shared)
    found = officials(asked_whole)
    assert {name: found.get(name) for name in printed} == printed
    more = {name[-1].partition("/")[0] for name, number in found.items() if number is not None and name not in printed}
    assert more <= OURS.get(family, set())


@FINISHED
def test_no_report_lacks_a_number(family: str, asked_whole: Path) -> None:
    with Store(asked_whole, read_only=True) as store:
        rows = read_report(store, "paper").dicts()
        paper = render.markdown(sheet(REPORTS["paper"], read_report(store, "paper")))
        boards = {
            name: read_report(store, name).dicts()
            for name in BOARDS
            if name.removeprefix("board_").startswith(family[:8])
        }
        (leads,) = read_report(store, "leaderboard").dicts()
    # Pro's authors print no numbers of secondary tasks.
    assert all(row["official"] is not None for row in rows if family != "longbench_pro" or row["table"] != "tasks")
    assert " - " not in paper or family == "longbench_pro"
    assert " of " not in {row["run"] for row in rows}.pop()
    # v2's authors leave empty answers out.
    answered, note = (leads["asked"] - 6, "497 of 503") if family == "longbench_v2" else (leads["asked"], None)
    assert (leads["coverage"], leads["failed"], leads["answered"]) == (None, 0, answered)
    for name, board in boards.items():
        assert {row.get("note") for row in board if row["run_id"]} <= {note}, name


@FINISHED
def test_scored_again_it_is_the_same(family: str, asked_whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "again.duckdb"
    shutil.copy(asked_whole, path)
    done = Lbx()("score", path)
    assert done.returncode == 0, done.stderr
    same_rows(asked_whole, path)
    assert results(path) == results(asked_whole)


@INTERRUPTED
def test_in_shards(family: str, whole: Asking, asked_whole: Path, tmp_path: Path) -> None:
    """Of three shards one has workers, one a disk of its own, and one does not answer everything at once."""
    folder = RunFolder(tmp_path / "run")
    with Store(asked_whole, read_only=True) as store:
        ((name,),) = store.query("SELECT run_id FROM runs").rows
    done = whole.lbx(
        "submit", "kubernetes", *whole.what(), "--name", name, "-o", folder.root, "--shards", 3, "--image", "lbx:1",
        "--run-claim", "r", "--bundle-claim", "b",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shards = ["--name", name, "--shard-plan", folder.plan_file, "--shard"]
    whole(folder.shard(0), *shards, 0, "--workers", 2)
    (tmp_path / "disk").mkdir()
    whole(folder.shard(1), *shards, 1, "--scratch", tmp_path / "disk")
    with failing():
        whole(folder.shard(2), *shards, 2, code=3)
    whole(folder.shard(2), *shards, 2, "--retry-failed", "--retry-empty")
    merged = whole.lbx("merge", folder.root, "--json")
    assert (merged.returncode, json.loads(merged.stdout)["gaps"]) == (0, [])
    same_rows(asked_whole, folder.results)
    assert results(folder.results) == results(asked_whole)


@INTERRUPTED
@pytest.mark.parametrize("more", [["--workers", 2], ["--scratch", "disk"]], ids=["workers", "scratch"])
def test_asked_in_another_way(family: str, part: Asking, asked_part: Path, tmp_path: Path, more: list[object]) -> None:
    (tmp_path / "disk").mkdir()
    part(tmp_path / "r.duckdb", more[0], tmp_path / "disk" if more[1] == "disk" else more[1])
    same_rows(asked_part, tmp_path / "r.duckdb")
    assert results(tmp_path / "r.duckdb") == results(asked_part)


@INTERRUPTED
@pytest.mark.parametrize("more", [[], ["--workers", 2], ["--scratch", "disk"]], ids=["alone", "workers", "scratch"])
def test_killed_and_continued(family: str, part: Asking, asked_part: Path, tmp_path: Path, more: list[object]) -> None:
    (tmp_path / "disk").mkdir()
    more = [tmp_path / "disk" if one == "disk" else one for one in more]
    slow = replace(part, model=slowed(part.model, part.tasks, tmp_path))
    slow.kill(tmp_path / "r.duckdb", "--name", "r", *more)
    told = json.loads(slow(tmp_path / "r.duckdb", "--name", "r", "--json", *more).stdout)
    assert told["done_before"] > 0 < told["answered"], "it was killed in the middle"
    assert numbers(tmp_path / "r.duckdb") == numbers(asked_part)


@INTERRUPTED
def test_failed_and_empty_answers_are_asked_again(family: str, part: Asking, asked_part: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.duckdb"
    with failing():
        part(path, code=3)
    with Store(path, read_only=True) as store:
        hit = store.query("SELECT DISTINCT task FROM failures WHERE error = 'the card caught fire'").rows
        whole = store.query("SELECT task, official FROM task_scores WHERE headline AND official IS NOT NULL").rows
        said = {row["partial"] for row in read_report(store, "task_scores").dicts() if (row["task"],) in hit}
    assert hit and not {task for task, _ in whole} & {task for (task,) in hit}
    assert said == {True}
    part(path, "--retry-failed", "--retry-empty")
    same_rows(asked_part, path)
    assert results(path) == results(asked_part)


@INTERRUPTED
def test_a_part_says_so_and_goes_on(family: str, part: Asking, asked_part: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.duckdb"
    done = part(path, "--limit", 3)
    assert "samples have an answer" in done.stdout
    assert set(officials(path).values()) == {None}
    with Store(path, read_only=True) as store:
        iterations = BENCHMARKS[family.removesuffix("_e")].protocol.iterations
        answers = re.compile(f"{3 * iterations} of [0-9]+{' answers' * (iterations > 1)}")
        assert all(answers.fullmatch(row["coverage"]) for row in read_report(store, "task_scores").dicts())
        unit = " answers)" if iterations > 1 else " samples)"
        assert not read_report(store, "paper").rows or unit in read_report(store, "paper").dicts()[0]["run"]
    part(path)
    same_rows(asked_part, path)
    assert results(path) == results(asked_part)


def numbers(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every number, whatever its run is called."""
    return {table: [row[1:] for row in rows] for table, rows in results(path).items()}


@contextmanager
def failing() -> Iterator[None]:
    """The model fails at one question in seven, and says nothing to one in eleven."""
    answered = ScriptedBackend._answer

    def answer(self: ScriptedBackend, request: Request) -> Completion:
        number = crc32(str(request.key).encode())
        if number % 7 == 0:
            raise BackendError("the card caught fire")
        said = answered(self, request)
        return replace(said, text="") if number % 11 == 0 else said

    with mock.patch.object(ScriptedBackend, "_answer", answer):
        yield
