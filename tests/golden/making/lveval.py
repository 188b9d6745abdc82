"""LV-Eval: its metrics on one answer each, and evaluation.py itself on a file for each task and length."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.golden.making.make import Record, keep, module, run, scored, unlimited, write_rows
from tests.golden.making.texts import bent, words

LENGTHS = ("16k", "32k", "64k", "128k", "256k")
ZH = ("multifieldqa_zh_mixup", "factrecall_zh", "cmrc_mixup", "lic_mixup", "dureader_mixup")
KEYWORDS = ("absent", "empty", "part", "whole", "abandoned", "other", "punctuation")
ABANDONED = {False: "and of was because which", True: "的 和 是 等 在"}


def make(upstream: Path, work: Path, folder: Path) -> None:
    place = upstream / "infinigence+LVEval"
    metrics = module(place, "config").DATASET_METRIC
    records = []
    for task, metric in metrics.items():
        chance, zh, count = random.Random(f"lveval {task}"), task in ZH, 0
        for _ in range(3):
            references = [words(chance, length, zh) for length in (12, 4)]
            for kind, prediction in bent(chance, references[0], words(chance, 9, zh), zh):
                keyword = KEYWORDS[count % len(KEYWORDS)]
                gold = _keywords(keyword, references[0], chance, zh)

                def score(
                    prediction: str = prediction, reference: str = references[0], gold: str | None = gold,
                    metric: object = metric,
                ) -> float:  # fmt: skip
                    return max(0.0, metric(prediction, reference, gold))  # type: ignore[operator]

                number, error = scored(score)
                rouge = "rouge" in metric.__name__
                records.append(
                    {
                        "id": f"syn-{task}-{count:04d}", "dataset": task, "kind": f"{kind}/{keyword}",
                        "prediction": prediction, "answers": references, "answer_keywords": gold,
                        "length": LENGTHS[count % len(LENGTHS)], "score": number, "error": error,
                        "score_unlimited_recursion": unlimited(score) if rouge else None,
                    }
                )  # fmt: skip
                count += 1
    keep(folder, "lveval", records, lveval=_aggregate(place, work, records))


def _keywords(kind: str, reference: str, chance: random.Random, zh: bool) -> str | None:
    parts = list(reference) if zh else reference.split()
    return {
        "absent": None,
        "empty": "",
        "part": ("" if zh else " ").join(parts[1:4]),
        "whole": reference,
        "abandoned": ABANDONED[zh],
        "other": words(chance, 3, zh),
        "punctuation": "... !",
    }[kind]


def _aggregate(place: Path, work: Path, records: list[Record]) -> Record:
    files: dict[str, list[Record]] = {}
    for record in records:
        if not record["error"]:
            files.setdefault(f"{record['dataset']}_{record['length']}", []).append(record)
    for name, rows in files.items():
        write_rows(
            work / f"{name}.jsonl",
            [
                {"pred": row["prediction"], "answers": row["answers"]}
                | ({} if row["answer_keywords"] is None else {"gold_ans": row["answer_keywords"]})
                for row in rows
            ],
        )
    run(place / "evaluation.py", "--input-dir", work, cwd=work)
    return {
        "result": json.loads((work / "eval_result/result.json").read_text()),
        "result_csv": (work / "eval_result/result.csv").read_text(),
        "record_ids": {name: [row["id"] for row in rows] for name, rows in files.items()},
    }
