"""Results files with answers to rate, and what people say of them, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lbx.base.records import Sample
from lbx.opinions.journal import Journal, journal_of
from lbx.opinions.rating_rows import ratings_of
from lbx.opinions.rating_session import Opinion, RatingSession
from lbx.opinions.rating_sets import SCORE, RatingSet, make_rating_set
from lbx.results import GenerationRow, RunRow, SampleRow, ScoreRow, Store

RUNS = ("alpha", "beta")


def answers_file(path: Path, runs: Sequence[str] = RUNS, **options: Any) -> Path:
    """Question n is about document n % documents. Where n is 3, all runs answer the same; run 0 fails at question 4."""
    key = repr((runs, sorted(options.items())))
    if key not in _MADE:  # a file takes a second to make
        _made(path, runs, **options)
        _MADE[key] = path.read_bytes()
    path.write_bytes(_MADE[key])
    return path


_MADE: dict[str, bytes] = {}


def _made(
    path: Path,
    runs: Sequence[str],
    *,
    questions: int = 10,
    documents: int = 5,
    output: str = "{run} says {n}",
    question: str = "What of {n}?",
    text: str = "Document {document}.",
    marks: Sequence[str] = ("human",),
) -> None:
    with Store(path) as store:
        for at, run in enumerate(runs):
            store.begin_run(RunRow(run, f"model-{run}", "scripted", "1", {"leval": 1}, "b" * 64, {}, {}, "1"))
            samples, generations, scores = [], [], []
            for n in range(questions):
                sample = Sample(
                    "leval", "narrative_qa", f"q{n:03d}", text.format(document=n % documents), question.format(n=n),
                    (f"reference {n}",), meta={"judged_by": list(marks)},
                )  # fmt: skip
                samples.append(SampleRow(sample, n))
                failed = n == 4 and at == 0
                said = None if failed else "the same" if n == 3 else output.format(run=run, n=n)
                generations.append(
                    GenerationRow(run, "leval", "narrative_qa", f"q{n:03d}", 0, said, error="no" if failed else None)
                )
                if not failed:
                    scores.append(ScoreRow(run, "leval", "narrative_qa", f"q{n:03d}", 0, "f1", 1, 0.5, None, True))
            store.write(samples=samples, generations=generations, scores=scores)


def set_of(path: Path, kind: str = SCORE, **options: object) -> RatingSet:
    with Store(path, read_only=True) as store:
        return make_rating_set(store, (), kind=kind, **options)[0]  # type: ignore[arg-type]


def book_of(path: Path, journal: Journal, raters: Sequence[str] = ("ann",), **options: object) -> RatingSession:
    """As `lbx rate` opens it."""
    chosen = set_of(path, **options)  # type: ignore[arg-type]
    with Store(path, read_only=True) as store:
        held = ratings_of(store, chosen.set_id).dicts()
    return RatingSession(chosen, raters, journal, held)


@contextmanager
def session_of(path: Path, raters: Sequence[str] = ("ann",), **options: object) -> Iterator[RatingSession]:
    """A session of `lbx rate`, with its journal open."""
    with Journal(journal_of(path)) as journal:
        yield book_of(path, journal, raters, **options)


def rate_all(path: Path, rater: str, value: int) -> None:
    """Everything that a rater is asked, and the journal left as it is."""
    with session_of(path, (rater,)) as book:
        for item in book.queue(rater):
            for place in range(len(book.values(rater, item))):
                book.save(rater, item, [Opinion(place, value)])
