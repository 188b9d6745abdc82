"""Results files whole but for one column, which holds what lbx never writes, given to every command that reads one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests import profiles
from tests.attacks.jail import Jail
from tests.profiles import files

PHASES = (Phase.explicit, Phase.generate)
"""An example is small as it is; to shrink one would start hundreds of processes."""
STEERING = "\x1b]0;owned\x07\x9b31m\u202e"
TEXTS = (
    "",
    "x",
    "5",
    "NaN",
    STEERING,
    "a\nb",
    "../" * 9,
    "x" * 100_000,
    "9" * 5000,
    "[1]",
    "{}",
    "(" * 5000,
    "%s",
    "=1+1",
    None,
)
VALUES: dict[str, tuple[Any, ...]] = {
    "VARCHAR": TEXTS,
    "JSON": (
        "5", '"x"', "null", "[1]", "{}", "[]", "[null]", '{"a": [1]}', '{"": {"": {}}}', "true", "1e999", "-1",
        "9" * 5000,
        "[" * 900 + "]" * 900, '["\\u001b]0;owned\\u0007"]', '{"kind": 7, "files": 7, "metrics": 7}', None,
    ),
    "INTEGER": (0, -1, 2**31 - 1, -(2**31), None),
    "BIGINT": (0, -1, 2**63 - 1, -(2**63), None),
    "DOUBLE": (float("nan"), float("inf"), float("-inf"), 1e308, -1.0, 1e-300, None),
    "BOOLEAN": (True, False, None),
    "TIMESTAMP": (
        "infinity", "-infinity", "9999-12-31 23:59:59", "0001-01-01", "0290-01-01 (BC)", "290000-01-01", None,
    ),
    "BLOB": (b"", b"\0", b"\xff" * 1000),
}  # fmt: skip
NO = ("--port", "0")

COMMANDS: dict[str, tuple[object, ...]] = {
    "report": ("report", "r.duckdb"),
    **{f"report {view}": ("report", "r.duckdb", view) for view in (
        "leaderboard", "paper", "guards", "comparison", "changes", "judge_results", "rating_results", "agreement",
        "cost", "estimates", "failures", "board",
    )},
    "report as a page": ("report", "r.duckdb", "--format", "html", "-o", "out/page.html"),
    "report as JSON": ("report", "r.duckdb", "task_scores", "--format", "json"),
    "report as parquet": ("report", "r.duckdb", "leaderboard", "--format", "parquet", "-o", "out/x.parquet"),
    "sql": ("sql", "r.duckdb", "SELECT * FROM generations JOIN samples USING (benchmark, task, sample_id)"),
    "score": ("score", "r.duckdb"),
    "merge": ("merge", "r.duckdb", "-o", "out/all.duckdb"),
    "export": ("export", "longbench", "r.duckdb", "--run", "model", "-o", "out/preds"),
    "export of results": ("export", "longbench", "r.duckdb", "--run", "model", "-o", "out/results", "--results"),
    "export of a judge": ("export", "leval_judge", "r.duckdb", "--run", "the judge", "-o", "out/judged"),
    "export of ratings": ("export", "leval_ratings", "r.duckdb", "-o", "out/rated"),
    "show": ("show", "r.duckdb"),
    "show one": ("show", "r.duckdb", "leval/financial_qa/s0", "--run", "model"),
    "runs": ("runs", "r.duckdb"),
    "note": ("runs", "note", "r.duckdb", "model", "a=b"),
    "rename": ("runs", "rename", "r.duckdb", "model", "other"),
    "import": ("import", "longbench", "qasper.jsonl", "--model-name", "m", "-o", "r.duckdb"),
    "browse": ("browse", "r.duckdb", *NO),
    "check": ("check", "r.duckdb", "--run", "model", "--not-worse-than", "other"),
    "rate": ("rate", "r.duckdb", "--rater", "ann", "--questions", "all", *NO),
    "plan": ("plan", "-b", "bundle", "-m", "oracle.jsonl", "-t", "needle", "--no-measure-speed",
             "--history", "r.duckdb"),
    "run again": ("run", "--spec", "r.duckdb", "--run", "model", "-o", "out/new.duckdb", "--no-plan"),
    "status": ("status", "folder"),
}  # fmt: skip


@pytest.fixture(scope="session")
def rich(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A results file with something in every table."""
    return once("attacks-rich", _make_rich) / "r.duckdb"


