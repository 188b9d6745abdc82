"""Published figures for comparison with runs: the package's own, and CSV files in any of these layouts:

    benchmark,model,LINE,LINE,...          a column for each line of the report ``paper``; cells may be empty
    benchmark,model,task,score_percent     a row for each task; an optional column "source"

and the layouts that benchmarks add (``benchmarks.base.layout``). In all layouts the columns "source", "params",
"context", "date", "type" and "window" describe the model. Every other column of the first layout is a line; the other
layouts ignore further columns.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from lbx import benchmarks
from lbx.base.columns import Column
from lbx.base.errors import UsageError
from lbx.base.inputs import SMALL, read_input
from lbx.benchmarks.base.layout import PublishedFigures
from lbx.benchmarks.registry import BENCHMARKS
from lbx.report.format.labels import number_label
from lbx.report.query import PUBLISHED, ReportQuery
from lbx.report.report import Report
from lbx.results import Store, Table

_MOST_NAMES = 12
_TASKS = frozenset({"benchmark", "model", "task", "score_percent"})
_LAYOUTS = [benchmark.published_figures for benchmark in BENCHMARKS.values() if benchmark.published_figures.columns]
_ABOUT = ("params", "context", "date", "type", "window")
_NO_LINES = frozenset({"benchmark", "model", "source", *_ABOUT})

_OFF_BY = 0.5
"""Tolerance in points between a mean and the mean of its parts: rounding, and questions without an answer."""


class Figure(NamedTuple):
    """Number as printed; ``unit`` is the value of 1 in its last digit: 0.1 for "28.2"."""

    value: float
    unit: float


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """Published figures of a model.

    Attributes:
        source: Where the figures were published; "" if the file does not give it.
        about: Details about the model: "params", "context", "date", "type", "window".
        figures: Figures by label of the report ``paper`` (``number_label``), in its units.
    """

    benchmark: str
    model: str
    source: str
    about: Mapping[str, str] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)

    @property
    def doubt(self) -> str | None:
        """Reason why the figures are inconsistent: a mean is outside the range of its parts, or is not their mean."""
        family = BENCHMARKS.get(self.benchmark)
        for mean, questions in family.published_figures.means if family else ():
            parts = {number_label(key): count for key, count in questions.items()}
            label = number_label(mean)
            if {label, *parts} <= self.figures.keys() and (problem := _doubt(self.figures, label, parts)):
                return problem
        return None


def _doubt(figures: Mapping[str, Figure], line: str, parts: Mapping[str, int]) -> str | None:
    value, unit = figures[line]
    slack = (unit + max(figures[part].unit for part in parts)) / 2
    lowest, highest = (choice(figures[part].value for part in parts) for choice in (min, max))
    if not lowest - slack <= value <= highest + slack:
        return f"overall {value:g} is outside the range of its parts, {lowest:g} to {highest:g}"
    if questions := sum(parts.values()):
        mean = sum(count * figures[part].value for part, count in parts.items()) / questions
        if abs(mean - value) > _OFF_BY + slack:
            return f"overall {value:g} is not the mean of its parts, {mean:.1f}"
    return None


def load_published() -> list[PublishedModel]:
    """Read the figures that ship with the package."""
    folder = Path(benchmarks.__file__).parent / "published"
    files = [file for name in sorted(BENCHMARKS) if (file := folder / f"{name}.csv").is_file()]
    return [model for file in files for model in _parse_figures(file.read_text("utf-8"), str(file))]


_FIX_LAYOUT = "Give it at least the columns benchmark, model, task and score_percent."


def read_reference(path: Path) -> list[PublishedModel]:
    """Read a CSV file of published figures.

    Raises:
        UsageError: The file cannot be read, has an unknown layout, or contains a figure that is not a number (names the
            line).
    """
    try:
        return _parse_figures(read_input(path, SMALL).decode("utf-8-sig"), str(path))
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        raise UsageError(f"The reference file {path} cannot be read: {getattr(exc, 'strerror', None) or exc}.") from exc


def _parse_figures(text: str, name: str) -> list[PublishedModel]:
    figures: dict[object, PublishedModel] = {}
    with io.StringIO(text, newline="") as stream:
        reader = csv.DictReader(stream)
        columns = frozenset(reader.fieldnames or ())
        if not columns:
            raise UsageError(f"The reference file {name} is empty.", fix=_FIX_LAYOUT)
        layout = next((candidate for candidate in _LAYOUTS if columns.issuperset(candidate.columns)), None)
        a_line_a_row = columns >= _TASKS or (layout is not None and layout.several_rows)
        for row in reader:
            for model, line, figure in _figures(row, columns, layout, name):
                key = (row["benchmark"], model) if a_line_a_row else reader.line_num
                if (entry := figures.get(key)) is None:
                    entry = figures[key] = PublishedModel(row["benchmark"], model, row.get("source") or "", _about(row))
                entry.figures[line] = _figure(figure, name, reader.line_num)
    return list(figures.values())


def _about(row: Mapping[str, str]) -> dict[str, str]:
    about = {"context": row.get("context_limit"), **{name: row[name] for name in _ABOUT if name in row}}
    return {name: text for name, text in about.items() if text and text not in ("-", "N/A")}


def _figures(
    row: Mapping[str, str], columns: frozenset[str], layout: PublishedFigures | None, path: str
) -> Iterator[tuple[str, str, str]]:
    """Yield (model, line of the report, figure)."""
    model = row.get("model") or ""
    if columns >= _TASKS:
        source = row.get("source")
        yield (f"{model} [{source}]" if source else model), row["task"], row["score_percent"]
    elif layout and {"benchmark", "model"} <= columns:
        for name, key, figure in layout.figures({**row, "model": model}):
            yield name, number_label(key), figure
    elif {"benchmark", "model"} < columns:
        yield from ((model, line, row[line]) for line in row if line and line not in _NO_LINES and row[line])
    else:
        raise UsageError(
            f"The reference file {path} has an unknown layout. Its columns are {', '.join(sorted(columns))}.",
            fix=_FIX_LAYOUT,
        )


def _figure(text: str | None, name: str, line: int) -> Figure:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{name}, line {line}: {text!r} is not a number.", fix="Write a score in percent, as 41.27.")
    return Figure(value, 10.0 ** int(Decimal(text or "").as_tuple().exponent))


def select_published(
    every: Iterable[PublishedModel], benchmarks: Collection[str] | None, models: Sequence[str]
) -> list[PublishedModel]:
    """Select published figures by benchmark and model.

    Args:
        benchmarks: None for all.
        models: Parts of model names, in any case; all models if empty.

    Raises:
        UsageError: No model's name contains one of the parts.
    """
    figures = [model for model in every if benchmarks is None or model.benchmark in benchmarks]
    for part in models:
        if not any(part.casefold() in model.model.casefold() for model in figures):
            raise UsageError(
                f"No published model of {' or '.join(sorted(benchmarks or ())) or 'any benchmark'} matches {part!r}.",
                fix=f"Published models: {join_names([model.model for model in figures])}.",
            )
    return [
        model for model in figures if not models or any(part.casefold() in model.model.casefold() for part in models)
    ]


def join_names(names: Iterable[str]) -> str:
    """Join the first names, and the number of omitted names."""
    each = list(dict.fromkeys(names))
    more = f" and {len(each) - _MOST_NAMES} more" if len(each) > _MOST_NAMES else ""
    return f"{', '.join(each[:_MOST_NAMES]) or 'none'}{more}"


def table(store: Store | None, query: ReportQuery) -> Table:
    """Return the report ``reference``: published figures on the runs' benchmarks, or on all benchmarks without a store.

    Raises:
        UsageError: A file cannot be read, or no model matches.
    """
    rows = [
        (model.benchmark, line, model.model, figure.value, model.source, model.doubt)
        for model in find_published(store, query)
        for line, figure in model.figures.items()
    ]
    return Table(("benchmark", "line", "model", "figure", "source", "doubt"), rows)


def find_published(store: Store | None, query: ReportQuery) -> list[PublishedModel]:
    """Return figures on the runs' benchmarks: the query's files, or else the package's own. Raises UsageError."""
    every = (
        [model for path in query.references for model in read_reference(path)] if query.references else load_published()
    )
    if store is None:
        return select_published(every, None, query.models)
    benchmark_runs = store.query("SELECT DISTINCT benchmark, run_id FROM coverage ORDER BY ALL").rows
    answered = dict.fromkeys(benchmark for benchmark, run in benchmark_runs if not query.runs or run in query.runs)
    return select_published(every, answered, query.models)


