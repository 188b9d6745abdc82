"""HELMET's rubrics from stand-ins of its scripts: runs rated by a table of replies, missing data, bad replies."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, NoDataError, UsageError
from lbx.base.marks import UNFINISHED
from lbx.base.records import JudgedAnswer, Sample
from lbx.benchmarks.base.rubric import judgement
from lbx.benchmarks.helmet.judge import ANSWER_SCRIPT, SUMMARY_SCRIPT
from lbx.benchmarks.metrics.judged_json import ANSWER_FORMULA, SUMMARY_FORMULA
from lbx.benchmarks.registry import BENCHMARKS, RATING_RUBRICS, rating_rubric, rating_texts
from lbx.opinions.judge_run import judge_spec, read_rubric
from lbx.results import GenerationRow, RunRow, SampleRow, Store
from lbx.results.scoring.aggregation import aggregate_scores
from lbx.results.scoring.scores import score_rows
from tests.backends.endpoint_servers import ScriptedServer, closing_all
from tests.command_line import Lbx, fails
from tests.journeys.asking import count_in_copy
from tests.judge_parts import table
from tests.made_parquet import write_parquet
from tests.running.engine_parts import write_bundle

ANSWER_PY = b'judge_prompt = """Rate {{}}. Q {question} Gold {correct_answers} Said {parsed_output}"""\n'
SUMMARY_PY = b"".join(
    b'fluency_prompt%(book)s = "Fluent? {text}"\n'
    b'recall_prompt%(book)s = "Found? {keypoints} in {summary}"\n'
    b'precision_prompt%(book)s = "Supported? {expert_summary} has {summary}"\n' % {b"book": book}
    for book in (b"", b"_book")
)
POINTS = "hub:princeton-nlp/HELMET/data"
CONTENT: Mapping[str, bytes] = {
    f"files/{ANSWER_SCRIPT}": ANSWER_PY,
    f"files/{SUMMARY_SCRIPT}": SUMMARY_PY,
    f"{POINTS}/infbench/longbook_sum_eng_keypoints.jsonl": (
        b'{"id": 7, "keypoints": ["a boy", "a dog", "a sea", "it ends"]}\n'
    ),
    f"{POINTS}/multi_lexsum/multi_lexsum_val.jsonl": b'{"id": "c1", "summary/short_keypoints": ["a suit"]}\n',
}
NARRATIVE, BOOK, CASE = RATING_RUBRICS


RECIPE = f"""
name = "judged"
[[source]]
kind = "path"
path = "HELMET"
repo = "princeton-nlp/HELMET"
type = "dataset"
files = ["data/*.jsonl"]
[[source]]
kind = "path"
path = "scripts"
to = "{Path(ANSWER_SCRIPT).parent}"
licence = "MIT"
allow = ["eval_gpt4_longqa.py", "eval_gpt4_summ.py"]
"""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with the scripts and key points, unpacked."""
    folder = tmp_path_factory.mktemp("judged")
    for place, content in CONTENT.items():
        path = folder / place.replace("hub:princeton-nlp/", "").replace("files/princeton-nlp/HELMET/", "")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (folder / "judged.toml").write_text(RECIPE)
    return Lbx().unpacked(folder / "judged.toml", folder)


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return write_bundle(tmp_path / "b", CONTENT)


def answered(folder: Path, outputs: Mapping[tuple[str, str], str], run: str = "mine") -> Path:
    """A results file with a run's answers: {(task, sample id): answer}."""
    path, family = folder / "runs.duckdb", BENCHMARKS["helmet"]
    with Store(path) as store:
        store.begin_run(RunRow(run, "model", "scripted", "1", {"helmet": 1}, "b" * 64, {}, {}, "1"))
        samples, generations, scores = [], [], []
        for place, ((task, name), output) in enumerate(outputs.items()):
            sample = Sample("helmet", task, name, f"Text {name}.", "Who?" if "narr" in task else "", ("Ann's", "Bob"))
            samples.append(SampleRow(sample, place))
            generations.append(GenerationRow(run, *sample.key[:3], 0, output))
            scores += score_rows(run, (*sample.key[:3], 0), family, family.score(sample, output))
        store.write(samples=samples, generations=generations, scores=scores)
        aggregate_scores(store, run, family)
        store.finish_run(run, "done")
    return path


