"""Views of a results file, for reports and users' own SQL. Names and columns are a contract.

``score`` is in 0..1; ``official`` is the number that the benchmark's own script prints.

Averages are computed in the order of their samples: in the order of threads, the last digit would differ between
calls.

A judge is a run with samples of the benchmark "judge", whose opinions on answers have views, as those of people have.
Judgements of an answer that has changed since (not ``current``) stay in ``judgements``, but no number includes them.
"""

from __future__ import annotations

from lbx.base.marks import OF_ANSWERS
from lbx.options.asking import view_labels
from lbx.results.rows import INTERVAL_COLUMNS

_RATER = "set_id, item, rater, run_id, iteration, against_run_id, against_iteration"
_QUESTION = (
    "judge_id, benchmark, task, sample_id, run_id, iteration, against_run_id, against_iteration, judge_iteration"
)
_WHOM = "judge_id, judge, rubric, kind, benchmark, run_id, against_run_id"
_OF_PAIRS = ", ".join(
    f"CASE WHEN t.kind = 'pair' THEN t.{name} END AS {name}" for name in ("n_wins", "n_draws", "n_losses")
)

ANSWER_HASH = "coalesce({row}.output_sha256, sha256(coalesce({row}.output, '')))"
"""SQL for the SHA-256 of an answer, whose text may have been removed (``lbx.results.whole.extracting``)."""


def _meta_column(name: str, sql_type: str = "") -> str:
    value = f"a.meta->>'{name}'"
    return f"{f'try_cast({value} AS {sql_type})' if sql_type else value} AS {name}"


def _is_same_answer(generation: str, side: str) -> str:
    """SQL condition that a stored answer is still the one that was judged; true if the file lacks the answer."""
    judged = f"s.{side}_sha256"
    return (
        f"({generation}.run_id IS NULL OR {judged} IS NULL "
        f"OR ({generation}.error IS NULL AND {ANSWER_HASH.format(row=generation)} = {judged}))"
    )


