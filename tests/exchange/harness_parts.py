"""LongBench answers in the form of other harnesses' files, from rows of the official script's predictions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
TIME = "2026-11-26T16-57-46.326912"
OPENCOMPASS_TIME = "20260819_101112"
METRICS = {
    "qa_f1_score": ("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique", "triviaqa"),
    "qa_f1_zh_score": ("multifieldqa_zh",),
    "rouge_score": ("gov_report", "qmsum", "multi_news", "samsum"),
    "rouge_zh_score": ("dureader", "vcsum"),
    "classification_score": ("trec", "lsht"),
    "count_score": ("passage_count",),
    "retrieval_score": ("passage_retrieval_en",),
    "retrieval_zh_score": ("passage_retrieval_zh",),
    "code_sim_score": ("lcc", "repobench-p"),
}
METRIC = {task: metric for metric, tasks in METRICS.items() for task in tasks}


def lm_eval_row(task: str, number: int, row: Row, **changes: Any) -> dict[str, Any]:
    """A row of lm_eval's samples file: its own score is 0.5."""
    metric = METRIC[task.removesuffix("_e")]
    document = {
        "context": f"document {number}", "question": row.get("input", ""), "answers": row["answers"],
        "all_classes": row.get("all_classes"), "length": row.get("length", 100),
        **({"_id": row["_id"]} if "_id" in row else {}),
    }  # fmt: skip
    return {
        "doc_id": number, "doc": document, "target": str(row["answers"]),
        "arguments": {"gen_args_0": {"arg_0": f"A prompt on document {number}", "arg_1": {"max_gen_toks": 32}}},
        "resps": [[row["pred"]]], "filtered_resps": [row["pred"]], "filter": "none", "metrics": ["score", metric],
        "score": 0.5, metric: 0.5,
    } | changes  # fmt: skip


def lm_eval_results(counts: Mapping[str, int], version: float = 5.0, **changes: Any) -> dict[str, Any]:
    """lm_eval's results file of these tasks, {task: number of samples}."""
    names = {f"longbench_{task}": task for task in counts}
    scores = {name: {f"{METRIC[task.removesuffix('_e')]},none": 0.25} for name, task in names.items()}
    return {
        "results": scores | {"longbench": {"score,none": 0.1}},
        "versions": dict.fromkeys(names, version), "n-shot": dict.fromkeys(names, 0),
        "n-samples": {name: {"original": counts[task], "effective": counts[task]} for name, task in names.items()},
        "configs": {name: {"generation_kwargs": {"do_sample": False, "temperature": 1}} for name in names},
        "config": {"model": "hf", "model_args": {"pretrained": "/home/me/secret"}, "gen_kwargs": None},
        "lm_eval_version": "0.4.13", "chat_template": None, "system_instruction": None, "max_length": 4096,
        "pretty_env_info": "secret host",
    } | changes  # fmt: skip


def write_lm_eval(
    folder: Path, tasks: Mapping[str, Sequence[Row]], results: Mapping[str, Any] | None = None, time: str = TIME
) -> Path:
    """Write {task: official prediction rows} as lm_eval's output; return the model's folder."""
    model = folder / "org__model"
    model.mkdir(parents=True, exist_ok=True)
    for task, rows in tasks.items():
        lines = (json.dumps(lm_eval_row(task, number, row), ensure_ascii=False) for number, row in enumerate(rows))
        (model / f"samples_longbench_{task}_{time}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    counts = {task: len(rows) for task, rows in tasks.items()}
    (model / f"results_{time}.json").write_text(json.dumps(results or lm_eval_results(counts)))
    return model


def opencompass_entries(task: str, rows: Sequence[Row], prompt: object = "A prompt") -> list[dict[str, Any]]:
    entries = []
    for row in rows:
        gold: Any = row["answers"]
        if task in ("trec", "lsht"):
            gold = {"answers": gold, "all_classes": row["all_classes"]}
        entry = {"origin_prompt": prompt, "prediction": row["pred"]}
        entries.append(entry | ({"gold": gold} if gold else {}))
    return entries


def write_entries(path: Path, entries: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({str(n): entry for n, entry in enumerate(entries)}, indent=4, ensure_ascii=False))
    return path


def write_opencompass(
    folder: Path, tasks: Mapping[str, Sequence[Row]], scores: Mapping[str, float] | None = None, parts: int = 1
) -> Path:
    """Write {task: official prediction rows} as OpenCompass's predictions, in parts; return the work folder."""
    work = folder / OPENCOMPASS_TIME
    for task, rows in tasks.items():
        entries = opencompass_entries(task, rows)
        size = -(-len(entries) // parts)
        for part in range(parts):
            name = f"LongBench_{task}_{part}.json" if parts > 1 else f"LongBench_{task}.json"
            write_entries(work / "predictions/model" / name, entries[part * size : (part + 1) * size])
        if scores:
            results = work / "results/model" / f"LongBench_{task}.json"
            results.parent.mkdir(parents=True, exist_ok=True)
            results.write_text(json.dumps({"score": scores[task]}))
    return work
