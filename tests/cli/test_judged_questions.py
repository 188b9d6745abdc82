"""--questions judged: the questions that judges and raters are asked about, as a choice of samples like --limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Lbx, fails
from tests.judge_parts import table
from tests.leval_scripts import CONFIG_PY, SCRIPT_PY

LEVAL = """
[[source]]
kind = "path"
path = "data"
repo = "L4NLP/LEval"
type = "dataset"
[[source]]
kind = "path"
path = "LEval"
to = "OpenLMLab/LEval"
licence = "MIT"
allow = ["LEval_config.py", "turbo16k-test.py"]
"""
OWN = """
name = "{name}"
{rubric}
[[task]]
name = "open"
data = "open.jsonl"
prompt = "{{document}} {{question}}"
metrics = ["rouge_l"]
max_new_tokens = 8
"""
RUBRIC = """
[rubric]
name = "stars"
kind = "score"
user = "{question} {answer}"
rating = "[[{rating}]]"
low = 1
high = 5
"""


def document(number: int, mark: str, questions: int = 2) -> dict[str, object]:
    """A line of L-Eval: questions on a document, with this mark."""
    pairs = [(f"Who lives in house {number}.{i}?", f"person {number}.{i}") for i in range(questions)]
    return {"instructions": [question for question, _ in pairs], "outputs": [answer for _, answer in pairs],
            "input": f"Some people live in house {number}.", "source": "made", "evaluation": mark}  # fmt: skip


FINANCIAL = [document(0, "f1"), document(1, "f1"), document(1, "LLM"), document(2, "f1"), document(2, "human", 1),
             document(3, "LLM", 1)]  # fmt: skip
"""The judged ones are 001-00, 001-01, 002-00, and 005-00, which has no score."""
JUDGED = ["001-00", "001-01", "003-00", "005-00"]


@pytest.fixture(scope="module")
def home(lbx: Lbx, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle "b" with L-Eval, two benchmarks of one's own (one with a rubric) and the needle; the model "m"."""
    folder = tmp_path_factory.mktemp("marked")
    data = {"financial_qa": FINANCIAL, "legal_contract_qa": [document(7, "f1")]}
    files = {f"data/LEval/Generation/{task}.jsonl": "\n".join(map(json.dumps, lines)) for task, lines in data.items()}
    files |= {
        "LEval/Baselines/LEval_config.py": CONFIG_PY.decode(),
        "LEval/Baselines/turbo16k-test.py": SCRIPT_PY.decode(),
    }
    files["leval.toml"] = f'name = "leval"\n{LEVAL}'
    for name, rubric in (("rated", RUBRIC), ("plain", "")):
        files[f"{name}/benchmark.toml"] = OWN.format(name=name, rubric=rubric)
        rows = [{"document": "A tale.", "question": f"{name} {n}?", "references": "It is."} for n in range(3)]
        files[f"{name}/open.jsonl"] = "\n".join(map(json.dumps, rows))
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    recipes = [folder / "leval.toml", *(folder / name / "benchmark.toml" for name in ("rated", "plain"))]
    lbx.ok("bundle", *recipes, "--bundle-name", "all", "-o", folder)
    lbx.ok("unpack", folder / "all.tar", "--allow-unsigned", "--to", folder / "b")
    table(folder, "m", {"*": "person 1.0"})
    return folder


@pytest.fixture
def run(lbx: Lbx, home: Path, tmp_path: Path) -> Any:
    def call(*options: object, command: str = "run", tasks: str = "leval") -> Any:
        out = ["-o", tmp_path / "results.duckdb", "--no-plan"] if command == "run" else []
        return lbx(command, "-b", home / "b", "-m", home / "m.toml", "-t", tasks, *out, "--json", *options)

    return call


