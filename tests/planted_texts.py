"""A results file with many benchmarks, judges and ratings, and with a unique word planted in each of its texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lbx.base.records import Sample, sha256_text
from lbx.benchmarks.judge import Round
from lbx.benchmarks.registry import BENCHMARKS
from lbx.opinions.aggregation import write_ratings
from lbx.opinions.rating_rows import RatingItemRow, RatingRow, RatingSetRow
from lbx.results import GenerationRow, RunRow, SampleRow, Store
from lbx.results.whole.run_changes import score_with
from tests.gallery_files import MODELS, Sizes, results_file
from tests.judged_rounds import Said, add_judge, both_orders

PLANTED_RUNS = ("planted-a", "planted-b")
TASKS = {
    "lveval": ("hotpotwikiqa_mixup_16k", "hotpotwikiqa_mixup_32k"),
    "longbench_pro": ("t1.1", "t2.1"),
    "mrcr": ("2needle",),
    "leval": ("coursera", "tpo", "meeting_summ"),
    "handbook": ("facts", "choices"),
}


@dataclass
class Planted:
    """Words that are planted: ``texts``, of which ``answers`` are in the models' outputs."""

    texts: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    def text(self, before: str = "") -> str:
        self.texts.append(f"zqx{len(self.texts):05d}wortel")
        return f"{before} {self.texts[-1]}".strip()

    def answer(self, before: str = "") -> str:
        text = self.text(before)
        self.answers.append(self.texts[-1])
        return text


def write_planted_file(path: Path) -> Planted:
    """Write the file: runs of gallery_files with a judge and ratings, and two runs with planted words."""
    planted = Planted()
    sizes = Sizes(longbench=2, v2=6, ruler=1, ruler_lengths=(4096, 16384), needle=1, leval=4)
    results_file(path, MODELS[:3], sizes)
    with Store(path) as store:
        samples = [*_samples(planted)]
        for place, run in enumerate(PLANTED_RUNS):
            versions = {name: BENCHMARKS[name].metric_version if name in BENCHMARKS else 1 for name in TASKS}
            settings = {"rag": 2, "retriever": "bm25 500", "dtype": f"bf{place}"}
            store.begin_run(RunRow(run, f"m{place}", "hf", "1", versions, "ab" * 32, settings, {}, "1"))
            rows = [_answer(run, sample, number, planted) for number, sample in enumerate(samples)]
            store.write(samples=[SampleRow(sample, at) for at, sample in enumerate(samples)], generations=rows)
        score_with(store, None, run_ids=PLANTED_RUNS, processes=1)
        for run in PLANTED_RUNS:
            store.finish_run(run, "done")
        answers = {
            (row["run_id"], row["sample_id"]): row["output"] or ""
            for row in store.query("SELECT * FROM generations WHERE benchmark = 'leval' AND task = 'tpo'").dicts()
        }
        judged = [sample for sample in samples if (sample.benchmark, sample.task) == ("leval", "tpo")]
        _judge(store, judged, answers, planted)
        _rate(store, judged, answers, planted)
        _plant_in_sql(store, planted)
    return planted


def _samples(planted: Planted) -> Iterator[Sample]:
    for benchmark, tasks in TASKS.items():
        for task in tasks:
            for number in range(4):
                text = planted.text
                yield Sample(
                    benchmark, task, f"s{number}", f"document {number // 2} {task}", text(f"question {number // 2}"),
                    (("B",) if task in ("choices", "coursera", "tpo") else (text("reference"),)), "en",
                    900 * (1 + number), "words", _meta(benchmark, number, planted),
                )  # fmt: skip


def _meta(benchmark: str, number: int, planted: Planted) -> dict[str, Any]:
    text = planted.text
    meta: dict[str, Any] = {"new_key": text(), "new_list": [1, text()], "new_table": {text("key"): 1}, "n": 3}
    meta[text("key")] = "value"
    if benchmark == "lveval":
        return meta | {"category": "multi-hop", "answer_keywords": text("keywords")}
    if benchmark == "longbench_pro":
        labels = {"secondary_task": "Retrieval", "primary_task": "T1", "token_length": "8k", "row": number}
        labels |= {"contextual_requirement": "Full", "difficulty": ("Easy", "Hard")[number % 2]}
        return meta | labels | {"question_thinking": text("think")}
    if benchmark == "mrcr":
        return meta | {"prefix": text("prefix"), "message_lengths": [3, 5, 8]}
    if benchmark == "leval":
        return meta | {"evaluation": "exam", "source": "campus", "judged_by": ["LLM", "human"]}
    choices = {"A": text("no"), "B": text("yes")}
    texts = {"choices": choices, "answer_cues": [text("so:")], "turns": [text("first turn")], "stop": [text("stop")]}
    return meta | texts | {"metrics": ["exact_match"], "max_new_tokens": 9}


