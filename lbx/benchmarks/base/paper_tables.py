"""Definitions, as data, of a benchmark's paper tables, leaderboards and charts, and of files of published scores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lbx.base.columns import Column
from lbx.base.number import NumberKey
from lbx.statistics.estimates import Interval


class LengthCurve(NamedTuple):
    """Scores of a run by document length.

    Attributes:
        tasks: counted tasks.
        n: number of answers to these tasks.
        min_task_n: smallest number of answers to one task at one length.
        points: interval of the score by length, in 0..1.
        clustered: whether the documents of all answers are known.
    """

    tasks: tuple[str, ...]
    n: int
    min_task_n: int
    points: Mapping[str, Interval]
    clustered: bool

    @property
    def cluster_by(self) -> str:
        """Name of the intervals' clusters."""
        return "document" if self.clustered else "sample"


class TableCell(NamedTuple):
    """Cell for a number in a paper's tables: table, row among a run's rows ("" for a single row), and column."""

    table: str
    row: str
    column: str


def cell_by_grouping(key: NumberKey) -> TableCell | None:
    """Cell of a number in tables by grouping, plus one for the tasks, each with a row for each metric."""
    return TableCell(key.grouping or "tasks", key.metric, key.name)


@dataclass(frozen=True, slots=True)
class Paper:
    """Tables of a benchmark's paper.

    Attributes:
        titles: {table: title}. A table without a title is called by its name.
        cell_of: returns the cell of a number, or None if another number repeats the number.
        averages: pairs (table, row) that contain the benchmark's averages. With (), every average counts.
        average_heading: returns the heading of an average next to other columns. With None, it is the cell's column.
        curves: tables of ``ScoringRules.curves`` instead of stored numbers: {grouping: tasks that the curve may use}.
            A curve is official if every task of the curve is.
    """

    titles: Mapping[str, str] = field(default_factory=dict)
    cell_of: Callable[[NumberKey], TableCell | None] = cell_by_grouping
    averages: tuple[tuple[str, str], ...] = ()
    average_heading: Callable[[NumberKey], str] | None = None
    curves: Mapping[str, Collection[str]] = field(default_factory=dict)


CsvRow = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PublishedScoreFormat:
    """Format of a family's files of published scores: layout and checks.

    Attributes:
        columns: columns that the family's own layout adds to "benchmark" and "model", or () without such a layout.
        scores_of_row: parses a row of this layout into (model, number, score).
        several_rows: whether several rows of a file contain the scores of one model.
        means: pairs of a mean and {averaged number: its number of questions, 0 if unknown}, to check the mean.
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


class TaskRating(NamedTuple):
    """Mean rating of a run's answers to a task by a judge, with the rubric of the benchmark's authors.

    Attributes:
        judge: the judge's run.
        score: mean rating as a part of the scale.
        n_answers: number of the run's answers to the task.
        n_questions, n_rounds: number of answers that the judge was asked about, and of times that the judge was asked.
        n_failed, n_none: number of times without a reply, and without a rating in the reply.
    """

    judge: str
    task: str
    score: float
    n_answers: int
    n_questions: int
    n_rounds: int
    n_failed: int
    n_none: int


@dataclass(frozen=True, slots=True)
class BoardEntry:
    """Run, or published model (``run_id`` None), as an entry of a leaderboard.

    Attributes:
        model: name of the model. The name of a published model ends with "*".
        mode: mode of the run, or None for the plain mode.
        mode_without_reasoning: ``mode`` without the words for which ``reasons`` is true.
        differs_in: settings that differ from other runs of the model.
        reasons: whether the model was asked to reason before the answer, with CoT or thinking.
        attributes: facts about the model and the run's settings, by lower-case names.
        numbers: official numbers by keys without a run. Where there is no official number, the score so far, with the
            key in ``unofficial``.
        intervals: intervals of a run's scores, in the unit of the scores.
        cluster_by: noun for the intervals' clusters, "sample" if samples are the clusters of any score.
        note: problem for comparisons: samples without an answer, or a published row that contradicts itself.
        remark: other problem of the numbers: answers with reasoning that never closed.
        ratings: judges' ratings of the run's answers.
        judged_note: ``note`` in the rows that include ratings.
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
    ratings: Sequence[TaskRating] = ()
    judged_note: str | None = None

    def fact(self, name: str) -> str | None:
        """Fact such as "params" about a model, from a published model's row or from a run's ``--metadata``."""
        metadata = self.attributes.get("metadata", {})
        facts = self.attributes if self.run_id is None else {key.casefold(): text for key, text in metadata.items()}
        return str(facts[name]) if facts.get(name) else None

    @property
    def window(self) -> str | None:
        """Context window of a run, formatted."""
        return format_window(self.attributes.get("context_window"))


def format_window(tokens: object) -> str | None:
    """Format a context window as leaderboards do: 128000 and 131072 are "128k", 120000 is "120k"."""
    if not isinstance(tokens, int) or tokens <= 0:
        return None
    sizes = ((10**6, "M"), (2**20, "M"), (1000, "k"), (1024, "k"))
    return next((f"{tokens // size}{unit}" for size, unit in sizes if tokens % size == 0), str(tokens))


