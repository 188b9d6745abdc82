"""Every report of files in which a column that may be NULL is NULL everywhere, one column at a time."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from lbx.base.errors import UsageError
from lbx.base.records import Sample
from lbx.opinions.rating_rows import RatingRow
from lbx.report import overview
from lbx.report.format.table_cells import sheet
from lbx.report.format.terminal import lines
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.report.rows import paper as papers
from lbx.results import Store
from lbx.results.schema import SCHEMA
from tests import profiles
from tests.judged_rounds import BASELINE, SCALE, Said, add_judge, add_ratings, always_first, calibration, like_gpt4
from tests.made_depth import add_depth
from tests.report.made_runs import add_run, trec

SESSIONS = """
    INSERT INTO sessions BY NAME
    SELECT run_id, 1 AS session, TIMESTAMP '2026-01-01' AS started_at, TIMESTAMP '2026-01-02' AS finished_at,
           'done' AS status, 0 AS workers, '{"cores": 2}' AS hardware, '{}' AS spec, 'rates' AS estimate_basis,
           9 AS planned_samples, 90 AS planned_prompt_tokens, 80 AS planned_distinct_tokens, 10 AS planned_new_tokens,
           5.0 AS estimated_s, 9 AS answered, 1 AS failed, 90 AS prompt_tokens, 85 AS computed_tokens,
           5 AS output_tokens, 6.0 AS wall_s, 3.0 AS prefill_s, 2.0 AS decode_s, 1000 AS peak_memory_bytes,
           0 AS done_before, 9 AS to_ask
    FROM runs
"""
GENERATIONS = """
    UPDATE generations SET
        reasoning = 'so', finish_reason = 'stop', prompt_tokens = 90, cached_tokens = 10, output_tokens = 5,
        original_tokens = 99, truncated = true, prompt_sha256 = 'f', prompt_source = 'p', prefill_s = 0.5,
        decode_s = 0.25, seed = 0, reasoning_tokens = 2, reasoning_closed = true, stop_in_reasoning = false,
        tokens_cut = 9, reference_cut = false, bos_tokens = 1, steps = '[{"output": "a"}]', output_ids = [1, 2],
        system_prompt = 'message', served_model = 'm'
    WHERE error IS NULL