def _answer(run: str, sample: Sample, number: int, planted: Planted) -> GenerationRow:
    key = (run, sample.benchmark, sample.task, sample.sample_id, 0)
    if number % 9 == 4:
        return GenerationRow(*key, error=planted.text("the server says:"), error_type="BackendError")
    right = sample.references[0] if (number + len(run)) % 3 else "A"
    blank = number % 11 == 7
    return GenerationRow(
        *key, output=" \n" if blank else planted.answer(f"{right} because of"), reasoning=planted.text("I think"),
        reasoning_tokens=40, reasoning_closed=True, finish_reason="stop", prompt_tokens=1000, output_tokens=12,
        original_tokens=1000 + 700 * number, truncated=number % 3 == 0, tokens_cut=7, prompt_sha256="ab" * 32,
        prompt_source="lbx", prefill_s=1.0, decode_s=0.5, seed=0,
        steps=[{"prompt": planted.text("step"), "output": planted.text("said")}], source_row=planted.text('{"pred":'),
        output_ids=[101, 1_913_947_201 + number],
    )  # fmt: skip


def _judge(store: Store, samples: list[Sample], answers: dict[tuple[str, str], str], planted: Planted) -> None:
    def rounds() -> Iterator[Said]:
        first, second = PLANTED_RUNS
        for number, sample in enumerate(samples):
            stale = "another answer" if number == 3 else ""
            asked = Round(
                "leval", "tpo", sample.sample_id, sample.question, sample.references, first,
                stale or answers[first, sample.sample_id], 0, second, 0, answers[second, sample.sample_id],
                document_sha256=sha256_text(sample.context), marks=("LLM",),
            )  # fmt: skip
            yield from both_orders(asked, f"{planted.text('Well,')} [[A]]", f"{planted.text('Well,')} [[B]]")

    add_judge(store, "planted-judge", list(rounds()), model="judge")
    with store.transaction() as connection:
        connection.execute("UPDATE rounds SET pattern = ?", [planted.text("Rating: {rating}")])


def _rate(store: Store, samples: list[Sample], answers: dict[tuple[str, str], str], planted: Planted) -> None:
    def meta(sample: Sample) -> dict[str, Any]:
        rated = [
            {"run_id": run, "iteration": 0, "sha256": sha256_text(answers[run, sample.sample_id])}
            for run in PLANTED_RUNS
        ]
        return {"answers": rated, "for_all": True, "document_sha256": "", "criterion": planted.text("How good")}

    items = [RatingItemRow("planted", n, "leval", "tpo", s.sample_id, n, meta(s)) for n, s in enumerate(samples)]
    ratings = [
        RatingRow(
            "planted", item.item, rater, run, score=float(1 + (item.item + at) % 5), comment=planted.text("comment"),
            source_row=planted.text('{"page":'),
        )
        for at, rater in enumerate(("ann", "bob"))
        for run in PLANTED_RUNS
        for item in items
    ]  # fmt: skip
    write_ratings(store, [RatingSetRow("planted", "score", "all", [*PLANTED_RUNS], 1, 5)], items, ratings)


def _plant_in_sql(store: Store, planted: Planted) -> None:
    """Plant words in the columns that the real functions above do not fill."""
    with store.transaction() as connection:
        for sample_id in ("s0", "s1"):
            connection.execute(
                "INSERT INTO retrievals VALUES ('bm25 500', 'leval', 'tpo', ?, '', 0, 3, 1.5, ?)",
                [sample_id, planted.text("chunk")],
            )
        connection.execute("INSERT INTO embeddings VALUES ('e5', 'ab', ?)", [planted.text().encode()])
        connection.execute(
            "UPDATE scores SET extracted = ? WHERE run_id = ? AND benchmark = 'mrcr'",
            [planted.text("took"), PLANTED_RUNS[0]],
        )
        connection.execute(
            "UPDATE scores SET error = ? WHERE run_id = ? AND task = 'coursera'",
            [planted.text("ValueError:"), PLANTED_RUNS[1]],
        )
