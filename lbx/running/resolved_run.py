"""Runs resolved in a bundle, the check of samples against a results file, and the specs of stored runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import UsageError
from lbx.base.inputs import is_results_file
from lbx.base.phases import phases
from lbx.base.records import Chunk, Sample, Task
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.registry import benchmarks_with
from lbx.opinions.judge_spec import read_spec, spec_of
from lbx.opinions.rounds import JudgedModel
from lbx.options.run_spec import RunSettings, RunSpec
from lbx.options.sample_selection import Selection
from lbx.results import SampleRow, Store
from lbx.results.file.samples import refuse_other_samples
from lbx.results.file.sessions import newest_spec
from lbx.results.read.runs import resolve_runs_in
from lbx.running.jobs import RunQuestions, no_chunks
from lbx.running.retrieving import ChunkFinder

Chunks = Callable[[Benchmark, Sample], Sequence[Chunk]]
"""Function that returns a sample's retrieved chunks, in document order."""


@dataclass(frozen=True, slots=True)
class ResolvedRun:
    """Run with the tasks, samples and benchmarks of the spec, as found in the bundle. Sent to worker processes.

    Attributes:
        names, settings: name and settings of each of the runs that are executed together.
        extra_benchmarks: benchmarks that exist only in this run: the rounds of a judge, or families with samples for
            the run's model. Samples, tasks and prompts come from them (``benchmarks``).
        extra_settings: further settings that identify the run, such as the rubric of a judge.
        server: the only address that the run may reach.
        server_settings: settings of the server that the run starts, which identify the run; {} without a server.
        network: description of the offline method.
        bundle_check: description of the bundle's verification against its manifest.
    """

    spec: RunSpec
    bundle: Bundle
    tasks: Sequence[Task]
    selection: Selection
    names: Sequence[str | None]
    settings: Sequence[RunSettings]
    chunks: Chunks = no_chunks
    extra_benchmarks: Sequence[Benchmark] = ()
    extra_settings: Mapping[str, str] = field(default_factory=dict)
    judged_models: Sequence[JudgedModel] = ()
    server: tuple[str, int] | None = None
    server_settings: Mapping[str, Any] = field(default_factory=dict)
    network: str = ""
    bundle_check: str = ""

    @property
    def benchmarks(self) -> Mapping[str, Benchmark]:
        return benchmarks_with(*self.extra_benchmarks)

    def sample_rows(self) -> Iterator[SampleRow]:
        """Yield the rows of the selected samples. Raises BundleError if a data file is damaged."""
        for task in self.tasks:
            samples = self.benchmarks[task.benchmark].samples(self.bundle, task.name)
            for position, sample in self.selection.select(task, samples):
                yield SampleRow(sample, position)

    def with_retriever(self, finder: ChunkFinder, chunks: Chunks) -> ResolvedRun:
        """Copy of the run with retrieved chunks in place of documents, and the retriever's name in the settings."""
        settings = [replace(settings_of_run, retriever=finder.name) for settings_of_run in self.settings]
        return replace(self, settings=settings, chunks=chunks)

    @property
    def run_questions(self) -> list[RunQuestions]:
        return [
            RunQuestions(self.bundle, self.tasks, self.benchmarks, settings, self.selection)
            for settings in self.settings
        ]


@phases.measure("results file")
def check_samples(run: ResolvedRun, results: Path, shown_as: Path | None = None) -> None:
    """Check every sample of a run: the data can be read, and equals the data of an existing results file.

    Args:
        shown_as: name of the results file in messages.

    Raises:
        ConflictError: the file contains another revision of some samples.
        BundleError: a data file is damaged.
    """
    samples = run.sample_rows()
    if not results.is_file() or not results.stat().st_size:
        deque(samples, maxlen=0)
        return
    with Store(results, read_only=True) as store:
        refuse_other_samples(store, samples, shown_as or results)


_FIX = "To name a new run, pass --name."


def read_any_spec(file: Path, run: str | None) -> RunSpec:
    """Read a spec from a spec file, or the spec of a run from a results file.

    Raises:
        UsageError: the file is neither, or ``run`` is given for a spec file.
    """
    if not is_results_file(file):
        if run:
            raise UsageError(f"--run {run} requires a results file, but {file} is a spec.", fix=_FIX)
        return read_spec(file)
    names = resolve_runs_in(file, [run]) if run else ()
    spec = spec_of(newest_spec(file, *(names or [None])), str(file))
    return replace(spec, name=names[0]) if names else spec