JUDGING_VIEWS: dict[str, str] = {
    "judges": """
        SELECT run_id AS judge_id, model, backend, backend_version, settings->>'rubric' AS rubric,
               settings->>'rubric_source' AS rubric_source, settings->>'rubric_sha256' AS rubric_sha256, settings,
               bundle_digest, lbx_version, started_at, finished_at, status
        FROM runs WHERE benchmark_versions->>'judge' IS NOT NULL
    """,
    # A row per prompt (or imported text) of a judge; the subject of a verdict is the judged answer.
    "judgements": f"""
        WITH said AS (
            SELECT g.*, a.task AS rubric, {_meta_column("kind")},
                   a.meta->>'benchmark' AS judged_benchmark, a.meta->>'task' AS judged_task,
                   a.meta->>'sample_id' AS judged_sample_id, a.meta->>'run_id' AS judged_run_id,
                   coalesce(try_cast(a.meta->>'iteration' AS INTEGER), 0) AS judged_iteration,
                   {_meta_column("against_run_id")},
                   coalesce(try_cast(a.meta->>'against_iteration' AS INTEGER), 0) AS against_iteration,
                   {_meta_column("answer_first", "BOOLEAN")},
                   coalesce(a.meta->>'document_sha256', '') AS document_sha256,
                   {_meta_column("answer_words", "BIGINT")}, {_meta_column("against_words", "BIGINT")},
                   coalesce(try_cast(a.meta->'marks' AS VARCHAR[]), []) AS marks,
                   a.meta->>'answer_sha256' AS answer_sha256, a.meta->>'against_sha256' AS against_sha256,
                   try_cast(a.meta->'verdicts'->>'low' AS DOUBLE) AS scale_low,
                   try_cast(a.meta->'verdicts'->>'high' AS DOUBLE) AS scale_high, s.extracted, s.score, s.partial
            FROM generations g JOIN samples a USING (benchmark, task, sample_id)
            LEFT JOIN (SELECT * FROM scores WHERE benchmark = 'judge' AND headline) s
                USING (run_id, benchmark, task, sample_id, iteration)
            WHERE g.benchmark = 'judge'
        )
        SELECT s.run_id AS judge_id, s.judged_benchmark AS benchmark, s.judged_task AS task,
               s.judged_sample_id AS sample_id, s.judged_run_id AS run_id, s.judged_iteration AS iteration,
               s.against_run_id, s.against_iteration, s.answer_first,
               CASE WHEN s.kind = 'pair' THEN s.extracted END AS verdict,
               CASE WHEN s.kind = 'score' THEN try_cast(s.extracted AS DOUBLE) END AS rating,
               CASE WHEN s.error IS NOT NULL THEN 'failed' WHEN s.partial IS NOT NULL THEN 'ambiguous'
                    WHEN s.score IS NOT NULL THEN 'ok' WHEN s.finish_reason = 'length' THEN 'cut'
                    ELSE 'none' END AS state,
               s.output, s.reasoning, s.finish_reason, s.prompt_tokens, s.cached_tokens, s.output_tokens,
               s.prompt_sha256, s.seed, s.error, s.error_type, s.source_row, s.created_at, s.rubric,
               s.document_sha256, s.answer_words, s.against_words, s.marks, s.kind, s.score,
               s.sample_id AS round_id, s.iteration AS judge_iteration,
               {_is_same_answer("r", "answer")} AND {_is_same_answer("b", "against")} AS current, s.scale_low,
               s.scale_high
        FROM said s
        LEFT JOIN generations r ON r.run_id = s.judged_run_id AND r.benchmark = s.judged_benchmark
            AND r.task = s.judged_task AND r.sample_id = s.judged_sample_id AND r.iteration = s.judged_iteration
        LEFT JOIN generations b ON b.run_id = s.against_run_id AND b.benchmark = s.judged_benchmark
            AND b.task = s.judged_task AND b.sample_id = s.judged_sample_id AND b.iteration = s.against_iteration
    """,
    # The judgements that numbers include, each with the combined result of its question's rounds. A question
    # with two marks was two rows of the official file: a verdict counts for each of them (``copies``), except for rows
    # that have their own verdict, and for marks that this judge was not asked about.
    "judged_rounds": f"""
        WITH rounds AS (
            SELECT j.*, d.model AS judge,
                   count(*) OVER (PARTITION BY {_QUESTION.removesuffix(", judge_iteration")}, answer_first) AS verdicts,
                   count(verdict) OVER question AS said,
                   count(*) FILTER (WHERE verdict = 'answer') OVER question AS said_answer,
                   count(*) FILTER (WHERE verdict = 'against') OVER question AS said_against,
                   count(*) FILTER (WHERE verdict = CASE WHEN answer_first THEN 'answer' ELSE 'against' END)
                       OVER question AS said_first,
                   count(*) OVER question AS of_question,
                   row_number() OVER (PARTITION BY {_QUESTION} ORDER BY answer_first DESC) = 1 AS counts_question
            FROM judgements j LEFT JOIN judges d USING (judge_id) WHERE current
            WINDOW question AS (PARTITION BY {_QUESTION})
        ), asked AS (
            SELECT judge_id, benchmark, run_id, against_run_id, bool_and(len(marks) > 0) AS all_marked,
                   list(DISTINCT marks[1]) FILTER (WHERE len(list_distinct(marks)) = 1) AS asked
            FROM rounds GROUP BY ALL
        ), weighed AS (
            SELECT r.*, all_marked, coalesce(list_filter(r.marks, lambda m: list_contains(a.asked, m)), []) AS held
            FROM rounds r JOIN asked a ON a.judge_id = r.judge_id AND a.benchmark = r.benchmark
                AND a.run_id = r.run_id AND a.against_run_id IS NOT DISTINCT FROM r.against_run_id
        )
        SELECT judge_id, judge, rubric, kind, benchmark, task, sample_id, run_id, iteration, against_run_id,
               against_iteration, answer_first, judge_iteration, state, verdict, rating, score, document_sha256,
               CASE WHEN verdicts > 1 AND len(held) > 1 THEN [held[1 + judge_iteration % len(held)]]
                    ELSE held END AS marks,
               CASE WHEN all_marked AND verdicts = 1 THEN greatest(len(held), 1) ELSE 1 END AS copies, counts_question,
               CASE WHEN of_question = 2 AND said = 2 THEN
                   CASE WHEN said_answer = 2 THEN 1.0 WHEN said_against = 2 THEN 0.0 ELSE 0.5 END END AS agreeing,
               CASE WHEN of_question = 2 AND said = 2 THEN
                   said_answer = 2 OR said_against = 2 OR said_answer + said_against = 0 END AS consistent,
               CASE WHEN verdict IN ('answer', 'against') THEN (verdict = 'answer') = answer_first END AS first_won,
               2 * said_first - said_answer - said_against AS first_lead,
               CASE WHEN verdict IN ('answer', 'against') AND answer_words <> against_words
                    THEN (verdict = 'answer') = (answer_words > against_words) END AS longer_won,
               (said_answer - said_against) * sign(answer_words - against_words) AS longer_lead,
               scale_low, scale_high
        FROM weighed
    """,
    # A judge's results for a run, over its tasks (task NULL) and task by task, for all questions and by their marks.
    "judge_results": f"""
        WITH rounds AS (
            SELECT *, unnest(list_concat(['all'], list_transform(marks, lambda m: lower(m)))) AS questions
            FROM judged_rounds
        ), counted AS (
            SELECT * REPLACE (CASE WHEN questions = 'all' THEN copies ELSE 1 END AS copies) FROM rounds
        ), told AS (
            SELECT {_WHOM}, questions, task, count(DISTINCT (task, sample_id, iteration)) AS n_questions,
                   sum(copies)::BIGINT AS n_rounds,
                   {{wins}} AS n_wins, {{draws}} AS n_draws, {{losses}} AS n_losses,
                   {{rated}} AS n_rated, {{ambiguous}} AS n_ambiguous, {{failed}} AS n_failed, {{cut}} AS n_cut,
                   {{none}} AS n_none,
                   sum(copies * rating) / sum(copies) FILTER (WHERE rating IS NOT NULL) AS rating,
                   sum(copies * score) FILTER (WHERE kind = 'score')
                       / sum(copies) FILTER (WHERE kind = 'score' AND score IS NOT NULL) AS rating_score,
                   sum(copies * agreeing) FILTER (WHERE counts_question)
                       / sum(copies) FILTER (WHERE counts_question AND agreeing IS NOT NULL) AS win_rate_agreeing,
                   any_value(scale_low) AS scale_low, any_value(scale_high) AS scale_high
            FROM counted GROUP BY GROUPING SETS (({_WHOM}, questions), ({_WHOM}, questions, task))
        )
        SELECT t.judge_id, t.judge, t.rubric, t.kind, t.benchmark, t.run_id, r.model, t.against_run_id, t.questions,
               t.task, t.n_questions, t.n_rounds, {{of_pairs}}, t.n_ambiguous,
               t.n_failed + t.n_cut + t.n_none AS n_errors, t.n_failed, t.n_cut, t.n_none,
               CASE WHEN t.kind = 'pair'
                    THEN (0.5::DOUBLE * t.n_draws + t.n_wins) / nullif(t.n_wins + t.n_draws + t.n_losses, 0) END
                   AS win_rate,
               t.win_rate_agreeing, t.rating,
               coalesce(t.rating_score, win_rate) AS score,
               n_errors > 0.05 * t.n_rounds AS many_errors,
               list_contains(coalesce(try_cast(j.hardware->'same_family_as' AS VARCHAR[]), []), t.run_id)
                   AS same_family,
               t.scale_low, t.scale_high,
               CASE WHEN t.kind = 'pair'
                    THEN (0.5::DOUBLE * t.n_draws + t.n_losses) / nullif(t.n_wins + t.n_draws + t.n_losses, 0) END
                   AS against_win_rate,
               1 - t.win_rate_agreeing AS against_win_rate_agreeing
        FROM told t LEFT JOIN runs r USING (run_id) LEFT JOIN runs j ON j.run_id = t.judge_id
    """.format(
        of_pairs=_OF_PAIRS,
        **{
            name: f"coalesce(sum(copies) FILTER (WHERE {rule}), 0)::BIGINT"
            for name, rule in (
                ("wins", "verdict = 'answer'"),
                ("draws", "verdict = 'tie'"),
                ("losses", "verdict = 'against'"),
                ("rated", "rating IS NOT NULL"),
                *((state, f"state = '{state}'") for state in ("ambiguous", "failed", "cut", "none")),
            )
        },
    ),
    # Influence of order and length on verdicts. A question counts for the side that won more of its rounds.
    "judge_bias": """
        SELECT judge_id, judge, rubric, benchmark, run_id, against_run_id,
               count(*) FILTER (WHERE counts_question AND consistent IS NOT NULL) AS n_questions,
               count(*) FILTER (WHERE counts_question AND consistent) AS n_consistent,
               n_consistent / nullif(n_questions, 0) AS consistency,
               count(*) FILTER (WHERE counts_question AND consistent = false AND first_lead = 2) AS only_first,
               count(*) FILTER (WHERE counts_question AND consistent = false AND first_lead = -2) AS only_second,
               count(first_won) AS n_decided, count(*) FILTER (WHERE first_won) AS first_wins,
               first_wins / nullif(n_decided, 0) AS first_share,
               count(*) FILTER (WHERE counts_question AND first_lead > 0) AS first_questions,
               count(*) FILTER (WHERE counts_question AND first_lead < 0) AS second_questions,
               count(longer_won) AS n_unequal, count(*) FILTER (WHERE longer_won) AS longer_wins,
               longer_wins / nullif(n_unequal, 0) AS longer_share,
               count(*) FILTER (WHERE counts_question AND longer_lead > 0) AS longer_questions,
               count(*) FILTER (WHERE counts_question AND longer_lead < 0) AS shorter_questions
        FROM judged_rounds WHERE kind = 'pair'
        GROUP BY GROUPING SETS ((judge_id, judge, rubric, benchmark), (judge_id, judge, rubric, benchmark, run_id,
                                                                       against_run_id))
    """,
    # People's latest opinions on unchanged answers. The verdict on a pair is about both answers: a row each.
    "rated_answers": f"""
        WITH asked AS (
            SELECT set_id, item, benchmark, task, sample_id, unnest(try_cast(meta->'answers' AS JSON[])) AS one
            FROM rating_items
        ), changed AS (
            SELECT DISTINCT set_id, item, g.run_id, g.iteration
            FROM asked a JOIN generations g ON g.run_id = a.one->>'run_id' AND g.benchmark = a.benchmark
                AND g.task = a.task AND g.sample_id = a.sample_id
                AND g.iteration = try_cast(a.one->>'iteration' AS INTEGER)
            WHERE g.error IS NOT NULL OR {ANSWER_HASH.format(row="g")} <> a.one->>'sha256'
        ), last AS (
            SELECT * FROM ratings r ANTI JOIN changed USING (set_id, item, run_id, iteration)
            QUALIFY row_number() OVER (PARTITION BY {_RATER} ORDER BY revision DESC) = 1
        ), said AS (
            SELECT s.set_id, s.kind, s.scale_low, s.scale_high, l.item, i.position, i.benchmark, i.task, i.sample_id,
                   l.rater, l.run_id, l.iteration, nullif(l.against_run_id, '') AS against_run_id, l.against_iteration,
                   CASE WHEN s.kind = 'score' THEN l.score END AS rating,
                   CASE WHEN s.kind = 'pair' THEN l.verdict END AS verdict, l.created_at
            FROM last l JOIN rating_sets s USING (set_id) JOIN rating_items i USING (set_id, item)
            ANTI JOIN changed c ON c.set_id = l.set_id AND c.item = l.item AND c.run_id = l.against_run_id
                AND c.iteration = l.against_iteration
            WHERE rating IS NOT NULL OR verdict IS NOT NULL
        ), sides AS (
            FROM said UNION ALL BY NAME
            SELECT * REPLACE (against_run_id AS run_id, against_iteration AS iteration, run_id AS against_run_id,
                              iteration AS against_iteration,
                              CASE verdict WHEN 'answer' THEN 'against' WHEN 'against' THEN 'answer'
                                   ELSE verdict END AS verdict)
            FROM said WHERE against_run_id IS NOT NULL
        )
        SELECT b.*, CASE WHEN b.kind = 'score' THEN (b.rating - b.scale_low) / (b.scale_high - b.scale_low)
                         WHEN b.verdict = 'answer' THEN 1.0 WHEN b.verdict = 'against' THEN 0.0 ELSE 0.5 END AS score,
               coalesce(a.context_sha256, '') AS document_sha256
        FROM sides b LEFT JOIN samples a USING (benchmark, task, sample_id)
    """,
    # The mean is summed like on official pages: each score times its count, in order of appearance.
    "rating_results": f"""
        WITH given AS (
            SELECT set_id, kind, scale_low, scale_high, benchmark, run_id, against_run_id, task, rating, verdict,
                   count(*) AS n, sum(score) AS score, min(position) AS place
            FROM rated_answers
            GROUP BY GROUPING SETS (
                (set_id, kind, scale_low, scale_high, benchmark, run_id, against_run_id, rating, verdict),
                (set_id, kind, scale_low, scale_high, benchmark, run_id, against_run_id, task, rating, verdict))
        ), counts AS (
            SELECT set_id, benchmark, run_id, against_run_id, task, count(DISTINCT item) AS n_items,
                   count(DISTINCT rater) AS n_raters
            FROM rated_answers
            GROUP BY GROUPING SETS ((set_id, benchmark, run_id, against_run_id),
                                    (set_id, benchmark, run_id, against_run_id, task))
        ), told AS (
            SELECT set_id, kind, scale_low, scale_high, benchmark, run_id, against_run_id, task,
                   sum(n)::BIGINT AS n_ratings,
                   sum(rating * n ORDER BY place) / sum(n) FILTER (WHERE rating IS NOT NULL) AS mean,
                   coalesce(sum(n) FILTER (WHERE verdict = 'answer'), 0)::BIGINT AS n_wins,
                   coalesce(sum(n) FILTER (WHERE verdict IN ('tie', 'both_bad')), 0)::BIGINT AS n_draws,
                   coalesce(sum(n) FILTER (WHERE verdict = 'against'), 0)::BIGINT AS n_losses,
                   sum(score) / sum(n) AS score
            FROM given GROUP BY ALL
        )
        SELECT t.set_id, t.kind, t.benchmark, t.run_id, r.model, t.against_run_id, t.task, c.n_items, t.n_ratings,
               c.n_raters, t.mean, {_OF_PAIRS},
               CASE WHEN t.kind = 'pair' THEN t.score END AS win_rate, t.score, t.scale_low, t.scale_high
        FROM told t LEFT JOIN runs r USING (run_id)
        JOIN counts c ON c.set_id = t.set_id AND c.benchmark = t.benchmark AND c.run_id = t.run_id
            AND c.against_run_id IS NOT DISTINCT FROM t.against_run_id AND c.task IS NOT DISTINCT FROM t.task
    """,
}


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

