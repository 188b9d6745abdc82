"""The commands as a person uses them, on a real bundle with a scripted model: what they print, how they end."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pytest

from lbx.report import reports
from lbx.report.query import ReportQuery
from lbx.results.scoring.reading import open_with_numbers
from tests.command_line import Lbx, fails
from tests.screen import on_screen


@pytest.fixture(scope="session")
def results(lbx: Lbx, bundle: Path, answers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results") / "results.duckdb"
    lbx.ok("run", "--bundle", bundle, "--model", answers, "--tasks", "needle", "-o", path)
    return path


def test_tasks(lbx: Lbx, bundle: Path) -> None:
    rows = json.loads(lbx("tasks", "--bundle", bundle, "--json").stdout)
    assert {"needle/single_en", "needle/single_zh", "needle/multikey_en"} <= {row["task"] for row in rows}
    assert all(row["samples"] == 8 for row in rows)


def test_plan_counts_shared_documents_once(lbx: Lbx, bundle: Path, answers: Path) -> None:
    done = lbx("plan", "--bundle", bundle, "--model", answers, "--tasks", "needle/single_en", "--json")
    (row,) = json.loads(done.stdout)["tasks"]
    assert (row["samples"], row["refused"], row["truncated"]) == (8, 0, 0)
    assert row["longest"] < row["distinct_tokens"] < row["prompt_tokens"]


def test_run_scores_what_was_found(lbx: Lbx, results: Path) -> None:
    board = {row["task"]: row for row in json.loads(lbx("report", results, "task_scores", "--format", "json").stdout)}
    assert board["single_en"]["score"] == 1.0
    assert board["multikey_zh"]["score"] == 0.0
    assert board["single_en"]["n"] == 8


def test_same_command_again_does_nothing_again(lbx: Lbx, bundle: Path, answers: Path, results: Path) -> None:
    done = lbx("run", "--bundle", bundle, "--model", answers, "--tasks", "needle", "-o", results, "--json")
    said = json.loads(done.stdout)
    assert (said["answered"], said["failed"]) == (0, 0)
    assert said["done_before"] == 48


@pytest.mark.parametrize("output_format", ["markdown", "json", "latex"])
def test_whole_report(lbx: Lbx, results: Path, output_format: str) -> None:
    done = lbx.ok("report", results, "--format", output_format)
    for word in ("oracle", "single", "multikey"):
        assert word in done.stdout


def test_without_a_view_a_report_fits_one_screen(lbx: Lbx, results: Path) -> None:
    done = lbx.ok("report", results)
    assert done.stdout.count("\n") <= 60
    for word in ("oracle", "needle", "Leaderboard", f"lbx report {results} task_scores"):
        assert word in done.stdout


def test_report_formats_agree(lbx: Lbx, results: Path) -> None:
    rows = json.loads(lbx("report", results, "length_curve", "--format", "json").stdout)
    csv = lbx("report", results, "length_curve", "--format", "csv").stdout.splitlines()
    assert csv[0].split(",") == list(rows[0])
    assert len(csv) == len(rows) + 1
    markdown = lbx("report", results, "length_curve", "--format", "markdown").stdout
    lengths = sorted({row["length_up_to"] for row in rows})
    assert len(lengths) > 1 and f"| {' | '.join(f'{length:,}' for length in lengths)} |" in markdown


@pytest.mark.parametrize("output_format", ["table", "markdown", "json", "html", "csv", "latex"])
def test_a_report_in_a_file_is_the_one_on_standard_output(
    lbx: Lbx, results: Path, tmp_path: Path, output_format: str
) -> None:
    asked = ("report", results, "leaderboard", "--format", output_format)
    out = tmp_path / "out"
    written = lbx(*asked, "-o", out)
    assert written.stdout == "" and f"Written to {out}" in written.stderr
    assert out.read_text("utf-8") == lbx(*asked).stdout
    (tmp_path / "link").symlink_to("out")  # as /dev/stdout is one, perhaps to a file
    assert lbx(*asked, "-o", tmp_path / "link").returncode == 0
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out"]


def test_a_page_is_not_printed_on_a_terminal(results: Path) -> None:
    shown = on_screen("report", results, "--format", "html")
    assert shown.code == 2 and "-o report.html" in shown.raw and "<html" not in shown.raw


@pytest.mark.parametrize("view", ["paper", "leaderboard", "reference"])
def test_a_report_in_parquet_has_the_rows_of_json(lbx: Lbx, results: Path, tmp_path: Path, view: str) -> None:
    out = tmp_path / "x.parquet"
    for more in ((), ("--no-interval",)):
        assert lbx("report", results, view, "--format", "parquet", "-o", out, *more).returncode == 0
        done = lbx.ok("report", results, view, "--format", "json", *more)
        rows = json.loads(done.stdout)
        found = duckdb.sql(f"FROM '{out}'")
        names = found.columns
        assert not rows or names == list(rows[0])
        assert [dict(zip(names, row, strict=True)) for row in found.fetchall()] == rows
    assert lbx("report", results, view, "--format", "parquet").returncode == 2
    (tmp_path / "link").symlink_to("x.parquet")
    assert lbx("report", results, view, "--format", "parquet", "-o", tmp_path / "link").returncode == 2


def test_a_results_file_is_not_written_over(lbx: Lbx, results: Path, tmp_path: Path) -> None:
    before = results.read_bytes()
    for command in (("report", results), ("sql", results, "SELECT 1"), ("sql", results, "SELECT 1", "-f", "parquet")):
        done = lbx(*command, "-o", results)
        assert done.returncode == 2 and "would be overwritten" in done.stderr, done.stderr
    assert results.read_bytes() == before


def test_sql_formats(lbx: Lbx, results: Path, tmp_path: Path) -> None:
    query = "SELECT count(*) AS n, max(score) AS best FROM scores"
    assert lbx.rows(results, query) == [{"n": 48, "best": 1.0}]
    assert lbx("sql", results, query, "--format", "csv").stdout == "n,best\n48,1.0\n"
    for target in (tmp_path / "x.csv", tmp_path / "x.csv", "/dev/null"):
        assert lbx("sql", results, query, "--format", "csv", "-o", target).returncode == 0
    assert (tmp_path / "x.csv").read_text() == "n,best\n48,1.0\n"
    assert "best" in lbx("sql", results, query).stdout
    out = tmp_path / "x.parquet"
    assert lbx("sql", results, query, "--format", "parquet", "-o", out).returncode == 0
    assert duckdb.sql(f"SELECT n FROM '{out}'").fetchall() == [(48,)]


def test_score_again_changes_nothing(lbx: Lbx, results: Path) -> None:
    query = "SELECT * EXCLUDE (position) FROM task_scores ORDER BY ALL"
    before = lbx("sql", results, query, "--format", "csv").stdout
    assert lbx("score", results).returncode == 0
    assert lbx("sql", results, query, "--format", "csv").stdout == before


def test_failed_samples_are_rows_and_exit_code_3(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    table, path = tmp_path / "fails.jsonl", tmp_path / "results.duckdb"
    table.write_text('{"*": {"error": "the card caught fire"}}')
    command = ("run", "--bundle", bundle, "--model", table, "--tasks", "needle/single_en", "-o", path, "--name", "r")
    done = lbx(*command)
    assert done.returncode == 3
    assert "lbx report" in done.stderr
    rows = json.loads(lbx("report", path, "failures", "--format", "json").stdout)
    assert len(rows) == 8
    assert {row["error"] for row in rows} == {"the card caught fire"}
    assert lbx(*command, "--json").returncode == 3, "failed samples are still failed when nothing was tried again"


def test_failed_samples_are_asked_again_when_told_to(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    path, command = tmp_path / "results.duckdb", []
    card = tmp_path / "card.toml"
    card.write_text('name = "m"\nbackend = "scripted"\ncontext_window = 400\n[weights]\npath = "answers.jsonl"\n')
    (tmp_path / "answers.jsonl").write_text('{"*": "1"}')
    command = ["run", "--bundle", bundle, "--model", card, "--tasks", "needle/single_en", "-o", path, "--json"]
    first = lbx(*command)
    assert first.returncode == 3, "prompts longer than the window must fail, not be cut"
    failed = json.loads(first.stdout)["failed"]
    assert failed > 0
    again = json.loads(lbx(*command, "--retry-failed").stdout)
    assert (again["failed"], again["answered"]) == (failed, 0)
    errors = json.loads(lbx("report", path, "failures", "--format", "json").stdout)
    assert "context window is 400 tokens" in errors[0]["error"]


def test_empty_answers_are_asked_again_when_told_to(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    """As after a server's bad hour: the same command leaves them alone, and --retry-empty asks these alone."""
    path, table = tmp_path / "results.duckdb", tmp_path / "model.jsonl"
    lines = [json.loads(line) for line in answers.read_text().splitlines()]
    empty = [line["key"] for line in lines if line["key"].startswith("needle/single_en")][:3]
    table.write_text("\n".join(json.dumps(line | ({"text": " \n"} if line["key"] in empty else {})) for line in lines))
    command = ("run", "--bundle", bundle, "--model", table, "--tasks", "needle/single_en", "-o", path, "--name", "r")
    mean = ("sql", path, "SELECT score, n FROM task_scores", "--format", "csv")
    assert lbx(*command).returncode == 0
    assert lbx(*mean).stdout == "score,n\n0.625,8\n"
    told = json.loads(lbx(*command, "--json").stdout)
    assert (told["answered"], told["done_before"]) == (0, 8)
    again = json.loads(lbx(*command, "--json", "--retry-empty").stdout)
    assert (again["answered"], again["done_before"]) == (3, 5)
    assert lbx(*mean).stdout == "score,n\n0.625,8\n"


