"""Which of the authors' scripts are run in which ways, and what lbx would send in each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from lbx.base.bundle_folder import Bundle
from lbx.base.records import Chunk, Sample
from lbx.benchmarks import babilong, infinitebench, longbench_v2, lveval
from lbx.benchmarks.base.sources import JsonLines, RowSource
from lbx.benchmarks.leval import benchmark as leval
from lbx.benchmarks.leval import tasks as leval_tasks
from lbx.benchmarks.longbench import benchmark as longbench
from lbx.benchmarks.longbench_pro import benchmark as longbench_pro
from lbx.benchmarks.registry import BENCHMARKS
from lbx.options.asking import PLAIN, Mode
from tests.official.asking import Asker, Sent
from tests.official.calls import Recorded, Script

Row = Mapping[str, Any]
Rows = Mapping[str, Sequence[Row]]
Expected = Callable[[Asker, Sequence[str]], Iterator[list[Sent]]]
"""From lbx, and the configurations in the order in which the script loaded them, to every sample's steps."""


class ComparedNumber(NamedTuple):
    """A score of a task in the script's results, and lbx's."""

    name: str
    task: str
    official: float
    ours: float


@dataclass(frozen=True, slots=True)
class Run:
    """A script in one of its ways, beside lbx.

    Attributes:
        family, way: for the table.
        window: the context window in tokens of the model that the script is told of.
        limit: a prompt limit in tokens, where the script is given one that belongs to no window.
        served: the script hands texts to a server or to a model's own ``chat``, which put the chat template on.
        mode: of lbx's asking.
        wrapper: what the chat template puts around a prompt, where the script does not say.
        numbers: from what was recorded to the scores in the script's results.
    """

    family: str
    way: str
    script: Script
    window: int
    expected: Expected
    limit: int | None = None
    served: bool = False
    mode: Mode = PLAIN
    wrapper: tuple[str, str] = ("", "")
    numbers: Callable[[Recorded], Iterator[ComparedNumber]] | None = None


