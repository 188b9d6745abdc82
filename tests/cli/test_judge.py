"""``lbx judge``: stored and published answers judged by a table of verdicts, resumed, killed, refused, in shards."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lbx.benchmarks.judge import JudgeBenchmark
from lbx.opinions.judge_spec import JudgeSpec, spec_of
from lbx.results import Store
from lbx.running.forecast.run_plan import make_plan
from lbx.running.models import load_model, resolve_card
from lbx.running.preparing import make_works, resolve
from tests.backends.endpoint_servers import ScriptedServer, closing_all
from tests.cli.kill_parts import rows, wait_for_samples
from tests.command_line import Done, Lbx, fails
from tests.judge_parts import MODELS, RATING, ROWS, TALE, make_home, table
from tests.profiles import kills

X_AGAINST_Y = ("--run", "x", "--against", "y")
X_AGAINST_TURBO = ("--run", "x", "--against", "turbo-16k-0613")
OWN = """
name = "faithful"
kind = "pair"
user = "{document}\\nTask: {question}\\nFirst: {a}\\nSecond: {b}"
verdicts = [["FIRST", "first"], ["SECOND", "second"], ["SAME", "tie"]]
max_new_tokens = 32
"""
JUDGES = """
    SELECT run_id, settings::VARCHAR, hardware::VARCHAR, status FROM runs
    WHERE run_id IN (SELECT run_id FROM generations WHERE benchmark = 'judge')
"""
WON = """
    SELECT d.run_id, sum(s.score), count(s.score), count(*)
    FROM generations g LEFT JOIN scores s USING (run_id, benchmark, task, sample_id, iteration)
    JOIN rounds d ON (d.rubric, d.round_id) = (g.task, g.sample_id)
    WHERE g.benchmark = 'judge' GROUP BY ALL ORDER BY ALL