def _make_rich(folder: Path) -> None:
    from tests.consistency.made_files import SETS, MadeFile, MadeRun, write

    names = ("LongBench, some", "LongBench-E", "v2", "Pro, some", "LV-Eval, some", "L-Eval, some", "needle")
    tasks = tuple(dict.fromkeys(task for name in names for task in SETS[name]))
    runs = tuple(
        MadeRun(name, name, codes, counts=0) for name, codes in (("model", (0, 1, 7)), ("other", (1, 0, 2, 8)))
    )
    write(folder / "r.duckdb", MadeFile(tasks, 3, 2, runs, judged=(0, 1, 2), rated=(0, 1, 4)))


@pytest.fixture(scope="session")
def columns(rich: Path) -> list[tuple[str, str, str]]:
    """(table, column, type) of all that hold rows."""
    with duckdb.connect(str(rich), read_only=True) as connection:
        held = connection.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() c JOIN duckdb_tables() USING (table_name) "
            "WHERE NOT c.internal AND estimated_size > 0 AND table_name <> 'lbx_schema' ORDER BY ALL"
        ).fetchall()
    assert {kind for _, _, kind in held} >= {"VARCHAR", "JSON", "INTEGER", "DOUBLE", "TIMESTAMP"}
    return [(table, column, kind) for table, column, kind in held if kind in VALUES]


def spoilt(rich: Path, path: Path, table: str, column: str, value: Any, *, one: bool) -> bool:
    """The file with another value in the column, of one row or of all; whether its constraints let that in."""
    shutil.copy(rich, path)
    cast = "::TIMESTAMP" if isinstance(value, str) and column.endswith("_at") else ""
    try:
        with duckdb.connect(str(path)) as connection:
            where = f"WHERE rowid = (SELECT min(rowid) FROM {table})" if one else ""
            connection.execute(f'UPDATE {table} SET "{column}" = ?{cast} {where}', [value])
    except (duckdb.ConstraintException, duckdb.ConversionException, duckdb.InvalidInputException):
        return False
    return True


@pytest.mark.parametrize("what", COMMANDS)
def test_a_column_holds_something_else(
    what: str,
    rich: Path,
    columns: list[tuple[str, str, str]],
    small: Path,
    jail: Jail,
    tmp_path: Path,
) -> None:
    @settings(max_examples=files(400), deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
    @given(st.sampled_from(columns), st.data(), st.booleans())
    def attack(column: tuple[str, str, str], data: st.DataObject, one: bool) -> None:
        value = data.draw(st.sampled_from(VALUES[column[2]]))
        folder = tmp_path / "place"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "out").mkdir(parents=True)
        (folder / "folder/results").mkdir(parents=True)
        (folder / "qasper.jsonl").write_text('{"pred": "a", "answers": ["a"], "all_classes": null, "length": 1}\n')
        for name in ("bundle", "oracle.jsonl"):
            (folder / name).symlink_to(small / name)
        assume(spoilt(rich, folder / "r.duckdb", *column[:2], value, one=one))
        ended = jail(folder, *COMMANDS[what])
        fault = ended.fault(may_change=("out/", "r.duckdb"), may_leave=(".cache", "r.duckdb"))
        assert not fault, (fault, ended)

    attack()


@pytest.mark.parametrize("what", profiles.every(3, [*COMMANDS]))
def test_the_whole_file_is_taken_by_all(what: str, rich: Path, small: Path, jail: Jail, tmp_path: Path) -> None:
    folder = tmp_path / "place"
    (folder / "out").mkdir(parents=True)
    (folder / "folder/results").mkdir(parents=True)
    (folder / "qasper.jsonl").write_text('{"pred": "a", "answers": ["a"], "all_classes": null, "length": 1}\n')
    for name in ("bundle", "oracle.jsonl"):
        (folder / name).symlink_to(small / name)
    shutil.copy(rich, folder / "r.duckdb")
    ended = jail(folder, *COMMANDS[what])
    assert not ended.fault(may_change=("out/", "r.duckdb"), may_leave=(".cache", "r.duckdb")), ended