def add_published_rows(table: Table, every: Iterable[PublishedModel]) -> Table:
    """Add published models to the report ``paper``, on the lines that the runs have."""
    shared = [name for name in ("benchmark", "line", "part", "place", "position", "key") if name in table.columns]
    rows = table.dicts()
    lines = {
        (row["benchmark"], row["line"]): dict.fromkeys(table.columns) | {name: row[name] for name in shared}
        for row in rows
    }
    rows += [
        {**lines[model.benchmark, line], "run": starred_name(model), "official": figure.value}
        for model in every
        for line, figure in model.figures.items()
        if (model.benchmark, line) in lines
    ]
    return Table(table.columns, [tuple(row[column] for column in table.columns) for row in rows])


def starred_name(model: PublishedModel) -> str:
    """Return a published model's name for tables of runs: with an asterisk, and doubts about its figures."""
    return f"{model.model}*" + (f" ({model.doubt})" if model.doubt else "")


REFERENCE = Report(
    name="reference",
    title="Published figures for these benchmarks (lines and units of the report paper)",
    columns=(
        Column("benchmark", "benchmark"),
        Column("line", "task"),
        Column("model", "model"),
        Column("figure", "figure", "number"),
        Column("source", "source", rank=1),
        Column("doubt", "doubt", optional=True),
    ),
    empty="No published figures for these benchmarks.",
    takes=PUBLISHED,
    rows=table,
    needs_file=False,
)
