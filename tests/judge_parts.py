"""What tests of judges share: a small L-Eval with questions for the judge, published answers, and judges that say what
a table says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.command_line import Lbx
from tests.leval_scripts import CONFIG_PY, FOUNDING_PROMPT, FOUNDING_PY, JUDGE_PY, SCRIPT_PY

RECIPE = """
name = "judged"
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
allow = ["LEval_config.py", "turbo16k-test.py", "llm_eval.py"]
[[source]]
kind = "path"
path = "founding"
to = "OpenLMLab/LEval-cd1cfc3"
licence = "MIT"
allow = ["turbo16k_api_call.py"]
"""
MODELS = ("turbo-16k-0613", "claude-100k", "gpt4-32k", "llama2-13b-chat-4k")
RATING = """
name = "stars"
kind = "score"
user = "{question} {answer}"
rating = "[[{rating}]]"
low = 1
high = 5
"""
DOCUMENT = "A report says much. " * 20
TALE = "A tale is told. " * 20
ASKED = {
    "financial_qa": [(DOCUMENT, ("f1", "LLM", "human"), [("Who pays?", "Ann pays"), ("Who gets {it}?", "Bob")])],
    "multidoc_qa": [(TALE, ("f1", "LLM"), [(f"Question {n}?", f"answer {n}") for n in range(9)])],
    "gov_report_summ": [(TALE, ("rouge", "human"), [("Sum up.", "a tale")])],
}
ROWS = """
    SELECT g.sample_id, g.output, g.error, g.prompt_sha256, s.score, s.extracted, s.partial, to_json(d)::VARCHAR
    FROM generations g LEFT JOIN scores s USING (run_id, benchmark, task, sample_id, iteration)
    JOIN rounds d ON (d.rubric, d.round_id) = (g.task, g.sample_id)
    WHERE g.benchmark = 'judge' ORDER BY ALL
"""


def predictions(model: str, mark: str) -> str:
    """A file of published answers; the answer to a question's second copy is another one."""
    lines = [
        {
            "query": question,
            "gt": answer,
            "prompt": FOUNDING_PROMPT,
            f"{model}_pred": f"{model} says {answer} {mark}",
            "evaluation": mark,
        }
        for documents in ASKED.values()
        for _, marks, pairs in documents  # type: ignore[attr-defined]
        for question, answer in pairs
        if mark in marks
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def make_home(lbx: Lbx, folder: Path) -> Path:
    """A folder with the bundle "b" and "runs.duckdb" with the answers of the models x and y."""
    files = {"LEval/Baselines/LEval_config.py": CONFIG_PY, "LEval/Baselines/turbo16k-test.py": SCRIPT_PY}
    files |= {"LEval/Evaluation/llm_eval.py": JUDGE_PY, "founding/Tools/turbo16k_api_call.py": FOUNDING_PY}
    for task, documents in ASKED.items():
        lines = [
            {"instructions": [one for one, _ in pairs], "outputs": [one for _, one in pairs], "input": text,
             "source": task, "evaluation": mark}
            for text, marks, pairs in documents  # type: ignore[attr-defined]
            for mark in marks
        ]  # fmt: skip
        files[f"data/LEval/Generation/{task}.jsonl"] = "".join(json.dumps(line) + "\n" for line in lines).encode()
    for model in MODELS:
        for part, mark in (("llm_gpt4_eval", "LLM"), ("human_eval", "human")):
            for place in ("LEval", "founding"):
                files[f"{place}/Predictions/{part}/{model}.pred.jsonl"] = predictions(model, mark).encode()
    for place, content in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(content)
    (folder / "judged.toml").write_text(RECIPE)
    assert (done := lbx("bundle", folder / "judged.toml", "-o", folder)).returncode == 0, done.stderr
    assert lbx("unpack", folder / "judged.tar", "--allow-unsigned", "--to", folder / "b").returncode == 0
    for name, more in (("x", ()), ("y", ()), ("hintless", ("--no-length-hint",))):
        model = table(folder, name, {"*": f"{name} answers"})
        what = ["--bundle", folder / "b", "--model", model, "--tasks", "leval", "--name", name, *more]
        done = lbx("run", *what, "-o", folder / "runs.duckdb", "--no-plan")
        assert done.returncode == 0, done.stderr
    return folder


def table(folder: Path, name: str, answers: dict[str, Any] | list[dict[str, Any]]) -> Path:
    """The card of a model that says what a table says."""
    lines = answers if isinstance(answers, list) else [{"key": key, "text": text} for key, text in answers.items()]
    (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    card = f'name = "{name}"\nbackend = "scripted"\ncontext_window = 100000\n[weights]\npath = "{name}.jsonl"\n'
    (folder / f"{name}.toml").write_text(card)
    return folder / f"{name}.toml"
