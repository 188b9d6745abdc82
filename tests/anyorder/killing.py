"""A kill at a moment of a command in this process: the files as that moment left them, DuckDB's log beside its file.

At the moment the whole folder is copied; then the command is thrown out of, and the copy takes the folder's place. What
had been committed by then is on record, file by file.
"""

from __future__ import annotations

import contextlib
import shutil
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb

from lbx.results import GenerationRow, Store
from lbx.results.file.opening import WRITERS
from lbx.results.whole import commit_copies, edits

Answers = dict[tuple[str, str, str, str, int], tuple[str | None, bool]]
"""{(run, benchmark, task, sample id, iteration): (output, failed)}."""


class Killed(BaseException):
    """The process is no more."""


@dataclass
class Watch:
    """What a command commits, and the moment at which it dies.

    Attributes:
        moment: which of its moments, counted from 1; 0 for none.
        committed: {results file: what changes its answers, in the order in which it was committed}.
        published: {copy of a scratch file: how many of the scratch file's changes it holds}.
    """

    folder: Path
    kept: Path
    moment: int = 0
    passed: int = 0
    dead: bool = False
    committed: dict[Path, list[Callable[[Answers], None]]] = field(default_factory=dict)
    published: dict[Path, tuple[Path, int]] = field(default_factory=dict)
    stores: weakref.WeakSet[Store] = field(default_factory=weakref.WeakSet)

    def pass_moment(self) -> None:
        """Where a kill may come."""
        if self.dead:
            raise Killed
        self.passed += 1
        if self.passed == self.moment:
            shutil.rmtree(self.kept, ignore_errors=True)
            shutil.copytree(self.folder, self.kept)
            self.dead = True
            raise Killed

    def close_all(self) -> None:
        for store in self.stores:
            with contextlib.suppress(duckdb.Error):
                store.connection.close()
            WRITERS.pop(store.path.resolve(), None)  # Python 3.13 frees a dead command's objects later

    def restore(self) -> None:
        shutil.rmtree(self.folder)
        self.kept.rename(self.folder)


@contextlib.contextmanager
def watched(folder: Path, moment: int = 0) -> Iterator[Watch]:
    """Commands of this process leave ``folder`` as a kill at this moment does; ``Watch.dead`` says whether it came."""
    watch = Watch(folder, folder.with_name(f"{folder.name}-killed"), moment)
    with contextlib.ExitStack() as patches:
        for owner, name, made in _patches(watch):
            patches.enter_context(mock.patch.object(owner, name, made))
        try:
            yield watch
        except Killed:
            pass
        finally:
            watch.close_all()
            if watch.dead:
                watch.restore()


def _patches(watch: Watch) -> list[tuple[Any, str, Any]]:
    begin, write, transaction, close = Store.__init__, Store.write, Store.transaction, Store.close
    publish, append, note = (
        commit_copies.CommitCopies._publish,
        commit_copies.CommitCopies._append,
        commit_copies._note_copy,
    )
    changes: dict[int, Callable[[Answers], None]] = {}

    def begins(self: Store, path: Path, **options: Any) -> None:
        after_commit = options.pop("after_commit", None)

        def committed(store: Store) -> None:
            if change := changes.pop(id(store), None):
                watch.committed.setdefault(path, []).append(change)
            watch.pass_moment()
            if after_commit:
                after_commit(store)

        begin(self, path, after_commit=committed, **options)
        watch.stores.add(self)

    def writes(self: Store, **rows: Any) -> None:
        changes[id(self)] = _writing(rows.get("generations", ()))
        write(self, **rows)

    @contextlib.contextmanager
    def transacts(self: Store) -> Iterator[duckdb.DuckDBPyConnection]:
        watch.pass_moment()
        with transaction(self) as connection:
            yield connection

    def closes(self: Store) -> None:
        if not self.read_only:
            watch.pass_moment()
        close(self)

    def publishes(self: commit_copies.CommitCopies) -> None:
        watch.pass_moment()
        publish(self)

    def appends(self: commit_copies.CommitCopies) -> None:
        watch.pass_moment()
        append(self)
        watch.published[self._target] = (self.path, len(watch.committed.get(self.path, ())))
        watch.pass_moment()

    def notes(path: Path, target: Path) -> None:
        if path.exists() and watch.committed.get(path):
            watch.published[target] = (path, len(watch.committed[path]))
        watch.pass_moment()
        note(path, target)

    return [
        (Store, "__init__", begins),
        (Store, "write", writes),
        (Store, "transaction", transacts),
        (Store, "close", closes),
        (commit_copies.CommitCopies, "_publish", publishes),
        (commit_copies.CommitCopies, "_append", appends),
        (commit_copies, "_note_copy", notes),
        *((edits, name, _after_moment(watch, getattr(edits, name))) for name in _REWRITING),
    ]


_REWRITING = ("open_database", "open_input", "sync_folder")
"""Before a file is written anew, before the new file takes the old one's place, and after it."""


def _after_moment(watch: Watch, call: Callable[..., Any]) -> Callable[..., Any]:
    def passes(*arguments: Any, **options: Any) -> Any:
        watch.pass_moment()
        return call(*arguments, **options)

    return passes


def _writing(rows: tuple[GenerationRow, ...]) -> Callable[[Answers], None]:
    written: Answers = {
        (row.run_id, row.benchmark, row.task, row.sample_id, row.iteration): (row.output, row.error is not None)
        for row in rows
    }
    return lambda answers: answers.update(written)
