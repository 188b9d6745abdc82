"""A results file as large as a group's year: 100,377 answers of 36 runs on the benchmarks' tasks, from a fixed seed.

What bears on a report's time is as in real files: how many tasks, samples and runs there are, how long texts are, how
questions share documents, how many answers of one model's variants are alike, what failed, was cut or never ended.
Only the words mean nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from lbx.base.records import Sample, sha256_text
from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.leval import tasks as leval_tasks
from lbx.benchmarks.longbench import tasks as longbench_tasks
from lbx.benchmarks.longbench_pro import tasks as longbench_pro_tasks
from lbx.benchmarks.longbench_v2 import benchmark as longbench_v2
from lbx.benchmarks.lveval import tasks as lveval_tasks
from lbx.scoring.scores import add_up
from lbx.store import GenerationRow, RunRow, SampleRow, ScoreRow, SessionRow, Store
from lbx.store.sessions import keep_sessions

ANSWERS = 100_377
SEED = 20_261_122
RUNS = {"longbench": 14, "longbench_v2": 8, "leval": 6, "longbench_pro": 3, "lveval": 5}
"""How many runs each benchmark has; the last one goes on still, and ends where the answers do."""
MODELS = ("llama-3.1-8b-instruct", "qwen3-8b", "gemma-3-12b-it", "mistral-nemo-12b", "phi-4-mini")
VARIANTS = {"F16": 1.0, "Q8_0": 0.85, "Q4_K_M": 0.5}
"""Each model's, with the share of answers that are those of the first."""
WINDOWS = (8_192, 131_072, 32_768, 131_072, 16_384)
THINKING = 1
"""The model that reasons before it answers."""
BEGUN = datetime(2026, 3, 2, 6, tzinfo=UTC)

_LEVAL = {
    "coursera": (172, 12), "gsm100": (100, 100), "quality": (202, 14), "topic_retrieval_longchat": (150, 3),
    "tpo": (269, 18), "codeU": (90, 1), "sci_fi": (64, 9), "financial_qa": (68, 11), "legal_contract_qa": (130, 6),
    "multidoc_qa": (136, 7), "narrative_qa": (182, 9), "natural_question": (104, 5), "scientific_qa": (161, 6),
    "paper_assistant": (60, 3), "review_summ": (120, 6),
}  # fmt: skip
"""{task: (questions, of so many on a document)}; the others have some 15 documents with a question each."""
_NO_ANSWER = "The server at http://127.0.0.1:8080 gave no answer in 600 seconds."
_LONG = frozenset({"rouge_l", "rouge", "summary"})
"""The kinds of tasks whose answers are long."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a task's answers are like: its metrics, the headline first, and characters of references and outputs."""

    metrics: Sequence[str]
    right_or_wrong: bool
    characters: int


class _Words:
    """Texts and token ids of any length, cut from long ones."""

    def __init__(self, random: np.random.Generator) -> None:
        signs = np.array(list("abcdefghijklmnoprstuvwyz"))
        words = ["".join(random.choice(signs, size)) for size in random.integers(2, 11, 5_000)]
        self._random = random
        self._text = " ".join(words[place] for place in random.integers(0, len(words), 700_000))
        self._ids = random.integers(0, 128_000, 1_000_000).tolist()

    def text(self, mean: float) -> str:
        size = 1 + int(self._random.gamma(2.0, mean / 2))
        at = int(self._random.integers(0, len(self._text) - size))
        return self._text[at : at + size].strip()

    def ids(self, count: int) -> list[int]:
        at = int(self._random.integers(0, len(self._ids) - count))
        return list(self._ids[at : at + count])


