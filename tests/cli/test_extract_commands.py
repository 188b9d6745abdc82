"""lbx runs extract and lbx runs texts: a copy without texts has none of their words, and the same numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from lbx.base.errors import StoreError
from lbx.benchmarks.judge import Round
from lbx.report.format import render
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.results import RunRow, Store
from lbx.results.file.texts import TEXT_COLUMNS
from lbx.results.scoring.reading import open_with_numbers
from tests import profiles
from tests.command_line import Lbx, fails
from tests.gallery_files import running_file
from tests.judged_rounds import Said, add_judge
from tests.planted_texts import PLANTED_RUNS, write_planted_file
from tests.small_disks import small_disk

Once = Callable[[str, Callable[[Path], object]], Path]
MODES = {"none": ("--without-texts",), "answers": ("--without-texts", "--keep-answers"), "all": ()}


@pytest.fixture(scope="session")
def folder(lbx: Lbx, once: Once) -> Path:
    """source.duckdb with planted words (words.json), and its extracts by mode."""

    def write(folder: Path) -> None:
        planted = write_planted_file(folder / "source.duckdb")
        (folder / "words.json").write_text(json.dumps(planted.texts))
        for mode, options in MODES.items():
            done = lbx("runs", "extract", folder / "source.duckdb", *options, "-o", folder / f"{mode}.duckdb", "--json")
            assert done.returncode == 0, done.stderr
            (folder / f"{mode}.json").write_text(done.stdout)

    return once("extracts", write)


def values_in(path: Path) -> str:
    """Every value of every table as text: DuckDB compresses strings, so the file's bytes do not show all of them."""
    with duckdb.connect(str(path), read_only=True) as connection:
        tables = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        return "\n".join(
            str(value) for (table,) in tables for row in connection.execute(f"FROM {table}").fetchall() for value in row
        )


@pytest.mark.parametrize("mode", ["none", "answers"])
def test_no_planted_word_is_in_the_file(folder: Path, mode: str) -> None:
    words = json.loads((folder / "words.json").read_text())
    source, values = values_in(folder / "source.duckdb"), values_in(folder / f"{mode}.duckdb")
    assert all(word in source for word in words)
    with duckdb.connect(str(folder / "source.duckdb"), read_only=True) as connection:
        answers = connection.execute("SELECT output FROM generations WHERE benchmark <> 'judge'").fetchall()
    kept = {word for word in words if any(word in (output or "") for (output,) in answers)}
    assert {word for word in words if word in values} == (kept if mode == "answers" else set())
    content = (folder / f"{mode}.duckdb").read_bytes()
    assert not {word for word in {*words} - (kept if mode == "answers" else set()) if word.encode() in content}
    assert (1_913_947_201).to_bytes(4, "little") not in content
    assert not [*folder.glob(f"{mode}.duckdb.*"), *folder.glob(f".{mode}*")]


def report(store: Store, name: str, query: ReportQuery) -> str:
    table = read_report(store, name, query)
    return "".join(render.json_pieces(table.columns, table.rows))


@pytest.mark.parametrize(("mode", "baseline"), profiles.crossed(MODES, ["", PLANTED_RUNS[0]]))
def test_every_report_without_texts_is_byte_equal(folder: Path, mode: str, baseline: str) -> None:
    query = ReportQuery(runs=PLANTED_RUNS if not baseline else (), baseline=baseline, allow_different_settings=True)
    unequal, filled = [], set()
    with open_with_numbers(folder / "source.duckdb") as source, open_with_numbers(folder / f"{mode}.duckdb") as copy:
        for name in REPORTS:
            if REPORTS[name].needs_texts and mode != "all":
                continue
            before, after = report(source, name, query), report(copy, name, query)
            filled |= {name} if before != "[]" else set()
            if name == "failures" and mode != "all":
                before = json.dumps([row | {"error": "(message removed)"} for row in json.loads(before)])
                after = json.dumps(json.loads(after))
            unequal += [name] if before != after else []
    assert not unequal
    assert filled >= {"comparison", "judge_results", "judge_bias", "rating_results", "agreement", "failures", "cost"}


