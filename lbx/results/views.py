"""Views of a results file, for reports and users' own SQL. Names and columns stay stable between versions.

``score`` is in 0..1; ``official`` is the number that the benchmark's own script prints.

Averages are computed in the order of their samples: in the order of threads, the last digit would differ between
calls.

Opinions of judges and people have the views of ``lbx.opinions.views``.
"""

from __future__ import annotations

from lbx.base.marks import ANSWER_MARKS
from lbx.base.number import INTERVAL_COLUMNS
from lbx.opinions.views import OPINION_VIEWS
from lbx.options.asking import view_labels

# Reasoning in a run's answers: 0 for none; 1 for a block, or a prompt that asks to reason in words; 2 for a block
# longer than the empty blocks that some models write unasked. NULL if unknown for all answers.
_REASONED = """(SELECT max(CASE WHEN coalesce(g.reasoning_tokens, length(g.reasoning) // 4) > 32 THEN 2
                                WHEN g.reasoning_tokens > 0 OR g.reasoning_closed IS NOT NULL
                                     OR g.prompt_source LIKE '%(question_thinking)' THEN 1
                                WHEN g.reasoning_tokens = 0 THEN 0 END)
                FROM generations g WHERE g.run_id = r.run_id AND g.error IS NULL)"""

# Mode of a run, if not the default: "thinking", "cot rag 4"; NULL for the default. If thinking was switched on or off,
# the answers decide whether the run reasoned; before the first answer, its settings.
MODE_OF_RUN = f"""nullif(concat_ws(' ',
                   CASE WHEN r.settings->>'chat' = 'false' OR (r.backend <> 'scripted'
                            AND json_type(r.settings, '$."backend.chat".template_sha256') = 'NULL'
                            AND r.settings->>'$."backend.api"' IS DISTINCT FROM 'chat') THEN 'no chat template' END,
                   CASE WHEN r.settings->>'$."backend.tokenizer_gaps"' IS NOT NULL THEN 'incomplete tokenizer' END,
                   CASE WHEN r.settings->>'thinking' = 'false'
                        THEN CASE WHEN {_REASONED} = 2 THEN 'thinking' ELSE 'no thinking' END
                        WHEN r.settings->>'thinking' = 'true' OR r.settings->>'thinking_tokens' IS NOT NULL
                        THEN CASE WHEN {_REASONED} = 0 THEN 'no thinking' ELSE 'thinking' END END,
                   {", ".join(view_labels("r.settings"))},
                   CASE WHEN r.benchmark_versions->>'judge' IS NOT NULL THEN 'judge' END), '')"""
# Once per run and not once per row of its numbers: reading its settings takes 10 kB and 3 us each time.
_RUNS = f"(SELECT r.*, {MODE_OF_RUN} AS mode FROM runs r)"

# Number of samples that have an answer, in words, if some lack one; NULL if all have one, or if unknown. If samples are
# asked several times, it is the number of answers.
_PART = "CASE WHEN {samples} < {every} THEN format('{{:,}} of {{:,}}', ({samples})::BIGINT, ({every})::BIGINT) END"
_ANSWERED_PART = _PART.format(samples="c.answers", every="c.bundle_answers")
_COVERAGE = f"""c.samples, c.bundle_samples,
    {_ANSWERED_PART} || CASE WHEN c.iterations > 1 THEN ' answers' ELSE '' END AS coverage"""
# Sums over a run's tasks; unknown if unknown for one of them.
_ADDED_COVERAGE = """
    sum(samples)::BIGINT AS samples,
    CASE WHEN count(bundle_samples) = count(*) THEN sum(bundle_samples)::BIGINT END AS bundle_samples,
    max(iterations) AS iterations, sum(answers)::BIGINT AS answers,
    CASE WHEN count(bundle_answers) = count(*) THEN sum(bundle_answers)::BIGINT END AS bundle_answers"""
_BY_BENCHMARK = f"SELECT run_id, benchmark, {_ADDED_COVERAGE} FROM coverage GROUP BY ALL"

# A judge's answers are verdicts on others' answers, not results of a model (``lbx.results.views``).
_EVALUATED = "benchmark <> 'judge'"
_MOST = 10**9
"""Largest number of samples, and of iterations, that a view takes from a run's JSON, which other programs may write."""