"""


@pytest.fixture(scope="module")
def home(lbx: Lbx, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(lbx, tmp_path_factory.mktemp("judged"))


@pytest.fixture
def always_first(tmp_path: Path) -> Path:
    return table(tmp_path, "judge-a", {"*": "The first. [[A]]"})


@pytest.fixture
def results(home: Path, tmp_path: Path) -> Path:
    path = tmp_path / "runs.duckdb"
    path.write_bytes((home / "runs.duckdb").read_bytes())
    return path


class Judge:
    """``lbx judge`` over a results file."""

    def __init__(self, lbx: Lbx, home: Path, results: Path) -> None:
        self.lbx, self.home, self.results = lbx, home, results

    def command(self, model: Path, *more: object, results: Path | None = None) -> list[object]:
        return ["judge", results or self.results, "--bundle", self.home / "b", "--judge", model, "--no-plan", *more]

    def __call__(self, model: Path, *more: object, results: Path | None = None) -> Done:
        done = self.lbx(*self.command(model, *more, results=results))
        assert done.returncode == 0, done.stderr
        return done

    def refuses(self, model: Path, *more: object, why: str, results: Path | None = None) -> None:
        fails(self.lbx(*self.command(model, *more, results=results)), 2, why)


@pytest.fixture
def judge(lbx: Lbx, home: Path, results: Path) -> Judge:
    return Judge(lbx, home, results)


def settings_of(results: Path) -> dict[str, Any]:
    ((_, settings, _, _),) = rows(results, JUDGES)
    found: dict[str, Any] = json.loads(str(settings))
    return found


def test_a_stored_run_is_judged_in_both_orders_against_a_published_one(
    judge: Judge, results: Path, always_first: Path
) -> None:
    done = judge(always_first, *X_AGAINST_TURBO)
    assert "11 questions, 22 rounds with the rubric 'leval'" in done.stderr
    assert rows(results, WON) == [("x", 11.0, 22, 22)]
    settings = settings_of(results)
    assert (settings["rubric"], settings["orders"]) == ("leval", "both")
    assert settings["rubric_source"].endswith("llm_eval.py") and len(settings["rubric_sha256"]) == 64
    kinds = "SELECT DISTINCT against_run_id, to_json(marks)::VARCHAR FROM rounds ORDER BY 2"
    assert rows(results, kinds) == [("published-turbo-16k-0613", '["LLM"]')]
    assert "22 already done" in judge(always_first, *X_AGAINST_TURBO).stdout
    # People's questions continue the same judge: the second copies of two, and one more.
    done = judge(always_first, *X_AGAINST_TURBO, "--questions", "both")
    assert "6 answered, 0 failed, 22 already done" in done.stdout, done.stdout
    assert rows(results, WON) == [("x", 14.0, 28, 28)]
    assert rows(results, f"SELECT count(*) FROM ({JUDGES})") == [(1,)]


def test_a_judges_plan_is_shown_before_anything_is_asked(judge: Judge, results: Path, always_first: Path) -> None:
    before = results.read_bytes()
    done = judge(always_first, *X_AGAINST_TURBO, "--dry-run")
    forecast = json.loads(judge(always_first, *X_AGAINST_TURBO, "--dry-run", "--json").stdout)["total"]
    counts = (forecast["samples"], forecast["prompt_tokens"], forecast["distinct_tokens"])
    assert counts[0] == 22 and counts[1] > counts[2] > 0
    said = re.search(r"([\d,]+) verdicts\. Prompts have ([\d,]+) \w+, ([\d,]+) of them distinct", done.stdout)
    assert said and tuple(int(text.replace(",", "")) for text in said.groups()) == counts
    assert results.read_bytes() == before, "nothing is asked, and published answers stay in the bundle"


def test_a_question_that_was_asked_once_is_one_round_for_both_of_its_copies(
    judge: Judge, results: Path, always_first: Path
) -> None:
    judge(always_first, *X_AGAINST_Y, "--questions", "both")
    marks = "SELECT to_json(marks)::VARCHAR, count(*) FROM rounds GROUP BY ALL ORDER BY ALL"
    assert rows(results, marks) == [('["LLM","human"]', 4), ('["LLM"]', 18), ('["human"]', 2)]


def test_the_official_prompt_reaches_the_judge_and_verdicts_are_read_as_officially(
    judge: Judge, lbx: Lbx, tmp_path: Path
) -> None:
    before, other = tmp_path / "before.duckdb", tmp_path / "other.duckdb"
    more = [*X_AGAINST_TURBO, "--run", "y"]
    judge(table(tmp_path, "mixed", {"*": "none"}), *more, "-o", before)
    names = [
        str(name) for (name,) in rows(before, "SELECT sample_id FROM samples WHERE benchmark = 'judge' ORDER BY 1")
    ]
    texts = ["[[A]]", "[[B]] no, [[A]]", "[[C]]", "tie", "[[B]]", ""]
    verdicts = {f"judge/leval/{name}": texts[place % len(texts)] for place, name in enumerate(names)}
    judge(table(tmp_path, "mixed", {**verdicts, "*": "none"}), *more, "-o", other)
    found = rows(other, ROWS)
    assert len(found) == 44
    for name, output, _, _, score, extracted, partial, relations in found:
        first = json.loads(str(relations))["answer_first"]
        text = verdicts[f"judge/leval/{name}"]
        assert output == text
        wanted = next(
            (w for mark, w in (("[[A]]", first), ("[[B]]", not first), ("[[C]]", None)) if mark in text), "none"
        )
        assert (score, extracted) == {
            True: (1.0, "answer"), False: (0.0, "against"), None: (0.5, "tie"), "none": (None, None)
        }[wanted]  # fmt: skip
        assert partial == ("ambiguous" if text == texts[1] else None)
    assert rows(other, "SELECT count(*) FROM runs WHERE run_id = 'published-turbo-16k-0613'") == [(1,)]
    assert lbx("score", other).returncode == 0
    assert rows(other, ROWS) == found
    shown = lbx("show", other, f"judge/leval/{names[0]}", "--prompt")
    assert shown.returncode == 0, shown.stderr
    assert "A said " in shown.stdout and "turbo-16k-0613 says " in shown.stdout
    (judged,) = (json.loads(str(one[-1])) for one in found if one[0] == names[0])
    question = f"leval/{judged['task']}/{judged['sample_id']}"
    assert f"judged    {question}, {judged['run_id']} against {judged['against_run_id']}\n" in shown.stdout


def test_calibrating_takes_no_run(judge: Judge, tmp_path: Path, always_first: Path) -> None:
    fresh = tmp_path / "fresh.duckdb"
    done = judge(always_first, "--calibrate", results=fresh)
    assert [row[0] for row in rows(fresh, WON)] == [f"published-{name}" for name in sorted(MODELS[1:])]
    assert {row[1:] for row in rows(fresh, WON)} == {(11.0, 22, 22)}
    for name in ("60.94", "54.16", "42.44"):
        assert name in done.stdout
    assert "This judge is not calibrated: of 96 published answers each, it has judged only 11" in done.stdout
    again = json.loads(judge(always_first, "--calibrate", "--json", results=fresh).stdout)
    assert (again["done_before"], again["calibration"]["verdict"]) == (66, "not calibrated")
    assert [row["win_rate"] for row in again["calibration"]["rows"]] == [0.5] * 3
    for option in ("--run", "--tasks"):
        judge.refuses(always_first, "--calibrate", option, "leval/tpo", why=f"cannot be combined with {option}.")


def test_a_rubric_of_ones_own_shows_the_document_and_judges_any_answers(
    judge: Judge, results: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    rubric = ("--rubric", tmp_path / "own.toml", "--orders", "given", "--tasks", "leval/gov*")
    judge(table(tmp_path, "own-judge", {"*": "SAME"}), *X_AGAINST_Y, *rubric)
    assert rows(results, WON) == [("x", 0.5, 1, 1)]
    assert settings_of(results)["orders"] == "given"
    ((tokens, document),) = rows(
        results,
        "SELECT prompt_tokens, context_sha256 = document_sha256 FROM generations g JOIN samples s USING "
        "(benchmark, task, sample_id) JOIN rounds d ON (d.rubric, d.round_id) = (g.task, g.sample_id) "
        "WHERE s.benchmark = 'judge'",
    )
    assert tokens > len(TALE) and document


def test_the_limit_counts_questions_of_each_task_with_all_their_rounds(
    judge: Judge, results: Path, always_first: Path
) -> None:
    """As a run's counts samples of each task, each with all its repetitions."""
    judge(always_first, *X_AGAINST_TURBO, "--run", "y", "--questions", "open", "--limit", 1)
    judged = """
        SELECT task, count(DISTINCT sample_id), count(*) FROM rounds GROUP BY ALL ORDER BY ALL
    """
    # Two runs in two orders; financial_qa has its first question twice.
    assert rows(results, judged) == [("financial_qa", 1, 8), ("gov_report_summ", 1, 4), ("multidoc_qa", 1, 4)]
    places = """
        SELECT max(asked.position) FROM rounds JOIN samples asked USING (benchmark, task, sample_id)
    """
    assert rows(results, places) == [(0,)]


