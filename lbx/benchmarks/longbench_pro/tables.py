"""LongBench Pro's tables: the leaderboard, dimensions of questions, several tries, and published figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lbx.base.columns import Column, number_column
from lbx.base.number_key import OVERALL, NumberKey, group_number
from lbx.benchmarks.base.layout import (
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
    PublishedFigures,
    RadarChart,
    TableCell,
    best_of,
    by_group,
    file_names,
    first_value,
    thousands,
)
from lbx.benchmarks.longbench_pro.groups import CATEGORIES, OVERALL_AVERAGE
from lbx.benchmarks.longbench_pro.tasks import LIMITS

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


def _figures(row: CsvRow) -> list[tuple[str, NumberKey, str]]:
    key = _number(row["dimension"], row["value"])
    return [(f"{row['model']} ({row['mode']})", key, row["score"])] if key else []


# Files of published figures have a row for each number, in 0..1: benchmark,model,mode,dimension,value,score
PUBLISHED = PublishedFigures(
    columns=("mode", "dimension", "value", "score"),
    figures=_figures,
    means=tuple(
        (OVERALL_AVERAGE, {group_number(name, group, metric="average"): 0 for group in CATEGORIES[name]})
        for name in ("length", "requirement", "difficulty", "language")
    ),
)


def _table_cell(key: NumberKey) -> TableCell | None:
    return TableCell(OVERALL, "", key.metric) if key.grouping == OVERALL else by_group(key)


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
    return first_value(lambda entry: entry.describe("type"))(models) or (types[0] if len(types) == 1 else "Mixed")


def _window(entry: BoardEntry) -> str | None:
    return entry.describe("window") or entry.describe("context_length") or entry.window


def _prompt_limit(models: Sequence[BoardEntry]) -> str | None:
    return thousands(max((limit for entry in models if (limit := _limit(entry))), default=None))


def _limit(entry: BoardEntry) -> int | None:
    """Return the number of tokens to which prompts are cut."""
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
    """Return a model's name as in the authors' app: with the way it was asked."""
    way = "(thinking)" if entry.reasons else "(nonthinking)"
    return f"{entry.model} {way}" if entry.run_id else f"{entry.model.removesuffix('*')} {way}*"


def _answer_board(title: str, columns: Sequence[Column], numbers: Mapping[str, NumberKey], *charts: Chart) -> Board:
    """Return a table with a row for each model and mode of asking."""
    return Board(
        f"LongBench Pro: {title} (percent)",
        columns,
        [BoardPart({**numbers, _RANK_KEY: OVERALL_AVERAGE})],
        by=best_of(_RANK_KEY),
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
            by=best_of("nonthinking", "thinking"),
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
