"""Judgements of others: L-Eval's files become a judge's run, with their numbers, and come back.

tests/data/leval_judge/ours.pred.judge.jsonl was written by L-Eval's Evaluation/llm_eval.py (cd34b05), asked twice about
five questions, with words of our own in place of its prompt and canned answers in place of its API; what it printed of
its numbers is ``PRINTED``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lbx.base.bundle_folder import FILES, Bundle
from lbx.base.errors import BundleError, StoreError, UsageError
from lbx.benchmarks.judge import JudgeBenchmark, Round
from lbx.benchmarks.leval.judge import SCRIPT, parse_rubric, read_judge_file
from lbx.exchange.exporting import export
from lbx.opinions.judgement_files import JudgeRun, export_judgements, read_judgements, write_judgements
from lbx.results import GenerationRow, RunRow, SampleRow, Store
from lbx.results.scoring.aggregation import aggregate_scores
from lbx.results.scoring.scores import Rescoring, rescore
from lbx.results.whole.run_changes import score_with
from tests.exchange.import_parts import bundle_of, import_predictions

GOLDEN = Path(__file__).resolve().parents[1] / "data/leval_judge/ours.pred.judge.jsonl"
PRINTED = (
    (
        "n_wins of ours-7b = 4",
        "n_wins of base-1 = 2",
        "n_draws = 3 n_error = 1",
        "win rate of ours-7b = 0.6111111111111112",
        "win rate of base-1 = 0.3888888888888889",
    ),
    (
        "n_wins of ours-7b = 5",
        "n_wins of base-1 = 2",
        "n_draws = 1 n_error = 2",
        "win rate of ours-7b = 0.6875",
        "win rate of base-1 = 0.3125",
    ),
)
JUDGE_PY = rb"""
judge_prompts = {"system_prompt": "Weigh both.", "output_format": "[[A]]", "prompt_template":
    "Asked: {question}\nTrue: {ref_answer}\n[First] {answer_a}\n[Second] {answer_b}\n{{end}}"}
"""
FASTCHAT = "data/judgements/fastchat/gpt-4_pair.jsonl"


def import_judgements(store: Store, path: Path, **how: Any) -> list[JudgeRun]:
    done = write_judgements(store, read_judgements(path, **how))
    for run in done:
        score_with(store, None, run_ids=[run.run_id], processes=1)
        store.finish_run(run.run_id, "done")
    return done


def rows() -> list[dict[str, Any]]:
    """The golden file's first five."""
    return [json.loads(line) for line in GOLDEN.read_bytes().splitlines()[:5]]


def test_the_official_scripts_file_has_its_numbers_and_comes_back(store: Store, tmp_path: Path) -> None:
    first, second = import_judgements(store, GOLDEN)
    assert (first.numbers, second.numbers) == PRINTED
    assert (first.failed, second.failed) == (0, 1)
    assert second.run_id == f"{first.run_id}-2"
    assert first.compared_runs == second.compared_runs
    for run, won in ((first, 4), (second, 5)):
        scores = store.query(
            "SELECT extracted, count(*) FROM scores WHERE run_id = ? AND metric = 'verdict' GROUP BY ALL", [run.run_id]
        ).rows
        assert dict(scores)["answer"] == won and dict(scores)["against"] == 2
    assert store.query("SELECT count(*) FROM scores WHERE partial = 'ambiguous'").rows == [(2,)]
    judged = store.query("SELECT DISTINCT benchmark, task, rubric FROM judgements").rows
    assert judged == [("leval", "judged", "leval")]
    (again,) = export_judgements(store, [first.run_id, second.run_id], tmp_path / "out").files
    assert again.name == GOLDEN.name and again.read_bytes() == GOLDEN.read_bytes()
    (alone,) = export_judgements(store, [second.run_id], tmp_path / "second").files
    assert GOLDEN.read_bytes().endswith(alone.read_bytes()) and alone.read_bytes().count(b"\n") == 8


