"""A file that an older lbx made: brought up to date with nothing lost, and never changed by reading."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from store_rows import RUN, generation, sample, score

from lbx.base.errors import StoreError
from lbx.base.records import SampleKey
from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.base.rubric import Rubric
from lbx.benchmarks.judge.benchmark import Round
from lbx.benchmarks.longbench.benchmark import LongBench
from lbx.report import render
from lbx.report.cells import sheet
from lbx.report.reports import REPORTS, read
from lbx.report.terminal import lines
from lbx.scoring.reading import read_added_up
from lbx.scoring.scores import Rescoring, rescore
from lbx.store import GenerationRow, GroupRow, ResultRow, RunRow, SampleRow, Store
from lbx.store import contents as contents_of_files
from lbx.store import views as store_views
from lbx.store.migrations import MIGRATIONS, UNITS, UNSCORED_SAMPLES
from lbx.store.ratings import RatingSetRow, write_ratings

TABLES = ("runs", "samples", "generations", "scores", "task_results")
OLD_VIEWS = {
    "newest_scores": "SELECT * FROM scores",
    "task_scores": """
        SELECT t.run_id, r.model, t.benchmark, t.task, t.metric, t.n, t.score, t.official, t.headline, r.backend
        FROM task_results t JOIN runs r USING (run_id)
    """,
    "failures": "SELECT run_id, benchmark, task, sample_id, iteration, error FROM generations WHERE error IS NOT NULL",
    "of_that_time": "SELECT count(*) AS answers FROM generations",
}
"""Narrower than today's, as the first tables allowed."""

ROWS = """
INSERT INTO lbx_schema VALUES (1, TIMESTAMP '2026-01-02 03:04:05');
INSERT INTO runs VALUES
    ('r1', 'demo', 'llamacpp', '0.3', '{"longbench": 1}', 'digest', '{"seed": 0}', '{"cores": 2}', '0.1',
     TIMESTAMP '2026-01-02 03:04:05', TIMESTAMP '2026-01-02 04:04:05', 'done'),
    ('r2', 'demo', 'llamacpp', '0.3', '{"longbench": 1}', 'digest', '{"seed": 1}', '{}', '0.1',
     TIMESTAMP '2026-01-03 03:04:05', NULL, 'interrupted');
INSERT INTO samples VALUES
    ('longbench', 'qasper', 'a', 'en', 900, 'words', '["one"]', 'Who?', 'hash-a', '{"all_classes": null}', 0),
    ('longbench', 'qasper', 'b', 'en', 5000, 'words', '["two", "2"]', '', 'hash-b', '{}', 1);
INSERT INTO generations VALUES
    ('r1', 'longbench', 'qasper', 'a', 0, 'one', NULL, 'stop', 100, 20, 3, 100, false, 'sha-a', 'prompts.json',
     0.5, 0.25, 7, NULL, TIMESTAMP '2026-01-02 03:05:00'),
    ('r1', 'longbench', 'qasper', 'b', 0, 'none ' || chr(0) || '文', 'so', 'length', 90, 0, 32, 140, true, 'sha-b',
     'prompts.json', 0.5, 0.25, 7, NULL, TIMESTAMP '2026-01-02 03:06:00'),
    ('r2', 'longbench', 'qasper', 'a', 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'prompts.json',
     NULL, NULL, NULL, 'out of memory', TIMESTAMP '2026-01-03 03:06:00');
INSERT INTO scores VALUES
    ('r1', 'longbench', 'qasper', 'a', 0, 'f1', 1, 1.0, 'one', true),
    ('r1', 'longbench', 'qasper', 'b', 0, 'f1', 1, 0.25, NULL, true);
INSERT INTO task_results VALUES ('r1', 'longbench', 'qasper', 'f1', 1, 2, 0.625, 62.5, true, 0);
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file as the first lbx left it."""
    made = tmp_path / "old.duckdb"
    with duckdb.connect(str(made)) as connection:
        connection.execute(MIGRATIONS[0])
        connection.execute("CREATE TABLE lbx_schema (version INTEGER, applied_at TIMESTAMP)")
        connection.execute(ROWS)
        for name, query in OLD_VIEWS.items():
            connection.execute(f"CREATE VIEW {name} AS {query}")
    return made


