"""L-Eval: auto_eval.py's functions on one answer each, and auto_eval.py itself on a file for each task."""

from __future__ import annotations

import ast
import random
import re
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.golden.making.make import Record, keep, module, run, scored, write_rows
from tests.golden.making.texts import bent, words

EXAMS = ("coursera", "quality", "tpo", "gsm100", "codeU", "topic_retrieval_longchat", "sci_fi")
SUMMARIES = ("gov_report_summ", "meeting_summ", "news_summ", "paper_assistant", "patent_summ", "review_summ",
             "tv_show_summ")  # fmt: skip
QUESTIONS = ("financial_qa", "legal_contract_qa", "multidoc_qa", "narrative_qa", "natural_question", "scientific_qa")
MODEL = "synthetic"


def make(upstream: Path, work: Path, folder: Path) -> None:
    place = upstream / "OpenLMLab+LEval" / "Evaluation"
    official, records, results = module(place, "auto_eval"), [], []
    for task in (*EXAMS, *SUMMARIES, *QUESTIONS):
        kind = "exam" if task in EXAMS else "rouge" if task in SUMMARIES else "f1"
        official.args = Namespace(pred_file=task)
        rows = list(_rows(task, random.Random(f"leval {task}")))
        found = [_scored(official, task, kind, index, *row) for index, row in enumerate(rows)]
        records += [record for group in found for record in group]
        sound = [index for index, group in enumerate(found) if not any(record["error"] for record in group)]
        if task == "topic_retrieval_longchat" and len(sound) != len(rows):
            raise RuntimeError("its groups are rows by their number: none may be left out")
        results.append(_aggregate(place, work, task, kind, [rows[index] for index in sound]) | {"indices": sound})
    keep(folder, "leval", records, leval={"results": results})


def _rows(task: str, chance: random.Random) -> Iterator[tuple[str, str]]:
    """(reference, prediction)."""
    for _ in range(3):
        reference, other = _reference(task, chance), _reference(task, chance)
        for kind, said in bent(chance, reference, other, False):
            if not (kind == "empty" and task in ("codeU", "gsm100")):
                yield reference, said
        if task in ("coursera", "quality", "tpo"):
            yield from ((reference, said) for said in _letters(chance))
        if task == "gsm100":
            yield from (
                (reference, f"{words(chance, 8, False)}\n\nThe answer is {number}") for number in _numbers(reference)
            )
        if task == "codeU":
            yield from (
                (reference, f"so the final output would be {said}") for said in (reference, other, f"[{reference}]")
            )


def _reference(task: str, chance: random.Random) -> str:
    if task in ("coursera", "quality", "tpo"):
        return "".join(sorted(chance.sample("ABCD", chance.randrange(1, 4 if task == "coursera" else 2))))
    if task == "gsm100":
        return f"{words(chance, 6, False)} The answer is {chance.randrange(2, 900)}"
    if task == "codeU":
        return chance.choice(("[{0} {1}]", "{0}", "[[{0} {1}] [{1} {0}]]", "{0}.0")).format(
            chance.randrange(30), chance.randrange(30)
        )
    if task == "sci_fi":
        first, second = chance.choice(("True", "False")), chance.choice(("True", "False"))
        return f"{first} [fact: {second}]"
    return words(chance, 35 if task in SUMMARIES else 6, False)


def _letters(chance: random.Random) -> list[str]:
    a, b = chance.sample("ABCD", 2)
    return [a, a + b, f"{a}{b}.", f"{a}. {words(chance, 3, False)}", f"Answer: {b}", f"({a})", f"{a}, {b}", f"{a} {b}",
            f"{a}. one {b}. two Question: {a}", "none", "BD", "E", "A B C D"]  # fmt: skip


def _numbers(reference: str) -> list[str]:
    number = reference.rpartition(" ")[2]
    return [
        number,
        f"{number}.",
        f"${number}",
        f"{number}.50",
        f"-{number}",
        f"1{number}",
        f"{number}/2",
        f"{number},000",
    ]


def _scored(official: Any, task: str, kind: str, index: int, reference: str, said: str) -> list[Record]:
    """One record for each metric of the answer."""
    common = {"id": f"syn-{task}-{index:04d}", "index": index, "task": task, "model": MODEL, "prediction": said,
              "reference": reference}  # fmt: skip
    group = index % 3 if task.startswith("topic") else None
    try:
        pairs = _processed(official, task, said, reference)
    except Exception as exc:
        stopped = {"metric": "exact_match", "score": None, "error": type(exc).__name__, "processed_prediction": None}
        groups = (0, 1) if task == "sci_fi" else (group,)
        return [common | stopped | {"group": part} for part in groups]
    found = []
    for part, (prediction, wanted) in enumerate(pairs):
        for metric, score in _numbers_of(official, kind, prediction, wanted):
            number, error = scored(score)
            found.append(common | {"group": part if task == "sci_fi" else group, "metric": metric, "score": number,
                                   "error": error, "processed_prediction": prediction})  # fmt: skip
    return found


def _processed(official: Any, task: str, said: str, reference: str) -> list[tuple[str, str]]:
    if task in ("coursera", "quality", "tpo"):
        return [(official.process_output_mc(said), official.process_gt_mc(reference))]
    if task == "gsm100":
        return [(official.process_math(said), official.process_math(reference))]
    if task == "codeU":
        return [(official.process_output_code(said, reference), official.process_gt_code(reference))]
    if task == "sci_fi":
        wanted = official.process_gt_judge(reference)
        return list(zip(official.process_output_judge(said), wanted, strict=True))
    return [(said, reference)]


def _numbers_of(official: Any, kind: str, said: str, wanted: str) -> Iterator[tuple[str, Any]]:
    if kind == "rouge":
        from rouge_score.rouge_scorer import RougeScorer

        for name in ("rouge1", "rouge2", "rougeL"):
            yield name, lambda name=name: RougeScorer([name]).score(wanted, said)[name].fmeasure * 100
    elif kind == "f1":
        yield "f1", lambda: official.compute_f1([said], [[wanted]]) / 100
    else:
        yield "exact_match", lambda: official.compute_exact_match([said], [[wanted]]) / 100


def _aggregate(place: Path, work: Path, task: str, kind: str, rows: list[tuple[str, str]]) -> Record:
    file = work / f"{task}.pred.jsonl"
    write_rows(file, [{f"{MODEL}_pred": said, "gt": reference, "evaluation": kind} for reference, said in rows])
    printed = run(place / "auto_eval.py", "--pred_file", file.name, cwd=work)
    metrics = [ast.literal_eval(one) for one in re.findall(r"^[^{\n]*(\{'.*'display'.*\})$", printed, re.MULTILINE)]
    average = re.search(r"^average score of .*: ([\d.]+)$", printed, re.MULTILINE)
    return {
        "model": MODEL,
        "task": task,
        "metrics": metrics if average else metrics[0],
        "average": float(average[1]) if average else None,
    }
