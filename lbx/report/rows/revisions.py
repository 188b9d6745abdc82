"""The report ``revisions``, and baselines from another results file with another revision of the data.

Questions are paired within a task by content: document, question, choices and turns. Ids may differ. The rows of the
other file's run are read under a name that no run of this file uses, with the ids of this file.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lbx.base.columns import Column
from lbx.base.database import RESULTS
from lbx.base.errors import UsageError
from lbx.base.marks import QUESTION_REMOVED
from lbx.base.units import format_count
from lbx.report.query import ReportQuery
from lbx.report.report import Report
from lbx.results import Store, Table
from lbx.results.file.identity import ASKED_META, RULES, part_hash
from lbx.results.read.runs import only_run, resolve_runs, run_names
from lbx.results.scoring.score_columns import as_table
from lbx.results.views import HEADS

_OTHER = "lbx_baseline"
COLUMNS = (
    "run_a", "benchmark", "task", "paired", "only_in_baseline", "only_in_file", "changed", "references_changed",
    "rules_changed", "ambiguous", "unknown", "asked_again",
)  # fmt: skip
_KINDS = COLUMNS[3:]
_UNPAIRED = COLUMNS[4:-1]


def _hashes(*parts: str) -> str:
    return ", ".join(part_hash("s", part) for part in parts)


_SAME_OUTPUTS = "coalesce(a.output_sha256, sha256(a.output)) = coalesce(b.output_sha256, sha256(b.output))"
# Own benchmarks may have no document; then their samples name their metrics. Imports may lack any part.
_QUESTIONS = f"""
    SELECT s.benchmark, s.task, s.sample_id, s.position, coalesce({part_hash("s", "references")}, '') AS refs,
           [s.context_sha256, {_hashes("question", *ASKED_META)}] AS content,
           [s.language, {_hashes(*RULES)}] AS rules,
           s.context_sha256 IS NOT NULL OR ({part_hash("s", "question")} IS NOT NULL AND s.meta->>'metrics' IS NOT NULL)
               AS known
    FROM {{file}}.main.samples s SEMI JOIN (
        FROM {{file}}.main.generations
        WHERE list_contains(?::VARCHAR[], run_id) AND error_type IS DISTINCT FROM '{QUESTION_REMOVED}'
    ) USING (benchmark, task, sample_id)
    WHERE benchmark <> 'judge'
"""  # noqa: S608 (our own names)
_TASK = "benchmark, task"
_MATCHES = f"""
    WITH numbered_here AS (
        SELECT *, row_number() OVER (PARTITION BY {_TASK}, content, refs, rules ORDER BY position, sample_id) AS nth
        FROM lbx_here WHERE known
    ), numbered_there AS (
        SELECT *, row_number() OVER (PARTITION BY {_TASK}, content, refs, rules ORDER BY position, sample_id) AS nth
        FROM lbx_there WHERE known
    ), equal AS (
        SELECT {_TASK}, h.sample_id AS here, t.sample_id AS there
        FROM numbered_here h JOIN numbered_there t USING (benchmark, task, nth)
        WHERE h.content = t.content AND h.refs = t.refs AND h.rules = t.rules
    ), rest_here AS (
        SELECT *, count(*) OVER (PARTITION BY {_TASK}, content) AS n
        FROM lbx_here h WHERE known AND (benchmark, task, sample_id) NOT IN (SELECT ({_TASK}, here) FROM equal)
    ), rest_there AS (
        SELECT *, count(*) OVER (PARTITION BY {_TASK}, content) AS n
        FROM lbx_there t WHERE known AND (benchmark, task, sample_id) NOT IN (SELECT ({_TASK}, there) FROM equal)
    ), alike AS (
        SELECT {_TASK}, h.sample_id AS here, t.sample_id AS there,
               CASE WHEN h.n > 1 OR t.n > 1 THEN 'ambiguous' WHEN h.refs <> t.refs THEN 'references_changed'
                    ELSE 'rules_changed' END AS kind
        FROM rest_here h JOIN rest_there t USING (benchmark, task) WHERE h.content = t.content
    ), other_here AS (
        FROM rest_here WHERE (benchmark, task, sample_id) NOT IN (SELECT ({_TASK}, here) FROM alike)
    ), other_there AS (
        FROM rest_there WHERE (benchmark, task, sample_id) NOT IN (SELECT ({_TASK}, there) FROM alike)
    )
    SELECT {_TASK}, here, there, 'paired' AS kind FROM equal
    UNION ALL FROM alike
    UNION ALL
    SELECT {_TASK}, h.sample_id, t.sample_id, CASE WHEN t.sample_id IS NULL THEN 'only_in_file'
           WHEN h.sample_id IS NULL THEN 'only_in_baseline' ELSE 'changed' END
    FROM other_here h FULL JOIN other_there t USING (benchmark, task, sample_id)
    UNION ALL
    SELECT {_TASK}, sample_id, sample_id, 'unknown'
    FROM (SELECT {_TASK}, sample_id FROM lbx_here WHERE NOT known
          UNION SELECT {_TASK}, sample_id FROM lbx_there WHERE NOT known)
