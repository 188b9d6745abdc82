"""Commands ``lbx rate`` and ``lbx annotate``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import StoreError, UsageError
from lbx.base.units import format_count
from lbx.base.visible import as_command, one_line
from lbx.cli.output import answer, note
from lbx.cli.people_options import AnnotateOptions, RateOptions, RatingKind
from lbx.cli.web_pages import import_web, open_site
from lbx.exchange.annotation.dataset import Dataset
from lbx.exchange.annotation.tool_pages import apply_pages, lost_content, official_files
from lbx.exchange.exporting import write_files
from lbx.opinions.journal import Journal, collect_ratings, journal_of, move_journal
from lbx.opinions.rating_rows import ratings_of
from lbx.opinions.rating_session import RatingSession
from lbx.opinions.rating_sets import documents, make_rating_set
from lbx.results import Store
from lbx.results.file.opening import require_file
from lbx.results.file.texts import require_texts
from lbx.results.read.runs import resolve_runs
from lbx.results.read.stored_answers import task_patterns

if TYPE_CHECKING:
    from lbx.opinions.rating_site import RatingPages
    from lbx.web import Documents
    from lbx.web.annotating import AnnotationPages

_MAX_STEPS = 20
_SOURCES = {
    "human": "questions that L-Eval marks for people",
    "llm": "questions that L-Eval marks for a judge",
    "both": "questions that L-Eval marks for people and for a judge",
    "open": "questions with free-text answers",
}


def rate(options: RateOptions) -> None:
    results = options.results
    require_file(results)
    if options.journals and not options.collect:
        raise UsageError(
            "--journal needs --collect.", command=as_command("lbx", "rate", results, "--collect", "--journal", "FILE")
        )
    if options.scale and options.kind is RatingKind.PAIR:
        raise UsageError(
            "--scale needs --kind score; for pairs, raters choose the better of two answers.", fix="Leave it out."
        )
    with Store(results, allow_writer=True) as store:
        require_texts(store, "Raters need questions and answers.")
    if options.collect:
        _collect(results, options.journals)
        return
    _open_pages(options, import_web("opinions.rating_site:RatingPages"), import_web("web:Documents"))


def _collect(results: Path, journals: Sequence[Path]) -> None:
    summary = collect_ratings(results, journals)
    if summary.torn:
        note(f"A partial line, left when lbx was killed and never shown as saved, is now in {summary.torn}.")
    for path, raters in summary.lines_of_raters.items():
        who = ", ".join(f"{rater} ({lines:,})" for rater, lines in sorted(raters.items()))
        note(f"{path} contains ratings of {who or 'no raters'}; lbx cannot verify who wrote them.")
    note(f"Moved into {results}: {_format_count(summary.ratings)}.")


def _format_count(count: int) -> str:
    return format_count(count, "rating or revision", "ratings and revisions")


def _open_pages(options: RateOptions, pages_of: type[RatingPages], documents_of: type[Documents]) -> None:
    people, results = _rater_names(options.names, options.raters), options.results
    bundle = Bundle(options.bundle) if options.bundle else None
    with Journal(journal_of(results)) as journal:
        with Store(results) as store:
            question_set, equal = make_rating_set(
                store,
                resolve_runs(store, options.runs),
                kind=str(options.kind),
                questions=options.questions and str(options.questions),
                patterns=task_patterns(options.tasks),
                limit=options.items,
                scale=_parse_scale(options.scale or "1-5"),
                seed=options.shuffle_seed,
                raters_per_item=options.raters_per_item if len(people) > 1 else None,
                agreement=options.agreement,
                bundle=bundle,
                criterion=options.criterion.strip(),
            )
            stored_rows = ratings_of(store, question_set.set_id).dicts()
        texts = documents(bundle, question_set.items) if bundle else {}
        session = RatingSession(question_set, people, journal, stored_rows)
        describe_session(session, equal, texts if bundle else None)
        pages = pages_of(session, documents_of(texts.get), reference_open=options.reference_open)
        raters = [rater for rater in people if session.queue(rater)]
        open_site(pages.routes, raters, options, partial(_move_at_end, results, journal))


def describe_session(session: RatingSession, equal: int, documents: Mapping[str, str] | None) -> None:
    """Note the numbers of questions, documents and raters, before the links are printed."""
    question_set = session.set
    questions = format_count(len(question_set.items), "question")
    note(f"{question_set.set_id}: {questions} ({question_set.source}), answers of {', '.join(question_set.runs)}.")
    if question_set.source in _SOURCES:
        note(f"Only {_SOURCES[question_set.source]}; pass --questions all for all questions.")
    if len(session.raters) > 1:
        _describe_assignments(session)
    if equal:
        note(f"{format_count(equal, 'pair is', 'pairs are')} left out because both answers are equal.")
    if documents is None:
        note("Without --bundle, the page shows no documents.")
    elif lacking := sum(item.document_key not in documents for item in question_set.items):
        note(f"The bundle lacks the documents of {format_count(lacking, 'question')}.")
    if without_text := sum(not (item.task_text or item.question).strip() for item in question_set.items):
        hint = "pass --bundle to show their prompts" if documents is None else "the bundle lacks their prompts"
        note(f"{format_count(without_text, 'question has', 'questions have')} no text: {hint}.")
    if session.torn:
        note(f"A partial line, left when lbx was killed and never shown as saved, is now in {session.torn}.")
    if done := sum(session.progress(rater).done for rater in session.raters):
        note(f"{done:,} are already rated; this session continues with the others.")


def _describe_assignments(session: RatingSession) -> None:
    items, each = session.set.items, session.set.raters_per_item
    for_all = sum(item.for_all for item in items)
    shared = f"All raters get {for_all:,} of them; each of the others has {each} of the raters."
    note(shared if for_all else f"Each question is assigned to {each} of the {len(session.raters)} raters.")
    if not for_all and each == 1:
        note(
            "No two raters get the same question, so agreement cannot be computed. Raise --agreement or "
            "--raters-per-item."
        )
    for rater in session.raters:
        if not session.queue(rater):
            note(f"{rater} gets no questions and no link because there are fewer documents than raters.")


def _move_at_end(results: Path, journal: Journal) -> None:
    """Move the ratings of a journal into the results file, unless the file is in use."""
    try:
        moved = move_journal(results, journal)
    except StoreError as error:
        note(f"All ratings are safe in {journal.path}, but not yet in the results file: {error.cause}")
        note(f"Move them later with: {as_command('lbx', 'rate', results, '--collect')}")
    else:
        note(f"Moved into {results}: {_format_count(moved)}." if moved else "There are no new ratings.")


def _rater_names(names: Sequence[str], raters: int | None) -> list[str]:
    if names and raters is not None and raters != len(names):
        raise UsageError(f"--raters is {raters}, but --rater names {len(names)}.", fix="Give one of the two.")
    people = list(names) or [f"rater-{number}" for number in range(1, (raters or 1) + 1)]
    for name in people:
        if not name.strip() or one_line(name) != name or len(name) > 80:
            raise UsageError(
                f"{name!r} is not a valid rater name.",
                fix="Use one line of at most 80 characters, such as letters and digits.",
            )
    if len({*people}) < len(people):
        raise UsageError("Two raters have the same name.", fix="Give each --rater a different name.")
    return people


def _parse_scale(scale: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,3})-([0-9]{1,3})", scale)
    low, high = (int(match[1]), int(match[2])) if match else (0, 0)
    if not low < high <= low + _MAX_STEPS:
        raise UsageError(
            f"{scale!r} is not a scale.",
            fix=f"Pass two whole numbers that differ by at most {_MAX_STEPS}, such as --scale 1-5.",
        )
    return low, high


def annotate(options: AnnotateOptions) -> None:
    file, output = options.file, options.output
    if options.read_only and (output or options.take or options.official or options.write):
        raise UsageError("--read-only writes no files and cannot be combined with -o, --take, --official or --write.")
    if file.is_dir():
        raise UsageError(f"{file} is a folder.", fix="Give a file with one JSON object per line, like L-Eval's.")
    out = None if options.read_only else output or file.with_name(f"{file.stem}.annotated{file.suffix}")
    pages_of: type[AnnotationPages] | None = None if options.write else import_web("web.annotating:AnnotationPages")
    with Dataset(file, out) as dataset:
        if options.take is not None:
            note(f"{format_count(apply_pages(dataset, options.take), 'document')} taken over from {options.take}")
        save = partial(_write, dataset, options.official, options.new_pairs)
        if pages_of:
            note(f"{format_count(len(dataset), 'document')}; {dataset.changed_count:,} of them edited")
            open_site(pages_of(dataset, options.new_pairs).routes, ["you"], options, save)
        else:
            save()


def _write(dataset: Dataset, official: Path | None, new_pairs: int) -> None:
    if dataset.out is None:
        return
    answer(f"{dataset.write()}: {format_count(len(dataset), 'document')}, {dataset.changed_count:,} of them edited")
    if official is not None:
        pieces = {name: [text] for name, text in official_files(dataset, new_pairs).items()}
        written = write_files(official, pieces, run_names=str(dataset.path), force=True)
        answer(f"{format_count(len(written), 'file')} in the format of L-Eval's own tool, in {official}")
        for text in lost_content(dataset):
            note(text)
