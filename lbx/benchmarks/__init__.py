"""Benchmark families, and the names of their tasks for ``--tasks``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.base.layout import Bundle
from lbx.base.records import Task
from lbx.benchmarks.base.benchmark import Benchmark, ScoringRules
from lbx.benchmarks.base.rubric import Rubric
from lbx.benchmarks.judge import Judging
from lbx.benchmarks.leval import judge as official_judge
from lbx.benchmarks.leval import judge_files as judge_files
from lbx.benchmarks.leval.benchmark import LEval
from lbx.benchmarks.leval.tasks import judged_samples as judged_samples
from lbx.benchmarks.longbench.benchmark import LongBench
from lbx.benchmarks.longbench_pro.benchmark import LongBenchPro
from lbx.benchmarks.longbench_v2.benchmark import LongBenchV2
from lbx.benchmarks.lveval.benchmark import LVEval
from lbx.benchmarks.needle.benchmark import Needle
from lbx.benchmarks.own.benchmark import OwnBenchmark as OwnBenchmark
from lbx.benchmarks.own.benchmark import own_benchmark
from lbx.benchmarks.own.benchmark import own_names as own_names


class _Benchmarks(Mapping[str, Benchmark]):
    """Built-in families by name, in the order of ``lbx tasks``; any other name is a custom benchmark.

    A custom benchmark is defined in the bundle, and each stored sample has the settings that score it, so it needs no
    entry here.
    """

    def __init__(self, *families: Benchmark) -> None:
        self._families = {family.name: family for family in families}

    def __getitem__(self, name: str) -> Benchmark:
        if name in self._families:
            return self._families[name]
        return Judging() if name == Judging.name else own_benchmark(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._families)

    def __len__(self) -> int:
        return len(self._families)


BENCHMARKS: Mapping[str, Benchmark] = _Benchmarks(
    Needle(), LongBench(), LongBenchV2(), LongBenchPro(), LVEval(), LEval()
)
"""Every benchmark by its name. Families are registered only here."""


def unit_of(name: str | None) -> float:
    """Return the official number of a score of 1 in a benchmark; 100 (percent) for unknown names."""
    family = BENCHMARKS.get(name) if name else None
    return (family.scoring if family else ScoringRules()).unit


def beside(own: Benchmark | None) -> Mapping[str, Benchmark]:
    """Return the benchmarks, with ``own`` if given, which a run brings along."""
    return _Benchmarks(*BENCHMARKS.values(), own) if own else BENCHMARKS


def select(bundle: Bundle, names: Sequence[str]) -> list[Task]:
    """Return the tasks that the names refer to, each once, in the order they were named.

    Args:
        bundle: bundle with the data.
        names: "all" (everything that was bundled), a family ("leval", "longbench_e") or a task ("leval/tpo"), which may
            be a pattern ("lveval/*_16k").

    Raises:
        UsageError: a name is unknown, or its data is not in the bundle.
        BundleError: a data file is damaged.
    """
    chosen: dict[str, Task] = {}
    for name in names:
        for task in _meant(bundle, name):
            chosen.setdefault(task.full_name, task)
    if not chosen and not names:
        raise UsageError(
            "No tasks given.",
            fix="Pass task names with --tasks, or --tasks all.",
            command=as_command("lbx", "tasks", "--bundle", bundle.root),
        )
    if not chosen:
        raise UsageError(
            f"The bundle at {bundle.root} has no benchmark data.",
            fix="Bundle a benchmark on a connected machine, or use the built-in needle without data: --tasks needle.",
        )
    return list(chosen.values())


def everything(bundle: Bundle) -> list[Task]:
    """Return all bundled tasks, family by family, then the custom benchmarks by name.

    Raises:
        BundleError: a data file is damaged, or the definition of a custom benchmark is invalid.
    """
    return [task for family in _there(bundle) if family.data.is_bundled(bundle) for task in family.tasks(bundle)]


def of_embedding(tasks: Iterable[Task]) -> list[str]:
    """Return full names of the tasks that an embedding model scores half of."""
    return [task.full_name for task in tasks if task.name in BENCHMARKS[task.benchmark].catalogue.embedding]


def format_names() -> list[str]:
    """Return the built-in benchmarks with official prediction files that lbx reads and writes."""
    return [name for name, family in BENCHMARKS.items() if family.predictions]


def official_rubric(bundle: Bundle) -> Rubric:
    """Return the official judge's rubric. Raises BundleError: the bundle lacks it, or has another one."""
    family = BENCHMARKS[official_judge.BENCHMARK]
    return official_judge.parse_rubric(family.data.official_file(bundle, official_judge.SCRIPT))


def rubric_file(name: str, bundle: Bundle) -> Path | None:
    """Return the file with a custom benchmark's rubric in a bundle, or None."""
    family = BENCHMARKS[name]
    return family.rubric_file(bundle) if isinstance(family, OwnBenchmark) else None


def _there(bundle: Bundle) -> list[Benchmark]:
    return [*BENCHMARKS.values(), *(BENCHMARKS[name] for name in own_names(bundle, reserved_names()))]


def reserved_names() -> dict[str, str]:
    """Return {reserved name for ``--tasks``: its meaning}; no custom benchmark can have these names."""
    names = {"all": "everything in the bundle", Judging.name: "the prompts of `lbx judge`"}
    for name, family in BENCHMARKS.items():
        names |= dict.fromkeys((name, *family.catalogue.selections), "a built-in benchmark")
    return names


def _meant(bundle: Bundle, name: str) -> list[Task]:
    if name == "all":
        return everything(bundle)
    benchmark, _, wanted = name.partition("/")
    families = _there(bundle)
    family = next((one for one in families if benchmark == one.name or benchmark in one.catalogue.selections), None)
    if family is None or (wanted and benchmark != family.name):
        raise _unknown(bundle, name)
    named: Sequence[str] = family.catalogue.selections.get(benchmark, family.catalogue.names)
    if wanted:
        known = family.catalogue.names or [task.name for task in family.tasks(bundle)]
        named = [task for task in known if fnmatchcase(task, wanted)]
        if not named:
            raise _unknown(bundle, name)
    tasks = [task for task in family.tasks(bundle, named or None) if not named or task.name in named]
    if not tasks:
        raise _not_held(bundle, family, name)
    return tasks


def _not_held(bundle: Bundle, family: Benchmark, name: str) -> UsageError:
    return UsageError(
        f"The bundle at {bundle.root} does not contain the data of {name}.",
        fix="Bundle the data on a connected machine.",
        command=as_command("lbx", "bundle", family.data.recipe),
    )


def _unknown(bundle: Bundle, name: str) -> UsageError:
    names = ["all"]
    lacking: list[UsageError] = []
    for family in _there(bundle):
        held = {task.name for task in family.tasks(bundle)}
        selections = [key for key, tasks in family.catalogue.selections.items() if held.intersection(tasks)]
        names += [family.name, *selections, *(f"{family.name}/{task}" for task in sorted(held))] if held else []
        if name in family.catalogue.names and name not in held:
            lacking.append(_not_held(bundle, family, f"{family.name}/{name}"))
    near = get_close_matches(name, names, n=3)
    # "qasper" differs from "longbench/qasper" in many letters, but is probably meant.
    near = list(dict.fromkeys([full for full in names if full.partition("/")[2] == name] + near))
    if lacking and not near:
        return lacking[0]
    return UsageError(
        f'There is no task "{name}".',
        fix=f"Did you mean {' or '.join(near)}?" if near else "",
        command=as_command("lbx", "tasks", "--bundle", bundle.root),
    )
