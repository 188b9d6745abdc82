"""The rows of the reports ``board_...``: one function for each, named in ``lbx.report.board_shapes``.

Numbers are the official ones. Where a run has none yet (a part of the samples, or of the tasks) the score so far stands
in its place, the row says so, and it comes after the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lbx.report.board_entries import Entry, Pair, both, entries, file_names, paired, with_figures
from lbx.report.board_shapes import (
    BOARDS,
    BUCKETS,
    CATEGORIES,
    CLOSED,
    DIMENSIONS,
    F1,
    JUDGES,
    LANGUAGES,
    LEVELS,
    ROUGE,
    TRIES,
)
from lbx.report.relative import curves
from lbx.report.shapes import Wanted
from lbx.store import Store, Table
from lbx.store.rows import ENDS

Row = dict[str, Any]

NEAREST, FARTHEST = 40.0, 100.0
"""Radii in the radar of a score of 0 and of the best one."""
ALWAYS = ("Human", "Random")
"""What LongBench v2's leaderboard has as lines."""

_V2_LINES = {
    "overall": "overall: accuracy",
    **{part: f"difficulty {part}: accuracy" for part in ("easy", "hard")},
    **{part: f"length {part}: accuracy" for part in ("short", "medium", "long")},
}


def _table(name: str, rows: Iterable[Row], *, paired: bool = False) -> Table:
    """Of a board in which two runs share a row, ``reasoning_run_id`` is the one that was asked to reason."""
    runs = ("run_id", "reasoning_run_id") if paired else ("run_id",)
    shown = BOARDS[f"board_{name}"].columns
    sure = [f"{column.name}_{end}" for column in shown if column.interval for end in ENDS]
    columns = (*runs, *(column.name for column in shown), *sure, *(["cluster_by"] if sure else []))
    return Table(columns, [tuple(row.get(column) for column in columns) for row in rows])


def _ranked(rows: Iterable[Row], score: str) -> list[Row]:
    """Best first; rows with a note after those without, and those without a score last."""
    return sorted(rows, key=lambda row: (row[score] is None, row["note"] is not None, -(row[score] or 0)))


# LongBench


def longbench(store: Store, wanted: Wanted) -> Table:
    return _table("longbench", _by_language(_longbench(store, wanted)))


def longbench_radar(store: Store, wanted: Wanted) -> Table:
    rows = _by_language(_longbench(store, wanted))
    best = {
        (language, category): max((row[category] or 0 for row in rows if row["language"] == language), default=0)
        for language in LANGUAGES.values()
        for category in CATEGORIES
    }
    for row in rows:
        for category in CATEGORIES:
            most, score = best[row["language"], category], row[category]
            if score is not None:
                row[category] = NEAREST + (FARTHEST - NEAREST) * score / most if most else NEAREST
    return _table("longbench_radar", rows)


def _longbench(store: Store, wanted: Wanted) -> list[Entry]:
    found = entries(store, wanted, "longbench")
    return [one if one.run_id else with_figures(one, _averages(one.figures)) for one in found]


def _averages(figures: Mapping[str, float]) -> dict[str, float]:
    """What a published model's figures of tasks average to, by the rule of runs."""
    from lbx.base.records import TaskScore
    from lbx.benchmarks.longbench.groups import groups
    from lbx.benchmarks.longbench.tasks import METRICS, TASKS

    heads = {task: METRICS[TASKS[task].metric][0] for task in figures if task in TASKS}
    numbers = {task: {head: TaskScore(head, 0, figures[task] / 100, figures[task])} for task, head in heads.items()}
    made = [one for one in groups(numbers) if one.official is not None]
    return {f"{one.grouping} {one.name}: {one.metric}": one.official for one in made if one.official is not None}


def _by_language(found: Sequence[Entry]) -> list[Row]:
    rows = []
    for code, language in LANGUAGES.items():
        lines = {category: f"category_{code} {category}: average" for category in CATEGORIES}
        mine = [one.row({"average": f"language {code}: average", **lines}) for one in found]
        rows += [{"language": language, **row} for row in _ranked(mine, "average") if _filled(row, lines)]
    return rows


def _filled(row: Row, columns: Iterable[str]) -> bool:
    return any(row[column] is not None for column in columns)