def judge(lbx: Lbx, results: Path, bundle: Path, card: Path, *more: object) -> Any:
    return lbx("judge", results, "--bundle", bundle, "--judge", card, "--run", "mine", "--no-plan", *more)


def rows(results: Path, sql: str) -> list[tuple[Any, ...]]:
    with Store(results, read_only=True) as store:
        return [tuple(row) for row in store.query(sql).rows]


def test_answers_on_stories(lbx: Lbx, unpacked: Path, tmp_path: Path) -> None:
    answers = {
        ("narrativeqa_8k", "0"): "It was\nanswer: Ann.\nYes",
        ("narrativeqa_16k", "1"): "Bob",
        ("json_kv_8k", "x"): "y",
    }
    results = answered(tmp_path, answers)
    card = table(tmp_path, "critic", {"*": 'So: {"fluency": 1, "correctness": 2}'})
    done = judge(lbx, results, unpacked, card)
    assert done.returncode == 0, done.stderr
    assert "2 questions, 2 ratings with the rubric 'helmet_narrativeqa'" in done.stderr
    found = rows(results, "SELECT task, rating, state, current FROM judgements ORDER BY task")
    assert found == [("narrativeqa_16k", 2.0, "ok", True), ("narrativeqa_8k", 2.0, "ok", True)]
    totals = "SELECT rating, score, n_errors, scale_low, scale_high FROM judge_results WHERE task IS NULL"
    assert rows(results, totals) == [(2.0, 2 / 3, 0, 0, 3)]
    ((name, official),) = rows(results, "SELECT name, official FROM group_scores WHERE grouping = 'judge'")
    assert name.startswith("critic") and official == 2.0
    ((length, official),) = rows(
        results, "SELECT name, official FROM group_scores WHERE grouping = 'length' AND name = '8k'"
    )
    assert (length, official) == ("8k", None), "the average lacks six categories, and no judge completes it"
    assert "2 already done" in judge(lbx, results, unpacked, card).stdout


def test_a_rubric_of_pairs_is_not_replaced(lbx: Lbx, unpacked: Path, tmp_path: Path) -> None:
    for run in ("mine", "other"):
        results = answered(tmp_path, {("narrativeqa_8k", "0"): "Ann"}, run)
    card = table(tmp_path, "critic", {"*": "A"})
    done = judge(lbx, results, unpacked, card, "--rubric", "leval", "--against", "other", "--questions", "open")
    assert done.returncode and "rates a single answer" not in done.stderr and "L-Eval" in done.stderr


def test_summaries_of_other_programs_are_named(lbx: Lbx, unpacked: Path, tmp_path: Path) -> None:
    results = answered(tmp_path, {("infbench_sum_8k", "3fa9c0d1"): "Ann"})
    done = judge(lbx, results, unpacked, table(tmp_path, "critic", {"*": "A"}))
    assert done.returncode and "no key points for the sample 3fa9c0d1" in done.stderr and "--bundle" in done.stderr


def test_a_judge_without_ratings(lbx: Lbx, unpacked: Path, tmp_path: Path) -> None:
    results = answered(tmp_path, {("narrativeqa_8k", "0"): ""})
    done = judge(lbx, results, unpacked, table(tmp_path, "mute", {"*": "Full marks."}))
    assert done.returncode == 0 and "1 of 1 text contains no verdict" in done.stderr
    assert rows(results, "SELECT rating, n_errors, n_none FROM judge_results WHERE task IS NULL") == [(None, 1, 1)]
    assert rows(results, "SELECT count(*) FROM group_scores WHERE grouping = 'judge'") == [(0,)]


