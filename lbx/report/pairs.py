"""Which runs are compared, and whether they were asked alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from lbx.base.errors import UsageError
from lbx.report.shapes import ReportQuery
from lbx.report.sides import Side
from lbx.store import Store
from lbx.store.runs import runs_named
from lbx.store.views import MODE_OF_RUN

MOST_RUNS = 6
"""All pairs of more of them are a table that nobody reads: a baseline is asked for."""


def chosen_pairs(store: Store, query: ReportQuery) -> list[tuple[str, str]]:
    """The baseline with each of the other runs, or without a baseline each run with each."""
    held = [
        row[0]
        for row in store.query(
            "SELECT run_id FROM runs ANTI JOIN judges ON run_id = judge_id ORDER BY started_at, run_id"
        ).rows
    ]
    if query.baseline:
        baseline = run_named(store, query.baseline)
        others = [run_named(store, run) for run in query.runs] or held
        return [(baseline, run) for run in dict.fromkeys(others) if run != baseline]
    runs = [run for run in held if not query.runs or run in query.runs]
    if len(runs) > MOST_RUNS and not query.force:
        raise UsageError(
            f"{len(runs)} runs make {len(runs) * (len(runs) - 1) // 2:,} pairs.",
            fix=f"Give the run to compare the others with: --baseline RUN. Runs: {', '.join(runs)}.",
        )
    return list(combinations(runs, 2))


def run_named(store: Store, name: str) -> str:
    """A run that is no judge, as ``runs_named`` knows it. Raises UsageError."""
    return runs_named(store, [name], judges=False)[0]


def cautions_of(
    store: Store, pairs: Sequence[tuple[str, str]], sides: Mapping[tuple[str, str], Side], *, force: bool
) -> dict[tuple[str, str, str], str]:
    """{(run, run, benchmark): why their numbers may not be comparable}, in words.

    Raises:
        UsageError: something is known to differ, and ``force`` does not say that this is known.
    """
    unlike = runs_unlike(store)
    bundles = dict(store.query("SELECT run_id, bundle_digest FROM runs").rows)
    versions: dict[tuple[str, str], set[int]] = {}
    sql = "SELECT DISTINCT run_id, benchmark, metric_version FROM scores"
    for run, benchmark, version in store.query(sql).rows:
        versions.setdefault((run, benchmark), set()).add(version)
    cautions, refused = {}, []
    for a, b in pairs:
        for benchmark in [name for run, name in sides if run == a and (b, name) in sides]:
            differ, unknown = unlike(a, b), []
            if not (bundles[a] and bundles[b]):
                unknown.append("whether the bundles are the same")
            if versions.get((a, benchmark)) != versions.get((b, benchmark)):
                differ.append("other metric versions")
            if (cut := _cut_otherwise(sides[a, benchmark], sides[b, benchmark])) is None:
                unknown.append("whether prompts were cut alike")
            elif cut:
                differ.append(f"{cut:,} prompts of one tokenizer cut otherwise")
            refused += [f"{benchmark}, {a} and {b}: {', '.join(differ)}"] if differ else []
            if unknown:
                unknown = [f"nobody knows {', and '.join(unknown)}"]
            cautions[a, b, benchmark] = "; ".join([*differ, *unknown])
    if refused and not force:
        raise UsageError(
            f"These runs were not asked alike: {'; '.join(refused)}.",
            fix="Compare runs that were asked alike, or use --force; each line then says what differs.",
        )
    return cautions


def runs_unlike(store: Store) -> Callable[[str, str], list[str]]:
    """What two runs of a file are known to differ in besides their model, in words."""
    sql = f"SELECT run_id, bundle_digest, {MODE_OF_RUN} FROM runs r"  # noqa: S608 (our own names)
    runs = {run: (bundle, mode or "plain") for run, bundle, mode in store.query(sql).rows}

    def unlike(a: str, b: str) -> list[str]:
        (bundle, mode), (other_bundle, other_mode) = runs[a], runs[b]
        return [
            *(["other bundles"] if bundle and other_bundle and bundle != other_bundle else []),
            *([f"asked otherwise ({mode}; {other_mode})"] if mode != other_mode else []),
        ]

    return unlike


def _cut_otherwise(first: Side, second: Side) -> int | None:
    """How many prompts that both tokenizers count alike were cut for one run only; None where nobody knows."""
    a, b = first.marks.beside(second.marks)
    if any((marks < 0).any() for marks in (a.tokens, a.cut, b.tokens, b.cut)):
        return None
    if (a.tokens != b.tokens).any():
        return 0  # other tokenizers: what fits into one window need not fit into the other
    return int((a.cut != b.cut).sum())
