"""Every place where a number of a results file stands, and what it says there of which number.

A reader gives claims: of what a number is, and columns. ``faults`` holds them against what was recomputed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.consistency.expected import Columns, Expected
from tests.consistency.stored_file import Key

_OF_OPINIONS = ("n", "score", "official", "partial", "low", "high", "method", "clusters", "answered", "asked")
SURE = ("low", "high", "se", "df", "clusters", "cluster_by", "method", "within")
OPEN = ("answered", "asked", "failed_as_0", "failed_as_1")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """What a place says of a number. ``unit``: what its figures are, where a score of 1 is that many."""

    place: str
    key: Key
    columns: Columns


def pick(row: Row, *names: str) -> Columns:
    return {name: row[name] for name in names if name in row}


def task_scores(place: str, rows: Iterable[Row]) -> Iterator[Claim]:
    for row in rows:
        key = ("task", row["run_id"], row["benchmark"], row["task"], row["metric"])
        names = ("n", "score", "official", "partial", "headline", "metric_version", *SURE, *OPEN)
        yield Claim(place, key, pick(row, *names))
        yield Claim(place, ("coverage", *key[1:4]), pick(row, "samples", "bundle_samples", "coverage"))


def group_scores(place: str, rows: Iterable[Row]) -> Iterator[Claim]:
    for row in rows:
        kind = "opinion" if row["grouping"] in ("judge", "people") else "group"
        key = (kind, *(row[name] for name in ("run_id", "benchmark", "grouping", "name", "metric")))
        said = pick(row, "n", "score", "official", "partial", *SURE, *OPEN)
        yield Claim(place, key, said if kind == "group" else pick(row, *_OF_OPINIONS))
        yield Claim(place, ("coverage", *key[1:3]), pick(row, "samples", "bundle_samples", "coverage"))


def leaderboard(place: str, rows: Iterable[Row]) -> Iterator[Claim]:
    for row in rows:
        key = ("mean", row["run_id"], row["benchmark"])
        said = pick(row, "n", "score", "tasks", "failed", "truncated", *SURE, *OPEN)
        # The view has the stored status, and reports have the state: nothing writes this file.
        if "status" in row:
            said["status"] = "killed" if row["status"] == "running" else row["status"]
        yield Claim(place, key, said)
        yield Claim(place, ("coverage", *key[1:]), pick(row, "samples", "bundle_samples", "coverage"))


def paper(place: str, rows: Iterable[Row]) -> Iterator[Claim]:
    """Lines by the names of their numbers, in official units."""
    for row in rows:
        who, line = (row["run_id"], row["benchmark"]), row["line"]
        if line.startswith("relative_e") or row["run_id"] is None:
            continue
        if line.startswith(("judge ", "people ")):
            group, _, metric = line.rpartition(": ")
            grouping, _, name = group.partition(" ")
            yield Claim(place, ("opinion", *who, grouping, name, metric), pick(row, "official", "clusters", "method"))
            continue
        unit = 1 if row["benchmark"] == "longbench_pro" else 100
        key: Key
        if row["part"] == 0:
            task, _, metric = line.partition(", ")
            key = ("line", *who, task, metric)
        else:
            group, _, metric = line.rpartition(": ")
            grouping, _, name = group.partition(" ")
            key = ("group", *who, grouping, name or "all", metric)
        ends = {end: None if row[end] is None else row[end] / unit for end in ("low", "high", "se") if end in row}
        # Without an official number there is no unit for the ends of its interval.
        yield Claim(
            place,
            key,
            pick(row, "official", "clusters", "method", "cluster_by") | ({} if row["official"] is None else ends),
        )


def length_curve(place: str, rows: Iterable[Row]) -> Iterator[Claim]:
    for row in rows:
        names = ("run_id", "benchmark", "task", "length_unit", "length_up_to")
        yield Claim(place, ("length", *(row[n] for n in names)), pick(row, "n", "score", "metric", *SURE))


def truncation(place: str, rows: Iterable[Row]) -> Iterator[Claim]:
    for row in rows:
        names = ("n", "truncated", "share", "longest_prompt", "mean_tokens_cut", "answers_cut")
        yield Claim(place, ("cut", row["run_id"], row["benchmark"], row["task"]), pick(row, *names))


MARKS = (
    "empty_prompts", "failed", "doubled_bos", "reasoning_unclosed", "answers_cut", "empty_answers", "stop_in_reasoning",
    "truncated", "reference_cut", "official_errors", "unextracted", "loose_matches",
    "partial",
)  # fmt: skip


def guards(place: str, rows: Iterable[Row]) -> Iterator[Claim]:
    for row in rows:
        key = ("marks", row["run_id"], row["benchmark"], row["task"])
        yield Claim(place, key, pick(row, "n", "tokens_cut", *MARKS))


def failures(place: str, rows: Iterable[Row]) -> Iterator[Claim]:
    for row in rows:
        names = ("run_id", "benchmark", "task", "sample_id", "iteration")
        yield Claim(place, ("failure", *(row[name] for name in names)), pick(row, "error"))


def judge_results(place: str, rows: Iterable[Row]) -> Iterator[Claim]:
    for row in rows:
        names = ("judge_id", "benchmark", "run_id", "against_run_id", "questions", "task")
        said = (
            "n_rounds", "n_questions", "n_wins", "n_draws", "n_losses", "n_failed", "n_cut", "n_none", "n_errors",
            "n_ambiguous", "win_rate", "score", "rating", "low", "high", "method", "clusters",
        )  # fmt: skip
        yield Claim(place, ("judge", *(row[name] for name in names)), pick(row, *said))


def rating_results(place: str, rows: Iterable[Row]) -> Iterator[Claim]:
    for row in rows:
        names = ("set_id", "benchmark", "run_id", "against_run_id", "task")
        said = (
            "n_ratings", "n_items", "n_raters", "mean", "n_wins", "n_draws", "n_losses", "win_rate", "score", "low",
            "high", "method", "clusters",
        )  # fmt: skip
        yield Claim(place, ("people", *(row[name] for name in names)), pick(row, *said))


VIEWS: Mapping[str, tuple[Callable[[str, Iterable[Row]], Iterator[Claim]], str]] = {
    "task_scores": (task_scores, "task"),
    "group_scores": (group_scores, "group"),
    "paper": (paper, ""),
    "leaderboard": (leaderboard, "mean"),
    "length_curve": (length_curve, "length"),
    "truncation": (truncation, "cut"),
    "guards": (guards, "marks"),
    "failures": (failures, "failure"),
    "judge_results": (judge_results, "judge"),
    "rating_results": (rating_results, "people"),
}
"""{view and report: its reader, and what it has every number of}."""


# Boards

_LONGBENCH = (
    "single-document QA", "multi-document QA", "summarization", "few-shot learning", "code completion", "synthetic",
)  # fmt: skip
_V2 = {
    "overall": ("overall", "all"),
    **{name: ("difficulty", name) for name in ("easy", "hard")},
    **{name: ("length", name) for name in ("short", "medium", "long")},
}
_PRO = {name: f"longbench_pro_{name}" for name in ("length", "requirement", "difficulty", "primary_task", "language")}


def boards(name: str, rows: Sequence[Row], want: Expected) -> Iterator[Claim]:
    """A board's figures: official ones, and in their place the score so far, rounded as official ones are."""
    for row in rows:
        for column, run, key in _board_keys(name, row):
            if run is None or row.get(column) is None:
                continue
            ends = {end: row[f"{column}_{end}"] for end in ("low", "high", "method") if f"{column}_{end}" in row}
            unit = 1 if name.startswith("board_longbench_pro") else 100
            scaled = {end: v / unit if end != "method" and v is not None else v for end, v in ends.items()}
            yield Claim(name, key, {"published": row[column], **scaled})


