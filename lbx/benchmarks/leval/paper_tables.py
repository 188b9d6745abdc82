"""L-Eval's paper tables (closed and open tasks) and leaderboards (exams, F1, ROUGE, judges)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lbx.base.columns import Column, number_column
from lbx.base.number import OVERALL, NumberKey, group_number, task_number
from lbx.benchmarks.base.benchmark import MARKS
from lbx.benchmarks.base.paper_tables import (
    MODE,
    AnswerLengthRule,
    Board,
    BoardEntry,
    BoardPart,
    Boards,
    Paper,
    TableCell,
    best_of,
)
from lbx.benchmarks.leval.predictions import protocol_columns
from lbx.benchmarks.leval.tasks import BASELINE, KINDS, OPEN


def _table_cell(key: NumberKey) -> TableCell | None:
    if key.grouping:
        table = "closed" if key.grouping == "closed" else "f1" if key.metric == "f1" else "rouge"
        return TableCell(table, key.metric if table == "rouge" else "", "average")
    kind = KINDS.get(key.name, "")
    if kind == "rouge":
        return TableCell("rouge", key.metric or "geometric mean", key.name)
    return TableCell("f1" if kind == "f1" else "closed", "", f"{key.name}, {key.metric}" if key.metric else key.name)


def _average_heading(key: NumberKey) -> str:
    """Heading of an average: the metric, or "closed"."""
    if key.grouping == "open":
        return key.metric
    return key.grouping if key.name == OVERALL else f"{key.grouping} {key.name}"


PAPER = Paper(
    {
        "closed": "L-Eval: closed-ended tasks (exact match)",
        "f1": "L-Eval: open-ended tasks (F1)",
        "rouge": "L-Eval: open-ended tasks (ROUGE)",
    },
    _table_cell,
    average_heading=_average_heading,
)


_PROTOCOL_HEADINGS = {"max_ctx": "Max-Ctx", "tokens": "Tokens", "ret": "Ret.", "pe": "PE", "idd": "IDD"}
_JUDGES = {"gpt-4": ("LLM",), "gpt-3.5": ("LLM", "human")}
"""Marks of the questions for each judge."""


def _protocol_value(column: str) -> Callable[[Sequence[BoardEntry]], object]:
    """Make a function that finds the value of a protocol column in a run's settings or metadata."""

    def value_of(models: Sequence[BoardEntry]) -> object:
        entry, about = models[0], models[0].attributes
        if entry.run_id is None:
            return about.get("context") if column == "max_ctx" else None
        return (
            protocol_columns(about, about["metadata"], has_settings=about["made"]).get(_PROTOCOL_HEADINGS[column])
            or None
        )

    return value_of


_PROTOCOL_COLUMNS = [
    Column(name, heading, value=_protocol_value(name), optional=True, rank=2)
    for name, heading in _PROTOCOL_HEADINGS.items()
]
_WORDS = ("evaluation", "judged_by")
_LENGTH = number_column("length", "Length", interval=False)


def _tasks(*kinds: str) -> list[str]:
    return [task for task, kind in KINDS.items() if (kind if kind in OPEN else "") in kinds]


def _length_rule_of_tasks(tasks: Sequence[str]) -> AnswerLengthRule:
    """Make the length rule that counts the answers to the tasks' scored questions."""
    return AnswerLengthRule(_WORDS, lambda task, marks: task in tasks and marks[0] not in MARKS)


def _length_rule_of_marks(marks: Sequence[str]) -> AnswerLengthRule:
    """Make the length rule that counts answers to questions with one of the marks, or copied with one of the marks."""
    return AnswerLengthRule(
        _WORDS,
        lambda _, meta_values: meta_values[0] in marks or any(f'"{mark}"' in (meta_values[1] or "") for mark in marks),
    )


def _board(
    title: str, columns: Sequence[Column], parts: Sequence[BoardPart], length_rule: AnswerLengthRule | None = None
) -> Board:
    columns = (MODE, *_PROTOCOL_COLUMNS, *columns, *((_LENGTH,) if length_rule else ()))
    return Board(
        f"L-Eval: {title}",
        columns,
        parts,
        rank_by=best_of("average" if "average" in parts[0].numbers else "win_rate"),
        length_rule=length_rule,
    )


def _numbers(tasks: Sequence[str], average: str) -> list[Column]:
    return [
        *(number_column(task, task.replace("_", " "), across=True) for task in tasks),
        number_column("average", average),
    ]


def _with_average(tasks: Sequence[str], average: NumberKey, metric: str = "") -> Mapping[str, NumberKey]:
    return {"average": average, **{task: task_number(task, metric) for task in tasks}}


def _judge_board(judge: str, marks: Sequence[str]) -> Board:
    return _board(
        f"win rate against {BASELINE} as {judge} judges (percent; Length: mean words of the answers)",
        [number_column("win_rate", "win %")],
        [BoardPart({"win_rate": group_number("judge", f"{judge} against {BASELINE}", metric="win rate")})],
        _length_rule_of_marks(marks),
    )


_CLOSED, _F1, _ROUGE = _tasks(""), _tasks("f1"), _tasks("rouge")

BOARDS = Boards(
    {
        "board_leval_exam": _board(
            "closed-ended tasks (exact match, percent)",
            _numbers(_CLOSED, "Avg"),
            [BoardPart(_with_average(_CLOSED, group_number("closed", metric="exact_match")))],
        ),
        "board_leval_f1": _board(
            "open-ended tasks by F1 (percent; Length: mean words of the answers)",
            _numbers(_F1, "F1 avg"),
            [BoardPart(_with_average(_F1, group_number("open", metric="f1")))],
            _length_rule_of_tasks(_F1),
        ),
        "board_leval_rouge": _board(
            "open-ended tasks by ROUGE (percent; Length: mean words of the answers)",
            [Column("metric", "metric"), *_numbers(_ROUGE, "ROUGE avg")],
            [
                BoardPart(_with_average(_ROUGE, group_number("open", metric=metric), metric), texts={"metric": metric})
                for metric in ("rouge1", "rouge2", "rougeL")
            ],
            _length_rule_of_tasks(_ROUGE),
        ),
        **{
            f"board_leval_{judge.replace('-', '').replace('.', '')}": _judge_board(judge, marks)
            for judge, marks in _JUDGES.items()
        },
    }
)
