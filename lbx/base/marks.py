"""Warning marks of answers and scores, in one table for views, reports, pages and lists of answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BLANK = r"[\s\x0B\x1C-\x1F\x85\p{Z}]*"
"""SQL pattern of the white space that ``str.strip`` removes."""
COUNT_WORDS = r"len(regexp_extract_all({text}, '[^\t-\r\x{{1c}}-\x{{1f}}\x{{85}}\p{{Z}}]+'))"
"""SQL for the number of words of a text, as ``str.split`` counts them."""
QUESTION_CHANGED, QUESTION_REMOVED = "QuestionChanged", "QuestionRemoved"
"""Values of ``generations.error_type`` for answers to questions that another revision changed or removed."""
UNFINISHED = "UnfinishedAnswer"
"""Value of ``generations.error_type`` for an answer with some finished steps, after which the next run continues."""
OUTDATED = f"coalesce({{g}}.error_type IN ('{QUESTION_CHANGED}', '{QUESTION_REMOVED}'), false)"
"""SQL condition for an answer {g} to a changed or removed question."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Warning mark: a condition that may make a score unreliable.

    Attributes:
        name: column in the view ``guards``.
        label: name in reports and lists of answers, and for ``lbx show --mark``.
        sentence, plural: "the prompt was cut" for one answer, "prompts were cut" for many.
        test: SQL condition on a row {g} of ``generations``, or on the headline metric's row of ``scores``; NULL if
            unknown.
        rank: priority of the mark's column; tables that are too wide drop high ranks first, and low ranks are the most
            severe.
        tests_score: whether ``test`` applies to ``scores``.
        severity: "fault": even a single case is reported in a sentence; "usual": no reason to inspect an answer.
        answer_test: test of a single answer, if ``test`` excludes rows of another mark so that they are counted once;
            "" means ``test``.
        known_test: SQL expression that is not NULL if the count is known; "" means that ``test`` serves for this.
        answer_text: text on the page of a single answer, formatted with its columns, or "" if it is not shown.
    """

    name: str
    label: str
    sentence: str
    plural: str
    test: str
    rank: int
    tests_score: bool = False
    severity: str = ""
    answer_test: str = ""
    known_test: str = ""
    answer_text: str = ""

    def answer_test_sql(self, row: str) -> str:
        """SQL condition for a marked answer, given the alias of the answer's row."""
        return f"({(self.answer_test or self.test).format(g=row)})"

    def count_sql(self, row: str) -> str:
        """SQL expression for the number of marked rows, or NULL if unknown for all rows."""
        known_sql, test_sql = ((text or self.test).format(g=row) for text in (self.known_test, self.test))
        return f"CASE WHEN count({known_sql}) > 0 THEN count(*) FILTER (WHERE {test_sql}) END"


MARKS: Sequence[Mark] = (
    Mark(
        "empty_prompts", "prompt empty", "truncation removed the whole prompt",
        "prompts were empty after truncation", "coalesce({g}.error_type = 'EmptyPromptError', false)", 4,
        severity="fault",
    ),
    Mark(
        "failed", "failed", "failed: no answer, no score", "answers failed",
        f"{{g}}.error IS NOT NULL AND {{g}}.error_type IS DISTINCT FROM 'EmptyPromptError' AND NOT {OUTDATED}", 0,
        answer_test=f"{{g}}.error IS NOT NULL AND NOT {OUTDATED}", answer_text="failed",
    ),
    Mark(
        "question_changed", "question changed", "the question changed after the answer",
        "answers are to questions that have changed", OUTDATED, 10, severity="fault",
        answer_text="the question has changed since the answer",
    ),
    Mark(
        "doubled_bos", "doubled BOS", "two BOS tokens", "prompts began with two BOS tokens",
        "{g}.bos_tokens > 1", 8, severity="fault", answer_text="doubled BOS",
    ),
    Mark(
        "reasoning_unclosed", "reasoning unclosed", "the reasoning never ended",
        "answers never finished their reasoning",
        "coalesce(NOT {g}.reasoning_closed, CASE WHEN {g}.stop_in_reasoning IS NOT NULL THEN false END)", 3,
        severity="fault", answer_text="the token limit was reached inside the reasoning",
    ),
    Mark(
        "answers_cut", "answer at its limit", "the answer reached its limit",
        "answers reached their length limit",
        "{g}.finish_reason = 'length' AND {g}.reasoning_closed IS DISTINCT FROM false", 2,
        answer_text="the answer reached its token limit",
    ),
    Mark(
        "empty_answers", "answer empty", "the answer is empty", "answers were empty",
        "{g}.error IS NULL AND {g}.reasoning_closed IS DISTINCT FROM false AND coalesce({g}.output_words = 0, "
        f"regexp_full_match(coalesce({{g}}.output, ''), '{BLANK.replace('{', '{{').replace('}', '}}')}'))", 2,
        severity="fault", answer_text="the answer is empty",
    ),
    Mark(
        "stop_in_reasoning", "stop string in reasoning",
        "the reasoning contained a stop string", "answers had a stop string in their reasoning",
        "{g}.stop_in_reasoning", 9, answer_text="a stop string inside the reasoning",
    ),
    Mark(
        "truncated", "prompt cut", "the prompt was cut", "prompts were cut", "{g}.truncated", 0,
        severity="usual", answer_text="{tokens_cut} tokens of the prompt were cut",
    ),
    Mark(
        "reference_cut", "reference cut away", "the only reference was cut away",
        "prompts lost the only occurrence of a reference answer",
        "CASE WHEN NOT {g}.truncated THEN false ELSE {g}.reference_cut END", 1, severity="fault",
        known_test="{g}.truncated", answer_text="the only occurrence of a reference was cut away",
    ),
    Mark(
        "official_errors", "official script stops", "the official script stops",
        "answers would stop the official script", "{g}.error IS NOT NULL", 6, tests_score=True,
    ),
    Mark(
        "unextracted", "nothing extracted", "no answer was extracted",
        "outputs had no extractable answer", "coalesce({g}.extracted = '', false)", 1, tests_score=True,
    ),
    Mark(
        "loose_matches", "loose match", "the answer is right by a loose match",
        "answers are right by a loose match", "{g}.loose", 7, tests_score=True,
    ),
    Mark(
        "partial", "score partial", "part of the score is missing", "scores lack part of their metric",
        "{g}.partial IS NOT NULL", 5, tests_score=True, severity="usual",
    ),
)  # fmt: skip
ANSWER_MARKS = tuple(mark for mark in MARKS if not mark.tests_score)
MARKS_BY_SEVERITY = tuple(sorted(MARKS, key=lambda mark: mark.rank))
