"""A results file to browse: two runs with every mark, hostile texts, a judge's verdicts and people's ratings."""

from __future__ import annotations

from pathlib import Path

from lbx.base.records import JudgedAnswer, RoundSample, Sample
from lbx.opinions.aggregation import write_ratings
from lbx.opinions.rating_rows import RatingItemRow, RatingRow, RatingSetRow
from lbx.results import GenerationRow, RunRow, SampleRow, ScoreRow, Store
from tests.web.sites import HOSTILE

DOCUMENT = "The kettle is blue.\n" * 2000
TASK = ("longbench", "qasper")
MARKED = {
    1: {"error": "PromptError: too long", "error_type": "PromptError", "output": None},
    2: {"truncated": True, "tokens_cut": 12},
    3: {"reasoning": "I never stopped", "reasoning_closed": False, "finish_reason": "length"},
    4: {"finish_reason": "length"},
    5: {"output": HOSTILE, "reasoning": "m" * 1_000_000},
}


def browsed_file(path: Path, samples: int = 12) -> Path:
    """Runs "one" and "two"; run one answers better. The judge and the raters saw sample 0."""
    with Store(path) as store:
        store.write(
            samples=[
                SampleRow(
                    Sample(*TASK, f"s{place}", DOCUMENT, f"What is {place}?", (f"it is {place}", HOSTILE), meta=meta),
                    place,
                )
                for place in range(samples)
                for meta in ({"choices": {"A": f"one of {place}", "B": HOSTILE}},)
            ]
        )
        for place, run in enumerate(("one", "two")):
            store.begin_run(RunRow(run, run, "hf", "1", {"longbench": 1}, "ab" * 32, {"n": place}, {}, "1"))
            rows = [_generation(run, number) for number in range(samples)]
            scores = [
                ScoreRow(run, *TASK, row.sample_id, 0, "qa_f1", 1, number % 4 / 4, f"took {number}", True)
                for number, row in enumerate(rows)
                if row.error is None
            ]
            store.write(generations=rows, scores=scores)
            store.finish_run(run, "done")
        _judge(store)
        write_ratings(
            store,
            sets=[
                RatingSetRow("scores", "score", "all", ["one", "two"], 1, 5),
                RatingSetRow("pairs", "pair", "all", []),
            ],
            items=[RatingItemRow(name, 0, *TASK, "s0", 0) for name in ("scores", "pairs")],
            ratings=[
                RatingRow("scores", 0, "ann", "one", score=2.0),
                RatingRow("scores", 0, "ann", "one", revision=1, score=4.0, comment=f"better {HOSTILE}"),
                RatingRow("pairs", 0, "bob", "one", against_run_id="two", verdict="answer"),
            ],
        )
    return path


def _generation(run: str, number: int) -> GenerationRow:
    told = {
        "output": f"{run} says {number}",
        "prompt_tokens": 4000 + number,
        "output_tokens": number,
        "finish_reason": "stop",
    }
    return GenerationRow(run, *TASK, f"s{number}", 0, **{**told, **MARKED.get(number, {})})


def _judge(store: Store) -> None:
    about = JudgedAnswer(
        kind="pair", benchmark=TASK[0], task=TASK[1], sample_id="s0", run_id="one", against_run_id="two",
        answer_first=True,
    )  # fmt: skip
    sample = RoundSample("judge", "leval", "r0", "", "What is 0?", ("it is 0",), subject=about)
    settings = {"rubric": "leval", "rubric_sha256": "", "rubric_source": "", "orders": "both"}
    store.begin_run(RunRow("umpire", "umpire", "hf", "1", {"judge": 1}, "", settings, {}, "1"))
    store.write(
        samples=[SampleRow(sample, 0)],
        generations=[GenerationRow("umpire", "judge", "leval", "r0", 0, output=f"{HOSTILE} [[A]]")],
        scores=[ScoreRow("umpire", "judge", "leval", "r0", 0, "verdict", 1, 1.0, "answer", True)],
    )
    store.finish_run("umpire", "done")