def test_a_judged_answer_is_shown_with_what_judges_say(
    judge: Judge, lbx: Lbx, results: Path, always_first: Path
) -> None:
    judge(always_first, *X_AGAINST_TURBO, "--tasks", "leval/multidoc_qa", "--limit", 1)
    shown = " ".join(lbx("show", results, "leval/multidoc_qa/000-00", "--run", "x").stdout.split())
    who = "judge judge-a (judge: leval)"
    assert f"{who}: better, compared with turbo-16k-0613, shown first: The first. [[A]]" in shown
    assert f"{who}: worse, compared with turbo-16k-0613, shown second: The first. [[A]]" in shown
    (told,) = json.loads(lbx("show", results, "leval/multidoc_qa/000-00", "--run", "x", "--json").stdout)
    assert [one["verdict"] for one in told["judgements"]] == ["answer", "against"] and told["ratings"] == []


def test_a_rating_needs_no_opponent(judge: Judge, results: Path, tmp_path: Path) -> None:
    (tmp_path / "stars.toml").write_text(RATING)
    model = table(tmp_path, "rater", {"*": "[[4]]"})
    more = ["--run", "x", "--run", "y", "--rubric", tmp_path / "stars.toml"]
    judge(model, *more, "--limit", 2)
    assert rows(results, WON) == [("x", 3.75, 5, 5), ("y", 3.75, 5, 5)]
    judge.refuses(model, *more, "--against", "gpt4-32k", why="rates a single answer")