def test_summaries_are_rated_by_three_prompts(lbx: Lbx, unpacked: Path, tmp_path: Path) -> None:
    results = answered(tmp_path, {("infbench_sum_8k", "7"): " A boy swims. ", ("narrativeqa_8k", "0"): "Bob"})
    reply = 'Yes. {"fluency": 1, "recall": 1, "precision": 2, "sentence_count": 2}'
    card = table(tmp_path, "critic", {"*": reply})
    fails(judge(lbx, results, unpacked, card), 2, "different rubrics", f"--rubric {NARRATIVE}")
    done = judge(lbx, results, unpacked, card, "--rubric", BOOK)
    assert done.returncode == 0, done.stderr
    ((rating, output, state, steps),) = rows(
        results,
        "SELECT j.rating, j.output, j.state, len(g.steps::JSON[]) FROM judgements j JOIN generations g "
        "ON (g.run_id, g.sample_id) = (j.judge_id, j.round_id)",
    )
    assert (rating, json.loads(output), state, steps) == (0.4, [reply] * 3, "ok", 2)
    assert lbx("score", results).returncode == 0
    assert rows(results, "SELECT rating FROM judge_results WHERE task IS NULL") == [(0.4,)]
    shown = lbx("report", results, "judge_results")
    assert shown.returncode == 0 and "not calibrated" in shown.stdout


def test_lawsuits_need_long_summaries(bundle: Bundle, tmp_path: Path) -> None:
    sample = Sample("helmet", "multi_lexsum_8k", "c1", "", "", ("short",))
    with pytest.raises(NoDataError, match="allenai/multi_lexsum"):
        rating_texts(bundle, CASE)
    path = write_parquet(
        tmp_path / "v.parquet",
        [{"id": "c1", "summary/long": "A long one."}],
        {"id": "VARCHAR", "summary/long": "VARCHAR"},
    )
    place = "hub:allenai/multi_lexsum/v20230518/validation/0000.parquet"
    complete = write_bundle(tmp_path / "c", {**CONTENT, place: path.read_bytes()})
    texts = rating_texts(complete, CASE)(sample, "Sued.")
    assert texts.references == ("A long one.", "a suit") and texts.values["points"] == "1"
    with pytest.raises(BundleError, match="no long summary for the sample c2 of multi_lexsum_8k"):
        rating_texts(complete, CASE)(Sample("helmet", "multi_lexsum_8k", "c2", "", "", ()), "Sued.")


@pytest.mark.parametrize(
    "missing, rubric, named",
    [
        (f"files/{ANSWER_SCRIPT}", NARRATIVE, "eval_gpt4_longqa.py"),
        (f"files/{SUMMARY_SCRIPT}", BOOK, "eval_gpt4_summ.py"),
        (f"{POINTS}/infbench/longbook_sum_eng_keypoints.jsonl", BOOK, "data/infbench/longbook_sum_eng_keypoints.jsonl"),
        (f"{POINTS}/multi_lexsum/multi_lexsum_val.jsonl", CASE, "data/multi_lexsum/multi_lexsum_val.jsonl"),
    ],
)
def test_what_a_bundle_lacks_is_named(tmp_path: Path, missing: str, rubric: str, named: str) -> None:
    bundle = write_bundle(tmp_path, {place: content for place, content in CONTENT.items() if place != missing})
    with pytest.raises(NoDataError, match=named) as raised:
        rating_rubric(bundle, rubric), rating_texts(bundle, rubric)
    assert "lbx bundle bundle/helmet.toml" in str(raised.value)


@pytest.mark.parametrize(
    "script",
    [b"", b"judge_prompt = 3\n", b'judge_prompt = "{question}"\n', b'judge_prompt = "{question!r} {"\n', b"def"],
)
def test_another_version_of_the_script_is_refused(tmp_path: Path, script: bytes) -> None:
    with pytest.raises(BundleError, match="eval_gpt4_longqa"):
        rating_rubric(write_bundle(tmp_path, {**CONTENT, f"files/{ANSWER_SCRIPT}": script}), NARRATIVE)