def contents(path: Path) -> dict[str, list[dict[str, Any]]]:
    """All rows of the first tables, by column."""
    found = {}
    with duckdb.connect(str(path), read_only=True) as connection:
        for table in TABLES:
            cursor = connection.execute(f"SELECT * FROM {table} ORDER BY ALL")
            names = [item[0] for item in cursor.description or ()]
            found[table] = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return found


def test_nothing_is_lost(path: Path) -> None:
    before = contents(path)
    Store(path).close()
    after = contents(path)
    for table, rows in before.items():
        assert len(after[table]) == len(rows)
        for old, new in zip(rows, after[table], strict=True):
            assert {name: new[name] for name in old} == old
            unknown = new.keys() - old.keys() - {"unit", "in_paper"}
            assert all(new[name] is None for name in unknown), "what was not known stays unknown"
    with duckdb.connect(str(path), read_only=True) as connection:
        steps = connection.execute("SELECT version FROM lbx_schema ORDER BY 1").fetchall()
        assert steps == [(number,) for number in range(1, len(MIGRATIONS) + 1)]
    Store(path).close()
    assert contents(path) == after, "opening it again changes nothing"


def test_a_document_that_nobody_knew_has_no_hash(path: Path) -> None:
    """An older lbx wrote down the hash of an empty text: all of an import's questions were on one document."""
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE samples SET context_sha256 = sha256('') WHERE sample_id = 'b'")
    with Store(path) as store:
        assert store.query("SELECT context_sha256 FROM samples ORDER BY sample_id").rows == [("hash-a",), (None,)]


def test_units_and_the_papers_lines_are_told_of_old_numbers(tmp_path: Path) -> None:
    path, scale = tmp_path / "r.duckdb", Rubric("scale", "score", "", "{answer}", pattern="{rating}", low=1, high=10)
    said = Round("leval", "tpo", "s", "", (), "r1", "", 0).sample(scale)
    number = ("average", 1, 1, 0.5, 5.0, False)
    with Store(path) as store:
        store.begin_run(RUN)
        store.write(samples=[SampleRow(said, 0)], generations=[GenerationRow("j", *said.key, output="5")])
        write_ratings(store, [RatingSetRow("people", "score", "open", [], 0.0, 2.0)], [], [], replace=True)
        store.write_results([
            *(ResultRow("r1", *of, 1, 1, 0.5, 50.0, headline, place, unit=unit, in_paper=in_paper)
              for place, (*of, headline, unit, in_paper) in enumerate((
                  ("leval", "tpo", "f1", True, 100, True), ("leval", "tpo", "fact", False, 100, True),
                  ("longbench", "lcc", "f1", True, 100, True), ("longbench", "lcc", "f1/0-4k", False, 100, True),
                  ("longbench", "lcc", "f1_all", False, 100, False), ("longbench_pro", "t1", "f1", True, 1, True),
              ))),
            GroupRow("r1", "longbench_pro", "overall", "all", *number, 0, unit=1),
            *(GroupRow("r1", "leval", grouping, name, "rating", *number[1:], place, unit=unit)
              for place, (grouping, name, unit) in enumerate((
                  ("judge", "j", 9), ("judge", "j, llm questions", 9), ("people", "people", 2)))),
            GroupRow("r1", "leval", "judge", "j vs x", "win_rate", *number[1:], 9),
        ])  # fmt: skip
    made = [f"FROM {table} ORDER BY ALL" for table in ("task_results", "group_results", "paper")]
    with Store(path, read_only=True) as store:
        wanted = [store.query(sql).rows for sql in made]
    with duckdb.connect(str(path)) as connection:
        first = MIGRATIONS.index(UNITS)
        connection.execute("DELETE FROM lbx_schema WHERE version > ?", [first])
        for table, column in re.findall(r"ALTER TABLE (\w+) ADD COLUMN (\w+)", "".join(MIGRATIONS[first:])):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    with Store(path) as store:
        assert [store.query(sql).rows for sql in made] == wanted and len(wanted[1]) == 5


