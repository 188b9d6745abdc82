"""A run looked up in its bundle, its check against a results file, and the specs of stored runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lbx.base.errors import UsageError
from lbx.base.inputs import is_results_file
from lbx.base.layout import Bundle
from lbx.base.records import Chunk, Sample, Task
from lbx.benchmarks import beside
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.judging.same_family import JudgedModel
from lbx.running.judge_spec import read_spec, spec_of
from lbx.running.retrieving import Finder
from lbx.spec.jobs import Agenda, nothing_retrieved
from lbx.spec.run_spec import RunSpec
from lbx.spec.selection import Selection
from lbx.spec.settings import RunSettings
from lbx.store import SampleRow, Store
from lbx.store.runs import named_in
from lbx.store.same_samples import refuse_other_samples
from lbx.store.sessions import newest_spec

Chunks = Callable[[Benchmark, Sample], Sequence[Chunk]]
"""A sample's retrieved chunks, in document order."""


@dataclass(frozen=True, slots=True)
class ResolvedRun:
    """A spec whose names have been looked up in its bundle. It travels to worker processes.

    Attributes:
        names, settings: of each of the runs that are made together, one row in the results file each.
        own: a benchmark that only this run has: a judge's rounds.
        told: what makes the run beside its settings: of a judge its rubric.
        judged: whose answers are judged.
        server: the one address that may be reached.
        network: how the run is kept offline, in words.
        checked: how the bundle was held against its manifest, in words.
    """

    spec: RunSpec
    bundle: Bundle
    tasks: Sequence[Task]
    selection: Selection
    names: Sequence[str | None]
    settings: Sequence[RunSettings]
    chunks: Chunks = nothing_retrieved
    own: Benchmark | None = None
    told: Mapping[str, str] = field(default_factory=dict)
    judged: Sequence[JudgedModel] = ()
    server: tuple[str, int] | None = None
    network: str = ""
    checked: str = ""

    @property
    def benchmarks(self) -> Mapping[str, Benchmark]:
        return beside(self.own)

    def sample_rows(self) -> Iterator[SampleRow]:
        """Rows of the selected samples. Raises BundleError: a data file is damaged."""
        for task in self.tasks:
            samples = self.benchmarks[task.benchmark].samples(self.bundle, task.name)
            for position, sample in self.selection.of(task, samples):
                yield SampleRow(sample, position)

    def reading(self, finder: Finder, chunks: Chunks) -> ResolvedRun:
        """The run with a retriever's chunks in place of documents; the retriever's name is part of its settings."""
        settings = [replace(one, retriever=finder.name) for one in self.settings]
        return replace(self, settings=settings, chunks=chunks)

    @property
    def agendas(self) -> list[Agenda]:
        """The agenda of each run."""
        return [
            Agenda(self.bundle, self.tasks, self.benchmarks, settings, self.selection) for settings in self.settings
        ]


def check_samples(run: ResolvedRun, results: Path, shown_as: Path | None = None) -> None:
    """Read every sample of a run, and compare it with a results file if there is one.

    Args:
        shown_as: the name of the file in the message.

    Raises:
        ConflictError: the file holds another revision of some samples.
        BundleError: a data file is damaged.
    """
    samples = run.sample_rows()
    if not results.is_file() or not results.stat().st_size:
        deque(samples, maxlen=0)
        return
    with Store(results, read_only=True) as store:
        refuse_other_samples(store, samples, shown_as or results)


_FIX = "To name a new run, give --name."


def read_any_spec(file: Path, run: str | None) -> RunSpec:
    """A spec from its own file, or that of a results file's run.

    Raises:
        UsageError: it is neither, or ``run`` is given for a spec's own file.
    """
    if not is_results_file(file):
        if run:
            raise UsageError(f"--run {run} names a run of a results file, and {file} is none.", fix=_FIX)
        return read_spec(file)
    names = named_in(file, [run]) if run else ()
    spec = spec_of(newest_spec(file, *(names or [None])), str(file))
    return replace(spec, name=names[0]) if names else spec
