"""What ``lbx rate`` does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from lbx.base.commands import as_command
from lbx.base.errors import StoreError, UsageError
from lbx.base.layout import Bundle
from lbx.base.visible import one_line
from lbx.cli.output import note
from lbx.cli.sites import open_site
from lbx.judging.people.book import Book
from lbx.judging.people.choosing import documents, rating_set
from lbx.judging.people.collecting import collected
from lbx.judging.people.journal import Journal, journal_of
from lbx.store import Store
from lbx.store.ratings import ratings_of
from lbx.store.runs import check_runs
from lbx.web import Documents
from lbx.web.rating import RatingPages

_MOST_STEPS = 20


def rate_answers(
    *,
    results: Path,
    bundle: Path | None,
    runs: list[str] | None,
    kind: str,
    questions: str | None,
    pattern: str,
    limit: int | None,
    raters: int | None,
    names: list[str] | None,
    raters_per_item: int,
    agreement: float,
    scale: str | None,
    reference_open: bool,
    seed: int,
    host: str,
    port: int,
    uds: Path | None,
    others: bool,
) -> None:
    """See ``lbx rate``."""
    people = _people(names or [], raters)
    opened = Bundle(bundle) if bundle else None
    with Journal(journal_of(results)) as journal:
        with Store(results) as store:
            check_runs(store, runs or ())
            chosen, equal = rating_set(
                store,
                runs or (),
                kind=kind,
                questions=questions,
                pattern=pattern,
                limit=limit,
                scale=_ends(scale or "1-5"),
                seed=seed,
                raters_per_item=raters_per_item if len(people) > 1 else None,
                agreement=agreement,
                bundle=opened,
            )
            held = ratings_of(store, chosen.set_id).dicts()
        texts = documents(opened, chosen.items) if opened else {}
        book = Book(chosen, people, journal, held)
        _say_what(book, equal, texts if opened else None)
        pages = RatingPages(book, Documents(texts.get), reference_open=reference_open)
        try:
            open_site(pages.routes, people, host=host, port=port, uds=uds, others=others)
        finally:
            _keep(results, journal)


def _say_what(book: Book, equal: int, documents: Mapping[str, str] | None) -> None:
    """What will be rated, before the links."""
    chosen = book.set
    for_all = sum(item.for_all for item in chosen.items)
    note(f"{chosen.set_id}: {len(chosen.items):,} questions ({chosen.source}), answers of {', '.join(chosen.runs)}.")
    if len(book.raters) > 1:
        note(f"{for_all:,} of them go to all raters, the others to {chosen.raters_per_item}.")
    if equal:
        note(f"{equal:,} pairs are left out: both answers are equal.")
    if documents is None:
        note("Without --bundle there are no documents to see.")
    elif lacking := sum(item.document_key not in documents for item in chosen.items):
        note(f"The bundle lacks the documents of {lacking:,} questions.")
    if book.torn:
        note(f"A line that was cut off when lbx was killed, and never shown as saved, is now in {book.torn}.")
    if done := sum(book.progress(rater).done for rater in book.raters):
        note(f"{done:,} are rated already; this continues.")


def _keep(results: Path, journal: Journal) -> None:
    """At the end: into the tables, if they are free."""
    try:
        moved = collected(results, journal)
    except StoreError as error:
        note(f"Every rating is safe in {journal.path}, and not yet in the results file: {error.cause}")
        note(f"Move them later: {as_command('lbx', 'rate', results, '--collect')}")
    else:
        note(f"Moved into {results}: {moved:,} ratings and revisions." if moved else "Nothing new was rated.")


def _people(names: Sequence[str], raters: int | None) -> list[str]:
    if names and raters is not None and raters != len(names):
        raise UsageError(f"--raters says {raters}, and {len(names)} are named.", fix="One of the two is enough.")
    people = list(names) or [f"rater-{number}" for number in range(1, (raters or 1) + 1)]
    for name in people:
        if not name.strip() or one_line(name) != name or len(name) > 80:
            raise UsageError(f"{name!r} is no name for a rater.", fix="Use letters and digits, say.")
    if len({*people}) < len(people):
        raise UsageError("Two raters have one name.", fix="Give each --rater a name of its own.")
    return people


def _ends(scale: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,3})-([0-9]{1,3})", scale)
    low, high = (int(found[1]), int(found[2])) if found else (0, 0)
    if not low < high <= low + _MOST_STEPS:
        raise UsageError(f"{scale!r} is no scale.", fix=f"Two whole numbers, at most {_MOST_STEPS} apart: --scale 1-5.")
    return low, high
