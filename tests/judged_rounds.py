"""Judges and their judgements, and people's ratings, each said in a line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lbx.benchmarks.base.rubric import Rubric
from lbx.benchmarks.judge import JudgeBenchmark, Round
from lbx.opinions.aggregation import write_ratings
from lbx.opinions.rating_rows import RatingItemRow, RatingRow, RatingSetRow
from lbx.results import GenerationRow, RunRow, SampleRow, Store
from lbx.results.scoring.aggregation import aggregate_scores
from lbx.results.scoring.scores import score_rows

PAIR = Rubric(
    "pairs",
    "pair",
    "Judge.",
    "{question} {a} {b}",
    verdicts=(("[[A]]", "first"), ("[[B]]", "second"), ("[[C]]", "tie")),
)
SCALE = Rubric("scale", "score", "Rate.", "{question} {answer}", pattern="[[{rating}]]", low=1, high=5)


@dataclass(frozen=True)
class Said:
    """A round, and what the judge said of it; ``error`` in its place, or cut at its limit."""

    round: Round
    text: str = ""
    error: str | None = None
    cut: bool = False
    iteration: int = 0


def add_judge(
    store: Store, judge_id: str, said: Iterable[Said], *, rubric: Rubric = PAIR, family: Iterable[str] = (), **run: str
) -> None:
    """A judge that has said this, added up as `lbx judge` does it."""
    told = {"judge_id": judge_id, "model": "the judge", **run}
    settings = {**rubric.settings("both"), "seed": 0}
    row = RunRow(
        judge_id, told["model"], "scripted", "1", {"judge": 1}, "digest", settings,
        {"same_family_as": list(family)} if family else {}, "0.1",
    )  # fmt: skip
    judging = JudgeBenchmark()
    store.begin_run(row)
    samples, generations, scores = [], [], []
    for place, one in enumerate(said):
        sample = one.round.sample(rubric)
        samples.append(SampleRow(sample, place))
        key = (*sample.key[:3], one.iteration)
        reason = "length" if one.cut else "stop"
        output = None if one.error else one.text
        generations.append(GenerationRow(judge_id, *key, output=output, error=one.error, finish_reason=reason))
        scores += [] if one.error else score_rows(judge_id, key, judging, judging.score(sample, one.text))
    store.write(samples=samples, generations=generations, scores=scores)
    aggregate_scores(store, judge_id, judging)
    store.finish_run(judge_id, "done")


def both_orders(one: Round, first: str, second: str) -> Iterator[Said]:
    """A question's two rounds: what is said where the judged answer comes first, and where it comes second."""
    yield Said(replace(one, answer_first=True), first)
    yield Said(replace(one, answer_first=False), second)


def fastchat_rounds(path: Path, *, second: bool = True) -> Iterator[Said]:
    """FastChat's file as rounds about its second model, or its first."""
    for line in path.read_text().splitlines():
        row = json.loads(line)
        for game, first in (("g1", True), ("g2", False)):
            texts = [_answer(row[f"{game}_user_prompt"], letter) for letter in "AB"]
            answers = texts if first else texts[::-1]
            names = [row["model_1"], row["model_2"]]
            if second:
                answers, names = answers[::-1], names[::-1]
            yield Said(
                Round(
                    "mt_bench", "mt_bench", f"{row['question_id']}-{row['turn']}", "", (), names[0], answers[0], 0,
                    names[1], 0, answers[1], answer_first=first is not second,
                ),
                row[f"{game}_judgment"],
            )  # fmt: skip


CALIBRATION = {"claude-100k": 0.6094, "gpt4-32k": 0.5416, "llama2-13b-chat-4k": 0.4244}
"""GPT-4's win rates against BASELINE, by published model."""
BASELINE = "published-turbo-16k-0613"


def calibration(verdicts: Callable[[str, int], tuple[str, str]], questions: int = 96) -> Iterator[Said]:
    """What a judge says of the published answers, of eight questions a document; ``verdicts`` of a model's question:
    where its answer comes first, and where it comes second.
    """
    for model in CALIBRATION:
        for n in range(questions):
            one = Round(
                "leval", "narrative_qa" if n < 48 else "scientific_qa", f"q{n}", "Who?", ("He did",),
                f"published-{model}", f"{model} says {n}", 0, BASELINE, 0, f"turbo says at length {n}",
                document_sha256=f"document {n // 8}", marks=("LLM",),
            )  # fmt: skip
            yield from both_orders(one, *verdicts(model, n))


def like_gpt4(model: str, n: int) -> tuple[str, str]:
    """As often as GPT-4, in both orders alike."""
    return ("[[A]]", "[[B]]") if n * 5 % 96 < 96 * CALIBRATION[model] else ("[[B]]", "[[A]]")


def always_first(_model: str, _n: int) -> tuple[str, str]:
    return "[[A]]", "[[A]]"


def add_ratings(store: Store, set_id: str, kind: str, ratings: Sequence[RatingRow], questions: int = 96) -> None:
    """A set of ratings of the questions of ``calibration``."""
    scale = (1.0, 5.0) if kind == "score" else (None, None)
    tasks = ["narrative_qa" if n < 48 else "scientific_qa" for n in range(questions)]
    items = [RatingItemRow(set_id, n, "leval", task, f"q{n}", n) for n, task in enumerate(tasks)]
    write_ratings(store, [RatingSetRow(set_id, kind, "human", [], *scale)], items, ratings, replace=True)


def _answer(prompt: str, letter: str) -> str:
    found = re.search(
        rf"The Start of Assistant {letter}'s Answer\]\n(.*?)\n\[The End of Assistant {letter}", prompt, re.S
    )
    return found[1] if found else ""