def rated(formula: str, text: str) -> float | None:
    subject = JudgedAnswer(
        kind="score",
        benchmark="helmet",
        task="t",
        sample_id="0",
        run_id="r",
        pattern=formula,
        scale_low=0,
        scale_high=1,
    )
    scores = judgement(subject, text)
    return float(str(scores[0].extracted)) if scores else None


@pytest.mark.parametrize(
    "reply",
    [
        "", "no object", "{}", "null", '{"fluency": 1}', '{"correctness": 3}', '{"fluency": "1", "correctness": 3}',
        '{"fluency": true, "correctness": 3}', '{"fluency": null, "correctness": 3}',
        '{"fluency": 1, "correctness": [3]}',
        '{"fluency": 1, "correctness": 4}', '{"fluency": 2, "correctness": 3}', '{"fluency": 1, "correctness": -1}',
        '{"fluency": 1, "correctness": NaN}', '{"fluency": 1, "correctness": 1e999}', '{"fluency": 1, "correctness": }',
        '{"fluency": 1, "correctness": 3} {}', '{"a": {"fluency": 1, "correctness": 3}}', "{" * 100_000, "{}" * 100_000,
        '{"fluency": 1, "correctness": ' + "9" * 5000 + "}", "{" + "[" * 50_000 + "}", "```json" * 50_000,
    ],
)  # fmt: skip
def test_replies_without_a_rating(reply: str) -> None:
    assert rated(ANSWER_FORMULA, reply) is None
    formula = SUMMARY_FORMULA.replace("{points}", "2")
    for text in (reply, json.dumps([reply] * 3), json.dumps([reply]), json.dumps({"0": reply})):
        assert rated(formula, text) is None


def test_ratings_above_the_scale_count_only_for_recall() -> None:
    formula = SUMMARY_FORMULA.replace("{points}", "1")
    replies = ['{"fluency": 1}', '{"recall": 4}', '{"precision": 1, "sentence_count": 1}']
    assert rated(formula, json.dumps(replies)) == 1.6
    assert rated(formula.replace("/ 1", "/ 0"), json.dumps(replies)) == 0.0
    replies[2] = '{"precision": 2, "sentence_count": 1}'
    assert rated(formula, json.dumps(replies)) is None
    replies[2] = '{"precision": 2, "sentence_count": 0}'
    assert rated(formula, json.dumps(replies)) == 0.0


def test_an_f1_above_1_is_one_number_everywhere(lbx: Lbx, unpacked: Path, tmp_path: Path) -> None:
    """The authors average it as it is: 8 of 4 key points and 2 of 2 sentences are 4 / 3."""
    results = answered(tmp_path, SUMMARIES)
    reply = '{"fluency": 1, "recall": %d, "precision": 2, "sentence_count": 2}'
    judge(lbx, results, unpacked, table(tmp_path, "critic", {"*": reply % 8}))
    ((rating, score),) = rows(results, "SELECT rating, score FROM judge_results WHERE task IS NULL")
    assert rating == score == pytest.approx(4 / 3)
    assert rows(results, "SELECT DISTINCT rating = score FROM judgements") == [(True,)]
    numbers = "SELECT score, official, unit FROM numbers WHERE kind = 'opinion'"
    assert rows(results, numbers) == [(rating, rating, 1.0)]


def board(lbx: Lbx, results: Path) -> tuple[dict[str, float], str, str]:
    """The board at 8k by category, and the notes of the rows without and with ratings."""
    lines = json.loads(lbx.ok("report", results, "board_helmet", "--format", "json", "--no-interval").stdout)
    notes = [{line["note"] for line in lines if ("(judge)" in line["category"]) is judged} for judged in (False, True)]
    assert all(len(note) <= 1 for note in notes)
    return {line["category"]: line["8k"] for line in lines}, *(next(iter(note), "") for note in notes)


