"""Published figures, to set beside runs: those of the package, and CSV files in any of the shapes below.

    benchmark,model,LINE,LINE,...                                a line of the report paper a column, empty or a figure
    benchmark,model,task,score_percent                           LongBench: a task a line ("source" may stand beside)
    benchmark,model,dataset,level,score_percent                  LV-Eval
    benchmark,model,overall,easy,hard,short,medium,long          LongBench v2
    benchmark,model,mode,dimension,value,score                   LongBench Pro, in 0..1 as its report has it

In the first of them "source", "params", "context" and "date" are no lines; in the others, other columns are left alone.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from lbx.errors import UsageError
from lbx.inputs import read_input
from lbx.report.shapes import Wanted
from lbx.store import Store, Table

PUBLISHED = "published"
"""The folder of the package with the figures that it has; where each comes from stands in its README."""

_MOST_NAMES = 12
_V2 = {
    "overall": "overall: accuracy",
    "easy": "difficulty easy: accuracy",
    "hard": "difficulty hard: accuracy",
    "short": "length short: accuracy",
    "medium": "length medium: accuracy",
    "long": "length long: accuracy",
}
_PRO = {
    "overall": "overall: average",
    "token_length": "length {}: average",
    "contextual_requirement": "requirement {}: average",
    "difficulty": "difficulty {}: average",
    "primary_task": "primary_task {}: average",
    "language": "language {}: average",
    "best_of": "overall: bon@{}",
    "pass_at": "overall: pass@{}",
}
_TASKS = frozenset({"benchmark", "model", "task", "score_percent"})
_LEVELS = frozenset({"benchmark", "model", "dataset", "level", "score_percent"})
_DIMENSIONS = frozenset({"benchmark", "model", "mode", "dimension", "value", "score"})
_NO_LINES = frozenset({"benchmark", "model", "source", "params", "context", "date"})


class Figure(NamedTuple):
    """A published figure: ``line`` as the report paper calls it, ``source`` "" where the file says nothing of that."""

    benchmark: str
    line: str
    model: str
    figure: float
    source: str


def published() -> list[Figure]:
    """The figures that come with the package."""
    files = resources.files("lbx.report") / PUBLISHED
    found = sorted((file for file in files.iterdir() if file.name.endswith(".csv")), key=lambda file: file.name)
    return [figure for file in found for figure in _parsed(file.read_text("utf-8"), file.name)]


def read_reference(path: Path) -> list[Figure]:
    """The figures of a file.

    Raises:
        UsageError: the file cannot be read, has none of the shapes, or a figure in it is no number; names the line.
    """
    try:
        return list(_parsed(read_input(path).decode("utf-8-sig"), str(path)))
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        raise UsageError(f"The reference file {path} cannot be read: {getattr(exc, 'strerror', None) or exc}.") from exc


def _parsed(text: str, name: str) -> Iterator[Figure]:
    with io.StringIO(text, newline="") as stream:
        reader = csv.DictReader(stream)
        columns = frozenset(reader.fieldnames or ())
        if not columns:
            raise UsageError(f"The reference file {name} is empty.")
        for row in reader:
            for model, line, figure in _figures(row, columns, name):
                number = _number(figure, name, reader.line_num)
                yield Figure(row["benchmark"], line, model, number, row.get("source") or "")


def _figures(row: Mapping[str, str], columns: frozenset[str], name: str) -> Iterator[tuple[str, str, str]]:
    """(model, line of the report, figure)."""
    model = row.get("model") or ""
    if columns >= _TASKS:
        source = row.get("source")
        yield (f"{model} [{source}]" if source else model), row["task"], row["score_percent"]
    elif columns >= _LEVELS:
        yield model, f"{row['dataset']}_{row['level']}", row["score_percent"]
    elif columns >= _DIMENSIONS:
        if row["dimension"] in _PRO:
            yield f"{model} ({row['mode']})", _PRO[row["dimension"]].format(row["value"]), row["score"]
    elif {"benchmark", "model", *_V2} <= columns:
        yield from ((model, line, row[column]) for column, line in _V2.items())
    elif {"benchmark", "model"} < columns:
        yield from ((model, line, row[line]) for line in row if line and line not in _NO_LINES and row[line])
    else:
        raise UsageError(
            f"The reference file {name} has none of the shapes that lbx knows; its columns are "
            f"{', '.join(sorted(columns)) or 'none'}.",
            fix="It needs benchmark, model, task and score_percent at least.",
        )


def _number(text: str | None, name: str, line: int) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{name}, line {line}: {text!r} is not a number.")
    return value


def chosen(figures: Iterable[Figure], benchmarks: Collection[str], models: Sequence[str]) -> list[Figure]:
    """The figures of these benchmarks, of some models.

    Args:
        models: whose; each a part of the name, any case. All of them without any.

    Raises:
        UsageError: no model's name has that part.
    """
    found = [figure for figure in figures if figure.benchmark in benchmarks]
    for part in models:
        if not any(part.casefold() in figure.model.casefold() for figure in found):
            names = list(dict.fromkeys(figure.model for figure in found))
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            raise UsageError(
                f"The reference has no model {part!r} of {' or '.join(sorted(benchmarks)) or 'these benchmarks'}.",
                fix=f"It has: {', '.join(names[:_MOST_NAMES]) or 'none'}{more}.",
            )
    return [one for one in found if not models or any(part.casefold() in one.model.casefold() for part in models)]


def table(store: Store, wanted: Wanted) -> Table:
    """The report ``reference``: published figures of the benchmarks that the runs answer.

    Raises:
        UsageError: a file cannot be read, or there is no such model.
    """
    return Table(Figure._fields, figures_beside(store, wanted))


def figures_beside(store: Store, wanted: Wanted) -> list[Figure]:
    """Those of the files or, without any, of the package, on the benchmarks that the runs answer. Raises UsageError."""
    figures = [one for path in wanted.references for one in read_reference(path)] if wanted.references else published()
    held = store.query("SELECT DISTINCT benchmark, run_id FROM generations ORDER BY ALL").rows
    answered = dict.fromkeys(benchmark for benchmark, run in held if not wanted.runs or run in wanted.runs)
    return chosen(figures, answered, wanted.models)


def beside(table: Table, figures: Iterable[Figure]) -> Table:
    """The report ``paper`` with published models beside the runs, on the lines that the runs have."""
    rows = table.dicts()
    lines = {(row["benchmark"], row["line"]): row for row in rows}
    rows += [
        {**lines[one.benchmark, one.line], "run": f"{one.model}*", "run_id": None, "official": one.figure}
        for one in figures
        if (one.benchmark, one.line) in lines
    ]
    return Table(table.columns, [tuple(row[column] for column in table.columns) for row in rows])