def test_what_is_compared_stands_in_the_prompts(store: Store) -> None:
    (first, _) = import_judgements(store, GOLDEN)
    judged, against = first.compared_runs
    assert (judged.partition("-leval")[0], against.partition("-leval")[0]) == ("ours-7b", "base-1")
    answers = dict(
        store.query(
            "SELECT a.question, g.output FROM generations g JOIN samples a USING (benchmark, task, sample_id) "
            "WHERE run_id = ?",
            [against],
        ).rows
    )
    assert answers["Why does the ferry wait?"] == "Because of fog.\n\nOr so the captain says."
    assert len(answers) == 5
    rounds = store.query(
        "SELECT a.question, a.\"references\"->>'$[0]', d FROM generations g JOIN samples a "
        "USING (benchmark, task, sample_id) JOIN rounds d ON (d.rubric, d.round_id) = (g.task, g.sample_id) "
        "WHERE g.run_id = ? ORDER BY g.created_at",
        [first.run_id],
    ).rows
    assert len(rounds) == 10
    for place, (question, reference, about) in enumerate(rounds):
        assert (about["run_id"], about["against_run_id"]) == (judged, against)
        assert about["answer_first"] == (place % 2 == 0)
        assert about["against_words"] == len(answers[question].split()) and reference


@pytest.mark.parametrize(("template", "count"), [("pair-v2", 50), ("pair-math-v1", 25)])
def test_every_prompt_is_taken_apart_without_its_template(
    template: str, count: int, shared: Callable, write_lines: Callable
) -> None:
    """Real prompts of FastChat's judge, whose code and form L-Eval's took over, with names of models for winners."""
    rows = [row for row in map(json.loads, shared(FASTCHAT).read_bytes().splitlines()) if row["judge"][1] == template]
    for row in rows:
        winners = {key: row.get(row[key], row[key]) for key in ("g1_winner", "g2_winner")}
        row.update({**winners, "judge": "gpt-4"})
    (pairs,) = read_judge_file(write_lines("m.pred.judge.jsonl", rows)).attempts
    around = set()
    for pair in pairs:
        texts = pair.contents
        assert texts and not pair.note and bool(texts.reference) == ("math" in template)
        for prompt, answers in zip(pair.prompts, (texts.answers, texts.answers[::-1]), strict=True):
            words, rest = [], prompt
            for text in filter(None, (texts.question, texts.reference, *answers)):
                before, found, rest = rest.partition(text)
                assert found
                words.append(before)
            around.add((*words, rest))
    assert len(pairs) == count and len(around) == 1  # the words around the texts are the template's


def test_prompts_that_cannot_be_taken_apart_leave_the_verdicts(store: Store, write_lines: Callable) -> None:
    (row, *_) = rows()
    (done,) = import_judgements(store, write_lines("m.pred.judge.jsonl", [row]))
    assert done.numbers[-1] == "win rate of ours-7b = 1.0" and done.rounds == 2
    assert done.compared_runs[1].startswith("baseline-leval_judge-")  # named nowhere
    assert store.query("SELECT extracted FROM scores").rows == [("answer",)] * 2
    ((question, words, answer),) = store.query(
        "SELECT DISTINCT question, answer_words, answer_sha256 FROM rounds d "
        "JOIN samples a ON (a.benchmark, a.task, a.sample_id) = ('judge', d.rubric, d.round_id)"
    ).rows
    assert (question, words, answer) == ("", None, None)
    assert store.query("SELECT * FROM generations WHERE benchmark = 'leval'").rows == []


def test_answers_of_runs_that_are_there_are_theirs(store: Store, write_lines: Callable) -> None:
    told = [pair.contents for pair in read_judge_file(GOLDEN).attempts[0] if pair.contents]
    for side, model in enumerate(("ours-7b", "base-1")):
        answers = [
            {"query": one.question, "gt": one.reference, "a_pred": one.answers[side], "evaluation": "LLM"}
            for one in told
        ]
        import_predictions(
            store, "leval", write_lines(f"{model}.pred.jsonl", answers), model=f"org/{model}", run_id=model
        )
    for _ in range(2):
        for done in import_judgements(store, GOLDEN):
            assert done.compared_runs == ("ours-7b", "base-1")
    (kept,) = store.query("SELECT count(*), count(DISTINCT run_id) FROM generations").rows
    assert kept == (5 + 5 + 10 + 10, 4)
    ((sample,),) = store.query(
        "SELECT DISTINCT sample_id FROM rounds JOIN samples USING (benchmark, task, sample_id) "
        "WHERE question = 'Who paid?'"
    ).rows
    assert store.query("SELECT count(*) FROM generations WHERE sample_id = ?", [sample]).rows == [(2,)]


