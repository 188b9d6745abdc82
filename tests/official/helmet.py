"""HELMET: its own eval.py beside lbx, on made-up rows: prompts, draws, scores and their means.

eval.py needs two libraries that lbx does without: ``.ci/official-tools.sh``. Its results are read back, so that every
metric of every answer is compared, too. Left out are ALCE's citations and ROUGE, which need models and nltk's data.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from lbx.base.records import Sample, ScoredSample
from lbx.benchmarks.helmet import files
from lbx.benchmarks.helmet.tasks import (
    CATEGORIES,
    DATASETS,
    FOLDER,
    INFINITEBENCH,
    LENGTHS,
    MULTI_LEXSUM,
    NARRATIVEQA,
    dataset_of,
    official_name,
    size_of,
    split_task,
)
from lbx.benchmarks.registry import BENCHMARKS
from lbx.options.asking import Mode
from tests.official.asking import Asker, Sent
from tests.official.calls import Recorded, Script
from tests.official.families import ComparedNumber, Material, Row, Run
from tests.official.recorder import SENTINEL
from tests.official.samples import REPOSITORY

HELMET = BENCHMARKS["helmet"]
LIBRARIES = REPOSITORY / ".venv-official"
_WINDOW = 262_144
_TEMPLATE = "{{ bos_token }}Q: {{ messages[0]['content'] }}\nA:"
"""Chat template for tokenizers without one."""
_SPLITS = {
    NARRATIVEQA: ("default", ("train", "test")),
    MULTI_LEXSUM: ("v20230518", ("train", "validation")),
}


def helmet_runs(material: Material) -> Iterator[Run]:
    """Runs of eval.py: a category's tasks in one, with and without a chat template where the category has one."""
    if not material.script("HELMET", "eval.py").is_file():
        return
    if not LIBRARIES.is_dir():
        print("HELMET is left out: its scripts need the libraries of .ci/official-tools.sh. Run it.", file=sys.stderr)
        return
    tasks = HELMET.tasks(material.bundle)
    for category in CATEGORIES:
        chosen = [task.name for task in tasks if dataset_of(task.name).category == category]
        for chat in (False, True)[: 1 + dataset_of(chosen[0]).chat] if chosen else ():
            yield _run(material, chosen, chat=chat)


def _run(material: Material, tasks: Sequence[str], *, chat: bool) -> Run:
    @cache
    def samples() -> dict[str, list[Sample]]:
        return {task: list(HELMET.samples(material.bundle, task)) for task in tasks}

    first = dataset_of(tasks[0])
    lists = {
        "datasets": [official_name(task) for task in tasks],
        "input_max_length": [str(LENGTHS[split_task(task)[1]]) for task in tasks],
        "generation_max_length": [str(dataset_of(task).new_tokens) for task in tasks],
        "test_files": [_file(dataset_of(task).file, size_of(task)) for task in tasks],
        "demo_files": [_demo_file(task) for task in tasks],
    }
    argv = [part for name, values in lists.items() for part in (f"--{name}", ",".join(values))]
    argv += ["--model_name_or_path", "m", "--output_dir", "out", "--use_chat_template", str(chat)]
    argv += ["--max_test_samples", str(first.limit), "--shots", "0" if first.label_source else "2"]
    argv += ["--num_workers", "0", "--no_cuda", "--no_torch_compile"]
    template, wrapper = _chat_template(material.tokenizer) if chat else ("", ("", ""))
    data = material.bundle.snapshot("dataset", FOLDER)
    script = Script(
        material.script("HELMET", "eval.py"),
        argv,
        _hub_rows(material, tasks),
        (*([data / "data"] if data else []), material.script("HELMET", "prompts")),
        libraries=LIBRARIES,
        answers=lambda: [_answer(sample, n) for n, sample in enumerate(chain.from_iterable(samples().values()))],
        chat_template=template,
        results="out",
    )

    def expected(asker: Asker, _: Sequence[str]) -> Iterator[list[Sent]]:
        yield from (asker.ask(sample) for task in tasks for sample in samples()[task])

    def numbers(recorded: Recorded) -> Iterator[ComparedNumber]:
        for task in tasks:
            yield from _numbers(recorded, material, task, samples()[task], chat=chat)

    way = f"{first.category}, {'chat' if chat else 'no'} template"
    mode = Mode(chat_template=chat)
    return Run("helmet", way, script, _WINDOW, expected, mode=mode, wrapper=wrapper, numbers=numbers)