"""
OTHERS = (
    "UPDATE numbers SET within = 0.1",
    "UPDATE generations SET output_sha256 = sha256(output), output_words = 3, instructions_sha256 = sha256('x')",
    "UPDATE runs SET rescorings = '[]'",
    "UPDATE samples SET text_hashes = '{}'",
    "UPDATE generations SET source_row = '{}', error_type = CASE WHEN error IS NOT NULL THEN 'PromptError' END",
    "UPDATE runs SET metadata = '{\"a\": \"b\"}', unscored_samples = '{\"longbench/trec\": 1}' WHERE run_id = 'a'",
    "UPDATE scores SET error = 'it broke' WHERE run_id = 'a'",
    "UPDATE scores SET partial = 'half', loose = score >= 1 WHERE run_id = 'b'",
    "UPDATE ratings SET comment = 'so', seconds = 5, shown_at = 1, source_row = '{}'",
    "UPDATE rating_sets SET bundle_digest = 'digest', raters_per_item = 2",
)


def _fill(store: Store) -> None:
    """Runs with failures, judges, raters and sessions."""
    questions = [
        Sample("leval", "narrative_qa", f"q{n}", f"{n // 2}", "Who?", ("He did",), "en", 900) for n in range(8)
    ]
    for model in ("claude-100k", "gpt4-32k", "llama2-13b-chat-4k", "turbo-16k-0613"):
        answers = [(one, f"{model} says {n}") for n, one in enumerate(questions)]
        add_run(store, f"published-{model}", answers, model=model)
    needle = Sample("needle", "single_en", "a", "a", "?", ("7",), "en", 900, meta={"depth": 50.0, "words": 9})
    for name in ("a", "b"):
        add_run(store, name, [*trec(3, 9, failed=2), (needle, "7")], counts={"longbench/trec": 11})
    add_judge(store, "pairs", calibration(like_gpt4, 8))
    add_judge(store, "first", calibration(always_first, 8))
    alone = (replace(one.round, against_run_id=None) for one in calibration(like_gpt4, 8))
    add_judge(store, "rates", [Said(one, "[[4]]") for one in alone if one.answer_first], rubric=SCALE)
    scores = [
        RatingRow("s", n, rater, f"published-{model}", score=float(1 + (n + len(model)) % 5))
        for n in range(8) for rater in ("ann", "bob") for model in ("claude-100k", "gpt4-32k")
    ]  # fmt: skip
    add_ratings(store, "s", "score", scores, 8)
    pairs = [
        RatingRow("p", n, rater, "published-claude-100k", against_run_id=BASELINE, verdict=verdict)
        for n, verdict in enumerate(("answer", "against", "tie", "both_bad")) for rater in ("ann", "bob")
    ]  # fmt: skip
    add_ratings(store, "p", "pair", pairs, 4)
    add_depth(store)
    for statement in (SESSIONS, GENERATIONS, *OTHERS):
        store.query(statement)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "whole.duckdb"
    with Store(path) as store:
        _fill(store)
    return path.read_bytes()


def _columns() -> list[tuple[str, str]]:
    """The columns that may be NULL, by their tables. All files with texts have NULL in ``runs.texts``."""
    with duckdb.connect() as connection:
        connection.execute(SCHEMA)
        return connection.execute(
            "SELECT table_name, column_name FROM duckdb_columns() "
            "WHERE is_nullable AND (table_name, column_name) <> ('runs', 'texts') "
            "AND table_name IN (SELECT table_name FROM duckdb_tables()) ORDER BY ALL"
        ).fetchall()


def _all_reports(path: Path) -> None:
    with Store(path, read_only=True) as store:
        for name in REPORTS:
            baseline = "a" if name in ("changes", "comparison") else ""
            query = ReportQuery(baseline=baseline, expected_models=("llama",) if name == "expected" else ())
            try:
                table = read_report(store, name, query)
            except UsageError:
                assert name in ("changes", "comparison", "expected"), name
                continue
            for one in papers.sheets(table) if name == "paper" and table.rows else [sheet(REPORTS[name], table)]:
                _is_clean("\n".join(line.text for line in lines(one, None)))
        for one in overview.sheets(store, ReportQuery(), path):
            _is_clean("\n".join(line.text for line in lines(one, 80)))


def _is_clean(text: str) -> None:
    assert not re.search(r"(?<![\w.-])(?:nan|None|NULL)(?![\w-])", text), text[:2000]


@pytest.mark.parametrize(("table", "column"), profiles.every(3, _columns()), ids=lambda name: name)
def test_every_report_of_a_file_without_a_column(whole: bytes, tmp_path: Path, table: str, column: str) -> None:
    """Without its values in every other row; of tables of numbers, then in all of them."""
    path = tmp_path / "r.duckdb"
    for rows in ("rowid % 2 = 0", *(["true"] if table == "numbers" else [])):
        path.write_bytes(whole)
        with duckdb.connect(str(path)) as connection:
            connection.execute(f'UPDATE {table} SET "{column}" = NULL WHERE {rows}')
        _all_reports(path)


def test_the_file_of_this_test_has_every_value(whole: bytes, tmp_path: Path) -> None:
    """A column without any value would be no test."""
    path = tmp_path / "r.duckdb"
    path.write_bytes(whole)
    with duckdb.connect(str(path)) as connection:
        empty = [
            f"{table}.{column}"
            for table, column in _columns()
            if not connection.execute(f'SELECT count("{column}") FROM {table}').fetchall()[0][0]
        ]
    assert empty == [], empty
