"""``lbx prompts`` and ``lbx show``: what is sent, looked at before a run and after it."""

from __future__ import annotations

import hashlib
import html
import json
import re
from pathlib import Path

import pytest

from lbx.report.reports import REPORTS
from lbx.results.read.stored_answers import LISTED
from tests.cli.page_process import page_process
from tests.command_line import Lbx, fails
from tests.leval_scripts import CONFIG_PY, SCRIPT_PY

SCI_FI = "leval/sci_fi/000-00"
RECIPE = """
name = "fiction"
[[source]]
kind = "path"
path = "data"
repo = "L4NLP/LEval"
type = "dataset"
[[source]]
kind = "path"
path = "scripts"
to = "OpenLMLab/LEval/Baselines"
allow = ["LEval_config.py", "turbo16k-test.py"]
"""
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>"
ASKED = "Text: {} Asked: Is it so in the story. \nAnswer: "


def test_failures_of_published_predictions_are_listed_and_shown(lbx: Lbx, imports: Path) -> None:
    """Of LongBench v2's published answers 191 failed, and their lines hold no question."""
    listed = json.loads(lbx("show", imports, "--tasks", "longbench_v2", "--rows", 1000, "--json").stdout)
    assert len({row["sample"] for row in listed}) == 503
    failed = [row["sample"] for row in listed if row["marks"] == "failed"]
    assert len(failed) == 191
    done = lbx.ok("show", imports, failed[0], "--full")
    assert "error     Error code: 400" in done.stdout
    assert "mark      " in done.stdout
    as_json = json.loads(lbx("show", imports, failed[0], "--json").stdout)
    assert [(row["question"], row["references"], row["meta"]) for row in as_json] == [("", [], {})]


