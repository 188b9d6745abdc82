"""InfiniteBench on made-up rows, and a prompt.py and an eval_utils.py of its form; no real row has been seen here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, NoDataError
from lbx.base.records import Sample, ScoredSample, Truncation
from lbx.benchmarks.infinitebench import REPO, RULES, TASKS, TEMPLATES, parse_references
from lbx.benchmarks.registry import BENCHMARKS
from tests.command_line import Lbx

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]
Row = dict[str, Any]

INFINITEBENCH = BENCHMARKS["infinitebench"]
FIELDS = {
    **dict.fromkeys(TASKS, "{context} | {input}"),
    **dict.fromkeys(("longbook_qa_eng", "longbook_qa_chn"), "{context} | {question}"),
    **dict.fromkeys(("longbook_sum_eng", "longdialogue_qa_eng", "math_calc"), "Of {context} $$ say"),
    "longbook_choice_eng": "{context} | {question} {OPTION_A}/{OPTION_B}/{OPTION_C}/{OPTION_D}",
    "code_debug": "{context} | {OPTION_A}/{OPTION_B}/{OPTION_C}/{OPTION_D}",
    "code_run": "{func}\n{context} | {func_call} {func_call}",
    "math_find": "{prefix}\n{context} | {input}",
}
BUDGETS = {task: 5 + number for number, task in enumerate(TASKS)}
PROMPT_PY = f"gpt4_templates = {{}}\nyarn_mistral_templates = {FIELDS!r}\nkimi_templates = {{'a': 'b' + 'c'}}\n"
RULES_PY = f"""
from rouge import Rouge
DATA_NAME_TO_MAX_NEW_TOKENS = {BUDGETS!r}
MODELS = {{"gpt4": Rouge}}
def create_prompt(eg):
    target_number = eg
    prefix = f"Which is {{target_number}} of these?"
    return prefix
