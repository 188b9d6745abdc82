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
from command_line import Lbx, fails
from judge_parts import MODELS, RATING, ROWS, TALE, make_home, table
from kill_parts import rows, wait_for_samples
from profiles import kills

sys.path.insert(0, str(Path(__file__).parents[1] / "backends"))

from endpoint_servers import ScriptedServer, closing_all

from lbx.benchmarks.judge import Judging
from lbx.planning.run_plan import make_plan
from lbx.running.judge_spec import JudgeSpec, spec_of
from lbx.running.models import card_of, load_model
from lbx.running.preparing import make_works, resolve
from lbx.store import Store

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
    SELECT a.meta->>'run_id', sum(s.score), count(s.score), count(*)
    FROM generations g JOIN samples a USING (benchmark, task, sample_id)
    LEFT JOIN scores s USING (run_id, benchmark, task, sample_id, iteration)
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


def judge(home: Path, results: Path, model: Path, *more: object) -> list[object]:
    return ["judge", results, "--bundle", home / "b", "--judge", model, "--no-plan", *more]


def settings_of(results: Path) -> dict[str, Any]:
    ((_, settings, _, _),) = rows(results, JUDGES)
    found: dict[str, Any] = json.loads(str(settings))
    return found


def test_a_stored_run_is_judged_in_both_orders_against_a_published_one(
    lbx: Lbx, home: Path, results: Path, always_first: Path
) -> None:
    what = judge(home, results, always_first, "--run", "x", "--against", "turbo-16k-0613")
    done = lbx(*what)
    assert done.returncode == 0, done.stderr
    assert "11 questions, 22 rounds by the rubric 'leval'" in done.stderr
    assert rows(results, WON) == [("x", 11.0, 22, 22)]
    settings = settings_of(results)
    assert (settings["rubric"], settings["orders"]) == ("leval", "both")
    assert settings["rubric_source"].endswith("llm_eval.py") and len(settings["rubric_sha256"]) == 64
    kinds = (
        "SELECT DISTINCT meta->>'against_run_id', (meta->>'marks') FROM samples WHERE benchmark = 'judge' ORDER BY 2"
    )
    assert rows(results, kinds) == [("published-turbo-16k-0613", '["LLM"]')]
    again = lbx(*what)
    assert "22 already done" in again.stdout, again.stdout
    # People's questions continue the same judge: the second copies of two, and one more.
    done = lbx(*judge(home, results, always_first, "--run", "x", "--against", "turbo-16k-0613", "--questions", "both"))
    assert "6 answered, 0 failed, 22 already done" in done.stdout, done.stdout
    assert rows(results, WON) == [("x", 14.0, 28, 28)]
    assert rows(results, f"SELECT count(*) FROM ({JUDGES})") == [(1,)]


def test_a_judges_plan_is_shown_before_anything_is_asked(
    lbx: Lbx, home: Path, results: Path, always_first: Path
) -> None:
    what = judge(home, results, always_first, "--run", "x", "--against", "turbo-16k-0613", "--dry-run")
    before = results.read_bytes()
    done = lbx(*what)
    assert done.returncode == 0, done.stderr
    outlook = json.loads(lbx(*what, "--json").stdout)["total"]
    counts = (outlook["samples"], outlook["prompt_tokens"], outlook["distinct_tokens"])
    assert counts[0] == 22 and counts[1] > counts[2] > 0
    said = re.search(r"([\d,]+) verdicts\. Prompts have ([\d,]+) \w+, of which ([\d,]+) are distinct", done.stdout)
    assert said and tuple(int(text.replace(",", "")) for text in said.groups()) == counts
    assert results.read_bytes() == before, "nothing is asked, and published answers stay in the bundle"


def test_a_question_that_was_asked_once_is_one_round_for_both_of_its_copies(
    lbx: Lbx, home: Path, results: Path, always_first: Path
) -> None:
    assert (
        lbx(*judge(home, results, always_first, "--run", "x", "--against", "y", "--questions", "both")).returncode == 0
    )
    marks = "SELECT meta->>'marks', count(*) FROM samples WHERE benchmark = 'judge' GROUP BY ALL ORDER BY ALL"
    assert rows(results, marks) == [('["LLM","human"]', 4), ('["LLM"]', 18), ('["human"]', 2)]


