"""The report ``agreement``: between judges, between judges and people, and among people.

Two judges are compared round by round. A judge and people are compared by question: the judge's verdict over both
orders with the majority of raters, or, for scores, with the answer of the higher mean. Orders of runs are
compared by Kendall's tau.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from statistics import mean, median_low
from typing import Any, NamedTuple

from lbx.opinions.result_rows import matches_query
from lbx.report.format.labels import Row, labels
from lbx.report.query import ReportQuery
from lbx.results import Store, Table
from lbx.results.scoring.score_columns import as_table, runs_by_id
from lbx.statistics.agreement import Level, alpha, kappa, kendall_tau, majority, percent_agreement

COLUMNS = (
    "between", "first", "second", "benchmark", "task", "kind", "n", "clusters", "percent", "kappa", "alpha",
    "alpha_low", "alpha_high", "alpha_method", "level", "runs", "tau", "label_first", "label_second",
)  # fmt: skip

_PAIR = "pair"
_DRAWS = ("tie", "both_bad")
_WHERE = ("benchmark", "task", "sample_id")
_WHOSE = ("run_id", "iteration", "against_run_id", "against_iteration")
_EQUAL_ANSWERS = """
    WITH rated AS (
        SELECT benchmark, task, sample_id, unnest(try_cast(meta->'answers' AS JSON[])) AS answer FROM rating_items
    ), answers AS (
        SELECT DISTINCT benchmark, task, sample_id, answer->>'run_id' AS run_id,
               try_cast(answer->>'iteration' AS INTEGER) AS iteration, answer->>'sha256' AS sha256
        FROM rated
    )
    SELECT benchmark, task, sample_id, run_id, iteration,
           first_value(run_id) OVER equal_texts, first_value(iteration) OVER equal_texts
    FROM answers WHERE sha256 IS NOT NULL
    WINDOW equal_texts AS (PARTITION BY benchmark, task, sample_id, sha256 ORDER BY run_id, iteration)
    ORDER BY ALL
