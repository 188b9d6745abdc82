"""`lbx export` to other tools as a person uses it: what is refused, what stays, and what the files leave out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lbx.benchmarks.judge import Round
from lbx.benchmarks.registry import EXPORT_FORMATS
from lbx.exchange.tools.run_records import TaskRecord, task_names
from lbx.exchange.tools.tool_export import NOTICE
from lbx.results import Store
from tests.command_line import Lbx, fails
from tests.exchange.tool_export_parts import exported, numbers_of, odd_file
from tests.judged_rounds import add_judge, both_orders
from tests.page_parts import results_file

SAMPLE_FORMATS = [form for form in EXPORT_FORMATS if form != "model_index"]
"""Formats that contain answers."""
FORMATS = pytest.mark.parametrize("form", SAMPLE_FORMATS)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}


@FORMATS
def test_files_replace_others_only_with_force_and_all_or_none(lbx: Lbx, tmp_path: Path, form: str) -> None:
    results, out = odd_file(tmp_path / "odd.duckdb"), tmp_path / "out"
    first = ("export", form, results, "--run", "org/one", "-o", out)
    assert "for 40 answers" in lbx.ok(*first).stdout
    before = contents(out)
    (out / NOTICE).write_text("ours\n")
    fails(lbx(*first), 2, "already exist", "--force")
    again = json.loads(lbx.ok(*first, "--force", "--json").stdout)
    assert again["rows"] == 40 and again["left_out"] == ({} if form == "inspect" else {"failed": 8})
    assert contents(out) == {**before, NOTICE: b"ours\n"}
    (path,) = [path for path in out.rglob("*.json") if "qasper" in path.name or form != "inspect"][:1]
    path.unlink()
    path.mkdir()
    (path / "kept").write_text("")
    done = lbx(*first, "--force")
    fails(done, 1, "cannot be written", "No files were exported")
    assert (path / "kept").exists()
    assert {name: text for name, text in contents(out).items() if name in before} == {
        name: text for name, text in before.items() if name != path.relative_to(out).as_posix()
    } | {NOTICE: b"ours\n"}


@FORMATS
def test_several_runs_share_a_folder(lbx: Lbx, tmp_path: Path, form: str) -> None:
    results, out = odd_file(tmp_path / "odd.duckdb"), tmp_path / "out"
    fails(lbx("export", form, results, "-o", out), 2, "several runs")
    for run in ("org/one", "org/two"):
        lbx.ok("export", form, results, "--run", run, "-o", out)
    assert contents(out) == contents(exported(results, form, tmp_path / "together"))
    assert (out / NOTICE).read_text().startswith("The sample files in this folder contain questions, reference answers")


def test_two_runs_that_need_one_file_are_refused(lbx: Lbx, tmp_path: Path) -> None:
    results = odd_file(tmp_path / "odd.duckdb", runs=("org/one", "org one"))
    with Store(results) as store, store.transaction() as connection:
        connection.execute("UPDATE runs SET started_at = '2026-01-01'")
    done = lbx("export", "lm_eval", results, "--run", "org/one", "--run", "org one", "-o", tmp_path / "out")
    fails(done, 2, "need the same file org-one/", "separate folder")
    assert not (tmp_path / "out").exists()


def test_names_of_formats_are_listed_and_options_of_other_formats_refused(lbx: Lbx, tmp_path: Path) -> None:
    results = odd_file(tmp_path / "odd.duckdb", runs=("org/one",))
    out = tmp_path / "out"
    fails(lbx("export", "csv", results, "-o", out), 2, "every_eval_ever, inspect, lm_eval, model_index")
    fails(lbx("export", "every-eval-ever", results, "-o", out), 2, "Did you mean every_eval_ever?")
    fails(lbx("export", "inspect", results, "-o", out, "--results"), 2, "inspect contains scores")
    fails(lbx("export", "inspect", results, "-o", out, "--judged", "human_eval"), 2, "--judged works only for")
    fails(lbx("export", "inspect", tmp_path / "none.duckdb", "-o", out), 1, "none.duckdb")
    fails(lbx("export", "inspect", results, "--run", "nobody", "-o", out), 2, "No run 'nobody'")
    assert not out.exists()


@FORMATS
def test_a_run_that_was_killed_is_exported_with_its_status(lbx: Lbx, tmp_path: Path, form: str) -> None:
    results, out = results_file(tmp_path / "r.duckdb", ("org/one",), ("qasper",), done=False), tmp_path / "out"
    with Store(results) as store, store.transaction() as connection:
        connection.execute("UPDATE runs SET task_samples = '{\"longbench/qasper\": 200}'")
        connection.execute("DELETE FROM numbers")
    done = lbx.ok("export", form, results, "-o", out)
    assert "The run org/one was killed: its files may lack rows." in done.stderr
    assert "only a part of qasper (11 of 200 samples); the files state the counts." in " ".join(done.stderr.split())
    assert "11 answers" in done.stdout and ("1 failed" in done.stdout) == (form != "inspect")
    text = b"".join(contents(out).values()).decode("ascii").replace('"', "")
    for fact in ("status: killed", "samples_in_data: 200", "samples_asked: 12", "failed: 1"):
        assert fact in text


@FORMATS
def test_a_judges_run_is_refused_and_judged_answers_are_exported(lbx: Lbx, tmp_path: Path, form: str) -> None:
    results, out = tmp_path / "judged.duckdb", tmp_path / "out"
    shutil.copyfile(odd_file(tmp_path / "odd.duckdb"), results)
    with Store(results) as store:
        asked = Round("longbench", "qasper", "qasper-000", "Who?", (), "org/one", "he", 0, "org/two", 0, "she")
        add_judge(store, "umpire", both_orders(asked, "[[A]]", "[[A]]"))
    fails(lbx("export", form, results, "--run", "umpire", "-o", out), 2, "no answers of a model to export")
    lbx.ok("export", form, results, "--run", "org/one", "-o", out)
    lbx.ok("export", form, tmp_path / "odd.duckdb", "--run", "org/one", "-o", tmp_path / "plain")
    assert contents(out) == contents(tmp_path / "plain")


@FORMATS
def test_a_file_without_texts_gives_numbers_only(lbx: Lbx, tmp_path: Path, form: str) -> None:
    results = odd_file(tmp_path / "odd.duckdb", runs=("org/one",))
    whole = contents(exported(results, form, tmp_path / "whole"))
    for kind in ((), ("--keep-answers",)):
        bare = tmp_path / f"bare{len(kind)}.duckdb"
        lbx.ok("runs", "extract", results, "--without-texts", *kind, "-o", bare)
        done = lbx.ok("export", form, bare, "-o", tmp_path / bare.stem)
        assert "The export contains numbers only." in done.stderr
        files = contents(tmp_path / bare.stem)
        assert NOTICE not in files and not any("samples" in name for name in files)
        assert "org/one of " not in (text := b"".join(files.values()).decode("ascii")) and "reference 1" not in text
        assert set(files) <= set(whole)
        for (metrics,) in (task.values() for task in numbers_of(results)["org/one"].values()):
            assert repr(metrics[0]) in text and repr(metrics[1]) in text


def test_answers_without_a_metric_are_left_out_except_in_logs(lbx: Lbx, tmp_path: Path) -> None:
    results = odd_file(tmp_path / "odd.duckdb", runs=("org/one",))
    with Store(results) as store, store.transaction() as connection:
        for table in ("scores", "numbers"):
            connection.execute(f"DELETE FROM {table} WHERE task = 'qasper' OR task = ''")
    for form in SAMPLE_FORMATS:
        done = lbx.ok("export", form, results, "-o", tmp_path / form)
        assert ("20 unscored" in done.stdout) == (form != "inspect"), done.stdout
        assert any("qasper" in name for name in contents(tmp_path / form)) == (form == "inspect")
    with Store(results) as store, store.transaction() as connection:
        for table in ("scores", "numbers"):
            connection.execute(f"DELETE FROM {table}")
    for form in ("every_eval_ever", "lm_eval"):
        fails(lbx("export", form, results, "-o", tmp_path / "none"), 2, "No metric has scored", "lbx score")


def test_a_loose_match_is_exported_and_shown_with_the_score(lbx: Lbx, tmp_path: Path) -> None:
    results = results_file(tmp_path / "r.duckdb", ("org/one",), ("qasper",), score=1.0)
    with Store(results) as store, store.transaction() as connection:
        connection.execute("UPDATE scores SET loose = sample_id = 'qasper-001'")
    for form, known in (("inspect", '"loose": true'), ("every_eval_ever", '"loose": "true"')):
        text = b"".join(contents(exported(results, form, tmp_path / form)).values()).decode()
        assert text.count(known) == 1 and text.count(known.replace("true", "false")) == 10
    assert "score     f1 1.0000" in (shown := lbx.ok("show", results, "qasper-001").stdout)
    assert "(loose match)" in shown and "loose" not in lbx.ok("show", results, "qasper-002").stdout


def test_names_of_tasks_are_no_beginnings_of_others() -> None:
    pairs = [("a", "trec"), ("a", "trec_e"), ("a", "x_y"), ("a", "x-y"), ("a", "中文"), ("a", "日本"), ("a", "n" * 300)]
    names = list(task_names([TaskRecord(*pair, 1, [], {}, {}) for pair in pairs]).values())
    assert len(set(names)) == len(pairs) and "lbx-a-trec" in names
    assert all("_" not in name and name.isascii() and len(name) < 100 for name in names)
    assert not [one for one in names for other in names if one != other and f"{other}_".startswith(f"{one}_")]


def test_a_benchmark_cannot_have_the_name_of_a_format(lbx: Lbx, tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text(json.dumps({"document": "d", "question": "q", "references": ["r"]}) + "\n")
    (tmp_path / "b.toml").write_text('name = "inspect"\n[[task]]\nname = "t"\ndata = "q.jsonl"\nmetrics = ["f1"]\n')
    fails(lbx("bundle", tmp_path / "b.toml", "-o", tmp_path / "out"), 2, "a format of `lbx export`")


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("every_eval_ever", "contains no file of a longbench task"),
        ("inspect", "contains no file of a longbench task"),
        ("lm_eval", "was exported by lbx"),
    ],
)
def test_an_export_is_not_imported(lbx: Lbx, tmp_path: Path, form: str, said: str) -> None:
    folder = exported(odd_file(tmp_path / "odd.duckdb", runs=("org/one",)), form, tmp_path / "out")
    (place,) = folder.glob("org*") if form == "lm_eval" else (folder,)
    wrong = "lm_eval" if form == "lm_eval" else "longbench"
    fails(lbx("import", wrong, place, "--model-name", "m", "-o", tmp_path / "new.duckdb"), 2, said)
    assert not (tmp_path / "new.duckdb").exists()
