"""Published figures, to set beside runs: those of the package, and CSV files in any of these shapes:

    benchmark,model,LINE,LINE,...          a line of the report paper a column, empty or a figure
    benchmark,model,task,score_percent     a task a line ("source" may stand beside)

and what benchmarks add to these (``benchmarks.base.layout``). "source", "params", "context", "date", "type" and
"window" say something of a model in all of them. Every other column of the first shape is a line; in the others, other
columns are left alone.
"""

from __future__ import annotations

import csv
import inspect
import io
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from lbx.base.errors import UsageError
from lbx.base.inputs import SMALL, read_input
from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.base.layout import PublishedFigures
from lbx.report.labels import number_label
from lbx.report.shapes import ReportQuery
from lbx.store import Store, Table

_MOST_NAMES = 12
_TASKS = frozenset({"benchmark", "model", "task", "score_percent"})
_SHAPES = [one.published for one in BENCHMARKS.values() if one.published.columns]
_ABOUT = ("params", "context", "date", "type", "window")
_NO_LINES = frozenset({"benchmark", "model", "source", *_ABOUT})

_OFF_BY = 0.5
"""Points by which a mean may miss that of its parts, for rounding and for questions without an answer."""


class Figure(NamedTuple):
    """A number as it was printed; ``unit`` is that of its last digit: 0.1 of "28.2"."""

    value: float
    unit: float


@dataclass(frozen=True, slots=True)
class Published:
    """What somebody published of a model.

    Attributes:
        source: where; "" where the file says nothing of that.
        about: what else it says of the model: "params", "context", "date", "type", "window".
        figures: by labels of the report paper (``number_label``), in its units.
    """

    benchmark: str
    model: str
    source: str
    about: Mapping[str, str] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)

    @property
    def doubt(self) -> str | None:
        """Why these figures cannot all be right: a mean lies outside its own parts, or is not what they add up to."""
        family = BENCHMARKS.get(self.benchmark)
        for mean, questions in family.published.means if family else ():
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
        return f"overall {value:g} lies outside its own parts, {lowest:g} to {highest:g}"
    if questions := sum(parts.values()):
        mean = sum(count * figures[part].value for part, count in parts.items()) / questions
        if abs(mean - value) > _OFF_BY + slack:
            return f"overall {value:g} is not the mean of its own parts, {mean:.1f}"
    return None


def published() -> list[Published]:
    """What comes with the package."""
    folders = [Path(inspect.getfile(type(BENCHMARKS[name]))).parent for name in sorted(BENCHMARKS)]
    files = [file for folder in folders if (file := folder / "published.csv").is_file()]
    return [one for file in files for one in _parsed(file.read_text("utf-8"), str(file))]


def read_reference(path: Path) -> list[Published]:
    """What a file has.

    Raises:
        UsageError: the file cannot be read, has none of the shapes, or a figure in it is no number; names the line.
    """
    try:
        return _parsed(read_input(path, SMALL).decode("utf-8-sig"), str(path))
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        raise UsageError(f"The reference file {path} cannot be read: {getattr(exc, 'strerror', None) or exc}.") from exc


def _parsed(text: str, name: str) -> list[Published]:
    figures: dict[object, Published] = {}
    with io.StringIO(text, newline="") as stream:
        reader = csv.DictReader(stream)
        columns = frozenset(reader.fieldnames or ())
        if not columns:
            raise UsageError(f"The reference file {name} is empty.")
        shape = next((one for one in _SHAPES if columns.issuperset(one.columns)), None)
        a_line_a_row = columns >= _TASKS or (shape is not None and shape.several_rows)
        for row in reader:
            for model, line, figure in _figures(row, columns, shape, name):
                key = (row["benchmark"], model) if a_line_a_row else reader.line_num
                if (one := figures.get(key)) is None:
                    one = figures[key] = Published(row["benchmark"], model, row.get("source") or "", _about(row))
                one.figures[line] = _figure(figure, name, reader.line_num)
    return list(figures.values())


def _about(row: Mapping[str, str]) -> dict[str, str]:
    about = {"context": row.get("context_limit"), **{name: row[name] for name in _ABOUT if name in row}}
    return {name: text for name, text in about.items() if text and text not in ("-", "N/A")}


