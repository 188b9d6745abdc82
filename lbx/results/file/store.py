"""The class ``Store``, an open results file: opening, batched writes, queries.

DuckDB allows only one writing process at a time, and writes a commit to its log before it returns. Rows therefore
survive a kill after ``write`` has returned.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import duckdb

from lbx.base.database import RESULTS, attach, database_files
from lbx.base.errors import StoreError, files_read
from lbx.base.marks import BLANK, OUTDATED, QUESTION_CHANGED, QUESTION_REMOVED, UNFINISHED
from lbx.base.number import Number
from lbx.base.phases import phases
from lbx.base.processes import defer_signals
from lbx.base.records import JUDGE, RoundSample, SampleKey
from lbx.results.file import numbers
from lbx.results.file.contents import refuse_foreign
from lbx.results.file.identity import (
    asked_samples,
    complete_samples,
    find_other_samples,
    other_samples_error,
    refuse_other_run,
)
from lbx.results.file.inserting import as_parameter, insert, rows_of_json
from lbx.results.file.opening import WRITERS, check_path, connect, first_line, prepare, transaction
from lbx.results.file.snapshots import Snapshot, connect_reader
from lbx.results.file.texts import require_texts
from lbx.results.rows import GenerationRow, RoundRow, RunRow, SampleRow, ScoreRow, Table, as_json

T = TypeVar("T")

_TO_ASK = f"error_type IN ('{QUESTION_CHANGED}', '{UNFINISHED}')"
_FAILED = "error IS NOT NULL"
# For a question asked in steps, one blank answer suffices: the answers may be joined with words between.
_EMPTY = f"""error IS NULL AND (coalesce(output_words = 0, false) OR len(list_filter(
    list_append(steps->>'$[*].output', output), lambda said: regexp_full_match(said, '{BLANK}'))) > 0)"""


class Store:
    """An open results file. Use it as a context manager.

    Args:
        path: path of the file. It is created if missing or empty, unless ``read_only``.
        read_only: open the file only for reading, which other readers may do at the same time.
        allow_writer: read committed data even if another process writes the file; see ``lbx.results.file.snapshots``.
        allowed_files: the only other files that queries may read or write.
        threads: maximum number of threads of a query, or 0 for a thread per core.
        after_commit: called after every commit.

    Attributes:
        snapshot: copy that is read instead of a file that is being written.
        completed_tasks: (benchmark, task)s whose stored samples were completed. Other runs' numbers of these tasks
            were computed with less information (``lbx.results.scoring.aggregation.recompute_completed_samples``).

    Raises:
        StoreError: the file is not a results file, contains objects that lbx never creates, was written by another
            version of lbx, is in use by another process, or cannot be written.
    """

    @phases.measure("results file")
    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        allow_writer: bool = False,
        allowed_files: Sequence[Path] = (),
        threads: int = 0,
        after_commit: Callable[[Store], None] | None = None,
    ) -> None:
        self.path = path
        self.read_only = read_only = read_only or allow_writer
        self.snapshot: Snapshot | None = None
        self.completed_tasks: set[tuple[str, str]] = set()
        self._once: dict[Hashable, Any] = {}
        self._after_commit = after_commit
        self._in_transaction = False
        with contextlib.ExitStack() as cleanup:
            with defer_signals():  # a deferred signal raises at the end of this block: the file is closed again
                is_new = False
                if allow_writer:
                    self._connection, self.snapshot = connect_reader(path, allowed_files, threads)
                else:
                    self._connection, is_new = connect(path, read_only, allowed_files, threads)
                cleanup.callback(self._disconnect)
                if not read_only:
                    WRITERS[path.resolve()] = self
                prepare(self._connection, path, is_new=is_new, read_only=read_only)
                if not is_new:
                    files_read.add(path)
            cleanup.pop_all()

    @classmethod
    def check(cls, path: Path) -> None:
        """Raise the errors of opening a file for writing, without creating the file."""
        check_path(path)
        if path.is_file() and path.stat().st_size:
            cls(path).close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(StoreError):  # the first error takes precedence
            self.close()

    def close(self) -> None:
        """Move DuckDB's log of the newest commits into the file, and close it.

        Raises:
            StoreError: the disk is full. All committed rows are safe, but in two files.
        """
        reason = ""
        with defer_signals():
            try:
                if not self.read_only:
                    self._connection.execute("CHECKPOINT")
            except duckdb.Error as exc:
                reason = first_line(exc)
            with contextlib.suppress(duckdb.Error):
                self._disconnect()
        # A log that is left after a checkpoint has no commit: DuckDB keeps one that ends within its header.
        if reason and (logs := database_files(self.path)[1:]):
            raise StoreError(
                f"{self.path} could not be closed: {reason}. Every committed row is safe, but some rows are only in "
                f"its log {logs[0].name}: keep both files together.",
                fix="Free some disk space: the next command that writes the file joins both.",
            )

    def _disconnect(self) -> None:
        if not self.read_only:
            WRITERS.pop(self.path.resolve(), None)
        self._connection.close()

    def checkpoint(self) -> None:
        """Move DuckDB's log of the newest commits into the file. Raises StoreError if the disk is full."""
        try:
            with defer_signals():
                self._connection.execute("CHECKPOINT")
        except duckdb.Error as exc:
            raise StoreError(
                f"{self.path} could not be written: {first_line(exc)}.",
                fix="Committed rows are safe. Free space on its disk, then repeat the command.",
            ) from exc

    # Writing

    def begin_run(self, run: RunRow, *, failed: bool = False, empty: bool = False) -> set[SampleKey]:
        """Begin a run, or continue a stored run.

        Args:
            failed, empty: whether to repeat questions whose answers failed, or are only white space.

        Returns:
            Keys of finished answers (including failures, but not answers to changed questions), which the caller
            skips.

        Raises:
            StoreError: a run of this name exists with other settings, or was scored with another metric version, or
                the file's texts were removed.
        """
        require_texts(self, "A run cannot be added to it or continued.")
        columns = "settings, model, backend, bundle_digest, status, benchmark_versions, task_samples"
        existing = self.query(f"SELECT {columns} FROM runs WHERE run_id = ?", [run.run_id])
        if existing.rows:
            (old,) = existing.dicts()
            refuse_other_run(self.path, run, old)
            if old["status"] == "running":  # it was killed, perhaps before other runs' numbers were recomputed
                self.completed_tasks |= self._possibly_completed_tasks(run.run_id)
            further = (run.task_samples or {}).keys() - asked_samples(old["task_samples"]).keys()
            with self.transaction() as connection:
                numbers.delete_averages(connection, run.run_id, {task.partition("/")[0] for task in further})
                connection.execute(
                    "UPDATE runs SET status = 'running', finished_at = NULL, hardware = ?, lbx_version = ?, "
                    "benchmark_versions = json_merge_patch(benchmark_versions, ?::JSON), "
                    "task_samples = json_merge_patch(coalesce(task_samples, '{}'), ?::JSON), "
                    "unscored_samples = "
                    "nullif(json_merge_patch(coalesce(unscored_samples, '{}'), ?::JSON)::VARCHAR, '{}'), "
                    "metadata = nullif(json_merge_patch(coalesce(metadata, '{}'), ?::JSON)::VARCHAR, '{}') "
                    "WHERE run_id = ?",
                    [
                        as_json(run.hardware),
                        run.lbx_version,
                        as_json(run.benchmark_versions),
                        as_json(run.task_samples or {}),
                        as_json(run.unscored_samples or {}),
                        as_json(run.metadata or {}),
                        run.run_id,
                    ],
                )
        else:
            with self.transaction() as connection:
                values = run.values() | {"started_at": datetime.now(UTC).replace(tzinfo=None), "status": "running"}
                encoded = [as_json(value) if isinstance(value, Mapping) else value for value in values.values()]
                connection.execute(
                    f"INSERT INTO runs ({', '.join(values)}) VALUES ({', '.join('?' * len(encoded))})", encoded
                )
        again = [f"({rule})" for rule, applies in ((_TO_ASK, True), (_FAILED, failed), (_EMPTY, empty)) if applies]
        done = self.query(
            "SELECT benchmark, task, sample_id, iteration FROM generations "
            f"WHERE run_id = ? AND NOT coalesce({' OR '.join(again)}, false)",
            [run.run_id],
        )
        return {SampleKey(*row) for row in done.rows}

    def read_answered_keys(self, run_id: str) -> set[SampleKey]:
        """Keys of a run's answers without an error."""
        sql = "SELECT benchmark, task, sample_id, iteration FROM generations WHERE run_id = ? AND error IS NULL"
        return {SampleKey(*row) for row in self.query(sql, [run_id]).rows}

    def read_finished_steps(self, run_id: str) -> dict[SampleKey, list[dict[str, Any]]]:
        """Finished steps of a run's failed and unfinished answers to current questions (``GenerationRow.steps``)."""
        found = self.query(
            "SELECT benchmark, task, sample_id, iteration, steps FROM generations "
            f"WHERE run_id = ? AND error IS NOT NULL AND steps IS NOT NULL AND NOT {OUTDATED.format(g='generations')}",
            [run_id],
        )
        parsed = ((SampleKey(*key), json.loads(steps)) for *key, steps in found.rows)
        return {key: steps for key, steps in parsed if isinstance(steps, list)}

    def _possibly_completed_tasks(self, run_id: str) -> set[tuple[str, str]]:
        """Find this run's tasks in which other runs' numbers were computed while documents were unknown."""
        unsure = "SELECT benchmark, task FROM task_results WHERE run_id <> $1 AND cluster_by = 'sample'"
        answered = "SELECT DISTINCT benchmark, task FROM generations WHERE run_id = $1"
        return {*self.query(f"{answered} INTERSECT {unsure}", [run_id]).rows}

    def write(
        self,
        *,
        samples: Sequence[SampleRow] = (),
        generations: Sequence[GenerationRow] = (),
        scores: Sequence[ScoreRow] = (),
    ) -> None:
        """Commit rows, all or none.

        Answers and scores replace old rows of the same key, and numbers computed from old rows are deleted.

        Raises:
            StoreError: the disk is full or the file cannot be written. The file then contains none of the rows.
        """
        answered = {(row.run_id, row.benchmark, row.task) for row in generations}
        scored = {(row.run_id, row.benchmark, row.task) for row in scores}
        with self.transaction() as connection:
            insert(connection, "samples", samples, replace=False)
            rounds = [RoundRow.of(row.sample) for row in samples if isinstance(row.sample, RoundSample)]
            insert(connection, "rounds", rounds, replace=False)
            self._match_samples(connection, samples)
            numbers.delete_replaced_scores(connection, generations)
            insert(connection, "generations", generations)
            insert(connection, "scores", scores)
            numbers.delete_stale_numbers(connection, answered, scored)

    def replace_scores(self, scores: Sequence[ScoreRow]) -> None:
        """Replace all scores of one or more tasks by these scores.

        Old scores of other metrics are deleted too, because a summary scored without an embedding model gets other
        metrics.
        """
        scored = {(row.run_id, row.benchmark, row.task) for row in scores}
        with self.transaction() as connection:
            numbers.delete(connection, "scores", numbers.TASK, scored)
            insert(connection, "scores", scores)
            numbers.delete_stale_numbers(connection, set(), scored)

    def _match_samples(self, connection: duckdb.DuckDBPyConnection, samples: Sequence[SampleRow]) -> None:
        """Raise ConflictError for samples that differ from stored samples, else complete the stored samples."""
        if not samples:
            return
        rows, parameters = rows_of_json(connection, "samples"), [as_parameter(samples)]
        if other := find_other_samples(connection, rows, parameters):
            raise other_samples_error(self.path, other)
        self.completed_tasks |= complete_samples(connection, rows, parameters)

    def write_results(self, results: Sequence[Number]) -> None:
        """Replace the numbers of the rows' tasks or benchmarks.

        Old numbers of the same task (or benchmark) are deleted first, because some may have no new row.
        """
        with self.transaction() as connection:
            numbers.replace_numbers(connection, results)

    def use_temporary_numbers(self) -> None:
        """Redirect writes of numbers to a temporary table, which views read instead of the file's table.

        No other writes are possible in a file that is open read-only.
        """
        ((statement,),) = self.query(
            "SELECT sql FROM duckdb_tables() WHERE database_name = ? AND table_name = 'numbers'", [RESULTS]
        ).rows
        self.query(statement.replace("CREATE TABLE", "CREATE TEMP TABLE", 1))
        self.query(f"INSERT INTO numbers FROM {RESULTS}.main.numbers")

    def materialise_views(self, *views: str) -> None:
        """Compute views that other views read once, instead of at every read.

        Views of a file that is open for writing stay as they are.
        """
        for view in views if self.read_only else ():
            self.compute_once(view, partial(self._materialise_view, view))

    def _materialise_view(self, view: str) -> None:
        self.query(f"CREATE TEMP TABLE once_{view} AS FROM {view}")
        self.query(f"CREATE OR REPLACE TEMP VIEW {view} AS FROM once_{view}")

    def compute_once(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return a value that is computed once per name, or at every call if the file is open for writing.

        Callers must not change the value.
        """
        if not self.read_only:
            return make()
        if name not in self._once:
            self._once[name] = make()
        value: T = self._once[name]
        return value

    def write_opinions(self, run_id: str, benchmark: str, opinions: Sequence[Number]) -> None:
        """Replace a run's numbers from opinions of judges and people, which ``lbx.opinions.aggregation`` computes."""
        with self.transaction() as connection:
            numbers.replace_opinions(connection, run_id, benchmark, opinions)

    def finish_run(self, run_id: str, status: str) -> None:
        """Store the end time and the status of a run: "done", "interrupted" or "failed"."""
        with self.transaction() as connection:
            connection.execute(
                "UPDATE runs SET status = ?, finished_at = current_localtimestamp() WHERE run_id = ?", [status, run_id]
            )

    # Asking

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """DuckDB connection, for lazy relations (``lbx.results.read.queries``). Other callers use the methods."""
        return self._connection

    def query(self, sql: str, parameters: Sequence[object] = ()) -> Table:
        """Run a query and fetch all rows.

        Raises:
            StoreError: the query failed. The error contains DuckDB's message.
        """
        # While a file is being written, signals wait: during a query DuckDB would turn them into an error.
        calm = contextlib.nullcontext() if self.read_only else defer_signals()
        try:
            with calm:
                cursor = self._connection.execute(sql, list(parameters))
                columns = [item[0] for item in cursor.description or []]
                return Table(columns, [tuple(row) for row in cursor.fetchall()])
        except duckdb.Error as exc:
            raise StoreError(f"The query failed: {first_line(exc)}") from exc

    def arrays(self, sql: str, parameters: Sequence[object] = ()) -> dict[str, Any]:
        """Run a query and return {column: numpy array, masked at NULL}.

        This takes a fraction of the time of fetching rows. Raises StoreError like ``query``.
        """
        try:
            return self._connection.execute(sql, list(parameters)).fetchnumpy()
        except duckdb.Error as exc:
            raise StoreError(f"The query failed: {first_line(exc)}") from exc

    def attach(self, path: Path, name: str) -> None:
        """Attach another results file for reading, which must be in ``allowed_files``. ``DETACH`` detaches it.

        Raises:
            StoreError: the file cannot be read, or contains objects that lbx never creates.
        """
        check_path(path)  # DuckDB would wait for a pipe
        try:
            attach(self._connection, path, name, read_only=True)
        except duckdb.Error as exc:
            raise StoreError(
                f"{path} cannot be read: {first_line(exc)}", fix="Give another file, or restore a copy of this one."
            ) from exc
        try:
            refuse_foreign(self._connection, name, path)
        except BaseException:
            self._connection.execute(f"DETACH {name}")
            raise
        files_read.add(path)

    def samples(self, run_id: str, benchmark: str, task: str, *, failed: bool = False) -> Iterator[dict[str, Any]]:
        """Yield a run's answered samples with outputs, or a run's failed samples, in the data's order.

        Questions that a later revision removed are left out. ``document`` is the document's hash, or "" if unknown.
        ``subject`` is the row of ``rounds`` of a judge's round.
        """
        of_judge = benchmark == JUDGE
        judged = "CASE WHEN d.round_id IS NOT NULL THEN d END" if of_judge else "NULL"
        rounds = "LEFT JOIN rounds d ON (d.rubric, d.round_id) = (a.task, a.sample_id)" if of_judge else ""
        table = self.query(
            f"""
            SELECT a.sample_id, a.language, a.length, a.length_unit, a."references", a.question, a.meta,
                   g.iteration, g.output, g.original_tokens,
                   coalesce(a.context_sha256, '') AS document, {judged} AS subject
            FROM generations g JOIN samples a USING (benchmark, task, sample_id) {rounds}
            WHERE g.run_id = ? AND g.benchmark = ? AND g.task = ? AND g.error IS {"NOT " if failed else ""}NULL
                AND g.error_type IS DISTINCT FROM '{QUESTION_REMOVED}'
            ORDER BY a.position, a.sample_id, g.iteration
            """,
            [run_id, benchmark, task],
        )
        yield from table.dicts()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Run a block in a new or the open transaction. Ctrl-C and SIGTERM wait for its end.

        Raises:
            StoreError: the file cannot be written.
        """
        if self._in_transaction:
            yield self._connection
            return
        self._in_transaction = True
        try:
            with transaction(self._connection, self.path):
                yield self._connection
        finally:
            self._in_transaction = False
        if self._after_commit is not None:
            self._after_commit(self)
