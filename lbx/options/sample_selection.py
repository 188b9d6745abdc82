"""Selection of the samples of each task that a run asks, from the options.

A document is named by the SHA-256 of its text, and ``--sample`` draws documents in the order of the SHA-256 of seed and
name. The draw is therefore the same on every machine and Python version, a smaller N draws a subset of a larger one,
and tasks with the same documents draw the same ones first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import UsageError
from lbx.base.records import Sample, Task, sha256_text
from lbx.benchmarks.base.benchmark import Benchmark, marks_in
from lbx.benchmarks.registry import rubric_file
from lbx.options.run_spec import JUDGED, SampleOptions


@dataclass(frozen=True, slots=True)
class Selection:
    """Selected samples, by position in the data of each task.

    Attributes:
        positions: {full name of a task: positions, from 0}; no sample of other tasks is selected. None selects all.
    """

    positions: Mapping[str, AbstractSet[int]] | None = None

    def count(self, task: Task) -> int:
        return task.samples if self.positions is None else len(self.positions.get(task.full_name, ()))

    def select(self, task: Task, samples: Iterator[Sample]) -> Iterator[tuple[int, Sample]]:
        """Yield the task's selected samples with their positions, reading no further than the last one.

        Args:
            samples: all samples of the task, in the data's order.
        """
        if self.positions is None:
            yield from enumerate(samples)
        elif positions := self.positions.get(task.full_name):
            yield from (
                numbered for numbered in enumerate(islice(samples, max(positions) + 1)) if numbered[0] in positions
            )

    def __and__(self, other: Selection) -> Selection:
        """Intersection of two selections."""
        if self.positions is None or other.positions is None:
            return other if self.positions is None else self
        both = self.positions.keys() & other.positions.keys()
        return Selection({task: frozenset(self.positions[task] & other.positions[task]) for task in both})

    def first(self, tasks: Sequence[Task], count: int) -> Selection:
        """Select the first ``count`` samples of each task."""
        if self.positions is None:
            return Selection({task.full_name: frozenset(range(min(count, task.samples))) for task in tasks})
        return Selection({task: frozenset(sorted(places)[:count]) for task, places in self.positions.items()})


EVERYTHING = Selection()


def select_samples(
    choice: SampleOptions, bundle: Bundle, tasks: Sequence[Task], benchmarks: Mapping[str, Benchmark]
) -> Selection:
    """Select the samples that the options choose in a bundle. Reads the data unless only --limit is given.

    Raises:
        UsageError: a name in ``ids`` is not a sample of these tasks, or a benchmark has no judged questions.
        BundleError: a data file is damaged.
    """
    if choice.is_everything:
        return EVERYTHING
    if choice.ids:
        return _select_ids(choice.ids, bundle, tasks, benchmarks)
    if choice.questions is not None:
        _require_questions(bundle, tasks, benchmarks)
    elif choice.documents is None and choice.sample is None:
        return EVERYTHING.first(tasks, choice.limit or 0)
    places = {}
    for task in tasks:
        family = benchmarks[task.benchmark]
        samples: Iterator[tuple[int, Sample]] = enumerate(family.samples(bundle, task.name))
        if choice.questions is not None and family.catalogue.has_marks:
            samples = (numbered for numbered in samples if marks_in(numbered[1].meta))
        documents = _positions_by_document(islice(samples, choice.limit))
        places[task.full_name] = frozenset(_positions_on_documents(documents, choice))
    if choice.questions is not None and not any(places.values()):
        raise _no_questions_error(list(places), "Pass other tasks of the benchmark, or remove --questions.")
    return Selection(places)


def _require_questions(bundle: Bundle, tasks: Sequence[Task], benchmarks: Mapping[str, Benchmark]) -> None:
    """Raise UsageError for a benchmark without marks of questions for judges, and without a rubric in the bundle."""
    names = dict.fromkeys(task.benchmark for task in tasks)
    without = [name for name in names if not benchmarks[name].catalogue.has_marks and rubric_file(name, bundle) is None]
    if without:
        marked = " and ".join(name for name, family in benchmarks.items() if family.catalogue.has_marks)
        raise _no_questions_error(
            without,
            f"--questions {JUDGED} applies to {marked}, and to benchmarks of your own with a [rubric]: pass only their "
            "tasks, or remove the option.",
        )


def _no_questions_error(names: Sequence[str], fix: str) -> UsageError:
    has = "has" if len(names) == 1 else "have"
    return UsageError(f"{' and '.join(names)} {has} no questions for judges or raters.", fix=fix)


def _positions_by_document(samples: Iterable[tuple[int, Sample]]) -> dict[str, list[int]]:
    """Return {document: positions of its samples}, in the data's order. A question without a document counts as one."""
    positions: dict[str, list[int]] = {}
    for position, sample in samples:
        name = sha256_text(sample.context) if sample.context else str(sample.key)
        positions.setdefault(name, []).append(position)
    return positions


