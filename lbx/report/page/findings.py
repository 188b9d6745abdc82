"""What stands out in a results file, in sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from lbx.errors import UsageError
from lbx.report.fitness import FIT
from lbx.report.page.html import Html, Section, cut, run_name, tag
from lbx.report.page.source import Source

_MANY = 0.05
"""From this share of a run's answers on a mark stands out."""
_MOST = 24
_MOST_PAIRS = 6

_MARKS = {
    "empty_prompts": "prompts were empty after truncation",
    "doubled_bos": "prompts began with two BOS tokens",
    "reasoning_unclosed": "answers never came out of their reasoning",
    "stop_in_reasoning": "answers had a stop string in their reasoning",
    "answers_cut": "answers ran into their length limit",
    "truncated": "prompts were cut",
    "reference_cut": "prompts lost the only place where a reference answer stood",
    "official_errors": "answers would stop the official script",
    "partial": "scores lack a part of their metric",
}
_ALWAYS = ("empty_prompts", "doubled_bos", "reasoning_unclosed", "reference_cut")
"""Faults: one is worth a sentence."""

Row = Mapping[str, Any]


def findings(source: Source) -> Section | None:
    """The section; None where nothing stands out."""
    said = [
        *_leaders(source),
        *_verdicts(source),
        *_judges(source),
        *_failures(source),
        *_guards(source),
        *_unfinished(source),
    ]
    if not said:
        return None
    more = [tag("p", f"And {len(said) - _MOST} more; the tables below have them.")] if len(said) > _MOST else []
    return Section("findings", "What stands out", [tag("ul", *(tag("li", line) for line in said[:_MOST])), *more])


def _leaders(source: Source) -> Iterator[Html]:
    """In the leaderboard's order, which counts what is missing; a mean over other tasks is another number."""
    for _, rows in _of(source.rows("leaderboard"), "benchmark"):
        of_tasks = _of([row for row in rows if row["score"] is not None], "tasks")
        for tasks, (first, *others) in of_tasks:
            where = _b(first) + (
                Html(f", {tasks:,} {'task' if tasks == 1 else 'tasks'},") if len(of_tasks) > 1 else Html("")
            )
            if not others:
                yield Html(f"{_who(source, first)} scores {_score(first)} on {where.rstrip(',')}.")
                continue
            near = [row for row in others if row.get("low") is not None and _overlap(first, row)]
            names = ", ".join(f"{_who(source, row)} ({_score(row)})" for row in near[:3])
            more = f" and {len(near) - 3} more" if len(near) > 3 else ""
            beside = f"; the intervals of {names}{more} reach into its own" if near else ""
            yield Html(f"{_who(source, first)} leads {where} with {_score(first)}{beside}.")


def _overlap(first: Row, row: Row) -> bool:
    return bool(first.get("low") is not None and row["high"] >= first["low"])


def _verdicts(source: Source) -> Iterator[Html]:
    """What the comparison says of each two runs, by the first line of each benchmark: its average."""
    try:
        rows = source.rows("comparison")
    except UsageError:
        return
    said: set[tuple[str, str, str]] = set()
    for row in rows:
        pair = (row["run_a"], row["run_b"], row["benchmark"])
        if pair in said or row["difference"] is None or len(said) >= _MOST_PAIRS:
            continue
        said.add(pair)
        low, high = row["low"], row["high"]
        between = f" [{100 * low:+.1f}, {100 * high:+.1f}]" if low is not None and high is not None else ""
        yield Html(
            f"{_who(source, {'run_id': row['run_b']})} against {_who(source, {'run_id': row['run_a']})} on {_b(row)}, "
            f"{tag('span', str(row['task']))}: {100 * row['difference']:+.1f}{between} points, "
            f"{tag('b', str(row['verdict'] or 'unknown'))}."
        )


def _judges(source: Source) -> Iterator[Html]:
    """Which judges are not to be believed."""
    for judge, verdict, why in dict.fromkeys(
        (row["judge_id"], row["fitness"], row["why"]) for row in source.rows("judge_results")
    ):
        if verdict != FIT:
            yield Html(f"The judge {tag('i', str(judge))} is {tag('b', verdict)}: {tag('span', why)}.")


def _failures(source: Source) -> Iterator[Html]:
    causes: dict[tuple[str, str], Row] = {}
    for row in source.failures():
        causes.setdefault((row["run_id"], row["benchmark"]), row)
    for row in source.rows("leaderboard"):
        if not row["failed"]:
            continue
        low, high = row.get("failed_as_0"), row.get("failed_as_1")
        bounds = "its score leaves them out"
        if low is not None and high is not None:
            bounds = f"its score lies between {100 * low:.1f} and {100 * high:.1f}"
        cause = causes.get((row["run_id"], row["benchmark"]))
        why = f"{tag('q', cut(str(cause['error']), 160))} {cause['n']:,} times; " if cause else ""
        yield Html(f"{_who(source, row)} failed on {row['failed']:,} answers of {_b(row)}: {why}{bounds}.")


def _b(row: Row) -> Html:
    return tag("b", str(row["benchmark"]))


def _guards(source: Source) -> Iterator[Html]:
    """A sentence for each run and mark, over all its tasks."""
    for name, words in _MARKS.items():
        for run, rows in _of(source.rows("guards"), "run_id"):
            held = [row for row in rows if row.get(name) is not None]
            marked, asked = sum(row[name] for row in held), sum(row["n"] for row in held)
            if asked and (marked > _MANY * asked or (marked and name in _ALWAYS)):
                yield Html(f"{_who(source, {'run_id': run})}: {marked:,} of {asked:,} {words} ({marked / asked:.0%}).")


def _unfinished(source: Source) -> Iterator[Html]:
    for run in source.runs.values():
        if run.row["status"] != "done":
            yield Html(f"{run_name(run.mark, run.label)} is not finished ({tag('i', str(run.row['status']))}).")


def _who(source: Source, row: Row) -> Html:
    mark = source.mark(row["run_id"])
    return run_name(mark, source.label(row["run_id"])) if mark is not None else tag("span", str(row["run_id"]))


def _score(row: Row) -> str:
    text = f"{100 * row['score']:.1f}"
    low, high = row.get("low"), row.get("high")
    return text if low is None or high is None else f"{text} [{100 * low:.1f}, {100 * high:.1f}]"


def _of(rows: Sequence[Row], name: str) -> Collection[tuple[Any, list[Row]]]:
    """Rows by the value of a column, in the order in which these come."""
    held: dict[Any, list[Row]] = {}
    for row in rows:
        held.setdefault(row[name], []).append(row)
    return held.items()