def _figures(
    row: Mapping[str, str], columns: frozenset[str], shape: PublishedFigures | None, path: str
) -> Iterator[tuple[str, str, str]]:
    """(model, line of the report, figure)."""
    model = row.get("model") or ""
    if columns >= _TASKS:
        source = row.get("source")
        yield (f"{model} [{source}]" if source else model), row["task"], row["score_percent"]
    elif shape and {"benchmark", "model"} <= columns:
        for name, key, figure in shape.figures({**row, "model": model}):
            yield name, number_label(key), figure
    elif {"benchmark", "model"} < columns:
        yield from ((model, line, row[line]) for line in row if line and line not in _NO_LINES and row[line])
    else:
        raise UsageError(
            f"The reference file {path} has none of the shapes that lbx knows; its columns are "
            f"{', '.join(sorted(columns)) or 'none'}.",
            fix="It needs benchmark, model, task and score_percent at least.",
        )


def _figure(text: str | None, name: str, line: int) -> Figure:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{name}, line {line}: {text!r} is not a number.")
    return Figure(value, 10.0 ** int(Decimal(text or "").as_tuple().exponent))


def chosen(every: Iterable[Published], benchmarks: Collection[str] | None, models: Sequence[str]) -> list[Published]:
    """Those of these benchmarks, of some models.

    Args:
        benchmarks: None for all.
        models: whose; each a part of the name, any case. All of them without any.

    Raises:
        UsageError: no model's name has that part.
    """
    figures = [one for one in every if benchmarks is None or one.benchmark in benchmarks]
    for part in models:
        if not any(part.casefold() in one.model.casefold() for one in figures):
            raise UsageError(
                f"The reference has no model {part!r} of {' or '.join(sorted(benchmarks or ())) or 'any benchmark'}.",
                fix=f"It has: {listed([one.model for one in figures])}.",
            )
    return [one for one in figures if not models or any(part.casefold() in one.model.casefold() for part in models)]


def listed(names: Iterable[str]) -> str:
    """The first of some names, and how many more there are."""
    each = list(dict.fromkeys(names))
    more = f" and {len(each) - _MOST_NAMES} more" if len(each) > _MOST_NAMES else ""
    return f"{', '.join(each[:_MOST_NAMES]) or 'none'}{more}"


def table(store: Store | None, query: ReportQuery) -> Table:
    """The report ``reference``: published figures of the benchmarks that the runs answer; of all without a store.

    Raises:
        UsageError: a file cannot be read, or there is no such model.
    """
    rows = [
        (one.benchmark, line, one.model, figure.value, one.source, one.doubt)
        for one in published_beside(store, query)
        for line, figure in one.figures.items()
    ]
    return Table(("benchmark", "line", "model", "figure", "source", "doubt"), rows)


def published_beside(store: Store | None, query: ReportQuery) -> list[Published]:
    """Those of the files or, without any, of the package, on the benchmarks that the runs answer. Raises UsageError."""
    every = [one for path in query.references for one in read_reference(path)] if query.references else published()
    if store is None:
        return chosen(every, None, query.models)
    held = store.query("SELECT DISTINCT benchmark, run_id FROM coverage ORDER BY ALL").rows
    answered = dict.fromkeys(benchmark for benchmark, run in held if not query.runs or run in query.runs)
    return chosen(every, answered, query.models)


def beside(table: Table, every: Iterable[Published]) -> Table:
    """The report ``paper`` with published models beside the runs, on the lines that the runs have."""
    shared = [name for name in ("benchmark", "line", "part", "place", "position", "key") if name in table.columns]
    rows = table.dicts()
    lines = {
        (row["benchmark"], row["line"]): dict.fromkeys(table.columns) | {name: row[name] for name in shared}
        for row in rows
    }
    rows += [
        {**lines[one.benchmark, line], "run": starred(one), "official": figure.value}
        for one in every
        for line, figure in one.figures.items()
        if (one.benchmark, line) in lines
    ]
    return Table(table.columns, [tuple(row[column] for column in table.columns) for row in rows])


def starred(one: Published) -> str:
    """A published model's name as it stands beside runs."""
    return f"{one.model}*" + (f" ({one.doubt})" if one.doubt else "")