def _positions_on_documents(documents: Mapping[str, Sequence[int]], choice: SampleOptions) -> Iterator[int]:
    """Positions of the samples on the documents that --documents or --sample selects, by default on all documents."""
    if choice.sample is None:
        for places in islice(documents.values(), choice.documents):
            yield from places
        return
    missing = choice.sample
    for name in sorted(documents, key=lambda name: sha256_text(f"{choice.seed} {name}")):
        if missing <= 0:
            return
        missing -= len(documents[name])
        yield from documents[name]


_MAX_NAMES = 3


def _select_ids(
    ids: Sequence[str], bundle: Bundle, tasks: Sequence[Task], benchmarks: Mapping[str, Benchmark]
) -> Selection:
    parts = [_split_name(name, tasks, benchmarks) for name in dict.fromkeys(ids)]
    anywhere = {sample_id for task, sample_id in parts if not task}
    samples_of: dict[str, list[str]] = {}
    positions: dict[str, frozenset[int]] = {}
    for task in tasks:
        name = task.full_name
        here = anywhere | {sample_id for task_part, sample_id in parts if task_part == name}
        if not here:
            continue
        samples_of[name] = [sample.sample_id for sample in benchmarks[task.benchmark].samples(bundle, task.name)]
        positions[name] = frozenset(
            position for position, sample_id in enumerate(samples_of[name]) if sample_id in here
        )
    for task_name, sample_id in parts:
        sample_ids = (
            samples_of[task_name] if task_name else [candidate for names in samples_of.values() for candidate in names]
        )
        if sample_id not in sample_ids:
            location = " or ".join(samples_of) if len(samples_of) <= _MAX_NAMES else "these tasks"
            raise _unknown_sample(sample_id, task_name or location, sample_ids)
    return Selection(positions)


def _split_name(name: str, tasks: Sequence[Task], benchmarks: Mapping[str, Benchmark]) -> tuple[str, str]:
    """Split a sample's full name into ("benchmark/task", sample id), or a bare id, even with slashes, into ("", id)."""
    benchmark, _, rest = name.partition("/")
    task, _, sample_id = rest.partition("/")
    if benchmark not in benchmarks or not sample_id:
        return "", name
    full = f"{benchmark}/{task}"
    if full not in {task.full_name for task in tasks}:
        raise UsageError(
            f"--ids names {name}, but --tasks does not include {full}.", fix="Add it to --tasks, or remove the sample."
        )
    return full, sample_id


def _unknown_sample(sample_id: str, location: str, sample_ids: Sequence[str]) -> UsageError:
    near = get_close_matches(sample_id, dict.fromkeys(sample_ids), n=_MAX_NAMES, cutoff=0.5)
    some = ", ".join(list(dict.fromkeys(sample_ids))[:_MAX_NAMES])
    return UsageError(
        f"No sample {sample_id} in {location}.",
        fix=f"Did you mean {' or '.join(near)}?" if near else f"The first ones are {some}." if some else "",
    )
