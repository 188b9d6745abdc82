"""L-Eval's tables: closed and open tasks, and the boards of exams, F1, ROUGE and judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lbx.base.columns import Column, number_column
from lbx.base.number_key import OVERALL, NumberKey, group_number, task_number
from lbx.benchmarks.base.judge_marks import MARKS
from lbx.benchmarks.base.layout import MODE, Board, Boards, Entry, Paper, Part, Place, Words, best_of
from lbx.benchmarks.leval.predictions import columns_told
from lbx.benchmarks.leval.tasks import BASELINE, KINDS, OPEN


def _place(key: NumberKey) -> Place | None:
    if key.grouping:
        table = "closed" if key.grouping == "closed" else "f1" if key.metric == "f1" else "rouge"
        return Place(table, key.metric if table == "rouge" else "", "average")
    kind = KINDS.get(key.name, "")
    if kind == "rouge":
        return Place("rouge", key.metric or "geometric mean", key.name)
    return Place("f1" if kind == "f1" else "closed", "", f"{key.name}, {key.metric}" if key.metric else key.name)


def _average_heading(key: NumberKey) -> str:
    """Return the metric, or "closed", because all its averages share a column."""
    if key.grouping == "open":
        return key.metric
    return key.grouping if key.name == OVERALL else f"{key.grouping} {key.name}"


PAPER = Paper(
    {
        "closed": "L-Eval: closed-ended tasks (exact match)",
        "f1": "L-Eval: open-ended tasks (F1)",
        "rouge": "L-Eval: open-ended tasks (ROUGE)",
    },
    _place,
    average_heading=_average_heading,
)


_HOW = {"max_ctx": "Max-Ctx", "tokens": "Tokens", "ret": "Ret.", "pe": "PE", "idd": "IDD"}
_JUDGES = {"gpt-4": ("LLM",), "gpt-3.5": ("LLM", "human")}
"""Marks of the questions for each judge."""


def _how(column: str) -> Callable[[Sequence[Entry]], object]:
    """Return a column on how a model was asked, from its settings or its metadata."""

    def told(models: Sequence[Entry]) -> object:
        one, about = models[0], models[0].about
        if one.run_id is None:
            return about.get("context") if column == "max_ctx" else None
        return columns_told(about, about["metadata"], made=about["made"]).get(_HOW[column]) or None

    return told


_ASKED = [Column(name, heading, value=_how(name), optional=True, rank=2) for name, heading in _HOW.items()]
_WORDS = ("evaluation", "judged_by")
_LENGTH = number_column("length", "Length", interval=False)


def _tasks(*kinds: str) -> list[str]:
    return [task for task, kind in KINDS.items() if (kind if kind in OPEN else "") in kinds]


def _words_of(tasks: Sequence[str]) -> Words:
    """Count answers to scored questions of these tasks."""
    return Words(_WORDS, lambda task, marks: task in tasks and marks[0] not in MARKS)


def _words_judged(marks: Sequence[str]) -> Words:
    """Count answers to questions with these marks, or with copies that have them."""
    return Words(_WORDS, lambda _, told: told[0] in marks or any(f'"{one}"' in (told[1] or "") for one in marks))


def _board(title: str, columns: Sequence[Column], parts: Sequence[Part], words: Words | None = None) -> Board:
    columns = (MODE, *_ASKED, *columns, *((_LENGTH,) if words else ()))
    return Board(f"L-Eval: {title}", columns, parts, by=best_of(_headline(parts)), words=words)


def _headline(parts: Sequence[Part]) -> str:
    return "average" if "average" in parts[0].numbers else "win_rate"


def _numbers(tasks: Sequence[str], average: str) -> list[Column]:
    return [
        *(number_column(task, task.replace("_", " "), across=True) for task in tasks),
        number_column("average", average),
    ]


def _with_average(tasks: Sequence[str], average: NumberKey, metric: str = "") -> Mapping[str, NumberKey]:
    return {"average": average, **{task: task_number(task, metric) for task in tasks}}


def _judged(judge: str, marks: Sequence[str]) -> Board:
    return _board(
        f"win rate against {BASELINE} as {judge} judges (percent; Length: mean words of the answers)",
        [number_column("win_rate", "win %")],
        [Part({"win_rate": group_number("judge", f"{judge} against {BASELINE}", metric="win rate")})],
        _words_judged(marks),
    )


_CLOSED, _F1, _ROUGE = _tasks(""), _tasks("f1"), _tasks("rouge")

BOARDS = Boards(
    {
        "board_leval_exam": _board(
            "closed-ended tasks (exact match, percent)",
            _numbers(_CLOSED, "Avg"),
            [Part(_with_average(_CLOSED, group_number("closed", metric="exact_match")))],
        ),
        "board_leval_f1": _board(
            "open-ended tasks by F1 (percent; Length: mean words of the answers)",
            _numbers(_F1, "F1 avg"),
            [Part(_with_average(_F1, group_number("open", metric="f1")))],
            _words_of(_F1),
        ),
        "board_leval_rouge": _board(
            "open-ended tasks by ROUGE (percent; Length: mean words of the answers)",
            [Column("metric", "metric"), *_numbers(_ROUGE, "ROUGE avg")],
            [
                Part(_with_average(_ROUGE, group_number("open", metric=metric), metric), texts={"metric": metric})
                for metric in ("rouge1", "rouge2", "rougeL")
            ],
            _words_of(_ROUGE),
        ),
        **{
            f"board_leval_{judge.replace('-', '').replace('.', '')}": _judged(judge, marks)
            for judge, marks in _JUDGES.items()
        },
    }
)
