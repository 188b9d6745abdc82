"""Single values changed in a results file, by other programs: each is found, and its row and column are named."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
from attested_file import attest, changed_rows, check, make_key, results_to_attest

from lbx.store.contents import COLUMN_TYPES
from lbx.store.row_digests import COLUMNS

TEXT = ("{c} || 'x'", "{c} || ' '", "upper({c})", "lower({c})", "''", "NULL", "reverse({c})", "replace({c}, 'a', 'а')")
WHOLE = ("{c} + 1", "-{c}", "0", "NULL", "{c} * 10")
EDITS: dict[str, tuple[str, ...]] = {
    "VARCHAR": TEXT,
    "JSON": (*TEXT, "replace({c}, ',', ', ')", "'{{}}'", "'[]'", "'null'"),
    "INTEGER": WHOLE,
    "BIGINT": WHOLE,
    "DOUBLE": ("next_up({c})", "-{c}", "{c} * 10", "{c} / 10", "'nan'", "0", "'-0.0'", "NULL", "'inf'"),
    "BOOLEAN": ("NOT {c}", "false", "true", "NULL"),
    "TIMESTAMP": ("{c} + INTERVAL 1 MICROSECOND", "{c} - INTERVAL 1 HOUR", "NULL"),
    "INTEGER[]": ("list_append({c}, 0)", "list_reverse({c})", "[]", "NULL", "list_append({c}, NULL)"),
}
"""{type: SQL for another value}"""


class Edit(NamedTuple):
    """A change of a value, and the key of its row before."""

    table: str
    column: str
    sql: str
    key: tuple[Any, ...]


@pytest.fixture(scope="module")
def attested(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A results file with its attestation, and the key."""
    folder = tmp_path_factory.mktemp("attested")
    key, path = make_key(folder), results_to_attest(folder / "results.duckdb")
    attest(path, key)
    return path, key


def changed_copies(path: Path, copy: Path, count: int, seed: int = 0) -> Iterator[Edit]:
    """Copies with one changed value each: in turn from every column, a random row and another value."""
    rng = random.Random(seed)
    columns = [(table, column) for table in COLUMNS for column in COLUMNS[table].values]
    made = 0
    while made < count:
        rng.shuffle(columns)
        for table, column in columns:
            shutil.copyfile(path, copy)
            if (edit := _change_value(copy, table, column, rng)) is not None and made < count:
                made += 1
                yield edit


def _change_value(path: Path, table: str, column: str, rng: random.Random) -> Edit | None:
    key_columns = ", ".join(f'"{name}"' for name in COLUMNS[table].key)
    edits = [*EDITS[COLUMN_TYPES[table, column]]]
    rng.shuffle(edits)
    with duckdb.connect(str(path)) as connection:
        connection.create_function("next_up", lambda value: math.nextafter(value, math.inf), ["DOUBLE"], "DOUBLE")
        rows = connection.execute(f"SELECT rowid, {key_columns} FROM {table}").fetchall()
        if not rows:
            return None
        place, *key = rng.choice(rows)
        name, kind = f'"{column}"', COLUMN_TYPES[table, column]
        as_text = f"({{}})::{kind}::{'BIT::' if kind == 'DOUBLE' else ''}VARCHAR"
        for edit in edits:
            sql = edit.format(c=name)
            same = f"{as_text.format(sql)} IS NOT DISTINCT FROM {as_text.format(name)}"
            try:
                if connection.execute(f"SELECT {same} FROM {table} WHERE rowid = {place}").fetchone() == (True,):
                    continue
                connection.execute(f"UPDATE {table} SET {name} = {sql} WHERE rowid = {place}")
            except (
                duckdb.ConstraintException,
                duckdb.ConversionException,
            ):  # NOT NULL, the key of another row, no JSON
                continue
            return Edit(table, column, sql, tuple(key))
    return None


def assert_named(edit: Edit, path: Path, key: Path) -> None:
    """The report names the changed row, and its column if it is not part of the key."""
    report = check(path, key)
    changes = changed_rows(report)
    assert report.result == "changed" or (edit.table, edit.column) == ("runs", "run_id"), edit
    if edit.column in COLUMNS[edit.table].key:
        assert ("removed", edit.table, edit.key, ()) in changes or report.run_names("missing"), (edit, changes)
    else:
        named = [
            columns for kind, table, row, columns in changes if (kind, table, row) == ("changed", *edit[:1], edit.key)
        ]
        assert named in ([(edit.column,)], [("?",)]), (edit, changes)


def test_a_changed_value_is_found_and_its_row_named(attested: tuple[Path, Path], tmp_path: Path) -> None:
    path, key = attested
    copy = tmp_path / path.name
    shutil.copyfile(f"{path}.attestation.jsonl.gz", f"{copy}.attestation.jsonl.gz")
    for edit in changed_copies(path, copy, 12, seed=1):
        assert_named(edit, copy, key)


@pytest.mark.long("forty times the values of the test above, so that each column is changed in several ways")
def test_500_changed_values_are_found_and_their_rows_named(attested: tuple[Path, Path], tmp_path: Path) -> None:
    path, key = attested
    copy = tmp_path / path.name
    shutil.copyfile(f"{path}.attestation.jsonl.gz", f"{copy}.attestation.jsonl.gz")
    for edit in changed_copies(path, copy, 500):
        assert_named(edit, copy, key)