def test_the_command_prints_the_same_json(lbx: Lbx, folder: Path) -> None:
    for arguments in ((), ("guards",), ("board",), ("needles",)):
        source, copy = (
            lbx("report", folder / f"{name}.duckdb", *arguments, "--format", "json") for name in ("source", "none")
        )
        assert source.returncode == copy.returncode == 0
        tables = [json.loads(done.stdout) for done in (source, copy)]
        for table in tables if not arguments else ():
            table.pop("failures")
        assert tables[0] == tables[1]
    shown = lbx("report", folder / "none.duckdb", "--format", "html")
    assert "removed all texts from none.duckdb" in shown.stdout
    assert "(message removed)" in lbx("report", folder / "none.duckdb", "failures").stdout


def test_a_killed_run_keeps_its_numbers(lbx: Lbx, tmp_path: Path) -> None:
    running_file(tmp_path / "running.duckdb")
    assert (
        lbx("runs", "extract", tmp_path / "running.duckdb", "--without-texts", "-o", tmp_path / "x.duckdb").returncode
        == 0
    )
    for name in ("leaderboard", "paper"):
        source, copy = (
            lbx("report", tmp_path / file, name, "--format", "json") for file in ("running.duckdb", "x.duckdb")
        )
        assert source.stdout == copy.stdout


def test_the_audit_finds_texts_by_their_values(lbx: Lbx, folder: Path, tmp_path: Path) -> None:
    audited = json.loads(lbx("runs", "texts", folder / "source.duckdb", "--json").stdout)["texts"]
    assert {(row["table"], row["column"]) for row in audited} == {*TEXT_COLUMNS, ("runs", "hardware")}
    assert {row["origin"] for row in audited} == {*TEXT_COLUMNS.values(), "judge", "fact"}
    assert all(row["rows"] and row["size_bytes"] for row in audited)
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes((folder / "none.duckdb").read_bytes())
    with duckdb.connect(str(copy)) as connection:
        connection.execute('CREATE TABLE "my notes" AS SELECT 1 AS n, [\'a text\'] AS "what\'s said", true AS yes')
        connection.execute("UPDATE samples SET language = repeat('a long text ', 40) WHERE task = 'tpo'")
    told = json.loads(lbx("runs", "texts", copy, "--json").stdout)["texts"]
    assert [(row["table"], row["column"], row["origin"], row["rows"]) for row in told] == [
        ("samples", "language", "unknown", 4),
        ("my notes", "what's said", "unknown", 1),
    ]