# Uncertainty of a number; bounds given the unanswered samples.
_INTERVAL_OF = ", ".join(f"{{t}}.{name}" for name in INTERVAL_COLUMNS)
_UNOFFICIAL_OF = "{t}.answered, {t}.asked, {t}.failed_as_0, {t}.failed_as_1"


def _in_units(unit: str, table: str, zero: str = "0") -> str:
    """SQL for a table's interval columns, scaled to official numbers by ``unit``; ``zero`` is added to both ends."""
    scaled = {"low": f"{zero} + {unit} * {table}.low AS low", "high": f"{zero} + {unit} * {table}.high AS high",
              "se": f"{unit} * {table}.se AS se"}  # fmt: skip
    return ", ".join(scaled.get(name, f"{table}.{name}") for name in INTERVAL_COLUMNS)


HEADS = """
            SELECT run_id, benchmark, task, arg_max(metric, n) AS metric FROM (
                SELECT run_id, benchmark, task, metric, count(*) AS n FROM {scores}
                GROUP BY ALL HAVING bool_or(headline)
            ) GROUP BY ALL"""
"""Headline metric of each task: of its answers' headline metrics, the metric that all of them have."""

_LONGEST_VALUE, _LONGEST_WORDS = 24, 80


def _count_if_known(condition: str) -> str:
    """SQL for the number of rows that satisfy a condition; NULL if it is unknown for all rows."""
    return f"CASE WHEN count({condition}) > 0 THEN count(*) FILTER (WHERE {condition}) END"


