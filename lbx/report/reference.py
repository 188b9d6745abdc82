"""Published figures, to set beside runs: the papers' tables as CSV files, in any of the shapes below.

    benchmark,model,task,score_percent                           LongBench: a task a line ("source" may stand beside)
    benchmark,model,dataset,level,score_percent                  LV-Eval
    benchmark,model,overall,easy,hard,short,medium,long          LongBench v2
    benchmark,model,mode,dimension,value,score                   LongBench Pro, in 0..1 as its report has it

Other columns are left alone.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lbx.errors import UsageError
from lbx.inputs import read_input
from lbx.store import Table

Line = tuple[str, str]
"""A benchmark and a line of the report ``paper``."""

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


def read_reference(path: Path) -> dict[str, dict[Line, float]]:
    """The figures of each model.

    Raises:
        UsageError: the file cannot be read, has none of the shapes, or a figure in it is no number; names the line.
    """
    try:
        with io.StringIO(read_input(path).decode("utf-8-sig"), newline="") as stream:
            reader = csv.DictReader(stream)
            columns = frozenset(reader.fieldnames or ())
            found: dict[str, dict[Line, float]] = {}
            if not columns:
                raise UsageError(f"The reference file {path} is empty.")
            for row in reader:
                for model, line, text in _figures(row, columns, path):
                    found.setdefault(model, {})[row["benchmark"], line] = _number(text, path, reader.line_num)
            return found
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        raise UsageError(f"The reference file {path} cannot be read: {getattr(exc, 'strerror', None) or exc}.") from exc


def _figures(row: Mapping[str, str], columns: frozenset[str], path: Path) -> Iterator[tuple[str, str, str]]:
    """(model, line of the report, figure)."""
    model = row.get("model") or ""
    if {"benchmark", "model", "task", "score_percent"} <= columns:
        source = row.get("source")
        yield (f"{model} [{source}]" if source else model), row["task"], row["score_percent"]
    elif {"benchmark", "model", "dataset", "level", "score_percent"} <= columns:
        yield model, f"{row['dataset']}_{row['level']}", row["score_percent"]
    elif {"benchmark", "model", "mode", "dimension", "value", "score"} <= columns:
        if row["dimension"] in _PRO:
            yield f"{model} ({row['mode']})", _PRO[row["dimension"]].format(row["value"]), row["score"]
    elif {"benchmark", "model", *_V2} <= columns:
        yield from ((model, line, row[column]) for column, line in _V2.items())
    else:
        raise UsageError(
            f"The reference file {path} has none of the shapes that lbx knows; its columns are "
            f"{', '.join(sorted(columns)) or 'none'}.",
            fix="It needs benchmark, model, task and score_percent at least.",
        )


def _number(text: str | None, path: Path, line: int) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{path}, line {line}: {text!r} is not a number.")
    return value


def beside(table: Table, figures: Mapping[str, Mapping[Line, float]], models: Sequence[str]) -> Table:
    """The report ``paper`` with published models beside the runs, on the lines that the runs have.

    Args:
        models: whose; each a part of the name, any case. All of them without any.

    Raises:
        UsageError: no model's name has that part.
    """
    chosen: dict[str, Mapping[Line, float]] = {}
    for part in models or ("",):
        named = {model: lines for model, lines in figures.items() if part.casefold() in model.casefold()}
        if not named:
            raise UsageError(
                f"The reference has no model {part!r}.", fix=f"It has: {', '.join(sorted(figures)) or 'none'}."
            )
        chosen |= named
    rows = table.dicts()
    lines = {(row["benchmark"], row["line"]): row for row in rows}
    for model, values in chosen.items():
        rows += [
            {**row, "run": f"{model}*", "run_id": None, "official": values[line]}
            for line, row in lines.items()
            if line in values
        ]
    return Table(table.columns, [tuple(row[column] for column in table.columns) for row in rows])