def _counts_by_task(column: str, name: str) -> str:
    """SELECT the counts by task of a JSON column of ``runs``, each task once. Values that are no count are NULL."""
    return f"""
            SELECT run_id, benchmark, task, max(count) AS {name}
            FROM (
                SELECT r.run_id, split_part(e.key, '/', 1) AS benchmark, substr(e.key, instr(e.key, '/') + 1) AS task,
                       CASE WHEN try_cast(e.value AS BIGINT) BETWEEN 0 AND {_MOST} THEN try_cast(e.value AS BIGINT) END
                           AS count
                FROM runs r, json_each(r.{column}) e WHERE e.key LIKE '%_/_%'
            ) WHERE {_EVALUATED} GROUP BY ALL"""


# Uncertainty of a number; bounds given the unanswered samples.
_INTERVAL_OF = ", ".join(f"{{t}}.{name}" for name in INTERVAL_COLUMNS)
_UNOFFICIAL_OF = "{t}.answered, {t}.asked, {t}.failed_as_0, {t}.failed_as_1"


def _in_units(unit: str, table: str, zero: str = "0") -> str:
    """Build the SQL for a table's interval columns, scaled by ``unit`` to official numbers, with ``zero`` added."""
    scaled = {"low": f"{zero} + {unit} * {table}.low AS low", "high": f"{zero} + {unit} * {table}.high AS high",
              "se": f"{unit} * {table}.se AS se"}  # fmt: skip
    return ", ".join(scaled.get(name, f"{table}.{name}") for name in INTERVAL_COLUMNS)


HEADS = """
            SELECT run_id, benchmark, task, arg_max(metric, n) AS metric FROM (
                SELECT run_id, benchmark, task, metric, count(*) AS n FROM {scores}
                GROUP BY ALL HAVING bool_or(headline)
            ) GROUP BY ALL"""
"""Query for the headline metric of each task: of the headline metrics of the task's answers, the most frequent."""

_LONGEST_VALUE, _LONGEST_WORDS = 24, 80


def _count_if_known(condition: str) -> str:
    """Build the SQL for the number of rows that satisfy a condition, or NULL if it is unknown for all rows."""
    return f"CASE WHEN count({condition}) > 0 THEN count(*) FILTER (WHERE {condition}) END"


RUN_COVERAGE = f"""
    SELECT run_id, {_ANSWERED_PART} || CASE WHEN iterations > 1 THEN ' answers' ELSE ' samples' END AS covered
    FROM (SELECT run_id, {_ADDED_COVERAGE} FROM coverage GROUP BY ALL) c
"""
"""Query with a row per run: how many of the run's samples, or answers, are present, or NULL if none is missing."""

_LINE = """CASE kind WHEN 'task' THEN task || CASE metric WHEN '' THEN '' ELSE ', ' || metric END
                ELSE "grouping" || CASE name WHEN 'all' THEN '' ELSE ' ' || name END || ': ' || metric END"""

NUMBERS_OF_TASKS_AND_GROUPS = f"""
    WITH heads AS (
        SELECT run_id, benchmark, task, metric AS head FROM numbers WHERE kind = 'task' AND headline
    )
    SELECT n.run_id, n.benchmark, n.kind, n.task, n."grouping", n.name, n.judge, n.against, n.questions, n.length_unit,
           n.length_up_to, n.metric_version, n.n, n.score, n.partial, n.headline, n.task_position,
           {_INTERVAL_OF.format(t="n")}, {_UNOFFICIAL_OF.format(t="n")},
           CASE WHEN n.headline THEN '' WHEN n.kind = 'task' AND h.head IS NOT NULL
                THEN replace(n.metric, h.head || '/', '') ELSE n.metric END AS metric, n.official,
           CASE WHEN n.kind = 'task' THEN n.in_paper AND h.head IS NOT NULL ELSE n.official IS NOT NULL END AS in_paper,
           CASE WHEN n.kind = 'task' THEN 0 ELSE 1 END AS part,
           CASE WHEN n.kind = 'task' THEN n.task_position ELSE n.position END AS place,
           CASE WHEN n.kind = 'task' THEN n.position ELSE 0 END AS position,
           CASE WHEN n.kind <> 'task' OR n.official IS NOT NULL THEN n.unit END AS unit,
           CASE WHEN n.kind = 'opinion' THEN n.official - n.unit * n.score ELSE 0 END AS zero
    FROM numbers n LEFT JOIN heads h ON h.run_id = n.run_id AND h.benchmark = n.benchmark AND h.task = n.task
    WHERE n.kind IN ('task', 'group', 'opinion')
"""
"""Query for numbers of tasks and over tasks with the columns of ``NumberKey``. ``unit`` is the unit of ``official``."""

