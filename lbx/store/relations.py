"""Tables and views of a results file as DuckDB relations."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lbx.base.errors import StoreError
from lbx.base.tables import nearest
from lbx.store.queries import query_error, restrict
from lbx.store.sessions import progress_of_runs
from lbx.store.store import Store

if TYPE_CHECKING:
    import duckdb


class Relations:
    """A results file, open for reading: a mapping of names to relations.

    Relations are lazy, and invalid once the file is closed.

    Args:
        store: the file, which ``close`` closes.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def as_of(self) -> datetime | None:
        """Time (UTC) of the last included commits, if the file is being written; else None."""
        return self._store.snapshot.taken_at if self._store.snapshot else None

    @property
    def running(self) -> dict[str, str]:
        """{run: "running, 212 of 643"} of the active runs."""
        return progress_of_runs(self._store)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all tables and views."""
        rows = self._store.query(
            "SELECT DISTINCT table_name FROM information_schema.tables WHERE table_schema = 'main' "
            "AND table_catalog IN (current_database(), 'temp') ORDER BY table_name"  # current views: see Store
        ).rows
        return (str(name) for (name,) in rows)

    def __getitem__(self, name: str) -> duckdb.DuckDBPyRelation:
        """Return a table or view. Raises KeyError."""
        if name not in set(self):
            raise KeyError(f"{self._store.path} has no table or view {name!r}. {nearest(name, self)}")
        return self._store.connection.table(name)

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Return a query as a relation.

        Raises:
            StoreError: the text is not a query, or has more than one.
        """
        import duckdb

        restrict(self._store.connection, query)
        try:
            relation = self._store.connection.sql(query)
        except duckdb.Error as exc:
            raise query_error(exc) from exc
        if relation is None:
            raise StoreError("This statement returns no rows.", fix="Give one SELECT.")
        return relation

    def close(self) -> None:
        """Close the file, which invalidates its relations."""
        self._store.close()
