"""A benchmark family with samples that depend on the model's tokenizer: a number of words that fills a length."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from lbx.base.bundle_folder import Bundle
from lbx.base.number import Number
from lbx.base.records import Chunk, Prompt, Sample, Score, ScoredSample, Task, Truncation
from lbx.benchmarks.base.aggregates import task_score
from lbx.benchmarks.base.benchmark import AskingProtocol, Benchmark, TaskCatalogue, UnloadedModel, no_model_error
from lbx.benchmarks.own.benchmark import CustomFormat
from lbx.options.asking import PLAIN, Mode

NAME = "words"
LENGTHS = (64, 128, 100_000)
SAMPLES = 3
BUDGET = 4
PREFIX = " There are"


def length_of(task: str) -> int:
    """The length in a task's name, "count_64"; 0 for other names."""
    kind, _, length = task.partition("_")
    return int(length) if kind == "count" and length.isdecimal() and int(length) >= 32 else 0


class Words(Benchmark):
    """Counts words."""

    name = NAME
    metric_version = 1
    catalogue = TaskCatalogue(tuple(f"count_{length}" for length in LENGTHS), accepts=lambda task: length_of(task) > 0)
    protocol = AskingProtocol(modes=frozenset({"template"}))
    predictions = CustomFormat(NAME, catalogue.names)

    def __init__(self, model: UnloadedModel | None = None, template: str = "") -> None:
        self._model, self._template = model, template

    def for_model(self, model: UnloadedModel, mode: Mode) -> Words:
        return Words(model, mode.template)

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        window = (self._model and self._model.context_window) or max(LENGTHS)
        fitting = [name for name in self.catalogue.names if length_of(name) <= window]
        return [Task(NAME, name, ("right",), SAMPLES) for name in (fitting if names is None else names)]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        if self._model is None:
            raise no_model_error(self.name)
        tokenizer, sha256, wrapping, _ = self._model.load_tokenizer()
        prefix = len(tokenizer.encode(PREFIX, special=False))
        room = length_of(task) - BUDGET - prefix - (wrapping if self._template else 0)
        for number in range(SAMPLES):
            text = f"{number} boats"
            while len(tokenizer.encode(longer := f"{text} boats", special=False)) <= room:
                text = longer
            yield Sample(NAME, task, f"{sha256[:8]}-{number:04d}", text, "How many?", (str(text.count("boats")),))

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        prompt = Prompt("", sample.context, "", BUDGET, Truncation.REFUSE, chat=bool(mode.template))
        return replace(prompt, answer_prefix="" if mode.thinking else PREFIX)

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        return [Score("right", float(output in sample.references))]

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        return task_score("right", rows, "right", 2)
