"""Places of numbers that are no report: the page's own parts, the first screen, lists of answers, official files."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lbx.base.columns import Column
from lbx.base.errors import LbxError
from lbx.benchmarks.registry import unit_of
from lbx.exchange.exporting import export
from lbx.report import overview
from lbx.report.query import ALL
from lbx.report.reports import REPORTS
from lbx.results import Store, Table
from lbx.results.read.stored_answers import AnswerFilter, count_answers, list_answers
from tests.consistency.expected import Expected
from tests.consistency.official_rules import headline, task_numbers
from tests.consistency.own_reports import Made
from tests.consistency.printed import NUMBER, Grid, from_html, misprint, misprints
from tests.consistency.readers import MARKS
from tests.consistency.recomputed import Numbers
from tests.page_parts import Page

OFFICIAL = Column("official", "official", "number", interval=True)
Scores = Mapping[tuple[str, str, str, str, int], float]


def headlines(made: Made) -> dict[tuple[str, str, str, str, int], float]:
    """{(run, benchmark, task, sample, iteration): the headline score of an answer}."""
    return {
        (one.run_id, *one.sample.key[:3], one.iteration): next(iter(one.scores.values()))
        for numbers in made.values()
        for rows in numbers.scored.values()
        for one in rows
    }


def listed(store: Store, scores: Scores) -> Iterator[str]:
    """What ``lbx show`` lists."""
    rows = list_answers(store, AnswerFilter(), 1_000_000).dicts()
    if count_answers(store, AnswerFilter()) != len(rows):
        yield f"show: {len(rows)} answers, counted {count_answers(store, AnswerFilter())}"
    for row in rows:
        sample, _, iteration = row["sample"].partition("#")
        benchmark, task, name = sample.split("/")
        right = scores.get((row["run_id"], benchmark, task, name, int(iteration or 0)))
        if benchmark != "judge" and row["score"] != right:
            yield f"show: {row['run_id']} {row['sample']} has {row['score']!r}, recomputed {right!r}"


def first_screen(store: Store, tables: Mapping[str, Table], want: Expected) -> Iterator[str]:
    """What ``lbx report FILE`` shows: the leaderboard, the papers' averages, what may have spoilt scores."""
    for sheet in overview.sheets(store, ALL, Path("results.duckdb")):
        grid = Grid(sheet.title, [column.heading for column in sheet.columns], [list(row) for row in sheet.rows])
        view, board = REPORTS["leaderboard"], tables["leaderboard"]
        if sheet.title == view.title and len(grid.lines) == len(board.rows):
            yield from (f"first screen: {why}" for why in misprints(view, board, grid))
        if "verages: " in sheet.title:
            yield from _averages(grid, tables["paper"])
        if grid.heads[:1] == ["possible faults in scores"]:
            yield from _spoilt(grid, want)


def _averages(grid: Grid, paper: Table) -> Iterator[str]:
    benchmark = grid.title.partition("verages: ")[2]
    rows = [row for row in paper.dicts() if row["benchmark"] == benchmark and row["part"] == 1]
    for line in grid.lines:
        for head, cell in zip(grid.heads[1:], line[1:], strict=True):
            named = [row for row in rows if row["run"] == line[0] and head in (row["column"], *row["line"].split(": "))]
            named += [row for row in rows if row["run"] == line[0] and row["line"] == f"open: {head}"]
            if cell and not any(misprint(cell, row, OFFICIAL) is None for row in named):
                yield f"first screen: {line[0]}, {head}: {cell!r} of {[row['official'] for row in named]}"


def _spoilt(grid: Grid, want: Expected) -> Iterator[str]:
    known = {mark: [row for key, row in want.items() if key[0] == "marks" and row[mark] is not None] for mark in MARKS}
    right = {(sum(row[mark] for row in rows), sum(row["n"] for row in rows)) for mark, rows in known.items()}
    for _, count, share, *_ in grid.lines:
        said = int(count.replace(",", ""))
        if not any(said == one and abs(float(share) - 100 * one / of) < 0.0501 for one, of in right if one):
            yield f"first screen: {count} marked, {share}%: recomputed {sorted(right)}"


def page_parts(text: str, tables: Mapping[str, Table], scores: Scores) -> Iterator[str]:
    """The page's paper, its sentences and its answers."""
    yield from _paper(text, tables["paper"])
    yield from _scoreboard(text, tables)
    yield from _sentences(text, tables)
    page = Page(text)
    if "names" not in page.blocks:  # a run that has not answered anything yet
        yield from ["page: it lists no answers"] if scores else ()
        return
    for one in page.answers():
        benchmark, _, task = one["task"].partition("/")
        right = scores.get((one["run"], benchmark, task, one["id"], one["iteration"]))
        said = one["score"]
        if (said is None) != (right is None) or (right is not None and abs(said - right) > 0.5001e-4):
            yield f"page, answers: {one['run']} {one['task']} {one['id']} has {said!r}, recomputed {right!r}"


