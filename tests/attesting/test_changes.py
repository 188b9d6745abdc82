"""Single values changed in a results file, by other programs: each is found, and its row and column are named."""

from __future__ import annotations

import itertools
import math
import random
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from lbx.results.file.contents import COLUMN_TYPES
from lbx.results.whole.row_digests import COLUMNS
from tests import profiles
from tests.attesting.attested_file import attest, changed_rows, check, make_key, results_to_attest

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


def changed_copies(path: Path, copy: Path, count: int, *, at_once: int = 1, seed: int = 0) -> Iterator[list[Edit]]:
    """Copies with changed values: in turn from every column, a random row and another value.

    A quarter are values that name rows, or that belong to a run as a whole, each in a copy of its own; of the others
    ``at_once`` are in a copy.
    """
    rng = random.Random(seed)
    columns = [(table, column) for table in COLUMNS for column in COLUMNS[table].values]
    alone = [(table, column) for table, column in columns if table == "runs" or column in COLUMNS[table].key]
    others = [place for place in columns if place not in alone]
    for places, total, size in ((alone, count // 4, 1), (others, count - count // 4, at_once)):
        turns = itertools.chain.from_iterable(rng.sample(places, len(places)) for _ in itertools.count())
        done = 0
        while done < total:
            shutil.copyfile(path, copy)
            batch: list[Edit] = []
            while len(batch) < min(size, total - done):
                taken = {(edit.table, edit.key) for edit in batch}
                if edit := _change_value(copy, *next(turns), rng, taken):
                    batch.append(edit)
            done += len(batch)
            yield batch


def _change_value(path: Path, table: str, column: str, rng: random.Random, taken: Collection[object]) -> Edit | None:
    key_columns = ", ".join(f'"{name}"' for name in COLUMNS[table].key)
    edits = [*EDITS[COLUMN_TYPES[table, column]]]
    rng.shuffle(edits)
    with duckdb.connect(str(path)) as connection:
        connection.create_function("next_up", lambda value: math.nextafter(value, math.inf), ["DOUBLE"], "DOUBLE")
        rows = connection.execute(f"SELECT rowid, {key_columns} FROM {table}").fetchall()
        rows = [row for row in rows if (table, row[1:]) not in taken]
        if not rows:
            return None
        place, *key = rng.choice(rows)
        name, kind = f'"{column}"', COLUMN_TYPES[table, column]
        # DuckDB updates no number to an equal one, e.g. 0.0 to -0.0.
        compared = f"({{}})::{kind}" if kind == "DOUBLE" else f"({{}})::{kind}::VARCHAR"
        for edit in edits:
            sql = edit.format(c=name)
            same = f"{compared.format(sql)} IS NOT DISTINCT FROM {compared.format(name)}"
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


def assert_named(edits: list[Edit], path: Path, key: Path) -> None:
    """The report names each changed row, and its column if it is not part of the key."""
    report = check(path, key)
    changes = changed_rows(report)
    for edit in edits:
        assert report.result == "changed" or (edit.table, edit.column) == ("runs", "run_id"), edit
        if edit.column in COLUMNS[edit.table].key:
            assert ("removed", edit.table, edit.key, ()) in changes or report.run_names("missing"), (edit, changes)
        else:
            named = [columns for kind, *row, columns in changes if (kind, *row) == ("changed", edit.table, edit.key)]
            assert named in ([(edit.column,)], [("?",)]), (edit, changes)


@pytest.mark.parametrize(
    ("count", "at_once", "seed"),
    [
        (12, 1, 1),
        pytest.param(profiles.changes(500), 20, 0, marks=pytest.mark.long("each column is changed at least once")),
    ],
)
def test_changed_values_are_found_and_their_rows_named(
    attested: tuple[Path, Path], tmp_path: Path, count: int, at_once: int, seed: int
) -> None:
    path, key = attested
    copy = tmp_path / path.name
    shutil.copyfile(f"{path}.attestation.jsonl.gz", f"{copy}.attestation.jsonl.gz")
    for edits in changed_copies(path, copy, count, at_once=at_once, seed=seed):
        assert_named(edits, copy, key)
