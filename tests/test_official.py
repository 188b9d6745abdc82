"""The comparison with the authors' scripts: it sees what a script sends, and no difference passes unexplained."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lbx.base.bundle_folder import BUNDLE_JSON, FILES, HUB, TAG_MANIFEST, repo_folder
from lbx.benchmarks.longbench.benchmark import NEW_TOKENS, PROMPTS, REPO
from tests.golden.helmet_draws import SOURCE
from tests.official.calls import ANSWER, Call, Script, ScriptError, record
from tests.official.differences import MEANT
from tests.official.helmet import LIBRARIES
from tests.official.samples import COMMIT, REPOSITORY

pytestmark = pytest.mark.long("of a comparison beside lbx, which starts scripts in processes of their own")

TOKENIZER = REPOSITORY / "models" / "demo" / "hf"
TEMPLATES = {"qasper": "Read {context} and say: {input}", "samsum": "Go on.\n{context}\n{input}"}
BUDGETS = {"qasper": 11, "samsum": 12}
SCRIPT = """
import argparse, json, time
import torch
from datasets import load_dataset
from openai import OpenAI
from transformers import AutoModelForCausalLM, AutoTokenizer

def build_chat(tokenizer, prompt, model_name):
    return f"{model_name} hears: {prompt} -"

def ask(model, tokenizer, task, text, budget):
    given = tokenizer(text, return_tensors="pt").to(torch.device("cuda:0"))
    length = given.input_ids.shape[-1]
    more = {}
    if task == "samsum":
        ends = [tokenizer.eos_token_id, tokenizer.encode("\\n", add_special_tokens=False)[-1]]
        more = {"eos_token_id": ends, "min_length": length + 1}
    return tokenizer.decode(model.generate(**given, max_new_tokens=budget, do_sample=False, **more)[0][length:])

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    model_name = parser.parse_args().model
    limit = json.load(open("config/limits.json"))[model_name]
    settings = json.load(open("config/prompts.json"))
    tokenizer = AutoTokenizer.from_pretrained("nobody/nothing")
    model = AutoModelForCausalLM.from_pretrained("nobody/nothing").to(torch.device("cuda:0"))
    time.sleep(10_000)
    input("Shall we?")
    for task, (template, budget) in settings.items():
        for row in load_dataset("THUDM/LongBench", task, split="test"):
            prompt = template.format(**row)
            ids = tokenizer(prompt, return_tensors="pt").input_ids[0]
            if len(ids) > limit:
                half = limit // 2
                ends = ids[:half], ids[-half:]
                prompt = "".join(tokenizer.decode(end, skip_special_tokens=True) for end in ends)
            if task != "samsum":
                prompt = build_chat(tokenizer, prompt, model_name)
            said = ask(model, tokenizer, task, prompt, budget)
            assert said == "ANSWER", said