"""  # noqa: S608 (our own names)


@dataclass(frozen=True, slots=True)
class OtherBaseline:
    """Run of another results file as a baseline.

    Attributes:
        names: {run of this file: name of the baseline for this run}. The name differs for runs with the same answers.
        rescored_runs: {run of this file with the answers of the baseline, perhaps scored by other rules: description}.
        questions: rows of the report ``revisions``.
    """

    names: Mapping[str, str]
    rescored_runs: Mapping[str, str]
    questions: Sequence[Mapping[str, Any]]

    def unpaired_questions(self, name: str) -> int:
        """Number of questions of a benchmark, or of BENCHMARK/TASK, that are not the same in both files."""
        rows = [row for row in self.questions if name in (row["benchmark"], f"{row['benchmark']}/{row['task']}")]
        return sum(row[kind] for row in rows for kind in _UNPAIRED)


def open_baseline(store: Store, query: ReportQuery) -> OtherBaseline | None:
    """Add the run ``query.baseline`` of the file ``query.baseline_file`` to the runs of the open file, in memory.

    Returns None without such a file. Call it before any report is read, with the file in ``allowed_files``.

    Raises:
        UsageError: the run does not exist, or the files share no question and some questions are unknown.
        StoreError: the file cannot be read.
    """
    if query.baseline_file is None:
        return None
    key = ("baseline", query.baseline_file, query.baseline, *query.runs)
    return store.compute_once(key, partial(_open_baseline, store, query.baseline_file, query.baseline, query.runs))


def table(store: Store, query: ReportQuery) -> Table:
    """Build the rows of the report: per baseline run and task, the number of questions by match kind."""
    baseline = open_baseline(store, query)
    return as_table(COLUMNS, baseline.questions if baseline else ())


def _open_baseline(store: Store, path: Path, name: str, runs: Sequence[str]) -> OtherBaseline:
    if path.resolve() == store.path.resolve():
        raise UsageError(f"{path} is the file itself.", fix="Leave out --baseline-file to compare its own runs.")
    with Store(path, read_only=True) as other:
        run_id = resolve_runs(other, [name], judges=False)[0] if name else only_run(other, option="--baseline")
    store.attach(path, _OTHER)
    compared = resolve_runs(store, runs, judges=False) if runs else run_names(store)
    rescored = [run for run in _runs_with_answers_of(store, run_id) if run in compared]
    others = [run for run in compared if run not in rescored]
    taken = {run for (run,) in store.query("SELECT run_id FROM runs").rows}
    groups: dict[str, list[str]] = {}
    for group in (others, *([run] for run in rescored)):
        # Its numbers differ from those of the same baseline for other answers, so it has another name.
        note = ", same answers" if others and group != others else ""
        candidates = (f"{run_id} in {path.name}{note}{f' ({n})' if n > 1 else ''}" for n in itertools.count(1))
        if group:
            groups[next(name for name in candidates if name not in taken | groups.keys())] = group
    _match_questions(store, compared, run_id)
    for virtual_run, group in groups.items():
        _pair_answers(store, virtual_run, run_id, group[0] if group[0] in rescored else "")
    _create_views(store, run_id)
    name_of = {run: virtual_run for virtual_run, group in groups.items() for run in group}
    questions = _count_questions(store)
    if not any(row["paired"] for row in questions) and (unknown := sum(row["unknown"] for row in questions)):
        raise UsageError(
            f"The questions of {path} and {store.path} cannot be paired by content: "
            f"{format_count(unknown, 'question has', 'questions have')} an unknown document or text, as in imports "
            "without a bundle.",
            fix="Import the answers with --bundle DIR.",
        )
    return OtherBaseline(
        {run: name_of[run] for run in compared}, {run: _describe(store, name_of[run]) for run in rescored}, questions
    )


def _runs_with_answers_of(store: Store, baseline: str) -> list[str]:
    """Find runs of this file with answers of the baseline: times and texts are equal, whatever the scores."""
    sql = f"""
        SELECT DISTINCT a.run_id FROM {RESULTS}.main.generations a JOIN {_OTHER}.main.generations b
            USING (benchmark, task, sample_id, iteration, created_at)
        WHERE b.run_id = ? AND {_SAME_OUTPUTS} ORDER BY ALL
    """  # noqa: S608 (our own names)
    return [run for (run,) in store.query(sql, [baseline]).rows]


def _match_questions(store: Store, runs: Sequence[str], baseline: str) -> None:
    """Create the table ``lbx_matches`` of both files' questions, and empty tables for pairs of answers."""
    for name, file, asked in (("lbx_here", RESULTS, [*runs]), ("lbx_there", _OTHER, [baseline])):
        store.query(f"CREATE TEMP TABLE {name} AS {_QUESTIONS.format(file=file)}", [asked])
    store.query(f"CREATE TEMP TABLE lbx_matches AS {_MATCHES}")
    store.query("CREATE TEMP TABLE lbx_names (name VARCHAR, rescored_run VARCHAR)")
    store.query(
        "CREATE TEMP TABLE lbx_pairs (name VARCHAR, benchmark VARCHAR, task VARCHAR, here VARCHAR, there VARCHAR, "
        "iteration INTEGER, head VARCHAR)"
    )


