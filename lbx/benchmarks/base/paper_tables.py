"""Tables of a benchmark as data: its paper's, its leaderboards and charts, and scores published elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lbx.base.columns import Column
from lbx.base.number import NumberKey
from lbx.statistics.estimates import Interval


class LengthCurve(NamedTuple):
    """A run's scores by document length.

    Attributes:
        tasks: counted tasks.
        n, fewest: number of their answers, and the smallest number that a task has at a length.
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
        """Name of the intervals' clusters."""
        return "document" if self.clustered else "sample"


class TableCell(NamedTuple):
    """Position of a number: table, one of a run's rows there ("" if it has just one), and column."""

    table: str
    row: str
    column: str


def by_group(key: NumberKey) -> TableCell | None:
    """Return a number's place: a table for each grouping and one for the tasks, with a row for each metric."""
    return TableCell(key.grouping or "tasks", key.metric, key.name)


@dataclass(frozen=True, slots=True)
class Paper:
    """Tables of a benchmark's paper.

    Attributes:
        titles: {table: title}; other tables are called by their names.
        cell_of: position of a number; None if another number repeats it.
        averages: the (table, row)s with the benchmark's averages; () if all its averages are.
        average_heading: heading of an average next to other columns; None uses its column.
        curves: tables of ``ScoringRules.curves`` instead of stored numbers: {grouping: tasks that may be in it}.
            They are official if every task of the curve is.
    """

    titles: Mapping[str, str] = field(default_factory=dict)
    cell_of: Callable[[NumberKey], TableCell | None] = by_group
    averages: tuple[tuple[str, str], ...] = ()
    average_heading: Callable[[NumberKey], str] | None = None
    curves: Mapping[str, Collection[str]] = field(default_factory=dict)


CsvRow = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PublishedScores:
    """Rules for reading and checking published scores.

    Attributes:
        columns: a file's columns in addition to "benchmark" and "model", if ``scores`` reads its rows; () if not.
        scores_of_row: (model, number, score) of a row in that form.
        several_rows: whether the scores of one model are in several rows of it.
        means: (a mean, {part: its number of questions, 0 if unknown}).
        lengths: {length in tokens: the score at that length}, for the report ``effective_context``.
    """

    columns: Sequence[str] = ()
    scores_of_row: Callable[[CsvRow], Iterable[tuple[str, NumberKey, str]]] = lambda row: ()
    several_rows: bool = True
    means: Sequence[tuple[NumberKey, Mapping[NumberKey, int]]] = field(default=())
    lengths: Mapping[int, NumberKey] = field(default_factory=dict)


BoardRow = dict[str, Any]
IntervalValues = tuple[float | None, float | None, str | None, str | None]
"""Low and high end of a number's interval, its method, and the name of its clusters."""


@dataclass(frozen=True, slots=True)
class BoardEntry:
    """A run, or a published model (``run_id`` None).

    Attributes:
        model: its name; a published model's ends with "*".
        mode: how it was asked, if not in the plain way; ``mode_without_reasoning`` leaves out the part that
            ``reasons`` covers.
        reasons: whether it was asked to reason before its answers: with CoT, or thinking.
        attributes: facts about the model and how it was asked, by lower-case names.
        numbers: official numbers by their keys without a run; the score so far if there is no official number, with the
            key in ``unofficial``.
        intervals: intervals of runs' scores, in the score's unit.
        cluster_by: name of the intervals' clusters; "sample" if any score has samples as clusters.
        note: a problem for comparisons: samples without an answer, a published row that contradicts itself.
        remark: another problem of the numbers: answers with reasoning that never closed.
    """

    model: str
    run_id: str | None = None
    backend: str | None = None
    mode: str | None = None
    mode_without_reasoning: str | None = None
    differs_in: str | None = None
    reasons: bool = False
    attributes: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[NumberKey, float] = field(default_factory=dict)
    unofficial: frozenset[NumberKey] = frozenset()
    intervals: Mapping[NumberKey, IntervalValues] = field(default_factory=dict)
    cluster_by: str | None = None
    note: str | None = None
    remark: str | None = None

    def describe(self, name: str) -> str | None:
        """Return a fact about the model: from its row if published, from ``--metadata`` of a run otherwise."""
        metadata = self.attributes.get("metadata", {})
        facts = self.attributes if self.run_id is None else {key.casefold(): text for key, text in metadata.items()}
        return str(facts[name]) if facts.get(name) else None

    @property
    def window(self) -> str | None:
        """Context window of a run."""
        return thousands(self.attributes.get("context_window"))


def thousands(tokens: object) -> str | None:
    """Format a window as leaderboards do: 128000 and 131072 are "128k", 120000 is "120k"."""
    if not isinstance(tokens, int) or tokens <= 0:
        return None
    sizes = ((10**6, "M"), (2**20, "M"), (1000, "k"), (1024, "k"))
    return next((f"{tokens // size}{unit}" for size, unit in sizes if tokens % size == 0), str(tokens))


