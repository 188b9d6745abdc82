"""Tables of a benchmark as data: those of its paper, its leaderboards and charts, and figures published elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lbx.base.columns import Column
from lbx.base.number_key import NumberKey
from lbx.statistics.estimates import Interval


class LengthCurve(NamedTuple):
    """A run's curve.

    Attributes:
        tasks: those that count.
        n, fewest: their answers, and how many the fewest are that a task has at a length.
        points: by length, in 0..1.
        clustered: whether the documents of all answers are known.
    """

    tasks: tuple[str, ...]
    n: int
    fewest: int
    points: Mapping[str, Interval]
    clustered: bool

    @property
    def cluster_by(self) -> str:
        """What the intervals' clusters are."""
        return "document" if self.clustered else "sample"


class Place(NamedTuple):
    """Where a number stands: in which table, in which of a run's rows there ("" where it has but one), which column."""

    table: str
    row: str
    column: str


def by_group(key: NumberKey) -> Place | None:
    """A table for each grouping and one for the tasks; a row for each metric."""
    return Place(key.grouping or "tasks", key.metric, key.name)


@dataclass(frozen=True, slots=True)
class Paper:
    """A benchmark's tables.

    Attributes:
        titles: {table: its title}; other tables are called by their names.
        place: position of a number; None where another number says the same.
        averages: the (table, row)s that hold the benchmark's averages; () where every average of it is one.
        average_heading: what an average is called beside others; None takes its column.
        curves: tables of ``ScoringRules.curves`` instead of stored numbers: {grouping: tasks that may be in it}.
            They are official where every task of the curve is.
    """

    titles: Mapping[str, str] = field(default_factory=dict)
    place: Callable[[NumberKey], Place | None] = by_group
    averages: tuple[tuple[str, str], ...] = ()
    average_heading: Callable[[NumberKey], str] | None = None
    curves: Mapping[str, Collection[str]] = field(default_factory=dict)


CsvRow = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PublishedFigures:
    """How they are read and checked.

    Attributes:
        columns: what a file has, beside "benchmark" and "model", whose rows ``figures`` reads; () for no such form.
        figures: (model, number, figure) of a row in that form.
        several_rows: whether the figures of one model stand in several rows of it.
        means: (a mean, {each of its parts: how many questions it has, 0 where that is not said}).
    """

    columns: Sequence[str] = ()
    figures: Callable[[CsvRow], Iterable[tuple[str, NumberKey, str]]] = lambda row: ()
    several_rows: bool = True
    means: Sequence[tuple[NumberKey, Mapping[NumberKey, int]]] = field(default=())


Row = dict[str, Any]
Sure = tuple[float | None, float | None, str | None, str | None]
"""Low and high end of a number's interval, its method, and what its clusters are."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A run, or a published model (``run_id`` None).

    Attributes:
        model: its name; a published model's ends with "*".
        mode: how it was asked, where not in the plain way; ``way`` without what ``reasons`` says.
        reasons: whether it was asked to reason before its answers: with CoT, or thinking.
        about: what is known of the model and how it was asked, by lower-case names.
        figures: official numbers by their keys without a run; the score so far where there is none, and the key is in
            ``open``.
        sure: of runs' figures, the ends in the figure's unit.
        cluster_by: what an interval's clusters are; "sample" where those of any figure are.
        note: what hinders a comparison: samples without an answer, a published row that contradicts itself.
        remark: what else spoils the numbers: answers whose reasoning never closed.
    """

    model: str
    run_id: str | None = None
    backend: str | None = None
    mode: str | None = None
    way: str | None = None
    differs_in: str | None = None
    reasons: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[NumberKey, float] = field(default_factory=dict)
    open: frozenset[NumberKey] = frozenset()
    sure: Mapping[NumberKey, Sure] = field(default_factory=dict)
    cluster_by: str | None = None
    note: str | None = None
    remark: str | None = None

    def described(self, name: str) -> str | None:
        """What is said of the model: of a published one its row, of a run its metadata (``--metadata``)."""
        metadata = self.about.get("metadata", {})
        known = self.about if self.run_id is None else {key.casefold(): text for key, text in metadata.items()}
        return str(known[name]) if known.get(name) else None

    @property
    def window(self) -> str | None:
        """The context window of a run."""
        return thousands(self.about.get("context_window"))