def _pair_answers(store: Store, name: str, run_id: str, rescored_run: str) -> None:
    """Pair the baseline's answers with this file's questions, or with the equal answers of a rescored run.

    ``head`` is this file's headline metric, if the same answers were scored by another metric.
    """
    store.query("INSERT INTO lbx_names VALUES (?, ?)", [name, rescored_run])
    here, there = f"{RESULTS}.main", f"{_OTHER}.main"
    store.query(
        f"""
        INSERT INTO lbx_pairs
        WITH heads AS (FROM ({HEADS.format(scores=f"{here}.scores")}) WHERE run_id = $3)
        SELECT $1, m.benchmark, m.task, m.here, m.there, b.iteration, h.metric
        FROM lbx_matches m
        JOIN {there}.generations b ON (b.run_id, b.benchmark, b.task, b.sample_id) = ($2, m.benchmark, m.task, m.there)
        LEFT JOIN {here}.generations a ON (a.run_id, a.benchmark, a.task, a.sample_id, a.iteration)
                                        = ($3, m.benchmark, m.task, m.here, b.iteration)
        LEFT JOIN heads h ON (h.benchmark, h.task) = (m.benchmark, m.task)
        WHERE CASE WHEN $3 = '' THEN m.kind = 'paired'
                   ELSE (m.kind IN ('paired', 'references_changed', 'rules_changed')
                         OR (m.kind = 'ambiguous' AND m.here = m.there))
                        AND {_SAME_OUTPUTS} AND a.prompt_sha256 IS NOT DISTINCT FROM b.prompt_sha256 END
        """,  # noqa: S608 (our own names)
        [name, run_id, rescored_run],
    )


def _create_views(store: Store, run_id: str) -> None:
    """Hide the tables of runs, answers and scores by views that also contain the rows of the baseline."""
    store.query("CREATE TEMP TABLE lbx_baseline_run AS SELECT ? AS run_id", [run_id])
    pairs = (
        f"FROM {_OTHER}.main.{{table}} t SEMI JOIN lbx_baseline_run USING (run_id) JOIN lbx_pairs p "
        "ON (p.benchmark, p.task, p.there, p.iteration) = (t.benchmark, t.task, t.sample_id, t.iteration)"
    )
    key = "p.name AS run_id, p.here AS sample_id"
    # A file without texts has hashes of outputs, so the other outputs are compared by their hashes, too.
    output = "coalesce(t.output_sha256, sha256(t.output)) AS output_sha256"
    # A score by another headline metric is compared as this file's headline.
    metric = "CASE WHEN t.headline THEN coalesce(p.head, t.metric) ELSE t.metric END AS metric"
    compared = "t.headline OR t.metric IS DISTINCT FROM p.head"
    theirs = {
        "runs": f"p.name AS run_id) FROM {_OTHER}.main.runs t SEMI JOIN lbx_baseline_run USING (run_id), lbx_names p",
        "generations": f"{key}, {output}) {pairs.format(table='generations')}",
        "scores": f"{key}, {metric}) {pairs.format(table='scores')} WHERE {compared}",
    }
    for table_name, replaced in theirs.items():
        columns = f"t.* REPLACE ({output})" if table_name == "generations" else "t.*"
        own = f"SELECT {columns} FROM {RESULTS}.main.{table_name} t"  # noqa: S608 (our own names)
        store.query(f"CREATE TEMP VIEW {table_name} AS {own} UNION ALL BY NAME SELECT t.* REPLACE ({replaced}")


