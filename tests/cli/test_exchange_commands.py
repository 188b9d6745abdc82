"""``lbx import`` and ``lbx export`` as a person uses them: what they leave behind, and what they say."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from lbx.base.records import Sample
from lbx.results import GenerationRow, RunRow, SampleRow, Store
from tests.command_line import Lbx, fails


def row(pred: str, answer: str) -> str:
    return json.dumps({"pred": pred, "answers": [answer], "all_classes": None, "length": 7}) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One file of LongBench predictions, odd spaces and a missing last line feed included."""
    path = tmp_path / "pred" / "model"
    path.mkdir(parents=True)
    (path / "qasper.jsonl").write_text(row("a  cat", "a cat") + " \n" + row("ein Hund 猫", "a dog").rstrip("\n"))
    return path


def test_a_judges_file_goes_in_with_its_numbers_and_out_again(lbx: Lbx, tmp_path: Path) -> None:
    golden = Path(__file__).resolve().parents[1] / "data/leval_judge/ours.pred.judge.jsonl"
    out = tmp_path / "results.duckdb"
    answers = tmp_path / "tpo.pred.jsonl"
    answers.write_text(json.dumps({"query": "?", "gt": "A", "m_pred": "A", "evaluation": "exam"}))
    fails(lbx("import", "leval_judge", answers, "-o", out), 2, "tpo.pred.jsonl contains no judge's verdicts",
          "To import a model's answers, pass their benchmark")  # fmt: skip
    for form in ("leval", "longbench"):
        fails(lbx("import", form, golden, "--model-name", "m", "-o", out), 2,
              "contains a judge's verdicts, not a model's", f"try: lbx import leval_judge {golden}")  # fmt: skip
    fails(lbx("import", "leval_judge", tmp_path, "-o", out), 2, "is a folder")
    assert not out.exists()
    said = lbx("import", "leval_judge", golden, "-o", out, "--name", "gpt-4").stdout
    assert "gpt-4: 10 rounds about ours-7b-leval_judge-" in said
    assert "win rate of ours-7b = 0.6111111111111112" in said and "gpt-4-2: 10 rounds" in said
    screen = lbx("report", out).stdout  # no metric scores what is judged: no place on a leaderboard
    assert "Judge results" in screen and "Leaderboard" not in screen
    board = lbx("report", out, "leaderboard").stdout
    assert "No answer has a score yet" in board and "judge_results" in board and "answered" not in board
    fails(lbx("report", golden), 1, "is not a results file", "`lbx import` converts predictions and judges' files")
    fails(lbx("import", "leval", out, "--model-name", "m", "-o", tmp_path / "o"), 2, "is a results file", "lbx merge")
    told = json.loads(lbx("import", "leval_judge", golden, "-o", out, "--name", "gpt-4", "--json").stdout)
    assert [run["failed"] for run in told["runs"]] == [0, 1]
    back = lbx("export", "leval_judge", out, "--run", "gpt-4", "--run", "gpt-4-2", "-o", tmp_path / "out").stdout
    assert back.startswith("10 rows in 1 file")
    assert (tmp_path / "out" / golden.name).read_bytes() == golden.read_bytes()
    again = ("export", "leval_judge", out, "--run", "gpt-4", "-o", tmp_path / "out")
    fails(lbx(*again), 2, "already exists")
    fails(lbx(*again, "--results"), 2, "--results applies to answers")
    fails(lbx(*again, "--judged", "human_eval"), 2, "--judged works only for leval")
    fails(lbx("export", "leval_judge", out, "-o", tmp_path / "out"), 2, "several judges", "--run: gpt-4, gpt-4-2")


def test_what_cannot_be_imported_leaves_no_results_file(lbx: Lbx, bundle: Path, folder: Path, tmp_path: Path) -> None:
    out, empty = tmp_path / "results.duckdb", tmp_path / "empty"
    empty.mkdir()
    for place, code, words in (
        (("longbench", tmp_path / "none"), 2, ["none does not exist"]),
        (("lveval", folder / "qasper.jsonl"), 2, ["has no task 'qasper'"]),
        (("longbench", empty), 2, ["no file of a longbench task"]),
        (("longbench", folder.parent), 2, ["Give one of its folders: model"]),
        (("longbench_v2", folder), 2, ["is a folder"]),
        (("lveval", folder), 2, ["has no task 'qasper'"]),
        (("longbench", folder, "--bundle", bundle), 1, ["lbx bundle bundle/longbench.toml", "Without --bundle"]),
    ):
        fails(lbx("import", *place, "--model-name", "model", "-o", out), code, *words)
    fails(lbx("import", "longbench", folder, "--model-name", " ", "-o", out), 2, "--model-name NAME")
    (folder / "trec.jsonl").write_text("")
    fails(lbx("import", "longbench", folder, "--model-name", "model", "-o", out), 2, "trec.jsonl", "empty")
    assert not out.exists()