def test_every_report_works_on_it(path: Path) -> None:
    with Store(path) as store:
        made = {name: read(store, name) for name in REPORTS}
        for name, table in made.items():
            render.markdown(sheet(REPORTS[name], table))
            list(lines(sheet(REPORTS[name], table, curves=True), 80))
            "".join(render.csv_pieces(table.columns, table.rows))
        json.loads("".join(render.json_of_tables(made)))
        (score_row,) = made["task_scores"].dicts()
        assert (score_row["n"], score_row["official"], score_row["partial"]) == (2, 62.5, False)
        assert score_row["marks"] == "answer at its limit 50%; prompt cut 50%"
        first, second = made["guards"].dicts()
        assert (first["run_id"], first["n"], first["truncated"], first["tokens_cut"], first["mode"]) == (
            "r1", 2, 1, 0, None,
        )  # fmt: skip
        assert (second["failed"], second["empty_prompts"], second["doubled_bos"]) == (1, 0, None)
        (cut,) = [row for row in made["truncation"].dicts() if row["run_id"] == "r1"]
        assert (cut["truncated"], cut["mean_tokens_cut"], cut["longest_prompt"]) == (1, 50, 140)
        assert [row["line"] for row in made["paper"].dicts()] == ["qasper"]
        assert [row["error"] for row in made["failures"].dicts()] == ["out of memory"]
        for view in store_views.VIEWS:
            store.query(f"SELECT * FROM {view}")


def test_its_runs_go_on(path: Path) -> None:
    with Store(path) as store:
        row = RunRow("r1", "demo", "llamacpp", "0.4", {"leval": 1}, "digest", {"seed": 0}, {}, "0.2")
        assert store.begin_run(row) == {SampleKey("longbench", "qasper", name) for name in "ab"}
        versions = store.query("SELECT benchmark_versions::VARCHAR, lbx_version FROM runs WHERE run_id = 'r1'").rows
        assert [(json.loads(text), lbx) for text, lbx in versions] == [({"longbench": 1, "leval": 1}, "0.2")]
        answer = generation("r1", output="here", output_ids=[4, 2])
        store.write(samples=[sample()], generations=[answer], scores=[score("r1")])
        held = store.query("SELECT output_ids FROM generations WHERE run_id = 'r1' ORDER BY created_at").rows
        assert held == [(None,), (None,), ([4, 2],)], "of old answers they are not known"
    with read_added_up(path) as store:
        assert store.query("SELECT count(*) FROM task_scores WHERE run_id = 'r1'").rows == [(2,)]


def test_its_answers_are_scored_again(path: Path) -> None:
    """As the command does that reading proposes; the old numbers stay, for those who ask for them."""
    with Store(path) as store:
        old = store.query("SELECT n, score, official FROM task_scores").rows
        assert rescore(store, Rescoring(BENCHMARKS)) == 2
        version = LongBench.metric_version
        assert version > 1
        found = store.query("SELECT n, score, official, metric_version, task_position FROM task_scores").rows
        assert found == [(2, 0.5, 50.0, version, LongBench.known_tasks.index("qasper"))]
        store.use_metric_versions({"longbench": 1})
        assert store.query("SELECT n, score, official FROM task_scores").rows == old == [(2, 0.625, 62.5)]


def test_reading_says_what_to_do_and_changes_nothing(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"older lbx \(tables version 1 of \d") as caught:
        Store(path, read_only=True)
    assert caught.value.command == f"lbx score {path}"
    assert path.read_bytes() == before
    Store.check(path)
    Store(path, read_only=True).close()


def test_a_step_that_fails_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(path)
    with monkeypatch.context() as patched:
        patched.setattr("lbx.store.preparing.MIGRATIONS", (*MIGRATIONS, "ALTER TABLE nowhere ADD COLUMN x INTEGER"))
        with pytest.raises(StoreError, match="could not be written"):
            Store(path)
    assert contents(path) == before
    Store(path).close()