def test_a_run_of_judged_questions_goes_on_to_all(lbx: Lbx, run: Any, tmp_path: Path) -> None:
    results = tmp_path / "results.duckdb"
    first = json.loads(run("--questions", "judged").stdout)
    query = "SELECT DISTINCT task || '/' || sample_id AS name FROM generations ORDER BY ALL"
    assert [row["name"] for row in lbx.rows(results, query)] == [f"financial_qa/{name}" for name in JUDGED]
    scores = "SELECT n, official, partial, coverage FROM task_scores WHERE headline"
    assert lbx.rows(results, scores) == [{"n": 3, "official": None, "partial": True, "coverage": "4 of 7"}]
    groups = lbx.rows(results, "SELECT DISTINCT official, partial FROM group_scores")
    assert groups == [{"official": None, "partial": True}]
    assert "4 of 7" in lbx("report", results).stdout
    spec = lbx.rows(results, "SELECT spec->>'questions' AS questions FROM sessions")
    assert spec == [{"questions": "judged"}]
    whole = json.loads(run().stdout)
    assert (whole["run_id"], whole["done_before"], whole["answered"]) == (first["run_id"], 4, 5)
    assert lbx.rows(results, f"{scores} AND task = 'financial_qa'")[0]["partial"] is False


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ([], JUDGED),
        (["--limit", 3], JUDGED[:3]),
        (["--documents", 1], JUDGED[:2]),
        (["--limit", 1, "--documents", 2], JUDGED[:1]),
        (["--sample", 4], JUDGED),
    ],
)
def test_the_other_choices_count_judged_questions(
    lbx: Lbx, run: Any, home: Path, options: list[object], ids: list[str]
) -> None:
    done = run("--questions", "judged", *options, command="plan", tasks="leval/financial_qa")
    assert json.loads(done.stdout)["total"]["samples"] == len(ids), done.stderr
    model, what = home / "m.toml", ["-b", home / "b", "-t", "leval/financial_qa", "--questions", "judged", *options]
    shown = [line[3:] for line in lbx("prompts", "-m", model, *what).stdout.splitlines() if line.startswith("== ")]
    assert shown == [f"leval/financial_qa/{name}" for name in (ids if options else ids[:1])]
    compared = lbx("parity", model, model, *what, "--json")
    assert json.loads(compared.stdout)["tasks"][0]["prompts"] == len(ids), compared.stderr


def test_a_rubric_of_ones_own_is_for_every_question(run: Any) -> None:
    done = run("--questions", "judged", command="plan", tasks="rated,leval")
    tasks = {row["task"]: row["samples"] for row in json.loads(done.stdout)["tasks"]}
    assert {name: count for name, count in tasks.items() if count} == {"rated/open": 3, "leval/financial_qa": 4}


@pytest.mark.parametrize(
    ("tasks", "options", "words"),
    [
        (
            "leval,plain,needle,rated",
            [],
            ["plain and needle have no questions for judges", "applies to leval, and", "[rubric]"],
        ),
        ("leval/legal_contract_qa", [], ["leval/legal_contract_qa has no questions for judges or raters"]),
        ("leval", ["--ids", JUDGED[0]], ["--ids and --questions exclude each other"]),
        ("leval", ["--questions", "hard"], ["--questions must be judged, not 'hard'"]),
    ],
)
def test_where_no_question_is_judged(
    run: Any, tmp_path: Path, tasks: str, options: list[object], words: list[str]
) -> None:
    fails(run("--questions", "judged", *options, tasks=tasks), 2, *words)
    assert not (tmp_path / "results.duckdb").exists()


def test_shards_of_judged_questions(lbx: Lbx, home: Path, tmp_path: Path) -> None:
    done = lbx("submit", "slurm", "--dry-run", "--shards", 2, "-o", tmp_path / "s", "-b", home / "b",
               "-m", home / "m.toml", "-t", "leval", "--questions", "judged", "--json")  # fmt: skip
    plan, spec = (json.loads(done.stdout)[name] for name in ("plan", "spec"))
    ids = [name for shard in plan["shards"] for places in shard["samples"].values() for _, name, _ in places]
    assert (sorted(ids), spec["questions"]) == (JUDGED, "judged")
