"""Changes of the runs that a results file has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lbx.base.commands import as_command
from lbx.base.errors import StoreError, UsageError
from lbx.base.option import fields_of
from lbx.benchmarks import official_judge
from lbx.judging.content_names import content_set_ids, renamed_rounds
from lbx.judging.journal import journal_of
from lbx.scoring import opinions
from lbx.spec.run_spec import RunSpec
from lbx.store import Store
from lbx.store.copies import exclusive_lock
from lbx.store.renaming import rename_rating_set, rename_rounds, rename_run_rows
from lbx.store.runs import resolve_runs


@contextmanager
def open_for_changes(results: Path) -> Iterator[Store]:
    """Open a results file to change its runs, while no other process writes it or a copy of it.

    Raises:
        StoreError: it does not exist, is in use, or is not a results file.
    """
    Store(results, read_only=True).close()  # opening another database for writing would create tables in it
    with exclusive_lock(results.resolve()), Store(results) as store:
        yield store


def _refuse_journal(results: Path) -> None:
    if (journal := journal_of(results)).exists():
        raise StoreError(
            f"{journal} names runs of {results} in ratings that are not in the file yet.",
            fix="Move them into the file first.",
            command=as_command("lbx", "rate", results, "--collect"),
        )


def rename_run(results: Path, old: str, new: str) -> str:
    """Rename a run or a judge, in one transaction; returns its old name.

    Args:
        old: its name, a prefix of it, or its model; see ``lbx.store.runs.match_runs``.

    Raises:
        UsageError: the run does not exist, or the new name exists or is reserved.
        StoreError: see ``open_for_changes``; or a journal has ratings for the file.
    """
    fields_of(RunSpec)["name"].check(new)
    with open_for_changes(results) as store:
        _refuse_journal(results)
        (run,) = resolve_runs(store, [old])
        _check_new_name(store, run, new)
        with store.transaction() as connection:
            rounds, sets_before = renamed_rounds(store, run, new), content_set_ids(store)
            rename_run_rows(connection, run, new)
            rename_rounds(connection, rounds)
            _rename_sets(store, sets_before)
            opinions.add_up_all(store)
    return run


def _check_new_name(store: Store, run: str, new: str) -> None:
    if not new.strip():
        raise UsageError("The new name is empty.", fix="Give the run a name.")
    if store.query("FROM runs WHERE run_id = ?", [new]).rows:
        raise UsageError(f"{store.path} already has a run {new!r}.", fix="Choose another name.")
    for name in (run, new):
        if name.startswith(official_judge.PUBLISHED):
            raise UsageError(
                f"{run!r} cannot become {new!r}: names that begin with {official_judge.PUBLISHED!r} mark published "
                "answers, which judges find by name.",
                fix="Choose another name." if name == new else "",
            )


def _rename_sets(store: Store, ids_before: dict[str, str]) -> None:
    """Rename sets of ratings whose names were the hashes of their contents, after a change of their contents."""
    ids = content_set_ids(store)
    with store.transaction() as connection:
        for name, content_id in ids.items():
            if ids_before[name] == name != content_id:
                rename_rating_set(connection, name, content_id)
