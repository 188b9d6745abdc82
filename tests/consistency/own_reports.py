"""Reports that make numbers of their own of answers: two runs side by side, cut prompts, needles, costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lbx.benchmarks.registry import BENCHMARKS
from tests.consistency.official_rules import Number, Tasks, average, group_numbers, headline
from tests.consistency.readers import Row
from tests.consistency.recomputed import Numbers, every
from tests.consistency.stored_file import Answer, File, Key

Made = dict[Key, Numbers]


def made_of(file: File) -> Made:
    return {(one.run, one.benchmark): one for one in every(file)}


def faults(made: Made, tables: dict[str, Any]) -> Iterator[str]:
    for name, reader in _READERS.items():
        for row in tables[name].dicts():
            for column, said, right in reader(made, row):
                if not _same(said, right):
                    who = {key: row.get(key) for key in ("run_id", "run_a", "run_b", "benchmark", "task", "metric")}
                    yield f"{name}: {who}: {column} is {said!r}, recomputed {right!r}"


def _same(said: Any, right: Any) -> bool:
    if said is None or right is None or isinstance(said, str):
        return bool(said == right)
    return math.isclose(said, right, rel_tol=1e-9, abs_tol=1e-9)


Claims = Iterator[tuple[str, Any, Any]]


def _counted(rows: Iterable[Answer]) -> list[Answer]:
    return [row for row in rows if not row.is_empty]


def comparison(made: Made, row: Row) -> Claims:
    """First, second and difference agree, and are the numbers of the samples that both count."""
    first, second = (made[row[run], row["benchmark"]] for run in ("run_a", "run_b"))
    if row["difference"] is not None:
        yield "wins, ties and losses", row["wins"] + row["ties"] + row["losses"], row["n"]
    tasks = [task for task in first.scored if task in second.scored]
    held = [{task: _counted(one.scored[task]) for task in tasks} for one in (first, second)]
    both = {row.name for some in held[0].values() for row in some} & {
        row.name for some in held[1].values() for row in some
    }
    if row["difference"] is not None:
        yield "difference", row["difference"], row["score_b"] - row["score_a"]
    for column, some in zip(("score_a", "score_b"), held, strict=True):
        shared = {task: [one for one in rows if one.name in both] for task, rows in some.items()}
        shared = {task: rows for task, rows in shared.items() if rows}
        if number := _number(row, shared):
            yield f"n of {column}", row["n"], len(number.samples)
            yield column, row[column], number.score


def _number(row: Row, tasks: dict[str, list[Answer]]) -> Number | None:
    benchmark, name = row["benchmark"], row["task"]
    if row["level"] == "task":
        return headline(benchmark, name, tasks.get(name, []))
    grouping, _, group = name.partition(" ")
    groups = group_numbers(benchmark, tasks)
    if found := groups.get((grouping, group or "all", row["metric"])):
        return found
    return _mean_of(benchmark, tasks)


def truncation_effect(made: Made, row: Row) -> Claims:
    parts: dict[str, Callable[[Answer], bool]] = {
        "read whole": lambda one: one.row["truncated"] is False,
        "cut": lambda one: one.row["truncated"] is True,
        "cut, only reference lost": lambda one: one.row["reference_cut"] is True,
        "unknown": lambda one: one.row["truncated"] is None,
    }
    if row["prompts"] not in parts or row["task"] is None:
        return
    rows = [one for one in made[row["run_id"], row["benchmark"]].scored[row["task"]] if parts[row["prompts"]](one)]
    yield from _of_rows(row, headline(row["benchmark"], row["task"], rows))


def _of_rows(row: Row, one: Number | None) -> Claims:
    sure = one.sure(row["benchmark"]) if one else {}
    yield "score", row["score"], one.score if one else None
    yield "n", row["n"], len(one.samples) if one else None
    for end in ("low", "high", "clusters", "method", "cluster_by"):
        yield end, row[end], sure.get(end)


def needles(made: Made, row: Row) -> Claims:
    cell = (row["length_unit"], row["length"], row["depth"])
    held = {
        task: [one for one in rows if (one.sample.length_unit, one.sample.length, one.sample.meta["depth"]) == cell]
        for task, rows in made[row["run_id"], row["benchmark"]].scored.items()
        if row["task"] in (None, task)
    }
    yield from _of_rows(row, _mean_of(row["benchmark"], held))


def _score_of(of_run: Numbers, tasks: Tasks) -> Number | None:
    """The benchmark's one score."""
    known = BENCHMARKS[of_run.benchmark].catalogue.names
    groups = group_numbers(of_run.benchmark, {task: rows for task, rows in tasks.items() if not known or task in known})
    own = (one for (grouping, _, _), one in groups.items() if grouping == "overall")
    return next(own, None) or _mean_of(of_run.benchmark, tasks)


def _mean_of(benchmark: str, tasks: Tasks) -> Number | None:
    heads = [headline(benchmark, task, rows) for task, rows in tasks.items()]
    return next(iter(average([one for one in heads if one], whole=False)), None)


