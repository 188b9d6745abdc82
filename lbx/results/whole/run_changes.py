"""Changes of the runs in a results file: renaming, removal, and new scores of outputs."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

from lbx.backends import load_embedding_model
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import StoreError, UsageError
from lbx.base.listener import Listener
from lbx.base.units import format_count
from lbx.base.visible import as_command
from lbx.benchmarks.registry import BENCHMARKS, official_judge
from lbx.opinions import aggregation as opinions
from lbx.opinions.journal import journal_of
from lbx.opinions.rating_sets import content_set_ids, renamed_rounds
from lbx.options.option import fields_of
from lbx.options.run_spec import RunSpec
from lbx.results import Store
from lbx.results.file.caches import embedding_models
from lbx.results.file.opening import require_file
from lbx.results.file.texts import require_texts
from lbx.results.read.runs import resolve_runs
from lbx.results.scoring.scores import Rescoring, Similarities, rescore
from lbx.results.whole.bundle_rules import refuse_new_rules, score_by_bundle
from lbx.results.whole.commit_copies import exclusive_lock
from lbx.results.whole.edits import (
    Dependents,
    find_dependents,
    remove_judgements,
    remove_ratings,
    remove_run_rows,
    rename_rating_set,
    rename_rounds,
    rename_run_rows,
)


@contextmanager
def open_for_changes(results: Path) -> Iterator[Store]:
    """Open a results file to change the runs in it, while no other process writes the file or a copy of the file.

    Raises:
        StoreError: the file does not exist, is in use, or is not a results file.
    """
    Store(results, read_only=True).close()  # opening another database for writing would create tables in it
    with exclusive_lock(results.resolve()), Store(results) as store:
        yield store


def _refuse_journal(results: Path) -> None:
    if (journal := journal_of(results)).exists():
        raise StoreError(
            f"{journal} names runs of {results} in ratings that are not in the file yet.",
            fix="Move these ratings into the results file first.",
            command=as_command("lbx", "rate", results, "--collect"),
        )


def rename_run(results: Path, old: str, new: str) -> str:
    """Rename a run or a judge, in one transaction. Returns the old name.

    Args:
        old: name of the run, beginning of the name, or the run's model; see ``lbx.results.read.runs.match_runs``.

    Raises:
        UsageError: the run does not exist, or the new name exists or is reserved.
        StoreError: the file cannot be opened (see ``open_for_changes``), or a journal contains ratings for the file.
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
            opinions.aggregate_all_opinions(store)
    return run


@dataclass(frozen=True, slots=True)
class RemovalSummary:
    """Summary of ``remove_runs``: the removed runs, comparisons, judgements and ratings.

    Attributes:
        runs: removed runs and judges.
        comparisons: removed comparisons by position (``pair_id``).
        judges: removed judges that were not named, but were left without a judgement.
        samples: number of removed questions and judges' rounds.
        dependents: removed judgements and ratings of other judges and people, and numbers computed from them.
    """

    runs: Sequence[str]
    comparisons: Sequence[str]
    judges: Sequence[str]
    samples: int
    dependents: Dependents


def remove_runs(results: Path, names: Sequence[str], *, with_dependents: bool = False) -> RemovalSummary:
    """Remove runs, judges or comparisons by position with all their rows, in one transaction.

    Args:
        names: names of runs or judges (see ``lbx.results.read.runs.match_runs``), or ids of comparisons
            (``depth_pairs.pair_id``).
        with_dependents: whether to remove other judges' judgements and people's ratings of the runs' answers, too.

    Raises:
        UsageError: a run does not exist, or judgements or ratings depend on it.
        StoreError: the file cannot be opened (see ``open_for_changes``), or a journal contains ratings for the file.
    """
    with open_for_changes(results) as store:
        _refuse_journal(results)
        pair_ids = {
            pair for (pair,) in store.query("SELECT pair_id FROM depth_pairs EXCEPT SELECT run_id FROM runs").rows
        }
        comparisons = [name for name in dict.fromkeys(names) if name in pair_ids]
        runs = resolve_runs(store, [name for name in names if name not in pair_ids])
        with store.transaction() as connection:
            for table in ("depth_parity", "depth_pairs"):
                connection.execute(f"DELETE FROM {table} WHERE list_contains(?, pair_id)", [comparisons])
            dependents, sets_before = find_dependents(store, runs), content_set_ids(store)
            if (dependents.judgements or dependents.ratings) and not with_dependents:
                raise _dependents_error(results, runs, comparisons, dependents)
            judges = [judge for judge in remove_judgements(connection, runs) if judge not in runs]
            remove_ratings(connection, runs, [*dependents.ratings])
            samples = remove_run_rows(connection, [*runs, *judges])
            _rename_sets(store, sets_before)
            opinions.aggregate_all_opinions(store)
    return RemovalSummary([*runs, *judges], comparisons, judges, samples, dependents)