def test_a_bundles_questions_are_its_samples(store: Store, tmp_path: Path) -> None:
    document = {
        "instructions": ["Who paid?", "What is in the cellar?"], "outputs": ["Nobody.", "Seventeen clocks."],
        "input": "a tale",
    }  # fmt: skip
    lines = "".join(json.dumps({**document, "evaluation": mark}) + "\n" for mark in ("f1", "LLM", "human"))
    place = "L4NLP/LEval:LEval/Generation/narrative_qa.jsonl"
    bundle = bundle_of(tmp_path / "bundle", {place: lines.encode()})
    (first, _) = import_judgements(store, GOLDEN, bundle=bundle)
    found = store.query(
        "SELECT task, sample_id, marks, document_sha256 != '' FROM rounds JOIN samples "
        "USING (benchmark, task, sample_id) WHERE question = 'Who paid?'"
    ).rows
    assert found == [("narrative_qa", "000-00", ["LLM"], True)] * 2
    assert store.query(
        "SELECT count(*) FROM generations WHERE run_id = ? AND task = 'judged'", [first.compared_runs[0]]
    ).rows == [(3,)]


def test_a_killed_runs_rows_before_a_whole_one_are_a_run_of_their_own(store: Store, tmp_path: Path) -> None:
    lines = GOLDEN.read_bytes().splitlines(keepends=True)
    file = tmp_path / "ours.pred.judge.jsonl"
    file.write_bytes(b"".join([*lines[:3], *lines[8:16]]))
    killed, whole = import_judgements(store, file)
    assert (killed.rounds, whole.rounds) == (6, 10) and whole.numbers == PRINTED[1]
    (again,) = export_judgements(store, [killed.run_id, whole.run_id], tmp_path / "out").files
    assert again.read_bytes() == file.read_bytes()


def test_a_winner_that_the_judgement_does_not_name_is_told(store: Store, write_lines: Callable) -> None:
    changed = [{**row, "g2_winner": "tie"} if place == 0 else row for place, row in enumerate(rows())]
    (done,) = import_judgements(store, write_lines("ours.pred.judge.jsonl", changed))
    assert done.numbers == PRINTED[0]
    (note,) = done.notes
    assert "line 1: 'g2_winner' is 'tie', but its judgement names another winner, which counts." in note


def test_a_model_that_never_wins_is_called_as_its_file(store: Store, write_lines: Callable) -> None:
    lost = {"g1_winner": "base-1", "g2_winner": "base-1", "g1_judgment": "[[B]]", "g2_judgment": "[[A]]"}
    file = write_lines("gpt-3.5.pred.judge.jsonl", [{**row, **lost} for row in rows()])
    (done,) = import_judgements(store, file)
    assert done.numbers[0] == "n_wins of gpt-3.5 = 0" and not done.notes


TWO_ROWS = rows()[:2]
CHANGED = TWO_ROWS[1]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ({**CHANGED, "g1_judgment": 7}, "line 2: 'g1_judgment' must be text, not the number 7"),
        ({**CHANGED, "judge": None}, "line 2: 'judge' must be text, not null"),
        ({**CHANGED, "judge": " "}, "line 2: 'judge' is blank"),
        ({**CHANGED, "judge": "x" * 201}, "line 2: 'judge' is longer than 200"),
        ({**CHANGED, "judge": "gpt-3"}, "several judges, gpt-4 and gpt-3"),
        ({**CHANGED, "g1_winner": "x"}, "line 2: the winner is 'x', but 'ours-7b' in line 1"),
        ({key: value for key, value in CHANGED.items() if key != "g2_user_prompt"}, "line 2: the key 'g2_user_prompt'"),
        ([], "line 2: it contains a list"),
        ("n_draws = 1", r"line 2: it is not valid JSON \(Expecting value at column 1\)"),
        ('{"g1_winner": "x"', "line 2: it is not valid JSON"),
    ],
)
def test_a_damaged_file_is_refused_whole(second: Any, why: str, tmp_path: Path) -> None:
    file = tmp_path / "m.pred.judge.jsonl"
    file.write_text("\n".join([json.dumps(TWO_ROWS[0]), second if isinstance(second, str) else json.dumps(second)]))
    with pytest.raises(UsageError, match=why):
        read_judgements(file)


def test_a_file_of_numbers_alone_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "m.pred.judge.jsonl"
    file.write_text("n_draws = 1 n_error = 0\n")
    with pytest.raises(UsageError, match="it contains no judgements"):
        read_judgements(file)


def test_another_files_run_is_not_written_over(store: Store, write_lines: Callable) -> None:
    import_judgements(store, GOLDEN, run_id="j")
    other = write_lines("ours.pred.judge.jsonl", rows()[:4])
    with pytest.raises(StoreError, match="was imported from files with other content"):
        import_judgements(store, other, run_id="j")
    with pytest.raises(UsageError, match="leval"):
        export(store, "leval", "j", other.parent / "out")


