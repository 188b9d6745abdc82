"""LongBench Pro's report, paper tables, leaderboards and layout of published scores.

The report consists of averages, best of n and pass@n, over all questions and by five properties of a question.

Source: caskcsg/longcontext, LongBench-Pro/modules/{evaluation,utils}.py at 88fbeb85 (Evaluator.metric_summary); the
numbers come in its order and equal those in its file, to the digit, if the rows are in the same order.

Runs with missing rows (a limit, failed generations) are aggregated as in the official code: a question's average is
over the iterations that exist, and a question without any of the first n does not count in bon@n and pass@n. Numbers
over empty sets are left out. The official code stops if there is no question of a category. Then it gives no numbers,
and ``official`` is None throughout.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lbx.base.columns import Column, number_column
from lbx.base.number import OVERALL, Number, NumberKey, group_number
from lbx.base.records import Sample, ScoredSample
from lbx.benchmarks.base.aggregates import ScoredRows, estimate, mean
from lbx.benchmarks.base.paper_tables import (
    Board,
    BoardEntry,
    BoardPart,
    Boards,
    Chart,
    CsvRow,
    DotChart,
    HeatMap,
    LineChart,
    Paper,
    PublishedScoreFormat,
    RadarChart,
    TableCell,
    best_of,
    cell_by_grouping,
    file_names,
    first_value,
    format_window,
)
from lbx.benchmarks.longbench_pro.tasks import LIMITS

PASS_SUMMARY = 0.65
"""Score that a summary must exceed to pass; other answers must score 1."""

HEADLINES = ("summary", "rouge_l", "ndcg", "pairwise_accuracy", "accuracy", "f1", "subem")
"""Headline metrics by priority: the first of them among a row's scores counts."""

CATEGORIES: dict[str, tuple[str, ...]] = {
    "length": ("8k", "16k", "32k", "64k", "128k", "256k"),
    "requirement": ("Full", "Partial"),
    "difficulty": ("Easy", "Moderate", "Hard", "Extreme"),
    "primary_task": (
        "T1. Retrieval & Ranking",
        "T2. Sequencing & Structure Reconstruction",
        "T3. Evidence-Grounded QA",
        "T4. Summarization & Synthesis",
        "T5. Attribution & Citation Alignment",
        "T6. Aggregation & Clustering",
        "T7. Consistency & Compliance Checking",
        "T8. Structured & Numeric Reasoning",
        "T9. Version & Code Diff Analysis",
        "T10. Rule Induction & In-Context Learning",
        "T11. Dialogue Memory & Long-Horizon Tracking",
    ),
    "language": ("Chinese", "English"),
}
"""{grouping: groups}, in the official order. A question of any other group counts in "overall" only."""

OVERALL_AVERAGE = group_number(OVERALL, metric="average")

LANGUAGES = {"zh": "Chinese", "en": "English"}

_PROPERTIES: dict[str, Callable[[Sample], str]] = {
    "length": lambda sample: str(sample.meta["token_length"]),
    "requirement": lambda sample: str(sample.meta["contextual_requirement"]),
    "difficulty": lambda sample: str(sample.meta["difficulty"]),
    "primary_task": lambda sample: str(sample.meta["primary_task"]),
    "language": lambda sample: LANGUAGES.get(sample.language, sample.language),
}


@dataclass(frozen=True, slots=True)
class _ScoredAnswer:
    row_index: int
    row: ScoredSample
    value: float
    partial: bool
    answers: int = 1
    """Number of answers that the value is computed from."""

    @property
    def sample(self) -> Sample:
        return self.row.sample

    @property
    def iteration(self) -> int:
        return self.row.iteration


@dataclass(frozen=True, slots=True)
class _ReportRows:
    """Inputs of the report.

    Attributes:
        rows: all rows, to which ``_ScoredAnswer.row_index`` refers.
        items: every row with a score, by the question's position in the data, then by iteration.
        averages: the average of each question over its iterations.
        answers: inputs of the averages: every row if all questions have the same number, or else the averages.
        best: best[n - 1] lists the best of the first n iterations of each question. A tie goes to the earlier one.
        official: whether the official code would give numbers.
    """

    rows: ScoredRows
    items: Sequence[_ScoredAnswer]
    averages: Sequence[_ScoredAnswer]
    answers: Sequence[_ScoredAnswer]
    best: Sequence[Sequence[_ScoredAnswer]]
    official: bool = False


