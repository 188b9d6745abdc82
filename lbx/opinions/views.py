"""SQL of the views of judgements and ratings, which ``lbx.results.views`` adds to a results file.

A judge is a run with samples of the benchmark "judge". For each sample, a row of ``rounds`` names the judged answer.
Judgements of an answer that has changed since (not ``current``) stay in ``judgements``, but no number includes them.
"""

from __future__ import annotations

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


def _same_answer_condition(generation: str, side: str) -> str:
    """Build the SQL condition that a stored answer is unchanged since the judgement, or missing from the file."""
    judged = f"d.{side}_sha256"
    return (
        f"({generation}.run_id IS NULL OR {judged} IS NULL "
        f"OR ({generation}.error IS NULL AND {ANSWER_HASH.format(row=generation)} = {judged}))"
    )


OPINION_VIEWS: dict[str, str] = {
    "judges": """
        SELECT run_id AS judge_id, model, backend, backend_version, settings->>'rubric' AS rubric,
               settings->>'rubric_source' AS rubric_source, settings->>'rubric_sha256' AS rubric_sha256, settings,
               bundle_digest, lbx_version, started_at, finished_at, status
        FROM runs WHERE benchmark_versions->>'judge' IS NOT NULL
    """,
    # A row per prompt (or imported text) of a judge; the subject of a verdict is the judged answer.
    "judgements": f"""
        WITH said AS (
            SELECT g.*, s.extracted, s.score, s.partial
            FROM generations g LEFT JOIN (SELECT * FROM scores WHERE benchmark = 'judge' AND headline) s
                USING (run_id, benchmark, task, sample_id, iteration)
            WHERE g.benchmark = 'judge'
        )
        SELECT s.run_id AS judge_id, d.benchmark, d.task, d.sample_id, d.run_id, d.iteration, d.against_run_id,
               d.against_iteration, d.answer_first, CASE WHEN d.kind = 'pair' THEN s.extracted END AS verdict,
               CASE WHEN d.kind = 'score' THEN try_cast(s.extracted AS DOUBLE) END AS rating,
               CASE WHEN s.error IS NOT NULL THEN 'failed' WHEN s.partial IS NOT NULL THEN 'ambiguous'
                    WHEN s.score IS NOT NULL THEN 'ok' WHEN s.finish_reason = 'length' THEN 'cut'
                    ELSE 'none' END AS state,
               s.output, s.reasoning, s.finish_reason, s.prompt_tokens, s.cached_tokens, s.output_tokens,
               s.prompt_sha256, s.seed, s.error, s.error_type, s.source_row, s.created_at, d.rubric,
               d.document_sha256, d.answer_words, d.against_words, d.marks, d.kind, s.score, d.round_id,
               s.iteration AS judge_iteration,
               {_same_answer_condition("r", "answer")} AND {_same_answer_condition("b", "against")} AS current,
               d.scale_low, d.scale_high
        FROM said s JOIN rounds d ON (d.rubric, d.round_id) = (s.task, s.sample_id)
        LEFT JOIN generations r ON r.run_id = d.run_id AND r.benchmark = d.benchmark AND r.task = d.task
            AND r.sample_id = d.sample_id AND r.iteration = d.iteration
        LEFT JOIN generations b ON b.run_id = d.against_run_id AND b.benchmark = d.benchmark AND b.task = d.task
            AND b.sample_id = d.sample_id AND b.iteration = d.against_iteration
    """,
    # The judgements that numbers include, each with the combined result of its question's rounds. A question
    # with two marks was two rows of the official file: a verdict counts for each of them (``copies``), except for rows
    # that have their own verdict, and for marks that this judge was not asked about.
    "judged_rounds": f"""
        WITH counting AS (
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
            FROM counting GROUP BY ALL
        ), weighed AS (
            SELECT r.*, all_marked, coalesce(list_filter(r.marks, lambda m: list_contains(a.asked, m)), []) AS held
            FROM counting r JOIN asked a ON a.judge_id = r.judge_id AND a.benchmark = r.benchmark
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
        WITH by_mark AS (
            SELECT *, unnest(list_concat(['all'], list_transform(marks, lambda m: lower(m)))) AS questions
            FROM judged_rounds
        ), counted AS (
            SELECT * REPLACE (CASE WHEN questions = 'all' THEN copies ELSE 1 END AS copies) FROM by_mark
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
