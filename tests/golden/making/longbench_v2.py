"""LongBench v2: pred.py's choice of a letter, and result.py's tables."""

from __future__ import annotations

import ast
import random
import re
from pathlib import Path
from typing import Any

from tests.golden.making.make import Record, keep, run, write_rows
from tests.golden.making.texts import words

SAYINGS = (
    "The correct answer is ({a})", "The correct answer is {a}", "The correct answer is **({a})**", "**{a}**", "{a}", "",
    "The correct answer is ({a}) and not ({b})", "The correct answer is {b}. No: the correct answer is ({a})", " \n ",
    "The correct answer is {b}. The correct answer is ({a})", "the correct answer is ({a})", "Answer: {a}",
    "The correct answer is: ({a})", "The correct answer is\n({a})", "The *correct* answer is *({a})*",
    "The correct answer is （{a}）", "The correct answer is ({a}", "The correct answer is Always", "{t}",
    "The correct answer is (E)", "The correct answer is E", "The correct answer is ( {a} )", "正确答案是{a}",
    "{t}\n\nThe correct answer is ({a}).\n\n{t}", "The correct answer is ({b}{a})", "The correct  answer is ({a})",
    "The correct answer is ({a})\x00", "THE CORRECT ANSWER IS ({a})", "1. The correct answer is {b}\n2. ({a})", "***",
)  # fmt: skip


def make(upstream: Path, work: Path, folder: Path) -> None:
    place = upstream / "THUDM+LongBench"
    extract, chance, records = _function(place / "pred.py", "extract_answer"), random.Random("longbench_v2"), []
    for saying in SAYINGS * 6:
        answer, other = chance.sample("ABCD", 2)
        said = answer if chance.random() < 0.6 else other
        text = saying.format(a=said, b=other if said == answer else answer, t=words(chance, 12, False))
        pred = extract(text.strip())
        records.append(
            {
                "id": f"syn-v2-{len(records):04d}", "kind": saying, "output": text, "response": text.strip(),
                "answer": answer, "pred": pred, "judge": pred == answer, "dropped": text == "",
                "difficulty": chance.choice(("easy", "hard")), "length": chance.choice(("short", "medium", "long")),
                "error": None,
            }
        )  # fmt: skip
    keep(folder, "longbench_v2", records, longbench_v2={"tables": _tables(place, work, records, chance)})


def _function(path: Path, name: str) -> Any:
    """A function of a script that would begin to work if it were imported."""
    tree = ast.parse(path.read_text("utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    names: dict[str, Any] = {"re": re}
    exec(compile(ast.Module([found], []), str(path), "exec"), names)
    return names[name]


def _tables(place: Path, work: Path, records: list[Record], chance: random.Random) -> list[Record]:
    kept, tables = [record for record in records if not record["dropped"]], []
    script = (place / "result.py").read_text("utf-8")
    for compensated in (False, True):
        folder = work / str(compensated)
        parts = {"all": kept} | {f"part {n}": chance.sample(kept, chance.randrange(30, len(kept))) for n in range(12)}
        for name, rows in parts.items():
            write_rows(folder / "results" / f"{name}.jsonl", rows)
        (folder / "result.py").write_text(script.replace("compensated = False", f"compensated = {compensated}"))
        run(folder / "result.py", cwd=folder)
        columns, *lines = (line.split("\t") for line in (folder / "result.txt").read_text("utf-8").splitlines())
        for name, *cells in lines:
            row = dict(zip(columns[1:], map(float, cells), strict=True))
            tables.append({"name": name, "compensated": compensated, "error": None, "row": row,
                           "record_ids": [one["id"] for one in parts[name]]})  # fmt: skip
    return tables