def test_ratings_on_the_board(lbx: Lbx, unpacked: Path, tmp_path: Path) -> None:
    """As collect_results.py averages them: the rating x 100 / 3 or x 100, missing numbers left out but named."""
    results = answered(tmp_path, {
        ("narrativeqa_8k", "0"): "Bob", ("narrativeqa_8k", "1"): "good", ("narrativeqa_8k", "2"): "odd",
        ("infbench_qa_8k", "0"): "Ann's", ("infbench_sum_8k", "7"): "A boy swims.", ("json_kv_8k", "0"): "Bob",
    })  # fmt: skip
    before, note, judged_note = board(lbx, results)
    assert before == {"average": 100.0, "Recall": 100.0, "LongQA": 100.0} and not judged_note
    assert "narrativeqa (needs the judge)" in note and "ratings" not in note
    said = {"*": '{"fluency": 1, "correctness": 1}'}
    judge(lbx, results, unpacked, table(tmp_path, "critic", said), "--rubric", NARRATIVE, "--limit", 1)
    values, note, judged_note = board(lbx, results)
    assert values == before and not judged_note
    assert re.search(r"narrativeqa_8k rated in part by critic\S* \(1 of 3 answers\)", note)
    judge(lbx, results, unpacked, table(tmp_path, "critic", said), "--rubric", NARRATIVE)
    values, note, judged_note = board(lbx, results)
    assert values == before | {"LongQA (judge)": 66.6666666667, "average (judge)": 83.3333333333}
    assert re.search(r"narrativeqa rated by critic\S* \(published: gpt-4o-2024-05-13\); averages without", judged_note)
    assert "narrativeqa (needs" not in judged_note and "infbench_sum (needs the judge)" in judged_note
    assert 'with ratings: the rows "(judge)"' in note and "narrativeqa (needs the judge)" in note
    reply = '{"fluency": 1, "recall": 8, "precision": 2, "sentence_count": 2}'
    judge(lbx, results, unpacked, table(tmp_path, "reader", {"*": reply}), "--rubric", BOOK)
    values, _, judged_note = board(lbx, results)
    assert values["Summ (judge)"] == 133.3333333333, "a judge may find more key points than there are"
    assert values["average (judge)"] == 100.0 and "Summ" not in values
    assert re.search(r"narrativeqa rated by critic.*; infbench_sum rated by reader", judged_note)
    text = lbx.ok("report", results, "board_helmet").stdout
    assert "LongQA (judge)" in text and "not official" in " ".join(text.split())
    judge(lbx, results, unpacked, table(tmp_path, "other", said), "--rubric", NARRATIVE)
    values, note, _ = board(lbx, results)
    assert "LongQA (judge)" not in values and values["average (judge)"] == pytest.approx((100 + 100 + 400 / 3) / 3)
    assert re.search(r"narrativeqa_8k rated by several judges \(critic\S*, other\S*\), of which none is chosen", note)


def test_replies_without_a_rating_are_left_out_of_the_board(lbx: Lbx, unpacked: Path, tmp_path: Path) -> None:
    results = answered(tmp_path, {("narrativeqa_8k", "0"): "Bob", ("narrativeqa_8k", "1"): "good"})
    untouched = tmp_path / "untouched.duckdb"
    shutil.copy(results, untouched)
    good = '{"fluency": 1, "correctness": 3}'
    judge(lbx, results, unpacked, table(tmp_path, "critic", {"*": good}))
    ((name,),) = rows(results, "SELECT round_id FROM judgements WHERE sample_id = '1'")
    card = table(tmp_path, "mixed", {"*": good, f"judge/{NARRATIVE}/{name}": "Good."})
    judge(lbx, untouched, unpacked, card)
    values, _, note = board(lbx, untouched)
    assert (
        values == {"LongQA (judge)": 100.0, "average (judge)": 100.0} and "1 answer without a rating left out" in note
    )


