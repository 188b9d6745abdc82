"""Texts in columns of names, numbers and facts: none leaves with a file without texts.

A stranger may hide them there; somebody may type them into a note, a run's name or a path without a thought.
"""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from lbx.results.file.contents import COLUMN_TYPES
from tests import profiles
from tests.attacks.attack_parts import refused
from tests.attacks.results_parts import changed, lbx, results_file

TEXT = "The patient in bed four of ward nine was treated twice"
SESSION = (
    "INSERT INTO sessions BY NAME SELECT 'r1' AS run_id, 1 AS session, now()::TIMESTAMP AS started_at, "
    "'done' AS status, 0 AS workers, '{}' AS hardware, '{}' AS spec"
)
AS_A_JUDGE = (
    "INSERT INTO {} BY NAME SELECT * REPLACE ('judge' AS benchmark, 'better' AS task, 'round' AS sample_id) "
    "FROM {} LIMIT 1"
)
ROUND = (
    "INSERT INTO rounds BY NAME SELECT 'better' AS rubric, 'round' AS round_id, 'pair' AS kind, benchmark, task, "
    "sample_id, run_id, iteration, 'other' AS against_run_id, 0 AS against_iteration, true AS answer_first, "
    "'' AS document_sha256, [] AS marks FROM generations WHERE benchmark <> 'judge' LIMIT 1"
)
COLUMNS = [
    (table, column)
    for (table, column), kind in COLUMN_TYPES.items()
    if table in ("runs", "samples", "rounds", "generations", "scores", "numbers", "sessions")
    and kind in ("VARCHAR", "JSON")
]
FORMS = {
    "a value": {"a": TEXT},
    "a key": {TEXT: 1},
    "in a list": [TEXT, 1],
    "deep down": {"a": {"b": [{"c": {"d": {"e": TEXT}}}]}},
    "digits": {"n": int("9" * 400)},
    "a text of one word": {"a": "patient" * 40},
    "lines": {"a": "patient\ntreated"},
    "signs that nobody sees": {"a": "patient\u200b\U000e0041"},
}


def values_of(path: Path) -> str:
    with duckdb.connect(str(path), read_only=True) as connection:
        tables = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        return "\n".join(str(row) for (table,) in tables for row in connection.execute(f'FROM "{table}"').fetchall())


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return changed(
        results_file(tmp_path_factory.mktemp("extract") / "r.duckdb"),
        SESSION,
        *(AS_A_JUDGE.format(*[table] * 2) for table in ("samples", "generations")),
        ROUND,
    )


def extracted(source: Path, folder: Path, column: str, value: str) -> tuple[object, Path]:
    table, _, name = column.partition(".")
    path, target = folder / "changed.duckdb", folder / "new.duckdb"
    path.write_bytes(source.read_bytes())
    changed(path, f"UPDATE {table} SET \"{name}\" = '{value}'")
    return lbx("runs", "extract", path, "--without-texts", "-o", target, "--json"), target


def test_a_file_without_them_is_copied_whole(source: Path, tmp_path: Path) -> None:
    said = lbx("runs", "extract", source, "--without-texts", "-o", tmp_path / "new.duckdb", "--json")
    assert said.code == 0, said
    assert json.loads(said.out)["removed_facts"] == {}


@pytest.mark.parametrize("column", profiles.every(4, [f"{table}.{column}" for table, column in COLUMNS]))
def test_no_column_takes_a_text_along(source: Path, tmp_path: Path, column: str) -> None:
    is_json = COLUMN_TYPES[tuple(column.split("."))] == "JSON"  # type: ignore[index]
    said, target = extracted(source, tmp_path, column, json.dumps({"a": TEXT}) if is_json else TEXT)
    if said.code:  # type: ignore[attr-defined]
        refused(said, "texts in the column", "No file was written")  # type: ignore[arg-type]
        assert not target.exists()
    else:
        assert "patient" not in values_of(target)


@pytest.mark.parametrize(
    ("column", "form"),
    profiles.crossed(["runs.settings", "runs.hardware", "sessions.spec", "samples.meta"], FORMS),
)
def test_no_form_of_json_takes_a_text_along(source: Path, tmp_path: Path, column: str, form: str) -> None:
    said, target = extracted(source, tmp_path, column, json.dumps(FORMS[form]))
    assert said.code == 0, said  # type: ignore[attr-defined]
    values = values_of(target)
    assert "patient" not in values and "9" * 99 not in values
    if column != "samples.meta":
        assert json.loads(said.out)["removed_facts"] == {column: 1}  # type: ignore[attr-defined]


def test_what_was_removed_is_told(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "noted.duckdb"
    path.write_bytes(source.read_bytes())
    assert lbx("runs", "note", path, "r1", f"remark={TEXT}", "PE=no").code == 0
    said = lbx("runs", "extract", path, "--without-texts", "-o", tmp_path / "new.duckdb")
    assert "lists of CPU features, were removed from runs.metadata (1 row)" in " ".join(said.err.split())
    assert lbx("sql", tmp_path / "new.duckdb", "SELECT metadata FROM runs", "-f", "csv").out.count("no") == 1
    texts = json.loads(lbx("runs", "texts", path, "--json").out)["texts"]
    assert [row["origin"] for row in texts if row["column"] == "metadata"] == ["fact"]


def test_runs_with_other_texts_in_their_settings_stay_distinct(source: Path, tmp_path: Path) -> None:
    kept = set()
    for at in range(2):
        folder = tmp_path / str(at)
        folder.mkdir()
        said, target = extracted(source, folder, "runs.settings", json.dumps({"a": f"{TEXT} {at}"}))
        assert said.code == 0, said  # type: ignore[attr-defined]
        with duckdb.connect(str(target), read_only=True) as connection:
            kept |= {str(connection.execute("SELECT settings FROM runs").fetchone())}
    assert len(kept) == 2
    assert all("sha256:" in settings for settings in kept)
