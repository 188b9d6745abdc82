"""Columns of a results file with other types, or JSON of another form, than lbx writes: refused or read."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lbx.base import errors
from lbx.opinions.journal import collect_ratings
from lbx.opinions.rating_files import PAGE_ROW
from lbx.results.file.contents import COLUMN_TYPES
from lbx.web.browsing import BrowsingPages
from tests import profiles
from tests.attacks import attack_parts  # noqa: F401  # makes the rooms' helpers importable
from tests.attacks.attack_parts import refused
from tests.attacks.results_parts import changed, lbx, results_file
from tests.opinions.rated_file import answers_file, rate_all
from tests.profiles import files
from tests.web.sites import client_of, site_of

COLUMNS = sorted((table, column) for (table, column), kind in COLUMN_TYPES.items() if kind == "JSON")
LISTS = ("references", "steps", "runs")


class Made(bytes):
    """A file's bytes, of which a failing example need not print all."""

    def __repr__(self) -> str:
        return "whole"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A results file with a row in every table that has JSON."""
    path = tmp_path_factory.mktemp("whole") / "whole.duckdb"
    answers_file(path)
    rate_all(path, "ann", 4)
    collect_ratings(path)
    results_file(path)
    changed(
        path,
        "INSERT INTO sessions (run_id, session, started_at, status, workers, hardware, spec) "
        "VALUES ('r1', 1, '2026-01-01', 'done', 0, '{}', '{}')",
        "UPDATE generations SET steps = '[{\"output\": \"a\"}]' WHERE run_id = 'alpha'",
        'UPDATE runs SET metadata = \'{"a": "b"}\', task_samples = \'{"longbench/qasper": 1}\', '
        "unscored_samples = '{\"longbench/qasper\": 0}'",
    )
    return Made(path.read_bytes())


def every_reader(path: Path, folder: Path) -> list[list[object]]:
    """Commands that come upon each of the columns."""
    return [
        ["report", path],
        ["report", path, "task_scores", "-f", "json"],
        ["report", path, "cost", "-f", "csv"],
        ["report", path, "-f", "html", "-o", folder / "page.html"],
        ["show", path, "q000", "--full"],
        ["score", path],
        ["merge", path, "-o", folder / "merged.duckdb", "--update"],
        ["export", "longbench", path, "--run", "r1", "-o", folder / "out", "--force"],
        ["export", "longbench", path, "--run", "r1", "--results", "-o", folder / "results", "--force"],
        ["runs", path],
        ["runs", "note", path, "r1"],
        ["runs", "rename", path, "r1", "r1-renamed"],
        ["runs", "rename", path, "r1-renamed", "r1"],
        ["sql", path, "SELECT * FROM leaderboard"],
    ]


def read_or_refused(*command: object) -> None:
    """The command ends well or with one sentence, and without a traceback."""
    said = lbx(*command)
    assert "did not expect" not in said.err, (command, said.err)
    assert said.code in (0, 3) or "error: " in said.err, (command, said.err)


@pytest.mark.parametrize(("table", "column"), profiles.every(3, COLUMNS), ids=lambda name: name)
def test_json_of_another_form_is_refused_or_read(whole: bytes, tmp_path: Path, table: str, column: str) -> None:
    path = tmp_path / "got.duckdb"
    others = ["5", "null", '"text"', '{"a": {"b": []}}' if column in LISTS else "[1]", "[" * 101 + "]" * 101]
    if column in LISTS:
        others.append("[null]")
    for other in others:
        path.write_bytes(whole)
        changed(path, f"UPDATE {table} SET \"{column}\" = '{other}'")
        for command in (
            ["report", path],
            ["score", path],
            ["merge", path, "-o", tmp_path / "merged.duckdb", "--update"],
        ):
            read_or_refused(*command)


LONG = "9" * 5000


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("runs", "settings", f'{{"context_window": {LONG}}}'),
        ("runs", "settings", '{"a":' * 100_000 + "1" + "}" * 100_000),
        ("runs", "hardware", '{"a":' * 200 + "1" + "}" * 200),
        ("samples", "meta", f'{{"row": {LONG}}}'),
        ("samples", "meta", '{"a":' * 100_000 + "1" + "}" * 100_000),
        ("sessions", "hardware", f'{{"cores": -{LONG}}}'),
    ],
)
def test_json_that_python_cannot_read_is_refused_or_ignored(
    whole: bytes, tmp_path: Path, table: str, column: str, value: str
) -> None:
    path = tmp_path / "got.duckdb"
    path.write_bytes(whole)
    changed(path, f"UPDATE {table} SET {column} = '{value}'")
    for command in every_reader(path, tmp_path):
        read_or_refused(*command)


def test_an_error_of_values_names_the_file_and_a_bug_does_not(
    whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "got.duckdb"
    path.write_bytes(whole)
    shown = ("show", path, "q000")

    def fails_with(error: Exception) -> str:
        def find_answers(*_: object) -> None:
            raise error

        monkeypatch.setattr("lbx.cli.showing.find_answers", find_answers)
        return lbx(*shown).err

    assert str(path) in fails_with(KeyError("judged"))
    assert str(path) in fails_with(AttributeError("no items", name="items", obj=[]))
    for bug in (AttributeError("no items", name="items", obj=json), AssertionError("never")):
        assert "did not expect" in fails_with(bug)


def test_an_error_in_a_backend_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "files_read", {Path("r.duckdb")})
    backend: dict[str, Any] = {"__name__": "lbx.backends.other"}
    exec("def compute(): raise ValueError('no shape')", backend)
    with pytest.raises(ValueError, match="no shape") as caught:
        backend["compute"]()
    assert errors.stored_value_error(caught.value) is None
    assert "r.duckdb" in str(errors.stored_value_error(ValueError("no shape")))


def test_a_page_of_odd_values_names_the_file_and_quotes_no_value(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "got.duckdb"
    path.write_bytes(whole)
    changed(path, "UPDATE generations SET steps = '[7]'")
    with site_of(BrowsingPages(path).routes) as site:
        answer = client_of(site, raise_server_exceptions=False).get(
            "/answer?run=alpha&benchmark=leval&task=narrative_qa&sample=q000"
        )
    assert answer.status_code == 500 and path.name in answer.text and "unexpected error" not in answer.text
    assert not re.search("[A-Z][a-z]+Error", answer.text), "an error's text may hold what raters are not to see"


def test_brackets_and_digits_in_texts_are_texts(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "got.duckdb"
    path.write_bytes(whole)
    text = json.dumps([{"output": "[" * 500 + '"' + LONG}]).replace("'", "''")
    changed(path, f"UPDATE generations SET steps = '{text}'")
    assert lbx("report", path).code == 0


OTHER_TYPES = {
    ("ratings", "source_row"): "INTEGER", ("ratings", "created_at"): "VARCHAR", ("ratings", "score"): "VARCHAR",
    ("generations", "source_row"): "BLOB", ("generations", "output"): "BLOB", ("runs", "settings"): "VARCHAR",
    ("runs", "started_at"): "VARCHAR", ("samples", "meta"): "VARCHAR", ("scores", "score"): "VARCHAR",
    ("generations", "output_ids"): "VARCHAR", ("rating_sets", "scale_low"): "VARCHAR",
}  # fmt: skip


@pytest.mark.parametrize(("table", "column"), OTHER_TYPES, ids=lambda name: name)
def test_a_column_of_another_type_is_named(whole: bytes, tmp_path: Path, table: str, column: str) -> None:
    path, kind = tmp_path / "got.duckdb", OTHER_TYPES[table, column]
    path.write_bytes(whole)
    with duckdb.connect(str(path)) as connection:
        for (name,) in connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall():
            connection.execute(f"DROP VIEW {name}")
        connection.execute(
            f"CREATE TABLE other AS SELECT * REPLACE (TRY_CAST({column} AS {kind}) AS {column}) FROM {table}"
        )
        connection.execute(f"DROP TABLE {table}; ALTER TABLE other RENAME TO {table}")
    for command in every_reader(path, tmp_path)[:8]:
        refused(lbx(*command), f"the column {column} of the table {table} has type {kind}")


@pytest.mark.parametrize("kept", ["5", "[1]", '{"a": 1}', "nonsense", "[" * 100_000, LONG])
def test_a_page_s_row_of_another_form_is_said_so(whole: bytes, tmp_path: Path, kept: str) -> None:
    path = tmp_path / "got.duckdb"
    path.write_bytes(whole)
    page = f"UPDATE ratings SET run_id = '{PAGE_ROW}', source_row = '{kept}'"
    changed(path, "DELETE FROM ratings WHERE run_id = 'beta'", page)
    refused(lbx("export", "leval_ratings", path, "-o", tmp_path / "out"))


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["judged_by", "evaluation", "all_classes", "files", "imported", "devices", "gpu", "cores",
                             "n_gpu_layers", "features", "depth", "choices", "judged", "output", "longbench", "x"]),
            inner, max_size=4,
        ),
    ),
    max_leaves=8,
)  # fmt: skip


@given(where=st.sampled_from(COLUMNS), value=VALUES, reader=st.integers(0, 10))
@example(("samples", "references"), 5, 5)
@example(("samples", "meta"), [1], 5)
@example(("samples", "meta"), {"all_classes": 5, "judged_by": [[]], "evaluation": {}}, 5)
@example(("sessions", "hardware"), {"gpu": 1, "devices": 5}, 2)
@example(("sessions", "hardware"), {"n_gpu_layers": "x", "features": "CUDA0 :"}, 2)
@example(("runs", "settings"), {"imported": "longbench", "files": [5]}, 7)
@example(("runs", "settings"), {"imported": ["a"], "files": {"a": 1}}, 8)
@example(("generations", "steps"), [{"output": 5}], 4)
@settings(max_examples=files(150))
def test_any_json_in_any_column_is_refused_or_read(
    whole: bytes, where: tuple[str, str], value: Any, reader: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "got.duckdb"
        path.write_bytes(whole)
        with duckdb.connect(str(path)) as connection:
            connection.execute(f'UPDATE {where[0]} SET "{where[1]}" = ?::JSON', [json.dumps(value)])
        read_or_refused(*every_reader(path, Path(folder))[reader])
        shutil.rmtree(Path(folder) / "out", ignore_errors=True)
