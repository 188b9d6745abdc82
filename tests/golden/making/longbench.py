"""LongBench v1 and E: eval.py's metrics on one answer each, and eval.py itself on files of them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.golden.making.make import Record, keep, module, run, scored, unlimited, write_rows
from tests.golden.making.texts import bent, bent_code, code, words

ZH = ("multifieldqa_zh", "dureader", "vcsum", "lsht", "passage_retrieval_zh")
FIRST_LINE = ("trec", "triviaqa", "samsum", "lsht")
CLASSES = {
    "trec": ["Lantern", "Old lantern", "River mouth", "River", "Number of windows", "Windows", "Harvest", "Signal"],
    "lsht": ["山谷", "山谷信号", "河流", "桥梁", "桥梁氧气", "图书馆", "温度", "城市"],
}


def make(upstream: Path, work: Path, folder: Path) -> None:
    place = upstream / "THUDM+LongBench" / "LongBench"
    metrics = module(place, "eval").dataset2metric
    records = [record for task in metrics for record in _records(task, metrics[task])]
    aggregates = {name: _aggregate(place, work, records, name) for name in ("longbench", "longbench_e")}
    keep(folder, "longbench", records, **aggregates)


def _records(task: str, metric: Any) -> list[Record]:
    chance, found = random.Random(f"longbench {task}"), []
    for references, kind, prediction in _answers(task, chance):
        classes = CLASSES.get(task)

        def score(
            prediction: str = prediction, references: list[str] = references, classes: list[str] | None = classes
        ) -> float:
            said = prediction.lstrip("\n").split("\n")[0] if task in FIRST_LINE else prediction
            return max([0.0, *(metric(said, reference, all_classes=classes) for reference in references)])

        number, error = scored(score)
        rouge = "rouge" in metric.__name__
        found.append(
            {
                "id": f"syn-{task}-{len(found):04d}", "dataset": task, "kind": kind, "prediction": prediction,
                "answers": references, "all_classes": classes, "length": chance.randrange(12000), "score": number,
                "error": error, "score_unlimited_recursion": unlimited(score) if rouge else None,
            }
        )  # fmt: skip
    return found


def _answers(task: str, chance: random.Random) -> Any:
    """(references, kind, prediction)."""
    zh = task in ZH
    for _ in range(2):
        if task in ("lcc", "repobench-p"):
            line = code(chance)
            yield from (([line], kind, said) for kind, said in bent_code(chance, line))
            long = " ".join(code(chance) for _ in range(7))  # difflib's autojunk begins at 200 characters
            yield from (([long], f"long {kind}", said) for kind, said in bent_code(chance, long))
            continue
        references, other = _references(task, chance, zh), words(chance, 9, zh)
        for number, reference in enumerate(references):
            for kind, said in bent(chance, reference, other, zh):
                yield references[: number + 1], kind, said
        for number in chance.sample(range(1, 40), 6):
            yield references, "number", f"{'段落' if zh else 'Paragraph '}{number}, {number}"
        for name in CLASSES.get(task, ()):
            yield references, "class", f"{name} {chance.choice(CLASSES[task])}"


def _references(task: str, chance: random.Random, zh: bool) -> list[str]:
    if task in CLASSES:
        return [chance.choice(CLASSES[task])]
    if task.startswith("passage_retrieval"):
        return [f"{'段落' if zh else 'Paragraph '}{chance.randrange(1, 31)}"]
    if task == "passage_count":
        return [str(chance.randrange(1, 31))]
    return [words(chance, count, zh) for count in (40, 25) if task in ("dureader", "vcsum", "gov_report", "qmsum",
            "multi_news", "samsum")] or [words(chance, count, zh) for count in (5, 2)]  # fmt: skip


def _aggregate(place: Path, work: Path, records: list[Record], name: str) -> Record:
    """eval.py on all records that it does not stop on, and on random parts of them; --e for LongBench-E."""
    chance, switch = random.Random(name), ["--e"] if name.endswith("_e") else []
    kinds: dict[str, list[Record]] = {}
    for record in records:
        if not record["error"]:
            kinds.setdefault(record["dataset"], []).append(record)
    whole = _evaluate(place, work / name, kinds, switch)
    subsets = []
    for round_ in range(6):
        parts = {task: chance.sample(rows, chance.randrange(2, len(rows))) for task, rows in kinds.items()}
        numbers = _evaluate(place, work / f"{name}{round_}", parts, switch)
        subsets += [
            {"dataset": task, "record_ids": [row["id"] for row in rows], "result": numbers[task]}
            for task, rows in parts.items()
        ]
    ids = {task: [row["id"] for row in rows] for task, rows in kinds.items()}
    return {"result": whole, "record_ids": ids, "subsets": subsets, "rounding_subsets": [],
            "mixed_classes": {"result": {}, "record_ids": {}, "all_classes_taken_from": {}}}  # fmt: skip


def _evaluate(place: Path, work: Path, kinds: dict[str, list[Record]], switch: list[str]) -> Record:
    folder = work / ("pred_e" if switch else "pred") / "model"
    for task, rows in kinds.items():
        names = ("answers", "all_classes", "length")
        write_rows(folder / f"{task}.jsonl", [{"pred": r["prediction"]} | {n: r[n] for n in names} for r in rows])
    run(place / "eval.py", "--model", "model", *switch, cwd=work)
    # An empty bucket is NaN there.
    return dict(json.loads((folder / "result.json").read_text(), parse_constant=lambda _: None))
