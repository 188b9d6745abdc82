"""Pairs of runs to compare, and checks that their prompts and settings match."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from lbx.base.errors import UsageError
from lbx.report.harnesses import harness_differences
from lbx.report.report_types import ALL, ReportQuery
from lbx.report.revisions import open_baseline
from lbx.report.sides import ComparisonSide
from lbx.results import Store
from lbx.results.read.runs import resolve_runs
from lbx.results.views import MODE_OF_RUN

MOST_RUNS = 6
"""Maximum number of runs without a baseline: the table of all pairs of more runs is unreadable."""


def select_pairs(store: Store, query: ReportQuery) -> list[tuple[str, str]]:
    """Pair the baseline with each other run, or all runs with each other without a baseline."""
    if other := open_baseline(store, query):
        return [(baseline, run) for run, baseline in other.names.items()]
    run_ids = [
        row[0]
        for row in store.query(
            "SELECT run_id FROM runs ANTI JOIN judges ON run_id = judge_id ORDER BY started_at, run_id"
        ).rows
    ]
    if query.baseline:
        baseline = find_run(store, query.baseline)
        others = [find_run(store, run) for run in query.runs] or run_ids
        return [(baseline, run) for run in dict.fromkeys(others) if run != baseline]
    runs = [run for run in run_ids if not query.runs or run in query.runs]
    if len(runs) > MOST_RUNS and not query.force:
        raise UsageError(
            f"There are too many pairs to compare: {len(runs)} runs make {len(runs) * (len(runs) - 1) // 2:,} pairs.",
            fix=f"Pass --baseline RUN to compare the others with one run. Runs: {', '.join(runs)}.",
        )
    return list(combinations(runs, 2))


def find_run(store: Store, name: str) -> str:
    """Resolve the name of a run that is not a judge, as ``resolve_runs`` does. Raises UsageError."""
    return resolve_runs(store, [name], judges=False)[0]


def cautions_of(
    store: Store, pairs: Sequence[tuple[str, str]], sides: Mapping[tuple[str, str], ComparisonSide], query: ReportQuery
) -> dict[tuple[str, str, str], str]:
    """Explain why the numbers of runs may not be comparable, by (run, run, benchmark).

    Raises:
        UsageError: Runs are known to differ, and ``query.force`` is false.
    """
    other = open_baseline(store, query)
    unlike, differ_by_harness = runs_unlike(store, query), harness_differences(store)
    bundles = dict(store.query("SELECT run_id, bundle_digest FROM runs").rows)
    versions: dict[tuple[str, str], set[int]] = {}
    sql = "SELECT DISTINCT run_id, benchmark, metric_version FROM scores"
    for run, benchmark, version in store.query(sql).rows:
        versions.setdefault((run, benchmark), set()).add(version)
    cautions, refused = {}, []
    for a, b in pairs:
        for benchmark in [name for run, name in sides if run == a and (b, name) in sides]:
            differ, unknown, known = unlike(a, b), [], []
            if other is None and not (bundles[a] and bundles[b]):
                unknown.append("whether the bundles are the same")
            if other and (other_count := _other_instructions(store, a, b, benchmark)) is None:
                unknown.append("whether the instructions are the same")
            elif other and other_count:
                differ.append(f"{other_count:,} prompts with other instructions")
            if other and b in other.rescored_runs:
                known.append(other.rescored_runs[b])
            elif versions.get((a, benchmark)) != versions.get((b, benchmark)):
                differ.append("different metric versions")
            if (cut := _different_cuts(sides[a, benchmark], sides[b, benchmark])) is None:
                unknown.append("whether the same prompts were cut")
            elif cut:
                differ.append(f"{cut:,} prompts cut in only one run, with the same tokenizer")
            refused += [f"{benchmark}, {a} and {b}: {', '.join(differ)}"] if differ else []
            if unknown:
                unknown = [f"unknown {' and '.join(unknown)}"]
            cautions[a, b, benchmark] = "; ".join([*known, *differ, *differ_by_harness(a, b), *unknown])
    if refused and not query.force:
        raise UsageError(
            f"These runs have different prompts or settings: {'; '.join(refused)}.",
            fix="Compare runs with equal prompts and settings, or pass --force: each row then lists the differences.",
        )
    return cautions


def runs_unlike(store: Store, query: ReportQuery = ALL) -> Callable[[str, str], list[str]]:
    """Return a function that lists the known differences between two runs, except their models.

    The bundles of a baseline from another file may differ: only equal questions are paired.
    """
    sql = f"SELECT run_id, bundle_digest, {MODE_OF_RUN} FROM runs r"  # noqa: S608 (our own names)
    runs = {run: (bundle, mode or "plain") for run, bundle, mode in store.query(sql).rows}

    def unlike(a: str, b: str) -> list[str]:
        (bundle, mode), (other_bundle, other_mode) = runs[a], runs[b]
        return [
            *(
                ["different bundles"]
                if bundle and other_bundle and bundle != other_bundle and not query.baseline_file
                else []
            ),
            *([f"different modes ({mode}; {other_mode})"] if mode != other_mode else []),
        ]

    return unlike


def _other_instructions(store: Store, first: str, second: str, benchmark: str) -> int | None:
    """Count answers to the same question with other instructions; None if unknown for some."""
    sql = """
        SELECT count(*) FILTER (WHERE a.instructions_sha256 <> b.instructions_sha256),
               count(*) FILTER (WHERE a.instructions_sha256 IS NULL OR b.instructions_sha256 IS NULL)
        FROM generations a JOIN generations b USING (benchmark, task, sample_id, iteration)
        WHERE a.run_id = ? AND b.run_id = ? AND benchmark = ? AND a.error IS NULL AND b.error IS NULL
    """
    ((different, unknown),) = store.query(sql, [first, second, benchmark]).rows
    return None if unknown and not different else int(different)


def _different_cuts(first: ComparisonSide, second: ComparisonSide) -> int | None:
    """Count prompts that were cut for one run only, if the tokenizers agree on their lengths.

    Returns None if token counts or cuts are unknown.
    """
    a, b = first.answer_arrays.restrict_to_common(second.answer_arrays)
    if any((values < 0).any() for values in (a.tokens, a.truncated, b.tokens, b.truncated)):
        return None
    if (a.tokens != b.tokens).any():
        return 0  # different tokenizers: a prompt may fit into the window of only one
    return int((a.truncated != b.truncated).sum())