def test_a_judge_of_the_judged_models_family_is_marked(judge: Judge, results: Path, tmp_path: Path) -> None:
    done = judge(table(tmp_path, "x", {"*": "[[A]]"}), *X_AGAINST_TURBO, "--run", "claude-100k")
    assert "is of the same model family as x" in " ".join(done.stderr.split())
    ((_, _, hardware, _),) = rows(results, JUDGES)
    assert json.loads(str(hardware))["same_family_as"] == ["x"]
    other = judge(table(tmp_path, "another", {"*": "[[A]]"}), *X_AGAINST_TURBO)
    assert "same model family" not in other.stderr, "tables of answers have no tokenizer in common"


def test_a_run_may_be_named_by_its_model(judge: Judge, results: Path, always_first: Path, tmp_path: Path) -> None:
    with Store(results) as store:
        store.query("UPDATE runs SET model = 'model of ' || run_id")
    spec = tmp_path / "judge.json"
    judge(always_first, "--run", "model of x", "--against", "model of y", "--save-spec", spec)
    saved = spec.read_text("utf-8")
    judge(always_first, *X_AGAINST_Y, "--save-spec", spec)
    assert spec.read_text("utf-8") == saved
    with Store(results) as store:
        store.query("UPDATE runs SET model = 'one'")
    said = "'one' is ambiguous: it matches hintless and x and y. Give one of these."
    judge.refuses(always_first, "--run", "one", "--against", "y", why=said)


def test_a_files_run_and_published_answers_of_one_name_are_never_mixed_up(
    judge: Judge, lbx: Lbx, results: Path, always_first: Path, tmp_path: Path
) -> None:
    """Neither is taken silently for the other; a run's own name means that run, and --calibrate the published ones."""
    with Store(results) as store:
        store.query("UPDATE runs SET model = 'claude-100k' WHERE run_id = 'x'")
    both = "'claude-100k' is ambiguous: it matches x and published-claude-100k"
    for more in (("--run", "claude-100k", "--against", "y"), ("--run", "y", "--against", "claude-100k")):
        judge.refuses(always_first, *more, why=both)
    names = ("x", "published-claude-100k")
    told = [arg for name in names for arg in ("--run", name)]
    judge(always_first, *told, "--against", "y")
    judged = "SELECT DISTINCT run_id FROM rounds ORDER BY ALL"
    assert {name for (name,) in rows(results, judged)} == {*names}
    for what in (("show", results), ("export", "leval", results, "-o", tmp_path / "out"), ("rate", results)):
        fails(lbx(*what, "--run", "claude-100k"), 2, "'claude-100k' is ambiguous: it matches published-claude-100k, x")
    with Store(results) as store:
        for table_ in ("runs", "generations", "scores"):
            store.query(f"UPDATE {table_} SET run_id = 'claude-100k' WHERE run_id = 'x'")
    spec, calibrated = tmp_path / "judge.json", tmp_path / "calibrated.json"
    judge(always_first, "--run", "claude-100k", "--against", "y", "--save-spec", spec)
    assert spec_of(json.loads(spec.read_text("utf-8")), "").runs == ("claude-100k",)  # type: ignore[attr-defined]
    judge(always_first, "--calibrate", "--save-spec", calibrated)
    assert all(run.startswith("published-") for run in spec_of(json.loads(calibrated.read_text("utf-8")), "").runs)  # type: ignore[attr-defined]