def group_scores(tasks: Mapping[str, Sequence[ScoredSample]], *, with_tries: bool = True) -> list[Number]:
    """Compute the report over tasks' answers, sorted in the data's order."""
    return report(_in_order(tasks), tries=with_tries)


def report(rows: Sequence[ScoredSample], *, tries: bool = True) -> list[Number]:
    """Compute the metrics "average", "iteration 1".., "bon@1".., "pass@1".. of the report. ``n`` counts questions.

    Iterations and pass@n exist only for "overall". A number that includes a summary without similarity is partial and
    has no official value. Sums are computed in the rows' order, which affects the last digit.

    Args:
        tries: whether to include other metrics than "average". Without them no number is official.
    """
    report_rows = _report_rows(ScoredRows.of(rows), tries=tries)
    if not report_rows.items:
        return []
    report_rows = replace(report_rows, official=tries and _missing_group(report_rows) is None)
    numbers = _overall("average", report_rows.averages, report_rows, answers=report_rows.answers)
    for iteration in range(len(report_rows.best) if tries else 0):
        items = [item for item in report_rows.items if item.iteration == iteration]
        numbers += _overall(f"iteration {iteration + 1}", items, report_rows)
    numbers += _by_category("average", report_rows.averages, report_rows, answers=report_rows.answers)
    for n, best in enumerate(report_rows.best if tries else (), 1):
        numbers += _overall(f"bon@{n}", best, report_rows)
        numbers += _by_category(f"bon@{n}", best, report_rows)
        marked: list[_ScoredAnswer] = []
        for item in best:
            summary = "T4" in _PROPERTIES["primary_task"](item.sample)
            passed = item.value > PASS_SUMMARY if summary else item.value == 1.0
            marked.append(replace(item, value=float(passed)))
        numbers += _overall(f"pass@{n}", marked, report_rows)
    return numbers


def missing_category(tasks: Mapping[str, Sequence[ScoredSample]]) -> str | None:
    """Find the category without a question, at which the official code stops with a KeyError, or None."""
    return _missing_group(_report_rows(_in_order(tasks)))


def _in_order(tasks: Mapping[str, Sequence[ScoredSample]]) -> ScoredRows:
    rows = ScoredRows.concatenate([ScoredRows.of(rows) for rows in tasks.values()])
    keys = [(row.sample.meta.get("row", 0), row.iteration) for row in rows]
    return rows.take(sorted(range(len(keys)), key=keys.__getitem__))


def _report_rows(rows: ScoredRows, *, tries: bool = True) -> _ReportRows:
    items = [
        _ScoredAnswer(index, row, value, row.partial)
        for index, row in enumerate(rows)
        if (value := headline(row)) is not None
    ]
    questions: dict[tuple[str, str], list[_ScoredAnswer]] = {}
    for item in items:
        questions.setdefault((item.sample.task, item.sample.sample_id), []).append(item)
    iterations = max((item.iteration for item in items), default=-1) + 1
    averages = [_average(rows) for rows in questions.values()]
    even = len(items) == iterations * len(averages)
    best = [_best(items, n) for n in range(iterations if tries else 0)]
    return _ReportRows(rows, items, averages, items if even else averages, best)


def headline(row: ScoredSample) -> float | None:
    """Score that the report counts for an answer, or None without one."""
    return next((row.scores[name] for name in HEADLINES if name in row.scores), None)


def _average(rows: Sequence[_ScoredAnswer]) -> _ScoredAnswer:
    value = mean([row.value for row in rows])
    return _ScoredAnswer(rows[0].row_index, rows[0].row, value, any(row.partial for row in rows), len(rows))


def _best(items: Sequence[_ScoredAnswer], last: int) -> list[_ScoredAnswer]:
    best: dict[tuple[str, str], _ScoredAnswer] = {}
    partial: set[tuple[str, str]] = set()
    answers: Counter[tuple[str, str]] = Counter()
    for item in items:
        key = (item.sample.task, item.sample.sample_id)
        if item.iteration > last:
            continue
        answers[key] += 1
        if item.partial:
            partial.add(key)  # the whole value of another iteration might have been the better one
        if key not in best or item.value > best[key].value:
            best[key] = item
    return [replace(item, partial=key in partial, answers=answers[key]) for key, item in best.items()]


