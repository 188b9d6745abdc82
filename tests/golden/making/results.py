"""What the scorers write, to the byte: result files beside the prediction files that they were made of.

python results.py UPSTREAM RECORDS        as make.py, whose records of single answers these files are made of
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.golden.making import official
from tests.golden.making.make import Record, module, run

ROWS = 6
PAPER = (
    "narrativeqa", "qasper", "multifieldqa_en", "multifieldqa_zh", "hotpotqa", "2wikimqa", "musique", "dureader",
    "gov_report", "qmsum", "multi_news", "vcsum", "trec", "triviaqa", "samsum", "lsht", "passage_count",
    "passage_retrieval_en", "passage_retrieval_zh", "lcc", "repobench-p",
)  # fmt: skip
"""In the order of its tables: eval.py itself goes by the folder's."""
NOT_IN_E = ("narrativeqa", "musique", "dureader", "vcsum", "lsht", "qmsum")
SIMILARITY = 0.25
"""Of every two texts, in place of Pro's embedding model."""
KEPT_OUT = "date"
_DEEP = "score_unlimited_recursion"


def main() -> None:
    official.stand_in()
    upstream, folder = (Path(argument).resolve() for argument in sys.argv[1:3])
    found = {}
    for name, make in {"longbench": _v1, "longbench_e": _e, "longbench_v2": _v2, "longbench_pro": _pro,
                       "lveval": _lveval}.items():  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="golden-") as work:
            records = _records(folder, "longbench" if name == "longbench_e" else name)
            found[name] = make(upstream, Path(work), records)
    text = json.dumps(found, ensure_ascii=False)
    (folder / "result_files.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _records(folder: Path, name: str) -> list[Record]:
    """Those that no script stops on, whose score does not hang on how deep the stack is."""
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return [one for one in records if not one.get("error") and one.get(_DEEP) in (None, one.get("score"))]


def _some(records: Iterable[Record], *keys: str) -> dict[str, list[Record]]:
    """A few answers of each kind, not the first ones alone."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault("_".join(str(record[key]) for key in keys), []).append(record)
    return {name: rows[:: max(1, len(rows) // ROWS)][:ROWS] for name, rows in found.items()}


def _write(work: Path, files: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    lines = {place: [json.dumps(row, ensure_ascii=False) + "\n" for row in rows] for place, rows in files.items()}
    texts = {place: "".join(some) for place, some in lines.items()}
    for place, text in texts.items():
        (work / place).parent.mkdir(parents=True, exist_ok=True)
        (work / place).write_text(text, "utf-8")
    return texts


def _kept(work: Path, files: dict[str, str], *places: str) -> Record:
    return {"predictions": files, "results": {place: (work / place).read_text("utf-8") for place in places}}


def _evaluated(upstream: Path, work: Path, folder: str, rows: dict[str, list[Record]], *switch: str) -> Record:
    keys = {"pred": "prediction", "answers": "answers", "all_classes": "all_classes", "length": "length"}
    made = {task: [{key: row[old] for key, old in keys.items()} for row in some] for task, some in rows.items()}
    files = _write(work, {f"{folder}/m/{task}.jsonl": some for task, some in made.items()})
    os.environ["LISTED"] = " ".join(f"{task}.jsonl" for task in PAPER)
    run(upstream / "THUDM+LongBench/LongBench/eval.py", "--model", "m", *switch, cwd=work)
    return _kept(work, files, f"{folder}/m/result.json")


def _v1(upstream: Path, work: Path, records: list[Record]) -> Record:
    return _evaluated(upstream, work, "pred", _some(records, "dataset"))


def _e(upstream: Path, work: Path, records: list[Record]) -> Record:
    """One task has no answer in a bucket, of which numpy's mean is no number."""
    rows = _some((one for one in records if not one["dataset"].endswith("zh")), "dataset")
    rows = {task: some for task, some in rows.items() if task not in NOT_IN_E}
    rows["qasper"] = [row for row in rows["qasper"] if row["length"] < 8000]
    return _evaluated(upstream, work, "pred_e", rows, "--e")


def _v2(upstream: Path, work: Path, records: list[Record]) -> Record:
    keys = {"_id": "id", "difficulty": "difficulty", "length": "length", "answer": "answer", "response": "response",
            "pred": "pred", "judge": "judge"}  # fmt: skip
    rows = [{key: row[old] for key, old in keys.items()} for row in records if not row["dropped"]]
    files = _write(work, {"results/one.jsonl": rows, "results/an.other.jsonl": rows[::3]})
    os.environ["LISTED"] = "one.jsonl an.other.jsonl"
    run(upstream / "THUDM+LongBench/result.py", cwd=work)
    return _kept(work, files, "result.txt")


def _lveval(upstream: Path, work: Path, records: list[Record]) -> Record:
    """One dataset lacks a level, another has one alone."""
    rows = _some(records, "dataset", "length")
    del rows["cmrc_mixup_32k"]
    rows = {task: some for task, some in rows.items() if "factrecall_zh" not in task or task.endswith("256k")}
    keys = {"pred": "prediction", "answers": "answers", "gold_ans": "answer_keywords"}
    made = {task: [{key: row[old] for key, old in keys.items()} for row in some] for task, some in rows.items()}
    files = _write(work, {f"{task}.jsonl": some for task, some in made.items()})
    run(upstream / "infinigence+LVEval/evaluation.py", "--input-dir", work, cwd=work)
    return _kept(work, files, "eval_result/result.json", "eval_result/result.csv")


def _pro(upstream: Path, work: Path, records: list[Record]) -> Record:
    """In an order that is not the data's, as several processes write it; one answer is missing."""
    official.Similar.value = SIMILARITY
    keys = ("id", "language", "token_length", "primary_task", "secondary_task", "contextual_requirement", "difficulty",
            "answer", "bon_idx", "prediction")  # fmt: skip
    rows = [{key: row[key] for key in keys} | {"thinking": None} for row in records]
    rows = [row for place in range(7) for row in rows[place::7]][1:]
    stem = "nonthinking_context-120000_bon-3_"
    files = _write(work, {f"{stem}inference_1-of-1.jsonl": rows})
    evaluation = module(upstream / "caskcsg+longcontext/LongBench-Pro", "modules.evaluation")
    evaluator = evaluation.Evaluator(len(rows))
    inferred, evaluated, summary = (str(work / f"{stem}{end}") for end in
                                    ("inference_1-of-1.jsonl", "evaluation.jsonl", "summary.json"))  # fmt: skip
    failed = evaluator.evaluate([inferred], evaluated)
    evaluator.metric_summary(evaluated, failed, summary, 3)
    lines = Path(summary).read_text("utf-8").splitlines(keepends=True)
    Path(summary).write_text("".join(line for line in lines if f'"{KEPT_OUT}"' not in line), "utf-8")
    return _kept(work, files, f"{stem}evaluation.jsonl", f"{stem}summary.json")


if __name__ == "__main__":
    main()