def make(path: Path, answers: int = ANSWERS) -> None:
    """Make the file; the same for the same version of lbx, but for when it was made."""
    random = np.random.default_rng(SEED)
    words = _Words(random)
    with Store(path) as store:
        rows = islice(_runs(random, words), answers)
        for number, (run, batch) in enumerate(_by_run(rows)):
            store.begin_run(run)
            for at in range(0, len(batch), 2_000):
                part = batch[at : at + 2_000]
                store.write(
                    samples=[answer.sample for answer in part],
                    generations=[answer.generation for answer in part],
                    scores=[score for answer in part for score in answer.scores],
                )
            keep_sessions(store, [_session(run, number, batch)])
            if number + 1 < sum(RUNS.values()):
                add_up(store, run.run_id, BENCHMARKS[batch[0].sample.sample.benchmark])
                store.finish_run(run.run_id, "done")


@dataclass(frozen=True, slots=True)
class _Answer:
    run: RunRow
    sample: SampleRow
    generation: GenerationRow
    scores: Sequence[ScoreRow]


def _by_run(answers: Iterator[_Answer]) -> Iterator[tuple[RunRow, list[_Answer]]]:
    batch: list[_Answer] = []
    for answer in answers:
        if batch and batch[0].run is not answer.run:
            yield batch[0].run, batch
            batch = []
        batch.append(answer)
    yield batch[0].run, batch


def _runs(random: np.random.Generator, words: _Words) -> Iterator[_Answer]:
    for benchmark, runs in RUNS.items():
        tasks = {task: list(_samples(benchmark, task, random, words)) for task in _tasks(benchmark)}
        difficulty = {sample.sample.key: random.normal() for rows in tasks.values() for sample in rows}
        known: dict[tuple[Any, ...], tuple[str, float]] = {}
        for number in range(runs):
            place, variant = divmod(number, len(VARIANTS))
            run = _run(benchmark, place, list(VARIANTS)[variant], {task: len(rows) for task, rows in tasks.items()})
            skill = (0.9, 0.6, 0.4, 0.2, 0.0)[place] - 0.1 * variant
            for task, rows in tasks.items():
                kind = _kind(benchmark, task)
                for row in rows:
                    for iteration in range(BENCHMARKS[benchmark].protocol.iterations):
                        key = (place, row.sample.key, iteration)
                        alike = key in known and random.random() < list(VARIANTS.values())[variant]
                        said = known[key] if alike else _said(kind, skill - difficulty[row.sample.key], random, words)
                        known.setdefault(key, said)
                        yield _answer(run, row, iteration, place, kind, said, random, words)


def _tasks(benchmark: str) -> list[str]:
    return [task for task in BENCHMARKS[benchmark].catalogue.names if task != "nq" and not task.endswith("_e")]


def _kind(benchmark: str, task: str) -> _Kind:
    match benchmark:
        case "longbench":
            kind = longbench_tasks.kind_of(task).metric
            metrics = longbench_tasks.METRICS[kind]
        case "longbench_v2":
            kind, metrics = "choice", ("accuracy", "compensated", "empty")
        case "leval":
            kind = leval_tasks.KINDS[task]
            metrics = leval_tasks.METRICS[kind]
        case "lveval":
            kind = lveval_tasks.kind_of(task).metric
            metrics = lveval_tasks.METRICS[kind]
        case _:
            kind = longbench_pro_tasks.TASKS[task].metric
            metrics = longbench_pro_tasks.METRICS[kind]
    exact = metrics[0] in ("classification", "count", "retrieval", "exact_match", "accuracy", "subem")
    return _Kind(metrics, exact, 900 if kind in _LONG else 250 if kind == "edit_similarity" else 60)