def test_a_question_that_is_judged_twice_counts_twice(store: Store, write_lines: Callable) -> None:
    doubled = [*rows(), *rows()[:2]]
    (done,) = import_judgements(store, write_lines("ours.pred.judge.jsonl", doubled))
    assert done.rounds == 14
    ((kept,),) = store.query("SELECT count(*) FROM generations WHERE run_id = ?", [done.run_id]).rows
    assert kept == 14


SAID = {"Who paid?": ("[[A]]", "first [[A]]"), "Why?": ("Both. [[C]]", None)}


def _judged_here(store: Store, root: Path, write_lines: Callable) -> Bundle:
    """A judge of lbx over two models' answers to two questions, one of which both a judge and people are to judge."""
    rows = [{"instructions": [query], "outputs": [f"True: {query}"], "input": "a tale"} for query in SAID]
    marked = [{**rows[0], "evaluation": mark} for mark in ("f1", "LLM", "human")] + [{**rows[1], "evaluation": "LLM"}]
    lines = "".join(json.dumps(row) + "\n" for row in [*marked, {**rows[1], "evaluation": "human", "input": "other"}])
    bundle = bundle_of(root, {"L4NLP/LEval:LEval/Generation/narrative_qa.jsonl": lines.encode()})
    script = bundle.root / FILES / SCRIPT
    script.parent.mkdir(parents=True)
    script.write_bytes(JUDGE_PY)
    for model in ("ours", "base"):
        answers = [
            {"query": query, "gt": f"True: {query}", "a_pred": f"{model} {{}} {query}", "evaluation": "LLM"}
            for query in SAID
        ]
        file = write_lines(f"{model}.pred.jsonl", [*answers, {**answers[1], "evaluation": "human"}])
        import_predictions(store, "leval", file, model=f"org/{model}", run_id=model, bundle=bundle)
    rubric = parse_rubric(script)
    store.begin_run(RunRow("judge", "local", "scripted", "1", {"judge": 1}, "", rubric.settings("both"), {}, "0"))
    marks = {"Who paid?": ("LLM", "human"), "Why?": ("LLM",)}
    for row in store.query(
        "SELECT a.task, a.sample_id, a.question, a.\"references\"->>'$[0]' AS gt, m.output, b.output AS other "
        "FROM samples a JOIN generations m USING (benchmark, task, sample_id) JOIN generations b "
        "USING (benchmark, task, sample_id) WHERE m.run_id = 'ours' AND b.run_id = 'base' ORDER BY a.position DESC"
    ).dicts():
        for first, said in zip((True, False), SAID[row["question"]], strict=True):
            here = marks[row["question"]] if row["sample_id"] != "004-00" else ("human",)
            sample = Round(
                "leval", row["task"], row["sample_id"], row["question"], (row["gt"],), "ours", row["output"],
                against_run_id="base", against=row["other"], answer_first=first, marks=here,
            ).sample(rubric)  # fmt: skip
            error = None if said else "the server is gone"
            answer = GenerationRow("judge", "judge", "leval", sample.sample_id, 0, output=said, error=error)
            store.write(samples=[SampleRow(sample, 0)], generations=[answer])
    return bundle


def test_a_judge_of_lbx_goes_out_as_the_script_writes_it(store: Store, tmp_path: Path, write_lines: Callable) -> None:
    bundle = _judged_here(store, tmp_path / "bundle", write_lines)
    done = export_judgements(store, ["judge"], tmp_path / "out", bundle=bundle)
    (file,) = done.files
    *lines, numbers, rate_a, rate_b = file.read_text("ascii").splitlines()
    assert file.name == "ours.pred.judge.jsonl" and done.rows == len(lines) == 4 and not done.left_out
    rows = [json.loads(line) for line in lines]
    assert [json.dumps(row) for row in rows] == lines and list(rows[0]) == list(
        json.loads(GOLDEN.read_text().split("\n")[0])
    )
    # Who paid is asked once, and two rows, for the judge and for people: won, lost; the other: drawn, an error.
    assert (
        sorted((row["g1_winner"], row["g2_winner"]) for row in rows) == [("ours", "base")] * 2 + [("tie", "error")] * 2
    )
    assert (numbers, rate_a, rate_b) == ("n_draws = 2 n_error = 2", "win rate of ours = 0.5", "win rate of base = 0.5")
    assert {row["g2_judgment"] for row in rows} == {"first [[A]]", "$ERROR$"}
    rubric = parse_rubric(bundle.root / FILES / SCRIPT)
    row = next(row for row in rows if row["g1_winner"] == "ours")
    words = {
        "question": "Who paid?",
        "reference": "True: Who paid?",
        "a": "base {} Who paid?",
        "b": "ours {} Who paid?",
    }
    assert row["g2_user_prompt"] == rubric.user.format(**words)
    with Store(tmp_path / "again.duckdb") as other:
        (run,) = import_judgements(other, file, bundle=bundle)
        assert run.numbers[2:] == (numbers, rate_a, rate_b) and run.failed == 2
        ((settings,),) = other.query("SELECT settings FROM runs WHERE run_id = ?", [run.run_id]).rows
        assert json.loads(settings)["rubric_sha256"] == rubric.sha256