def cost(made: Made, row: Row) -> Claims:
    if row["benchmark"] == "judge":
        return
    of_run = made[row["run_id"], row["benchmark"]]
    tasks = of_run.scored if row["task"] is None else {row["task"]: of_run.scored[row["task"]]}
    one = headline(row["benchmark"], row["task"], tasks[row["task"]]) if row["task"] else None
    yield from _of_rows(row, one if row["task"] else _score_of(of_run, tasks))
    paid = _with_shared_prefill(made, row["run_id"])
    rows = [paid[id(one.row)] for some in tasks.values() for one in some]
    sums = {
        name: sum(held) if (held := [one[name] for one in rows if one[name] is not None]) else None
        for name in ("prompt_tokens", "cached_tokens", "output_tokens", "prefill_s", "decode_s")
    }
    for name, right in sums.items():
        whole = right is not None and name.endswith("_tokens") and abs(row[name] - right) < 0.5001
        yield name, row[name], row[name] if whole else right
    timed = [one for one in rows if one["prefill_s"] is not None and one["decode_s"] is not None]
    seconds = sum(one["prefill_s"] + one["decode_s"] for one in timed)
    yield "seconds_per_answer", row["seconds_per_answer"], seconds / len(timed) if timed else None
    correct = sum(one.scores[_head(one)] for some in tasks.values() for one in some if one.row["prefill_s"] is not None)
    right = seconds / correct if timed and correct > 0 else None
    yield "seconds_per_correct", row["seconds_per_correct"], right


def _with_shared_prefill(made: Made, run: str) -> dict[int, dict[str, Any]]:
    """{id of a row: the row with its part, by its prompt's tokens, of the prefill of its document}."""
    answers = [
        one for (name, _), of_run in made.items() if name == run for some in of_run.scored.values() for one in some
    ]
    documents: dict[str, list[Answer]] = {}
    for one in answers:
        documents.setdefault(one.document or f"{one.sample.benchmark} {one.name}", []).append(one)
    paid = {id(one.row): dict(one.row) for one in answers}
    for some in documents.values():
        known = [paid[id(one.row)] for one in some if one.row["prompt_tokens"] and one.row["cached_tokens"] is not None]
        if not sum(row["cached_tokens"] for row in known):
            continue
        timed = [row for row in known if row["prefill_s"] is not None]
        for column, rows, total in (
            ("computed", known, sum(row["prompt_tokens"] - row["cached_tokens"] for row in known)),
            ("prefill_s", timed, sum(row["prefill_s"] for row in timed)),
        ):
            tokens = sum(row["prompt_tokens"] for row in rows)
            for row in rows:
                row[column] = total * row["prompt_tokens"] / tokens
        for row in known:
            row["cached_tokens"] = row["prompt_tokens"] - row["computed"]
    return paid


def changes(made: Made, row: Row) -> Claims:
    scores = []
    for side in ("a", "b"):
        rows = made[row[f"run_{side}"], row["benchmark"]].scored[row["task"]]
        (one,) = [one for one in rows if (one.sample.sample_id, one.iteration) == (row["sample_id"], row["iteration"])]
        scores.append(one.scores[_head(one)])
        yield f"score_{side}", row[f"score_{side}"], scores[-1]
    yield "difference", row["difference"], scores[1] - scores[0]


def effective_context(made: Made, row: Row) -> Claims:
    """The mean of the tasks that are named, at one length of all prompts that were counted, else of documents."""
    if row["length_up_to"] is None:
        return
    of_run = made[row["run_id"], row["benchmark"]]
    held: dict[str, list[Answer]] = {}
    names = row["task_names"].split(", ")
    for task, rows in of_run.scored.items():
        for one in rows:
            tokens = one.row["original_tokens"] or 0
            unit, length = ("prompt tokens", tokens) if tokens else (one.sample.length_unit, one.sample.length)
            has_length = row["benchmark"] in ("lveval", "graphwalks", "babilong", "helmet", "ruler")
            name = task.rpartition("_")[0] if has_length else task
            if length and unit == row["length_unit"] and 2 ** math.ceil(math.log2(length)) == row["length_up_to"]:
                name = task if task in names else name
                held.setdefault(name, []).append(one)
    tasks = {_first(of_run, name): held[name] for name in names if name in held}
    # With one answer to a task there is no interval, and no way to tell whether answers share clusters.
    unknown = () if row["low"] is not None else ("clusters", "cluster_by")
    yield from (claim for claim in _of_rows(row, _mean_of(row["benchmark"], tasks)) if claim[0] not in unknown)


def _first(of_run: Numbers, name: str) -> str:
    """A task of what is named: of LV-Eval a dataset at any level."""
    return name if name in of_run.scored else next(task for task in of_run.scored if task.startswith(f"{name}_"))


def _head(one: Answer) -> str:
    return next(iter(one.scores))


_READERS: dict[str, Callable[[Made, Row], Claims]] = {
    "comparison": comparison,
    "truncation_effect": truncation_effect,
    "needles": needles,
    "cost": cost,
    "changes": changes,
    "effective_context": effective_context,
}