"""

Key = tuple[Any, ...]
EqualAnswers = Mapping[Key, Key]
"""{(benchmark, task, sample id, run, iteration): (run, iteration) of the first answer with the same text}"""


class OpinionSource(NamedTuple):
    """Opinions of a judge or of people on a benchmark.

    Attributes:
        kind: "pair" for verdicts, "score" for numbers.
        opinions: {key of the subject: verdict or score}.
        means: {run: mean score of the run's answers}.
    """

    name: str
    benchmark: str
    kind: str
    opinions: Mapping[Key, Any]
    means: Mapping[str, float]


def build_agreement(store: Store, query: ReportQuery) -> Table:
    """Build the rows of the report ``agreement``."""
    rounds = [row for row in store.query("FROM judged_rounds ORDER BY ALL").dicts() if matches_query(row, query)]
    rating_rows = [
        row
        for row in store.query("FROM rated_answers WHERE score IS NOT NULL ORDER BY ALL").dicts()
        if matches_query(row, query)
    ]
    documents = {_key(row, _WHERE): row["document_sha256"] for row in (*rating_rows, *rounds) if row["document_sha256"]}
    equal = {tuple(row[:5]): tuple(row[5:]) for row in store.query(_EQUAL_ANSWERS).rows}
    lines = [
        *_between_judges(rounds, documents),
        *_between_judges_and_raters(rounds, rating_rows, documents, equal),
        *_between_raters(rating_rows, documents, equal),
    ]
    judges = labels(
        row for run, row in runs_by_id(store).items() if run in {judged_round["judge_id"] for judged_round in rounds}
    )
    for line in lines:  # a rater and a run may have the same name
        line["label_first"] = judges.get(line["first"]) if line["between"] != "raters" else None
        line["label_second"] = judges.get(line["second"]) if line["between"] == "judges" else None
    return as_table(COLUMNS, lines)


def _key(row: Row, names: Sequence[str]) -> Key:
    return tuple(row[name] for name in names)


def _canonical_key(key: Key, equal: EqualAnswers) -> Key:
    """Replace answers in a key by the first answer with the same text, since equal answers were rated together."""
    sample_key, (run, iteration, against, against_iteration, *rest) = key[:3], key[3:]
    first, second = ((*sample_key, run, iteration), (*sample_key, against, against_iteration))
    return (*sample_key, *equal.get(first, first[3:]), *equal.get(second, second[3:]), *rest)


def _by(rows: Iterable[Row], *names: str) -> dict[Key, list[Row]]:
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(_key(row, names), []).append(row)
    return groups


def _compare_sources(
    between: str,
    source: OpinionSource,
    other_source: OpinionSource,
    documents: Mapping[Key, str],
    equal: EqualAnswers | None = None,
) -> Iterator[dict[str, Any]]:
    """Compare two sources on their common subjects, if any. Answers that were rated together (``equal``) count once."""
    common = [key for key in source.opinions if key in other_source.opinions]
    both = [*{_canonical_key(key, equal or {}): key for key in reversed(common)}.values()][::-1]
    if not both:
        return
    first, second = [source.opinions[key] for key in both], [other_source.opinions[key] for key in both]
    runs = [run for run in source.means if run in other_source.means]
    line: dict[str, Any] = {
        "between": between, "first": source.name, "second": other_source.name, "benchmark": source.benchmark,
        "task": None, "kind": source.kind, "percent": percent_agreement(first, second),
        "kappa": kappa(first, second, quadratic=source.kind != _PAIR), "runs": len(runs),
        "tau": kendall_tau([source.means[run] for run in runs], [other_source.means[run] for run in runs]),
    }  # fmt: skip
    yield line | _alpha(dict(zip(both, zip(first, second, strict=True), strict=True)), source.kind, documents)


def _alpha(items: Mapping[Key, Sequence[Any]], kind: str, documents: Mapping[Key, str]) -> dict[str, Any]:
    """Compute Krippendorff's alpha with an interval over documents. Keys begin with benchmark, task and sample."""
    items = {key: ratings for key, ratings in items.items() if len(ratings) > 1}
    clusters: list[Hashable] = [documents.get(key[:3]) or key[:3] for key in items]
    level: Level = "nominal" if kind == _PAIR else "ordinal"
    estimate = alpha(list(items.values()), level, clusters=clusters)
    return {
        "n": len(items), "clusters": len(set(clusters)), "level": level,
        "alpha": estimate.value, "alpha_low": estimate.low, "alpha_high": estimate.high,
        "alpha_method": estimate.method,
    }  # fmt: skip


def _between_judges(rounds: Sequence[Row], documents: Mapping[Key, str]) -> Iterator[dict[str, Any]]:
    sources = [
        OpinionSource(judge, benchmark, kind, _verdicts(rows_of_group), _means(rows_of_group))
        for (benchmark, kind, judge), rows_of_group in sorted(_by(rounds, "benchmark", "kind", "judge_id").items())
    ]
    for first, second in combinations(sources, 2):
        if (first.benchmark, first.kind) == (second.benchmark, second.kind):
            yield from _compare_sources("judges", first, second, documents)


def _verdicts(rounds: Sequence[Row]) -> dict[Key, Any]:
    verdicts: dict[Key, Any] = {}
    for row in sorted(rounds, key=lambda row: row["judge_iteration"]):
        verdict = row["verdict"] if row["kind"] == _PAIR else row["score"]
        if verdict is not None:
            verdicts.setdefault(_key(row, (*_WHERE, *_WHOSE, "answer_first")), verdict)
    return verdicts


def _means(rows: Iterable[Row]) -> dict[str, float]:
    return {run: mean(row["score"] for row in rows_of_group) for (run,), rows_of_group in _by(
        (row for row in rows if row["score"] is not None), "run_id"
    ).items()}  # fmt: skip


def _between_judges_and_raters(
    rounds: Sequence[Row], rating_rows: Sequence[Row], documents: Mapping[Key, str], equal: EqualAnswers
) -> Iterator[dict[str, Any]]:
    judges = sorted(_by(rounds, "benchmark", "judge_id", "kind").items())
    for (set_id, benchmark, of_set), rows_of_group in sorted(_by(rating_rows, "set_id", "benchmark", "kind").items()):
        for (judged_benchmark, judge, kind), of_judge in judges:
            if judged_benchmark != benchmark or (kind != _PAIR and of_set == _PAIR):
                continue
            most = _majority_verdicts(rows_of_group) if of_set == kind else _preferences(rows_of_group)
            rater_source = OpinionSource(f"majority of {set_id}", benchmark, kind, most, _means(rows_of_group))
            judge_source = OpinionSource(judge, benchmark, kind, _question_verdicts(of_judge), _means(of_judge))
            yield from _compare_sources(
                "judge and people", judge_source, rater_source, documents, equal if of_set != _PAIR else None
            )


def _question_verdicts(rounds: Sequence[Row]) -> dict[Key, Any]:
    """Return a judge's result for each question: the verdict of both orders, a tie if they differ, or a mean rating."""
    results = {}
    for key, rows_of_group in _by(rounds, *_WHERE, *_WHOSE).items():
        verdicts = [row["verdict"] if row["kind"] == _PAIR else row["score"] for row in rows_of_group]
        if None not in verdicts:
            results[key] = (
                (verdicts[0] if len(set(verdicts)) == 1 else "tie")
                if rows_of_group[0]["kind"] == _PAIR
                else mean(verdicts)
            )
    return results


def _majority_verdicts(rating_rows: Sequence[Row]) -> dict[Key, Any]:
    """Return the majority verdict of raters on each pair, or the lower median of the raters' scores."""
    by_key = {}
    for key, rows_of_group in _by(rating_rows, *_WHERE, *_WHOSE).items():
        verdicts = [("tie" if row["verdict"] in _DRAWS else row["verdict"]) for row in rows_of_group]
        is_pair = rows_of_group[0]["kind"] == _PAIR
        most = majority(verdicts) if is_pair else median_low([row["score"] for row in rows_of_group])
        if most is not None:
            by_key[key] = most
    return by_key


def _preferences(rating_rows: Sequence[Row]) -> dict[Key, Any]:
    """Return a verdict on each two answers to a question: the answer with the higher mean score wins."""
    verdicts = {}
    for sample_key, rows_of_group in _by((row for row in rating_rows if row["score"] is not None), *_WHERE).items():
        scores = {
            key: mean(row["score"] for row in rows_of_answer)
            for key, rows_of_answer in _by(rows_of_group, "run_id", "iteration").items()
        }
        for answer, other_answer in ((a, b) for a in scores for b in scores if a != b):
            lead = scores[answer] - scores[other_answer]
            verdicts[(*sample_key, *answer, *other_answer)] = "answer" if lead > 0 else "against" if lead < 0 else "tie"
    return verdicts


def _between_raters(
    rating_rows: Sequence[Row], documents: Mapping[Key, str], equal: EqualAnswers
) -> Iterator[dict[str, Any]]:
    """Compare each two raters of a set, then all raters together, over all tasks and by task."""
    for (set_id, benchmark, kind), rows_of_group in sorted(_by(rating_rows, "set_id", "benchmark", "kind").items()):
        sources = [
            OpinionSource(rater, benchmark, kind, _opinions(rows, equal), _means(rows))
            for (rater,), rows in sorted(_by(rows_of_group, "rater").items())
        ]
        for first, second in combinations(sources, 2):
            yield from _compare_sources("raters", first, second, documents)
        tasks = dict.fromkeys(row["task"] for row in rows_of_group)
        for task in (None, *(tasks if len(tasks) > 1 else ())):
            items: dict[Key, list[Any]] = {}
            for key, opinion in ((key, rating) for source in sources for key, rating in source.opinions.items()):
                if task in (None, key[1]):
                    items.setdefault(key, []).append(opinion)
            columns = _alpha(items, kind, documents)
            if columns["n"]:
                raters = {
                    "first": f"all {len(sources)} raters of {set_id}",
                    "percent": _equal_pair_share(items.values()),
                }
                yield {"between": "raters", "benchmark": benchmark, "task": task, "kind": kind, **raters, **columns}


def _opinions(rating_rows: Sequence[Row], equal: EqualAnswers) -> dict[Key, Any]:
    """Return a rater's opinions without duplicates.

    The rows contain a pair once for each of the two runs, and a score once for each equal answer.
    """
    pairs = (row for row in rating_rows if row["kind"] == _PAIR and row["run_id"] <= row["against_run_id"])
    scores = (row for row in rating_rows if row["kind"] != _PAIR)
    return {
        **{_key(row, (*_WHERE, *_WHOSE)): _opinion(row) for row in pairs},
        **{_canonical_key(_key(row, (*_WHERE, *_WHOSE)), equal): _opinion(row) for row in scores},
    }


def _opinion(row: Row) -> Any:
    return row["rating"] if row["kind"] != _PAIR else "tie" if row["verdict"] in _DRAWS else row["verdict"]


def _equal_pair_share(items: Iterable[Sequence[Any]]) -> float | None:
    """Compute the share of equal pairs among all pairs of ratings of the same item."""
    pairs = [(a, b) for ratings in items for a, b in combinations(ratings, 2)]
    return percent_agreement(*zip(*pairs, strict=True)) if pairs else None