def test_a_judge_of_lbx_goes_out_with_what_it_says_of_todays_answers(
    store: Store, tmp_path: Path, write_lines: Callable
) -> None:
    bundle = _judged_here(store, tmp_path / "bundle", write_lines)
    store.query("UPDATE samples SET position = 9 WHERE benchmark = 'judge'")
    store.write(generations=[GenerationRow("ours", "leval", "narrative_qa", "000-00", 0, output="another one")])
    rubric = parse_rubric(bundle.root / FILES / SCRIPT)
    for first, said in ((True, "[[C]]"), (False, "[[C]] now")):
        sample = Round(
            "leval", "narrative_qa", "000-00", "Who paid?", ("True: Who paid?",), "ours", "another one",
            against_run_id="base", against="base {} Who paid?", answer_first=first, marks=("LLM", "human"),
        ).sample(rubric)  # fmt: skip
        answer = GenerationRow("judge", "judge", "leval", sample.sample_id, 0, output=said)
        store.write(samples=[SampleRow(sample, 0)], generations=[answer])
    (file,) = export_judgements(store, ["judge"], tmp_path / "out", bundle=bundle).files
    rows = [json.loads(line) for line in file.read_text().splitlines() if line.startswith("{")]
    assert [row["g2_judgment"] for row in rows].count("[[C]] now") == 2 and len(rows) == 4


@pytest.mark.parametrize("verdicts", ["[1]", "7", "null", '{"a": 5}', '[["[[A]]", ["a"]]]', "[[{}, []]]", None])
def test_rounds_that_lbx_did_not_write_are_named(
    verdicts: str | None, store: Store, tmp_path: Path, write_lines: Callable
) -> None:
    bundle = _judged_here(store, tmp_path / "bundle", write_lines)
    store.query("UPDATE rounds SET against_run_id = NULL, marks = [NULL], kind = 'odd', verdicts = ?", [verdicts])
    with pytest.raises(StoreError, match="a round of judge that lbx did not write"):
        export_judgements(store, ["judge"], tmp_path / "out", bundle=bundle)
    aggregate_scores(store, "judge", JudgeBenchmark())
    rescore(store, Rescoring({"judge": JudgeBenchmark()}))


def test_a_judge_of_lbx_without_what_the_file_needs(store: Store, tmp_path: Path, write_lines: Callable) -> None:
    bundle = _judged_here(store, tmp_path / "bundle", write_lines)
    out = tmp_path / "out"
    with pytest.raises(UsageError, match=r"judged by lbx, .* --bundle DIR"):
        export_judgements(store, ["judge"], out)
    with pytest.raises(UsageError, match="'ours' is not a judge's"):
        export_judgements(store, ["ours"], out, bundle=bundle)
    script = bundle.root / FILES / SCRIPT
    script.write_bytes(JUDGE_PY.replace(b"[First]", b"[One]"))
    with pytest.raises(UsageError, match="did not judge in both orders with the rubric of L-Eval's script"):
        export_judgements(store, ["judge"], out, bundle=bundle)
    script.unlink()
    with pytest.raises(BundleError, match="lbx bundle bundle/leval"):
        export_judgements(store, ["judge"], out, bundle=bundle)
    script.write_bytes(JUDGE_PY)
    store.write(generations=[GenerationRow("ours", "leval", "narrative_qa", "000-00", 0, output="changed")])
    with pytest.raises(StoreError, match="lacks the judged answers of ours"):
        export_judgements(store, ["judge"], out, bundle=bundle)
    assert not out.exists()