def test_what_cannot_be_judged_is_refused_before_a_model_is_loaded(
    judge: Judge, results: Path, always_first: Path, tmp_path: Path
) -> None:
    cases: list[tuple[list[object], str]] = [
        ([], "No run to judge. Pass --run"),
        (["--run", "x"], "compares two answers. Pass the other run: --against RUN"),
        (["--run", "z", "--against", "x"], "No run 'z' in"),
        (["--run", "x", "--against", "x"], "cannot be its own opponent"),
        ([*X_AGAINST_Y, "--rubric", tmp_path / "none.toml"], "neither a file nor leval"),
        ([*X_AGAINST_Y, "--tasks", "longbench"], "No questions to judge: x and y did not both answer"),
        ([*X_AGAINST_Y, "--rubric", __file__], "is not valid TOML"),
    ]
    before = results.read_bytes()
    for more, said in cases:
        judge.refuses(always_first, *more, why=said)
    assert results.read_bytes() == before
    missing = tmp_path / "no.duckdb"
    judge.refuses(always_first, *X_AGAINST_Y, why="does not exist", results=missing)
    assert not missing.exists()


def test_two_protocols_are_never_mixed(judge: Judge, results: Path, always_first: Path) -> None:
    for against in ("x", "published-turbo-16k-0613"):
        if against != "x":
            judge(always_first, "--run", "x", "--against", against)
        runs = ("--run", "hintless", "--run", "y", "--against", against)
        judge.refuses(always_first, *runs, why="those of hintless do not (--no-length-hint)")
    judge(always_first, "--run", "hintless", "--against", "turbo-16k-0613")
    against = "SELECT DISTINCT against_run_id FROM rounds WHERE run_id = 'hintless'"
    assert rows(results, against) == [("published-turbo-16k-0613-no-length-hint",)]


def test_failed_and_empty_answers_are_said(
    judge: Judge, lbx: Lbx, home: Path, always_first: Path, tmp_path: Path
) -> None:
    results = tmp_path / "holes.duckdb"
    lines: list[dict[str, Any]] = [{"key": "*", "text": "fine"}]
    lines += [{"key": "leval/multidoc_qa/000-00", "text": " \n"}, {"key": "leval/multidoc_qa/000-01", "error": "gone"}]
    model = table(tmp_path, "holes", lines)
    what = ["--bundle", home / "b", "--model", model, "--tasks", "leval", "--name", "holes", "--no-plan"]
    assert lbx("run", *what, "-o", results).returncode == 3
    done = judge(always_first, "--run", "holes", "--against", "turbo-16k-0613", results=results)
    said = " ".join(done.stderr.split())
    assert "Skipped 1 question: the answer of holes failed or is missing." in said
    assert "1 blank answer of holes (white space only) will be judged like the others." in said
    assert rows(results, WON) == [("holes", 10.0, 20, 20)]