def _paper(text: str, table: Table) -> Iterator[str]:
    view = REPORTS["paper"]
    view = replace(view, columns=[column for column in view.columns if column.name != "benchmark"])
    at = list(table.columns).index("benchmark") if table.rows else 0
    grids = {grid.title: grid for grid in from_html(text) if grid.title.startswith("Official numbers: ")}
    for benchmark in dict.fromkeys(row[at] for row in table.rows):
        part = Table(table.columns, [row for row in table.rows if row[at] == benchmark])
        grid = grids[f"Official numbers: {benchmark}"]
        yield from (f"page, paper of {benchmark}: {why}" for why in misprints(view, part, _with_sorted_runs(grid)))
        best: dict[str, list[float]] = {}
        for row in part.dicts():
            if row["official"] is not None:
                best.setdefault(row["line"], []).append(row["official"])
        numbers = {(row["line"], row["run"]): row["official"] for row in part.dicts()}
        for line, n in grid.bold:
            # The page tells a run from all others of the file, a report from those in its rows: "m (cot)" may be "m".
            called = [run for _, run in numbers if f"{grid.heads[n]} (".startswith(f"{run} (")]
            told = numbers.get((grid.lines[line][0], max(called, key=len, default="")))
            if told != max(best.get(grid.lines[line][0], [0])):
                yield f"page, paper of {benchmark}: {grid.lines[line][0]} has {told!r} of {grid.heads[n]} bold"


def _with_sorted_runs(grid: Grid) -> Grid:
    """The grid with its runs in the order of reports; the page has the best first."""
    order = [0, *sorted(range(1, len(grid.heads)), key=lambda n: grid.heads[n])]
    return Grid(grid.title, [grid.heads[n] for n in order], [[line[n] for n in order] for line in grid.lines])


def _scoreboard(text: str, tables: Mapping[str, Table]) -> Iterator[str]:
    """Every score of the page's first table is that of a report, under its head and in its run's row."""
    found = re.search(r'<div class="scores">.*?<table>(.*?)</table>', text, re.DOTALL)
    if found is None:
        return
    runs = dict(re.findall(r'<li data-run="(\d+)" data-name="([^"]*)"', text))
    heads = re.findall(r'<th scope="col"[^>]*? title="([^"]*): (average|category|task)">(.*?)</th>', found[1])
    rows = re.findall(r'<tr class="r(\d+)"><th.*?</th>(.*?)</tr>', found[1], re.DOTALL)
    values = _values_by_kind(tables)
    for mark, cells in rows:
        texts = [re.sub("<[^>]*>", "", cell) for cell in re.findall("<td[^>]*>(.*?)</td>", cells)]
        for (benchmark, kind, name), cell in zip(heads, texts, strict=True):
            column = benchmark if kind == "average" else html.unescape(re.sub("<[^>]*>", "", name))
            candidates = values.get((html.unescape(runs[mark]), benchmark, kind, column), [])
            numbers = [float(number) for number in re.findall(r"-?\d+\.\d", cell.partition("place")[0])]
            if not any(
                len(numbers) in (1, 3) and all(map(_is_rounded, numbers, candidate)) for candidate in candidates
            ) and (numbers or candidates):
                yield f"page, scores: {runs[mark]}, {benchmark} {kind} {column}: {cell!r} of {candidates}"


def _is_rounded(printed: float, value: float | None) -> bool:
    return value is not None and abs(printed - value) <= 0.05001


def _values_by_kind(tables: Mapping[str, Table]) -> dict[tuple[str, str, str, str], list[list[float | None]]]:
    """{(run, benchmark, kind of column, name): the possible values with the ends of their intervals, in percent}."""
    values: dict[tuple[str, str, str, str], list[list[float | None]]] = {}

    def add(row: Mapping[str, Any], kind: str, name: str, value: str, scale: float) -> None:
        if row[value] is not None and math.isfinite(row[value]):
            ends = [None if row[key] is None else scale * row[key] for key in (value, "low", "high")]
            values.setdefault((row["run_id"], row["benchmark"], kind, name), []).append(ends)

    for row in tables["leaderboard"].dicts():
        add(row, "average", row["benchmark"], "score", 100)
    for row in tables["task_scores"].dicts():
        if row["headline"]:
            add(row, "task", row["task"], "score", 100)
    for row in tables["paper"].dicts():
        if row["part"] == 1 and row["run_id"]:
            for name in {row["column"], *row["line"].split(": ")}:
                add(row, "category", name, "official", 100 / unit_of(row["benchmark"]))
    return values