def _chat_template(folder: Path) -> tuple[str, tuple[str, str]]:
    """The tokenizer's chat template, and what it puts around a prompt."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    template = tokenizer.chat_template or _TEMPLATE
    messages = [{"role": "user", "content": SENTINEL}]
    text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=True)
    before, _, after = text.partition(SENTINEL)
    return template, (before, after)


def _file(path: str, size: int) -> str:
    return f"data/{path.format(size)}" if path else ""


def _demo_file(task: str) -> str:
    path = dataset_of(task).demo_file
    return path.removeprefix("princeton-nlp/HELMET/") if dataset_of(task).kind == "alce" else _file(path, 0)


def _hub_rows(material: Material, tasks: Sequence[str]) -> dict[str, list[Row]]:
    """Rows of the hub's data sets by the last part of the repository's name and the split."""
    found: dict[str, list[Row]] = {}
    bundle = material.bundle
    for dataset in {name: DATASETS[name] for name in (split_task(task)[0] for task in tasks)}.values():
        sources: dict[str, Any] = {}
        if of := dataset.label_source:
            splits = ("train", of.test) if of.test else ("train",)
            sources = {f"{of.repo}/{split}": files._split(bundle, of.repo, of.config, split) for split in splits}
        elif dataset.kind in files._BOOK_FILES:
            name = files._BOOK_FILES[dataset.kind].removesuffix(".jsonl")
            sources = {f"{INFINITEBENCH}/{name}": files._book_source(bundle, dataset.kind)}
        elif dataset.kind in ("narrativeqa", "multi_lexsum"):
            repo = NARRATIVEQA if dataset.kind == "narrativeqa" else MULTI_LEXSUM
            config, names = _SPLITS[repo]
            sources = {f"{repo}/{split}": files._split(bundle, repo, config, split) for split in names}
        for place, source in sources.items():
            name = place.split("/", 1)[1].lower()
            found[name] = [dict(row.values) for row in source.rows()]
    return found


def _answer(sample: Sample, place: int) -> str:
    """One of many forms of an answer, right or wrong."""
    references = sample.references or ("",)
    gold = references[place % len(references)]
    forms = (
        f" {gold}", f"{gold}\nand more", f" Answer: {gold}\nlabel: 3", f"\n{gold}", gold.upper() + ".",
        unicodedata.normalize("NFD", gold), f"the {gold}!", gold.lower().replace("-", " "), "", "the", "A) x", "yes",
        ", ".join(references), f"I think it is {gold}, or [1] {gold} [2][3].", f"corresponding value: {gold}",
        f"Summary: {gold} {gold}", f"{gold} > 3 > 1 > 1", "no 12 > 7", "1. 12\n2. 13", f"“{gold}”",
        gold[: len(gold) // 2],
        f"answer:answer: {gold}", f"label:{gold}", "，".join(references), f"<|im_end|>{gold} |", "B. " + gold,
    )  # fmt: skip
    return forms[place % len(forms)]


def _numbers(
    recorded: Recorded, material: Material, task: str, samples: Sequence[Sample], *, chat: bool
) -> Iterator[ComparedNumber]:
    """Text, metrics and means of a task's answers."""
    arguments = {"datasets": official_name(task), "input_max_length": LENGTHS[split_task(task)[1]]}
    name = next(name for name, found in recorded.results.items() if arguments.items() <= found.get("args", {}).items())
    mode, scored = Mode(chat_template=chat), []
    for sample, row in zip(samples, recorded.results[name]["data"], strict=True):
        start = HELMET.next_step(material.bundle, sample, mode, ["x"])
        assert isinstance(start, str)
        said = row["output"].removeprefix(start[:-1])
        output = HELMET.next_step(material.bundle, sample, mode, [said])
        assert isinstance(output, str)
        scores = HELMET.score(sample, output)
        scored.append(ScoredSample(sample, {score.metric: score.score for score in scores}))
        for score in scores:
            if score.metric in row:  # ALCE's are in the mean alone
                what = f"{sample.key} {score.metric} of {row['output'][:60]!r}"
                yield ComparedNumber(what, task, float(row[score.metric]), score.score)
    for number in HELMET.aggregate(task, scored):
        official = recorded.results[f"{name}.score"][number.metric]
        yield ComparedNumber(f"{task} mean of {number.metric}", task, official, number.official or 0.0)
