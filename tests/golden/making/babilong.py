"""BABILong: compare_answers on one answer each, and collect_results.py on a folder of CSV files."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.golden.making.make import Record, keep
from tests.golden.making.texts import bent, words

LENGTHS = ("0k", "4k", "1M")
WAY = "instruction_yes_examples_no_post_prompt_yes_chat_template_no"


def make(upstream: Path, work: Path, folder: Path) -> None:
    sys.path.insert(0, str(upstream / "booydar+babilong"))
    for name in ("matplotlib", "matplotlib.pyplot", "matplotlib.colors", "seaborn", "IPython", "IPython.display"):
        stub: Any = ModuleType(name)
        stub.rc = stub.display = stub.LinearSegmentedColormap = lambda *_, **__: None
        sys.modules.setdefault(name, stub)
    from babilong import collect_results, metrics  # type: ignore[import-not-found]

    records = [
        {**row, "score": float(metrics.compare_answers(row["target"], row["output"], row["question"], labels))}
        for task, labels in metrics.TASK_LABELS.items()
        for row in _rows(task, labels)
    ]
    for (task, length), rows in groupby(records, key=lambda row: (row["task"], row["length"])):
        columns = ("target", "output", "question")
        frame = collect_results.pd.DataFrame([{name: row[name] for name in columns} for row in rows])
        frame.to_csv(work / f"{task}_{length}_{WAY}.csv")
    found, tasks, lengths = collect_results.get_model_results(work)
    table = collect_results.get_results_table("m", found, tasks, lengths, to_display=False)
    numbers = {f"{task}_{length}": table.loc[task, length] for task in [*tasks, "avg"] for length in lengths}
    keep(folder, "babilong", records, babilong={name: float(number) for name, number in numbers.items()})


def _rows(task: str, labels: list[str]) -> Iterator[Record]:
    chance = random.Random(f"babilong {task}")
    for number, target in enumerate(chance.choices([*labels, *_lists(task, labels)], k=3)):
        wrong, asked = chance.choice(labels), chance.choice(["Where is it? ", f"Is it the {labels[0]}? "])
        said = dict(bent(chance, f"The answer is {target}", f"It was {wrong.upper()}", zh=False))
        said |= {
            "two labels": f"{target} and {wrong}", "next sentence": f"{target}. {wrong}", "all": " ".join(labels),
            "list": target.replace(",", ", "), "context": f"{target} <CONTEXT> {wrong}",
            "example": f"{target}\n<example>\n{wrong}",
            "question": f"{target}\nQuestion: {wrong}", "first sentence empty": f". {target}", "bare": target,
        }  # fmt: skip
        for kind, output in said.items():
            # A carriage return or a missing value is another text after pandas has written and read it.
            if "\r" not in output and "\x00" not in output and output.strip():
                yield {
                    "id": f"syn-{task}-{number}-{kind}", "task": task, "length": LENGTHS[number], "target": target,
                    "question": asked, "output": output[:400] + words(chance, 2, zh=False) * (kind == "long"),
                }  # fmt: skip


def _lists(task: str, labels: list[str]) -> list[str]:
    return [f"{labels[0]},{labels[2]}", f"{labels[1]},{labels[0]},{labels[2]}"] if task == "qa8" else []
