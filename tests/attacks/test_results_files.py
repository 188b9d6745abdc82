"""Results files from somebody else: views in the places of tables, macros, names that DuckDB takes for addresses."""

from __future__ import annotations

import ast
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from lbx.benchmarks.base.sources import find_parquet
from tests.attacks.attack_parts import refused
from tests.attacks.results_parts import (
    can_watch,
    changed,
    inside_folder,
    lbx,
    process,
    results_file,
    tree,
    view_for_table,
    watched,
)

LBX = Path(__file__).parents[2] / "lbx"
SECRET = "root-of-all-secrets"

needs_namespaces = pytest.mark.skipif(not can_watch(), reason="needs unshare -rn and strace")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results_file(tmp_path_factory.mktemp("plain") / "plain.duckdb")


@pytest.fixture
def victim(plain: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(plain, tmp_path / "got.duckdb"))


def every_command(path: Path, folder: Path) -> list[list[object]]:
    """All that read or write a results file."""
    (folder / "qasper.jsonl").write_text('{"pred": "a", "answers": ["a"], "all_classes": null, "length": 1}\n')
    return [
        ["report", path],
        ["report", path, "task_scores", "--format", "html"],
        ["report", path, "failures", "--format", "csv"],
        ["sql", path, "SELECT * FROM runs"],
        ["sql", path, "SELECT * FROM runs", "--format", "parquet", "-o", folder / "out.parquet"],
        ["score", path],
        ["merge", path, "-o", folder / "merged.duckdb"],
        ["export", "longbench", path, "--run", "r1", "-o", folder / "exported"],
        ["import", "longbench", folder / "qasper.jsonl", "--model-name", "m", "-o", path],
    ]


@needs_namespaces
def test_the_watch_sees_a_connection(tmp_path: Path) -> None:
    log = tmp_path / "log"
    knock = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('10.0.0.1', 9))"
    subprocess.run(
        ["unshare", "-rn", "strace", "-f", "-qq", "-e", "trace=connect", "-o", log, sys.executable, "-c", knock],
        capture_output=True,
        check=False,
    )
    assert "AF_INET" in log.read_text()


@needs_namespaces
def test_nothing_reaches_out(plain: Path, tmp_path: Path) -> None:
    """A view in a table's place that fetches, from every command; and names that DuckDB takes for addresses."""
    path = Path(shutil.copy(plain, tmp_path / "got.duckdb"))
    # A view is bound when it is made, and so is a macro without arguments. One with an argument is bound when used.
    changed(path, f"CREATE MACRO fetched(a) AS TABLE SELECT content FROM read_text('{__file__}' || a)")
    view_for_table(path, "runs", "FROM fetched('')")
    fetching = "SELECT content FROM read_text('http://127.0.0.1:9/x' || a)"
    changed(path, f"CREATE OR REPLACE MACRO fetched(a) AS TABLE {fetching}")
    views = every_command(path, tmp_path)
    named: list[list[object]] = []
    for name in ADDRESSES:
        named.append(["report", name])
        named.append(["import", "longbench", "qasper.jsonl", "--model-name", "m", "-o", name])
    named.append(["merge", *ADDRESSES, "-o", "md:merged"])
    said, connections = watched([*views, *named], tmp_path)
    assert not connections
    for one in said[: len(views)]:
        refused(one, "a view instead of its table runs")
    assert not list(tmp_path.rglob("*.duckdb_extension"))
    for name, read, written in zip(ADDRESSES, said[len(views) :: 2], said[len(views) + 1 :: 2], strict=False):
        refused(read, f"The results file {name} does not exist")
        assert written.code == 0, written.err
        assert (tmp_path / name).is_file()
    assert said[-1].code == 0, said[-1].err
    assert (tmp_path / "md:merged").is_file()


ADDRESSES = ("md:x", "postgres:dbname=x", "ducklake:x", "sqlite:x", "s3:x", "http:x")


@pytest.mark.parametrize("table", ["runs", "samples", "rounds", "generations", "numbers"])
def test_a_view_that_reads_a_file_tells_nothing(victim: Path, tmp_path: Path, table: str) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    view_for_table(victim, table, f"SELECT content FROM read_text('{secret}')")
    before = victim.read_bytes()
    commands = every_command(victim, tmp_path)
    for command in commands if table == "runs" else commands[-3:]:
        said = lbx(*command)
        refused(said, "a view instead of its table", table)
        assert SECRET not in said.all
    assert victim.read_bytes() == before
    assert not any(SECRET.encode() in data for name, data in tree(tmp_path).items() if name != secret.name)


HELD = {
    "a macro for avg": "CREATE MACRO avg(x) AS 1.0",
    "a macro for a table": "CREATE MACRO range(x) AS TABLE SELECT 42",
    "a sequence": "CREATE SEQUENCE numbers",
    "a type": "CREATE TYPE mood AS ENUM ('good')",
    "a schema": "CREATE SCHEMA other",
    "a trigger": "CREATE TABLE noted (run VARCHAR); CREATE TRIGGER quiet AFTER INSERT ON runs REFERENCING NEW TABLE AS "
    "new_rows FOR EACH STATEMENT INSERT INTO noted SELECT run_id FROM new_rows",
    "a computed column": "CREATE TABLE made (a INTEGER, b INTEGER GENERATED ALWAYS AS (a + 1))",
    "a version that is a view": "ALTER TABLE lbx_schema RENAME TO aside; CREATE VIEW lbx_schema AS SELECT * FROM aside",
}


@pytest.mark.parametrize("what", HELD)
def test_what_lbx_never_makes_is_refused(victim: Path, tmp_path: Path, what: str) -> None:
    changed(victim, HELD[what])
    before = victim.read_bytes()
    for command in (["report", victim], ["merge", victim, "-o", tmp_path / "all.duckdb"]):
        refused(lbx(*command))
    assert victim.read_bytes() == before
    assert not (tmp_path / "all.duckdb").exists()


