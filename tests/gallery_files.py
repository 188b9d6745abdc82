"""Results files for pictures and measurements: many models with long names, six benchmarks, judges, raters, failures.

All answers and scores are drawn from fixed seeds, so every call writes the same rows.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path

from lbx.base.records import Sample, sha256_text
from lbx.benchmarks.judge import Round
from lbx.benchmarks.longbench.tasks import METRICS, TASKS, rules_of
from lbx.benchmarks.registry import BENCHMARKS
from lbx.benchmarks.ruler.tasks import TASKS as RULER_TASKS
from lbx.benchmarks.ruler.tasks import task_name
from lbx.opinions.aggregation import write_ratings
from lbx.opinions.rating_rows import RatingItemRow, RatingRow, RatingSetRow
from lbx.results import GenerationRow, RunRow, SampleRow, ScoreRow, Store
from lbx.results.file.sessions import store_sessions
from lbx.results.rows import SessionRow
from lbx.results.scoring.aggregation import aggregate_scores
from tests.judged_rounds import Said, add_judge, both_orders

MODELS = (
    "Qwen2.5-7B-Instruct-1M-GGUF-Q4_K_M", "Llama-3.1-8B-Instruct", "通义千问2.5-14B-指令版-长文本",
    "Qwen2.5-7B-Instruct-1M-GGUF-Q8_0", "Mistral-Nemo-Instruct-2407", "Qwen3-30B-A3B-Thinking-2507-FP8",
    "glm-4-9b-chat-1m", "Phi-3.5-mini-instruct-128k-onnx-int4-rtn-block-32", "gemma-3-12b-it",
    "gemma-3-27b-it-qat-q4_0",
    "Llama-3.3-70B-Instruct-AWQ-INT4", "书生-浦语-2.5-7B-1M", "Yi-1.5-34B-Chat-16K", "DeepSeek-R1-Distill-Qwen-14B",
    "Mixtral-8x22B-Instruct-v0.1", "Command-R-08-2024", "Jamba-1.5-Mini", "ProLong-8B-512k-Instruct",
    "LongWriter-llama3.1-8b",
    "Qwen2.5-72B-Instruct-GPTQ-Int4", "SmolLM2-1.7B-Instruct", "MegaBeam-Mistral-7B-512k", "InternLM3-8B-Instruct",
    "Ministral-8B-Instruct-2410", "Falcon3-10B-Instruct", "granite-3.3-8b-instruct", "EXAONE-3.5-7.8B-Instruct",
    "Hunyuan-A13B-Instruct", "MiniMax-Text-01", "Kimi-Linear-48B-A3B-Instruct", "Nemotron-Nano-9B-v2",
    "Llama-3.1-Nemotron-8B-UltraLong-4M-Instruct", "OLMo-2-1124-13B-Instruct", "aya-expanse-8b", "Baichuan2-13B-Chat",
    "ChatGLM3-6B-32k", "vicuna-13b-v1.5-16k", "LongAlpaca-13B", "Yarn-Mistral-7b-128k", "LongChat-7b-v1.5-32k",
)  # fmt: skip
_NAMES = ("Halcyon", "Meridian", "Petrel", "Corvina", "Lamplight", "Ostrava", "Tamsin", "Quillon", "Harrow", "Bexley")
_SENTENCE = (
    "the harbour register records that a survey of the eastern mole was ordered after the gale and its cost was shared "
    "between the town and the owners who had asked for deeper water since the spring while the committee noted several "
    "objections by pilots whose report differs on depth and on the number of boats lost during that winter"
)
_WORDS = _SENTENCE.split(" ")
_CHINESE = (
    "根据港口登记册记载大风之后委员会决定对东侧防波堤进行测量费用由市镇与船主共同承担领航员在报告中对水深提出意见"
)
_LENGTHS = (1_800, 3_100, 4_700, 6_200, 8_900, 11_500, 14_800, 21_000)
_START = datetime(2026, 3, 2, 6, tzinfo=UTC)


@dataclass(frozen=True)
class Sizes:
    """Numbers of questions: of each task of LongBench, of LongBench v2, of each cell of RULER and the needles."""

    longbench: int = 12
    v2: int = 30
    ruler: int = 3
    ruler_lengths: tuple[int, ...] = (4096, 16384, 32768, 131072)
    needle: int = 3
    leval: int = 0


def results_file(path: Path, models: Sequence[str], sizes: Sizes, *, last_answers: int | None = None) -> Path:
    """Write answers of these models; with L-Eval also a judge's verdicts and people's ratings.

    Args:
        last_answers: number of answers of the last model; default: as many as of the others.
    """
    questions = list(_questions(sizes))
    with Store(path) as store:
        for place, model in enumerate(models):
            chosen = questions if model != models[-1] else questions[:last_answers]
            _write_run(store, run_name(model), model, place, chosen, len(questions))
        if sizes.leval:
            opened = [question for question in questions if question.benchmark == "leval"]
            _write_judge(store, models[:4], opened)
            _write_ratings(store, models[:3], opened)
        _set_times(store)
    return path


def _set_times(store: Store) -> None:
    with store.transaction() as connection:
        times = [_START.replace(tzinfo=None), (_START + timedelta(hours=1)).replace(tzinfo=None)]
        connection.execute("UPDATE runs SET started_at = ?, finished_at = ?", times)


def run_name(model: str) -> str:
    return f"{model[:24].lower().replace(' ', '-')}-{random.Random(model).getrandbits(32):08x}"


def running_file(path: Path) -> Path:
    """Write a finished run, and one that a process left in the middle of its work."""
    questions = list(_questions(Sizes(4, 12, 1, needle=1)))
    with Store(path) as store:
        _write_run(store, run_name(MODELS[0]), MODELS[0], 0, questions, len(questions))
        _write_run(
            store, run_name(MODELS[3]), MODELS[3], 3, questions[: len(questions) // 2], len(questions), end=False
        )
    return path


def _questions(sizes: Sizes) -> Iterator[Sample]:
    for task, rules in TASKS.items():
        if task != "nq":
            for number in range(sizes.longbench):
                meta = {"all_classes": ["Abbreviation", "City"]} if rules.metric == "classification" else {}
                yield _sample("longbench", task, number, rules.language, _LENGTHS[number % len(_LENGTHS)], meta=meta)
    for number in range(sizes.v2):
        meta = {
            "difficulty": ("easy", "hard")[number % 2], "length": ("short", "medium", "long")[number % 3],
            "domain": ("Multi-Document QA", "Code Repository Understanding", "Long In-context Learning")[number % 3],
            "sub_domain": ("Legal", "Code repo QA", "Manytypes")[number % 3],
            "choices": {letter: _text(f"{number}{letter}", 9) for letter in "ABCD"},
        }  # fmt: skip
        yield replace(
            _sample("longbench_v2", "mcq", number, length=9_000 * (1 + number % 12), meta=meta), references=("B",)
        )
    for length in sizes.ruler_lengths:
        for base in RULER_TASKS:
            for number in range(sizes.ruler):
                sample = _sample("ruler", task_name(base, length), number, length=length - 30)
                yield replace(sample, length_unit="tokens", references=(str(4_000_000 + 7 * number),))
    for task in ("single_en", "multikey_en") if sizes.needle else ():
        for length in (1_000, 4_000, 16_000, 64_000, 128_000):
            for depth in (0.0, 0.25, 0.5, 0.75, 1.0):
                for number in range(sizes.needle):
                    place = int(length * 10 + depth * 4) * 10 + number
                    sample = _sample(
                        "needle", task, place, length=length, meta={"depth": depth, "needles": 1, "keys": ["maple"]}
                    )
                    yield replace(
                        sample, question="What is the code for maple?", references=(str(1000 + place % 9000),)
                    )
    for task in ("narrative_qa", "scientific_qa", "meeting_summ") if sizes.leval else ():
        for number in range(sizes.leval):
            meta = {"evaluation": "rouge" if task == "meeting_summ" else "f1", "judged_by": ["LLM", "human"]}
            yield _sample("leval", task, number, length=_LENGTHS[-1 - number % 8], meta=meta)


def _sample(
    benchmark: str,
    task: str,
    number: int,
    language: str = "en",
    length: int = 5_000,
    meta: dict[str, object] | None = None,
) -> Sample:
    key = f"{task}-{number}"
    if language == "zh":
        question, reference = f"委员会为什么决定进行第{number + 1}次测量？", _text(key, 14, "zh")
        length *= 2
    elif language == "code":
        question, reference = "", f"return self._{_pick(key).lower()}.get(key, {number})"
    else:
        question = f"What does the {_pick(key)} register record about {_text(key + '?', 9)}?"
        reference = _text(key, 8 if number % 3 else 24)
    document = f"document {number // 2} of {task}"
    unit = "characters" if language == "zh" else "words"
    return Sample(
        benchmark, task, f"{task}-{number:04d}", document, question, (reference,),
        language if language != "code" else "en", length, unit, meta or {},
    )  # fmt: skip


def _text(seed: str, words: int, language: str = "en") -> str:
    rng = random.Random(seed)
    if language == "zh":
        start = rng.randrange(len(_CHINESE))
        return (_CHINESE * 3)[start : start + words * 2]
    start = rng.randrange(len(_WORDS))
    drawn = (_WORDS * (2 + words // len(_WORDS)))[start : start + words]
    return " ".join(_pick(f"{seed}{at}") if rng.random() < 0.12 else word for at, word in enumerate(drawn))


def _pick(seed: str) -> str:
    return random.Random(seed).choice(_NAMES)


# Answers


def _write_run(
    store: Store, run: str, model: str, place: int, questions: Sequence[Sample], planned: int, *, end: bool = True
) -> None:
    versions = {name: BENCHMARKS[name].metric_version for name in dict.fromkeys(q.benchmark for q in questions)}
    settings = {"seed": 0, "dtype": "bf16" if place % 3 else "q4_k_m", "max_length": 131_072 >> place % 4}
    if "Think" in model:
        settings["thinking"] = True
    counts: dict[str, int] = {}
    for question in questions:
        name = f"{question.benchmark}/{question.task}"
        counts[name] = counts.get(name, 0) + 1
    if not end:
        counts = {name: number * 2 for name, number in counts.items()}
    backend = "llamacpp" if "GGUF" in model or "q4" in model else "hf"
    row = RunRow(
        run, model, backend, "0.3.36" if backend == "llamacpp" else "5.23.0", versions, "5f" * 32, settings,
        {"cpu": "2 x Xeon Gold 6448Y", "cores": 64, "gpu": "H100 80GB" if place % 2 else "RTX 6000 Ada"}, "0.1.0",
        counts,
    )  # fmt: skip
    store.begin_run(row)
    session = SessionRow(
        run, 1, 1, {"cores": 64}, planned_samples=planned, answered=len(questions), failed=0,
        wall_s=3600.0 + 60 * place, prefill_s=3000.0, decode_s=400.0,
        peak_memory_bytes=(9 + place) << 30, status="done" if end else "running",
        started_at=_START, finished_at=_START + timedelta(hours=1) if end else None, done_before=0, to_ask=planned,
    )  # fmt: skip
    store_sessions(store, [session])
    answers = [_answer(run, model, place, question) for question in questions]
    store.write(
        samples=[SampleRow(question, at) for at, question in enumerate(questions)],
        generations=[answer for answer, _ in answers],
        scores=[score for _, scores in answers for score in scores],
    )
    for name in versions if end else ():
        aggregate_scores(store, run, BENCHMARKS[name])
    if end:
        store.finish_run(run, "done")


def _skill(model: str) -> float:
    return 0.35 + 0.55 * (1 - MODELS.index(model) / len(MODELS) + random.Random(model).gauss(0, 0.12))


def _answer(run: str, model: str, place: int, question: Sample) -> tuple[GenerationRow, list[ScoreRow]]:
    key = (run, question.benchmark, question.task, question.sample_id, 0)
    rng = random.Random(repr(key))
    tokens = int(
        question.length * (1.35 if question.length_unit == "words" else 0.7 if question.language == "zh" else 1)
    )
    reach = 16_000 << place % 4
    decay = 0.13 * max(0.0, (tokens / reach) ** 0.5 - 0.4)
    share = _skill(model) + (random.Random(question.task.rsplit("_", 1)[0]).random() - 0.5) * 0.5 - decay
    if question.benchmark == "needle" and 0 < float(str(question.meta["depth"])) < 1:
        share -= decay
    share = min(1.0, max(0.02, share))
    created = _START + timedelta(seconds=rng.randrange(3_500))
    if tokens > 100_000 and place % 5 == 2 and rng.random() < 0.4:
        error = f"out of memory: {tokens / 9_000:.1f} GiB of keys and values do not fit into 9.6 GiB"
        return GenerationRow(*key, error=error, error_type="BackendError", prompt_tokens=tokens, created_at=created), []
    score, shown = _draw_score(question, share, rng)
    limit = 32_768 >> place % 3
    cut = max(0, tokens - limit) if question.benchmark in ("longbench", "leval") else 0
    thinks = "Think" in model or "R1" in model
    unclosed = thinks and rng.random() < 0.03
    row = GenerationRow(
        *key, output="" if unclosed or rng.random() < 0.004 else shown,
        reasoning=_text(shown + "r", 60) if thinks else None, reasoning_closed=not unclosed if thinks else None,
        reasoning_tokens=140 if thinks else None,
        finish_reason="length" if unclosed or rng.random() < 0.02 else "stop", prompt_tokens=tokens - cut,
        cached_tokens=tokens // 2 if rng.random() < 0.4 else 0, output_tokens=len(shown) // 4 + 1,
        original_tokens=tokens, truncated=cut > 0, tokens_cut=cut, prompt_source="lbx",
        prefill_s=tokens / (900 + 130 * (place % 7)),
        decode_s=(len(shown) // 4 + 1) / 45, seed=0, bos_tokens=1, created_at=created,
    )  # fmt: skip
    metrics = _metrics(question)
    version = BENCHMARKS[question.benchmark].metric_version
    scores = [
        ScoreRow(*key, metric, version, value if row.output else 0.0, shown[:40] or None, at == 0)
        for at, (metric, value) in enumerate((metric, score if metric != "empty" else 0.0) for metric in metrics)
    ]
    return row, scores


def _draw_score(question: Sample, share: float, rng: random.Random) -> tuple[float, str]:
    """Return a score and an answer that looks like it."""
    reference = question.references[0]
    exact = question.benchmark in ("needle", "ruler", "longbench_v2") or (
        question.benchmark == "longbench" and rules_of(question.task).metric in ("classification", "retrieval", "count")
    )
    score = float(rng.random() < share) if exact else round(min(1.0, max(0.0, rng.gauss(share, 0.22))), 3)
    wrong = _text(f"{rng.random()}", rng.choice((5, 9, 30, 70)), question.language)
    if question.benchmark == "longbench_v2":
        return score, f"The correct answer is ({'B' if score else rng.choice('ACD')})"
    if exact:
        return score, reference if score else str(rng.randrange(1000, 9999))
    if score > 0.85:
        return score, reference
    return score, f"{reference[: int(len(reference) * score)]} {wrong}".strip()


def _metrics(question: Sample) -> tuple[str, ...]:
    if question.benchmark == "longbench":
        return METRICS[rules_of(question.task).metric]
    if question.benchmark == "longbench_v2":
        return ("accuracy", "compensated", "empty")
    if question.benchmark == "leval":
        return ("geometric_mean", "rouge1", "rouge2", "rougeL") if question.task.endswith("summ") else ("f1",)
    if question.benchmark == "ruler":
        return tuple(score.metric for score in BENCHMARKS["ruler"].score(question, "4"))
    return ("recall",)


# Judges and people


def _write_judge(store: Store, models: Sequence[str], questions: Sequence[Sample]) -> None:
    def output(model: str, question: Sample) -> str:
        return _answer(run_name(model), model, models.index(model), question)[0].output or ""

    def rounds() -> Iterator[Said]:
        for first, second in combinations(models, 2):
            for question in questions:
                key = f"{first}{second}{question.sample_id}"
                asked = Round(
                    question.benchmark, question.task, question.sample_id, question.question, question.references,
                    run_name(first), output(first, question), 0, run_name(second), 0, output(second, question),
                    document_sha256=sha256_text(question.context), marks=("LLM",),
                )  # fmt: skip
                rng = random.Random(key)
                better = rng.random() < 0.5 + 1.2 * (_skill(first) - _skill(second))
                biased = rng.random() < 0.12
                words = f"Both answers name the {_pick(key)} register. {_text(key + 'why', 25).capitalize()}. "
                verdicts = ("[[A]]", "[[A]]") if biased else ("[[A]]", "[[B]]") if better else ("[[B]]", "[[A]]")
                yield from both_orders(asked, words + verdicts[0], words + verdicts[1])

    add_judge(store, "judge-qwen2.5-72b", list(rounds()), model="Qwen2.5-72B-Instruct-GPTQ-Int4")


def _write_ratings(store: Store, models: Sequence[str], questions: Sequence[Sample]) -> None:
    runs = [run_name(model) for model in models]
    rows: dict[str, list[RatingRow]] = {"score": [], "pair": []}
    for n, question in enumerate(questions):
        for rater in ("anna", "björn"):
            rng = random.Random(f"{question.sample_id}{rater}")
            for run, model in zip(runs, models, strict=True):
                value = min(5.0, max(1.0, float(round(_skill(model) * 4 + rng.gauss(0.6, 0.9)))))
                rows["score"].append(RatingRow("score", n, rater, run, score=value, created_at=_START))
            better = "answer" if rng.random() < 0.62 else rng.choice(("against", "tie", "both_bad"))
            rows["pair"].append(
                RatingRow("pair", n, rater, runs[0], against_run_id=runs[1], verdict=better, created_at=_START)
            )
    for kind, scale in (("score", (1.0, 5.0)), ("pair", (None, None))):
        items = [RatingItemRow(kind, n, *question.key[:3], n) for n, question in enumerate(questions)]
        write_ratings(store, [RatingSetRow(kind, kind, "human", runs, *scale, created_at=_START)], items, rows[kind])


def published_file(path: Path, shared: Path) -> Path:
    """Import all published predictions, judgements and ratings of a folder ``shared``: 19 runs, 12,856 answers."""
    predictions, judgements = shared / "data/predictions", shared / "data/judgements/leval"
    sources = [
        ("longbench", predictions / "longbench/llama2-7b-chat-4k", "llama2-7b-chat-4k"),
        ("longbench", predictions / "longbench/llama3-8b-instruct", "llama3-8b-instruct"),
        ("longbench_v2", predictions / "longbench_v2/oneshot.jsonl", "gpt-4o-mini"),
        ("leval", predictions / "leval/ngram_eval/llama2-13b-chat-4k", "llama2-13b-chat-4k"),
    ]
    for folder in ("human_eval", "llm_gpt4_eval", "llm_turbo_eval"):
        for file in sorted((judgements / folder).glob("*.pred.jsonl")):
            sources.append(("leval", file, f"{file.name.removesuffix('.pred.jsonl')} ({folder})"))
    for format_, source, model in sources:
        command = [
            sys.executable,
            "-P",
            "-m",
            "lbx.cli",
            "import",
            format_,
            str(source),
            "--model-name",
            model,
            "-o",
            str(path),
        ]
        subprocess.run(command, check=True, capture_output=True)
    return path
