"""Everything a run or a plan needs, in one value: what is asked, and the model that is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lbx.base.layout import Bundle
from lbx.base.records import PLAIN, Chunk, Mode, Prompt, Request, Sample, SampleKey, Task, sha256_text
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.base.summaries import Summaries
from lbx.inference.model import Backend, LocalBackend
from lbx.planning.selection import EVERYTHING, Selection
from lbx.planning.settings import RunSettings
from lbx.prompting.prompter import Prompter, ReadPrompt
from lbx.store import RunRow


def nothing_retrieved(_benchmark: Benchmark, _sample: Sample) -> Sequence[Chunk]:
    """For runs that read whole documents."""
    return ()


def whole_document(sample: Sample) -> Sample:
    """The same."""
    return sample


@dataclass(frozen=True, slots=True)
class Agenda:
    """What one run asks. It needs no model: the process that writes may not have one."""

    run_id: str
    bundle: Bundle
    tasks: Sequence[Task]
    benchmarks: Mapping[str, Benchmark]
    settings: RunSettings
    selection: Selection = EVERYTHING

    def samples_in(self, task: Task) -> int:
        """How many of the task's samples are to be asked."""
        return self.selection.count(task)

    def iterations_of(self, task: Task) -> int:
        """How often each of the task's samples is asked."""
        asked = None if task.benchmark == Summaries.name else self.settings.iterations
        return asked or self.benchmarks[task.benchmark].iterations

    def read_together(self, sample: Sample) -> str:
        """What names the text that prompts share: the document; a question without one stands for itself."""
        if sample.context and not self.settings.no_context:
            return sha256_text(sample.context)
        return self.benchmarks[sample.benchmark].cluster(sample, "") or str(sample.key)

    @property
    def total(self) -> int:
        return sum(self.samples_in(task) * self.iterations_of(task) for task in self.tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Agenda):
    """An agenda, and the loaded model that answers it.

    Attributes:
        mode: which of the benchmarks' ways to ask.
        chunks: a sample's retrieved chunks, in document order.
        document: the sample with what stands in place of its document.
    """

    backend: Backend
    prompter: Prompter
    mode: Mode = PLAIN
    chunks: Callable[[Benchmark, Sample], Sequence[Chunk]] = nothing_retrieved
    document: Callable[[Sample], Sample] = whole_document

    def prompt(self, sample: Sample) -> Prompt:
        """A sample's first prompt as this run asks it. Raises BundleError where the bundle lacks the template."""
        benchmark = self.benchmarks[sample.benchmark]
        return benchmark.prompt(self.bundle, self.document(sample), self.mode, self.chunks(benchmark, sample))

    def read(self, key: SampleKey, prompt: Prompt) -> ReadPrompt:
        """A prompt as this run's model reads it, and its text; drawn answers hang on the key's iteration.

        Raises:
            PromptError: it cannot be made to fit.
        """
        return self.prompter.read(key, prompt, self.settings.sampling_for(prompt, key.iteration))

    def request(self, key: SampleKey, prompt: Prompt) -> Request:
        """The same without its text."""
        return self.read(key, prompt).request


def not_shared(backend: Backend, *, batching: bool) -> str | None:
    """Why prompts share nothing that is computed, a clause; None: they do, or nothing is computed here."""
    return backend.sequences().traits.single_reason if batching and isinstance(backend, LocalBackend) else None


class Prepared(NamedTuple):
    """A loaded model's work for one run, and the row that the run gets in the results file."""

    work: Work
    row: RunRow


Prepare = Callable[[], Sequence[Prepared]]
"""Loads the model for all runs that are made together. It travels to other processes by its name: a function of a
module, or a ``functools.partial`` of one."""
