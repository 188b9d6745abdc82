"""Scoring of a LongBench run by lbx, beside the packages that the official script calls.

    python -m bench.score [FOLDER]

FOLDER holds one {task}.jsonl of a model's outputs for each task (lines with pred, answers, all_classes, length) and
the result.json that eval.py made of them; by default ../shared/data/predictions/longbench/llama3-8b-instruct. Both
score the tasks whose metric needs a package: first ``rouge``, ``fuzzywuzzy`` and ``jieba`` in this process (jieba has
its dictionary cached beforehand), then lbx on two processes, their start and the reading of the dictionary included.
Exit code 1: a digit differs.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
import string
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbx.base.records import Sample, ScoredSample
from lbx.benchmarks.longbench.benchmark import METRICS, LongBench, accepted_answers
from lbx.benchmarks.longbench.tasks import TASKS
from lbx.results.scoring.scores import ScoringInput, ScoringPool

DEFAULT = Path(__file__).resolve().parents[2] / "shared/data/predictions/longbench/llama3-8b-instruct"
BY_PACKAGES = {("f1", "zh"), ("rouge_l", "en"), ("rouge_l", "zh"), ("edit_similarity", "code")}
"""Metrics and languages that the official script computes by packages."""
PROCESSES = 2
EXACT = 1e-9


@dataclass
class Outcome:
    """A task's scores in the order of its lines, its number as eval.py prints it, and the seconds it took."""

    scores: list[float]
    number: float
    seconds: float


Row = dict[str, Any]
Metric = Callable[..., float]


class OfficialScorer:
    """The arithmetic of LongBench's metrics.py with the packages that it imports."""

    def __init__(self, folder_for_cache: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of packages that are older than this Python
            import jieba
            from fuzzywuzzy import fuzz
            from rouge import Rouge
        jieba.setLogLevel(logging.CRITICAL)
        fuzz.SequenceMatcher = difflib.SequenceMatcher  # what it falls back to where the official requirements are met
        self._rouge, self._ratio = Rouge, fuzz.ratio
        for _ in range(2):  # the first one caches the dictionary
            self._jieba = jieba.Tokenizer()
            self._jieba.tmp_dir = folder_for_cache
            if not list(Path(folder_for_cache).iterdir()):
                self._jieba.initialize()

    def score(self, task: str, rows: Sequence[Row]) -> Outcome:
        start = time.perf_counter()
        kind = TASKS[task]
        metric: Metric = {
            ("f1", "zh"): self._f1_zh,
            ("rouge_l", "en"): self._rouge_l,
            ("rouge_l", "zh"): self._rouge_l_zh,
            ("edit_similarity", "code"): self._similarity,
        }[kind.metric, kind.language]
        # The recursion of ``rouge`` ends where it ends officially: there the metric is called by the second frame.
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + _stack_depth() - 2)
        scores = []
        try:
            for row in rows:
                output = row["pred"].lstrip("\n").split("\n")[0] if kind.first_line else row["pred"]
                best = 0.0
                for answer in row["answers"]:
                    best = max(best, metric(output, answer))
                scores.append(best)
        finally:
            sys.setrecursionlimit(limit)
        number = round(100 * sum(scores) / len(scores), 2)
        return Outcome(scores, number, time.perf_counter() - start)

    def _f1_zh(self, output: str, answer: str) -> float:
        return _f1(*([word for word in map(_chinese, self._jieba.cut(text)) if word] for text in (output, answer)))

    def _rouge_l(self, output: str, answer: str) -> float:
        try:
            return float(self._rouge().get_scores([output], [answer], avg=True)["rouge-l"]["f"])
        except Exception:  # a RecursionError among others
            return 0.0

    def _rouge_l_zh(self, output: str, answer: str) -> float:
        return self._rouge_l(" ".join(list(self._jieba.cut(output))), " ".join(list(self._jieba.cut(answer))))

    def _similarity(self, output: str, answer: str) -> float:
        for line in output.lstrip("\n").split("\n"):
            if not re.search("`|#|//", line):
                return float(self._ratio(line, answer) / 100)
        return float(self._ratio("", answer) / 100)