@pytest.fixture(scope="module")
def fiction(lbx: Lbx, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bundle of one sci_fi question on a document that is too long, and a model with a template."""
    folder = tmp_path_factory.mktemp("fiction")
    (folder / "data" / "LEval" / "Exam").mkdir(parents=True)
    (folder / "scripts").mkdir()
    row = {
        "instructions": ["Is it so in the story."],
        "outputs": ["True [fact: False]"],
        "input": " ".join(f"word{number:05d}" for number in range(3000)),
        "source": "sci",
        "evaluation": "exam",
    }
    (folder / "data" / "LEval" / "Exam" / "sci_fi.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "scripts" / "LEval_config.py").write_bytes(CONFIG_PY)
    (folder / "scripts" / "turbo16k-test.py").write_bytes(SCRIPT_PY)
    (folder / "fiction.toml").write_text(RECIPE)
    lbx.unpacked(folder / "fiction.toml", folder)
    (folder / "answers.jsonl").write_text(json.dumps({"key": SCI_FI, "text": " True "}) + "\n")
    (folder / "m.toml").write_text(
        'name = "m"\nbackend = "scripted"\ncontext_window = 16384\n[weights]\npath = "answers.jsonl"\n'
        f"[chat]\ntemplate = {json.dumps(TEMPLATE)}\n"
    )
    return folder


@pytest.fixture(scope="module")
def results(lbx: Lbx, fiction: Path) -> Path:
    out = fiction / "r.duckdb"
    lbx.ok("run", "-b", fiction / "bundle", "-m", fiction / "m.toml", "-t", "leval/sci_fi", "-o", out)
    return out


def test_what_would_be_sent_is_what_was_sent(lbx: Lbx, fiction: Path, results: Path) -> None:
    out = fiction / "prompts.jsonl"
    lbx.ok("prompts", "-b", fiction / "bundle", "-m", fiction / "m.toml", "-t", "leval", "-o", out)
    first, second = map(json.loads, out.read_text().splitlines())
    words = [f"word{number:05d}" for number in range(3000)]
    kept = next(n for n in range(15488, 0, -250) if len(" ".join(words[:n])) + 1 <= 15488)
    whole = ASKED.format(" ".join(words[:kept]))
    assert first["text"] == f"<|system|>Choose. <|user|>{whole}<|assistant|>"
    assert first["text"][: first["cut_at"]].endswith(words[kept - 1])
    assert (first["system_prompt"], first["truncated"]) == ("message", True)
    assert first["prompt_tokens"] == len(first["token_ids"]) <= 16384 - 512
    assert second["text"] == "<|user|>Is it so in the world\nReally?<|assistant|>"
    assert (second["step"], second["cut_at"]) == (1, None)
    sent = lbx.rows(results, "SELECT * FROM generations")[0]
    assert sent["prompt_sha256"] == first["prompt_sha256"] == hashlib.sha256(first["text"].encode()).hexdigest()
    assert (sent["system_prompt"], sent["output"]) == ("message", "True [fact: True]")
    assert [step["output"] for step in json.loads(sent["steps"])] == [" True "]
    fails(
        lbx("prompts", "-b", fiction / "bundle", "-m", fiction / "m.toml", "-t", "leval", "-o", out),
        2,
        "already exists",
    )


def test_an_answer_with_all_that_is_known_of_it(lbx: Lbx, results: Path) -> None:
    listed = lbx("show", results)
    assert SCI_FI in listed.stdout
    assert json.loads(lbx("show", results, "--tasks", "needle/*", "--json").stdout) == []
    shown = lbx("show", results, SCI_FI, "--prompt").stdout
    for words in ("Is it so in the story.", "True [fact: False]", "True [fact: True]", "exact_match 0.5000"):
        assert words in shown
    assert "tokens of the prompt were cut" in shown
    assert "tokens are cut here" in shown
    assert "rebuilt   identical to the prompt of this answer" in shown
    assert lbx("show", results, SCI_FI.removeprefix("leval/"), "--prompt").stdout == shown
    told = json.loads(lbx("show", results, "000-00", "--prompt", "--json").stdout)
    assert [answer["prompt_is_the_same"] for answer in told] == [True]
    assert len(told[0]["prompts"]) == 2


def test_a_prompt_that_changed_is_told_apart(lbx: Lbx, fiction: Path, results: Path, tmp_path: Path) -> None:
    card = tmp_path / "other.toml"
    card.write_text(
        (fiction / "m.toml").read_text().replace("<|user|>", "<|u|>").replace("answers", str(fiction / "answers"))
    )
    card.write_text(card.read_text().replace("m.role", "m.role | upper"))
    shown = lbx("show", results, SCI_FI, "--prompt", "--model", card)
    assert "NOT identical to the prompt of this answer" in shown.stdout, shown.stderr


def test_what_cannot_be_shown_is_said(lbx: Lbx, results: Path, tmp_path: Path) -> None:
    fails(lbx("show", results, "none"), 2, "contains no answer to a sample none", "lbx show")
    fails(lbx("show", results, SCI_FI, "--run", "none"), 2, "No run 'none'")
    fails(lbx("show", results, "--run", "none"), 2, "No run 'none'")
    fails(lbx("show", tmp_path / "none.duckdb"), 1, "none.duckdb")
    fails(lbx("show", results, SCI_FI, "--prompt", "--bundle", tmp_path), 1, "The prompt cannot be rebuilt")


def test_an_answer_that_failed_has_no_prompt_to_be_held_against(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_text(json.dumps({"*": "x"}))
    (tmp_path / "m.toml").write_text(
        'name = "m"\nbackend = "scripted"\ncontext_window = 40\n[weights]\npath = "answers.jsonl"\n'
    )
    out = tmp_path / "r.duckdb"
    asked = ("-b", bundle, "-m", tmp_path / "m.toml", "-t", "needle/single_en", "--limit", "1", "--iterations", "2")
    lbx("run", *asked, "--max-new-tokens", "8", "-o", out)
    sample = json.loads(lbx("show", out, "--json").stdout)[1]["sample"]
    assert sample.endswith("#1")
    shown = lbx("show", out, sample, "--prompt")
    assert "not compared: no stored hash" in shown.stdout, shown.stderr
    assert "mark      failed" in shown.stdout
    told = json.loads(lbx("show", out, sample.removesuffix("#1"), "--prompt", "--json").stdout)
    assert [answer["prompt_is_the_same"] for answer in told] == [None, None]
    assert "does not truncate prompts" in told[0]["prompts"][0]["error"]


def test_an_imported_answer_is_shown_and_its_prompt_is_not(lbx: Lbx, tmp_path: Path) -> None:
    folder, out = tmp_path / "pred", tmp_path / "r.duckdb"
    folder.mkdir()
    row = {"pred": "an answer", "answers": ["the answer"], "all_classes": None, "length": 7}
    (folder / "qasper.jsonl").write_text(json.dumps(row) + "\n")
    lbx.ok("import", "longbench", folder, "--model-name", "theirs", "-o", out)
    (listed,) = json.loads(lbx("show", out, "--json").stdout)
    shown = lbx("show", out, listed["sample"]).stdout
    for words in ("the answer", "an answer", "tokens    unknown", "prompt    unknown"):
        assert words in shown
    fails(lbx("show", out, listed["sample"], "--prompt"), 2, "has no specs of its runs")


def test_texts_of_models_steer_no_terminal(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_text(json.dumps({"*": "\x1b[2J\u202eevil\n" + "x" * 5000}))
    (tmp_path / "m.toml").write_text(
        'name = "m"\nbackend = "scripted"\ncontext_window = 16384\n[weights]\npath = "answers.jsonl"\n'
    )
    out = tmp_path / "r.duckdb"
    asked = ("-b", bundle, "-m", tmp_path / "m.toml", "-t", "needle/single_en", "--limit", "1", "-o", out)
    assert lbx("run", *asked, "--max-new-tokens", "6000").returncode == 0
    (listed,) = json.loads(lbx("show", out, "--json").stdout)
    shown = lbx("show", out, listed["sample"]).stdout
    assert "\x1b" not in shown
    assert r"\x1b[2J\u202eevil" in shown
    assert "characters, see --full" in shown
    assert "x" * 5000 in lbx("show", out, listed["sample"], "--full").stdout


def test_a_prompt_that_was_never_sent_is_compared_with_nothing(
    lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r.duckdb"
    asked = ("-b", bundle, "-m", answers, "-t", "needle/single_en", "--limit", "1", "--max-new-tokens", 10**6)
    assert lbx("run", *asked, "-o", out).returncode == 3
    (listed,) = json.loads(lbx("show", out, "--json").stdout)
    (told,) = json.loads(lbx("show", out, listed["sample"], "--prompt", "--json").stdout)
    assert told["prompt_is_the_same"] is None
    assert "not compared: no stored hash" in lbx("show", out, listed["sample"], "--prompt").stdout


def test_the_first_of_each_task_is_shown_where_none_is_chosen(lbx: Lbx, bundle: Path, answers: Path) -> None:
    done = lbx("prompts", "-b", bundle, "-m", answers, "-t", "needle/single_en,needle/single_zh")
    assert done.stdout.count("== needle/") == 2
    assert lbx("prompts", "-b", bundle, "-m", answers, "-t", "needle/single_en", "--limit", "3").stdout.count("==") == 3


def test_browse_makes_the_prompt_again(fiction: Path, results: Path, tmp_path: Path, only_loopback: None) -> None:
    with page_process("browse", results, "--bundle", fiction / "bundle") as (_, client):
        listed = client.get("/").text
        assert "leval/sci_fi/000-00" in listed
        address = html.unescape(re.findall(r'href="[^"]*(/answer[^"]*)"', listed)[0])
        plain = client.get(address).text
        assert "word02999" in plain
        page = client.get(f"{address}&show=prompt").text
        assert "This is the prompt that was answered: the hashes match." in page
        assert "&lt;|system|&gt;Choose." in page
        assert "[step 2]" in page
        assert "word02999" not in page  # the prompt was cut
        key = page.partition('data-document="')[2].partition('"')[0]
        assert client.get(f"/documents/{key}/find", params={"q": "WORD00010"}).json()["total"] == 1
    moved = tmp_path / "moved.duckdb"
    moved.write_bytes(results.read_bytes())
    with page_process("browse", moved, "--bundle", fiction / "bundle", "--model", tmp_path / "gone.toml") as (
        _,
        client,
    ):
        assert "The prompt cannot be rebuilt" in client.get(f"{address}&show=prompt").text
        assert client.get(address).status_code == 200


def test_browse_knows_runs_and_tasks(lbx: Lbx, results: Path) -> None:
    fails(lbx("browse", results, "--tasks", "leval/tpo"), 2, "It has: leval/sci_fi.")
    fails(lbx("browse", results, "--run", "nobody"), 2, "No run")


def test_answers_without_an_extracted_one_are_listed(lbx: Lbx, imports: Path) -> None:
    """Of 9,500 published answers 20 hold no option, number or class that the metric could find."""
    listed = json.loads(lbx("show", imports, "--tasks", "longbench", "--mark", "nothing extracted", "--json").stdout)
    guards = json.loads(lbx("report", imports, "guards", "--format", "json").stdout)
    assert len(listed) == sum(row["unextracted"] for row in guards if row["benchmark"] == "longbench") == 20
    assert all("nothing extracted" in row["marks"] for row in listed)
    fails(lbx("show", imports, "--mark", "none"), 2, "There is no mark 'none'", "nothing extracted")


def test_marks_have_the_names_of_reports(lbx: Lbx, results: Path) -> None:
    """Names in the marks of task_scores, the columns of guards and the documents are those that --mark accepts."""
    text = (Path(__file__).parents[2] / "docs/judging.md").read_text("utf-8")
    table = text.partition("| mark | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    explained = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()]
    guards = [column.heading for column in REPORTS["guards"].columns if column.name.endswith("_rate")]
    assert sorted(explained) == sorted(guards) == sorted(LISTED)
    listed = json.loads(lbx.ok("show", results, "--mark", "prompt cut", "--json").stdout)
    assert [row["marks"] for row in listed] == ["prompt cut"]


def test_wrong_answers_are_listed_and_left_out_ones_counted(lbx: Lbx, imports: Path) -> None:
    done = lbx.ok("show", imports, "--tasks", "longbench_v2", "--mark", "wrong", "--rows", 3, "--json")
    (row,) = lbx.rows(
        imports, "SELECT count(*) AS n FROM scores WHERE headline AND score = 0 AND benchmark = 'longbench_v2'"
    )
    assert [row["score"] for row in json.loads(done.stdout)] == [0.0] * 3
    assert f"3 of {row['n']:,} answers; --rows N shows more." in done.stderr
    every = lbx.ok("show", imports, "--tasks", "longbench_v2", "--mark", "wrong", "--rows", row["n"], "--json")
    assert len(json.loads(every.stdout)) == row["n"] and "--rows" not in every.stderr


def test_a_selection_without_answers_is_announced(lbx: Lbx, results: Path) -> None:
    done = lbx("show", results, "--mark", "failed")
    assert (done.returncode, done.stdout) == (0, "")
    assert "contains no answer that matches --run, --tasks and --mark" in " ".join(done.stderr.split())


def test_a_table_of_answers_counts_bytes_and_says_so(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    asked = ("-b", bundle, "-m", answers, "-t", "needle/single_zh", "--limit", 1)
    assert "\nbytes     " in lbx.ok("prompts", *asked).stdout
    plan = lbx.ok("plan", *asked).stdout
    assert "Bytes (this model has no tokenizer here)" in plan and "Tokens" not in plan
    results = tmp_path / "r.duckdb"
    told = lbx.ok("run", *asked, "-o", results).stderr
    assert " bytes in all" in told and " prompt bytes processed" in told and "bytes/s computed" in told
    note = "Tokens of a table of answers (backend scripted) are bytes"
    listed = lbx.ok("show", results)
    assert note in listed.stderr
    assert note in lbx.ok("report", results, "length_curve").stdout
    assert note not in lbx.ok("report", results, "task_scores").stdout
    sample = json.loads(lbx("show", results, "--json").stdout)[0]["sample"]
    assert "\nbytes     " in lbx.ok("show", results, sample).stdout
