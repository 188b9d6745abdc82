"""The report ``reference``: published scores, from the package or from CSV files in any of these layouts:

    benchmark,model,LINE,LINE,...          a column for each line of the report ``paper``, with empty cells allowed
    benchmark,model,task,score_percent     a row for each task, and optionally a column "source"

and the layouts that benchmarks add (``benchmarks.base.paper_tables``). In all layouts the columns "source", "params",
"context", "date", "type" and "window" describe the model. Every other column of the first layout is a line. The other
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
from lbx.benchmarks.base.paper_tables import PublishedScoreFormat
from lbx.benchmarks.registry import BENCHMARKS
from lbx.report.format.labels import number_label
from lbx.report.query import PUBLISHED, ReportQuery
from lbx.report.report import Report
from lbx.results import Store, Table

_MOST_NAMES = 12
_TASKS = frozenset({"benchmark", "model", "task", "score_percent"})
_LAYOUTS = [benchmark.published_scores for benchmark in BENCHMARKS.values() if benchmark.published_scores.columns]
_ABOUT = ("params", "context", "date", "type", "window")
_NO_LINES = frozenset({"benchmark", "model", "source", *_ABOUT})

_OFF_BY = 0.5
"""Tolerance in points between a published mean and the mean of the scores, for rounding and missing answers."""


class PublishedScore(NamedTuple):
    """Score as printed. ``unit`` is the value of 1 in the last digit: 0.1 for "28.2"."""

    value: float
    unit: float


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """Published scores of a model.

    Attributes:
        source: Where the scores were published, or "" if the file does not state it.
        about: Details about the model: "params", "context", "date", "type", "window".
        scores: {line of the report ``paper`` (``number_label``): score in the units of that report}.
    """

    benchmark: str
    model: str
    source: str
    about: Mapping[str, str] = field(default_factory=dict)
    scores: dict[str, PublishedScore] = field(default_factory=dict)

    @property
    def doubt(self) -> str | None:
        """Reason why the scores are inconsistent, or None: a mean that cannot be the mean of the averaged scores."""
        family = BENCHMARKS.get(self.benchmark)
        for mean, questions in family.published_scores.means if family else ():
            parts = {number_label(key): count for key, count in questions.items()}
            label = number_label(mean)
            if {label, *parts} <= self.scores.keys() and (problem := _doubt(self.scores, label, parts)):
                return problem
        return None


def _doubt(scores: Mapping[str, PublishedScore], line: str, parts: Mapping[str, int]) -> str | None:
    value, unit = scores[line]
    slack = (unit + max(scores[part].unit for part in parts)) / 2
    lowest, highest = (choice(scores[part].value for part in parts) for choice in (min, max))
    if not lowest - slack <= value <= highest + slack:
        return f"overall {value:g} is outside the range of its parts, {lowest:g} to {highest:g}"
    if questions := sum(parts.values()):
        mean = sum(count * scores[part].value for part, count in parts.items()) / questions
        if abs(mean - value) > _OFF_BY + slack:
            return f"overall {value:g} is not the mean of its parts, {mean:.1f}"
    return None


def load_published() -> list[PublishedModel]:
    """Read the published scores that ship with the package."""
    folder = Path(benchmarks.__file__).parent / "published"
    files = [file for name in sorted(BENCHMARKS) if (file := folder / f"{name}.csv").is_file()]
    return [model for file in files for model in _parse_models(file.read_text("utf-8"), str(file))]


_FIX_LAYOUT = "Give it at least the columns benchmark, model, task and score_percent."


def read_reference(path: Path) -> list[PublishedModel]:
    """Read a CSV file of published scores.

    Raises:
        UsageError: The file cannot be read, has an unknown layout, or contains a score that is not a number (names the
            line).
    """
    try:
        return _parse_models(read_input(path, SMALL).decode("utf-8-sig"), str(path))
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        raise UsageError(
            f"The reference file {path} cannot be read: {getattr(exc, 'strerror', None) or exc}.",
            fix="Give a CSV file in UTF-8.",
        ) from exc


def _parse_models(text: str, name: str) -> list[PublishedModel]:
    models: dict[object, PublishedModel] = {}
    with io.StringIO(text, newline="") as stream:
        reader = csv.DictReader(stream)
        columns = frozenset(reader.fieldnames or ())
        if not columns:
            raise UsageError(f"The reference file {name} is empty.", fix=_FIX_LAYOUT)
        layout = next((candidate for candidate in _LAYOUTS if columns.issuperset(candidate.columns)), None)
        a_line_a_row = columns >= _TASKS or (layout is not None and layout.several_rows)
        for row in reader:
            for model, line, score in _scores_of_row(row, columns, layout, name):
                key = (row["benchmark"], model) if a_line_a_row else reader.line_num
                if (entry := models.get(key)) is None:
                    entry = models[key] = PublishedModel(row["benchmark"], model, row.get("source") or "", _about(row))
                entry.scores[line] = _parse_score(score, name, reader.line_num)
    return list(models.values())


def _about(row: Mapping[str, str]) -> dict[str, str]:
    about = {"context": row.get("context_limit"), **{name: row[name] for name in _ABOUT if name in row}}
    return {name: text for name, text in about.items() if text and text not in ("-", "N/A")}


def _scores_of_row(
    row: Mapping[str, str], columns: frozenset[str], layout: PublishedScoreFormat | None, path: str
) -> Iterator[tuple[str, str, str]]:
    """Yield (model, line of the report, score)."""
    model = row.get("model") or ""
    if columns >= _TASKS:
        source = row.get("source")
        yield (f"{model} [{source}]" if source else model), row["task"], row["score_percent"]
    elif layout and {"benchmark", "model"} <= columns:
        for name, key, score in layout.scores_of_row({**row, "model": model}):
            yield name, number_label(key), score
    elif {"benchmark", "model"} < columns:
        yield from ((model, line, row[line]) for line in row if line and line not in _NO_LINES and row[line])
    else:
        raise UsageError(
            f"The reference file {path} has an unknown layout. Its columns are {', '.join(sorted(columns))}.",
            fix=_FIX_LAYOUT,
        )


def _parse_score(text: str | None, name: str, line: int) -> PublishedScore:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{name}, line {line}: {text!r} is not a number.", fix="Write a score in percent, as 41.27.")
    return PublishedScore(value, 10.0 ** int(Decimal(text or "").as_tuple().exponent))


def select_published(
    every: Iterable[PublishedModel], benchmarks: Collection[str] | None, models: Sequence[str]
) -> list[PublishedModel]:
    """Select published models by benchmark and name.

    Args:
        benchmarks: Benchmarks to include, or None for all.
        models: Substrings of model names, in any case, or () for all models.

    Raises:
        UsageError: One of the substrings occurs in no name.
    """
    candidates = [model for model in every if benchmarks is None or model.benchmark in benchmarks]
    for part in models:
        if not any(part.casefold() in model.model.casefold() for model in candidates):
            raise UsageError(
                f"No published model of {' or '.join(sorted(benchmarks or ())) or 'any benchmark'} matches {part!r}.",
                fix=f"Published models: {join_names([model.model for model in candidates])}.",
            )
    return [
        model for model in candidates if not models or any(part.casefold() in model.model.casefold() for part in models)
    ]


def join_names(names: Iterable[str]) -> str:
    """Join the first names by commas, and count the others."""
    each = list(dict.fromkeys(names))
    more = f" and {len(each) - _MOST_NAMES} more" if len(each) > _MOST_NAMES else ""
    return f"{', '.join(each[:_MOST_NAMES]) or 'none'}{more}"


def table(store: Store | None, query: ReportQuery) -> Table:
    """Build the rows of the report: published scores for the benchmarks of the file, or without a file for all.

    Raises:
        UsageError: A file cannot be read, or no model matches.
    """
    rows = [
        (model.benchmark, line, model.model, score.value, model.source, model.doubt)
        for model in find_published(store, query)
        for line, score in model.scores.items()
    ]
    return Table(("benchmark", "line", "model", "published", "source", "doubt"), rows)


def find_published(store: Store | None, query: ReportQuery) -> list[PublishedModel]:
    """Find published scores for the file's benchmarks, in the query's files or the package. Raises UsageError."""
    every = (
        [model for path in query.references for model in read_reference(path)] if query.references else load_published()
    )
    if store is None:
        return select_published(every, None, query.models)
    benchmark_runs = store.query("SELECT DISTINCT benchmark, run_id FROM coverage ORDER BY ALL").rows
    answered = dict.fromkeys(benchmark for benchmark, run in benchmark_runs if not query.runs or run in query.runs)
    return select_published(every, answered, query.models)


def add_published_rows(table: Table, every: Iterable[PublishedModel]) -> Table:
    """Add the scores of published models to the report ``paper``, for lines with numbers of runs."""
    shared = [name for name in ("benchmark", "line", "part", "place", "position", "key") if name in table.columns]
    rows = table.dicts()
    lines = {
        (row["benchmark"], row["line"]): dict.fromkeys(table.columns) | {name: row[name] for name in shared}
        for row in rows
    }
    rows += [
        {**lines[model.benchmark, line], "run": starred_name(model), "official": score.value}
        for model in every
        for line, score in model.scores.items()
        if (model.benchmark, line) in lines
    ]
    return Table(table.columns, [tuple(row[column] for column in table.columns) for row in rows])


def starred_name(model: PublishedModel) -> str:
    """Name of a published model in tables of runs: with an asterisk, and with doubts about the scores."""
    return f"{model.model}*" + (f" ({model.doubt})" if model.doubt else "")


REFERENCE = Report(
    name="reference",
    title="Published scores for these benchmarks (lines and units of the report paper)",
    columns=(
        Column("benchmark", "benchmark"),
        Column("line", "task"),
        Column("model", "model"),
        Column("published", "published", "number"),
        Column("source", "source", rank=1),
        Column("doubt", "doubt", optional=True),
    ),
    empty="No published scores for these benchmarks.",
    takes=PUBLISHED,
    rows=table,
    needs_file=False,
)