@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["alone", "workers"])
def test_a_killed_judge_continues_without_a_lost_or_doubled_row(
    judge: Judge, home: Path, results: Path, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    slow = table(tmp_path, "slow", [{"key": "*", "text": "[[B]]", "delay_s": 0.05}])
    runs = ("--run", "x", "--run", "y", "--against", "gpt4-32k")
    chance = random.Random(7)
    for _ in range(kills(6)):
        process = subprocess.Popen(
            [sys.executable, "-m", "lbx.cli", *map(str, judge.command(slow, *runs, *workers))],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        wait_for_samples(process)
        time.sleep(chance.uniform(0, 2.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    judge(slow, *runs, *workers)
    whole = tmp_path / "whole.duckdb"
    whole.write_bytes((home / "runs.duckdb").read_bytes())
    judge(table(tmp_path, "slow", {"*": "[[B]]"}), *runs, results=whole)
    assert rows(results, ROWS) == rows(whole, ROWS)
    assert rows(results, f"SELECT status FROM ({JUDGES})") == [("done",)]


def test_shards_hold_whole_documents_and_merge_to_what_one_judge_is(
    judge: Judge, lbx: Lbx, home: Path, results: Path, tmp_path: Path, always_first: Path
) -> None:
    spec, folder = tmp_path / "judge.json", tmp_path / "run"
    more = [*X_AGAINST_TURBO, "--questions", "both", "--name", "jury"]
    judge(always_first, *more, "--save-spec", spec)
    assert rows(results, "SELECT count(*) FROM generations WHERE benchmark = 'judge'") == [(0,)]
    submitted = lbx(
        "submit", "kubernetes", "--spec", spec, "--bundle", home / "b", "-o", folder, "--shards", 2,
        "--no-measure-speed", "--image", "lbx:1", "--run-claim", "r", "--bundle-claim", "b",
    )  # fmt: skip
    assert submitted.returncode == 0, submitted.stderr
    files = []
    for shard in range(2):
        files.append(tmp_path / f"{shard}.duckdb")
        what = ["--shard-plan", folder / "shards.json", "--shard", shard, "--no-plan", "-o", files[-1]]
        assert (done := lbx("run", "--spec", spec, *what)).returncode == 0, done.stderr
    apart = [{row[0] for row in rows(file, "SELECT DISTINCT document_sha256 FROM rounds")} for file in files]
    assert apart[0] and apart[1] and not apart[0] & apart[1]
    merged = tmp_path / "merged.duckdb"
    done = lbx("merge", results, *files, "-o", merged)
    assert done.returncode == 0, done.stderr
    judge(always_first, *more)
    assert rows(merged, ROWS) == rows(results, ROWS)
    rates = "SELECT run_id, name, n, score, low, high FROM group_results WHERE \"grouping\" = 'judge' ORDER BY ALL"
    assert rows(merged, rates) == rows(results, rates) != []


def test_rounds_share_most_of_what_they_read(judge: Judge, home: Path, results: Path, always_first: Path) -> None:
    """Four models against one: what all rounds of a question begin with is read once, and so is its first answer."""
    judge(always_first, *X_AGAINST_TURBO, "--limit", 1)
    against = "published-turbo-16k-0613"
    spec = JudgeSpec(bundle=home / "b", model=str(always_first), answers=[results], runs=["x", "y"], against=against)
    run = resolve(spec_of(json.loads(json.dumps(spec.to_json())), "here"))
    assert isinstance(run.extra_benchmarks[0], JudgeBenchmark)
    card = resolve_card(spec, run.bundle)
    backend = load_model(card, run.bundle)
    try:
        total = make_plan(make_works(run, card, backend)).total
    finally:
        backend.close()
    assert total.samples == 44
    assert total.distinct_tokens < total.prompt_tokens / 2


def test_a_server_as_a_judge_gets_the_official_messages(judge: Judge, results: Path, tmp_path: Path) -> None:
    def chatted(path: str, payload: Any, _before: int) -> tuple[int, dict[str, str], object]:
        if path.endswith("/models"):
            return 200, {}, {"object": "list", "data": [{"id": "served", "object": "model"}]}
        if payload is None:
            return 404, {}, {}
        message = {"role": "assistant", "content": "So be it: [[C]]"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return 200, {}, {"choices": [choice], "usage": {"prompt_tokens": 40, "completion_tokens": 5}}

    with closing_all() as things:
        things.append(server := ScriptedServer(chatted))
        card = tmp_path / "served.toml"
        card.write_text(f'backend = "endpoint"\n[options]\nurl = "{server.url}"\napi = "chat"\n')
        judge(card, *X_AGAINST_TURBO, "--tasks", "leval/financial_qa", "--limit", 1)
        asked = [one for one in server.posts("/v1/chat/completions") if one.get("max_tokens") == 2048]
    system = 'Weigh both; say "[[A]]", "[[B]]" or "[[C]]".'
    said = ["x answers", "turbo-16k-0613 says Ann pays LLM"]
    wanted = [f"Asked Who pays?\n\nTrue: Ann pays\n\nA said {a}\nB said {b}\n{{end}}" for a, b in (said, said[::-1])]
    assert sorted(one["messages"][1]["content"] for one in asked) == sorted(wanted)
    assert {one["messages"][0]["content"] for one in asked} == {system}
    assert [[message["role"] for message in one["messages"]] for one in asked] == [["system", "user"]] * 2
    assert {one["temperature"] for one in asked} == {0}
    assert rows(results, WON) == [("x", 1.0, 2, 2)]


def test_a_judge_on_a_server_that_it_starts(judge: Judge, results: Path, tmp_path: Path) -> None:
    card = tmp_path / "served.toml"
    card.write_text('backend = "endpoint"\n')
    server = Path(__file__).parents[1] / "serving" / "small_server.py"
    command = f"{sys.executable} {server} --port {{port}} --answer '[[A]]'"
    judge(card, *X_AGAINST_TURBO, "--serve", command)
    assert rows(results, WON) == [("x", 11.0, 22, 22)]
    ((_, settings, _, _),) = rows(results, JUDGES)
    assert "small_server.py --port" in str(settings)


def test_a_failed_round_is_said_and_asked_again(judge: Judge, lbx: Lbx, results: Path, tmp_path: Path) -> None:
    judge(table(tmp_path, "weak", {"*": "[[A]]"}), *X_AGAINST_TURBO, "-o", tmp_path / "names.duckdb")
    names = rows(tmp_path / "names.duckdb", "SELECT min(sample_id) FROM samples WHERE benchmark = 'judge'")
    broken = {"key": f"judge/leval/{names[0][0]}", "error": "out of order"}
    model = table(tmp_path, "weak", [broken, {"key": "*", "text": "[[A]]"}])
    what = judge.command(model, *X_AGAINST_TURBO, "--name", "weak")
    done = lbx(*what)
    assert done.returncode == 3 and "21 answered, 1 failed" in done.stdout, done.stdout
    assert "out of order" in lbx("report", results, "failures").stdout
    again = lbx(*what, "--retry-failed")
    assert "0 answered, 1 failed, 21 already done" in again.stdout, again.stdout


def test_a_rubric_may_lie_in_the_folder_of_the_submitted_run(tmp_path: Path) -> None:
    Store(tmp_path / "r.duckdb").close()
    folder = tmp_path / "judge"
    folder.mkdir()
    (folder / "mine.toml").write_text("kept")
    spec = JudgeSpec(
        bundle="b", model="m", answers=(str(tmp_path / "r.duckdb"),), runs=("x",), rubric=str(folder / "mine.toml")
    )
    assert spec.copy_inputs(folder, "/there").rubric == "/there/mine.toml"
    assert (folder / "mine.toml").read_text() == "kept" and (folder / "answers-0.duckdb").is_file()


def test_texts_without_a_verdict_are_counted_at_the_end(
    judge: Judge, lbx: Lbx, results: Path, always_first: Path, tmp_path: Path
) -> None:
    done = judge(table(tmp_path, "mute", {"*": "I cannot say."}), *X_AGAINST_TURBO)
    (name,) = {str(row[0]) for row in rows(results, "SELECT judge_id FROM judged_rounds")}
    last = " ".join(done.stderr.split())
    assert "22 of 22 texts contain no verdict" in last and f"lbx show {results} --run {name}" in last
    assert lbx("show", results, "--run", name).stdout.count("judge/") == 22
    assert "no verdict" not in judge(always_first, *X_AGAINST_TURBO).stderr
