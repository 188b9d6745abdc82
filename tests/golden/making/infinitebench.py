"""InfiniteBench: get_score_one of compute_scores.py on one answer each, and its mean of each task."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.golden.making.make import Record, keep, module, scored
from tests.golden.making.texts import bent, words

MODELS = ("synthetic", "gpt4")
OPTIONS = ("load_config", "repack_archive", "B", "find the door")


class Rouge:
    """``evaluate``'s metric by the calls that it makes."""

    def compute(self, predictions: list[str], references: list[list[str]], **_: object) -> dict[str, list[float]]:
        from rouge_score.rouge_scorer import RougeScorer

        scorer = RougeScorer(["rougeLsum"], use_stemmer=False)
        pairs = zip(references, predictions, strict=True)
        return {"rougeLsum": [scorer.score_multi(each, said)["rougeLsum"].fmeasure for each, said in pairs]}


def make(upstream: Path, work: Path, folder: Path) -> None:
    sys.modules["evaluate"] = SimpleNamespace(load=lambda _: Rouge())  # type: ignore[assignment]
    script = module(upstream / "OpenBMB+InfiniteBench" / "src", "compute_scores")
    records: list[Record] = []
    means: dict[str, dict[str, float]] = {}
    for task in script.ALL_TASKS:
        for model in MODELS if task == "math_calc" else MODELS[:1]:
            some = []
            for number, (answer, prediction) in enumerate(_answers(task)):
                score, error = scored(
                    lambda p=prediction, a=answer, t=task, m=model: script.get_score_one(p, a, t, m)  # type: ignore[misc]
                )
                record = {"id": f"syn-{model}-{task}-{number:04d}", "model": model, "task": task, "answer": answer}
                some.append({**record, "prediction": prediction, "score": score, "error": error})
            records += some
            sound = [row for row in some if not row["error"]]
            mean = script.get_score(*([row[key] for row in sound] for key in ("answer", "prediction")), task, model)
            means[f"{model}/{task}"] = {"n": len(sound), "mean": mean}
    keep(folder, "infinitebench", records, infinitebench=means)


def _answers(task: str) -> Iterator[tuple[Any, str]]:
    chance = random.Random(f"infinitebench {task}")
    zh = task.endswith("chn")
    for _ in range(3):
        number, other = chance.randrange(10, 99), chance.randrange(10, 99)
        if task in ("code_debug", "longbook_choice_eng"):
            at = chance.randrange(4)
            answer, text = [OPTIONS[at], "ABCD"[at]], f"{'ABCD'[at]}. {OPTIONS[at]}"
            more = [*_choices(*answer), *_choices(OPTIONS[at - 1], "ABCD"[at - 1])]
        elif task in ("passkey", "number_string", "code_run", "math_find"):
            known = {"code_run": [-number], "math_find": [chance.choice([number, number + 0.5])]}
            answer = known.get(task, [f"0{number}"])
            text = str(answer[0])
            more = [
                text,
                f" {text}.",
                f"{text}{other}",
                f"{other} {text}",
                f"{other}.5 {text}",
                f"`{text}`",
                "٣",
                "1_0",
            ]
        elif task == "math_calc":
            values = [chance.randrange(50) for _ in range(6)]
            answer, text = chance.choice([values, [values]]), str(values)
            more = [
                str(values[:3]),
                str([9, *values]),
                str([*values[:4], 99, *values[5:]]),
                "1" * 5000,
                f"{values} 7 8",
            ]
        else:
            answer = [words(chance, 12, zh), words(chance, 4, zh)]
            if task in ("kv_retrieval", "longdialogue_qa_eng"):
                answer = ["NAME"] if task == "longdialogue_qa_eng" else "9f3a-77"
            text = answer if isinstance(answer, str) else answer[0]
            more = [f'{{"{text}": "x"}}', f"{text}s", text.title(), f"({text})", f"- {text}!\n{words(chance, 3, zh)}"]
        said = [prediction for _, prediction in bent(chance, text, words(chance, 9, zh), zh)]
        yield from ((answer, prediction[:600] if task != "math_calc" else prediction) for prediction in (*said, *more))


def _choices(option: str, letter: str) -> list[str]:
    return [
        letter, f"{letter}: {option}", option, f"The answer is: {letter}", f"The answer is:  {option}",
        f"answer:{letter}", f"The correct option is: {letter}. {option}", f"I say the option is {letter}",
        f"Option {letter} is: -{option}",
        f"it is {letter}", "it is AB", f"About {letter}", f"not sure: {letter} or {option}", "The answer is",
        "answer is: ",
        f"the error is:\n`{option}`", f"{letter}", f"  {letter}.", f"\n{letter})", f"the answer is\n\n{letter}",
    ]  # fmt: skip
