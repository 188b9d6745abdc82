"""Questions of runs, the loaded model that answers the questions, and jobs of several questions.

A job contains all questions about a document, and is large enough for prompts to share prefixes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.records import Chunk, Prompt, Request, Sample, SampleKey, Task, sha256_text
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.engine.model import Backend, LocalBackend
from lbx.engine.prompter import Prompter, ReadPrompt
from lbx.options.asking import PLAIN, Mode
from lbx.options.run_spec import RunSettings
from lbx.options.sample_selection import EVERYTHING, Selection
from lbx.results import RunRow


def no_chunks(_benchmark: Benchmark, _sample: Sample) -> Sequence[Chunk]:
    return ()


@dataclass(frozen=True, slots=True)
class RunQuestions:
    """Questions of one run: the selected samples of tasks, with the run's settings.

    The process that writes the results file uses this class, because a worker may load the model instead. ``Work`` adds
    the loaded model.
    """

    bundle: Bundle
    tasks: Sequence[Task]
    benchmarks: Mapping[str, Benchmark]
    settings: RunSettings
    selection: Selection = EVERYTHING

    def samples_in(self, task: Task) -> int:
        """Number of samples of a task that the run selects."""
        return self.selection.count(task)

    def iterations_of(self, task: Task) -> int:
        return self.settings.iterations or self.benchmarks[task.benchmark].protocol.iterations

    def document_key(self, sample: Sample) -> str:
        """Key of the text that a sample's prompts share: the document, or the question if there is no document."""
        if sample.context and not self.settings.no_context:
            return sha256_text(sample.context)
        return self.benchmarks[sample.benchmark].cluster(sample, "") or str(sample.key)

    @property
    def task_index(self) -> dict[tuple[str, str], int]:
        """Return {(benchmark, task): index in ``tasks``}."""
        return {(task.benchmark, task.name): index for index, task in enumerate(self.tasks)}

    @property
    def total(self) -> int:
        return sum(self.samples_in(task) * self.iterations_of(task) for task in self.tasks)


@dataclass(frozen=True, slots=True)
class TaskQuestions:
    """Number of a task's samples, and keys of the documents that the samples are about, which tasks may share."""

    benchmark: str
    task: str
    samples: int
    documents: AbstractSet[str]


def count_questions(questions: RunQuestions) -> list[TaskQuestions]:
    """Count each task's selected samples and documents in the data. Raises BundleError if a file is damaged."""
    counts = []
    for task in questions.tasks:
        samples = questions.benchmarks[task.benchmark].samples(questions.bundle, task.name)
        keys = [questions.document_key(sample) for _, sample in questions.selection.select(task, samples)]
        counts.append(TaskQuestions(task.benchmark, task.name, len(keys), frozenset(keys)))
    return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(RunQuestions):
    """Questions of one run, with the loaded model that answers.

    Attributes:
        row: the run's row in the results file, under the name used in the model's process.
        mode: prompting mode of the benchmarks.
        chunks: function that returns a sample's retrieved chunks, in document order.
    """

    row: RunRow
    backend: Backend
    prompter: Prompter
    mode: Mode = PLAIN
    chunks: Callable[[Benchmark, Sample], Sequence[Chunk]] = no_chunks

    @property
    def run_id(self) -> str:
        return self.row.run_id

    def prompt(self, sample: Sample) -> Prompt:
        """Make the first prompt of a sample in this run. Raises BundleError if the bundle lacks the template."""
        benchmark = self.benchmarks[sample.benchmark]
        return benchmark.prompt(self.bundle, sample, self.mode, self.chunks(benchmark, sample))

    def planned_prompts(self, sample: Sample) -> list[Prompt]:
        """Make the prompts of a sample that are known before any answer. Raises BundleError like ``prompt``."""
        later = self.benchmarks[sample.benchmark].later_prompts(self.bundle, sample, self.mode)
        return [self.prompt(sample), *later]

    def prepare_prompt(self, key: SampleKey, prompt: Prompt) -> ReadPrompt:
        """Convert a prompt to a request, with the text that the model reads. The iteration determines the seed.

        Raises:
            PromptError: the prompt cannot be made to fit.
        """
        return self.prompter.read(key, prompt, self.settings.sampling_for(prompt, key.iteration))

    def request(self, key: SampleKey, prompt: Prompt) -> Request:
        """Convert a prompt to a request to the model, like ``prepare_prompt``."""
        return self.prepare_prompt(key, prompt).request


