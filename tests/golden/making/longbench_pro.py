"""LongBench Pro: Evaluator's metric on one answer each, and its metric_summary on files of them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.golden.making.make import Record, keep, module, unlimited, write_rows
from tests.golden.making.official import Similar
from tests.golden.making.texts import bent, words

QUESTIONS = 6
KEPT_BACK = ("date", "fail_samples_num", "total_samples_num")


def make(upstream: Path, work: Path, folder: Path) -> None:
    evaluation = module(upstream / "caskcsg+longcontext" / "LongBench-Pro", "modules.evaluation")
    evaluator = evaluation.Evaluator(0)
    records = [record for task in evaluator.task_metric_config for record in _records(evaluator, task)]
    summaries = {f"bon_{n}": _summary(evaluator, work, records, n) for n in (3, 2, 1)}
    shuffled = random.Random("pro").sample(records, len(records))
    without = [record for record in records if not record["primary_task"].startswith("T9.")]
    try:
        missing = _summary(evaluator, work, without, 3)
    except KeyError as exc:
        missing = {"error": f"KeyError: {exc}"}
    keep(folder, "longbench_pro", records, longbench_pro=summaries | {
        "shuffled_bon_3": {"uids": [r["uid"] for r in shuffled], "summary": _summary(evaluator, work, shuffled, 3)},
        "missing_category_bon_3": {"summary": missing},
    })  # fmt: skip


def _records(evaluator: Any, task: str) -> list[Record]:
    chance, metric, found = random.Random(f"pro {task}"), evaluator.task_metric_config[task], []
    dimensions = evaluator.evaluate_configs
    (primary,) = (name for name in dimensions["primary_task"] if name.startswith(task.split(".", maxsplit=1)[0] + ". "))
    for number in range(QUESTIONS):
        zh = number % 2 == 1
        answer = [words(chance, 30 if metric == "Summary" else 3, zh) for _ in range(chance.randrange(1, 7))]
        question = {"id": f"syn-{task.split(maxsplit=1)[0]}-{number}", "primary_task": primary, "secondary_task": task,
                    "language": "Chinese" if zh else "English", "answer": answer,
                    **{name: chance.choice(dimensions[name]) for name in
                       ("token_length", "contextual_requirement", "difficulty")}}  # fmt: skip
        kinds = _kinds(chance, answer, zh, metric)
        for iteration in (1, 2, 3):
            kind, said = chance.choice(kinds)
            asked = {"uid": f"{question['id']}-{iteration}", "bon_idx": iteration, "kind": kind, "prediction": said}
            found.append(_scored(evaluator, question | asked | {"metric": metric}, chance))
    return found


def _kinds(chance: random.Random, answer: list[str], zh: bool, metric: str) -> list[tuple[str, str]]:
    if metric == "Summary":
        return list(bent(chance, answer[0], words(chance, 20, zh), zh))
    lines, noise = "\n".join(answer), words(chance, 4, zh)
    turned, mark = "\n".join(reversed(answer)), "[答案]" if zh else "[Answer]"
    return [
        ("exact", f"{mark}\n{lines}"), ("no mark", lines), ("reversed", f"{mark}\n{turned}"), ("empty", ""),
        ("both marks", f"[答案]\n{turned}\n[Answer]\n{lines}"), ("twice", f"{mark}\n{noise}\n{mark}\n{lines}"),
        ("half", f"{mark}\n" + "\n".join(answer[: len(answer) // 2 + 1])), ("upper", f"{mark}\n{lines.upper()}"),
        ("one line", f"{mark} {' '.join(answer)}"), ("doubled", f"{mark}\n{lines}\n{lines}"), ("mark alone", mark),
        ("spaces", f"{mark}\n" + lines.replace(" ", "   ")), ("noise first", f"{mark}\n{noise}\n{lines}"),
        ("blank lines", f"{mark}\n" + lines.replace("\n", "\n\n")),
        ("crlf", f"{mark}\r\n" + lines.replace("\n", "\r\n")),
        ("bullets", f"{mark}\n- " + lines.replace("\n", "\n- ")), ("nul", f"{mark}\n" + lines.replace("\n", "\x00\n")),
        ("trailing", f"{mark}\n{lines}\n{noise}"), ("tail twice", f"{mark}\n{lines}\n{answer[0]}"),
    ]  # fmt: skip


def _scored(evaluator: Any, record: Record, chance: random.Random) -> Record:
    task, answer, said = record["secondary_task"], record["answer"], record["prediction"]
    zh, extra = record["language"] == "Chinese", {}

    def score() -> float:
        return float(evaluator.calculate_metric(task, answer, said, zh)[1])

    Similar.value = 0.0
    if record["metric"] == "Summary":
        extra = {"score": 2 * score(), "score_unlimited_recursion": 2 * (unlimited(score) or 0.0)}
        Similar.value = round(chance.random(), 6)
        extra["stub_similarity"] = Similar.value
    success, number = evaluator.calculate_metric(task, answer, said, zh)
    summary = number if extra else None
    return (
        record | {"score": float(number), "stub_similarity": None, "success": success, "summary_score": summary} | extra
    )


def _summary(evaluator: Any, work: Path, records: list[Record], iterations: int) -> Record:
    file, out = work / "evaluated.jsonl", work / "summary.json"
    metrics = [r["score"] if r["summary_score"] is None else r["summary_score"] for r in records]
    write_rows(file, [record | {"metric": number} for record, number in zip(records, metrics, strict=True)])
    evaluator.metric_summary(str(file), 0, str(out), iterations)
    found = json.loads(out.read_text("utf-8"))
    return {name: value for name, value in found.items() if name not in KEPT_BACK}
