"""Pages of tables: the keys of recipes, the columns of reports, and the metrics of each benchmark."""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
from pathlib import Path

from lbx.base.records import Sample
from lbx.benchmarks.registry import BENCHMARKS
from lbx.bundle.making import recipe
from lbx.report.reports import NAMES, load_report
from tools.reference.markdown import code, escape, page, sentence, table
from tools.reference.python_api import entries, prose

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "schema.toml"
_RECIPES = """\
Keys of the files that `lbx bundle` reads. [Make a bundle](bundling.md) is the guide. A
[model card](models.md#keys) and the [definition of a benchmark](own-benchmark.md#the-definition) work as recipes, too.

| key | meaning |
| --- | --- |
| `name` | required: the name of the archive, such as longbench for longbench.tar |
| `description` | the purpose of the bundle, for people |
| `[[source]]` | one table for each source, with `kind` and the keys below |"""
_EXAMPLE_META = {"depth": 0.5, "needles": 1, "keys": ["key"], "document_length": 1000, "prefix": "prefix"}
_COLUMNS = """\
Columns of `lbx report`, in the order of the table. CSV, JSON and parquet use the names, tables for people the headings.
[Reading results](results.md) explains labels, digits and intervals; a score with an interval also has `low`, `high` and
`method`. `lbx sql` reads [tables and views](results.md#tables-and-views)."""
_METRICS = """\
The metrics that lbx computes for each task, the headline first; averages use headlines. The version is raised when a
benchmark's scores may change, and `lbx score` then computes them again. [Scores and marks](judging.md) explains them,
and [a benchmark of your own](own-benchmark.md#metrics) can use the metrics listed there."""


def recipes_page() -> str:
    """Return the page of the keys of recipes."""
    return page("Recipe keys", _RECIPES, *(_source(kind, cls) for kind, cls in recipe.KINDS.items()))


def _source(kind: str, cls: type) -> str:
    docstring = inspect.getdoc(cls)
    meanings = {name: text for names, text in entries(docstring, "Attributes") for name in names}
    rows = []
    for field in dataclasses.fields(cls):
        if field.name not in recipe.NOT_IN_TOML:
            is_required = field.name in recipe.REQUIRED[kind]
            default = "required" if is_required else code(str(field.default)) if field.default else ""
            rows.append((code(field.name), default, prose(sentence(meanings[field.name]))))
    first = prose((docstring or "").split("\n\n")[0])
    return f"## Sources of the kind {kind}\n\n{first}\n\n{table(('key', 'default', 'meaning'), rows)}"


def columns_page() -> str:
    """Return the page of the columns of reports, and of the metrics."""
    return page("Report columns and metrics", _COLUMNS, *map(_report, NAMES), metrics())


def _report(name: str) -> str:
    report, described = load_report(name), tomllib.loads(SCHEMA.read_text("utf-8"))
    meanings = {**described["columns"], **described["views"].get(name, {})} if name in described["views"] else {}
    parts = [f"## {name}", escape(sentence(report.title))]
    parts += [f"Options: {', '.join(map(code, report.takes))}."] if report.takes else []
    parts += ["Each section is a report with columns of its own."] if report.sections else []
    rows = [
        (code(column.name), escape(column.heading), column.kind, meanings.get(column.name, ""))
        for column in report.columns
    ]
    return "\n\n".join([*parts, table(("column", "heading", "kind", "meaning"), rows)] if rows else parts)


def metrics() -> str:
    """Return the table of each benchmark's metrics, by its tasks."""
    rows = []
    for name, family in BENCHMARKS.items():
        tasks: dict[tuple[str, ...], list[str]] = {}
        for task in family.catalogue.names or ("single_en",):
            sample = Sample(name, task, "0", "document", "Question?", ("A",), "en", meta=_EXAMPLE_META)
            tasks.setdefault(tuple(score.metric for score in family.score(sample, "answer")), []).append(task)
        for found, names in tasks.items():
            listed = "all tasks" if len(tasks) == 1 else ", ".join(map(code, _without_lengths(names)))
            rows.append((code(name), listed, ", ".join(map(code, found)), str(family.metric_version)))
    return f"## Metrics\n\n{_METRICS}\n\n{table(('benchmark', 'tasks', 'metrics', 'version'), rows)}"


def _without_lengths(names: list[str]) -> list[str]:
    """Join the tasks that differ only in a length at the end: "qa_1_4096" and "qa_1_8192" are "qa_1_*"."""
    stems = [name.rpartition("_") for name in names]
    return list(
        dict.fromkeys(
            f"{stem}_*" if end.rstrip("k").isdigit() and int(end.rstrip("k")) > 9 else name
            for name, (stem, _, end) in zip(names, stems, strict=True)
        )
    )