def reason_not_shared(backend: Backend, *, batching: bool) -> str | None:
    """Reason why prompts share no computation, as a clause, or None if prompts share or the model runs elsewhere."""
    return backend.sequences().traits.single_reason if batching and isinstance(backend, LocalBackend) else None


Prepare = Callable[[], Sequence[Work]]
"""Function that loads the model for all runs that are executed together. Worker processes unpickle it by name: it is a
function of a module, or a ``functools.partial`` of such a function.
"""


@dataclass(frozen=True, slots=True)
class PendingSample:
    """Sample that a run has yet to ask.

    Attributes:
        run: index of the run among the runs that are executed together.
        position: position of the sample in the task's data.
        iterations: iterations without an answer.
        finished_steps: {iteration: finished steps of an unfinished or failed answer, as in ``GenerationRow.steps``}.
    """

    run: int
    sample: Sample
    position: int
    iterations: tuple[int, ...]
    finished_steps: dict[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def with_iterations(self, iterations: AbstractSet[int]) -> PendingSample:
        return replace(self, iterations=tuple(iteration for iteration in self.iterations if iteration in iterations))


Job = Sequence[PendingSample]


@dataclass(frozen=True, slots=True)
class JobSize:
    """Limits at which a job ends, before the next document or at once.

    Attributes:
        questions: number of prompts, including all iterations of a sample.
        characters: total length of documents and questions, counted once per sample. A token of a waiting prompt takes
            about 12 bytes, which iterations share.
        most_characters: hard limit: a job ends even within a document, which is then read again. Equal to 250 questions
            on a document of 128,000 tokens, or about 600 MB.
    """

    questions: int = 512
    characters: int = 8_000_000
    most_characters: int = 128_000_000

    @classmethod
    def for_workers(cls, workers: int, total: int) -> JobSize:
        """Limits of smaller jobs for several processes, so that none computes a long last job alone."""
        if workers < 2:
            return cls()
        return cls(max(16, min(512, total // (8 * workers))), 8_000_000 // workers, 128_000_000 // workers)


def make_jobs(
    run_questions: Sequence[RunQuestions],
    finished_keys: Sequence[AbstractSet[SampleKey]],
    size: JobSize,
    on_existing: Callable[[int], None] = lambda _run: None,
) -> Iterator[Job]:
    """Yield jobs of unanswered samples in the data's order, with all runs' questions on a sample in succession.

    Args:
        run_questions: questions of runs over the same tasks of the same bundle.
        finished_keys: answered or failed samples of each run.
        on_existing: called with the run's index for each answer that already exists.

    Raises:
        BundleError: a data file is damaged.
    """
    job: list[PendingSample] = []
    questions = characters = 0
    first = run_questions[0]
    for task in first.tasks:
        samples = first.benchmarks[task.benchmark].samples(first.bundle, task.name)
        for position, sample in first.selection.select(task, samples):
            full = questions >= size.questions or characters >= size.characters
            apart = full and bool(job) and first.document_key(sample) != first.document_key(job[-1].sample)
            if apart or characters >= size.most_characters:
                yield job
                job, questions, characters = [], 0, 0
            for run, questions_of_run in enumerate(run_questions):
                keys = {i: sample.key._replace(iteration=i) for i in range(questions_of_run.iterations_of(task))}
                remaining = tuple(i for i, key in keys.items() if key not in finished_keys[run])
                for _ in range(len(keys) - len(remaining)):
                    on_existing(run)
                if remaining:
                    job.append(PendingSample(run, sample, position, remaining))
                    questions += len(remaining)
                    characters += len(sample.context) + len(sample.question)
    if job:
        yield job