def file_names(settings: Mapping[str, Any]) -> list[str]:
    """Names of the files that a run was imported from."""
    files = settings.get("files")
    return [str(file.get("name")) for file in files if isinstance(file, dict)] if isinstance(files, list) else []


MODE = Column("mode", "mode", optional=True)


def first_value(describe: Callable[[BoardEntry], object]) -> Callable[[Sequence[BoardEntry]], object]:
    """Make a function that describes the plain entry of a pair, or the reasoning entry if the plain gives None."""
    return lambda entries: next((value for entry in entries if (value := describe(entry)) is not None), None)


def best_of(*columns: str) -> Callable[[BoardRow], float | None]:
    """Make a function that finds the largest number in these columns of a row."""
    return lambda row: max((row[column] for column in columns if row[column] is not None), default=None)


@dataclass(frozen=True, slots=True)
class BoardPart:
    """Group of rows in a leaderboard, one for each model with any of the group's numbers.

    Attributes:
        numbers: {column: number}. A column that is not in the table can serve for ranking.
        reasoning_numbers: numbers of the run that was asked to reason, in tables that pair it with the plain run.
        texts: columns with one value for the group: {"language": "English"}.
        curve: name of the curve in ``ScoringRules.curves`` that gives the numbers, or "" for stored numbers.
        has_ratings: whether the numbers include ratings of a judge, which ``BoardEntry.judged_note`` names.
    """

    numbers: Mapping[str, NumberKey]
    reasoning_numbers: Mapping[str, NumberKey] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    curve: str = ""
    has_ratings: bool = False


@dataclass(frozen=True, slots=True)
class AnswerLengthRule:
    """Rule for the column "length" of a leaderboard: the mean number of words in a run's answers.

    Attributes:
        meta_keys: keys of ``Sample.meta`` by which answers are grouped.
        is_counted: whether the answers of a group count, from task and values of ``meta_keys``.
    """

    meta_keys: Sequence[str]
    is_counted: Callable[[str, Sequence[str | None]], bool]


@dataclass(frozen=True, slots=True)
class Chart:
    """Chart of a leaderboard's rows.

    Attributes:
        title: title, with "{}" for the value of ``split_by``, or for the model.
        about: description below the chart.
        columns: {column of the table: label in the chart}.
        split_by: column that splits the rows: each value gets a chart.
        only_value: the only value of ``split_by`` with a chart, or "" for all values.
        scale: factor for numbers: 100 for percents of 0..1.
    """

    title: str
    about: str
    columns: Mapping[str, str]
    split_by: str = ""
    only_value: str = ""
    scale: float = 1.0


class RadarChart(Chart):
    """Radar chart with an axis for each column and a shape for each model."""


class LineChart(Chart):
    """Line chart over the columns, with a line for each model."""


class DotChart(Chart):
    """Dot chart with a line for each column and a dot for each model."""


class ModelDotChart(Chart):
    """Dot chart with a line for each model and a dot for each column, labelled "MODEL, COLUMN"."""


class HeatMap(Chart):
    """Heat map with a row for each model.

    With ``split_by``, each model gets a heat map, with a row for each value of the column except ``only_value``.
    """


@dataclass(frozen=True, slots=True)
class Board:
    """Table of a leaderboard.

    Attributes:
        title: title, followed by the unit in parentheses.
        columns: columns after the model's column.
        parts: groups of rows.
        leading_columns: columns before the model's column.
        rank_by: returns the value by which published models are placed among a group's runs, which are in the order of
            the leaderboard. With None, published models follow.
        order_number: number that places published models in the same way in all groups.
        pairs_modes: whether a model's plain run and the run that reasons share a row.
        keeps_empty: whether a model gets a row in a group even without any of the group's numbers.
        model_label: returns the label of a model. With None, it is the model's name.
        postprocess_rows: transforms a group's rows before they are shown.
        length_rule: answers that count in the column "length".
        charts: charts that the authors draw of the table.
        small_charts: whether the charts are placed side by side.
        note: sentence below the table.
        empty: sentence instead of a table without rows.
    """

    title: str
    columns: Sequence[Column]
    parts: Sequence[BoardPart]
    leading_columns: Sequence[Column] = ()
    rank_by: Callable[[BoardRow], float | None] | None = None
    order_number: NumberKey | None = None
    pairs_modes: bool = False
    keeps_empty: bool = False
    model_label: Callable[[BoardEntry], str] | None = None
    postprocess_rows: Callable[[list[BoardRow]], list[BoardRow]] | None = None
    length_rule: AnswerLengthRule | None = None
    charts: Sequence[Chart] = ()
    small_charts: bool = False
    note: str = ""
    empty: str = "No run answers this benchmark."


@dataclass(frozen=True, slots=True)
class Boards:
    """Leaderboards of a benchmark.

    Attributes:
        tables: {name of the report: table}.
        reference_models: published models that are shown next to any run, in both columns of a table that pairs modes.
        complete_entry: adds numbers that follow from the numbers of an entry, e.g. averages of a published model.
    """

    tables: Mapping[str, Board] = field(default_factory=dict)
    reference_models: Sequence[str] = ()
    complete_entry: Callable[[BoardEntry], BoardEntry] = lambda entry: entry