def test_the_same_again_is_the_same_and_other_content_is_refused(lbx: Lbx, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.duckdb"
    command = ("import", "longbench", folder, "--model-name", "model", "-o", out, "--name", "mine", "--json")
    first, again = (lbx(*command) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout) == json.loads(again.stdout)
    with duckdb.connect(str(out), read_only=True) as connection:
        before = connection.execute("SELECT count(*) FROM scores").fetchall()
    (folder / "qasper.jsonl").write_text(row("other", "a cat"))
    other = lbx(*command)
    fails(other, 1, "'mine'", "other content", "--name NAME")
    assert "sha256" not in other.stderr
    with duckdb.connect(str(out), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM scores").fetchall() == before
        assert connection.execute("SELECT status FROM runs").fetchall() == [("done",)]


def test_export_gives_back_the_bytes_and_overwrites_only_when_told(lbx: Lbx, folder: Path, tmp_path: Path) -> None:
    out, back = tmp_path / "results.duckdb", tmp_path / "back"
    assert lbx("import", "longbench", folder, "--model-name", "model", "-o", out, "--name", "mine").returncode == 0
    export = ("export", "longbench", out, "-o", back)  # of the only run
    done = lbx(*export, "--json")
    (file,) = map(Path, json.loads(done.stdout)["files"])
    assert file.read_bytes() == (folder / "qasper.jsonl").read_bytes()
    file.write_text("mine")
    fails(lbx(*export), 2, "qasper.jsonl", "--force")
    assert file.read_text() == "mine"
    assert lbx(*export, "--force").returncode == 0
    assert file.read_bytes() == (folder / "qasper.jsonl").read_bytes()
    elsewhere = ("--run", "mine", "-o", tmp_path / "x")
    fails(lbx("export", "lveval", out, *elsewhere), 2, "no answers to lveval", "longbench")
    fails(lbx("export", "longbench", out, "--run", "other", "-o", tmp_path / "x"), 2, "'other'", "mine")
    assert not (tmp_path / "x").exists()


def test_export_of_a_run_that_is_not_done_says_so(lbx: Lbx, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.duckdb"
    assert lbx("import", "longbench", folder, "--model-name", "model", "-o", out, "--name", "mine").returncode == 0
    with duckdb.connect(str(out)) as connection:
        connection.execute("UPDATE runs SET status = 'interrupted'")
    done = lbx.ok("export", "longbench", out, "--run", "mine", "-o", tmp_path / "back")
    assert "interrupted: its files may lack rows" in " ".join(done.stderr.split())


def test_results_as_the_official_scorer_writes_them(lbx: Lbx, folder: Path, tmp_path: Path) -> None:
    out, exported = tmp_path / "results.duckdb", tmp_path / "out"
    lbx("import", "longbench", folder, "--model-name", "org/model", "-o", out, "--name", "r")
    done = lbx("export", "longbench", out, "--run", "r", "--results", "-o", exported)
    assert done.returncode == 0 and "1 file for 2 answers" in done.stdout
    assert (exported / "pred/model/result.json").read_text() == '{\n    "qasper": 50.0\n}'
    fails(lbx("export", "longbench", out, "--run", "r", "--results", "-o", exported), 2, "already exist", "--force")
    fails(lbx("export", "longbench_v2", out, "--run", "r", "--results", "-o", exported), 2, "has no answers to")


def test_what_people_say_of_a_run_is_kept_beside_it(lbx: Lbx, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.duckdb"
    lbx(
        "import",
        "longbench",
        folder,
        "--model-name",
        "m",
        "-o",
        out,
        "--name",
        "r",
        "--metadata",
        "PE=no",
        "--metadata",
        "b= c=d ",
    )
    assert lbx("runs", "note", out, "r").stdout == "PE=no\nb=c=d\n"
    again = lbx(
        "import", "longbench", folder, "--model-name", "m", "-o", out, "--name", "r", "--metadata", "IDD=yes", "--json"
    )
    assert json.loads(again.stdout)["run_id"] == "r"
    changed = lbx("runs", "note", out, "r", "PE=", "b=2", "--json")
    assert json.loads(changed.stdout) == {"b": "2", "IDD": "yes"}
    assert lbx("runs", "note", out, "r", "b=", "IDD=").stdout == "No facts are recorded about r.\n"
    fails(lbx("runs", "note", out, "none", "a=1"), 2, "No run 'none'")
    assert lbx("import", "longbench", folder, "--model-name", "m", "-o", out, "--name", "second").returncode == 0
    fails(lbx("runs", "note", out, "r", "a"), 2, "must be KEY=VALUE, not 'a'")
    fails(
        lbx("import", "longbench", folder, "--model-name", "m", "-o", out, "--metadata", "=1"), 2, "must be KEY=VALUE"
    )
    fails(lbx("runs", "note", tmp_path / "none.duckdb", "r", "a=1"), 1, "none.duckdb")
    assert not (tmp_path / "none.duckdb").exists()


def test_results_of_a_part_say_so(lbx: Lbx, tmp_path: Path) -> None:
    out = tmp_path / "results.duckdb"
    sample = Sample("longbench", "qasper", "a", "", "?", ("cat",), length=5, meta={"category": "x"})
    with Store(out) as store:
        store.begin_run(RunRow("r", "m", "scripted", "1", {}, "", {}, {}, "0", {"longbench/qasper": 3}))
        store.write(samples=[SampleRow(sample, 0)], generations=[GenerationRow("r", *sample.key, output="cat")])
        store.finish_run("r", "done")
    assert lbx("score", out, "--processes", 1).returncode == 0
    done = lbx("export", "longbench", out, "--run", "r", "--results", "-o", tmp_path / "out")
    assert "a part of qasper (1 of 3 samples)" in " ".join(done.stderr.split())
    assert json.loads((tmp_path / "out/pred/m/result.json").read_text()) == {"qasper": 100.0}


def test_answers_of_a_harness_come_with_its_own_scores(lbx: Lbx, tmp_path: Path) -> None:
    references = {"answers": ["a cat"], "length": 7}
    answer = {"doc_id": 0, "doc": references, "resps": [["a cat"]], "filtered_resps": ["a cat"]}
    rows = {
        task: answer | {"metrics": ["qa_f1_score"], "qa_f1_score": score}
        for task, score in {"qasper": 1.0, "triviaqa": 0.5}.items()
    }
    folder, time = tmp_path / "org__model", "2026-11-26T16-57-46.326912"
    folder.mkdir()
    for task, values in rows.items():
        lines = (json.dumps(values | {"doc_id": number}) + "\n" for number in range(200))
        (folder / f"samples_longbench_{task}_{time}.jsonl").write_text("".join(lines))
    results = {"versions": dict.fromkeys((f"longbench_{task}" for task in rows), 5), "lm_eval_version": "0.4.13"}
    (folder / f"results_{time}.json").write_text(json.dumps(results))
    out = tmp_path / "results.duckdb"
    fails(lbx("import", "longbench", folder, "--model-name", "m", "-o", out), 2, "the key 'answers' is missing")
    fails(lbx("import", "lm_eval", folder, "--model-name", "m", "--e", "-o", out), 2, "--e does not apply to lm_eval")
    fails(lbx("import", "lm_eval", folder, "-o", out), 2, "Pass --model-name NAME")
    assert not out.exists()
    said = lbx("import", "lm_eval", folder, "--model-name", "m", "-o", out, "--name", "r").stdout
    assert "r: 400 rows of 2 tasks" in said and "one line end instead of two" in said
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert any("qasper 5 200 100.00 100.00 +0.00 comparable" in line for line in lines)
    assert any("triviaqa 5 200 50.00 100.00 +50.00 differs" in line for line in lines)
    told = json.loads(lbx("import", "lm_eval", folder, "--model-name", "m", "-o", out, "--name", "r", "--json").stdout)
    assert [row["verdict"] for row in told["harness"]] == ["comparable", "differs"]
    assert "1 task not asked like officially" in " ".join(lbx("report", out).stdout.split())
    exported = lbx("export", "longbench", out, "-o", tmp_path / "out")
    assert "answers from lm_eval 0.4.13; 1 task not asked like officially" in exported.stderr
    assert lbx("export", "lm_eval", out, "-o", tmp_path / "back").returncode == 0
    fails(
        lbx("import", "lm_eval", tmp_path / "back", "--model-name", "m", "-o", tmp_path / "o"), 2, "was exported by lbx"
    )