def file_names(settings: Mapping[str, Any]) -> list[str]:
    """Return the names of the files that a run was imported from."""
    files = settings.get("files")
    return [str(file.get("name")) for file in files if isinstance(file, dict)] if isinstance(files, list) else []


MODE = Column("mode", "mode", optional=True)


def first_value(describe: Callable[[BoardEntry], object]) -> Callable[[Sequence[BoardEntry]], object]:
    """Return a function that finds the first value that is not None: of the plain entry, then the reasoning one."""
    return lambda entries: next((value for entry in entries if (value := describe(entry)) is not None), None)


def best_of(*columns: str) -> Callable[[BoardRow], float | None]:
    """Return a function that finds the largest of these columns' numbers in a row."""
    return lambda row: max((row[column] for column in columns if row[column] is not None), default=None)


@dataclass(frozen=True, slots=True)
class BoardPart:
    """A part of a table, with a row for each model that has any of its numbers.

    Attributes:
        numbers: {column: number}; columns that are not in the table can be ranked by.
        reasoning_numbers: numbers of the run that was asked to reason, in tables that pair it with the plain one.
        texts: constant columns of its rows: {"language": "English"}.
        curve: name in ``ScoringRules.curves`` of points of a curve; "" for numbers of the report ``paper``.
    """

    numbers: Mapping[str, NumberKey]
    reasoning_numbers: Mapping[str, NumberKey] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    curve: str = ""


@dataclass(frozen=True, slots=True)
class AnswerLengthRule:
    """Rule for a column "length": the mean number of words in a run's answers.

    Attributes:
        by: keys of ``meta`` that answers are grouped by.
        counts: returns whether answers count, given their task and their samples' values of these keys.
    """

    by: Sequence[str]
    counts: Callable[[str, Sequence[str | None]], bool]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of a table's rows.

    Attributes:
        title: with "{}" for the value of ``by``, or for the model.
        columns: {column of the table: label in the chart}.
        by: the column that has a chart for each of its values.
        only: the only one of these values that is drawn; all are by default.
        scale: factor for numbers: 100 for percents of 0..1.
    """

    title: str
    about: str
    columns: Mapping[str, str]
    by: str = ""
    only: str = ""
    scale: float = 1.0


class RadarChart(Chart):
    """A radar chart with an axis for each column and a shape for each model."""


class LineChart(Chart):
    """A line chart over the columns, with a line for each model."""


class DotChart(Chart):
    """A dot chart with a line for each column and a dot for each model."""


class ModelDotChart(Chart):
    """A dot chart with a line for each model and a dot for each column, labelled "MODEL, COLUMN"."""


class HeatMap(Chart):
    """A heat map with a row for each model.

    With ``by`` it has a chart for each model, and a row for each of the column's values except ``only``.
    """


@dataclass(frozen=True, slots=True)
class Board:
    """A table of a leaderboard.

    Attributes:
        title: title, followed by the unit in parentheses.
        columns: columns after the model's.
        first: columns before the model's.
        by: ranking of the rows of a part, best first; None keeps their order.
        ordered_by: the number that models are ordered by in all parts alike; None keeps their order.
        pairs_modes: whether a model's plain run and the one that reasons share a row.
        keeps_empty: whether a model without any of a part's numbers has a row, too.
        model_label: returns a model's label, if not its name.
        postprocess_rows: transforms a part's rows before they are shown.
        words: the answers for the column "length", their mean length.
        charts: charts that its authors draw of it.
        small_charts: whether they are placed side by side.
        empty: the sentence instead of a table without rows.
    """

    title: str
    columns: Sequence[Column]
    parts: Sequence[BoardPart]
    first: Sequence[Column] = ()
    by: Callable[[BoardRow], float | None] | None = None
    ordered_by: NumberKey | None = None
    pairs_modes: bool = False
    keeps_empty: bool = False
    model_label: Callable[[BoardEntry], str] | None = None
    postprocess_rows: Callable[[list[BoardRow]], list[BoardRow]] | None = None
    words: AnswerLengthRule | None = None
    charts: Sequence[Chart] = ()
    small_charts: bool = False
    note: str = ""
    empty: str = "No run answers this benchmark."


@dataclass(frozen=True, slots=True)
class Boards:
    """A benchmark's leaderboards.

    Attributes:
        tables: by the names of their reports.
        reference_models: published models that are shown next to any run, in a table of pairs on both sides.
        complete_entry: adds numbers that follow from an entry's scores: averages of a published model's tasks.
    """

    tables: Mapping[str, Board] = field(default_factory=dict)
    reference_models: Sequence[str] = ()
    complete_entry: Callable[[BoardEntry], BoardEntry] = lambda entry: entry