def _board_keys(name: str, row: Row) -> Iterator[tuple[str, str | None, Key]]:
    run = row["run_id"]
    if name == "board_longbench":
        code = {"English": "en", "Chinese": "zh"}[row["language"]]
        yield "average", run, ("group", run, "longbench", "language", code, "average")
        for category in _LONGBENCH:
            yield category, run, ("group", run, "longbench", f"category_{code}", category, "average")
    elif name == "board_longbench_e":
        group = ("overall_e", "all") if row["category"] == "average" else ("category_e", row["category"])
        for bucket in ("0-4k", "4-8k", "8k+"):
            yield bucket, run, ("group", run, "longbench", *group, bucket)
    elif name == "board_longbench_v2":
        for part, group in _V2.items():
            for suffix, who in (("", run), ("_cot", row["reasoning_run_id"])):
                yield f"{part}{suffix}", who, ("group", who, "longbench_v2", *group, "accuracy")
    elif name == "board_longbench_pro":
        for column, who in (("nonthinking", run), ("thinking", row["reasoning_run_id"])):
            yield column, who, ("group", who, "longbench_pro", "overall", "all", "average")
    elif name == "board_longbench_pro_tries":
        for n in (1, 2, 3):
            for metric in (f"bon@{n}", f"pass@{n}"):
                yield metric, run, ("group", run, "longbench_pro", "overall", "all", metric)
    elif name.startswith("board_longbench_pro_"):
        grouping = name.removeprefix("board_longbench_pro_")
        for column in [column for column in row if f"{column}_method" in row]:
            yield column, run, ("group", run, "longbench_pro", grouping, column, "average")
    elif name == "board_lveval":
        dataset = row["dataset"]
        for level in ("16k", "32k", "64k", "128k", "256k"):
            every = ("group", run, "lveval", "length", level, "average")
            yield level, run, every if dataset == "all" else ("line", run, "lveval", f"{dataset}_{level}", "")
        group = ("overall", "all") if dataset == "all" else ("dataset", dataset)
        yield "mean", run, ("group", run, "lveval", *group, "average")
    elif name == "board_mrcr":
        task, lengths = row["needles"], [column[:-7] for column in row if column.endswith("k_method")] + ["2560k+"]
        every = {"average": ("overall", "all"), **{length: ("characters", length) for length in lengths}}
        for column, group in every.items():  # type: ignore[attr-defined]
            metric = "" if column == "average" else column
            of_all = ("group", run, "mrcr", *group, "average")
            yield column, run, of_all if task == "all" else ("line", run, "mrcr", task, metric)
    elif name == "board_graphwalks":
        operation = row["operation"]
        group = ("overall", "all") if operation == "all" else ("operation", operation)
        yield "average", run, ("group", run, "graphwalks", *group, "average")
        for level in ("128k", "1m"):
            every_one = ("group", run, "graphwalks", "length", level, "average")
            one = ("line", run, "graphwalks", f"{operation}_{level}", "")
            yield level, run, every_one if operation == "all" else one
    elif name == "board_helmet":
        category = "length" if row["category"] == "average" else row["category"]
        for length in ("8k", "16k", "32k", "64k", "128k"):
            yield length, run, ("group", run, "helmet", category, length, "average")
    elif name == "board_infinitebench":
        yield "average", run, ("group", run, "infinitebench", "overall", "all", "average")
        for task in [column for column in row if f"{column}_method" in row and column != "average"]:
            yield task, run, ("line", run, "infinitebench", task, "")
    elif name == "board_babilong":
        kind = row["questions"]
        for length in [column for column in row if f"{column}_method" in row and column != "mean"]:
            every = ("group", run, "babilong", "length", length, "average")
            yield length, run, every if kind == "all" else ("line", run, "babilong", f"{kind}_{length}", "")
        group = ("overall", "all") if kind == "all" else ("question type", kind)
        yield "mean", run, ("group", run, "babilong", *group, "average")
    elif name == "board_ruler":
        for length in ("4k", "8k", "16k", "32k", "64k", "128k"):
            yield length, run, ("group", run, "ruler", "length", length, "average")
        for metric in ("average", "weighted_increasing", "weighted_decreasing"):
            yield metric, run, ("group", run, "ruler", "overall", "all", metric)
    elif name in ("board_leval_exam", "board_leval_f1", "board_leval_rouge"):
        metric = row.get("metric", "")
        group = {"exam": ("closed", "all", "exact_match"), "f1": ("open", "all", "f1")}
        yield "average", run, ("group", run, "leval", *group.get(name[12:], ("open", "all", metric)))
        metric = metric if name == "board_leval_rouge" else ""
        for column in [column for column in row if f"{column}_method" in row and column != "average"]:
            yield column, run, ("line", run, "leval", column, metric)


