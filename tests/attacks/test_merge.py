"""Merging files from somebody else: what one of them holds must not get into the others' file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from lbx.base.errors import StoreError
from lbx.results import Store
from tests.attacks.attack_parts import refused
from tests.attacks.results_parts import changed, inside_folder, lbx, results_file, tree, view_for_table


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("merge")
    results_file(folder / "ours.duckdb", run="ours")
    results_file(folder / "theirs.duckdb", run="theirs", model="other")
    return folder


@pytest.fixture
def pair(made: Path, tmp_path: Path) -> tuple[Path, Path]:
    return tuple(Path(shutil.copy(made / name, tmp_path)) for name in ("ours.duckdb", "theirs.duckdb"))  # type: ignore[return-value]


def test_a_hostile_part_stops_the_merge(pair: tuple[Path, Path], tmp_path: Path) -> None:
    ours, theirs = pair
    view_for_table(theirs, "generations", "SELECT content FROM read_text('/etc/hostname')")
    out = tmp_path / "all.duckdb"
    for parts in ((ours, theirs), (theirs, ours)):
        refused(lbx("merge", *parts, "-o", out), "a view instead of its table generations")
    assert sorted(tree(tmp_path)) == ["ours.duckdb", "theirs.duckdb"]


def test_a_file_that_is_changed_after_it_was_looked_at(pair: tuple[Path, Path], tmp_path: Path) -> None:
    ours, theirs = pair
    with Store(tmp_path / "all.duckdb", allowed_files=[theirs]) as store:
        changed(theirs, "CREATE MACRO max(x) AS 42")
        with pytest.raises(StoreError, match="a macro, max"):
            store.attach(theirs, "lbx_source")
        with pytest.raises(StoreError, match="cannot be read"):
            store.attach(ours, "lbx_source")
        assert store.query("SELECT database_name FROM duckdb_databases() WHERE database_name = 'lbx_source'").rows == []


def test_what_else_a_file_holds_stays_behind(pair: tuple[Path, Path], tmp_path: Path) -> None:
    ours, theirs = pair
    changed(theirs, "CREATE VIEW mine AS SELECT 'evil' AS a", "CREATE TABLE more AS SELECT 'evil' AS a")
    out = tmp_path / "all.duckdb"
    assert lbx("merge", ours, theirs, "-o", out).code == 0
    found = lbx("sql", out, "SELECT table_name FROM duckdb_tables() UNION SELECT view_name FROM duckdb_views()")
    assert "leaderboard" in found.out
    assert "mine" not in found.out.split()
    assert "more" not in found.out.split()


@pytest.mark.parametrize("link", ["hard", "symbolic"])
def test_a_source_under_another_name_is_not_overwritten(pair: tuple[Path, Path], tmp_path: Path, link: str) -> None:
    ours, theirs = pair
    alias = tmp_path / "alias.duckdb"
    os.link(ours, alias) if link == "hard" else alias.symlink_to(ours)
    before = ours.read_bytes()
    lbx("merge", ours, theirs, "-o", alias, "--update")
    assert ours.read_bytes() == before


def test_a_quote_or_a_comment_in_a_name_is_a_name(pair: tuple[Path, Path], tmp_path: Path) -> None:
    ours, theirs = pair
    names = ["it's'; DROP TABLE runs; --.duckdb", 'a"b (READ_WRITE).duckdb', "c*[x].duckdb", "-d.duckdb"]
    with inside_folder(tmp_path):
        for name in names:
            shutil.copy(theirs, name)
            said = lbx("merge", ours, f"./{name}", "-o", f"./all-{name}")
            assert said.code == 0, said.err
            assert "2 answers" in said.out


def test_names_in_conflicts_do_not_steer(pair: tuple[Path, Path], tmp_path: Path) -> None:
    ours, theirs = pair
    steering = "\x1b]0;owned\x07"
    for path, model in ((ours, "a"), (theirs, f"b{steering}")):
        changed(path, f"UPDATE runs SET run_id = 'x{steering}', model = '{model}'")
    said = lbx("merge", ours, theirs, "-o", tmp_path / "all.duckdb")
    refused(said, "differs between")
    assert "\x1b" not in said.all


def test_pipes_are_not_waited_for(pair: tuple[Path, Path], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused(lbx("merge", pair[0], tmp_path / "pipe", "-o", tmp_path / "all.duckdb"), "pipe")
    refused(lbx("merge", *pair, "-o", tmp_path / "pipe", "--update"), "pipe")
