"""JSON that Python cannot read, or not safely, is refused as a file is opened; what only looks like it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from store_rows import fill

from lbx.base.errors import StoreError
from lbx.store import Store


def written(path: Path, meta: str) -> Path:
    fill(path, "r1")
    with Store(path) as store, store.transaction() as connection:
        connection.execute("UPDATE samples SET meta = ?", [meta])
    return path


@pytest.mark.parametrize(
    ("meta", "problem"),
    [
        ('{"a":' * 101 + "1" + "}" * 101, "nested too deeply"),
        ('{"a": ' + "[ " * 101 + '"字"' + " ]" * 101 + "}", "nested too deeply"),
        ('{"a": ' + '[{"b": ' * 51 + "1" + "}]" * 51 + "}", "nested too deeply"),
        ('{"a": ' + "7" * 4400 + "}", "a number that is too long"),
        ('{"字": ' + "1023456789" * 440 + "}", "a number that is too long"),
    ],
)
def test_what_python_cannot_read_is_refused(tmp_path: Path, meta: str, problem: str) -> None:
    with pytest.raises(StoreError, match=problem):
        Store(written(tmp_path / "results.duckdb", meta), read_only=True)


@pytest.mark.parametrize(
    "meta",
    [
        json.dumps({"a": [[]] * 300, "brackets": "[{" * 300}),
        json.dumps({"digits": "9" * 5000, "numbers": [*range(3000)]}),
        '{"a":' * 90 + "1" + "}" * 90,
    ],
)
def test_what_only_looks_like_it_is_read(tmp_path: Path, meta: str) -> None:
    with Store(written(tmp_path / "results.duckdb", meta), read_only=True) as store:
        assert store.query("SELECT count(*) FROM samples").rows == [(1,)]