_CHINESE_SIGNS = frozenset(
    "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏."
).union(string.punctuation)


def _stack_depth() -> int:
    frame, depth = sys._getframe(1), 0
    while frame is not None:
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    return depth


def _chinese(word: str) -> str:
    return "".join("".join(sign for sign in word.lower() if sign not in _CHINESE_SIGNS).split())


def _f1(output: Sequence[str], answer: Sequence[str]) -> float:
    same = sum((Counter(output) & Counter(answer)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(output), same / len(answer)
    return 2 * precision * recall / (precision + recall)


def score_with_lbx(pool: ScoringPool, task: str, rows: Sequence[Row]) -> Outcome:
    start = time.perf_counter()
    benchmark = LongBench()
    answers = [
        ScoringInput(
            Sample(
                benchmark=benchmark.name,
                task=task,
                sample_id=str(number),
                context="",
                question="",
                references=accepted_answers(task, row["answers"]),
                length=row["length"],
                meta={"all_classes": rows[-1]["all_classes"]},
            ),
            row["pred"],
        )
        for number, row in enumerate(rows)
    ]
    judged = [scores for part in pool.score(benchmark, answers) for scores in part]
    scored = [
        ScoredSample(answer.sample, {score.metric: score.score for score in scores})
        for answer, scores in zip(answers, judged, strict=True)
    ]
    number = benchmark.aggregate(task, scored)[0].official
    assert number is not None
    headline = METRICS[TASKS[task].metric][0]
    return Outcome([row.scores[headline] for row in scored], number, time.perf_counter() - start)


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0]) if arguments else DEFAULT
    if not (folder / "result.json").is_file():
        print(f"{folder} holds no result.json. Name a folder of a model's LongBench outputs.", file=sys.stderr)
        return 2
    published = json.loads((folder / "result.json").read_text("utf-8"))
    tasks = {
        task: [json.loads(line) for line in (folder / f"{task}.jsonl").read_text("utf-8").splitlines()]
        for task in TASKS
        if task in published and (TASKS[task].metric, TASKS[task].language) in BY_PACKAGES
    }
    with tempfile.TemporaryDirectory() as cache:
        official = OfficialScorer(cache)
        expected = {task: official.score(task, rows) for task, rows in tasks.items()}
    outputs = sum(map(len, tasks.values()))
    start = time.perf_counter()
    with ScoringPool(outputs, PROCESSES) as pool:
        got = {task: score_with_lbx(pool, task, rows) for task, rows in tasks.items()}
    seconds = time.perf_counter() - start
    return _report(expected, got, published, seconds)


def _report(expected: dict[str, Outcome], got: dict[str, Outcome], published: dict[str, float], seconds: float) -> int:
    print(f"{'task':22}{'outputs':>8}{'official s':>12}{'lbx s':>9}{'ratio':>8}  digits")
    wrong = 0
    for task, right in expected.items():
        mine = got[task]
        differ = sum(abs(a - b) > EXACT for a, b in zip(right.scores, mine.scores, strict=True))
        equal = not differ and mine.number == right.number == published[task]
        wrong += not equal
        numbers = f"lbx {mine.number}, official here {right.number}, published {published[task]}"
        verdict = "equal" if equal else f"{differ} samples differ; {numbers}"
        print(_line(task, len(right.scores), right.seconds, mine.seconds, verdict))
    total = sum(one.seconds for one in expected.values())
    outputs = sum(len(one.scores) for one in expected.values())
    verdict = f"{wrong} tasks differ" if wrong else "equal in every task"
    print(_line("total", outputs, total, seconds, verdict))
    print(
        f"official: one process; lbx: {PROCESSES} processes, their start and end in the total, the start in the first"
    )
    return 1 if wrong else 0


def _line(name: str, outputs: int, official: float, mine: float, verdict: str) -> str:
    return f"{name:22}{outputs:8}{official:12.3f}{mine:9.3f}{official / mine:8.1f}  {verdict}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
