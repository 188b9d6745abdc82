"""The questions of a run, the loaded model that answers them, and jobs of samples.

A job is large enough to find what prompts share, and holds all questions on a document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from lbx.base.layout import Bundle
from lbx.base.records import PLAIN, Chunk, Mode, Prompt, Request, Sample, SampleKey, Task, sha256_text
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.inference.model import Backend, LocalBackend
from lbx.prompting.prompter import Prompter, ReadPrompt
from lbx.spec.selection import EVERYTHING, Selection
from lbx.spec.settings import RunSettings
from lbx.store import RunRow


def nothing_retrieved(_benchmark: Benchmark, _sample: Sample) -> Sequence[Chunk]:
    return ()


@dataclass(frozen=True, slots=True)
class Agenda:
    """The questions of one run. It needs no model: the process that writes may not have one."""

    bundle: Bundle
    tasks: Sequence[Task]
    benchmarks: Mapping[str, Benchmark]
    settings: RunSettings
    selection: Selection = EVERYTHING

    def samples_in(self, task: Task) -> int:
        """Number of selected samples of the task."""
        return self.selection.count(task)

    def iterations_of(self, task: Task) -> int:
        return self.settings.iterations or self.benchmarks[task.benchmark].protocol.iterations

    def read_together(self, sample: Sample) -> str:
        """Key of the text that prompts share: the document, or the question without one."""
        if sample.context and not self.settings.no_context:
            return sha256_text(sample.context)
        return self.benchmarks[sample.benchmark].cluster(sample, "") or str(sample.key)

    @property
    def task_index(self) -> dict[tuple[str, str], int]:
        """{(benchmark, task): index in ``tasks``}."""
        return {(task.benchmark, task.name): index for index, task in enumerate(self.tasks)}

    @property
    def total(self) -> int:
        return sum(self.samples_in(task) * self.iterations_of(task) for task in self.tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Agenda):
    """An agenda, and the loaded model that answers it.

    Attributes:
        row: the run's row in the results file, by the name that it has where the model is.
        mode: which of the benchmarks' ways to ask.
        chunks: a sample's retrieved chunks, in document order.
    """

    row: RunRow
    backend: Backend
    prompter: Prompter
    mode: Mode = PLAIN
    chunks: Callable[[Benchmark, Sample], Sequence[Chunk]] = nothing_retrieved

    @property
    def run_id(self) -> str:
        return self.row.run_id

    def prompt(self, sample: Sample) -> Prompt:
        """A sample's first prompt in this run. Raises BundleError: the bundle lacks the template."""
        benchmark = self.benchmarks[sample.benchmark]
        return benchmark.prompt(self.bundle, sample, self.mode, self.chunks(benchmark, sample))

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
    """Why prompts share no computation, a clause; None if they do, or if the model does not run here."""
    return backend.sequences().traits.single_reason if batching and isinstance(backend, LocalBackend) else None


Prepare = Callable[[], Sequence[Work]]
"""Loads the model for all runs that are made together. It travels to other processes by its name: a function of a
module, or a ``functools.partial`` of one."""


@dataclass(frozen=True, slots=True)
class PendingSample:
    """One sample that is to be asked.

    Attributes:
        run: which of the runs that are made together it belongs to.
        position: the sample's place in its task.
        iterations: those that have no answer yet.
    """

    run: int
    sample: Sample
    position: int
    iterations: tuple[int, ...]

    def only(self, iterations: AbstractSet[int]) -> PendingSample:
        return replace(self, iterations=tuple(one for one in self.iterations if one in iterations))


Job = Sequence[PendingSample]


@dataclass(frozen=True, slots=True)
class JobSize:
    """When a job is large enough. It ends at the next document then.

    Attributes:
        questions: prompts; all iterations of a sample count.
        characters: of documents and questions, each sample's once. A token of a waiting prompt takes some 12 bytes, and
            iterations share them.
        most_characters: a job ends there, even within a document, which is then read again: 250 questions on one of
            128,000 tokens, some 600 MB.
    """

    questions: int = 512
    characters: int = 8_000_000
    most_characters: int = 128_000_000

    @classmethod
    def for_workers(cls, workers: int, total: int) -> JobSize:
        """Smaller jobs for several processes, so that none is left with a long last one."""
        if workers < 2:
            return cls()
        return cls(max(16, min(512, total // (8 * workers))), 8_000_000 // workers, 128_000_000 // workers)


def make_jobs(
    agendas: Sequence[Agenda],
    done: Sequence[AbstractSet[SampleKey]],
    size: JobSize,
    found: Callable[[int], None] = lambda _run: None,
) -> Iterator[Job]:
    """What is left to ask, in the data's order. Runs that are made together ask each sample one after the other.

    Args:
        agendas: of runs over the same tasks of the same bundle.
        done: of each, what has been answered or has failed.
        found: told the run of each answer that is there already.

    Raises:
        BundleError: a data file is damaged.
    """
    job: list[PendingSample] = []
    questions = characters = 0
    first = agendas[0]
    for task in first.tasks:
        samples = first.benchmarks[task.benchmark].samples(first.bundle, task.name)
        for position, sample in first.selection.of(task, samples):
            full = questions >= size.questions or characters >= size.characters
            apart = full and bool(job) and first.read_together(sample) != first.read_together(job[-1].sample)
            if apart or characters >= size.most_characters:
                yield job
                job, questions, characters = [], 0, 0
            for run, agenda in enumerate(agendas):
                keys = {i: sample.key._replace(iteration=i) for i in range(agenda.iterations_of(task))}
                left = tuple(i for i, key in keys.items() if key not in done[run])
                for _ in range(len(keys) - len(left)):
                    found(run)
                if left:
                    job.append(PendingSample(run, sample, position, left))
                    questions += len(left)
                    characters += len(sample.context) + len(sample.question)
    if job:
        yield job
