"""The official rules of each family: from scored answers to its numbers, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lbx.benchmarks.babilong import LENGTHS as BABILONG_LENGTHS
from lbx.benchmarks.helmet.tasks import DATASETS as HELMET_DATASETS
from lbx.benchmarks.leval.tasks import KINDS
from lbx.benchmarks.longbench.tasks import TASKS as LONGBENCH
from lbx.benchmarks.longbench_pro.paper_tables import CATEGORIES as PRO_GROUPS
from lbx.benchmarks.longbench_v2 import DOMAINS
from lbx.benchmarks.lveval import DATASETS, LEVELS
from tests.consistency.plain_intervals import Part, sureness
from tests.consistency.stored_file import Answer


@dataclass(frozen=True)
class Number:
    """One number; ``percent`` is what averages over it are made of."""

    metric: str
    n: int
    score: float
    official: float | None
    parts: Sequence[Part]
    clustered: bool
    partial: bool = False
    percent: float = 0.0
    whole: bool = True
    answers: frozenset[tuple[str, int]] = frozenset()

    @property
    def samples(self) -> set[str]:
        return {sample for part in self.parts for sample, _, _ in part.rows}

    def sure(self, benchmark: str) -> dict[str, Any]:
        if not self.parts:  # RULER's effective length is no mean of scores
            return dict.fromkeys(("low", "high", "se", "df", "clusters", "within", "method", "cluster_by"))
        by = "question" if benchmark in ("lveval", "helmet", "ruler") else "document"
        return sureness(self.parts) | {"cluster_by": by if self.clustered else "sample"}


Rows = Sequence[Answer]


def _sum(values: Iterable[float]) -> float:
    total = 0.0
    for value in values:  # left to right, as the official scripts' loops
        total += value
    return total


def _part(rows: Rows, values: Sequence[float]) -> Part:
    return Part(1.0, [(row.name, row.cluster or row.name, v) for row, v in zip(rows, values, strict=True)])


def _answers(rows: Iterable[Answer]) -> frozenset[tuple[str, int]]:
    return frozenset((row.name, row.iteration) for row in rows)


def by_question(rows: Rows, values: Sequence[float]) -> tuple[Rows, Sequence[float]]:
    """A row and a value a question where some have more answers than others; else all answers."""
    held: dict[str, list[int]] = {}
    for at, row in enumerate(rows):
        held.setdefault(row.name, []).append(at)
    if len({len(places) for places in held.values()}) < 2:
        return rows, values
    return [rows[places[0]] for places in held.values()], [
        _sum(values[at] for at in places) / len(places) for places in held.values()
    ]


def mean(
    rows: Rows, metric: str, name: str = "", official: Callable[[Sequence[float]], float] | None = None
) -> list[Number]:
    """The mean of a metric over the questions that have it, officially over answers; [] without any."""
    rows = [row for row in rows if metric in row.scores]
    if not rows:
        return []
    every = [row.scores[metric] for row in rows]
    questions, values = by_question(rows, every)
    score = _sum(values) / len(values)
    said = official(every) if official else None
    percent = 100 * score if said is None else said
    part, clustered = _part(questions, values), all(row.cluster for row in rows)
    return [Number(name or metric, len(rows), score, said, [part], clustered, percent=percent, answers=_answers(rows))]


def percent(digits: int) -> Callable[[Sequence[float]], float]:
    return lambda values: round(100 * _sum(values) / len(values), digits)


def numpy_percent(digits: int) -> Callable[[Sequence[float]], float]:
    return lambda values: float(np.round(100 * np.mean(values), digits))


def average(parts: Sequence[Number], metric: str = "average", *, whole: bool, digits: int = 1) -> list[Number]:
    """The mean of numbers, each counting once; [] of none."""
    if not parts:
        return []
    together = _sum(one.percent for one in parts) / len(parts)
    whole = whole and all(one.whole for one in parts)
    strata = []
    several = len({cluster for one in parts for part in one.parts for _, cluster, _ in part.rows}) > 1
    of_one = [several and any(part.of_one_cluster for part in one.parts) for one in parts]
    for one, alone in zip(parts, of_one, strict=True):
        for part in one.parts:
            rows = [(sample, sample if alone else cluster, v) for sample, cluster, v in part.rows]
            strata.append(Part(part.weight / len(parts), rows))
    clustered = all(one.clustered for one in parts) and not any(of_one)
    score = _sum(one.score for one in parts) / len(parts)
    official, partial = round(together, digits) if whole else None, any(one.partial for one in parts)
    n = sum(one.n for one in parts)
    answers = frozenset().union(*(one.answers for one in parts))
    return [Number(metric, n, score, official, strata, clustered, partial, together, whole, answers)]


Groups = dict[tuple[str, str, str], Number]
Tasks = Mapping[str, Rows]


def _named(grouping: str, name: str, made: Sequence[Number]) -> Groups:
    return {(grouping, name, one.metric): one for one in made}


# LongBench

BUCKETS = {"0-4k": (0, 4000), "4-8k": (4000, 8000), "8k+": (8000, math.inf)}
_LONGBENCH = {"rouge_l": ("rouge_l", "rouge_l_unlimited")}


def _longbench(task: str, rows: Rows) -> list[Number]:
    kind = LONGBENCH[task.removesuffix("_e")].metric
    made = []
    for metric in _LONGBENCH.get(kind, (kind,)):
        made += mean(rows, metric, official=percent(2))
        for bucket, (least, below) in BUCKETS.items() if task.endswith("_e") else ():
            held = [row for row in rows if least <= row.sample.length < below]
            made += mean(held, metric, f"{metric}/{bucket}", numpy_percent(2))
    return made


def _longbench_groups(tasks: Tasks) -> Groups:
    found: Groups = {}
    numbers = {task: _longbench(task, rows) for task, rows in tasks.items()}
    plain = {task: made[0] for task, made in numbers.items() if made and not task.endswith("_e")}
    if plain:
        early = "nq" in plain  # the release that had it lacked two others
        release = [task for task in LONGBENCH if (task not in ("samsum", "multi_news") if early else task != "nq")]
        for suffix in ("", "_en", "_zh"):
            languages = {suffix[1:], "code"} if suffix else {"en", "zh", "code"}
            if suffix and not any(LONGBENCH[task].language == suffix[1:] for task in plain):
                continue
            members = [task for task in release if LONGBENCH[task].language in languages]
            found |= _categories(f"category{suffix}", plain, members)
        for name, grouping in (("en", "language"), ("zh", "language"), ("all", "overall")):
            table = "category" if name == "all" else f"category_{name}"
            parts = [one for (group, _, _), one in found.items() if group == table]
            found |= _named(grouping, name, average(parts, whole=len(parts) == 6))
    in_e = [f"{task}_e" for task, kind in LONGBENCH.items() if kind.in_e]
    for bucket in BUCKETS:
        heads = {
            task: one
            for task, made in numbers.items()
            for one in made
            if task.endswith("_e") and one.metric == f"{made[0].metric}/{bucket}"
        }
        table = _categories("category_e", heads, in_e, bucket)
        found |= table
        found |= _named("overall_e", "all", average(list(table.values()), bucket, whole=len(table) == 6))  # type: ignore[attr-defined]
    return found


def _categories(grouping: str, heads: Mapping[str, Number], members: Sequence[str], metric: str = "average") -> Groups:
    found: Groups = {}
    for category in dict.fromkeys(kind.category for kind in LONGBENCH.values()):
        wanted = [task for task in members if LONGBENCH[task.removesuffix("_e")].category == category]
        parts = [heads[task] for task in wanted if task in heads]
        found |= _named(grouping, category, average(parts, metric, whole=len(parts) == len(wanted)))
    return found


# LongBench v2


def _v2_parts(rows: Rows) -> dict[str, Rows]:
    told = [(row, row.sample.meta) for row in rows]
    return {
        "easy": [row for row, meta in told if meta["difficulty"] == "easy"],
        "hard": [row for row, meta in told if meta["difficulty"] != "easy"],
        "short": [row for row, meta in told if meta["length"] == "short"],
        "medium": [row for row, meta in told if meta["length"] == "medium"],
        "long": [row for row, meta in told if meta["length"] not in ("short", "medium")],
    }


def _v2(task: str, rows: Rows) -> list[Number]:
    said = [row for row in rows if not row.is_empty]
    made = []
    for metric in ("accuracy", "compensated"):
        made += mean(said, metric, official=percent(1))
        for part, held in _v2_parts(said).items():
            made += mean(held, metric, f"{metric}/{part}", percent(1))
    return [*made, *mean(rows, "accuracy", "accuracy_all", percent(1)), *mean(rows, "empty", official=percent(1))]


def _v2_groups(tasks: Tasks) -> Groups:
    said = [row for row in tasks.get("mcq", ()) if not row.is_empty]
    held: dict[tuple[str, str], Rows] = {("overall", "all"): said}
    for part, rows in _v2_parts(said).items():
        held["difficulty" if part in ("easy", "hard") else "length", part] = rows
    domains = [*DOMAINS, *sorted({row.sample.meta["domain"] for row in said} - {*DOMAINS})]
    for domain in domains:
        of_domain = [row for row in said if row.sample.meta["domain"] == domain]
        subs = sorted(
            {row.sample.meta["sub_domain"] for row in of_domain},
            key=lambda sub: (DOMAINS[domain].index(sub) if sub in DOMAINS.get(domain, ()) else 99, sub),
        )
        for sub in subs:
            held["sub_domain", f"{domain}: {sub}"] = [row for row in of_domain if row.sample.meta["sub_domain"] == sub]
        held["domain", domain] = [row for sub in subs for row in held["sub_domain", f"{domain}: {sub}"]]
    found: Groups = {}
    for (grouping, name), rows in held.items():
        official = None if grouping == "sub_domain" else percent(1)
        for metric in ("accuracy", "compensated"):
            found |= _named(grouping, name, mean(rows, metric, official=official))
    return found


# LongBench Pro

_PRO_HEADS = ("summary", "rouge_l", "ndcg", "pairwise_accuracy", "accuracy", "f1", "subem")


def _pro(task: str, rows: Rows) -> list[Number]:
    metrics = dict.fromkeys(metric for row in rows for metric in row.scores)
    order = (*_PRO_HEADS, "rouge_l_unlimited", "similarity")
    made = []
    for metric in sorted(metrics, key=order.index):
        for one in mean(rows, metric):
            if metric != "summary" or one.n == len(rows):
                partial = metric == "rouge_l" and any(row.partial for row in rows)
                made.append(replace(one, partial=partial))
    return made


def _pro_headline(row: Answer) -> float:
    return next(row.scores[metric] for metric in _PRO_HEADS if metric in row.scores)


def _pro_of(row: Answer, grouping: str) -> str:
    meta = row.sample.meta
    return {
        "length": meta["token_length"], "requirement": meta["contextual_requirement"],
        "difficulty": meta["difficulty"], "primary_task": meta["primary_task"],
        "language": {"en": "English", "zh": "Chinese"}[row.sample.language],
    }[grouping]  # fmt: skip


def _pro_groups(tasks: Tasks) -> Groups:
    rows = sorted(
        (row for held in tasks.values() for row in held),
        key=lambda row: (row.sample.meta["row"], row.iteration),
    )
    questions: dict[str, list[Answer]] = {}
    for row in rows:
        questions.setdefault(row.name, []).append(row)
    times = max((row.iteration for row in rows), default=-1) + 1
    averages = [
        (held[0], _sum(map(_pro_headline, held)) / len(held), any(row.partial for row in held))
        for held in questions.values()
    ]
    singles = [(row, _pro_headline(row), row.partial) for row in rows]
    made_of = singles if len(rows) == times * len(questions) else averages
    best = []
    for n in range(1, times + 1):
        tried = [[row for row in held if row.iteration < n] for held in questions.values()]
        tops = [(max(held, key=_pro_headline), any(row.partial for row in held)) for held in tried if held]
        # A question stands where its first answer among these does.
        best.append([(row, _pro_headline(row), partial) for row, partial in tops])
    found: Groups = {}

    def add(metric: str, items: Sequence[tuple[Answer, float, bool]], of: Sequence[tuple[Answer, float, bool]] = (),
            *, split: bool = True, tried: Sequence[int] = range(99)) -> None:  # fmt: skip
        for grouping, names in {"overall": ("all",), **(PRO_GROUPS if split else {})}.items():
            for name in names:
                here, held = (
                    [one for one in some if grouping == "overall" or _pro_of(one[0], grouping) == name]
                    for some in (items, of or items)
                )
                if here:
                    score = _sum(value for _, value, _ in here) / len(here)
                    partial = any(one[2] for one in here)
                    part = _part([row for row, _, _ in held], [value for _, value, _ in held])
                    clustered = all(row.cluster for row, _, _ in held)
                    official = None if partial or missing else score
                    answers = _answers(
                        one for row, _, _ in here for one in questions[row.name] if one.iteration in tried
                    )
                    found[grouping, name, metric] = Number(
                        metric, len(here), score, official, [part], clustered, partial, answers=answers
                    )

    missing = any(
        name not in {_pro_of(row, grouping) for row, _, _ in items}
        for items in (averages, *best)
        for grouping, names in PRO_GROUPS.items()
        for name in names
    )
    add("average", averages, made_of)
    for place in range(times):
        of_place = [one for one in singles if one[0].iteration == place]
        add(f"iteration {place + 1}", of_place, split=False, tried=[place])
    for n, items in enumerate(best, 1):
        add(f"bon@{n}", items, tried=range(n))
        passed = [
            (row, float(value > 0.65 if "T4" in row.sample.meta["primary_task"] else value == 1.0), partial)
            for row, value, partial in items
        ]
        add(f"pass@{n}", passed, split=False, tried=range(n))
    return found


# LV-Eval


def _lveval(task: str, rows: Rows) -> list[Number]:
    metrics = {"keyword_f1": ("keyword_f1", "keyword_f1_paper", "f1"), "rouge_l": ("rouge_l", "rouge_l_unlimited")}
    kind = DATASETS[task.rpartition("_")[0]].metric
    head, *others = metrics.get(kind, (kind,))
    return [*mean(rows, head, official=percent(2)), *(one for metric in others for one in mean(rows, metric))]


def _lveval_groups(tasks: Tasks) -> Groups:
    heads = {task: made[0] for task, rows in tasks.items() if (made := _lveval(task, rows))}
    every = [f"{dataset}_{level}" for dataset in DATASETS for level in LEVELS]
    wanted: dict[tuple[str, str, bool], list[str]] = {("overall", "all", False): every}
    for level in LEVELS:
        wanted["length", level, True] = [f"{dataset}_{level}" for dataset in DATASETS]
    for category in dict.fromkeys(kind.category for kind in DATASETS.values()):
        datasets = [dataset for dataset, kind in DATASETS.items() if kind.category == category]
        wanted["category", category, False] = [f"{one}_{level}" for one in datasets for level in LEVELS]
    for dataset in DATASETS:
        wanted["dataset", dataset, True] = [f"{dataset}_{level}" for level in LEVELS]
    found: Groups = {}
    for (grouping, name, published), members in wanted.items():
        parts = [heads[task] for task in members if task in heads]
        if len(parts) > 1:
            whole = published and len(parts) == len(members)
            found |= _named(grouping, name, average(parts, whole=whole, digits=2))
    return found


# L-Eval


def _leval(task: str, rows: Rows) -> list[Number]:
    kind = KINDS[task]
    if kind == "rouge":
        return _rouge(rows)
    if kind == "topics":
        of_topics = [
            one
            for place, name in enumerate(("first", "second", "third"))
            for one in mean(
                [row for row in rows if row.sample.meta["topic"] == place], "exact_match", f"exact_match/{name}",
                percent(4),
            )
        ]  # fmt: skip
        return _together(of_topics, sum(one.n for one in of_topics))
    if kind == "statements":
        parts = [one for metric in ("loyalty", "fact") for one in mean(rows, metric, official=percent(4))]
        return _together(parts, max((one.n for one in parts), default=0))
    return mean(rows, "f1" if kind == "f1" else "exact_match", official=percent(4))


def _together(parts: Sequence[Number], n: int) -> list[Number]:
    """Their exact_match is the mean of the rounded figures, itself not rounded."""
    made = average(parts, "exact_match", whole=True, digits=15)
    return [*(replace(one, n=n, official=one.percent) for one in made), *parts]


def _rouge(rows: Rows) -> list[Number]:
    names = ("rouge1", "rouge2", "rougeL")
    rows = [row for row in rows if all(name in row.scores for name in names)]
    if not rows:
        return []
    every = {name: [100 * row.scores[name] for row in rows] for name in names}
    official = _with_geometric_mean({name: _sum(values) / len(values) for name, values in every.items()})
    questions = by_question(rows, every["rouge1"])[0]
    figures = {name: by_question(rows, values)[1] for name, values in every.items()}
    means = _with_geometric_mean({name: _sum(values) / len(values) for name, values in figures.items()})
    moved = [
        means["geometric_mean"] / 300 * sum(figures[name][at] / means[name] if means[name] else 0.0 for name in names)
        for at in range(len(questions))
    ]
    values = {"geometric_mean": moved, **{name: [one / 100 for one in held] for name, held in figures.items()}}
    return [
        Number(name, len(rows), value / 100, round(official[name], 4), [_part(questions, values[name])],
               all(row.cluster for row in rows), percent=round(official[name], 4), answers=_answers(rows))
        for name, value in means.items()
    ]  # fmt: skip


def _with_geometric_mean(means: dict[str, float]) -> dict[str, float]:
    return {"geometric_mean": (means["rouge1"] * means["rouge2"] * means["rougeL"]) ** (1 / 3), **means}


def _leval_groups(tasks: Tasks) -> Groups:
    numbers = {task: {one.metric: one for one in _leval(task, rows)} for task, rows in tasks.items()}
    closed = [task for task, kind in KINDS.items() if kind not in ("f1", "rouge") and kind != "topics"]
    wanted = [("closed", "exact_match", closed), ("open", "f1", [task for task, kind in KINDS.items() if kind == "f1"])]
    summaries = [task for task, kind in KINDS.items() if kind == "rouge"]
    wanted += [("open", metric, summaries) for metric in ("rouge1", "rouge2", "rougeL")]
    found: Groups = {}
    for grouping, metric, members in wanted:
        parts = [numbers[task][metric] for task in members if numbers.get(task)]
        found |= _named(grouping, "all", average(parts, metric, whole=len(parts) == len(members), digits=2))
    heads = [next(iter(numbers[task].values())) for task in KINDS if numbers.get(task)]
    return found | _named("overall", "all", average(heads, whole=False))


# lbx's own


def _needle(task: str, rows: Rows) -> list[Number]:
    made = [replace(one, official=100 * one.score) for one in mean(rows, "recall")]
    return [replace(one, percent=one.official or 0.0) for one in made]


def _needle_groups(tasks: Tasks) -> Groups:
    rows = sorted(
        (row for held in tasks.values() for row in held),
        key=lambda row: (row.sample.length_unit, row.sample.length, row.sample.meta["depth"]),
    )
    names: Mapping[str, Callable[[Answer], str]] = {
        "kind": lambda row: row.sample.task.partition("_")[0],
        "language": lambda row: row.sample.language,
        "length": lambda row: f"{row.sample.length} {row.sample.length_unit}",
        "depth": lambda row: f"{100 * row.sample.meta['depth']:g}%",
        "overall": lambda row: "all",
    }
    held: dict[tuple[str, str], list[Answer]] = {}
    for grouping, name in names.items():
        for row in rows:
            held.setdefault((grouping, name(row)), []).append(row)
    return {
        (*place, "recall"): replace(one, official=100 * one.score)
        for place, some in held.items()
        for one in mean(some, "recall")
    }


def _mrcr(task: str, rows: Rows) -> list[Number]:
    limits = [0, 40_000, 80_000, 160_000, 320_000, 640_000, 1_280_000, 2_560_000]
    names = ["0-40k", "40-80k", "80-160k", "160-320k", "320-640k", "640-1280k", "1280-2560k", "2560k+"]
    made = mean(rows, "ratio", official=percent(1))
    for name, least, end in zip(names, limits, [*limits[1:], math.inf], strict=True):
        some = [row for row in rows if least <= row.sample.length < end]
        made += mean(some, "ratio", f"ratio/{name}", official=percent(1))
    return made + mean(rows, "prefix")


def _mrcr_groups(tasks: Tasks) -> Groups:
    by_part: dict[tuple[str, str], list[Number]] = {}
    for task, rows in tasks.items():
        for one in _mrcr(task, rows):
            if one.metric != "prefix":
                part = ("characters", one.metric[6:]) if "/" in one.metric else ("overall", "all")
                by_part.setdefault(part, []).append(one)
    found: Groups = {}
    for part, numbers in by_part.items():
        found |= _named(*part, average(numbers, whole=len(numbers) == 3))
    return found


def _graphwalks(task: str, rows: Rows) -> list[Number]:
    return mean(rows, "f1", official=percent(1)) + mean(rows, "f1_card") + mean(rows, "answered")


def _graphwalks_groups(tasks: Tasks) -> Groups:
    by_part: dict[tuple[str, str], list[Number]] = {}
    for task in ("bfs_128k", "parents_128k", "bfs_1m", "parents_1m"):
        operation, level = task.split("_")
        for one in _graphwalks(task, tasks.get(task, ()))[:1]:
            for part in (("overall", "all"), ("operation", operation), ("length", level)):
                by_part.setdefault(part, []).append(one)
    found: Groups = {}
    for part, numbers in by_part.items():
        found |= _named(*part, average(numbers, whole=len(numbers) == (4 if part[0] == "overall" else 2)))
    return found


# HELMET

_HELMET_LISTS = {
    "Recall": ("json_kv", "ruler_niah_mk_2", "ruler_niah_mk_3", "ruler_niah_mv"),
    "RAG": ("kilt_nq", "kilt_hotpotqa", "kilt_popqa", "kilt_triviaqa"),
    "ICL": ("icl_trec_coarse", "icl_trec_fine", "icl_banking77", "icl_clinic150", "icl_nlu"),
    "Cite": ("alce_asqa", "alce_qampari"),
    "Re-rank": ("msmarco_rerank",),
    "LongQA": ("infbench_qa", "infbench_choice"),
}
"""{category: its data sets with a score that needs no model}."""


def _helmet(task: str, rows: Rows) -> list[Number]:
    metrics = HELMET_DATASETS[task.rpartition("_")[0]].metrics
    return [one for metric in metrics for one in mean(rows, metric, official=percent(10))]


def _helmet_groups(tasks: Tasks) -> Groups:
    heads = {task: made[0] for task, rows in tasks.items() if (made := _helmet(task, rows))}
    found: Groups = {}
    means = []
    for length in ("8k", "16k", "32k", "64k", "128k"):
        categories = []
        for name, members in _HELMET_LISTS.items():
            parts = [heads[f"{member}_{length}"] for member in members if f"{member}_{length}" in heads]
            whole = len(parts) == len(members) and name not in ("Cite", "LongQA")
            made = average(parts, whole=whole, digits=10)
            found |= _named(name, length, made)
            categories += made
        made = average(categories, whole=False)
        found |= _named("length", length, made)
        means += made
    return found | _named("overall", "all", average(means, whole=False))


# BABILong


def _babilong(task: str, rows: Rows) -> list[Number]:
    return mean(rows, "accuracy", official=percent(12))


def _babilong_groups(tasks: Tasks) -> Groups:
    heads = {task: made[0] for task, rows in tasks.items() if (made := _babilong(task, rows))}
    five, lengths = [f"qa{number}" for number in range(1, 6)], [*BABILONG_LENGTHS]
    wanted: dict[tuple[str, str], list[str]] = {("overall", "all"): [f"{a}_{b}" for b in lengths for a in five]}
    wanted |= {("length", length): [f"{kind}_{length}" for kind in five] for length in lengths}
    kinds = [f"qa{number}" for number in range(1, 21)]
    wanted |= {("question type", kind): [f"{kind}_{length}" for length in lengths] for kind in kinds}
    found: Groups = {}
    for (grouping, name), members in wanted.items():
        parts = [heads[task] for task in members if task in heads]
        if len(parts) > 1:
            whole = grouping == "length" and len(parts) == 5
            found |= _named(grouping, name, average(parts, whole=whole, digits=12))
    return found


# InfiniteBench


def _infinitebench(task: str, rows: Rows) -> list[Number]:
    head = {"longbook_sum_eng": "rouge_lsum", "longbook_qa_eng": "f1", "longbook_qa_chn": "f1"}.get(task, "accuracy")
    return [one for metric in (head, "after_first") for one in mean(rows, metric, official=percent(12))]


def _infinitebench_groups(tasks: Tasks) -> Groups:
    heads = [made[0] for task, rows in tasks.items() if (made := _infinitebench(task, rows))]
    made = average(heads, whole=len(heads) == 12, digits=12)
    return _named("overall", "all", made) if made else {}


# RULER


def _ruler(task: str, rows: Rows) -> list[Number]:
    metric = "string_match_part" if task.startswith("qa") else "string_match_all"
    return mean(rows, metric, official=lambda some: round(_sum(some) / len(some) * 100, 2)) + mean(rows, "null")


def _ruler_groups(tasks: Tasks) -> Groups:
    of_lengths: dict[int, list[Number]] = {}
    for task, rows in tasks.items():
        for one in _ruler(task, rows)[:1]:
            of_lengths.setdefault(int(task.rpartition("_")[2]), []).append(one)
    found: Groups = {}
    means: dict[int, Number] = {}
    for length, numbers in sorted(of_lengths.items()):
        made = average(numbers, whole=len(numbers) == 13)
        if len(numbers) > 1:
            found |= _named("length", f"{length // 1024}k", made)
        if length >= 4096:
            means[length] = made[0]
    if sum(len(of_lengths[length]) for length in means) < 2:
        return found
    lengths = [4096 << at for at in range(6)]
    weights = {
        "average": [1] * 6, "weighted_increasing": [1, 2, 3, 4, 5, 6], "weighted_decreasing": [6, 5, 4, 3, 2, 1]
    }  # fmt: skip
    for metric, each in weights.items() if len(means) > 1 else [("average", [1] * 6)]:
        found |= _named("overall", "all", [_weighted(metric, [(each[lengths.index(at)], means[at]) for at in means])])
    longest = max((at for at, one in means.items() if round(one.percent, 1) >= 85.6), default=0) / 1024
    whole = [*means] == lengths[: len(means)] and all(one.whole for one in means.values())
    first = found["overall", "all", "average"]
    effective = replace(first, metric="effective_length_k", score=longest / 100, parts=(), whole=whole,
                        official=longest if whole else None)  # fmt: skip
    return found | _named("overall", "all", [effective])


def _weighted(metric: str, parts: Sequence[tuple[int, Number]]) -> Number:
    total = sum(weight for weight, _ in parts)
    strata = [
        replace(part, weight=part.weight * weight / total) for weight, one in parts for part in one.parts
    ]  # fmt: skip
    score = _sum(weight * one.score for weight, one in parts) / total
    percent = _sum(weight * one.percent for weight, one in parts) / total
    whole = len(parts) == 6 and all(one.whole for _, one in parts)
    return Number(metric, sum(one.n for _, one in parts), score, round(percent, 1) if whole else None, strata,
                  all(one.clustered for _, one in parts), percent=percent, whole=whole,
                  answers=frozenset().union(*(one.answers for _, one in parts)))  # fmt: skip


def _own(task: str, rows: Rows) -> list[Number]:
    metrics = dict.fromkeys(metric for row in rows for metric in row.scores)
    order = rows[0].sample.meta["metrics"] if rows else []
    made = [one for metric in sorted(metrics, key=order.index) for one in mean(rows, metric)]
    exact = [100 * _sum(value for _, _, value in one.parts[0].rows) / len(one.parts[0].rows) for one in made]
    return [replace(one, official=said, percent=said) for one, said in zip(made, exact, strict=True)]


def _own_groups(tasks: Tasks) -> Groups:
    heads = {task: made[0] for task, rows in tasks.items() if (made := _own(task, rows))}
    languages: dict[str, list[Number]] = {}
    for task, head in heads.items():
        languages.setdefault(tasks[task][0].sample.language, []).append(head)
    found: Groups = {}
    for name, parts in languages.items() if len(languages) > 1 else ():
        found |= _named("language", name, average(parts, whole=True))
    if len(heads) > 1:
        found |= _named("overall", "all", average(list(heads.values()), whole=True))
    return found


_FAMILIES: Mapping[str, tuple[Callable[[str, Rows], list[Number]], Callable[[Tasks], Groups]]] = {
    "longbench": (_longbench, _longbench_groups),
    "longbench_v2": (_v2, _v2_groups),
    "longbench_pro": (_pro, _pro_groups),
    "lveval": (_lveval, _lveval_groups),
    "leval": (_leval, _leval_groups),
    "needle": (_needle, _needle_groups),
    "mrcr": (_mrcr, _mrcr_groups),
    "graphwalks": (_graphwalks, _graphwalks_groups),
    "infinitebench": (_infinitebench, _infinitebench_groups),
    "babilong": (_babilong, _babilong_groups),
    "ruler": (_ruler, _ruler_groups),
    "helmet": (_helmet, _helmet_groups),
}


def task_numbers(benchmark: str, task: str, rows: Rows) -> list[Number]:
    """A task's numbers, the headline first."""
    return _FAMILIES.get(benchmark, (_own, _own_groups))[0](task, rows)


def headline(benchmark: str, task: str, rows: Rows) -> Number | None:
    """The number that averages are made of; of v2 there is none where nothing was said."""
    first = next(iter(task_numbers(benchmark, task, rows)), None)
    return None if first and first.metric == "accuracy_all" else first


def group_numbers(benchmark: str, tasks: Tasks) -> Groups:
    return _FAMILIES.get(benchmark, (_own, _own_groups))[1](tasks)