def _missing_group(report_rows: _ReportRows) -> str | None:
    for rows in (report_rows.averages, *report_rows.best):
        for grouping, names in CATEGORIES.items():
            present = {_PROPERTIES[grouping](item.sample) for item in rows}
            for name in names:
                if name not in present:
                    return name
    return None


def _overall(
    metric: str, items: Sequence[_ScoredAnswer], report_rows: _ReportRows, *, answers: Sequence[_ScoredAnswer] = ()
) -> list[Number]:
    return [_group("overall", "all", metric, items, report_rows, answers=answers)] if items else []


def _by_category(
    metric: str, items: Sequence[_ScoredAnswer], report_rows: _ReportRows, *, answers: Sequence[_ScoredAnswer] = ()
) -> list[Number]:
    groups = []
    for grouping, names in CATEGORIES.items():
        items_by_group, answers_by_group = _group_by_property(grouping, items), _group_by_property(grouping, answers)
        groups += [
            _group(grouping, name, metric, items_by_group[name], report_rows, answers=answers_by_group.get(name, ()))
            for name in names
            if name in items_by_group
        ]
    return groups


def _group_by_property(grouping: str, items: Iterable[_ScoredAnswer]) -> dict[str, list[_ScoredAnswer]]:
    by_value: dict[str, list[_ScoredAnswer]] = {}
    for item in items:
        by_value.setdefault(_PROPERTIES[grouping](item.row.sample), []).append(item)
    return by_value


def _group(
    grouping: str,
    name: str,
    metric: str,
    items: Sequence[_ScoredAnswer],
    report_rows: _ReportRows,
    *,
    answers: Sequence[_ScoredAnswer],
) -> Number:
    value = mean([item.value for item in items])
    partial = any(item.partial for item in items)
    inputs = answers or items
    group_estimate = estimate(
        report_rows.rows.take([item.row_index for item in inputs]), [item.value for item in inputs]
    )
    official_value = value if report_rows.official and not partial else None
    return Number(
        kind="group",
        grouping=grouping,
        name=name,
        metric=metric,
        n=len(items),
        score=value,
        official=official_value,
        partial=partial,
        estimate=group_estimate,
        answers=sum(item.answers for item in items),
    )


_GROUPINGS = {
    "token_length": "length",
    "contextual_requirement": "requirement",
    **{name: name for name in ("difficulty", "primary_task", "language")},
}
_TRY_METRICS = {"best_of": "bon", "pass_at": "pass"}


def _number(dimension: str, value: str) -> NumberKey | None:
    if dimension == "overall":
        return OVERALL_AVERAGE
    if dimension in _TRY_METRICS:
        return group_number(OVERALL, metric=f"{_TRY_METRICS[dimension]}@{value}")
    return group_number(_GROUPINGS[dimension], value, metric="average") if dimension in _GROUPINGS else None


def _scores_of_row(row: CsvRow) -> list[tuple[str, NumberKey, str]]:
    key = _number(row["dimension"], row["value"])
    return [(f"{row['model']} ({row['mode']})", key, row["score"])] if key else []


# Files of published scores have a row for each number, in 0..1: benchmark,model,mode,dimension,value,score
PUBLISHED = PublishedScoreFormat(
    columns=("mode", "dimension", "value", "score"),
    scores_of_row=_scores_of_row,
    means=tuple(
        (OVERALL_AVERAGE, {group_number(name, group, metric="average"): 0 for group in CATEGORIES[name]})
        for name in ("length", "requirement", "difficulty", "language")
    ),
)


def _table_cell(key: NumberKey) -> TableCell | None:
    return TableCell(OVERALL, "", key.metric) if key.grouping == OVERALL else cell_by_grouping(key)


PAPER = Paper(
    {
        OVERALL: "LongBench Pro: overall, iterations, best of n, pass@n",
        "length": "LongBench Pro: sample length in tokens",
        "requirement": "LongBench Pro: contextual requirement",
        "difficulty": "LongBench Pro: difficulty",
        "primary_task": "LongBench Pro: primary tasks",
        "language": "LongBench Pro: language",
        "tasks": "LongBench Pro: secondary tasks",
    },
    _table_cell,
    averages=((OVERALL, ""),),
)


_TRIES = (1, 2, 3)
_RANK_KEY = "by"


def _short(group: str) -> str:
    return group.partition(".")[0]


def _type(models: Sequence[BoardEntry]) -> object:
    types = ["Thinking" if entry.reasons else "Instruct" for entry in models]
    return first_value(lambda entry: entry.fact("type"))(models) or (types[0] if len(types) == 1 else "Mixed")


