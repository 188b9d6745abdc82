"""``lbx rate``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lbx.base.commands import as_command
from lbx.base.errors import StoreError, UsageError
from lbx.base.visible import one_line
from lbx.cli.options import Host, Others, Port, Results, Uds
from lbx.cli.output import note
from lbx.cli.sites import check_web, open_site
from lbx.cli.spec_options import of_run

if TYPE_CHECKING:
    from lbx.judging.people.book import Book
    from lbx.judging.people.journal import Journal

_MOST_STEPS = 20


class RatingKind(StrEnum):
    SCORE = "score"
    PAIR = "pair"


class Questions(StrEnum):
    HUMAN = "human"
    LLM = "llm"
    BOTH = "both"
    OPEN = "open"
    ALL = "all"


def rate(
    *,
    results: Results,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", "-b", metavar="DIR", help="Where documents are; without it there are none to see."),
    ] = None,
    runs: Annotated[
        list[str] | None,
        typer.Option("--run", metavar="NAME", help="Whose answers; repeated. Default: all runs of the file."),
    ] = None,
    kind: Annotated[
        RatingKind, typer.Option("--kind", help="score: each answer on a scale; pair: the better one of each two.")
    ] = RatingKind.SCORE,
    questions: Annotated[
        Questions | None,
        typer.Option(
            "--questions",
            help="Of L-Eval those marked for people (human), for a judge (llm), both; open: all that are answered in "
            "words. Default: the first of human, open, all that there are any of.",
        ),
    ] = None,
    pattern: Annotated[str, typer.Option("--match", metavar="PATTERN", help="Only these: 'leval/*_summ/*'.")] = "*",
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="The first N questions.")
    ] = None,
    raters: Annotated[
        int | None, typer.Option("--raters", metavar="N", min=1, help="So many raters: rater-1, rater-2 ...")
    ] = None,
    names: Annotated[
        list[str] | None, typer.Option("--rater", metavar="NAME", help="A rater by name. Can be repeated.")
    ] = None,
    raters_per_item: Annotated[
        int, typer.Option("--raters-per-item", metavar="N", min=1, help="How many raters get each question.")
    ] = 1,
    agreement: Annotated[
        float,
        typer.Option("--agreement", metavar="SHARE", min=0, max=1, help="Share of questions that all raters get."),
    ] = 0.2,
    scale: Annotated[
        str | None,
        typer.Option("--scale", metavar="LOW-HIGH", help="Of scores: whole numbers, the best last; default: 1-5."),
    ] = None,
    reference_open: Annotated[
        bool, typer.Option("--reference-open", help="Show references at once; default: on a key.")
    ] = False,
    seed: Annotated[int, of_run("seed")] = 0,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    uds: Uds = None,
    others: Others = False,
    collect: Annotated[
        bool, typer.Option("--collect", help="Only move ratings from the journal into the results file, and stop.")
    ] = False,
    journals: Annotated[
        list[Path] | None,
        typer.Option("--journal", metavar="FILE", help="With --collect: another machine's journal, too. Repeated."),
    ] = None,
) -> None:
    """Have people rate stored answers, blind, on a page of this machine; one secret link a rater.

    Every key is saved at once in RESULTS.ratings.jsonl. Ctrl-C ends it and moves the ratings into the results file. The
    same command again continues.

    Example: lbx rate results.duckdb --bundle long --run A --run B --rater ann --rater bob
    """
    if not results.is_file():
        raise UsageError(f"There is no results file {results}.", fix="Answers come first.", command="lbx run --help")
    if collect:
        _collect(results, journals or [])
        return
    if journals:
        raise UsageError(
            "--journal is for --collect.", command=as_command("lbx", "rate", results, "--collect", "--journal", "FILE")
        )
    if scale and kind is RatingKind.PAIR:
        raise UsageError("--scale is for --kind score: of two answers the better one is chosen.", fix="Leave it out.")
    check_web()
    from lbx.base.layout import Bundle
    from lbx.judging.people.book import Book
    from lbx.judging.people.choosing import documents, rating_set
    from lbx.judging.people.journal import Journal, journal_of
    from lbx.store import Store
    from lbx.store.ratings import ratings_of
    from lbx.store.runs import check_runs
    from lbx.web import Documents
    from lbx.web.rating import RatingPages

    people = _people(names or [], raters)
    opened = Bundle(bundle) if bundle else None
    with Journal(journal_of(results)) as journal:
        with Store(results) as store:
            check_runs(store, runs or ())
            chosen, equal = rating_set(
                store,
                runs or (),
                kind=str(kind),
                questions=questions and str(questions),
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
    from lbx.judging.people.collecting import collected

    try:
        moved = collected(results, journal)
    except StoreError as error:
        note(f"Every rating is safe in {journal.path}, and not yet in the results file: {error.cause}")
        note(f"Move them later: {as_command('lbx', 'rate', results, '--collect')}")
    else:
        note(f"Moved into {results}: {moved:,} ratings and revisions." if moved else "Nothing new was rated.")


def _collect(results: Path, journals: Sequence[Path]) -> None:
    from lbx.judging.people.collecting import collect

    found = collect(results, journals)
    if found.torn:
        note(f"A line that was cut off when lbx was killed, and never shown as saved, is now in {found.torn}.")
    for path, raters in found.spoke_for.items():
        who = ", ".join(f"{rater} ({lines:,})" for rater, lines in sorted(raters.items()))
        note(f"{path} speaks for {who or 'nobody'}; nothing shows that these people wrote it.")
    note(f"Moved into {results}: {found.ratings:,} ratings and revisions.")


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
