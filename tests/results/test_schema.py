"""Schema of a results file: files of another version are refused, views are today's."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from lbx.base.errors import StoreError
from lbx.report.reports import REPORTS, read_report
from lbx.results import Store
from lbx.results import views as store_views
from lbx.results.file import contents as stored_contents
from lbx.results.schema import SCHEMA_VERSION
from tests.results.store_rows import RUN, generation, sample, score


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "results.duckdb"
    with Store(made) as store:
        store.begin_run(RUN)
        store.write(samples=[sample()], generations=[generation()], scores=[score()])
    return made


def change(path: Path, sql: str) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute(sql)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (f"UPDATE lbx_schema SET version = {SCHEMA_VERSION + 14}", f"its schema is {SCHEMA_VERSION + 14}"),
        ("UPDATE lbx_schema SET version = 0", "its schema is 0"),
        ("ALTER TABLE sessions DROP COLUMN to_ask", "it has no column sessions.to_ask"),
        ("DROP TABLE rating_items", "it has no column rating_items"),
    ],
)
@pytest.mark.parametrize("read_only", [True, False])
def test_files_of_another_version_are_refused_unchanged(path: Path, sql: str, reason: str, read_only: bool) -> None:
    change(path, sql)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=f"was written by another version of lbx: {reason}"):
        Store(path, read_only=read_only)
    assert path.read_bytes() == before


def test_views_are_kept_as_they_are_written() -> None:
    """DuckDB writes EXCLUDE (a, b) in either order; a view that has it would look like another lbx's now and then, and
    be made anew whenever the file is opened."""
    for name, query in store_views.VIEWS.items():
        assert not re.search(r"(?i)\bEXCLUDE\s*\([^)]*,", query), name


def test_views_are_known_by_their_digest_or_by_their_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path / "new.duckdb") as store:
        assert stored_contents.has_current_views(store.connection)
        (tmp_path / "other.sha256").write_text("of another DuckDB")
        monkeypatch.setattr(stored_contents, "_GENERATED_DIGEST", tmp_path / "other.sha256")
        assert stored_contents.has_current_views(store.connection)
        store.connection.execute("CREATE OR REPLACE VIEW coverage AS SELECT 1")
        assert not stored_contents.has_current_views(store.connection)


def test_reading_uses_todays_views(path: Path) -> None:
    """A file of the same schema may have other views: narrower, or a stranger's."""
    with Store(path) as store:
        expected = {name: read_report(store, name).rows for name in REPORTS}
    change(path, "CREATE OR REPLACE VIEW task_scores AS SELECT run_id FROM task_results")
    change(path, "CREATE VIEW mine AS SELECT count(*) AS answers FROM generations")
    with Store(path, read_only=True) as store:
        assert {name: read_report(store, name).rows for name in REPORTS} == expected
        assert store.query("SELECT answers FROM mine").rows == [(1,)]