# Holding claims against what was recomputed


def faults(claims: Iterable[Claim], want: Expected, complete: Mapping[str, str]) -> list[str]:
    """What does not agree: each a sentence.

    Args:
        complete: {place: the kind of numbers of which it has every one}.
    """
    found, seen = [], set()
    for claim in claims:
        seen.add((claim.place, claim.key))
        named = _lines(want, claim.key) if claim.key[0] == "line" else want.get(claim.key)
        if named is None:
            if claim.columns.get("published", claim.columns.get("official", 0)) is not None:
                found.append(f"{claim.place}: {claim.key} has {claim.columns}, of which nothing was recomputed")
            continue
        for column, said in claim.columns.items():
            right = _figure(claim.key, named) if column == "published" else named.get(column)
            if not _same(said, right) and not (named.get("goes on") and _may_lack(claim, column, said)):
                found.append(f"{claim.place}: {claim.key}: {column} is {said!r}, recomputed {right!r}")
    for place, kind in complete.items():
        for key, columns in want.items():
            lacks = columns.get("goes on") and not columns.get("headline")
            if key[0] == kind and (place, key) not in seen and not lacks:
                found.append(f"{place}: {key} is not there")
    return found


def _lines(want: Expected, key: Key) -> Columns | None:
    """A line of the paper: a task's headline, or another metric of it, whose headline's name may be left out."""
    task, metric = key[3], key[4]
    of_task = {k[4]: v for k, v in want.items() if k[:4] == ("task", *key[1:3], task)}
    head = next((name for name, row in of_task.items() if row["headline"]), None)
    if not metric:
        return of_task.get(head)
    return of_task.get(metric, of_task.get(f"{head}/{metric}"))


def _figure(key: Key, row: Columns) -> float | None:
    """What a board shows: the official number, else the score so far in its unit."""
    if row["official"] is not None or row["score"] is None:
        return row["official"]
    return (1 if key[2] == "longbench_pro" else 100) * row["score"]


def _may_lack(claim: Claim, column: str, said: Any) -> bool:
    """While a run goes on nothing is known yet but scores so far."""
    return said is None or column in ("partial", "position") or (column == "published")


def _same(said: Any, right: Any) -> bool:
    if isinstance(said, bool) or isinstance(right, bool) or said is None or right is None or isinstance(said, str):
        return bool(said == right)
    return math.isclose(said, right, rel_tol=1e-9, abs_tol=1e-9)
