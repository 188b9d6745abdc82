"""Overview of a results file on one screen: leaders, possible faults in scores, failures, and further commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from lbx.base.columns import Column
from lbx.base.marks import MARKS_BY_SEVERITY
from lbx.base.visible import as_command
from lbx.report.format.labels import with_labels
from lbx.report.format.sheets import Sheet
from lbx.report.format.table_cells import cell_text, sheet
from lbx.report.format.terminal import lines
from lbx.report.pairs import MOST_RUNS, known_differences
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report, recommended_reports
from lbx.report.rows.board import BOARD, BOARDS
from lbx.report.rows.failures import FAILURES
from lbx.report.rows.guards import mark_counts
from lbx.report.rows.harness import summaries
from lbx.report.rows.leaderboard import LEADERBOARD, read_reasons
from lbx.report.rows.length_curve import LENGTH_CURVE
from lbx.report.rows.paper import OVERALL_COLUMNS, PAPER, average_numbers, has_paper, read_paper
from lbx.results import Store, Table

REPORTS_READ = (LEADERBOARD.name, PAPER.name, BOARD.name, LENGTH_CURVE.name)
"""Reports with rows on the screen. The options of these reports apply to the overview."""
SCREEN = 60
"""Height of the screen in lines."""

_WIDTH = 80
_SHARES = ((20, 20), (12, 12), (8, 8), (6, 6), (5, 4), (4, 3), (3, 3), (3, 2), (5, 0), (4, 0), (3, 0), (2, 0), (1, 0))
"""Pairs (runs in a benchmark's leaderboard, runs in the averages). The first pair that fits on the screen is used."""
_LONGEST_MESSAGE = 70
_OFFICIAL = Column("official", "official", "number", interval=True)
_FAILURES = r"""
    SELECT count(*) AS n, coalesce(any_value(g.error_type), '-') AS kind, min(g.error) AS message,
           count(DISTINCT (g.run_id, g.benchmark)) AS places, min(g.run_id) AS run_id, min(g.benchmark) AS benchmark
    FROM generations g
    WHERE g.error IS NOT NULL {only}
    GROUP BY g.error_type, regexp_replace(left(g.error, 400), '\d+', '0', 'g')
    ORDER BY n DESC, kind, message
"""


def sheets(store: Store, query: ReportQuery, results: Path) -> list[Sheet]:
    """Make the sheets of the overview, with as many of the best runs of each benchmark as the screen can show."""
    board, paper = LEADERBOARD.read(store, query), with_labels(store, read_paper(store, query))
    among = {row["run_id"] for row in board.dicts()}
    failures = list(_failures(store, query.runs, among))
    rows_of = {PAPER.name: bool(paper.rows), FAILURES.name: bool(failures)}
    more = _more(store, board, results, _next_reports(store, query, board, rows_of))
    if not board.rows:
        tables = [(name, read_report(store, name, query)) for name in _other_reports(store)]
        others = [sheet(REPORTS[name], table) for name, table in tables if table.rows]
        return [*others, *failures, more] if others else [sheet(LEADERBOARD, board, read_reasons(store, board))]
    averages = _averages(paper, board)
    marks = with_labels(store, mark_counts(store, query), among)
    rest = [*_fault_counts(marks), *failures, more]
    for most, most_averages in _SHARES:
        parts = [_best_runs(board, most), *_first_rows(averages, most_averages), *rest]
        if sum(1 for part in parts for _ in lines(part, _WIDTH)) <= SCREEN:
            break
    return parts


def _best_runs(board: Table, most: int) -> Sheet:
    at, seen = board.columns.index("benchmark"), Counter[str]()
    rows = []
    for row in board.rows:
        seen[row[at]] += 1
        if seen[row[at]] <= most:
            rows.append(row)
    full_sheet = sheet(LEADERBOARD, Table(board.columns, rows))
    more = len(board.rows) - len(rows)
    return (
        replace(full_sheet, notes=[*full_sheet.notes, f"and {more:,} more: lbx report FILE leaderboard"])
        if more
        else full_sheet
    )


def _first_rows(averages: Sequence[Sheet], most: int) -> Iterator[Sheet]:
    for full_sheet in averages if most else ():
        more = len(full_sheet.rows) - most
        yield replace(full_sheet, rows=full_sheet.rows[:most], notes=[f"and {more:,} more"]) if more > 0 else full_sheet


def _averages(numbers: Table, board: Table) -> list[Sheet]:
    """Make a sheet of the paper's averages for each benchmark, in the order of the leaderboard.

    The overall average is omitted, because the leaderboard shows it. On narrow screens the last columns are dropped.
    """
    ranks = {(row["benchmark"], row["run_id"]): at for at, row in enumerate(board.dicts())}
    average_sheets = []
    for benchmark, rows in average_numbers(numbers).items():
        names = dict.fromkeys(row["column"] for row in rows)
        parts = [name for name in names if name not in OVERALL_COLUMNS]
        if not parts:
            continue
        runs = sorted(
            dict.fromkeys((row["run"], row["run_id"]) for row in rows),
            key=lambda run: ranks.get((benchmark, run[1]), len(ranks)),
        )
        cells = {(row["run"], row["run_id"], row["column"]): cell_text(row, _OFFICIAL) for row in rows}
        columns = [Column("run", "run"), *(Column(name, name, "number", rank=at) for at, name in enumerate(parts))]
        body = [[run[0], *(cells.get((*run, name), "") for name in parts)] for run in runs]
        title = "The paper's averages" if has_paper(benchmark) else "Averages"
        average_sheets.append(Sheet(f"{title}: {benchmark}", columns, body))
    return average_sheets


def _fault_counts(guards: Table) -> Iterator[Sheet]:
    rows = guards.dicts()
    body = []
    for mark in MARKS_BY_SEVERITY:
        name = mark.name
        known_rows = [row for row in rows if row[name] is not None]
        count, total = sum(row[name] for row in known_rows), sum(row["n"] for row in known_rows)
        if count:
            body.append([mark.sentence, f"{count:,}", f"{100 * count / total:.1f}", _worst(known_rows, name)])
    columns = [
        Column("what", "possible faults in scores"),
        Column("n", "answers", "count"),
        Column("share", "%", "number"),
        Column("where", "most of them in", rank=1),
    ]
    if body:
        yield Sheet("", columns, body)


def _worst(rows: Iterable[Mapping[str, Any]], name: str) -> str:
    by_place: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        counts = by_place.setdefault((row["run_id"], row["label"], row["benchmark"]), [0, 0])
        counts[0] += row[name]
        counts[1] += row["n"]
    (_, label, benchmark), (count, total) = max(by_place.items(), key=lambda item: item[1][0])
    return f"{label}, {benchmark}: {count:,} of {total:,}"


def _failures(store: Store, runs: Sequence[str], among: Collection[str] = ()) -> Iterator[Sheet]:
    only = f"AND g.run_id IN ({', '.join('?' for _ in runs)})" if runs else ""
    failures = with_labels(store, store.query(_FAILURES.format(only=only), list(runs)), among).dicts()
    columns = [
        Column("n", "failed", "count"),
        Column("kind", "kind", rank=2),
        Column("message", "message (numbers may differ)"),
        Column("place", "in", rank=1),
    ]
    body = [
        [
            f"{row['n']:,}",
            row["kind"],
            _short(row["message"]),
            f"{row['label']}, {row['benchmark']}" if row["places"] == 1 else f"{row['places']:,} runs",
        ]
        for row in failures[:3]
    ]
    if body:
        more = sum(row["n"] for row in failures[3:])
        yield Sheet("", columns, body, [f"and {more:,} with {len(failures) - 3:,} other messages"] if more else [])


def _short(message: str) -> str:
    text = " ".join(message.split())
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"


def _other_reports(store: Store) -> list[str]:
    """Names of the reports of judges, raters and comparisons by position that are not empty."""
    ((judged, rated, compared),) = store.query(
        "SELECT (SELECT count(*) FROM judges), (SELECT count(*) FROM ratings), (SELECT count(*) FROM depth_parity)"
    ).rows
    counts = (("judge_results", judged), ("rating_results", rated), ("formats", compared), ("depth_parity", compared))
    return [name for name, count in counts if count]


def _next_reports(store: Store, query: ReportQuery, board: Table, rows_of: Mapping[str, bool]) -> list[str]:
    """Names of the reports to read next, without empty ones. ``rows_of``: {report: whether it contains rows}."""
    benchmarks = {row["benchmark"] for row in board.dicts()}
    boards = [name for name, benchmark_board in BOARDS.items() if benchmark_board.benchmark in benchmarks]
    tables = {BOARD.name: boards, LENGTH_CURVE.name: [LENGTH_CURVE.name]}
    full = dict(rows_of) | {
        view: any(read_report(store, name, query).rows for name in names) for view, names in tables.items()
    }
    return [*(name for name in recommended_reports() if full.get(name, bool(board.rows))), *_other_reports(store)]


def _more(store: Store, board: Table, results: Path, views: Sequence[str]) -> Sheet:
    report = as_command("lbx", "report", results)
    notes = [f"More: {report} {' | '.join(views)}", f"A page: {report} --format html -o report.html"]
    notes = [*summaries(store, [row["run_id"] for row in board.dicts()]), *notes]
    if comparison := _comparison(store, board):
        notes.insert(-1, f"Side by side: {as_command('lbx', 'report', results, *comparison)}")
    return Sheet("", [], [], notes)


def _comparison(store: Store, board: Table) -> Sequence[str]:
    """Arguments of a command that compares the runs, with the best run as baseline if there are many runs.

    Returns () if the report would refuse to compare these runs.
    """
    runs = [run for (run,) in store.query("SELECT run_id FROM runs ANTI JOIN judges ON run_id = judge_id").rows]
    if len(runs) < 2 or not board.rows:
        return ()
    best, unlike = board.dicts()[0]["run_id"], known_differences(store)
    pairs = combinations(runs, 2) if len(runs) <= MOST_RUNS else ((best, run) for run in runs)
    if all(unlike(first, second) for first, second in pairs):
        return ()
    return ("comparison",) if len(runs) <= MOST_RUNS else ("comparison", "--baseline", best)