PAPER_NUMBERS = f"""
    WITH labelled AS (
        SELECT run_id, model || coalesce(' (' || mode || ')', '') AS label FROM {_RUNS} r
    ), named AS (
        SELECT run_id, CASE WHEN count(*) OVER (PARTITION BY label) = 1 THEN label ELSE run_id END
               || coalesce(' (' || covered || ')', '') AS run
        FROM labelled LEFT JOIN ({RUN_COVERAGE}) USING (run_id)
    )
    -- Runs that have not the same lines agree on a line's place by its largest.
    SELECT n.run, l.* REPLACE (max(l.place) OVER (PARTITION BY l.benchmark, l.part, l.line) AS place)
    FROM (
        SELECT run_id, benchmark, {_LINE} AS line, official, part, place, position, {_in_units("unit", "u", "zero")},
               kind, task, "grouping", name, metric, judge, against, questions
        FROM ({NUMBERS_OF_TASKS_AND_GROUPS}) u WHERE in_paper
    ) l JOIN named n USING (run_id)
"""
"""Query of the view ``paper`` with the key columns of the numbers."""

_INTERVAL = "low, high, se, df, clusters, cluster_by, method, within"
_COVERED = _UNOFFICIAL_OF.replace("{t}.", "")

VIEWS: dict[str, str] = {
    # Numbers by kind.
    "task_results": f"""
        SELECT run_id, benchmark, task, metric, metric_version, n, score, official, headline, position, partial,
               task_position, {_INTERVAL}, {_COVERED}, unit, in_paper
        FROM numbers WHERE kind = 'task'
    """,
    "group_results": f"""
        SELECT run_id, benchmark, "grouping", name, metric, metric_version, n, score, official, partial, position,
               {_INTERVAL}, {_COVERED}, unit
        FROM numbers WHERE kind IN ('group', 'opinion')
    """,
    "benchmark_results": f"""
        SELECT run_id, benchmark, metric_version, n, score, {_INTERVAL}, {_COVERED}
        FROM numbers WHERE kind = 'mean'
    """,
    "length_results": f"""
        SELECT run_id, benchmark, task, metric, metric_version, length_unit, position,
               nullif(length_up_to, 0) AS length_up_to, n, score, {_INTERVAL}
        FROM numbers WHERE kind = 'length'
    """,
    # Number of a task's samples that have an answer: of each task that the run was asked for, also if none was answered
    # before the run ended; bundle_samples is NULL if unknown (older or imported runs). Metrics count scorable_samples
    # of these: others are only for judges and people. A task without an answer has the iterations of its benchmark.
    "coverage": f"""
        WITH answered AS (
            SELECT run_id, benchmark, task, count(DISTINCT sample_id) FILTER (WHERE error IS NULL) AS samples,
                   count(*) FILTER (WHERE error IS NULL) AS answers, max(iteration) + 1 AS iterations
            FROM generations WHERE {_EVALUATED} GROUP BY ALL
        ), asked AS ({_counts_by_task("task_samples", "bundle_samples")}
        ), unscored AS ({_counts_by_task("unscored_samples", "unscored")}
        ), every_task AS (
            SELECT run_id, benchmark, task, coalesce(samples, 0) AS samples, coalesce(answers, 0) AS answers,
                   coalesce(iterations, max(iterations) OVER (PARTITION BY run_id, benchmark), 1) AS iterations,
                   bundle_samples
            FROM answered FULL JOIN asked USING (run_id, benchmark, task)
        )
        SELECT *, bundle_samples * iterations AS bundle_answers
        FROM (
            SELECT t.run_id, t.benchmark, t.task, t.samples, t.bundle_samples,
                   t.bundle_samples - coalesce(u.unscored, 0) AS scorable_samples,
                   least(greatest(t.iterations, try_cast(r.settings->>'iterations' AS BIGINT)), {_MOST}) AS iterations,
                   t.answers
            FROM every_task t JOIN runs r USING (run_id) LEFT JOIN unscored u USING (run_id, benchmark, task)
        )
    """,
    # Differences between runs of one model, backend and mode: the settings in which they differ, and the run's name if
    # these are equal or not readable (hashes, nested tables). NULL for a run without such a counterpart.
    "distinctions": f"""
        WITH told AS (
            SELECT r.run_id, r.settings, concat_ws(chr(0), r.model, r.backend, {MODE_OF_RUN}) AS kind FROM runs r
        ), entries AS (
            SELECT t.run_id, k.kind, k.name, coalesce(t.settings->>('$."' || k.name || '"'), 'default') AS value
            FROM (SELECT DISTINCT kind, unnest(json_keys(settings)) AS name FROM told) k JOIN told t USING (kind)
        ), differing AS (
            SELECT run_id, string_agg(replace(name, 'backend.', '') || ' ' || value, ', ' ORDER BY name) AS words
            FROM (SELECT *, count(DISTINCT value) OVER (PARTITION BY kind, name) AS ways FROM entries)
            WHERE ways > 1 AND length(value) <= {_LONGEST_VALUE}
            GROUP BY ALL
        )
        SELECT t.run_id, CASE
                   WHEN count(*) OVER (PARTITION BY t.kind) = 1 THEN NULL
                   WHEN d.words IS NULL OR length(d.words) > {_LONGEST_WORDS}
                        OR count(*) OVER (PARTITION BY t.kind, d.words) > 1 THEN t.run_id
                   ELSE d.words END AS differs_in
        FROM told t LEFT JOIN differing d USING (run_id)
    """,
    **OPINION_VIEWS,
    # A row per answer, with the columns that users need most, to save them joins; the score is the headline.
    "answers": f"""
        SELECT g.run_id, r.model, r.backend, r.mode, g.benchmark, g.task, g.sample_id, g.iteration, s.question,
               nullif(array_to_string(s."references"->>'$[*]', ' | '), '') AS reference,
               s."references" AS reference_answers, g.output, g.reasoning, g.error, c.metric, c.score,
               g.prompt_tokens, g.output_tokens, g.original_tokens, g.truncated, g.finish_reason, s.length,
               s.length_unit, s.language
        FROM generations g JOIN {_RUNS} r USING (run_id) LEFT JOIN samples s USING (benchmark, task, sample_id)
        LEFT JOIN (FROM scores WHERE headline) c USING (run_id, benchmark, task, sample_id, iteration)
        WHERE g.{_EVALUATED}
    """,
    # A task's own numbers.
    "task_scores": f"""
        SELECT u.run_id, r.model, u.benchmark, u.task, u.metric, u.n, u.score, u.official,
               u.headline, u.metric_version, r.backend, u.position, u.task_position, r.mode,
               coalesce(u.partial, false) AS partial, {_COVERAGE}, d.differs_in,
               {_INTERVAL_OF.format(t="u")}, {_UNOFFICIAL_OF.format(t="u")}
        FROM task_results u JOIN {_RUNS} r USING (run_id) JOIN distinctions d USING (run_id)
        LEFT JOIN coverage c USING (run_id, benchmark, task)
    """,
    # A benchmark's numbers over several tasks: categories, lengths, languages, and everything together.
    "group_scores": f"""
        SELECT g.run_id, r.model, g.benchmark, g."grouping", g.name, g.metric, g.n, g.score, g.official, g.partial,
               g.metric_version, r.backend, g.position, r.mode, {_COVERAGE},
               {_INTERVAL_OF.format(t="g")}, {_UNOFFICIAL_OF.format(t="g")}
        FROM group_results g JOIN {_RUNS} r USING (run_id) LEFT JOIN ({_BY_BENCHMARK}) c USING (run_id, benchmark)
    """,
    # The papers' tables, a row a number: part 0 the tasks in the paper's order, part 1 its averages.
    "paper": f"""
        SELECT run, run_id, benchmark, line, official, part, place, position, {", ".join(INTERVAL_COLUMNS)}
        FROM ({PAPER_NUMBERS})
    """,
    # What may have spoilt a task's score, as counts of its n generations. An imported answer's file does not say.
    "guards": f"""
        WITH marked AS (
            SELECT run_id, benchmark, task, count(*) AS n,
                   {", ".join(f"{mark.count_sql('generations')} AS {mark.name}" for mark in ANSWER_MARKS)},
                   CASE WHEN count(truncated) > 0 THEN coalesce(sum(tokens_cut), 0) END::BIGINT AS tokens_cut
            FROM generations WHERE {_EVALUATED} GROUP BY ALL
        ), judged AS (
            SELECT run_id, benchmark, task, count(*) FILTER (WHERE error IS NOT NULL) AS official_errors,
                   count(*) FILTER (WHERE partial IS NOT NULL) AS partial, any_value(partial) AS lacks,
                   count(*) FILTER (WHERE extracted = '') AS unextracted,
                   {_count_if_known("loose")} AS loose_matches
            FROM scores WHERE headline GROUP BY ALL
        )
        SELECT m.run_id, r.model, r.backend, m.benchmark, m.task, m.n, m.empty_prompts, m.failed, m.doubled_bos,
               m.reasoning_unclosed, m.answers_cut, m.stop_in_reasoning, m.truncated, m.tokens_cut, m.reference_cut,
               coalesce(j.official_errors, 0) AS official_errors, coalesce(j.partial, 0) AS partial, j.lacks,
               r.mode, coalesce(j.unextracted, 0) AS unextracted, m.empty_answers, m.question_changed, j.loose_matches
        FROM marked m JOIN {_RUNS} r USING (run_id) LEFT JOIN judged j USING (run_id, benchmark, task)
    """,
    "leaderboard": f"""
        WITH made AS (
            SELECT run_id, benchmark, count(DISTINCT task) AS tasks, count(*) AS generations,
                   count(error) AS failed, {_count_if_known("truncated")} AS truncated
            FROM generations WHERE {_EVALUATED} GROUP BY ALL
        ), means AS (
            SELECT run_id, benchmark, avg(score ORDER BY task, metric) AS score, sum(n)::BIGINT AS n
            FROM task_scores WHERE headline GROUP BY ALL
        )
        SELECT m.run_id, r.model, r.backend, m.benchmark, m.tasks, coalesce(s.n, 0) AS n,
               coalesce(b.score, s.score) AS score,
               m.failed, m.truncated, r.status, r.mode, {_COVERAGE}, d.differs_in,
               {_INTERVAL_OF.format(t="b")}, {_UNOFFICIAL_OF.format(t="b")}
        FROM made m JOIN {_RUNS} r USING (run_id) LEFT JOIN means s USING (run_id, benchmark)
        LEFT JOIN benchmark_results b USING (run_id, benchmark)
        JOIN distinctions d USING (run_id) LEFT JOIN ({_BY_BENCHMARK}) c USING (run_id, benchmark)
        WHERE coalesce(r.settings->>'judged' <> 'true', true)
    """,
    # Lengths are binned by powers of two: 1,000 is in "up to 1,024", and an unknown length in NULL.
    "length_curve": f"""
        SELECT u.run_id, r.model, r.backend, r.mode, u.benchmark, u.task, u.metric, u.length_unit, u.length_up_to,
               u.n, u.score, {_COVERAGE}, {_INTERVAL_OF.format(t="u")}
        FROM length_results u JOIN {_RUNS} r USING (run_id) LEFT JOIN coverage c USING (run_id, benchmark, task)
    """,
    "truncation": f"""
        SELECT g.run_id, r.model, r.backend, r.mode, g.* EXCLUDE (run_id)
        FROM (
            SELECT run_id, benchmark, task, count(*) AS n, {_count_if_known("truncated")} AS truncated,
                   avg(truncated::INTEGER) AS share, max(original_tokens) AS longest_prompt,
                   CASE WHEN count(truncated) > 0 THEN coalesce(
                       avg(coalesce(tokens_cut, original_tokens - prompt_tokens)) FILTER (WHERE truncated), 0) END
                       AS mean_tokens_cut,
                   {_count_if_known("finish_reason = 'length'")} AS answers_cut,
                   max(prompt_tokens) AS longest_prompt_sent
            FROM generations WHERE error IS NULL AND {_EVALUATED} GROUP BY ALL
        ) g JOIN {_RUNS} r USING (run_id)
    """,
    "failures": f"""
        SELECT g.run_id, r.model, r.backend, r.mode, g.benchmark, g.task, g.sample_id, g.iteration, g.error
        FROM generations g JOIN {_RUNS} r USING (run_id)
        WHERE g.error IS NOT NULL
    """,
    # Estimates for each call of `lbx run`, and its actual values. A ratio needs a call that was completed. For a call
    # that was killed or is still running, only the answers of its time that are in the file are known.
    "estimates": f"""
        WITH timed AS (
            SELECT *, lead(started_at) OVER (PARTITION BY run_id ORDER BY session) AS next_at FROM sessions
        )
        SELECT s.run_id, r.model, r.backend, r.mode, s.session,
               CASE s.status WHEN 'running' THEN 'unfinished' ELSE s.status END AS status, s.workers, s.started_at,
               s.finished_at, s.planned_samples,
               coalesce(s.answered + s.failed, (
                   SELECT count(*) FROM generations g WHERE g.run_id = s.run_id AND g.created_at >= s.started_at
                       AND g.created_at < coalesce(s.next_at, 'infinity'))) AS samples,
               s.planned_distinct_tokens, s.computed_tokens - s.output_tokens AS computed_prompt_tokens,
               s.planned_new_tokens, s.output_tokens, s.estimated_s, s.wall_s,
               CASE WHEN s.status = 'done' AND s.estimated_s > 0 THEN s.wall_s / s.estimated_s END AS ratio,
               s.computed_tokens / nullif(s.wall_s, 0) AS tokens_per_s, s.peak_memory_bytes, s.estimate_basis
        FROM timed s JOIN {_RUNS} r USING (run_id)
    """,
    # Every pair of runs, on the samples that both have answered, each with the mean of its answers.
    "comparison": f"""
        WITH heads AS (
            {HEADS.format(scores="scores")}
        ), outcome AS (
            SELECT g.run_id, g.benchmark, g.task, g.sample_id, g.iteration,
                   coalesce(g.output_sha256, g.output) AS output, s.metric, s.score
            FROM generations g
            LEFT JOIN (FROM scores SEMI JOIN heads USING (run_id, benchmark, task, metric)) s
                USING (run_id, benchmark, task, sample_id, iteration)
            WHERE g.error IS NULL AND g.{_EVALUATED}
        ), means AS (
            SELECT run_id, benchmark, task, metric, sample_id, avg(score ORDER BY iteration) AS mean
            FROM outcome GROUP BY ALL
        ), alike AS (
            SELECT a.run_id AS run_a, b.run_id AS run_b, a.benchmark, a.task, a.metric, count(*) AS n,
                   count(*) FILTER (WHERE a.output = b.output) AS same_outputs
            FROM outcome a JOIN outcome b USING (benchmark, task, sample_id, iteration)
            WHERE a.run_id < b.run_id AND a.metric IS NOT DISTINCT FROM b.metric
            GROUP BY ALL
        ), paired AS (
            SELECT a.run_id AS run_a, b.run_id AS run_b, a.benchmark, a.task, a.metric, count(*) AS samples,
                   avg(a.mean ORDER BY sample_id) AS score_a, avg(b.mean ORDER BY sample_id) AS score_b
            FROM means a JOIN means b USING (benchmark, task, sample_id)
            WHERE a.run_id < b.run_id AND a.metric IS NOT DISTINCT FROM b.metric
            GROUP BY ALL
        )
        SELECT p.run_a, p.run_b, p.benchmark, p.task, p.metric, coalesce(i.n, 0) AS n, p.score_a, p.score_b,
               p.score_b - p.score_a AS difference, coalesce(i.same_outputs, 0) AS same_outputs,
               p.samples, c.bundle_samples, {_PART.format(samples="p.samples", every="c.bundle_samples")} AS coverage
        FROM paired p
        LEFT JOIN alike i ON (i.run_a, i.run_b, i.benchmark, i.task) = (p.run_a, p.run_b, p.benchmark, p.task)
            AND i.metric IS NOT DISTINCT FROM p.metric
        LEFT JOIN coverage c ON c.run_id = p.run_a AND c.benchmark = p.benchmark AND c.task = p.task
    """,
}