def thousands(tokens: object) -> str | None:
    """A window as leaderboards write it: 128000 and 131072 are "128k", 120000 is "120k"."""
    if not isinstance(tokens, int) or tokens <= 0:
        return None
    sizes = ((10**6, "M"), (2**20, "M"), (1000, "k"), (1024, "k"))
    return next((f"{tokens // size}{unit}" for size, unit in sizes if tokens % size == 0), str(tokens))


def file_names(settings: Mapping[str, Any]) -> list[str]:
    """Those of the files that a run was imported from."""
    files = settings.get("files")
    return [str(file.get("name")) for file in files if isinstance(file, dict)] if isinstance(files, list) else []


MODE = Column("mode", "mode", optional=True)


def first_known(describe: Callable[[Entry], object]) -> Callable[[Sequence[Entry]], object]:
    """The first answer that is not None, of the plain entry, then of the one that reasons."""
    return lambda entries: next((value for one in entries if (value := describe(one)) is not None), None)


def best_of(*columns: str) -> Callable[[Row], float | None]:
    """The largest of some numbers of a row."""
    return lambda row: max((row[column] for column in columns if row[column] is not None), default=None)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a table, with a row for each model that has any of its numbers.

    Attributes:
        numbers: {column: number}; columns that the table does not have can be ranked by.
        reasoned: the same of the run that was asked to reason, in tables that pair it with the plain one.
        texts: what all its rows say: {"language": "English"}.
        curve: which of ``ScoringRules.curves`` the numbers are points of; "" for the numbers of the report ``paper``.
    """

    numbers: Mapping[str, NumberKey]
    reasoned: Mapping[str, NumberKey] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    curve: str = ""


@dataclass(frozen=True, slots=True)
class Words:
    """A column "length": how many words a run's answers have in the mean.

    Attributes:
        by: keys of ``meta``, which answers are told apart by.
        counts: whether answers count, given their task and what their samples have for these keys.
    """

    by: Sequence[str]
    counts: Callable[[str, Sequence[str | None]], bool]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of a table's rows.

    Attributes:
        title: with "{}" for the value of ``by``, or for the model.
        about: what it shows, in a few words.
        columns: {column of the table: what the chart calls it}.
        by: the column that has a chart for each of its values.
        only: the one of these values that is drawn; all without it.
        scale: what numbers are multiplied with: 100 for percents of 0..1.
    """

    title: str
    about: str
    columns: Mapping[str, str]
    by: str = ""
    only: str = ""
    scale: float = 1.0


class Radar(Chart):
    """An axis a column, a shape a model."""


class Lines(Chart):
    """A line a model, over the columns."""


class Dots(Chart):
    """A line of dots for each column, a dot a model."""


class ModelDots(Chart):
    """A line of dots for each model, a dot a column, whose name follows the model's."""


class Heat(Chart):
    """A row a model; with ``by`` a chart a model, and a row for each of the column's values but ``only``."""


@dataclass(frozen=True, slots=True)
class Board:
    """A table of a leaderboard.

    Attributes:
        title: with the unit in parentheses behind it.
        columns: those behind the model's.
        first: those before it.
        by: what the rows of a part are ranked by, best first; None leaves them as they come.
        ordered_by: the number that models are ordered by in all parts alike; None leaves them as they come.
        paired: whether a model's plain run and the one that reasons share a row.
        keeps_empty: whether a model without any of a part's numbers has a row, too.
        called: what a model is called, where not by its name.
        shown: what is made of a part's rows before they are shown.
        words: the answers whose mean length is the column "length".
        charts: what its authors draw of it.
        small_charts: whether they stand side by side.
        note: a sentence below the table.
        empty: the sentence instead of a table without rows.
    """

    title: str
    columns: Sequence[Column]
    parts: Sequence[Part]
    first: Sequence[Column] = ()
    by: Callable[[Row], float | None] | None = None
    ordered_by: NumberKey | None = None
    paired: bool = False
    keeps_empty: bool = False
    called: Callable[[Entry], str] | None = None
    shown: Callable[[list[Row]], list[Row]] | None = None
    words: Words | None = None
    charts: Sequence[Chart] = ()
    small_charts: bool = False
    note: str = ""
    empty: str = "No run answers this benchmark."


@dataclass(frozen=True, slots=True)
class Boards:
    """A benchmark's leaderboards.

    Attributes:
        tables: by the names of their reports.
        always: published models that are shown beside any run, in a table of pairs on both sides.
        completed: adds what an entry's figures say beyond themselves: of a published model's tasks, its averages.
    """

    tables: Mapping[str, Board] = field(default_factory=dict)
    always: Sequence[str] = ()
    completed: Callable[[Entry], Entry] = lambda entry: entry