def longbench_relative(store: Store, wanted: Wanted) -> Table:
    """The first form of the curve, see ``lbx.report.relative``."""
    found = curves(store, wanted.runs)
    rows, every = [], entries(store, wanted, "longbench")
    for in_e, data in ((False, "LongBench"), (True, "LongBench-E")):
        for one in every:
            if curve := found.get((one.run_id or "", in_e)):
                sure = {
                    f"{bucket}_{end}": getattr(point, end) for bucket, point in curve.points.items() for end in ENDS
                }
                points = {bucket: point.value for bucket, point in curve.points.items()}
                counts = {"tasks": len(curve.tasks), "n": curve.n, "fewest": curve.fewest}
                cluster_by = "document" if curve.clustered else "sample"
                rows.append({**one.row({}), "data": data, **counts, **points, **sure, "cluster_by": cluster_by})
    return _table("longbench_relative", rows)


def longbench_e(store: Store, wanted: Wanted) -> Table:
    rows: list[Row] = []
    found = entries(store, wanted, "longbench")
    for category in ("average", *CATEGORIES):
        grouping = "overall_e" if category == "average" else f"category_e {category}"
        mine = [one.row({bucket: f"{grouping}: {bucket}" for bucket in BUCKETS}) for one in found]
        filled = [{"category": category, **row} for row in mine if _filled(row, BUCKETS)]
        rows += _ranked(filled, BUCKETS[-1])
    return _table("longbench_e", rows)


# LongBench v2


def longbench_v2(store: Store, wanted: Wanted) -> Table:
    rows = [_v2_row(*_on_both_sides(pair)) for pair in paired(entries(store, wanted, "longbench_v2", ALWAYS))]
    return _table("longbench_v2", _ranked(rows, "by"), paired=True)


def _on_both_sides(pair: Pair) -> Pair:
    lone = pair[0] or pair[1]
    always = lone is not None and lone.run_id is None and lone.model.rstrip("*") in ALWAYS
    return (lone, lone) if always else pair


def _v2_row(plain: Entry | None, reasoned: Entry | None) -> Row:
    pair = (plain, reasoned)
    row: Row = _who(pair) | {
        "params": both(pair, lambda one: _told(one, "params")),
        "context": both(pair, lambda one: _told(one, "context") or _thousands(one.about.get("context_window"))),
        "date": both(pair, lambda one: _told(one, "date")),
    }
    notes = {}
    for one, suffix in ((plain, ""), (reasoned, "_cot")):
        found = (one or Entry("")).row({f"{part}{suffix}": line for part, line in _V2_LINES.items()})
        notes[found["note"]] = True
        row |= {name: said for name, said in found.items() if name not in row}
    row["note"] = "; ".join(filter(None, notes)) or None
    row["by"] = row["overall"] if row["overall_cot"] is None else row["overall_cot"]
    return row


def _who(pair: Pair) -> Row:
    one = both(pair, lambda one: one)
    runs = zip(("run_id", "reasoning_run_id"), pair, strict=True)
    return {
        **{name: getattr(one, name) for name in ("model", "backend", "differs_in")},
        **{name: found.run_id if found else None for name, found in runs},
        "mode": one.way,
    }


def _told(one: Entry, name: str) -> str | None:
    """What is said of a model: of a published one its row, of a run its metadata (``--metadata``)."""
    said = one.about if one.run_id is None else {key.casefold(): text for key, text in one.about["metadata"].items()}
    return str(said[name]) if said.get(name) else None


def _thousands(tokens: object) -> str | None:
    """A window as leaderboards write it: 128000 and 131072 are "128k", 120000 is "120k"."""
    if not isinstance(tokens, int) or tokens <= 0:
        return None
    sizes = ((10**6, "M"), (2**20, "M"), (1000, "k"), (1024, "k"))
    return next((f"{tokens // size}{unit}" for size, unit in sizes if tokens % size == 0), str(tokens))


# LongBench Pro


def longbench_pro(store: Store, wanted: Wanted) -> Table:
    rows = []
    for pair in paired(entries(store, wanted, "longbench_pro")):
        plain, reasoned = (
            one.row({name: "overall: average"}) if one else {name: None}
            for name, one in zip(("nonthinking", "thinking"), pair, strict=True)
        )
        types = [name for name, one in zip(("Instruct", "Thinking"), pair, strict=True) if one]
        limits = [limit for one in pair if one and (limit := _limit(one))]
        row = (
            plain
            | reasoned
            | _who(pair)
            | {
                "note": "; ".join(dict.fromkeys(filter(None, (plain.get("note"), reasoned.get("note"))))) or None,
                "type": both(pair, lambda one: _told(one, "type")) or (types[0] if len(types) == 1 else "Mixed"),
                "window": both(pair, _window),
                "truncated": _thousands(max(limits, default=None)),
            }
        )
        scores = [score for name in ("nonthinking", "thinking") if (score := row[name]) is not None]
        row["by"] = max(scores, default=None)
        rows.append(row)
    return _table("longbench_pro", _ranked(rows, "by"), paired=True)