RUN_COVERAGE = f"""
    SELECT run_id, {_ANSWERED_PART} || CASE WHEN iterations > 1 THEN ' answers' ELSE ' samples' END AS covered
    FROM (SELECT run_id, {_ADDED_COVERAGE} FROM coverage GROUP BY ALL) c
"""
"""A row per run: the part of its samples that have an answer, or of its answers, in words; NULL if none is missing."""

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
"""Numbers of tasks and over tasks with the columns of their keys (``NumberKey``); ``unit`` is of ``official``."""

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
"""The view ``paper`` with the columns of its numbers' keys."""

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
    # Number of a task's samples that have an answer; bundle_samples is NULL if unknown (older or imported runs).
    # Metrics count scorable_samples of these: others are only for judges and people.
    "coverage": f"""
        SELECT *, bundle_samples * iterations AS bundle_answers
        FROM (
            SELECT g.run_id, g.benchmark, g.task, g.samples,
                   (r.task_samples->>g.place)::BIGINT AS bundle_samples,
                   (r.task_samples->>g.place)::BIGINT - coalesce((r.unscored_samples->>g.place)::BIGINT, 0)
                       AS scorable_samples,
                   greatest(g.iterations, try_cast(r.settings->>'iterations' AS BIGINT)) AS iterations, g.answers
            FROM (
                SELECT run_id, benchmark, task, '$."' || benchmark || '/' || task || '"' AS place,
                       count(DISTINCT sample_id) FILTER (WHERE error IS NULL) AS samples,
                       count(*) FILTER (WHERE error IS NULL) AS answers, max(iteration) + 1 AS iterations
                FROM generations WHERE {_EVALUATED} GROUP BY ALL
            ) g JOIN runs r USING (run_id)
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
    **JUDGING_VIEWS,
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
                   {", ".join(f"{mark.count('generations')} AS {mark.name}" for mark in OF_ANSWERS)},
                   CASE WHEN count(truncated) > 0 THEN coalesce(sum(tokens_cut), 0) END::BIGINT AS tokens_cut
            FROM generations WHERE {_EVALUATED} GROUP BY ALL
        ), judged AS (
            SELECT run_id, benchmark, task, count(*) FILTER (WHERE error IS NOT NULL) AS official_errors,
                   count(*) FILTER (WHERE partial IS NOT NULL) AS partial, any_value(partial) AS lacks,
                   count(*) FILTER (WHERE extracted = '') AS unextracted
            FROM scores WHERE headline GROUP BY ALL
        )
        SELECT m.run_id, r.model, r.backend, m.benchmark, m.task, m.n, m.empty_prompts, m.failed, m.doubled_bos,
               m.reasoning_unclosed, m.answers_cut, m.stop_in_reasoning, m.truncated, m.tokens_cut, m.reference_cut,
               coalesce(j.official_errors, 0) AS official_errors, coalesce(j.partial, 0) AS partial, j.lacks,
               r.mode, coalesce(j.unextracted, 0) AS unextracted, m.empty_answers, m.question_changed
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
