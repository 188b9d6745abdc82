"""The world that commands are given in any order in: one bundle of eleven questions, models whose answers say whose
they are, a judge, and the questions' names as the bundle has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lbx.base.bundle_folder import Bundle
from lbx.base.records import SampleKey
from lbx.benchmarks.registry import BENCHMARKS
from tests.command_line import Lbx
from tests.leval_scripts import CONFIG_PY, FOUNDING_PY, JUDGE_PY, SCRIPT_PY

RECIPE = """
name = "small"
[[source]]
kind = "path"
path = "tales"
to = "benchmarks/tales"
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
TALES = r"""
name = "tales"
description = "Questions on two tales"
licence = "CC0-1.0"
max_new_tokens = 64
[[task]]
name = "facts"
data = "facts.jsonl"
prompt = "{document}\n\nQuestion: {question}\nAnswer:"
metrics = ["f1", "exact_match"]
[[task]]
name = "numbers"
data = "numbers.jsonl"
prompt = "{document}\n\nHow many {question}?"
metrics = ["contains"]
"""
NUMBERS = ("alpha", "beta", "gamma")
DOCUMENTS = ("A ship sails to the north. " * 8, "A town lies by the sea. " * 8)
"""Each is asked about in both tasks of the tales."""
RUBRIC = """
name = "better"
kind = "pair"
user = "{question}\\nFirst: {a}\\nSecond: {b}"
verdicts = [["FIRST", "first"], ["SECOND", "second"], ["SAME", "tie"]]
max_new_tokens = 64
"""
REPORT = "The company sold ships. " * 8

Key = tuple[str, str, str, int]
"""(benchmark, task, sample id, iteration)."""


@dataclass(frozen=True)
class World:
    """Where it lies, and what it asks.

    Attributes:
        questions: {benchmark/task: {sample id: its first reference}}, in the data's order.
    """

    folder: Path
    questions: Mapping[str, Mapping[str, str]]

    @property
    def bundle(self) -> Path:
        return self.folder / "small"

    @property
    def rubric(self) -> Path:
        return self.folder / "better.toml"

    def keys(self, tasks: str, limit: int | None = None, iterations: int = 1) -> list[Key]:
        """What a run of these tasks asks, as ``--tasks`` names them."""
        return [
            (benchmark, task, name, iteration)
            for full, names in self.questions.items()
            for benchmark, _, task in [full.partition("/")]
            if {benchmark, full} & {*tasks.split(",")}
            for name in [*names][:limit]
            for iteration in range(iterations)
        ]

    def answer(self, weights: int, key: Key) -> str:
        """What the model of these weights says: right to one question in two, and always whose words these are."""
        benchmark, task, name, iteration = key
        place = [*self.questions[f"{benchmark}/{task}"]].index(name)
        said = self.questions[f"{benchmark}/{task}"][name] if self.is_right(weights, place, iteration) else "nothing"
        return f"{said} says m{weights} of {task} {name} {iteration}"

    @staticmethod
    def is_right(weights: int, place: int, iteration: int) -> bool:
        return (weights + place + iteration) % 2 == 0

    def write_model(self, path: Path, weights: int) -> None:
        """The model's weights; others have the same name and size."""
        keys = self.keys(",".join(self.questions), iterations=2)
        lines = [{"key": str(SampleKey(*key)), "text": self.answer(weights, key)} for key in keys]
        table = _lines(lines).ljust(_TABLE)
        assert len(table) == _TABLE
        path.write_text(f"{_PADDING}{table}{_PADDING}")


_TABLE = 5_000
_PADDING = (" " * 1023 + "\n") * 1100
"""White space that makes a table of answers longer than what is read of its beginning and its end."""


def open_world(folder: Path) -> World:
    """The world that ``make_world`` left."""
    bundle = Bundle(folder / "small")
    questions: dict[str, dict[str, str]] = {}
    for family in (BENCHMARKS["tales"], BENCHMARKS["leval"]):
        for task in family.tasks(bundle):
            questions[task.full_name] = {
                sample.sample_id: str(sample.references[0]) for sample in family.samples(bundle, task.name)
            }
    return World(folder, questions)


def make_world(folder: Path) -> None:
    """The bundle and the rubric, made by lbx."""
    lbx = Lbx()
    facts = [
        {"id": f"f{n}", "document": DOCUMENTS[n % 2], "question": f"Who is number {n}?", "references": [f"sailor {n}"]}
        for n in range(4)
    ]
    numbers = [
        {"id": f"n{n}", "document": DOCUMENTS[n % 2], "question": f"things of kind {n}", "references": [NUMBERS[n]]}
        for n in range(3)
    ]
    files = {
        "small.toml": RECIPE,
        "better.toml": RUBRIC,
        "tales/benchmark.toml": TALES,
        "tales/facts.jsonl": _lines(facts),
        "tales/numbers.jsonl": _lines(numbers),
        "LEval/Baselines/LEval_config.py": CONFIG_PY.decode(),
        "LEval/Baselines/turbo16k-test.py": SCRIPT_PY.decode(),
        "LEval/Evaluation/llm_eval.py": JUDGE_PY.decode(),
        "founding/Tools/turbo16k_api_call.py": FOUNDING_PY.decode(),
    }
    for task, text, copies, pairs in (
        ("financial_qa", REPORT, ("f1", "LLM"), [("Who pays?", "Ann pays"), ("Who gets it?", "Bob")]),
        ("scientific_qa", DOCUMENTS[0], ("LLM",), [("What is it about?", "a ship")]),
        ("multidoc_qa", DOCUMENTS[1], ("f1",), [("Where is it?", "by the sea")]),
    ):
        rows = [
            {"instructions": [one for one, _ in pairs], "outputs": [one for _, one in pairs], "input": text,
             "source": task, "evaluation": copy}
            for copy in copies
        ]  # fmt: skip
        files[f"data/LEval/Generation/{task}.jsonl"] = _lines(rows)
    for place, text in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    for command in (
        ("bundle", folder / "small.toml", "-o", folder),
        ("unpack", folder / "small.tar", "--allow-unsigned", "--to", folder / "small"),
    ):
        done = lbx(*command)
        assert done.returncode == 0, done.stderr


def _lines(rows: list[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)