def _window(one: Entry) -> str | None:
    return _told(one, "window") or _told(one, "context_length") or _thousands(one.about.get("context_window"))


def _limit(one: Entry) -> int | None:
    """Tokens to which prompts are cut."""
    if one.run_id is None:
        said = re.fullmatch(r"(\d+)", one.about.get("context", ""))
    elif not one.about["made"]:
        said = re.search(r"context-(\d+)", " ".join(file_names(one.about)))
    else:
        from lbx.benchmarks.longbench_pro.benchmark import LIMITS

        limit, window = (one.about.get(name) for name in ("max_prompt_tokens", "context_window"))
        found = limit or (LIMITS.get(window, window) if isinstance(window, int) else None)
        return found if isinstance(found, int) else None
    return int(said[1]) if said else None


def _of_answers(store: Store, wanted: Wanted, name: str, lines: Mapping[str, str]) -> Table:
    """A row for each model and way to ask it, named as Pro's app does."""
    rows = []
    for one in entries(store, wanted, "longbench_pro"):
        row = one.row({**lines, "by": "overall: average"})
        way = "(thinking)" if one.reasons else "(nonthinking)"
        rows.append(row | {"model": f"{one.model} {way}" if one.run_id else f"{one.model.removesuffix('*')} {way}*"})
    return _table(name, _ranked(rows, "by"))


def _dimension(name: str) -> Callable[[Store, Wanted], Table]:
    lines = {group: f"{name} {group}: average" for group in DIMENSIONS[name]}
    return partial(_of_answers, name=f"longbench_pro_{name}", lines=lines)


longbench_pro_length = _dimension("length")
longbench_pro_requirement = _dimension("requirement")
longbench_pro_difficulty = _dimension("difficulty")
longbench_pro_primary_task = _dimension("primary_task")
longbench_pro_language = _dimension("language")
longbench_pro_tries = partial(
    _of_answers,
    name="longbench_pro_tries",
    lines={f"{metric}@{n}": f"overall: {metric}@{n}" for metric in ("bon", "pass") for n in TRIES},
)


# LV-Eval


def lveval(store: Store, wanted: Wanted) -> Table:
    every = map(_closed, entries(store, wanted, "lveval"))
    found = [one if one.run_id else with_figures(one, _means(one.figures)) for one in every]
    overall = {id(one): one.figures.get("overall: average") for one in found}
    ordered = sorted(found, key=lambda one: (one.note is not None, -(overall[id(one)] or 0)))
    datasets = dict.fromkeys(line.rpartition("_")[0] for one in found for line in one.figures if _level(line))
    rows: list[Row] = []
    for dataset in ("all", *datasets):
        lines = {**{level: f"{dataset}_{level}" for level in LEVELS}, "mean": f"dataset {dataset}: average"}
        if dataset == "all":
            lines = {**{level: f"length {level}: average" for level in LEVELS}, "mean": "overall: average"}
        rows += [{"dataset": dataset, **row} for one in ordered if _filled(row := one.row(lines), lines)]
    return _table("lveval", rows)


def _closed(entry: Entry) -> Entry:
    """With every level's mean the mean of all is whole: it is ours, so that it is never official."""
    levels = {f"length {level}: average" for level in LEVELS}
    whole = levels <= entry.figures.keys() and not levels & entry.open
    return replace(entry, open=entry.open - {"overall: average"}) if whole else entry


def _level(line: str) -> bool:
    return line.rpartition("_")[2] in LEVELS


def _means(figures: Mapping[str, float]) -> dict[str, float]:
    """The averages of a published model by level, by dataset and of all, where no task of them lacks."""
    cells = {line: value for line, value in figures.items() if _level(line)}
    datasets = dict.fromkeys(line.rpartition("_")[0] for line in cells)
    wanted = {
        **{f"length {level}: average": [f"{dataset}_{level}" for dataset in datasets] for level in LEVELS},
        **{f"dataset {dataset}: average": [f"{dataset}_{level}" for level in LEVELS] for dataset in datasets},
        "overall: average": [f"{dataset}_{level}" for dataset in datasets for level in LEVELS],
    }
    return {
        line: round(sum(cells[task] for task in tasks) / len(tasks), 2)
        for line, tasks in wanted.items()
        if tasks and cells.keys() >= set(tasks)
    }