def _sentences(text: str, tables: Mapping[str, Table]) -> Iterator[str]:
    """Numbers with intervals in the page's sentences are those of the leaderboard, or of the comparison."""
    found = re.search(r'<section[^>]*id="scores".*?</section>', text, re.DOTALL)
    said = re.sub("<[^>]*>", "", re.sub("<(table|svg).*?</\\1>", "", found[0], flags=re.DOTALL)) if found else ""
    held = [(row["score"], row.get("low"), row.get("high")) for row in tables["leaderboard"].dicts()]
    held += [(row["difference"], row["low"], row["high"]) for row in tables["comparison"].dicts()]
    held += [(row["lead"], row["low"], row["high"]) for row in tables["decision"].dicts()]
    held += [(row["score"], row["failed_as_0"], row["failed_as_1"]) for row in tables["leaderboard"].dicts()]
    for value, low, high in re.findall(rf"({NUMBER}) \[({NUMBER}), ({NUMBER})\]", said):
        ends = (value, low, high)
        if not any(None not in one and all(abs(float(a) - 100 * b) <= 0.05001 for a, b in zip(ends, one, strict=True))
                   for one in held):  # fmt: skip
            yield f"page, what stands out: {value} [{low}, {high}]"


# Official result files


def official_files(store: Store, made: Made, folder: Path) -> Iterator[str]:
    """What ``lbx export --results`` writes: numbers over the answers that are there."""
    for number, ((run, benchmark), numbers) in enumerate(made.items()):
        to = folder / f"{number}"
        try:
            export(store, benchmark, run, to, results=True)
        except LbxError:
            continue  # the official script would stop, or there is none
        for path in sorted(to.rglob("*")):
            if path.is_file():
                yield from (f"export of {run}, {path.name}: {why}" for why in _file(path, benchmark, numbers))


def _file(path: Path, benchmark: str, numbers: Numbers) -> Iterator[str]:
    text = path.read_text("utf-8")
    rows = {  # of several answers to a question all but Pro's files have the first
        task: first
        for task, some in numbers.scored.items()
        if (first := [one for one in some if benchmark == "longbench_pro" or not one.iteration])
    }
    if benchmark == "longbench":
        for task, said in json.loads(text).items():
            right: Any = task_numbers(benchmark, task, rows[task])[0].official if task in rows else None
            if isinstance(said, dict):  # E's, NaN in a bucket without samples
                of_e = task_numbers(benchmark, f"{task}_e", rows[f"{task}_e"])
                made = {one.metric.removeprefix(f"{of_e[0].metric}/"): one for one in of_e}
                right = {bucket: made[bucket].official for bucket in said if bucket in made}
            shown = {b: v for b, v in said.items() if v == v} if isinstance(said, dict) else said
            if shown != right:
                yield f"{task} is {said!r}, recomputed {right!r}"
    elif benchmark == "lveval" and path.suffix == ".json":
        for task, said in json.loads(text).items():
            right = headline(benchmark, task, rows[task]).official
            if said != right:
                yield f"{task} is {said!r}, recomputed {right!r}"
    elif benchmark == "ruler" and path.name.startswith("summary"):
        bases, scores, _ = list(csv.reader(io.StringIO(text)))[1:]
        for base, said in list(zip(bases, scores, strict=True))[1:]:
            task = f"{base}_{path.parent.parent.name}"
            right = headline(benchmark, task, rows[task]).official
            if float(said) != right:
                yield f"{task} is {said}, recomputed {right!r}"
    elif benchmark == "longbench_v2":
        said = [float(one) for one in text.splitlines()[1].split("\t")[1:]]
        made = {one.metric: one.official for one in task_numbers(benchmark, "mcq", rows["mcq"])}
        right = [made["accuracy"], *(made[f"accuracy/{part}"] for part in ("easy", "hard", "short", "medium", "long"))]
        if said != right:
            yield f"{said!r}, recomputed {right!r}"
    elif benchmark == "leval" and path.suffix == ".csv":
        (row,) = csv.DictReader(io.StringIO(text))
        for task, held in rows.items():
            first, *others = task_numbers(benchmark, task, held)
            of_cell = others if first.metric == "geometric_mean" else [first]  # type: ignore[attr-defined]
            right = "/".join(f"{one.official:.2f}" for one in of_cell)
            if task in row and row[task] != right:
                yield f"{task} is {row[task]}, recomputed {right}"
    elif benchmark == "longbench_pro" and path.name.endswith("_summary.json"):
        said = json.loads(text)["average_overall_metric"]
        right = numbers.groups["overall", "all", "average"]["score"]
        if abs(said - right) > 1e-12:
            yield f"average is {said!r}, recomputed {right!r}"