def describe_dependents(dependents: Dependents) -> str:
    """Describe judgements and ratings: "4 judgements by umpire, 2 ratings in the set score-1234"."""
    judgements = [f"{format_count(count, 'judgement')} by {judge}" for judge, count in dependents.judgements.items()]
    ratings = [f"{format_count(count, 'rating')} in the set {name}" for name, count in dependents.ratings.items()]
    return ", ".join([*judgements, *ratings])


def _dependents_error(
    results: Path, runs: Sequence[str], comparisons: Sequence[str], dependents: Dependents
) -> UsageError:
    numbers = f", and {format_count(dependents.numbers, 'number')} of other runs" if dependents.numbers else ""
    return UsageError(
        f"{', '.join(runs)} cannot be removed alone: {describe_dependents(dependents)} depend on "
        f"{'it' if len(runs) == 1 else 'them'}{numbers}.",
        fix="--with-dependents removes these, too. Removed ratings cannot be repeated: keep a copy of the file.",
        command=as_command("lbx", "runs", "remove", results, *comparisons, *runs, "--with-dependents"),
    )


def _check_new_name(store: Store, run: str, new: str) -> None:
    if not new.strip():
        raise UsageError("The new name is empty.", fix="Give the run a name.")
    if store.query("FROM runs WHERE run_id = ?", [new]).rows:
        raise UsageError(f"{store.path} already has a run {new!r}.", fix="Choose another name.")
    if described := describe_dependents(find_dependents(store, [new])):
        raise UsageError(
            f"{store.path} has no run {new!r}, but opinions on it: {described}.", fix="Choose another name."
        )
    for name in (run, new):
        if name.startswith(official_judge.PUBLISHED):
            raise UsageError(
                f"{run!r} cannot become {new!r}: names that begin with {official_judge.PUBLISHED!r} mark published "
                "answers, which judges find by name.",
                fix="Choose another name." if name == new else "",
            )


def _rename_sets(store: Store, ids_before: dict[str, str]) -> None:
    """Rename sets of ratings that were named by the hash of their contents, after the contents changed."""
    ids = content_set_ids(store)
    taken = {*ids}
    with store.transaction() as connection:
        for name, content_id in ids.items():
            if ids_before[name] == name != content_id:
                # Without a removed run, two sets may have the same content.
                candidates = chain([content_id], (f"{content_id}-{number}" for number in count(2)))
                new = next(candidate for candidate in candidates if candidate not in taken)
                taken.add(new)
                rename_rating_set(connection, name, new)


def score(
    results: str | os.PathLike[str],
    *,
    runs: Sequence[str] = (),
    embedding: str | None = None,
    bundle: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    processes: int | None = None,
    threads: int | None = None,
    listener: Listener | None = None,
) -> int:
    """Score stored outputs again with the current metrics, and replace the scores. Returns the number of outputs.

    Args:
        runs: names of runs, or () for all.
        embedding: card of the embedding model that computes half of the score of some tasks' answers, or the name of a
            model whose vectors the file contains.
        bundle: bundle with the embedding model's weights. Own benchmarks in both the file and the bundle must be equal.
        output: a new results file, with scores by the rules of the bundle's own benchmarks; see ``score_by_bundle``.
        processes: maximum number of scoring processes, or None for a process per usable CPU.

    Raises:
        LbxError: a run does not exist, the embedding model cannot be loaded, or the bundle contains other rules or
            questions than the file and no ``output`` is given.
    """
    path, opened = Path(results), Bundle(Path(bundle)) if bundle is not None else None
    if output is not None:
        return score_by_bundle(
            path, Path(output), opened, runs=runs, embedding=embedding, processes=processes, listener=listener
        ).score_count
    require_file(path)
    with Store(path) as store:
        require_texts(store, "Scoring needs answers and references.")
        runs = resolve_runs(store, runs)
        if opened is not None:
            refuse_new_rules(store, opened)
        return score_with(
            store, embedding, run_ids=runs, processes=processes, bundle=opened, threads=threads, listener=listener
        )


def score_with(
    store: Store,
    embedding: str | None,
    *,
    run_ids: Sequence[str],
    processes: int | None,
    bundle: Bundle | None = None,
    threads: int | None = None,
    listener: Listener | None = None,
) -> int:
    """Score stored outputs again in an open results file, like ``score``. Returns the number of outputs."""
    listener = listener or Listener()
    progress = listener.on_count
    is_stored = embedding is not None and embedding in embedding_models(store)
    embedder = load_embedding_model(embedding, bundle, threads) if embedding and not is_stored else None
    stored = embedding if is_stored else None
    try:
        similarities = Similarities(
            embedder, model=stored, progress=functools.partial(progress, "Embedding", unit="texts")
        )
        rescoring = Rescoring(BENCHMARKS, run_ids, similarities, processes)
        return rescore(store, rescoring, functools.partial(progress, "Scoring", unit="outputs"), listener.on_message)
    finally:
        if embedder:
            embedder.close()
