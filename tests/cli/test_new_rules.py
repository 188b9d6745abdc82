"""Scoring stored answers by the rules of another bundle: metrics, extraction, references; changed questions."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lbx import score
from lbx.base.errors import UsageError
from lbx.results import Store
from tests.command_line import Lbx, fails

DEFINITION = """
name = "town"
[[task]]
name = "qa"
data = "qa.jsonl"
metrics = ["exact_match"]
prompt = "{document}\\n{question}"
no_context_prompt = "{question}"
max_new_tokens = 8
[[task]]
name = "pick"
data = "pick.jsonl"
metrics = ["accuracy"]
prompt = "{document}\\n{question}\\n{choices}"
max_new_tokens = 8
"""

ROWS = {
    "qa": [
        {"id": f"q{n}", "document": f"House {n} is red.", "question": f"Which colour is {n}?", "references": ["red"]}
        for n in range(6)
    ],
    "pick": [
        {"id": f"p{n}", "document": "The horn is blue.", "question": f"Which, {n}?", "choices": ["bell", "horn"],
         "references": "B"}
        for n in range(3)
    ],
}  # fmt: skip
"""The model answers "red" and "horn" everywhere."""

Revision = Callable[..., Path]


@pytest.fixture(scope="module")
def revision(lbx: Lbx, tmp_path_factory: pytest.TempPathFactory) -> Revision:
    """revision(replaced, qa=rows, pick=rows) -> an unpacked bundle with changes to the definition and its rows."""

    def make(replaced: tuple[str, str] = ("", ""), **rows: list[dict[str, Any]]) -> Path:
        folder = tmp_path_factory.mktemp("town")
        assert replaced[0] in DEFINITION
        (folder / "benchmark.toml").write_text(DEFINITION.replace(*replaced) if replaced[0] else DEFINITION)
        for task, lines in {**ROWS, **rows}.items():
            (folder / f"{task}.jsonl").write_text("\n".join(map(json.dumps, lines)))
        return lbx.unpacked(folder / "benchmark.toml", folder)

    return make


def edited(task: str, number: int, **changes: object) -> list[dict[str, Any]]:
    return [{**row, **changes} if at == number else row for at, row in enumerate(ROWS[task])]


@pytest.fixture(scope="module")
def first(revision: Revision) -> Path:
    return revision()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    answers = [{"key": f"town/{task}/{row['id']}", "text": {"qa": "red", "pick": "horn"}[task]}
               for task, rows in ROWS.items() for row in rows]  # fmt: skip
    (folder / "answers.jsonl").write_text("\n".join(map(json.dumps, [*answers, {"key": "*", "text": "new"}])))
    card = folder / "m.toml"
    card.write_text('name = "m"\nbackend = "scripted"\ncontext_window = 4000\n[weights]\npath = "answers.jsonl"\n')
    return card


@pytest.fixture
def results(lbx: Lbx, first: Path, model: Path, tmp_path: Path) -> Path:
    path = tmp_path / "results.duckdb"
    lbx.ok(*run(first, model, path))
    return path


def run(bundle: Path, model: Path, output: Path, *more: object) -> tuple[object, ...]:
    return ("run", "--bundle", bundle, "--model", model, "--tasks", "town", "--no-plan", *more, "-o", output)


def rescored(lbx: Lbx, results: Path, bundle: Path) -> tuple[Path, dict[str, Any]]:
    output = results.with_name("rescored.duckdb")
    done = lbx.ok("score", results, "--bundle", bundle, "-o", output, "--json")
    said: dict[str, Any] = json.loads(done.stdout)
    return output, said


def scores(lbx: Lbx, results: Path) -> dict[str, float]:
    rows = lbx.rows(results, "SELECT task, metric, official FROM task_scores WHERE headline")
    return {f"{row['task']} {row['metric']}": row["official"] for row in rows}


def marked(lbx: Lbx, results: Path) -> list[str]:
    rows = json.loads(lbx.ok("show", results, "--mark", "question changed", "--json").stdout)
    assert all(row["marks"] == "question changed" and row["score"] is None for row in rows)
    return [row["sample"] for row in rows]


@pytest.mark.parametrize(
    "replaced, rows, expected",
    [
        (('"exact_match"', '"contains"'), {}, {"qa contains": 100.0, "pick accuracy": 100.0}),
        (('"exact_match"]', "\"exact_match\"]\nextract = 'r(.)d'"), {},
         {"qa exact_match": 0.0, "pick accuracy": 100.0}),
        (("", ""), {"qa": edited("qa", 5, references=["blue"])}, {"qa exact_match": 500 / 6, "pick accuracy": 100.0}),
        (("", ""), {"pick": edited("pick", 0, references="A")}, {"qa exact_match": 100.0, "pick accuracy": 200 / 3}),
    ],
)  # fmt: skip
def test_new_rules_score_every_answer(
    lbx: Lbx, results: Path, revision: Revision, replaced: tuple[str, str], rows: dict[str, Any],
    expected: dict[str, float],
) -> None:  # fmt: skip
    before = results.read_bytes()
    output, said = rescored(lbx, results, revision(replaced, **rows))
    assert said["scored"] == 9
    assert scores(lbx, output) == pytest.approx(expected)
    assert marked(lbx, output) == []
    assert results.read_bytes() == before


@pytest.mark.parametrize(
    "replaced, rows, marks, what",
    [
        (("", ""), {"qa": edited("qa", 5, question="Which one?")}, ["town/qa/q5"], "question"),
        (("", ""), {"qa": edited("qa", 0, document="A house.")}, ["town/qa/q0"], "document"),
        (("", ""), {"pick": edited("pick", 1, choices=["horn", "bell"], references="A")}, ["town/pick/p1"], "choices"),
        (("{document}\\n{question}\\n{choices}", "{document}\\n{choices}\\n{question}"), {},
         [f"town/pick/p{n}" for n in range(3)], "instructions"),
        (("{choices}\"\n", "{choices}\"\nstop = [\".\"]\n"), {}, [f"town/pick/p{n}" for n in range(3)], "instructions"),
        (("{choices}\"\n", "{choices}\"\nsystem = \"Hm.\"\n"), {}, [f"town/pick/p{n}" for n in range(3)],
         "instructions"),
    ],
)  # fmt: skip
def test_answers_to_changed_questions_are_kept_and_marked(
    lbx: Lbx, results: Path, revision: Revision, replaced: tuple[str, str], rows: dict[str, Any], marks: list[str],
    what: str,
) -> None:  # fmt: skip
    output, said = rescored(lbx, results, revision(replaced, **rows))
    assert marked(lbx, output) == marks
    task = marks[0].split("/")[1]
    assert said["scored"] == 9 - len(marks)
    assert said["tasks"][f"town/{task}"]["question_changed"] == len(marks)
    (failure, *_) = json.loads(lbx.ok("report", output, "failures", "--format", "json").stdout)
    assert failure["error"] == f"The question has changed since this answer: {what}."
    kept = lbx.rows(output, "SELECT output FROM generations WHERE error IS NOT NULL")
    assert {row["output"] for row in kept} == {"red" if task == "qa" else "horn"}
    (row,) = lbx.rows(output, f"SELECT samples, bundle_samples FROM coverage WHERE task = '{task}'")
    assert row["bundle_samples"] - row["samples"] == len(marks)
    (row,) = lbx.rows(output, f"SELECT failed, question_changed FROM guards WHERE task = '{task}'")
    assert row == {"failed": 0, "question_changed": len(marks)}


def test_a_run_asks_only_the_changed_questions(lbx: Lbx, results: Path, revision: Revision, model: Path) -> None:
    bundle = revision(qa=edited("qa", 5, question="Which one?"))
    output, _ = rescored(lbx, results, bundle)
    shown = lbx.ok("show", output, "town/qa/q5").stdout
    assert "Which one?" in shown and "Which colour is 5?" in shown and "question has changed" in shown
    times = "SELECT sample_id, created_at FROM generations WHERE sample_id <> 'q5' ORDER BY ALL"
    before = lbx.rows(output, times)
    lbx.ok(*run(bundle, model, output))  # by its settings, as its name is from the first bundle
    assert lbx.rows(output, times) == before
    assert marked(lbx, output) == []
    assert [row["n"] for row in lbx.rows(output, "SELECT count(*) AS n FROM runs")] == [1]
    assert scores(lbx, output)["qa exact_match"] == pytest.approx(100.0)


def test_questions_are_found_under_other_ids(
    lbx: Lbx, revision: Revision, model: Path, answers: Path, tmp_path: Path
) -> None:
    """Rows without ids: the second one is gone and a new one comes first, so that most have another position."""
    rows = [{name: value for name, value in row.items() if name != "id"} for row in ROWS["qa"]]
    path = tmp_path / "results.duckdb"
    lbx.ok(*run(revision(qa=rows), model, path))
    judge = answers.with_name("judge.toml")
    judge.write_text('name = "j"\nbackend = "scripted"\n[weights]\npath = "judge.jsonl"\n')
    judge.with_name("judge.jsonl").write_text(json.dumps({"*": "[[4]]"}))
    rubric = tmp_path / "rubric.toml"
    rubric.write_text(
        'name = "r"\nkind = "score"\nuser = "{question} {answer}"\nrating = "[[{rating}]]"\nlow = 1\nhigh = 5\n'
        "max_new_tokens = 8\n"
    )
    old_bundle = revision(qa=rows)
    lbx.ok("judge", path, "--run", "m", "--bundle", old_bundle, "--judge", judge, "--rubric", rubric, "--no-plan",
           "--tasks", "town/qa")  # fmt: skip
    words = "SELECT question, sample_id, current FROM judgements JOIN answers USING (benchmark, task, sample_id)"
    first = {**rows[0], "question": "Which is the first?", "references": ["blue"]}
    bundle = revision(qa=[first, rows[0], *rows[2:]])
    output, said = rescored(lbx, path, bundle)
    assert said["tasks"]["town/qa"] == {
        "rules_changed": False, "references_changed": 0, "ids_changed": 1, "scored": 5, "question_changed": 0,
        "question_removed": 1,
    }  # fmt: skip
    found = lbx.rows(output, "SELECT sample_id, question, output, score FROM answers WHERE task = 'qa' ORDER BY ALL")
    assert [(row["sample_id"], row["question"]) for row in found if row["score"] is not None] == [
        ("0001", "Which colour is 0?"), *((f"000{n}", f"Which colour is {n}?") for n in range(2, 6)),
    ]  # fmt: skip
    assert [(row["sample_id"], row["question"]) for row in found if row["score"] is None] == [
        ("removed-1", "Which colour is 1?")
    ]
    judged = {row["sample_id"]: row for row in lbx.rows(output, words)}
    assert judged["0001"]["question"] == "Which colour is 0?" and judged["0001"]["current"]
    assert not judged["removed-1"]["current"]
    lbx.ok(*run(bundle, model, output))
    (row,) = lbx.rows(output, "SELECT official, answered, asked FROM task_scores WHERE task = 'qa'")
    assert (row["answered"], row["asked"]) == (6, 6)


def test_a_removed_question_is_no_part_of_the_score(lbx: Lbx, results: Path, revision: Revision, model: Path) -> None:
    bundle = revision(qa=ROWS["qa"][2:])
    with Store(results) as store:
        store.query("UPDATE generations SET error = 'no memory', output = NULL WHERE sample_id = 'q1'")
    output, said = rescored(lbx, results, bundle)
    assert (said["scored"], said["tasks"]["town/qa"]["question_removed"]) == (7, 2)
    assert marked(lbx, output) == ["town/qa/q0", "town/qa/q1"]
    (row,) = lbx.rows(output, "SELECT official, answered, asked, coverage FROM task_scores WHERE task = 'qa'")
    assert row == {"official": 100.0, "answered": 4, "asked": 4, "coverage": None}
    lbx.ok(*run(bundle, model, output))
    assert "7 outputs scored" in lbx.ok("score", output, "--bundle", bundle).stdout
    assert marked(lbx, output) == ["town/qa/q0", "town/qa/q1"]


def test_tasks_that_a_run_did_not_reach_follow_the_bundle(lbx: Lbx, results: Path, revision: Revision) -> None:
    with Store(results) as store:
        for table in ("generations", "scores"):
            store.query(f"DELETE FROM {table} WHERE task = 'pick'")
        store.query("UPDATE runs SET task_samples = json_merge_patch(task_samples, '{\"town/gone\": 5}')")
    output, _ = rescored(lbx, results, revision(pick=ROWS["pick"][1:]))
    (row,) = lbx.rows(output, "SELECT task_samples FROM runs")
    assert json.loads(row["task_samples"]) == {"town/qa": 6, "town/pick": 2}


def test_without_an_output_a_change_is_refused_with_the_command(
    lbx: Lbx, results: Path, revision: Revision, first: Path
) -> None:
    assert "9 outputs scored" in lbx.ok("score", results, "--bundle", first).stdout
    before = scores(lbx, results)
    for bundle, what in (
        (revision(('"exact_match"', '"contains"')), "town/qa/q0 (metrics)"),
        (revision(qa=edited("qa", 5, references=["blue"])), "town/qa/q5 (references)"),
        (revision(qa=edited("qa", 5, question="Which one?")), "town/qa/q5 (question)"),
    ):
        done = lbx("score", results, "--bundle", bundle)
        fails(done, 2, what, "The file is unchanged")
        command = shlex.split(done.stderr.rpartition("try: ")[2])
        assert scores(lbx, results) == before
        lbx.ok(*command[1:])
        fails(lbx(*command[1:]), 2, "already exists")
        Path(command[-1]).unlink()


def test_the_new_run_records_the_earlier_rules(lbx: Lbx, results: Path, revision: Revision) -> None:
    (old,) = lbx.rows(results, "SELECT run_id, bundle_digest, rescorings FROM runs")
    assert old["rescorings"] is None
    output, _ = rescored(lbx, results, revision(('"exact_match"', '"contains"')))
    (new,) = lbx.rows(output, "SELECT run_id, bundle_digest, rescorings FROM runs")
    assert new["run_id"] == old["run_id"] and new["bundle_digest"] != old["bundle_digest"]
    (entry,) = json.loads(new["rescorings"])
    assert entry["bundle_digest"] == old["bundle_digest"]
    before, after = entry["rules"]["town/qa"]
    assert before != after
    assert len(set(entry["rules"]["town/pick"])) == 1


def test_imported_answers_are_scored_by_new_rules(
    lbx: Lbx, results: Path, first: Path, revision: Revision, tmp_path: Path
) -> None:
    lbx.ok("export", "town", results, "-o", tmp_path / "predictions")
    imported = tmp_path / "imported.duckdb"
    lbx.ok("import", "town", tmp_path / "predictions", "--model-name", "x", "--bundle", first, "-o", imported)
    changed = edited("qa", 5, question="Which one?")
    changed[0] = {**changed[0], "references": ["blue"]}
    output, said = rescored(lbx, imported, revision(qa=changed))
    assert said["scored"] == 8
    assert marked(lbx, output) == ["town/qa/q5"]
    (row,) = lbx.rows(output, "SELECT score FROM answers WHERE sample_id = 'q0'")
    assert row["score"] == 0


def test_unusable_requests_write_nothing(lbx: Lbx, results: Path, first: Path, bundle: Path, tmp_path: Path) -> None:
    output = tmp_path / "new.duckdb"
    fails(lbx("score", results, "-o", output, environment={}), 2, "-o needs --bundle")
    fails(lbx("score", results, "--bundle", first, "--run", "m", "-o", output), 2, "--run and -o exclude each other")
    fails(lbx("score", results, "--bundle", bundle, "-o", output), 2, "none of the own benchmarks")
    fails(lbx("score", tmp_path / "no.duckdb", "--bundle", first, "-o", output), 1, "does not exist")
    fails(lbx("score", results, "--bundle", first, "-o", tmp_path / "no" / "new.duckdb"), 1, "does not exist")
    fails(lbx("score", results, "--bundle", first, "-o", results), 2, "already exists")
    fails(lbx("score", results, "--bundle", first, "-o", tmp_path), 1, "is a folder, not a results file")
    assert not [*tmp_path.glob("*new*"), *tmp_path.glob(".*")]


def test_the_function_refuses_the_same_requests(results: Path, first: Path, tmp_path: Path) -> None:
    output, before = tmp_path / "new.duckdb", results.read_bytes()
    with pytest.raises(UsageError, match="-o needs --bundle"):
        score(results, output=output)
    with pytest.raises(UsageError, match="--run and -o exclude each other"):
        score(results, output=output, bundle=first, runs=["m"])
    with pytest.raises(UsageError, match="--embedding and -o exclude each other"):
        score(results, output=output, bundle=first, embedding="e")
    assert not output.exists()
    assert results.read_bytes() == before


def test_an_interrupted_call_leaves_no_file(
    lbx: Lbx, results: Path, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    before = results.read_bytes(), sorted(tmp_path.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr("lbx.results.whole.bundle_rules.rescore", interrupt)
        assert lbx("score", results, "--bundle", first, "-o", tmp_path / "new.duckdb").returncode
    assert (results.read_bytes(), sorted(tmp_path.iterdir())) == before


def test_other_benchmarks_are_copied_with_their_scores(
    lbx: Lbx, results: Path, revision: Revision, bundle: Path, answers: Path
) -> None:
    card = answers.with_name("needle.toml")
    card.write_text(f'name = "n"\nbackend = "scripted"\n[weights]\npath = "{answers.name}"\n')
    lbx.ok("run", "--bundle", bundle, "--model", card, "--tasks", "needle", "--no-plan", "--name", "n", "-o", results)
    query = "SELECT * FROM scores WHERE benchmark = 'needle' ORDER BY ALL"
    numbers = "SELECT * FROM numbers WHERE benchmark = 'needle' ORDER BY ALL"
    output, _ = rescored(lbx, results, revision(('"exact_match"', '"contains"')))
    for each in (query, numbers, "SELECT * FROM runs WHERE run_id = 'n'"):
        assert lbx.rows(output, each) == lbx.rows(results, each) != []