def test_what_is_asked_again_alone_is_forgotten_alone(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    """The other failed and empty answers stay, with what they leave open of their tasks' numbers."""
    path, table = tmp_path / "results.duckdb", tmp_path / "model.jsonl"
    lines = [json.loads(line) for line in answers.read_text().splitlines()]
    spoilt: list[dict[str, str]] = [{"error": "gone"}, {"text": ""}]
    kept = [line | spoilt[place % 2] if place % 4 < 2 else line for place, line in enumerate(lines)]
    table.write_text("\n".join(map(json.dumps, kept)))
    command = ("run", "--bundle", bundle, "--model", table, "-o", path, "--name", "r", "--no-plan", "--json")
    assert lbx(*command, "--tasks", "needle/single_en,needle/multikey_en").returncode == 3
    held = ("sql", path, "SELECT task, sample_id, output, error FROM generations ORDER BY ALL", "--format", "csv")
    shown = ("sql", path, "SELECT * EXCLUDE (low) FROM task_results ORDER BY ALL", "--format", "csv")
    before = lbx(*held).stdout, lbx(*shown).stdout
    assert "gone" in before[0] and "multikey_en" in before[1]
    again = lbx(*command, "--tasks", "needle/single_en", "--limit", 2, "--retry-failed", "--retry-empty")
    assert 0 < json.loads(again.stdout)["failed"] + json.loads(again.stdout)["answered"] <= 2
    assert (lbx(*held).stdout, lbx(*shown).stdout) == before


def test_a_run_can_be_extended(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    path = tmp_path / "results.duckdb"
    command = ("run", "--bundle", bundle, "--model", answers, "-o", path, "--json")
    few = json.loads(lbx(*command, "--tasks", "needle/single_en", "--limit", 3).stdout)
    more = json.loads(lbx(*command, "--tasks", "needle/single_en,needle/multikey_en").stdout)
    assert few["run_id"] == more["run_id"]
    assert (few["answered"], more["answered"], more["done_before"]) == (3, 13, 3)


def test_iterations_are_kept_apart(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    path, table = tmp_path / "results.duckdb", tmp_path / "always.jsonl"
    table.write_text('{"*": "1"}')
    lbx("run", "-b", bundle, "-m", table, "-t", "needle/single_zh", "-o", path, "--iterations", 3, "--seed", 7)
    with duckdb.connect(str(path), read_only=True) as connection:
        rows = connection.execute(
            "SELECT iteration, seed, count(*) FROM generations GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    assert rows == [(0, 7, 8), (1, 8, 8), (2, 9, 8)]


_TAKERS = {
    ("--rows", 5): {"changes"},
    ("--tasks", "needle/single_en"): {"changes", "comparison", "decision", "flips"},
    ("--margin", 2): {"comparison", "decision", "formats"},
    ("--allow-different-settings",): {"comparison", "changes", "decision", "flips", "formats"},
    ("--baseline", "RUN"): {"comparison", "changes", "flips", "truncation_effect"},
    ("--keep-share", 0.5): {"effective_context"},
    ("--keep-score", 0.5): {"effective_context"},
    ("--published", "GPT"): {"paper", "board", "reference", "effective_context"},
}


@pytest.mark.parametrize("option", _TAKERS, ids=lambda option: option[0])
def test_options_of_a_report_that_cannot_use_them_are_refused(lbx: Lbx, results: Path, option: tuple[Any, ...]) -> None:
    with duckdb.connect(str(results), read_only=True) as connection:
        ((run,),) = connection.execute("SELECT run_id FROM runs").fetchall()
    words = [run if word == "RUN" else word for word in option]
    takers = _TAKERS[option]
    on_a_page = ("--format", "html", "-o", results.with_name("page.html"))
    shown: dict[tuple[Any, ...], set[str]] = {
        **{(name,): {name} for name in ("judge_results", "leaderboard", "cost", "changes", "comparison", "paper")},
        (): {"leaderboard", "paper", "length_curve"},
        on_a_page: {"comparison", "effective_context", "truncation_effect", "paper"},
    }
    for what, names in shown.items():
        done = lbx("report", results, *what, *words)
        if names & takers:
            assert "Only the report" not in done.stderr and "Traceback" not in done.stderr
        else:
            fails(done, 2, "Only the report", option[0], *takers)


class _Reading(ReportQuery):
    """What is asked of a report, which writes down what is read of it."""

    fields: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        _Reading.fields.add(name)
        return super().__getattribute__(name)


def test_each_report_reads_what_it_says_that_it_takes(results: Path) -> None:
    fields = {"baseline": "--baseline", "margin": "--margin", "allow_different_settings": "--allow-different-settings",
              "tasks": "--tasks", "limit": "--rows", "keep_share": "--keep-share", "keep_score": "--keep-score",
              "references": "--reference"}  # fmt: skip
    with open_with_numbers(results) as store:
        for name, report in reports.REPORTS.items():
            _Reading.fields.clear()
            reports.read_report(store, name, _Reading())
            assert {fields[one] for one in _Reading.fields & {*fields}} <= {*report.takes}, name


def test_a_csv_of_no_named_report_offers_the_usual_ones(lbx: Lbx, results: Path) -> None:
    done = lbx("report", results, "--format", "csv")
    fails(done, 2, "A csv file contains one table")
    assert "leaderboard, task_scores, paper" in done.stderr and "rating_results" not in done.stderr
    assert "csv, parquet: name one" in re.sub(r"[\s│]+", " ", lbx("report", "--help").stdout)