def test_views_are_kept_as_they_are_written() -> None:
    """DuckDB writes EXCLUDE (a, b) in either order; a view that has it would look like another lbx's now and then, and
    be made anew whenever the file is opened."""
    for name, query in store_views.VIEWS.items():
        assert not re.search(r"(?i)\bEXCLUDE\s*\([^)]*,", query), name


def test_views_of_today_are_known_by_their_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path / "new.duckdb") as store:
        kept = dict(store.query("SELECT view_name, sql FROM duckdb_views() WHERE NOT internal").rows)
        assert contents_of_files.views_digest(kept) == contents_of_files.VIEWS_DIGEST, "write this into contents.py"
        other = {**kept, "coverage": "CREATE VIEW coverage AS SELECT 1;"}
        assert contents_of_files.views_digest(other) != contents_of_files.VIEWS_DIGEST
        monkeypatch.setattr(contents_of_files, "VIEWS_DIGEST", "with another DuckDB")
        assert contents_of_files.has_todays_views(store.connection)


def test_reading_brings_its_own_views(path: Path) -> None:
    """A file of today's tables whose views are another lbx's."""
    with Store(path) as store:
        wanted = {name: read(store, name).rows for name in REPORTS}
    with duckdb.connect(str(path)) as connection:
        for name, query in OLD_VIEWS.items():
            connection.execute(f"CREATE OR REPLACE VIEW {name} AS {query}")
    with Store(path, read_only=True) as store:
        assert {name: read(store, name).rows for name in REPORTS} == wanted
        assert store.query("SELECT mode FROM task_scores").rows == [(None,)]
        assert store.query("SELECT answers FROM of_that_time").rows == [(3,)]


BEFORE_UNSCORED = """
INSERT INTO runs (run_id, model, backend, backend_version, benchmark_versions, bundle_digest, settings, hardware,
                  lbx_version, started_at, status, task_samples)
SELECT col0, 'm', 'hf', '1', '{"leval": 1}', '', '{}', '{}', '0.1', TIMESTAMP '2026-01-02 03:04:05', 'done', col1
FROM (VALUES ('r1', '{"leval/scientific_qa": 3, "leval/tpo": 1}'), ('r2', '{"leval/tpo": 1}'));
INSERT INTO samples
SELECT 'leval', col0, col1, 'en', 9, 'words', '["one"]', 'Who?', 'hash', json_object('evaluation', col2), 0
FROM (VALUES ('scientific_qa', 'a', 'f1'), ('scientific_qa', 'b', 'LLM'), ('scientific_qa', 'c', 'f1'),
             ('tpo', 'd', 'exam'));
INSERT INTO generations (run_id, benchmark, task, sample_id, iteration, output, created_at)
SELECT run_id, benchmark, task, sample_id, 0, 'one', started_at FROM runs, samples WHERE run_id = 'r1' OR task = 'tpo';
"""


def test_a_run_of_before_tells_what_no_metric_counts(tmp_path: Path) -> None:
    """L-Eval asks some questions for judges and people alone: without them a complete run has its official numbers."""
    path, version = tmp_path / "leval.duckdb", MIGRATIONS.index(UNSCORED_SAMPLES)
    with duckdb.connect(str(path)) as connection:
        connection.execute("".join(MIGRATIONS[:version]))
        connection.execute("CREATE TABLE lbx_schema (version INTEGER, applied_at TIMESTAMP)")
        connection.execute(f"INSERT INTO lbx_schema VALUES ({version}, TIMESTAMP '2026-01-02 03:04:05')")
        connection.execute(BEFORE_UNSCORED)
    with Store(path) as store:
        counts = store.query("SELECT run_id, unscored_samples FROM runs ORDER BY 1").rows
        assert counts == [("r1", '{"leval/scientific_qa":1}'), ("r2", None)]
        assert rescore(store, Rescoring(BENCHMARKS)) == 5
        numbers = store.query("SELECT task, n, official, partial FROM task_scores WHERE run_id = 'r1'").rows
        assert ("scientific_qa", 2, 100.0, False) in numbers