def test_names_of_rubrics_are_reserved(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither a file nor leval, helmet_narrativeqa"):
        read_rubric(tmp_path / "none")
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "helmet_narrativeqa"\nkind = "score"\nuser = "{answer}"\nrating = "[[{rating}]]"\nlow = 1\nhigh = 5'
    )
    with pytest.raises(UsageError, match="reserved: it means a rubric of helmet"):
        read_rubric(path)


def test_names_of_rubrics_are_no_paths(tmp_path: Path) -> None:
    spec = judge_spec({"bundle": "b", "model": "m.toml", "runs": ("r",), "answers": ("a",), "rubric": BOOK})
    assert spec.with_absolute_paths().rubric == BOOK and spec.question_set == "open"


def test_plans_count_every_prompt(lbx: Lbx, unpacked: Path, tmp_path: Path) -> None:
    results = answered(tmp_path, SUMMARIES)
    card = table(tmp_path, "critic", {"*": '{"fluency": 1, "recall": 2, "precision": 1, "sentence_count": 2}'})
    command = ("judge", results, "--bundle", unpacked, "--judge", card, "--run", "mine", "--rubric", BOOK)
    shown = lbx.ok(*command, "--dry-run")
    assert "3 x 3" in shown.stdout and "3 verdicts" in shown.stdout
    (task,) = json.loads(lbx.ok(*command, "--dry-run", "--json").stdout)["tasks"]
    lbx.ok(*command)
    ((tokens, planned, asked),) = rows(
        results,
        "SELECT (SELECT sum(prompt_tokens) FROM generations WHERE benchmark = 'judge'), planned_prompt_tokens, to_ask "
        "FROM sessions",
    )
    assert (task["samples"], task["prompts"], task["prompt_tokens"]) == (3, 9, tokens)
    assert (planned, asked, task["new_tokens"]) == (tokens, 3, 9 * 4096)


def test_the_prompts_of_a_summary_are_shown(lbx: Lbx, unpacked: Path, tmp_path: Path) -> None:
    results = answered(tmp_path, {("infbench_sum_8k", "7"): " A boy swims. "})
    card = table(tmp_path, "critic", {"*": '{"fluency": 1}'})
    assert judge(lbx, results, unpacked, card).returncode == 0
    ((name,),) = rows(results, "SELECT round_id FROM judgements")
    shown = lbx("show", results, f"judge/{BOOK}/{name}", "--prompt", "--json")
    assert shown.returncode == 0, shown.stderr
    (answer,) = json.loads(shown.stdout)
    assert [prompt["text"] for prompt in answer["prompts"]] == [
        "Fluent? A boy swims.",
        "Found? 1. a boy\n2. a dog\n3. a sea\n4. it ends in A boy swims.",
        "Supported? Ann's has A boy swims.",
    ]
    assert answer["prompt_is_the_same"]


class JudgeServer:
    """Server that answers a summary's prompts by their first words, after ``let_go`` is set for words in ``held``."""

    def __init__(self, folder: Path, held: str = "") -> None:
        self.held, self.let_go, self.refused = held, threading.Event(), ""
        self.server = ScriptedServer(self._answer)
        self.card = folder / "served.toml"
        options = f'[options]\nurl = "{self.server.url}"\napi = "chat"\nretries = 0\nconcurrency = 2\n'
        self.card.write_text(f'name = "critic"\nbackend = "endpoint"\n{options}')

    def _answer(self, path: str, payload: Any, _before: int) -> tuple[int, dict[str, str], object]:
        if path.endswith("/models"):
            return 200, {}, {"object": "list", "data": [{"id": "served", "object": "model"}]}
        if payload is None:
            return 404, {}, {}
        word = payload["messages"][-1]["content"].split()[0]
        if word == self.held:
            self.let_go.wait()
        if word == self.refused:
            return 400, {}, {"error": {"message": "content filter"}}
        message = {"role": "assistant", "content": f'{word} {{"fluency": 1, "recall": 2, "precision": 1, '
                   '"sentence_count": 2}'}  # fmt: skip
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return 200, {}, {"choices": [choice], "usage": {"prompt_tokens": 40, "completion_tokens": 5}}

    @property
    def asked(self) -> Counter[str]:
        """Number of requests by the first word of the prompt."""
        posts = self.server.posts("/v1/chat/completions")
        return Counter(post["messages"][-1]["content"].split()[0] for post in posts if post.get("max_tokens") == 4096)

    def close(self) -> None:
        self.let_go.set()
        self.server.close()


