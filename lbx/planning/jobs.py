"""A run's samples in jobs: large enough to find what prompts share, and a document's questions in one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from lbx.base.records import Sample, SampleKey, Task
from lbx.planning.work import Agenda


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
        """The item with some of its iterations."""
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
        """Smaller jobs where several processes share the work, so that none is left with a long last one."""
        if workers < 2:
            return cls()
        return cls(max(16, min(512, total // (8 * workers))), 8_000_000 // workers, 128_000_000 // workers)


def make_jobs(
    agendas: Sequence[Agenda],
    done: Sequence[AbstractSet[SampleKey]],
    size: JobSize,
    *,
    begins: Callable[[Task, int], None],
    found: Callable[[int], None],
) -> Iterator[Job]:
    """What is left to ask, in the data's order. Runs that are made together ask each sample one after the other.

    Args:
        agendas: of runs over the same tasks of the same bundle.
        done: of each, what has been answered or has failed.
        begins: told of each task, and how many answers it takes.
        found: told the run of each answer that is there already.

    Raises:
        BundleError: a data file is damaged.
    """
    job: list[PendingSample] = []
    questions = characters = 0
    first = agendas[0]
    for task in first.tasks:
        begins(task, sum(agenda.samples_in(task) * agenda.iterations_of(task) for agenda in agendas))
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