def test_what_stands_in_the_log_beside_the_file_is_seen_too(victim: Path) -> None:
    script = "c = duckdb.connect(sys.argv[1]); c.execute('CREATE MACRO avg(x) AS 1.0'); os._exit(0)"
    subprocess.run([sys.executable, "-c", f"import duckdb, os, sys; {script}", victim], check=True)
    assert Path(f"{victim}.wal").stat().st_size
    refused(lbx("report", victim), "a macro, avg")


def test_a_view_of_lbx_s_own_name_is_not_asked(victim: Path) -> None:
    changed(victim, "CREATE OR REPLACE VIEW leaderboard AS SELECT 'spoofed' AS run_id")
    said = lbx("report", victim, "leaderboard")
    assert said.code == 0
    assert "spoofed" not in said.out
    assert "100.0" in said.out


def test_tables_that_are_not_as_they_should_be(victim: Path) -> None:
    changed(victim, "DROP TABLE scores")
    refused(lbx("report", victim))


@pytest.mark.parametrize("name", [":memory:", ":memory:x", "", "x?access_mode=read_only", os.fsdecode(b"\xff.duckdb")])
def test_no_file_at_all_is_refused_before_anything_is_lost(tmp_path: Path, name: str) -> None:
    predictions = tmp_path / "qasper.jsonl"
    predictions.write_text('{"pred": "a", "answers": ["a"], "all_classes": null, "length": 1}\n')
    with inside_folder(tmp_path):
        refused(lbx("import", "longbench", predictions, "--model-name", "m", "-o", name))
        refused(lbx("report", name))
        refused(lbx("merge", predictions, "-o", name))
    assert list(tree(tmp_path)) == [predictions.name]


def test_a_run_into_memory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.jsonl").write_text('{"key": "*", "text": "x"}\n')
    (tmp_path / "bundle").mkdir()
    said = process("run", "-b", "bundle", "-m", "model.jsonl", "-t", "all", "-o", ":memory:", cwd=tmp_path)
    refused(said)
    assert "results in :memory:" not in said.all


def test_a_pipe_is_not_waited_for(plain: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.duckdb"
    os.mkfifo(pipe)
    for command in every_command(pipe, tmp_path):
        refused(lbx(*command))
    refused(lbx("merge", plain, pipe, "-o", tmp_path / "all.duckdb"), "pipe")


def test_other_kinds_of_databases_are_not_opened(tmp_path: Path) -> None:
    other = tmp_path / "other.duckdb"
    for start in (b"SQLite format 3\x00" + bytes(1000), b"a,b\n1,2\n", b"PAR1" + bytes(100), bytes(8) + b"DUCK" * 2000):
        other.write_bytes(start)
        for command in (["report", other], ["score", other], ["sql", other, "SELECT 1"]):
            refused(lbx(*command))
        assert other.read_bytes() == start


def test_parquet_s_names_are_no_patterns_and_no_columns(tmp_path: Path) -> None:
    folder = tmp_path / "b*[x]" / "conf" / "split=forged"
    folder.mkdir(parents=True)
    for name in ("0[1].parquet", "0*.parquet", "01.parquet"):
        duckdb.execute(f"COPY (SELECT '{name}' AS name) TO '{tmp_path}/made.parquet'")
        (tmp_path / "made.parquet").rename(folder / name)
    source = find_parquet(tmp_path / "b*[x]", "conf")
    assert source is not None
    assert [row.values for row in source.rows()] == [{"name": path.name} for path in sorted(folder.iterdir())]
    assert source.count() == 3


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, to be less than that")
def test_somebody_who_may_not_is_told_so(plain: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(plain, tmp_path / "results.duckdb"))
    os.chown(path, 65534, 65534)
    os.chown(tmp_path, 65534, 65534)
    tmp_path.chmod(0o755)
    before = path.read_bytes()
    without_rights = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]
    path.chmod(0o644)
    assert process("report", path, before=without_rights).code == 0
    refused(process("score", path, before=without_rights), str(path))
    path.chmod(0o600)
    refused(process("report", path, before=without_rights), "not readable")
    assert tree(tmp_path) == {path.name: before}


def test_one_module_opens_duckdb() -> None:
    opens = {"connect", "from_parquet", "read_parquet", "read_csv", "query", "sql", "execute", "default_connection"}
    for path in LBX.rglob("*.py"):
        place = str(path.relative_to(LBX))
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = node.value.id if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ""
            if isinstance(node, ast.Attribute) and name == "duckdb" and node.attr in opens:
                assert place == "base/database.py", f"{place}, line {node.lineno}: duckdb.{node.attr}"
            if isinstance(node, ast.ImportFrom) and node.module == "duckdb":
                raise AssertionError(f"{place}, line {node.lineno}: from duckdb import")
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "ATTACH '" in node.value:
                raise AssertionError(f"{place}, line {node.lineno}: ATTACH")
            if isinstance(node, ast.Import) and any(alias.name == "duckdb" for alias in node.names):
                assert place in ("base/database.py", "opinions/rating_rows.py") or place.startswith("results/"), (
                    f"{place}, line {node.lineno}"
                )


def test_a_listener_on_this_machine_hears_nothing(victim: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        for sql in (f"SELECT * FROM read_text('{url}')", f"FROM '{url}.parquet'", f"FROM read_csv('{url}')"):
            refused(lbx("sql", victim, sql))
            refused(lbx("sql", victim, sql, "--format", "parquet", "-o", tmp_path / "x.parquet"))
        with pytest.raises(TimeoutError):
            listener.accept()
