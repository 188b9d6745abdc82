"""Definitions of the reports on judges and raters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lbx.base.columns import Column
from lbx.base.units import format_count
from lbx.opinions import agreement, result_rows
from lbx.report.draw.charts import Point, Series, dots, heat
from lbx.report.draw.figures import Figure, FigureSource, point_of_row, run_series
from lbx.report.format.labels import Row
from lbx.report.report import PagePlace, Report
from lbx.results import Table


def judge_notes(table: Table) -> list[str]:
    rows = table.dicts()
    notes = list(dict.fromkeys(f"{row['label_judge']} is {row['fitness']}: {row['why']}." for row in rows))
    if any(row["same_family"] for row in rows):
        notes.append(
            "Same family: the judge has the judged model's architecture and tokenizer, and may prefer its own."
        )
    if any(row["many_errors"] for row in rows):
        notes.append(
            "Many errors: more than 5% of the rounds have no verdict; win rates and means leave these rounds out."
        )
    cut: dict[tuple[object, ...], int] = {}
    for row in rows:  # the first row of a judge and a run is the total; its tasks and marks follow
        key = tuple(row[name] for name in ("judge_id", "benchmark", "run_id", "against_run_id"))
        cut[key] = max(row["n_cut"], cut.get(key, 0))
    if total := sum(cut.values()):
        notes.append(
            f"{format_count(total, 'text reached its', 'texts reached their')} token limit before a verdict. "
            "Ask for the verdict only, or raise the limit: max_new_tokens in a rubric, or --max-new-tokens."
        )
    if any(row["win_rate_agreeing"] is not None for row in rows):
        notes.append("Both orders agreeing: a win counts only if both orders agree on it; everything else is a tie.")
    return notes


def _judge_bias_notes(table: Table) -> list[str]:
    return [
        "p tests for no preference: each question counts for the side that won more of its rounds (exact sign test). "
        "A judge that looks only at the answers is consistent and has the first win half of the time."
    ]


def _agreement_notes(table: Table) -> list[str]:
    rows = table.dicts()
    notes = ["Krippendorff's alpha is followed by its 95% interval over documents (jackknife), from six documents on."]
    if any(row["kind"] == "score" for row in rows):
        notes.append("For scores, kappa weights disagreements by squared distance, and alpha compares ranks.")
    if any(row["between"] == "judge and people" for row in rows):
        notes.append(
            "A judge's verdict on a question is a tie unless both orders agree; the raters' verdict is the majority's."
        )
    return notes


def _draw_judge_results(source: FigureSource) -> Iterator[Figure]:
    """Draw charts of win rates against each opponent, and of mean ratings, judge by judge."""
    rows = [row for row in source.rows("judge_results") if row["task"] is None and row["questions"] == "all"]
    rows.sort(key=lambda row: (row["judge_id"], row["run_id"]))
    yield from _matrices(source, [(row, f"{row['label_judge']}, {row['fitness']}") for row in rows])
    series_of: dict[str, list[tuple[str, Series]]] = {}
    for row in rows:
        pair = row["kind"] == "pair"
        what = f"win rate against {source.label(row['against_run_id'])}, percent" if pair else "mean rating"
        point = point_of_row(row, value="win_rate") if pair else point_of_row(row, 1.0, "rating", "rating_")
        line = f"{row['label_judge']}, {row['fitness']}"
        title = f"{row['benchmark']}: {what}"
        series_of.setdefault(title, []).append((line, run_series(source, row["run_id"], [point])))
    yield from _draw_opinions(series_of, "A line for each judged run, below its judge.")


def _draw_rating_results(source: FigureSource) -> Iterator[Figure]:
    """Draw charts of win rates and mean ratings, set by set."""
    rows = [row for row in source.rows("rating_results") if row["task"] is None]
    yield from _matrices(source, [(row, row["set_id"]) for row in rows])
    series_of: dict[str, list[tuple[str, Series]]] = {}
    for row in rows:
        pair = row["kind"] == "pair"
        point = point_of_row(row, value="win_rate") if pair else point_of_row(row, 1.0, "mean", "mean_")
        title = f"{row['benchmark']}, {row['set_id']}: {'win rate, percent' if pair else 'mean rating'}"
        line = source.label(row["run_id"]) + (f" against {source.label(row['against_run_id'])}" if pair else "")
        series_of.setdefault(title, []).append((line, run_series(source, row["run_id"], [point])))
    yield from _draw_opinions(series_of, "A line for each rated run.")


def _matrices(source: FigureSource, rows: Sequence[tuple[Row, str]]) -> Iterator[Figure]:
    """Draw a matrix of win rates for each judge or set with several opponents.

    The win rate of a pair that was judged in only one direction is also shown reversed. Draws count half, so that both
    values add up to 100.
    """
    pairs_of: dict[tuple[str, str], dict[tuple[str, str], Point]] = {}
    for row, judge in rows:
        if row["kind"] == "pair" and row["win_rate"] is not None:
            pairs = pairs_of.setdefault((row["benchmark"], judge), {})
            pairs[row["run_id"], row["against_run_id"]] = point_of_row(row, value="win_rate")
    for (benchmark, judge), pairs in pairs_of.items():
        if len({against for _, against in pairs}) < 2:
            continue
        runs = sorted({run for pair in pairs for run in pair}, key=source.mark_of)
        names = [source.label(run) for run in runs]
        derived = {(b, a): _reverse(point) for (a, b), point in pairs.items() if (b, a) not in pairs}
        cells = {(runs.index(a), runs.index(b)): point for (a, b), point in (pairs | derived).items()}
        title = f"{benchmark}, {judge}: win rate of each against each, percent"
        about = "Each row's run against each column's, the darker the higher; 50 is a tie."
        marks = [source.mark_of(run) for run in runs]
        ends = (0.0, 100.0)
        svg = heat(title, about, rows=names, columns=names, cells=cells, ends=ends, marks=marks, column_marks=marks)
        note = "Values in parentheses are 100 minus the reverse pair, which alone was judged." if derived else ""
        yield Figure(title, svg, f"Rows against columns. {note}".strip(), benchmark)


def _reverse(point: Point) -> Point:
    low, high = (None if end is None else 100 - end for end in (point.high, point.low))
    return Point(
        None if point.value is None else 100 - point.value, low, high, point.note, is_complement=True, is_percent=True
    )


def _draw_opinions(series_of: Mapping[str, list[tuple[str, Series]]], about: str) -> Iterator[Figure]:
    for title, series in series_of.items():
        lines = [line for line in series if (point := line[1].points[0]) and point.has_value]
        if len(lines) > 1:
            yield Figure(title, dots(title, about, lines))


JUDGE_RESULTS = Report(
    name="judge_results",
    title="Judge results (win rates and shares in percent; as officially, each round counts separately)",
    columns=(
        Column("judge_id", "judge"),
        Column("fitness", "judge is"),
        Column("benchmark", "benchmark", rank=6),
        Column("run_id", "run"),
        Column("against_run_id", "against", optional=True),
        Column("questions", "questions", rank=5),
        Column("task", "task", missing="all"),
        Column("n_rounds", "rounds", "count", rank=3),
        Column("win_rate", "win rate", "percent", interval=True, optional=True),
        Column("rating", "rating", "number", interval=True, interval_prefix="rating_", optional=True),
        Column("win_rate_agreeing", "both orders agreeing", "percent", optional=True, rank=2),
        Column("against_win_rate", "the other's", "percent", optional=True, rank=8),
        Column("n_wins", "wins", "count", optional=True, rank=7),
        Column("n_draws", "ties", "count", optional=True, rank=7),
        Column("n_losses", "losses", "count", optional=True, rank=7),
        Column("n_errors", "no verdict", "count", rank=1),
        Column("n_ambiguous", "ambiguous", "count", rank=4),
        Column("caution", "caution", optional=True, rank=1),
    ),
    notes=judge_notes,
    empty="No judge has judged any answers yet.",
    rows=result_rows.build_judge_results,
    draw=_draw_judge_results,
    page=PagePlace("Judges and people", 6),
)


JUDGE_BIAS = Report(
    name="judge_bias",
    title="Judge bias: position and length (percent: same in both orders; won by the first, by the longer answer)",
    columns=(
        Column("judge_id", "judge"),
        Column("fitness", "judge is", rank=1),
        Column("benchmark", "benchmark", rank=5),
        Column("run_id", "run", missing="all"),
        Column("against_run_id", "against", missing="all", rank=3),
        Column("n_questions", "questions", "count", rank=6),
        Column("consistency", "consistent", "percent", interval=True, interval_prefix="consistency_"),
        Column("only_first", "first in both", "count", rank=4),
        Column("only_second", "second in both", "count", rank=4),
        Column("first_share", "first wins", "percent", interval=True, interval_prefix="first_share_"),
        Column("first_p", "p of first", "p", rank=2),
        Column("longer_share", "longer wins", "percent", interval=True, interval_prefix="longer_share_"),
        Column("longer_p", "p of longer", "p", rank=2),
    ),
    notes=_judge_bias_notes,
    empty="No judge has compared two answers yet.",
    rows=result_rows.build_judge_bias,
    page=PagePlace("Judges and people", 7),
)


RATING_RESULTS = Report(
    name="rating_results",
    title="Rating results (means on the rating scale, as on the official page; win rates in percent)",
    columns=(
        Column("set_id", "set"),
        Column("benchmark", "benchmark", rank=5),
        Column("task", "task", missing="all"),
        Column("run_id", "run"),
        Column("against_run_id", "against", optional=True),
        Column("n_items", "questions", "count", rank=4),
        Column("n_ratings", "ratings", "count", rank=1),
        Column("n_raters", "raters", "count", rank=2),
        Column("mean", "mean", "number", interval=True, interval_prefix="mean_", optional=True),
        Column("win_rate", "win rate", "percent", interval=True, optional=True),
        Column("n_wins", "wins", "count", optional=True, rank=3),
        Column("n_draws", "ties", "count", optional=True, rank=3),
        Column("n_losses", "losses", "count", optional=True, rank=3),
    ),
    empty="This file has no ratings. They are stored when the rating page is closed. After a killed session, store "
    "them with lbx rate RESULTS --collect.",
    rows=result_rows.build_rating_results,
    draw=_draw_rating_results,
    has_ratings=True,
    page=PagePlace("Judges and people", 8),
)


AGREEMENT = Report(
    name="agreement",
    title="Agreement between judges and raters (percent; coefficients: 1 is full agreement, 0 is chance)",
    columns=(
        Column("between", "between"),
        Column("first", "first"),
        Column("second", "second", missing=""),
        Column("benchmark", "benchmark", rank=5),
        Column("task", "task", missing="all", rank=4),
        Column("n", "on", "count"),
        Column("percent", "agree %", "percent"),
        Column("kappa", "kappa", "coefficient", rank=1),
        Column("alpha", "alpha", "coefficient", interval=True, interval_prefix="alpha_"),
        Column("tau", "tau of runs", "coefficient", missing="", rank=2),
        Column("runs", "runs", "count", missing="", rank=3),
    ),
    notes=_agreement_notes,
    empty="No two judges or raters have judged the same answers yet.",
    rows=agreement.build_agreement,
    has_ratings=True,
    page=PagePlace("Judges and people", 9),
)