def test_texts_in_columns_of_names_are_refused(lbx: Lbx, folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes((folder / "source.duckdb").read_bytes())
    with duckdb.connect(str(copy)) as connection:
        connection.execute("UPDATE samples SET language = repeat('a long text ', 40) WHERE task = 'tpo'")
    done = lbx("runs", "extract", copy, "--without-texts", "-o", tmp_path / "new.duckdb")
    fails(done, 1, "texts in the column language of the table samples", "No file was written")
    assert not (tmp_path / "new.duckdb").exists()


def test_revisions_are_compared_without_texts(lbx: Lbx, folder: Path, tmp_path: Path) -> None:
    """Questions are paired by hash, also with those of a file with texts."""
    other, extract = tmp_path / "other.duckdb", tmp_path / "extract.duckdb"
    other.write_bytes((folder / "source.duckdb").read_bytes())
    with Store(other) as store, store.transaction() as connection:
        connection.execute("UPDATE samples SET question = 'What else?' WHERE task = 'coursera' AND sample_id = 's1'")
    assert lbx("runs", "extract", other, "--without-texts", "-o", extract).returncode == 0
    options = ("--run", "planted-a", "--baseline", "planted-b", "--format", "json", "--baseline-file")
    for report in ("revisions", "comparison"):
        with_texts = lbx("report", folder / "source.duckdb", report, *options, other)
        without = lbx("report", folder / "none.duckdb", report, *options, extract)
        assert with_texts.returncode == without.returncode == 0, with_texts.stderr
        assert with_texts.stdout.replace("other.duckdb", "extract.duckdb") == without.stdout
        mixed = lbx("report", folder / "none.duckdb", report, *options, other)
        assert mixed.stdout == with_texts.stdout, mixed.stderr


COMMANDS = {
    "score": ("score", "{file}"),
    "score by a bundle": ("score", "{file}", "--bundle", "{bundle}", "-o", "{new}"),
    "rate": ("rate", "{file}", "--port", 0),
    "export": ("export", "leval", "{file}", "--run", "planted-a", "-o", "{new}"),
    "ratings": ("export", "leval_ratings", "{file}", "-o", "{new}"),
    "changes": ("report", "{file}", "changes"),
    "show": ("show", "{file}"),
    "browse": ("browse", "{file}", "--port", 0),
    "extract": ("runs", "extract", "{file}", "--without-texts", "--keep-answers", "-o", "{new}"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_need_texts_refuse_the_file(
    lbx: Lbx, folder: Path, bundle: Path, tmp_path: Path, command: str
) -> None:
    places = {"file": folder / "none.duckdb", "new": tmp_path / "new", "bundle": bundle}
    done = lbx(*(str(part).format(**places) for part in COMMANDS[command]))
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert "`lbx runs extract --without-texts` removed all texts from none.duckdb." in done.stderr
    assert not (tmp_path / "new").exists()


def test_answers_are_shown_with_a_note(lbx: Lbx, folder: Path) -> None:
    done = lbx("show", folder / "answers.duckdb", "leval/tpo/s0", "--run", "planted-a")
    assert done.returncode == 0
    assert "removed all texts except the models' answers from answers.duckdb." in done.stderr
    assert "because of zqx" in done.stdout
    fails(lbx("score", folder / "answers.duckdb"), 1, "removed all texts except the models' answers")


def test_a_run_is_not_continued(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes((folder / "none.duckdb").read_bytes())
    with Store(copy) as store, pytest.raises(StoreError, match="cannot be added"):
        store.begin_run(RunRow("new", "m", "hf", "1", {}, "", {}, {}, "1"))


def rows(path: Path, table: str) -> list[tuple[object, ...]]:
    with Store(path, read_only=True) as store:
        return store.query(f"FROM {table} ORDER BY ALL").rows  # type: ignore[return-value]


def test_a_copy_with_texts_has_every_row_but_the_cache(folder: Path) -> None:
    summary = json.loads((folder / "all.json").read_text())
    assert (summary["judges"], summary["left_out"], summary["texts"]) == ([], [], None)
    for table, count in summary["rows"].items():
        assert rows(folder / "all.duckdb", table) == rows(folder / "source.duckdb", table)
        assert count == len(rows(folder / "all.duckdb", table))
    assert not rows(folder / "all.duckdb", "embeddings")


def test_a_run_comes_with_its_judgements_and_ratings(lbx: Lbx, folder: Path, tmp_path: Path) -> None:
    one = tmp_path / "one.duckdb"
    done = lbx("runs", "extract", folder / "source.duckdb", "planted-a", "--without-texts", "-o", one, "--json")
    summary = json.loads(done.stdout)
    assert (summary["runs"], summary["judges"]) == (["planted-a"], ["planted-judge"])
    assert "planted-b" in summary["left_out"]
    query = ReportQuery(runs=("planted-a",))
    with open_with_numbers(folder / "source.duckdb") as source, open_with_numbers(one) as copy:
        for name in ("leaderboard", "task_scores", "guards", "rating_results"):
            assert report(source, name, query) == report(copy, name, query), name
        results = "FROM judge_results WHERE run_id = 'planted-a' ORDER BY ALL"
        assert source.query(results).rows == copy.query(results).rows != []
        # A judgement of an answer that has changed would seem current without the answer.
        current = "SELECT count(*) FROM judgements WHERE judge_id = 'planted-judge' AND current"
        assert copy.query("SELECT count(*) FROM judgements").rows == source.query(current).rows == [(6,)]
        assert {run for (run,) in copy.query("SELECT DISTINCT run_id FROM ratings").rows} == {"planted-a"}
        assert {run for (run,) in copy.query("SELECT DISTINCT run_id FROM generations").rows} == {
            "planted-a",
            "planted-judge",
        }
        lost = copy.query("FROM generations ANTI JOIN samples USING (benchmark, task, sample_id)").rows
        assert not lost


def test_merging_never_mixes_files_with_and_without_texts(lbx: Lbx, folder: Path, tmp_path: Path) -> None:
    source, none = folder / "source.duckdb", folder / "none.duckdb"
    for first, second in ((source, none), (none, source), (folder / "answers.duckdb", none)):
        done = lbx("merge", first, second, "-o", tmp_path / "m.duckdb")
        fails(done, 1, "differ in their texts")
        assert "lbx merge" not in done.stderr, "another output does not help"
        assert not (tmp_path / "m.duckdb").exists()
    target = tmp_path / "target.duckdb"
    target.write_bytes(source.read_bytes())
    fails(lbx("merge", none, "-o", target, "--update"), 1, "differ in their texts")
    assert target.read_bytes() == source.read_bytes()


def test_files_without_texts_merge(lbx: Lbx, folder: Path, tmp_path: Path) -> None:
    one, merged = tmp_path / "one.duckdb", tmp_path / "merged.duckdb"
    lbx("runs", "extract", folder / "source.duckdb", "planted-a", "--without-texts", "-o", one)
    done = lbx("merge", one, folder / "none.duckdb", "-o", merged)
    assert done.returncode == 3, done.stderr  # some answers had failed
    for table in ("samples", "generations", "scores", "rating_items", "retrievals"):
        assert rows(merged, table) == rows(folder / "none.duckdb", table), table
    with open_with_numbers(folder / "none.duckdb") as source, open_with_numbers(merged) as copy:
        for name in ("leaderboard", "paper", "judge_results", "rating_results", "comparison"):
            query = ReportQuery(runs=PLANTED_RUNS)
            assert report(source, name, query) == report(copy, name, query), name


def test_another_revision_is_refused_without_its_texts(lbx: Lbx, folder: Path, tmp_path: Path) -> None:
    other, extract = tmp_path / "other.duckdb", tmp_path / "extract.duckdb"
    other.write_bytes((folder / "source.duckdb").read_bytes())
    with Store(other) as store, store.transaction() as connection:
        connection.execute("UPDATE samples SET question = 'What else?' WHERE task = 'coursera' AND sample_id = 's1'")
    lbx("runs", "extract", other, "--without-texts", "-o", extract)
    fails(lbx("merge", folder / "none.duckdb", extract, "-o", tmp_path / "m.duckdb"), 1, "leval/coursera/s1 (question)")


def test_an_extract_of_an_extract_is_the_same(lbx: Lbx, folder: Path, tmp_path: Path) -> None:
    for start, options in (("none", ()), ("none", ("--without-texts",)), ("answers", ("--without-texts",))):
        again = tmp_path / f"{start}{len(options)}.duckdb"
        assert lbx("runs", "extract", folder / f"{start}.duckdb", *options, "-o", again).returncode == 0
        for table in ("runs", "samples", "generations", "scores", "ratings", "rating_items"):
            assert rows(again, table) == rows(folder / "none.duckdb", table), (start, options, table)


def test_what_cannot_be_extracted(lbx: Lbx, folder: Path, tmp_path: Path) -> None:
    source, new = folder / "source.duckdb", tmp_path / "new.duckdb"
    fails(lbx("runs", "extract", source, "-o", source), 2, "already exists")
    fails(lbx("runs", "extract", tmp_path / "no.duckdb", "-o", new), 1, "does not exist")
    fails(lbx("runs", "extract", source, "nobody", "-o", new), 2, "No run 'nobody'")
    fails(lbx("runs", "extract", source, "--keep-answers", "-o", new), 2, "--keep-answers needs --without-texts")
    fails(lbx("runs", "extract", source, "-o", tmp_path / "no" / "new.duckdb"), 1, "does not exist")
    empty = tmp_path / "empty.duckdb"
    empty.touch()
    fails(lbx("runs", "extract", empty, "-o", new), 1, "empty file")
    assert not new.exists()


def test_a_full_disk_is_named(lbx: Lbx, folder: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        fails(
            lbx("runs", "extract", folder / "source.duckdb", "-o", disk / "new.duckdb"), 1, "No space left", "Make room"
        )
        assert not [*disk.iterdir()]


def test_an_ambiguous_verdict_is_no_text(lbx: Lbx, tmp_path: Path) -> None:
    source, extract = tmp_path / "source.duckdb", tmp_path / "extract.duckdb"
    asked = Round("leval", "tpo", "0", "Who?", ("He did",), "one", "he", against_run_id="two", against="she")
    with Store(source) as store:
        add_judge(store, "judge", [Said(asked, "[[A]] or [[B]]")])
    lbx.ok("runs", "extract", source, "--without-texts", "-o", extract)
    states = "SELECT state, verdict, answer_first, kind, against_run_id FROM judgements"
    assert lbx.rows(extract, states) == lbx.rows(source, states) != []
    assert lbx.rows(extract, "SELECT verdicts, pattern FROM rounds") == [{"verdicts": None, "pattern": None}]