@dataclass(frozen=True, slots=True)
class Material:
    """What everything is made of.

    Attributes:
        folder: the checkouts.
        tokenizer: a folder.
        rows: how many of each task beside the longest; 0 means all.
    """

    bundle: Bundle
    folder: Path
    tokenizer: Path
    rows: int

    def chosen(self, source: RowSource | None, document: str, kind: str = "") -> list[Row]:
        """Rows at even distances and the longest, of each kind by that field; and all that were made up."""
        rows = [dict(row.values) for row in source.rows()] if source else []
        kinds: dict[str, list[int]] = {}
        for place, row in enumerate(rows):
            made = str(row.get("_id", row.get("id"))).startswith("made-")
            kinds.setdefault("made" if made else str(row.get(kind)), []).append(place)
        taken: set[int] = set()
        for name, places in kinds.items():
            count = len(places) if name == "made" or not self.rows else min(self.rows, len(places))
            taken |= {places[(2 * number + 1) * len(places) // (2 * count)] for number in range(count)}
            taken.add(max(places, key=lambda place: len(rows[place][document])))
        return [rows[place] for place in sorted(taken)]

    def script(self, *parts: str) -> Path:
        return self.folder.joinpath(*parts)


def all_runs(material: Material) -> Iterator[Run]:
    """Of every script that the checkout has, where the bundle has its data."""
    for family in (_leval, _pro, _v2, _lveval, _longbench, _babilong, _infinitebench):
        yield from (run for run in family(material) if run.script.path.is_file() and any(run.script.rows.values()))


LEVAL_SCRIPTS: tuple[tuple[str, str, int], ...] = (
    ("turbo16k-test.py", "16k", 16_384),
    ("turbo16k-test.py", "4k", 4_096),
    ("llama2-chat-test.py", "4k", 4_096),
    ("vicuna-test.py", "16k", 16_384),
    ("longchat-test.py", "16k", 16_384),
    ("xgen-test.py", "8k", 8_192),
    ("chatglm2-test.py", "8k", 8_192),
    ("mpt-test.py", "", 8_192),
    ("claude-test.py", "", 131_072),
)
"""Script, its --max_length, the context window that this means."""

LEVAL_QUESTIONS = 3
"""How many of a document's questions are asked where not all rows are."""

LEVAL_METRICS = {"exam_eval": "exam", "ngram_eval": "", "llm_gpt4_eval": "LLM", "human_eval": "human"}
"""--metric -> the mark of the rows that it asks."""


def _leval(material: Material) -> Iterator[Run]:
    rows = {task: _leval_rows(material, task) for task in leval.KINDS}  # type: ignore[attr-defined]
    known = _Known(material.bundle, rows, "input", _leval_content)
    for name, length, window in LEVAL_SCRIPTS:
        for metric, mark in LEVAL_METRICS.items():
            if mark in ("LLM", "human") and not name.startswith("turbo"):  # asked as the rows without a mark are
                continue
            argv = ["--metric", metric, *(["--max_length", length] if length else [])]
            path = material.script("LEval", "Baselines", name)
            script = Script(path, argv, rows, chat=name.startswith("chatglm"))
            # Runners of local models wrap prompts by hand, in words of their own: texts tell more than ids.
            yield Run(
                "leval", f"{metric} {length}".strip(), script, window, _leval_expected(rows, mark, known), served=True
            )


def _leval_rows(material: Material, task: str) -> list[Row]:
    rows = material.chosen(leval_tasks.find_source(material.bundle, task), "input", "evaluation")
    count = LEVAL_QUESTIONS if material.rows else None
    return [{**row, **{name: row[name][:count] for name in ("instructions", "outputs")}} for row in rows]


def _leval_expected(rows: Rows, mark: str, known: _Known) -> Expected:
    def expected(asker: Asker, loaded: Sequence[str]) -> Iterator[list[Sent]]:
        for task in loaded:
            samples = known.samples("leval", task)
            for row in rows[task]:
                judged = row["evaluation"] if row["evaluation"] in ("LLM", "human") else ""
                if judged != ("" if mark == "exam" else mark):
                    continue
                for question, answer in zip(row["instructions"], row["outputs"], strict=True):
                    yield asker.ask(samples[row["input"], question, answer])

    return expected


def _leval_content(sample: Sample) -> tuple[str, str, str]:
    return sample.context, sample.question, sample.references[0]


def _pro(material: Material) -> Iterator[Run]:
    data = longbench_pro._data(material.bundle)
    rows = {"default": material.chosen(data.source if data else None, "context")}
    expected = _by_id(material.bundle, rows, "id", "longbench_pro")
    for way, window, limit, mode in (
        ("non-thinking 128k", 131_072, None, PLAIN),
        ("non-thinking 128,000", 128_000, None, PLAIN),
        ("non-thinking 256k", 262_144, None, PLAIN),
        ("thinking 128k", 131_072, None, Mode(thinking=True, context_window=131_072)),
        ("thinking 256k", 262_144, None, Mode(thinking=True, context_window=262_144)),
        ("thinking model 128k", 131_072, None, Mode(thinking=True, reasoning_block=True, context_window=131_072)),
        ("non-thinking, limit 1,000", 131_072, 1_000, PLAIN),
        ("non-thinking, limit 777", 131_072, 777, PLAIN),
    ):
        length = limit or (224_000 if window == 262_144 else 120_000)
        budget = {PLAIN: 1_024}.get(mode, 32_768 if window == 262_144 else 8_192)
        argv = ["--only_infer", "--n_proc", "1", "--bon_num", "1", "--temperature", "1.0", "--tokenizer_path"]
        argv += [
            str(material.tokenizer.resolve()),
            "--context_max_length",
            str(length),
            "--max_new_tokens",
            str(budget),
        ]
        if mode.thinking:
            argv.append("--thinking_model" if mode.reasoning_block else "--thinking_enabled")
        script = Script(material.script("longcontext", "LongBench-Pro", "main.py"), argv, rows)
        yield Run("longbench_pro", way, script, window, expected, limit, served=True, mode=mode)


def _v2(material: Material) -> Iterator[Run]:
    found = material.chosen(longbench_v2._data(material.bundle), "context")
    rows = {"default": [{**row, "retrieved_context": _retrieved(row)} for row in found]}
    expected = _by_id(material.bundle, rows, "_id", "longbench_v2")
    folder = material.folder / "LongBench"
    for way, window, model, mode, options in (
        ("plain", 131_072, "Llama-3.1-8B-Instruct", PLAIN, ()),
        ("plain, 128,000", 128_000, "GLM-4-9B-Chat", PLAIN, ()),
        ("plain, OpenAI", 128_000, "gpt-4o-2024-08-06", PLAIN, ()),
        ("--cot", 131_072, "Llama-3.1-8B-Instruct", Mode(cot=True), ("--cot",)),
        ("--no_context", 131_072, "Llama-3.1-8B-Instruct", Mode(no_context=True), ("--no_context",)),
        ("--cot --no_context", 131_072, "Llama-3.1-8B-Instruct", Mode(cot=True, no_context=True),
         ("--cot", "--no_context")),
        ("--rag 3", 131_072, "Llama-3.1-8B-Instruct", Mode(rag=3), ("--rag", "3")),
        ("--cot --rag 3", 131_072, "Llama-3.1-8B-Instruct", Mode(rag=3, cot=True), ("--cot", "--rag", "3")),
    ):  # fmt: skip
        reads = (folder / "config", folder / "prompts")
        script = Script(folder / "pred.py", ["--model", model, "--n_proc", "1", *options], rows, reads)
        if mode.rag:  # pred.py's main drops the field that its own get_pred reads, so that is called itself
            arguments = {"model": model, "rag": mode.rag, "cot": mode.cot, "no_context": False}
            script = replace(script, function=("get_pred", arguments))
        yield Run("longbench_v2", way, script, window, expected, served=True, mode=mode)


def _retrieved(row: Row) -> list[dict[str, Any]]:
    """Four pieces of the document, the last the best; white space at their ends stays."""
    text = row["context"]
    size = max(1, min(2_000, len(text) // 5))
    return [{"content": text[place * size : (place + 1) * size], "c_idx": place} for place in (3, 1, 2, 0)]


def _chunks(row: Row, count: int) -> list[Chunk]:
    best = row["retrieved_context"][:count]
    found = [Chunk(one["c_idx"], rank, -float(rank), one["content"]) for rank, one in enumerate(best)]
    return sorted(found, key=lambda chunk: chunk.index)


def _by_id(bundle: Bundle, rows: Rows, key: str, family: str) -> Expected:
    @cache
    def samples() -> dict[str, Sample]:
        benchmark, ids = BENCHMARKS[family], {str(row[key]) for row in rows["default"]}
        found = (one for task in benchmark.tasks(bundle) for one in benchmark.samples(bundle, task.name))
        return {one.sample_id: one for one in found if one.sample_id in ids}

    def expected(asker: Asker, loaded: Sequence[str]) -> Iterator[list[Sent]]:
        for row in rows["default"]:
            yield asker.ask(samples()[str(row[key])], _chunks(row, asker.mode.rag) if asker.mode.rag else ())

    return expected


def _lveval(material: Material) -> Iterator[Run]:
    rows = {
        task: material.chosen(lveval._data(material.bundle, task), "context") for task in lveval.LVEval.catalogue.names
    }
    folder = material.folder / "LVEval"
    expected = _by_content(rows, "lveval", _Known(material.bundle, rows, "context", _content))
    for name, limit, window, chat in (
        ("llama2-7b-chat-hf", 3_500, 4_096, False),
        ("internlm-chat-7b-8k", 7_500, 8_192, False),
        ("vicuna-7b-v1.5-16k", 15_500, 16_384, False),
        ("Mistral-7B-Instruct-v0.1", 31_500, 32_768, False),
        ("BlueLM-7B-Chat-32K", 31_500, 32_768, False),
        ("Yi-6B-200K", 199_500, 200_000, False),
        ("chatglm3-6b-32k", 31_500, 32_768, True),
        ("Qwen-7B-8k-Chat", 7_500, 8_192, True),
    ):
        argv = ["--model-path", name, "--model-max-length", str(limit), "--single-process"]
        wrapper = None if chat else (str((folder / "utils.py").resolve()), name)
        script = Script(folder / "prediction.py", argv, rows, chat=chat, wrapper=wrapper)
        way = f"{name}, {limit:,}" + (", model.chat" if chat else "")
        yield Run("lveval", way, script, window, expected, served=chat)
    for name, limit, window in (("gpt-3.5-turbo-1106", 15_500, 16_384), ("glm-4", 127_500, 128_000)):
        script = Script(folder / "prediction_gpt.py", ["--model-name", name, "--model-max-length", str(limit)], rows)
        yield Run("lveval", f"{name}, {limit:,}", script, window, expected, served=True)


def _by_content(rows: Rows, family: str, known: _Known) -> Expected:
    def expected(asker: Asker, loaded: Sequence[str]) -> Iterator[list[Sent]]:
        for task in loaded:
            samples = known.samples(family, task)
            yield from (asker.ask(samples[row["context"], row["input"]]) for row in rows[task])

    return expected


class _Known:
    """lbx's own samples on the documents of the rows, by what tells them apart; each task's file is read once.

    Args:
        document: the rows' field.
        content: of a sample.
    """

    def __init__(self, bundle: Bundle, rows: Rows, document: str, content: Callable[[Sample], Any]) -> None:
        self._bundle, self._rows, self._document, self._content = bundle, rows, document, content
        self._read: dict[str, dict[Any, Sample]] = {}

    def samples(self, family: str, task: str) -> dict[Any, Sample]:
        if task not in self._read:
            documents = {row[self._document] for row in self._rows[task]}
            found = BENCHMARKS[family].samples(self._bundle, task) if documents else ()
            self._read[task] = {self._content(one): one for one in found if one.context in documents}
        return self._read[task]


def _content(sample: Sample) -> tuple[str, str]:
    return sample.context, sample.question


def _longbench(material: Material) -> Iterator[Run]:
    folder = material.folder / "LongBench" / "LongBench"
    for e, tasks in longbench.LongBench.catalogue.selections.items():
        rows = {task: material.chosen(longbench._data(material.bundle, task), "context") for task in tasks}
        expected = _by_content(rows, "longbench", _Known(material.bundle, rows, "context", _content))
        for name, window in (
            ("llama2-7b-chat-4k", 4_096),
            ("xgen-7b-8k", 8_192),
            ("internlm-7b-8k", 8_192),
            ("vicuna-v1.5-7b-16k", 16_384),
            ("longchat-v1.5-7b-32k", 32_768),
        ):
            argv = ["--model", name, *(["--e"] if e == "longbench_e" else [])]
            wrapper = (str((folder / "pred.py").resolve()), name)
            script = Script(folder / "pred.py", argv, rows, (folder / "config",), wrapper=wrapper)
            yield Run(e, name, script, window, expected)


def _babilong(material: Material) -> Iterator[Run]:
    script = material.script("babilong", "scripts", "run_model_on_babilong.py")
    length = "4k"
    rows = {
        f"{length}/{kind}": material.chosen(babilong._data(material.bundle, f"{kind}_{length}"), "input")
        for kind in babilong.LABELS
    }

    def expected(asker: Asker, loaded: Sequence[str]) -> Iterator[list[Sent]]:
        for name in loaded:
            kind = name.rpartition("/")[2]
            samples = list(BENCHMARKS["babilong"].samples(material.bundle, f"{kind}_{length}"))
            yield from (asker.ask(next(one for one in samples if _is_of(row, one))) for row in rows[name])

    for parts in (babilong.PARTS, (), ("instruction", "post_prompt"), ("examples",)):
        mode = Mode(**{part: part in parts for part in babilong.PARTS})
        argv = ["--results_folder", "out", "--dataset_name", "any", "--model_name", "m", "--api_url", "", "--tasks",
                *babilong.LABELS, "--lengths", length, *(f"--use_{part}" for part in parts)]  # fmt: skip
        yield Run(
            "babilong", ", ".join(parts) or "question only", Script(script, argv, rows), 131_072, expected, mode=mode
        )


def _is_of(row: Row, sample: Sample) -> bool:
    return (row["input"].strip(), row["question"], row["target"]) == (
        sample.context, sample.question, sample.references[0],
    )  # fmt: skip


def _infinitebench(material: Material) -> Iterator[Run]:
    script = material.script("InfiniteBench", "src", "eval_yi_200k.py")
    for task in infinitebench.TASKS:
        path = infinitebench._data(material.bundle, task)
        rows = {task: [dict(row.values) for row in JsonLines(path).rows()] if path else []}

        def expected(asker: Asker, _: Sequence[str], task: str = task) -> Iterator[list[Sent]]:
            yield from map(asker.ask, BENCHMARKS["infinitebench"].samples(material.bundle, task))

        argv = ["--task", task, "--model_name", "yi-34b-200k", "--data_dir", ".", "--output_dir", "out"]
        yield Run("infinitebench", task, Script(script, argv, rows), 262_144, expected, limit=200_000, served=True)