""".replace("ANSWER", ANSWER)
ROWS: dict[str, list[dict[str, Any]]] = {
    task: [
        {"input": question, "context": document, "answers": ["x"], "length": 5, "all_classes": None, "_id": f"made-{n}"}
        for n, (document, question) in enumerate(
            (
                ("A {short} one.", "What?"),
                ("It spells <s> and </s> out.", "Which?"),
                ("words and numbers 1 2 3 " * 1_500, "How many?"),
                ("It says </s> again and again. " * 1_500, "How often?"),
            )
        )
    ]
    for task in TEMPLATES
}


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")


@pytest.fixture
def checkout(tmp_path: Path) -> Callable[..., Path]:
    """checkout(changed templates) -> a folder with a script that asks what a bundle beside it has lbx ask."""
    pytest.importorskip("transformers", reason="needs lbx[hf]")

    def make(**changed: str) -> Path:
        folder = tmp_path / "LongBench" / "LongBench"
        write(folder / "pred.py", SCRIPT)
        write(folder / "config" / "limits.json", {"llama2-7b-chat-4k": 3_500})
        asked = {task: (changed.get(task, text), BUDGETS[task]) for task, text in TEMPLATES.items()}
        write(folder / "config" / "prompts.json", asked)
        bundle = tmp_path / "bundle"
        write(bundle / FILES / PROMPTS, TEMPLATES)
        write(bundle / FILES / NEW_TOKENS, BUDGETS)
        repo = bundle / HUB / repo_folder("dataset", REPO)
        write(repo / "refs" / "main", COMMIT)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for task, rows in ROWS.items():
                archive.writestr(f"data/{task}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        (repo / "snapshots" / COMMIT).mkdir(parents=True, exist_ok=True)
        (repo / "snapshots" / COMMIT / "data.zip").write_bytes(buffer.getvalue())
        write(bundle / BUNDLE_JSON, "{}")
        write(bundle / TAG_MANIFEST, "")
        return tmp_path

    return make


def official(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.official", str(folder), *more]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def test_a_script_is_recorded_as_it_calls_its_model(checkout: Callable[..., Path]) -> None:
    folder = checkout() / "LongBench" / "LongBench"
    name = "llama2-7b-chat-4k"
    script = Script(
        folder / "pred.py", ["--model", name], ROWS, (folder / "config",), wrapper=(str(folder / "pred.py"), name)
    )
    recorded = record(script, TOKENIZER)
    assert recorded.loaded == list(TEMPLATES)
    assert recorded.wrapper == (f"{name} hears: ", " -")
    first, *_ = recorded.calls
    assert first.text == f"{name} hears: Read A {{short}} one. and say: What? -"
    assert (first.ids or ())[0] == 0  # BOS
    assert (first.max_new_tokens, first.temperature, first.ends, first.min_new_tokens) == (11, 0.0, (), 0)
    few_shot: Call = recorded.calls[len(ROWS["qasper"])]
    assert few_shot.text == "Go on.\nA {short} one.\nWhat?"
    assert len(few_shot.ends) == few_shot.min_new_tokens == 1
    assert not list(folder.rglob("__pycache__")), "the checkout stays as it is"


def test_a_script_that_stops_is_an_error_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    write(tmp_path / "stops.py", "raise KeyError('retrieved_context')")
    with pytest.raises(ScriptError, match=r"stops\.py stopped: KeyError: 'retrieved_context'"):
        record(Script(tmp_path / "stops.py", [], {}), TOKENIZER)


def test_what_is_equal_or_meant_passes(checkout: Callable[..., Path]) -> None:
    folder = checkout()
    done = official(folder, "--bundle", str(folder / "bundle"), "--only", "longbench pred.py llama2")
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = [line.split() for line in done.stdout.splitlines() if "pred.py" in line]
    assert row == ["longbench", "pred.py", "llama2-7b-chat-4k", "8", "4", "4", "0"]
    assert "meant, 4 times: a document cannot speak in control tokens" in done.stdout


def test_no_other_difference_passes_with_what_is_meant(checkout: Callable[..., Path]) -> None:
    """One word more in a template: each of its prompts differs, also those that differ by what is meant."""
    folder = checkout(qasper="Read {context} and now say: {input}")
    done = official(folder, "--bundle", str(folder / "bundle"), "--only", "longbench pred.py llama2")
    assert done.returncode == 1, done.stdout + done.stderr
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("longbench  pred.py")]
    assert row[3:] == ["8", "2", "2", "4"]
    assert "longbench pred.py llama2-7b-chat-4k: qasper: 4 differ in ids" in done.stdout
    assert "longbench/qasper/made-0: ids from" in done.stdout
    assert "and now say" in done.stdout


def test_what_cannot_be_compared_is_said_in_a_sentence(tmp_path: Path) -> None:
    done = official(tmp_path / "nowhere")
    assert done.returncode == 2
    assert "There is no folder" in done.stderr
    empty = official(tmp_path)
    assert empty.returncode == 2
    assert "LongBench, LEval, LVEval, longcontext, babilong, InfiniteBench or HELMET" in empty.stderr


def test_helmets_own_program(tmp_path: Path) -> None:
    """Prompts and scores of its eval.py, or the command that installs what it needs."""
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    if not SOURCE.is_file():
        pytest.skip("needs the authors' sources in ../shared")
    (tmp_path / "HELMET").symlink_to(SOURCE.parent)
    done = official(tmp_path, "--only", "Re-rank")
    if not LIBRARIES.is_dir():
        assert done.returncode == 2
        assert "HELMET is left out: its scripts need the libraries of .ci/official-tools.sh" in done.stderr
        return
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("helmet")]
    assert row[-4] == row[-3] != "0", "12 prompts, 12 scores, their mean"


def test_every_reason_says_why() -> None:
    assert len({meant.reason for meant in MEANT}) == len(MEANT)
    for meant in MEANT:
        assert set(meant.fields) <= set(Call.__dataclass_fields__)


def test_the_authors_own_scripts() -> None:
    """On a checkout that LBX_OFFICIAL names: every family, few rows."""
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    folder = os.environ.get("LBX_OFFICIAL")
    if not folder:
        pytest.skip("needs the authors' checkouts: LBX_OFFICIAL=FOLDER")
    ways = ("turbo16k-test.py exam_eval 4k", "main.py thinking 128k", "pred.py --cot", "lveval prediction.py llama2")
    done = official(Path(folder), "--rows", "1", "--only", *ways, "longbench pred.py llama2")
    assert done.returncode == 0, done.stdout + done.stderr