def _window(entry: BoardEntry) -> str | None:
    return entry.fact("window") or entry.fact("context_length") or entry.window


def _prompt_limit(models: Sequence[BoardEntry]) -> str | None:
    return format_window(max((limit for entry in models if (limit := _limit(entry))), default=None))


def _limit(entry: BoardEntry) -> int | None:
    """Number of tokens to which prompts are cut, or None if unknown."""
    if entry.run_id is None:
        match = re.fullmatch(r"(\d+)", entry.attributes.get("context", ""))
    elif not entry.attributes["made"]:
        match = re.search(r"context-(\d+)", " ".join(file_names(entry.attributes)))
    else:
        limit, window = (entry.attributes.get(name) for name in ("max_prompt_tokens", "context_window"))
        tokens = limit or (LIMITS.get(window, window) if isinstance(window, int) else None)
        return tokens if isinstance(tokens, int) else None
    return int(match[1]) if match else None


def _model_label(entry: BoardEntry) -> str:
    """Name of a model as in the authors' app, followed by "(thinking)" or "(nonthinking)"."""
    way = "(thinking)" if entry.reasons else "(nonthinking)"
    return f"{entry.model} {way}" if entry.run_id else f"{entry.model.removesuffix('*')} {way}*"


def _answer_board(title: str, columns: Sequence[Column], numbers: Mapping[str, NumberKey], *charts: Chart) -> Board:
    """Make a leaderboard with a row for each model and mode."""
    return Board(
        f"LongBench Pro: {title} (percent)",
        columns,
        [BoardPart({**numbers, _RANK_KEY: OVERALL_AVERAGE})],
        rank_by=best_of(_RANK_KEY),
        keeps_empty=True,
        model_label=_model_label,
        charts=charts,
        small_charts=len(charts) > 1,
    )


def _chart(dimension: str, groups: Sequence[str]) -> Chart:
    if dimension == "length":
        return HeatMap("LongBench Pro: sample length, percent", "lengths", {name: name for name in groups}, scale=100)
    if dimension == "primary_task":
        axes = {name: _short(name) for name in groups}
        return RadarChart("LongBench Pro: primary tasks, percent", "Eleven tasks", axes, scale=100)
    return DotChart(
        f"LongBench Pro: {dimension}, percent", f"by {dimension}", {name: name for name in groups}, scale=100
    )


def _dimension_board(name: str, groups: Sequence[str]) -> Board:
    columns = [number_column(group, _short(group), "percent", across=True) for group in groups]
    numbers = {group: group_number(name, group, metric="average") for group in groups}
    return _answer_board(name.replace("_", " "), columns, numbers, _chart(name, groups))


_METRICS = {"bon": "Best-of-", "pass": "Pass@"}

BOARDS = Boards(
    {
        "board_longbench_pro": Board(
            "LongBench Pro: leaderboard (percent; by the larger of the two scores)",
            (
                Column("type", "Model Type", value=_type),
                Column("window", "Context Length", value=first_value(_window)),
                Column("truncated", "Truncated Length", value=_prompt_limit),
                number_column("nonthinking", "Non-Thinking Score", "percent"),
                number_column("thinking", "Thinking Score", "percent"),
            ),
            [BoardPart({"nonthinking": OVERALL_AVERAGE}, {"thinking": OVERALL_AVERAGE})],
            rank_by=best_of("nonthinking", "thinking"),
            pairs_modes=True,
            keeps_empty=True,
        ),
        **{f"board_longbench_pro_{name}": _dimension_board(name, groups) for name, groups in CATEGORIES.items()},
        "board_longbench_pro_tries": _answer_board(
            "Best-of-N and Pass@N",
            [
                number_column(f"{metric}@{n}", f"{title}{n}", "percent", optional=True, across=True)
                for metric, title in _METRICS.items()
                for n in _TRIES
            ],
            {f"{metric}@{n}": group_number(OVERALL, metric=f"{metric}@{n}") for metric in _METRICS for n in _TRIES},
            *(
                LineChart(
                    f"LongBench Pro: {title}N, percent",
                    "N from 1 to 3",
                    {f"{metric}@{n}": str(n) for n in _TRIES},
                    scale=100,
                )
                for metric, title in _METRICS.items()
            ),
        ),
    }
)