def _samples(benchmark: str, task: str, random: np.random.Generator, words: _Words) -> Iterator[SampleRow]:
    count, on_one = _size(benchmark, task)
    kind = _kind(benchmark, task)
    lengths = 2 ** random.uniform(10, 15, 1 + count // on_one)
    if benchmark == "lveval":
        lengths = np.full(count, 1024 * int(task.rpartition("_")[2].removesuffix("k")))
    elif benchmark != "longbench":
        lengths = lengths * (4 if benchmark == "longbench_v2" else 1)
    for number in range(count):
        document = number // on_one
        length = int(lengths[document % len(lengths)])
        meta, language = _meta(benchmark, number, random)
        if benchmark == "longbench_pro":
            length = 1024 * int(meta["token_length"].removesuffix("k"))
        asked = f"{task.rpartition('_')[0]} {number}: " if benchmark == "lveval" else ""
        yield SampleRow(
            Sample(
                benchmark, task, f"{number:04d}", f"{benchmark} {task} {document}", asked + words.text(90),
                tuple(words.text(kind.characters / 2) for _ in range(1 + number % 2)), language, length,
                "tokens" if benchmark == "longbench_pro" else "words", meta,
            ),
            number,
        )  # fmt: skip


def _size(benchmark: str, task: str) -> tuple[int, int]:
    """How many questions a task has, and of how many on one document."""
    match benchmark:
        case "longbench":
            sizes = {"lcc": 500, "repobench-p": 500, "multifieldqa_en": 150}
            return sizes.get(task, 200), {"narrativeqa": 4, "qasper": 2}.get(task, 1)
        case "longbench_v2":
            return 503, 2
        case "leval":
            return _LEVAL.get(task, (15, 1))
        case "lveval":
            return 15, 1
        case _:
            return 60, 2


def _meta(benchmark: str, number: int, random: np.random.Generator) -> tuple[dict[str, Any], str]:
    if benchmark == "longbench_v2":
        domains = list(longbench_v2.DOMAINS)
        domain = domains[number % len(domains)]
        return {
            "difficulty": "easy" if random.random() < 0.38 else "hard",
            "length": ("short", "medium", "long")[int(random.choice(3, p=(0.36, 0.43, 0.21)))],
            "domain": domain,
            "sub_domain": longbench_v2.DOMAINS[domain][0],
            "choices": {letter: f"choice {letter} of {number}" for letter in "ABCD"},
        }, "en"
    if benchmark == "longbench_pro":
        return {
            "token_length": f"{8 << number % 6}k",
            "contextual_requirement": ("Full", "Partial")[number % 2],
            "difficulty": ("Easy", "Moderate", "Hard", "Extreme")[number % 4],
            "primary_task": "T3. Evidence-Grounded QA",
            "secondary_task": "T3.2 Single-Hop Fact QA",
            "row": number,
        }, ("en", "zh")[number % 2]
    return {"evaluation": "exam", "topic": number % 3, "source": "made"}, "en"


def _run(benchmark: str, place: int, variant: str, samples: Mapping[str, int]) -> RunRow:
    model = f"{MODELS[place]}-{variant}"
    settings = {
        "seed": 0, "iterations": BENCHMARKS[benchmark].protocol.iterations, "temperature": 0.0, "chat": True,
        "batching": True,
        "context_window": WINDOWS[place], "max_prompt_tokens": None, "max_new_tokens": None,
        "thinking": place == THINKING, "sampling": "official", "backend.n_batch": 512, "backend.flash_attn": False,
        "backend.cache_type_k": "f16", "backend.cache_type_v": "f16", "backend.threads": 8,
        "weights_sha256": f"{place}" * 64,
    }  # fmt: skip
    return RunRow(
        f"{model}-{benchmark}", model, "llamacpp", "0.3.36", {benchmark: BENCHMARKS[benchmark].metric_version},
        f"{len(benchmark):064d}", settings, {"cores": 8, "cpu": "a CPU", "network": "blocked"}, "0.1.0",
        {f"{benchmark}/{task}": count for task, count in samples.items()},
    )  # fmt: skip


def _said(kind: _Kind, ease: float, random: np.random.Generator, words: _Words) -> tuple[str, float]:
    """An output and its score."""
    chance = 1 / (1 + np.exp(-ease))
    if kind.right_or_wrong or random.random() < 0.2:
        return words.text(kind.characters), float(random.random() < chance)
    spread = 12.0 if kind.characters > 500 else 1.5
    height = 0.15 + 0.2 * chance if kind.characters > 500 else chance
    return words.text(kind.characters), float(random.beta(spread * height, spread * (1 - height)))


def _answer(
    run: RunRow, row: SampleRow, iteration: int, place: int, kind: _Kind, said: tuple[str, float],
    random: np.random.Generator, words: _Words,
) -> _Answer:  # fmt: skip
    sample, (output, score) = row.sample, said
    key = (run.run_id, *sample.key[:3], iteration)
    at = BEGUN + timedelta(days=place, seconds=row.position)
    original = int(sample.length * 1.4) + 120
    if random.random() < _failing(run):
        failed = GenerationRow(
            *key, error=_NO_ANSWER, error_type="PromptError", original_tokens=original, created_at=at
        )
        return _Answer(run, row, failed, ())
    prompt = min(original, WINDOWS[place] - 600)
    tokens = max(1, len(output) // 4)
    closed = place != THINKING or random.random() > 0.03
    generation = GenerationRow(
        *key,
        output=output if closed else "",
        finish_reason="stop" if closed and random.random() > 0.05 else "length",
        prompt_tokens=prompt,
        cached_tokens=prompt - 150 if row.position % 2 else 0,
        output_tokens=tokens,
        original_tokens=original,
        truncated=original > prompt,
        tokens_cut=original - prompt,
        reference_cut=bool(random.random() < 0.4) if original > prompt else None,
        prompt_sha256=sha256_text(f"{place} {sample.key}"),
        prompt_source="lbx",
        prefill_s=prompt / 2_500,
        decode_s=tokens / 30,
        seed=iteration,
        bos_tokens=1,
        output_ids=words.ids(tokens),
        created_at=at,
    )
    if place == THINKING:
        generation = _with_reasoning(generation, closed, words)
    return _Answer(run, row, generation, _scores(generation, kind, run.benchmark_versions, score if closed else 0.0))


def _with_reasoning(row: GenerationRow, closed: bool, words: _Words) -> GenerationRow:
    reasoning = words.text(600)
    tokens = len(reasoning) // 4
    return replace(
        row,
        reasoning=reasoning,
        reasoning_tokens=tokens,
        reasoning_closed=closed,
        stop_in_reasoning=False,
        output_tokens=(row.output_tokens or 0) + tokens,
    )


def _scores(row: GenerationRow, kind: _Kind, versions: Mapping[str, int], score: float) -> list[ScoreRow]:
    key = (row.run_id, row.benchmark, row.task, row.sample_id, row.iteration)
    return [
        ScoreRow(*key, metric, versions[row.benchmark], 0.0 if metric == "empty" else score, None, place == 0)
        for place, metric in enumerate(kind.metrics)
    ]


def _failing(run: RunRow) -> float:
    """Which share of a run's questions fails: none but of two models' smallest variants."""
    return 0.03 if run.model in {f"{MODELS[place]}-Q4_K_M" for place in (0, 3)} else 0.0


def _session(run: RunRow, number: int, answers: Sequence[_Answer]) -> SessionRow:
    rows = [answer.generation for answer in answers]
    prompt, output = (sum(getattr(row, name) or 0 for row in rows) for name in ("prompt_tokens", "output_tokens"))
    computed = prompt + output - sum(row.cached_tokens or 0 for row in rows)
    failed = sum(row.error is not None for row in rows)
    begun = BEGUN + timedelta(days=number)
    return SessionRow(
        run.run_id, 1, 0, run.hardware, len(rows), prompt, computed - output, output, computed / 2_000,
        "an earlier session", len(rows) - failed, failed, prompt, computed, output, computed / 1_900,
        computed / 2_500, output / 30, 12 << 30, "done", begun, begun + timedelta(hours=6),
    )  # fmt: skip


if __name__ == "__main__":
    make(Path(sys.argv[1]))