"""
ROW: Row = {"id": 0, "context": "A {text}.", "input": "What?", "answer": ["two"], "options": []}
ROWS: dict[str, Row] = {
    "passkey": {"answer": ["0123"]}, "kv_retrieval": {"answer": "9f"}, "number_string": {"answer": ["00"]},
    "longbook_sum_eng": {}, "longbook_qa_eng": {}, "longdialogue_qa_eng": {"answer": ["ACE", "ACE ROTH"]},
    "longbook_qa_chn": {"answer": ["二"]}, "longbook_choice_eng": {"options": ["one", "two", "{3}", "four"]},
    "code_debug": {"options": ["f", "g", "two", "h"]}, "code_run": {"input": "What is func_7(-3)?", "answer": [-4]},
    "math_calc": {"answer": [[1, 2]]}, "math_find": {"input": "The third LARGEST Number of the list?", "answer": [2.5]},
}  # fmt: skip
TEXTS = {
    "passkey": "A {text}. | What?", "kv_retrieval": "A {text}. | What?", "number_string": "A {text}. | What?",
    "longbook_sum_eng": "Of A {text}. $$ say", "longbook_qa_eng": "A {text}. | What?",
    "longdialogue_qa_eng": "Of A {text}. $$ say", "longbook_qa_chn": "A {text}. | What?",
    "longbook_choice_eng": "A {text}. | What? one/two/{3}/four", "code_debug": "A {text}. | f/g/two/h",
    "code_run": "func_7\nA {text}. | func_7(-3) func_7(-3)", "math_calc": "Of A {text}. $$ say",
    "math_find": "Which is the third largest number of these?\nA {text}. | The third LARGEST Number of the list?",
}  # fmt: skip
REFERENCES = {
    "passkey": ("0123",), "kv_retrieval": ("9f",), "number_string": ("00",), "longdialogue_qa_eng": ("ACE", "ACE ROTH"),
    "longbook_qa_chn": ("二",), "longbook_choice_eng": ("two", "B"), "code_debug": ("two", "C"), "code_run": ("-4",),
    "math_calc": ("1", "2"), "math_find": ("2.5",),
}  # fmt: skip


def made(make_bundle: MakeBundle, prompts: str = PROMPT_PY, rules: str = RULES_PY, **tasks: list[Row]) -> Bundle:
    content: dict[str, bytes | Path] = {f"files/{TEMPLATES}": prompts.encode(), f"files/{RULES}": rules.encode()}
    for task, rows in tasks.items():
        content[f"hub:{REPO}/{task}.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return make_bundle(content)


@pytest.mark.parametrize("task", TASKS)
def test_a_row_is_a_sample_with_the_official_prompt(task: str, make_bundle: MakeBundle) -> None:
    bundle = made(make_bundle, **{task: [{**ROW, **ROWS[task]}, {**ROW, **ROWS[task], "id": 1}]})
    (found,) = INFINITEBENCH.tasks(bundle)
    assert (found.full_name, found.samples, found.metrics) == (f"infinitebench/{task}", 2, TASKS[task].metrics)
    sample, other = INFINITEBENCH.samples(bundle, task)
    assert (sample.context, sample.references) == (ROW["context"], REFERENCES.get(task, ("two",)))
    assert (sample.sample_id[:5], other.sample_id[4:]) == ("0000-", sample.sample_id[4:])
    assert (sample.language, sample.length_unit) == (("zh", "characters") if "chn" in task else ("en", "words"))
    prompt = INFINITEBENCH.prompt(bundle, sample)
    assert (prompt.text, prompt.document, prompt.max_new_tokens) == (TEXTS[task], ROW["context"], BUDGETS[task])
    assert (prompt.truncation, prompt.temperature, prompt.chat) == (Truncation.MIDDLE_EVEN, None, True)


@pytest.mark.parametrize(
    ("task", "changes", "what"),
    [
        ("passkey", {"context": None}, "the field 'context' is NoneType, not str"),
        ("passkey", {"answer": [5]}, "the field 'answer' is no answer of the kind text"),
        ("passkey", {"answer": []}, "the field 'answer' is no answer of the kind text"),
        ("code_run", {"answer": [True]}, "the field 'answer' is no answer of the kind integer"),
        ("code_run", {"input": "What is f(3)?"}, "the field 'input' contains no text of the form"),
        ("math_find", {"answer": ["5"]}, "the field 'answer' is no answer of the kind number"),
        ("math_find", {"input": "Which?"}, "the field 'input' contains no text of the form"),
        ("math_calc", {"answer": [[1, 2.5]]}, "the field 'answer' is no answer of the kind integer"),
        ("code_debug", {"options": ["f"]}, "the field 'options' is not a list of four texts"),
        ("code_debug", {"answer": ["none"]}, "the field 'answer' is no answer of the kind option"),
        ("longbook_choice_eng", {"options": ...}, "the field 'options' is missing"),
        ("longbook_choice_eng", {"answer": ["two", "E"]}, "the field 'answer' is no answer of the kind option"),
    ],
)
def test_damaged_rows(task: str, changes: Row, what: str, make_bundle: MakeBundle) -> None:
    row = {name: value for name, value in {**ROW, **ROWS[task], **changes}.items() if value is not ...}
    with pytest.raises(BundleError, match=f"{task}.jsonl, line 1 is damaged: {what}"):
        list(INFINITEBENCH.samples(made(make_bundle, **{task: [row]}), task))


@pytest.mark.parametrize(
    ("prompts", "rules"),
    [
        (PROMPT_PY.replace("yarn_", "yi_"), RULES_PY), (PROMPT_PY.replace("'math_find'", "'math'"), RULES_PY),
        (PROMPT_PY.replace("{prefix}", "{before}"), RULES_PY),
        (PROMPT_PY, RULES_PY.replace("'math_find': 16", "'x': 16")),
        (PROMPT_PY, RULES_PY.replace(": 16", ": 0")), (PROMPT_PY, RULES_PY.replace("{target_number}", "it")),
        (PROMPT_PY, "DATA_NAME_TO_MAX_NEW_TOKENS = 3"),
    ],
)  # fmt: skip
def test_damaged_official_files(prompts: str, rules: str, make_bundle: MakeBundle) -> None:
    bundle = made(make_bundle, prompts, rules, math_find=[{**ROW, **ROWS["math_find"]}])
    (sample,) = INFINITEBENCH.samples(bundle, "math_find")
    with pytest.raises(BundleError, match=r"prompt\.py|eval_utils\.py"):
        INFINITEBENCH.prompt(bundle, sample)


def test_missing_data(make_bundle: MakeBundle) -> None:
    empty = make_bundle({"files/other": b""})
    assert INFINITEBENCH.tasks(empty) == []
    with pytest.raises(NoDataError, match=r"does not contain xinrongzhang2022/InfiniteBench, passkey.jsonl") as caught:
        list(INFINITEBENCH.samples(empty, "passkey"))
    assert caught.value.command == "lbx bundle bundle/infinitebench.toml"


@pytest.mark.parametrize(
    ("task", "output", "value", "extracted"),
    [
        ("passkey", "The pass key is 0123.", 1, "0123"), ("passkey", "123", 0, "123"), ("passkey", "none", 0, ""),
        ("kv_retrieval", '{"k": "9f"}', 1, None), ("kv_retrieval", "9f0", 0, None),
        ("longdialogue_qa_eng", "Ace.", 1, None), ("longdialogue_qa_eng", "Roth", 0, None),
        ("longbook_qa_eng", "The two", 1, None), ("longbook_qa_chn", "二。", 1, None),
        ("longbook_sum_eng", "two\nthree", 2 / 3, None),
        ("longbook_choice_eng", "B", 1, "B"), ("longbook_choice_eng", "About B", 0, "A"),
        ("longbook_choice_eng", "two", 1, "two"), ("longbook_choice_eng", "The answer is: B. two", 1, "B two"),
        ("longbook_choice_eng", "I say B", 1, "B"), ("longbook_choice_eng", "no BC", 0, "BC"),
        ("longbook_choice_eng", "none", 0, ""), ("longbook_choice_eng", "  ", 0, ""),
        ("code_debug", "C. f", 1, None), ("code_debug", "It is: two", 1, None), ("code_debug", "C", 0, None),
        ("code_run", "It is -4.", 1, "-4"), ("code_run", "4", 0, "4"), ("code_run", "four", 0, ""),
        ("code_run", "", 0, ""),
        ("math_calc", "[1, 3]", 0.5, None), ("math_calc", "no", 0, None),
        ("math_find", "2.5 it is", 1, None), ("math_find", "2", 0, None),
    ],
)  # fmt: skip
def test_scores(task: str, output: str, value: float, extracted: str | None) -> None:
    sample = Sample("infinitebench", task, "0", "", "", REFERENCES.get(task, ("two",)))
    first, *_ = INFINITEBENCH.score(sample, output)
    assert (first.score, first.extracted, first.error) == (pytest.approx(value), extracted, None)


def test_where_the_official_script_stops() -> None:
    for task, references, output in (("math_find", ("2",), "3.5"), ("math_calc", ("1",), "1" * 5000)):
        for score in INFINITEBENCH.score(Sample("infinitebench", task, "0", "", "", references), output):
            assert score.score == 0 and str(score.error).startswith("ValueError")
    (score,) = INFINITEBENCH.score(Sample("infinitebench", "code_run", "0", "", "", ("x",)), "5")
    assert score.error == "The references are not answers of this task."


def test_gpt4s_first_number_may_be_left_out() -> None:
    scores = INFINITEBENCH.score(Sample("infinitebench", "math_calc", "0", "", "", ("1", "2")), "[9, 1, 2]")
    assert [(score.metric, score.score) for score in scores] == [("accuracy", 0.0), ("after_first", 1.0)]


def test_the_mean_is_official_with_all_tasks() -> None:
    def rows(task: str, value: float) -> list[ScoredSample]:
        return [ScoredSample(Sample("infinitebench", task, "0", "", "", ()), dict.fromkeys(TASKS[task].metrics, value))]

    tasks = {task: rows(task, float(task == "passkey")) for task in TASKS}
    (mean,) = INFINITEBENCH.groups(tasks)
    assert (mean.grouping, mean.official) == ("overall", pytest.approx(100 / 12, abs=1e-9))
    tasks.pop("passkey")
    assert INFINITEBENCH.groups(tasks)[0].official is None
    assert INFINITEBENCH.groups({}) == [] == INFINITEBENCH.aggregate("passkey", [])


def test_answers_have_several_forms() -> None:
    assert parse_references("passkey", "5") == parse_references("passkey", ["5"]) == ("5",)
    assert parse_references("math_calc", [1, 2]) == parse_references("math_calc", [[1, 2]]) == ("1", "2")
    assert parse_references("math_find", 2) == ("2",)
    for wrong in (None, {}, [], [[]], [None], True):
        assert parse_references("math_find", wrong) is None


def test_from_bundle_to_board_and_back(tmp_path: Path) -> None:
    """The command line, on a bundle that it makes and a model with scripted answers."""
    lbx, data = Lbx(), tmp_path / "data"
    (data / "hub").mkdir(parents=True)
    for task in TASKS:
        rows = [{**ROW, **ROWS[task], "id": number, "context": f"Text {number}."} for number in range(2)]
        (data / "hub" / f"{task}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, text in (("prompt.py", PROMPT_PY), ("eval_utils.py", RULES_PY)):
        (data / name).write_text(text)
    recipe = f'name = "r"\n[[source]]\nkind = "path"\npath = "data/hub"\nrepo = "{REPO}"\ntype = "dataset"\n'
    for path in (TEMPLATES, RULES):
        name = Path(path).name
        recipe += f'[[source]]\nkind = "path"\npath = "data/{name}"\nto = "{path}"\nallow = ["{name}"]\n'
    (tmp_path / "r.toml").write_text(recipe)
    bundle = lbx.unpacked(tmp_path / "r.toml", tmp_path)
    (tmp_path / "answers.jsonl").write_text(json.dumps({"*": "two"}))
    card = 'name = "m"\nbackend = "scripted"\ncontext_window = 100000\n[weights]\npath = "answers.jsonl"\n'
    (tmp_path / "m.toml").write_text(card)
    results = tmp_path / "r.duckdb"
    lbx.ok("run", "-b", bundle, "-m", tmp_path / "m.toml", "-t", "infinitebench", "-o", results)
    (line,) = json.loads(lbx.ok("report", results, "board_infinitebench", "--format", "json", "--no-interval").stdout)
    right = {"longbook_sum_eng", "longbook_qa_eng", "longbook_choice_eng"}
    assert {task: line[task] for task in TASKS} == {task: 100.0 * (task in right) for task in TASKS}
    assert line["average"] == 25.0
    for report in ("paper", "task_scores", "leaderboard", "guards"):
        assert "infinitebench" in lbx.ok("report", results, report).stdout.casefold()
    lbx.ok("export", "infinitebench", results, "-o", tmp_path / "out")
    files = sorted((tmp_path / "out/m").iterdir())
    assert [file.name for file in files] == sorted(f"preds_{task}.jsonl" for task in TASKS)
    other = tmp_path / "other.duckdb"
    lbx.ok("import", "infinitebench", tmp_path / "out/m", "--model-name", "m", "-o", other)
    (again,) = json.loads(lbx.ok("report", other, "board_infinitebench", "--format", "json", "--no-interval").stdout)
    assert {task: again[task] for task in TASKS} == {task: line[task] for task in TASKS}
    ids = "SELECT task, sample_id FROM samples ORDER BY ALL"
    assert lbx.rows(other, ids) == lbx.rows(results, ids)
    for file in files:
        rows = [json.loads(text) for text in file.read_text("utf-8").splitlines()]
        assert [row["id"] for row in rows] == [0, 1]
        truth = rows[0]["ground_truth"]
        assert truth == {"math_calc": [[1, 2]], "kv_retrieval": "9f"}.get(file.stem[6:], truth)
    lbx.ok("export", "infinitebench", other, "-o", tmp_path / "back")
    assert all((tmp_path / "back/m" / file.name).read_bytes() == file.read_bytes() for file in files)