def test_the_official_prompt_reaches_the_judge_and_verdicts_are_read_as_officially(
    lbx: Lbx, home: Path, results: Path, tmp_path: Path
) -> None:
    said = {"*": "none"}
    model, before = table(tmp_path, "mixed", said), tmp_path / "before.duckdb"
    more = ["--run", "x", "--run", "y", "--against", "turbo-16k-0613"]
    assert lbx(*judge(home, results, model, *more, "-o", before)).returncode == 0
    names = [
        str(name) for (name,) in rows(before, "SELECT sample_id FROM samples WHERE benchmark = 'judge' ORDER BY 1")
    ]
    texts = ["[[A]]", "[[B]] no, [[A]]", "[[C]]", "tie", "[[B]]", ""]
    verdicts = {f"judge/leval/{name}": texts[place % len(texts)] for place, name in enumerate(names)}
    model = table(tmp_path, "mixed", {**verdicts, "*": "none"})
    other = tmp_path / "other.duckdb"
    assert lbx(*judge(home, results, model, *more, "-o", other)).returncode == 0
    found = rows(other, ROWS)
    assert len(found) == 44
    for name, output, _, _, score, extracted, partial, meta in found:
        first = json.loads(str(meta))["answer_first"]
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


def test_calibrating_takes_no_run(lbx: Lbx, home: Path, tmp_path: Path, always_first: Path) -> None:
    fresh = tmp_path / "fresh.duckdb"
    done = lbx(*judge(home, fresh, always_first, "--calibrate"))
    assert done.returncode == 0, done.stderr
    assert [row[0] for row in rows(fresh, WON)] == [f"published-{name}" for name in sorted(MODELS[1:])]
    assert {row[1:] for row in rows(fresh, WON)} == {(11.0, 22, 22)}
    for name in ("60.94", "54.16", "42.44"):
        assert name in done.stdout
    assert "This judge is not calibrated: of 96 published answers each, it has judged only 11" in done.stdout
    again = json.loads(lbx(*judge(home, fresh, always_first, "--calibrate", "--json")).stdout)
    assert (again["found"], again["calibration"]["verdict"]) == (66, "not calibrated")
    assert [row["win_rate"] for row in again["calibration"]["rows"]] == [0.5] * 3
    for option in ("--run", "--tasks"):
        said = lbx(*judge(home, fresh, always_first, "--calibrate", option, "leval/tpo"))
        fails(said, 2, f"cannot be combined with {option}.")