def _count_questions(store: Store) -> list[dict[str, Any]]:
    """Count the questions of each match kind, per name of the baseline and task.

    If answers are the same, questions with changed references or rules are also paired or asked again, and count twice.
    """
    rows = store.query(
        f"""
        WITH asked AS (SELECT DISTINCT run_id, benchmark, task, sample_id FROM {RESULTS}.main.generations),
        paired AS (SELECT DISTINCT name, benchmark, task, here FROM lbx_pairs)
        SELECT name, benchmark, task, kind, greatest(count(DISTINCT here), count(DISTINCT there)) AS n
        FROM (
            SELECT n.name, m.benchmark, m.task, m.here, m.there,
                   unnest(list_distinct([
                       CASE WHEN p.here IS NOT NULL THEN 'paired' WHEN n.rescored_run <> '' AND m.kind IN (
                           'paired', 'references_changed', 'rules_changed') THEN 'asked_again' ELSE m.kind END,
                       CASE WHEN m.kind IN ('references_changed', 'rules_changed') THEN m.kind END
                   ])) AS kind
            FROM lbx_names n CROSS JOIN lbx_matches m
            LEFT JOIN paired p ON (p.name, p.benchmark, p.task, p.here) = (n.name, m.benchmark, m.task, m.here)
            LEFT JOIN asked a ON (a.run_id, a.benchmark, a.task, a.sample_id)
                               = (n.rescored_run, m.benchmark, m.task, m.here)
            WHERE n.rescored_run = '' OR m.here IS NULL OR a.run_id IS NOT NULL
        )
        GROUP BY ALL ORDER BY ALL
        """  # noqa: S608 (our own names)
    ).rows
    counts: dict[tuple[str, str, str], dict[str, int]] = {}
    for name, benchmark, task, kind, n in rows:
        counts.setdefault((name, benchmark, task), dict.fromkeys(_KINDS, 0))[kind] = n
    return [
        {"run_a": name, "benchmark": benchmark, "task": task, **kinds}
        for (name, benchmark, task), kinds in counts.items()
    ]


def _describe(store: Store, name: str) -> str:
    """Describe the difference between two scorings of the same answers."""
    metrics = store.query(
        f"""
        SELECT DISTINCT p.benchmark || '/' || p.task, h.metric, p.head FROM lbx_pairs p
        JOIN ({HEADS.format(scores=f"{_OTHER}.main.scores")}) h USING (benchmark, task)
        SEMI JOIN lbx_baseline_run b ON b.run_id = h.run_id
        WHERE p.name = ? AND h.metric <> p.head ORDER BY ALL
        """,  # noqa: S608 (our own names)
        [name],
    ).rows
    changes = "; ".join(f"{task}: {before} in the first run, {after} in the second" for task, before, after in metrics)
    return f"the same answers scored twice{f' ({changes})' if changes else ''}"


def _revisions_notes(table: Table) -> list[str]:
    rows = table.dicts()
    reasons = {
        "changed": "Changed: the same id, but another document, question or choices.",
        "ambiguous": "Ambiguous: several questions with the same content and different references.",
        "unknown": "Unknown: the document or the question is not in the file, as in imports without a bundle.",
        "asked_again": "Asked again: the answers of the same run differ between the files.",
    }
    return [
        "Only paired questions are compared.",
        *(note for name, note in reasons.items() if any(row[name] for row in rows)),
    ]


REVISIONS = Report(
    name="revisions",
    title="Questions of the baseline's file and of this file, paired by document, question and choices",
    columns=(
        Column("run_a", "baseline"),
        Column("benchmark", "benchmark"),
        Column("task", "task"),
        Column("paired", "paired", "count"),
        Column("only_in_baseline", "only in baseline", "count"),
        Column("only_in_file", "only in this file", "count"),
        Column("changed", "changed", "count"),
        Column("references_changed", "references changed", "count"),
        Column("rules_changed", "rules changed", "count"),
        Column("ambiguous", "ambiguous", "count", rank=1),
        Column("unknown", "unknown", "count", rank=1),
        Column("asked_again", "asked again", "count", rank=1),
    ),
    notes=_revisions_notes,
    empty="No other results file given. Name it with --baseline-file.",
    takes=("--baseline", "--baseline-file"),
    rows=table,
    added_by="--baseline-file",
)