# L-Eval

_WORDS = r"""
    SELECT g.run_id, a.task, a.meta->>'evaluation' AS mark, a.meta->>'judged_by' AS judged, count(*) AS n,
           avg(len(regexp_extract_all(g.output, '[^\t-\r\x{1c}-\x{1f}\x{85}\p{Z}]+'))) AS words
    FROM generations g JOIN samples a USING (benchmark, task, sample_id)
    WHERE g.benchmark = 'leval' AND g.output IS NOT NULL GROUP BY ALL
"""
_JUDGED = {"gpt-4": ("LLM",), "gpt-3.5": ("LLM", "human")}
"""The marks of the questions that a judge is asked."""


def leval_exam(store: Store, wanted: Wanted) -> Table:
    lines = {**{task: task for task in CLOSED}, "average": "closed: exact_match"}
    return _leval(store, wanted, "leval_exam", [lines])


def leval_f1(store: Store, wanted: Wanted) -> Table:
    return _leval(store, wanted, "leval_f1", [{**{task: task for task in F1}, "average": "open: f1"}], words=F1)


def leval_rouge(store: Store, wanted: Wanted) -> Table:
    metrics = ("rouge1", "rouge2", "rougeL")
    lines = [{"average": f"open: {one}", **{task: f"{task}, {one}" for task in ROUGE}} for one in metrics]
    return _leval(store, wanted, "leval_rouge", lines, words=ROUGE)


def _judged(judge: str, store: Store, wanted: Wanted) -> Table:
    name = f"leval_{judge.replace('-', '').replace('.', '')}"
    lines = {"win_rate": f"judge {judge} against turbo-16k-0613: win rate"}
    return _leval(store, wanted, name, [lines], marks=_JUDGED[judge])


leval_gpt4, leval_gpt35 = (partial(_judged, judge) for judge in JUDGES)


def _leval(
    store: Store,
    wanted: Wanted,
    name: str,
    tables: Sequence[Mapping[str, str]],
    *,
    words: Sequence[str] = (),
    marks: Sequence[str] = (),
) -> Table:
    """A board with a row for each of ``tables``, {column: line}: their last words are the metric.

    Args:
        words: the tasks whose answers' mean length stands beside.
        marks: the marks of the questions, instead.
    """
    lengths = _lengths(store, words, marks) if words or marks else {}
    rows = []
    for one in entries(store, wanted, "leval"):
        length = lengths.get(one.run_id or "")
        for lines in tables:
            row = one.row(lines) | _how(one)
            row |= {"length": length, "metric": lines.get("average", "").rpartition(" ")[2]}
            if length is not None or _filled(row, lines):
                rows.append(row)
    ranked = _ranked(rows, "win_rate" if marks else "average")
    places = {lines.get("average", "").rpartition(" ")[2]: place for place, lines in enumerate(tables)}
    return _table(name, sorted(ranked, key=lambda row: places[row["metric"]]))


def _lengths(store: Store, tasks: Sequence[str], marks: Sequence[str]) -> dict[str, float]:
    """{run: mean number of words of its answers} to scored questions of these tasks, or to questions marked so."""
    found: dict[str, list[tuple[float, int]]] = {}
    for run_id, task, mark, judged, n, words in store.query(_WORDS).rows:
        of_judge = mark in marks or any(f'"{one}"' in (judged or "") for one in marks)
        of_task = task in tasks and mark not in ("LLM", "human")
        if of_judge if marks else of_task:
            found.setdefault(run_id, []).append((words, n))
    return {run: sum(w * n for w, n in some) / sum(n for _, n in some) for run, some in found.items()}


def _how(one: Entry) -> Row:
    """L-Eval's columns on how a model was asked: as its settings say, or its metadata."""
    if one.run_id is None:
        return {"max_ctx": one.about.get("context")}
    from lbx.benchmarks.leval.results import columns_told

    told = columns_told(one.about, one.about["metadata"], made=one.about["made"])
    names = {"max_ctx": "Max-Ctx", "tokens": "Tokens", "ret": "Ret.", "pe": "PE", "idd": "IDD"}
    return {column: told.get(name) or None for column, name in names.items()}