def test_a_rubric_of_ones_own_shows_the_document_and_judges_any_answers(
    lbx: Lbx, home: Path, results: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    model = table(tmp_path, "own-judge", {"*": "SAME"})
    more = [
        "--run",
        "x",
        "--against",
        "y",
        "--rubric",
        tmp_path / "own.toml",
        "--orders",
        "given",
        "--tasks",
        "leval/gov*",
    ]
    done = lbx(*judge(home, results, model, *more))
    assert done.returncode == 0, done.stderr
    assert rows(results, WON) == [("x", 0.5, 1, 1)]
    assert settings_of(results)["orders"] == "given"
    ((tokens, document),) = rows(
        results,
        "SELECT prompt_tokens, context_sha256 = meta->>'document_sha256' FROM generations JOIN samples USING "
        "(benchmark, task, sample_id) WHERE benchmark = 'judge'",
    )
    assert tokens > len(TALE) and document


def test_the_limit_counts_questions_of_each_task_with_all_their_rounds(
    lbx: Lbx, home: Path, results: Path, always_first: Path
) -> None:
    """As a run's counts samples of each task, each with all its repetitions."""
    more = ["--run", "x", "--run", "y", "--against", "turbo-16k-0613", "--questions", "open", "--limit", 1]
    assert lbx(*judge(home, results, always_first, *more)).returncode == 0
    judged = """
        SELECT meta->>'task', count(DISTINCT meta->>'sample_id'), count(*)
        FROM samples WHERE benchmark = 'judge' GROUP BY ALL ORDER BY ALL
    """
    # Two runs in two orders; financial_qa has its first question twice.
    assert rows(results, judged) == [("financial_qa", 1, 8), ("gov_report_summ", 1, 4), ("multidoc_qa", 1, 4)]
    places = """
        SELECT max(asked.position) FROM samples judge JOIN samples asked
        ON asked.task = judge.meta->>'task' AND asked.sample_id = judge.meta->>'sample_id'
        WHERE judge.benchmark = 'judge'
    """
    assert rows(results, places) == [(0,)]


def test_a_judged_answer_is_shown_with_what_judges_say(lbx: Lbx, home: Path, results: Path, always_first: Path) -> None:
    more = ["--run", "x", "--against", "turbo-16k-0613", "--tasks", "leval/multidoc_qa", "--limit", 1]
    assert lbx(*judge(home, results, always_first, *more)).returncode == 0
    shown = " ".join(lbx("show", results, "leval/multidoc_qa/000-00", "--run", "x").stdout.split())
    who = "judge judge-a (judge: leval)"
    assert f"{who}: better, beside turbo-16k-0613, shown first: The first. [[A]]" in shown
    assert f"{who}: worse, beside turbo-16k-0613, shown second: The first. [[A]]" in shown
    (told,) = json.loads(lbx("show", results, "leval/multidoc_qa/000-00", "--run", "x", "--json").stdout)
    assert [one["verdict"] for one in told["judgements"]] == ["answer", "against"] and told["ratings"] == []


def test_a_rating_needs_no_opponent(lbx: Lbx, home: Path, results: Path, tmp_path: Path) -> None:
    (tmp_path / "stars.toml").write_text(RATING)
    model = table(tmp_path, "rater", {"*": "[[4]]"})
    more = ["--run", "x", "--run", "y", "--rubric", tmp_path / "stars.toml"]
    assert lbx(*judge(home, results, model, *more, "--limit", 2)).returncode == 0
    assert rows(results, WON) == [("x", 3.75, 5, 5), ("y", 3.75, 5, 5)]
    fails(lbx(*judge(home, results, model, *more, "--against", "gpt4-32k")), 2, "rates one answer alone")


def test_a_judge_of_the_judged_models_family_is_marked(lbx: Lbx, home: Path, results: Path, tmp_path: Path) -> None:
    model = table(tmp_path, "x", {"*": "[[A]]"})
    done = lbx(*judge(home, results, model, "--run", "x", "--run", "claude-100k", "--against", "turbo-16k-0613"))
    assert "is of the same model family as x" in " ".join(done.stderr.split())
    ((_, _, hardware, _),) = rows(results, JUDGES)
    assert json.loads(str(hardware))["same_family_as"] == ["x"]


def test_a_run_may_be_named_by_its_model(
    lbx: Lbx, home: Path, results: Path, always_first: Path, tmp_path: Path
) -> None:
    with Store(results) as store:
        store.query("UPDATE runs SET model = 'model of ' || run_id")
    spec = tmp_path / "judge.json"
    named = ("--run", "model of x", "--against", "model of y", "--save-spec", spec)
    assert lbx(*judge(home, results, always_first, *named)).returncode == 0
    saved = spec.read_text("utf-8")
    assert lbx(*judge(home, results, always_first, "--run", "x", "--against", "y", "--save-spec", spec)).returncode == 0
    assert spec.read_text("utf-8") == saved
    with Store(results) as store:
        store.query("UPDATE runs SET model = 'one'")
    said = "'one' is ambiguous: it may be hintless or x or y. Give one of these."
    fails(lbx(*judge(home, results, always_first, "--run", "one", "--against", "y")), 2, said)


def test_a_files_run_and_published_answers_of_one_name_are_never_mixed_up(
    lbx: Lbx, home: Path, results: Path, always_first: Path, tmp_path: Path
) -> None:
    """Neither is taken silently for the other; a run's own name means that run, and --calibrate the published ones."""
    with Store(results) as store:
        store.query("UPDATE runs SET model = 'claude-100k' WHERE run_id = 'x'")
    both = "'claude-100k' is ambiguous: it may be x or published-claude-100k"
    for more in (("--run", "claude-100k", "--against", "y"), ("--run", "y", "--against", "claude-100k")):
        fails(lbx(*judge(home, results, always_first, *more)), 2, both)
    names = ("x", "published-claude-100k")
    told = [arg for name in names for arg in ("--run", name)]
    assert lbx(*judge(home, results, always_first, *told, "--against", "y")).returncode == 0
    judged = "SELECT DISTINCT meta->>'run_id' FROM samples WHERE benchmark = 'judge' ORDER BY ALL"
    assert {name for (name,) in rows(results, judged)} == {*names}
    for what in (("show", results), ("export", "leval", results, "-o", tmp_path / "out"), ("rate", results)):
        fails(lbx(*what, "--run", "claude-100k"), 2, "'claude-100k' may be any of published-claude-100k, x")
    with Store(results) as store:
        for table_ in ("runs", "generations", "scores"):
            store.query(f"UPDATE {table_} SET run_id = 'claude-100k' WHERE run_id = 'x'")
    spec, calibrated = tmp_path / "judge.json", tmp_path / "calibrated.json"
    more = ("--run", "claude-100k", "--against", "y", "--save-spec", spec)
    assert lbx(*judge(home, results, always_first, *more)).returncode == 0
    assert spec_of(json.loads(spec.read_text("utf-8")), "").runs == ("claude-100k",)
    done = lbx(*judge(home, results, always_first, "--calibrate", "--save-spec", calibrated))
    assert done.returncode == 0, done.stderr
    assert all(run.startswith("published-") for run in spec_of(json.loads(calibrated.read_text("utf-8")), "").runs)


def test_what_cannot_be_judged_is_refused_before_a_model_is_loaded(
    lbx: Lbx, home: Path, results: Path, always_first: Path, tmp_path: Path
) -> None:
    cases: list[tuple[list[object], str]] = [
        ([], "Give the run to judge with --run"),
        (["--run", "x"], "compares two answers. Name the other run: --against RUN"),
        (["--run", "z", "--against", "x"], "There is no run 'z' in"),
        (["--run", "x", "--against", "x"], "cannot be its own opponent"),
        (["--run", "x", "--against", "y", "--rubric", tmp_path / "none.toml"], "none.toml cannot be read"),
        (["--run", "x", "--against", "y", "--tasks", "longbench"], "Nothing to judge: x and y did not both answer"),
        (["--run", "x", "--against", "y", "--rubric", __file__], "is not valid TOML"),
    ]
    before = results.read_bytes()
    for more, said in cases:
        fails(lbx(*judge(home, results, always_first, *more)), 2, said)
    assert results.read_bytes() == before
    fails(
        lbx(*judge(home, tmp_path / "no.duckdb", always_first, "--run", "x", "--against", "y")),
        2,
        "There is no results file at",
    )
    assert not (tmp_path / "no.duckdb").exists()


def test_two_protocols_are_never_mixed(lbx: Lbx, home: Path, results: Path, always_first: Path) -> None:
    for against in ("x", "published-turbo-16k-0613"):
        if against != "x":
            assert lbx(*judge(home, results, always_first, "--run", "x", "--against", against)).returncode == 0
        done = lbx(*judge(home, results, always_first, "--run", "hintless", "--run", "y", "--against", against))
        fails(done, 2, "hintless did not (--no-length-hint)")
    done = lbx(*judge(home, results, always_first, "--run", "hintless", "--against", "turbo-16k-0613"))
    assert done.returncode == 0, done.stderr
    against = "SELECT DISTINCT meta->>'against_run_id' FROM samples WHERE meta->>'run_id' = 'hintless'"
    assert rows(results, against) == [("published-turbo-16k-0613-no-length-hint",)]


def test_failed_and_empty_answers_are_said(lbx: Lbx, home: Path, always_first: Path, tmp_path: Path) -> None:
    results = tmp_path / "holes.duckdb"
    lines: list[dict[str, Any]] = [{"key": "*", "text": "fine"}]
    lines += [{"key": "leval/multidoc_qa/000-00", "text": " \n"}, {"key": "leval/multidoc_qa/000-01", "error": "gone"}]
    model = table(tmp_path, "holes", lines)
    what = ["--bundle", home / "b", "--model", model, "--tasks", "leval", "--run", "holes", "--no-plan"]
    assert lbx("run", *what, "-o", results).returncode == 3
    done = lbx(*judge(home, results, always_first, "--run", "holes", "--against", "turbo-16k-0613"))
    said = " ".join(done.stderr.split())
    assert "1 question is left out: the answer of holes failed or is missing." in said
    assert "1 answer holds nothing but white space, of holes; judged all the same." in said
    assert rows(results, WON) == [("holes", 10.0, 20, 20)]


@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["alone", "workers"])
def test_a_killed_judge_continues_without_a_lost_or_doubled_row(
    lbx: Lbx, home: Path, results: Path, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    slow = table(tmp_path, "slow", [{"key": "*", "text": "[[B]]", "delay_s": 0.05}])
    what = judge(home, results, slow, "--run", "x", "--run", "y", "--against", "gpt4-32k", *workers)
    chance = random.Random(7)
    for _ in range(kills(6)):
        process = subprocess.Popen(
            [sys.executable, "-m", "lbx.cli", *map(str, what)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        wait_for_samples(process)
        time.sleep(chance.uniform(0, 2.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert lbx(*what).returncode == 0
    whole = tmp_path / "whole.duckdb"
    whole.write_bytes((home / "runs.duckdb").read_bytes())
    quick = table(tmp_path, "slow", {"*": "[[B]]"})
    assert lbx(*judge(home, whole, quick, "--run", "x", "--run", "y", "--against", "gpt4-32k")).returncode == 0
    assert rows(results, ROWS) == rows(whole, ROWS)
    assert rows(results, f"SELECT status FROM ({JUDGES})") == [("done",)]


def test_shards_hold_whole_documents_and_merge_to_what_one_judge_is(
    lbx: Lbx, home: Path, results: Path, tmp_path: Path, always_first: Path
) -> None:
    spec, folder = tmp_path / "judge.json", tmp_path / "run"
    more = ["--run", "x", "--against", "turbo-16k-0613", "--questions", "both", "--name", "jury"]
    assert lbx(*judge(home, results, always_first, *more, "--save-spec", spec)).returncode == 0
    assert rows(results, "SELECT count(*) FROM generations WHERE benchmark = 'judge'") == [(0,)]
    submitted = lbx(
        "submit", "kubernetes", "--spec", spec, "--bundle", home / "b", "-o", folder, "--shards", 2, "--no-calibrate",
        "--image", "lbx:1", "--run-claim", "r", "--bundle-claim", "b",
    )  # fmt: skip
    assert submitted.returncode == 0, submitted.stderr
    files = []
    for shard in range(2):
        files.append(tmp_path / f"{shard}.duckdb")
        what = ["--shards", folder / "shards.json", "--shard", shard, "--no-plan", "-o", files[-1]]
        assert (done := lbx("run", "--spec", spec, *what)).returncode == 0, done.stderr
    apart = [{row[0] for row in rows(file, "SELECT DISTINCT meta->>'document_sha256' FROM samples")} for file in files]
    assert apart[0] and apart[1] and not apart[0] & apart[1]
    merged = tmp_path / "merged.duckdb"
    done = lbx("merge", results, *files, "-o", merged)
    assert done.returncode == 0, done.stderr
    assert lbx(*judge(home, results, always_first, *more)).returncode == 0
    assert rows(merged, ROWS) == rows(results, ROWS)
    rates = "SELECT run_id, name, n, score, low, high FROM group_results WHERE \"grouping\" = 'judge' ORDER BY ALL"
    assert rows(merged, rates) == rows(results, rates) != []


def test_rounds_share_most_of_what_they_read(home: Path, results: Path, lbx: Lbx, always_first: Path) -> None:
    """Four models against one: what all rounds of a question begin with is read once, and so is its first answer."""
    assert (
        lbx(*judge(home, results, always_first, "--run", "x", "--against", "turbo-16k-0613", "--limit", 1)).returncode
        == 0
    )
    spec = JudgeSpec(
        bundle=home / "b",
        model=str(always_first),
        answers=[results],
        runs=["x", "y"],
        against="published-turbo-16k-0613",
    )
    run = resolve(spec_of(json.loads(json.dumps(spec.to_json())), "here"))
    assert isinstance(run.own, Judging)
    card = card_of(spec, run.bundle)
    backend = load_model(card, run.bundle)
    try:
        total = make_plan(make_works(run, card, backend)).total
    finally:
        backend.close()
    assert total.samples == 44
    assert total.distinct_tokens < total.prompt_tokens / 2


def test_a_server_as_a_judge_gets_the_official_messages(lbx: Lbx, home: Path, results: Path, tmp_path: Path) -> None:
    def chatted(path: str, payload: Any, _before: int) -> tuple[int, dict[str, str], object]:
        if path.endswith("/models"):
            return 200, {}, {"object": "list", "data": [{"id": "served", "object": "model"}]}
        if payload is None:
            return 404, {}, {}
        message = {"role": "assistant", "content": "So be it: [[C]]"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return 200, {}, {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 5}}

    with closing_all() as things:
        things.append(server := ScriptedServer(chatted))
        card = tmp_path / "served.toml"
        card.write_text(f'backend = "endpoint"\n[options]\nurl = "{server.url}"\napi = "chat"\n')
        more = ["--run", "x", "--against", "turbo-16k-0613", "--tasks", "leval/financial_qa", "--limit", 1]
        done = lbx(*judge(home, results, card, *more))
        assert done.returncode == 0, done.stderr
        asked = [one for one in server.posts("/v1/chat/completions") if one.get("max_tokens") == 2048]
    system = 'Weigh both; say "[[A]]", "[[B]]" or "[[C]]".'
    said = ["x answers", "turbo-16k-0613 says Ann pays LLM"]
    wanted = [f"Asked Who pays?\n\nTrue: Ann pays\n\nA said {a}\nB said {b}\n{{end}}" for a, b in (said, said[::-1])]
    assert sorted(one["messages"][1]["content"] for one in asked) == sorted(wanted)
    assert {one["messages"][0]["content"] for one in asked} == {system}
    assert [[message["role"] for message in one["messages"]] for one in asked] == [["system", "user"]] * 2
    assert {one["temperature"] for one in asked} == {0}
    assert rows(results, WON) == [("x", 1.0, 2, 2)]


def test_a_failed_round_is_said_and_asked_again(lbx: Lbx, home: Path, results: Path, tmp_path: Path) -> None:
    more = ["--run", "x", "--against", "turbo-16k-0613"]
    model = table(tmp_path, "weak", {"*": "[[A]]"})
    assert lbx(*judge(home, results, model, *more, "-o", tmp_path / "names.duckdb")).returncode == 0
    names = rows(tmp_path / "names.duckdb", "SELECT min(sample_id) FROM samples WHERE benchmark = 'judge'")
    broken: list[dict[str, Any]] = [
        {"key": f"judge/leval/{names[0][0]}", "error": "out of order"},
        {"key": "*", "text": "[[A]]"},
    ]
    model = table(tmp_path, "weak", broken)
    done = lbx(*judge(home, results, model, *more, "--name", "weak"))
    assert done.returncode == 3 and "21 answered, 1 failed" in done.stdout, done.stdout
    assert "out of order" in lbx("report", results, "failures").stdout
    again = lbx(*judge(home, results, model, *more, "--name", "weak", "--retry-failed"))
    assert "0 answered, 1 failed, 21 already done" in again.stdout, again.stdout


def test_a_rubric_may_lie_in_the_folder_of_the_submitted_run(tmp_path: Path) -> None:
    Store(tmp_path / "r.duckdb").close()
    folder = tmp_path / "judge"
    folder.mkdir()
    (folder / "mine.toml").write_text("kept")
    spec = JudgeSpec(
        bundle="b", model="m", answers=(str(tmp_path / "r.duckdb"),), runs=("x",), rubric=str(folder / "mine.toml")
    )
    assert spec.carried(folder, "/there").rubric == "/there/mine.toml"
    assert (folder / "mine.toml").read_text() == "kept" and (folder / "answers-0.duckdb").is_file()


def test_texts_without_a_verdict_are_counted_at_the_end(
    lbx: Lbx, home: Path, results: Path, always_first: Path, tmp_path: Path
) -> None:
    what = ["--run", "x", "--against", "turbo-16k-0613"]
    done = lbx(*judge(home, results, table(tmp_path, "mute", {"*": "I cannot say."}), *what))
    assert done.returncode == 0, done.stderr
    (name,) = {str(row[0]) for row in rows(results, "SELECT judge_id FROM judged_rounds")}
    last = " ".join(done.stderr.split())
    assert "22 of 22 texts hold no verdict" in last and f"lbx show {results} --run {name}" in last
    assert lbx("show", results, "--run", name).stdout.count("judge/") == 22
    done = lbx(*judge(home, results, always_first, *what))
    assert "no verdict" not in done.stderr