SUMMARIES = {(f"infbench_sum_{label}", "7"): f"A boy swims {label}." for label in ("8k", "16k", "32k")}
RATED = "SELECT task, sample_id, rating, state, output FROM judgements ORDER BY ALL"
COUNTED = "SELECT prompt_tokens, output_tokens, len(steps::JSON[]) FROM generations WHERE benchmark = 'judge'"


def test_a_failed_later_prompt_keeps_the_earlier_replies(lbx: Lbx, unpacked: Path, tmp_path: Path) -> None:
    results = answered(tmp_path, SUMMARIES)
    with closing_all() as things:
        things.append(server := JudgeServer(tmp_path))
        server.refused = "Supported?"
        assert judge(lbx, results, unpacked, server.card).returncode == 3
        assert server.asked == {"Fluent?": 3, "Found?": 3, "Supported?": 3}
        assert rows(results, "SELECT DISTINCT error_type, len(steps::JSON[]) FROM generations g "
                    "WHERE benchmark = 'judge'") == [("BackendError", 2)]  # fmt: skip
        server.refused = ""
        assert judge(lbx, results, unpacked, server.card, "--retry-failed").returncode == 0
        assert server.asked == {"Fluent?": 3, "Found?": 3, "Supported?": 6}
    found = rows(results, RATED)
    assert [(row[2], row[3]) for row in found] == [(0.5, "ok")] * 3
    assert [reply.split()[0] for reply in json.loads(found[0][4])] == ["Fluent?", "Found?", "Supported?"]
    assert rows(results, COUNTED) == [(120, 15, 2)] * 3


def test_a_judge_killed_between_prompts_asks_only_what_is_missing(lbx: Lbx, unpacked: Path, tmp_path: Path) -> None:
    results, whole = answered(tmp_path, SUMMARIES), tmp_path / "whole.duckdb"
    whole.write_bytes(results.read_bytes())
    with closing_all() as things:
        things.append(server := JudgeServer(tmp_path, held="Found?"))
        command = ("judge", results, "--bundle", unpacked, "--judge", server.card, "--run", "mine", "--no-plan")
        process = subprocess.Popen(
            [sys.executable, "-m", "lbx.cli", *map(str, command)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        while process.poll() is None and count_in_copy(results, f"error_type = '{UNFINISHED}'") < 3:
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, process.communicate()
        server.let_go.set()
        process.communicate()
        shown = rows(results, "SELECT error_type, len(steps::JSON[]) FROM generations WHERE benchmark = 'judge'")
        assert shown == [("UnfinishedAnswer", 1)] * 3
        assert server.asked["Fluent?"] == 3 and server.asked["Supported?"] == 0
        assert lbx(*command).returncode == 0
        assert server.asked["Fluent?"] == 3 and server.asked["Found?"] <= 3 + 2 and server.asked["Supported?"] == 3
        assert lbx("judge", whole, *command[2:]).returncode == 0
        assert "3 already done" in lbx(*command).stdout
    for query in (RATED, COUNTED, "SELECT steps FROM generations WHERE benchmark = 'judge' ORDER BY ALL"):
        assert rows(results, query) == rows(whole, query) != []
