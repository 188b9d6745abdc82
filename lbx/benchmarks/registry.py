"""Registry of benchmark families, and selection of tasks by names for ``--tasks``. Importing it loads every family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from lbx.base.errors import UsageError
from lbx.base.layout import Bundle
from lbx.base.records import Task
from lbx.base.visible import as_command
from lbx.benchmarks.base.benchmark import Benchmark, ScoringRules, needs_model
from lbx.benchmarks.base.rubric import Rubric
from lbx.benchmarks.graphwalks import GraphWalks
from lbx.benchmarks.judge import JudgeBenchmark
from lbx.benchmarks.leval import judge as official_judge
from lbx.benchmarks.leval.benchmark import LEval
from lbx.benchmarks.leval.tasks import judged_samples
from lbx.benchmarks.longbench import harness_rows as longbench_harnesses
from lbx.benchmarks.longbench.benchmark import LongBench
from lbx.benchmarks.longbench_pro.benchmark import LongBenchPro
from lbx.benchmarks.longbench_v2 import LongBenchV2
from lbx.benchmarks.lveval import LVEval
from lbx.benchmarks.mrcr import Mrcr
from lbx.benchmarks.needle import Needle
from lbx.benchmarks.own.benchmark import CustomBenchmark, custom_benchmark, custom_names
from lbx.benchmarks.ruler.benchmark import Ruler

__all__ = [
    "BENCHMARKS",
    "EXPORT_FORMATS",
    "IMPORT_FORMATS",
    "CustomBenchmark",
    "all_tasks",
    "benchmarks_with",
    "custom_names",
    "embedding_tasks",
    "format_names",
    "judged_samples",
    "longbench_harnesses",
    "model_families",
    "official_judge",
    "official_rubric",
    "reserved_names",
    "rubric_file",
    "select",
    "unit_of",
]


class _Benchmarks(Mapping[str, Benchmark]):
    """Mapping of names to built-in families, in the order of ``lbx tasks``. Any other name gives a custom benchmark.

    A custom benchmark is defined in the bundle, and each stored sample contains the settings that score it, so custom
    benchmarks are not registered.
    """

    def __init__(self, *families: Benchmark) -> None:
        self._families = {family.name: family for family in families}

    def __getitem__(self, name: str) -> Benchmark:
        if name in self._families:
            return self._families[name]
        return JudgeBenchmark() if name == JudgeBenchmark.name else custom_benchmark(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._families)

    def __len__(self) -> int:
        return len(self._families)


BENCHMARKS: Mapping[str, Benchmark] = _Benchmarks(
    Needle(), LongBench(), LongBenchV2(), LongBenchPro(), LVEval(), LEval(), Ruler(), Mrcr(), GraphWalks()
)
"""{name: benchmark}. Families are registered only here."""

EXPORT_FORMATS = ("every_eval_ever", "inspect", "lm_eval", "model_index")
"""Formats of other evaluation tools that `lbx export` writes. No benchmark can have these names."""
IMPORT_FORMATS = ("lm_eval", "opencompass")
"""Evaluation harnesses from which `lbx import` reads answers. No benchmark can have these names."""


def unit_of(name: str | None) -> float:
    """Official number of a benchmark for a score of 1, or 100 (percent) if the name is unknown."""
    family = BENCHMARKS.get(name) if name else None
    return (family.scoring if family else ScoringRules()).unit


def benchmarks_with(*families: Benchmark) -> Mapping[str, Benchmark]:
    """Benchmarks by name, where the given families replace registered ones of the same name."""
    return _Benchmarks(*BENCHMARKS.values(), *families) if families else BENCHMARKS


def model_families(bundle: Bundle, names: Sequence[str]) -> list[Benchmark]:
    """Find the named families with samples that depend on the model. Unknown names are left to ``select``.

    Args:
        names: see ``select``.
    """
    return [
        family
        for family in BENCHMARKS.values()
        if needs_model(family)
        and (
            ("all" in names and family.data.is_bundled(bundle))
            or any(_is_of(family, name.partition("/")[0]) for name in names)
        )
    ]


def select(bundle: Bundle, names: Sequence[str], benchmarks: Mapping[str, Benchmark] | None = None) -> list[Task]:
    """Select tasks by name, each once, in the order of ``names``.

    Args:
        bundle: bundle with the data.
        names: "all" (all bundled data), a family ("leval", "longbench_e") or a task ("leval/tpo"), which may be a
            pattern ("lveval/*_16k").
        benchmarks: benchmarks of a run (``benchmarks_with``). The default is the built-in ones.

    Raises:
        UsageError: a name is unknown, the data is not in the bundle, or no task of a family fits the model.
        BundleError: a data file is damaged.
    """
    families = _available_benchmarks(bundle, benchmarks or BENCHMARKS)
    selected_tasks: dict[str, Task] = {}
    for name in names:
        for task in _match_tasks(bundle, name, families):
            selected_tasks.setdefault(task.full_name, task)
    if not selected_tasks and not names:
        raise UsageError(
            "No tasks given.",
            fix="Pass task names with --tasks, or --tasks all.",
            command=as_command("lbx", "tasks", "--bundle", bundle.root),
        )
    if not selected_tasks:
        raise UsageError(
            f"The bundle at {bundle.root} has no benchmark data.",
            fix="Bundle a benchmark on a connected machine, or use the built-in needle without data: --tasks needle.",
        )
    return list(selected_tasks.values())


def all_tasks(bundle: Bundle) -> list[Task]:
    """List all bundled tasks, family by family, then the custom benchmarks by name.

    Raises:
        BundleError: a data file is damaged, or the definition of a custom benchmark is invalid.
    """
    return _all_tasks(bundle, _available_benchmarks(bundle, BENCHMARKS))


def _all_tasks(bundle: Bundle, families: Iterable[Benchmark]) -> list[Task]:
    return [task for family in families if family.data.is_bundled(bundle) for task in family.tasks(bundle)]


def embedding_tasks(tasks: Iterable[Task]) -> list[str]:
    """Full names of the tasks in which an embedding model gives half of the score."""
    return [task.full_name for task in tasks if task.name in BENCHMARKS[task.benchmark].catalogue.embedding_tasks]


def format_names() -> list[str]:
    """Names of the built-in benchmarks with official prediction files that lbx reads and writes."""
    return [name for name, family in BENCHMARKS.items() if family.predictions]


def official_rubric(bundle: Bundle) -> Rubric:
    """Parse the official judge's rubric. Raises BundleError if it is missing in the bundle, or is another version."""
    family = BENCHMARKS[official_judge.BENCHMARK]
    return official_judge.parse_rubric(family.data.official_file(bundle, official_judge.SCRIPT))


def rubric_file(name: str, bundle: Bundle) -> Path | None:
    """Path of the file with a custom benchmark's rubric in a bundle, or None."""
    family = BENCHMARKS[name]
    return family.rubric_file(bundle) if isinstance(family, CustomBenchmark) else None


def _available_benchmarks(bundle: Bundle, benchmarks: Mapping[str, Benchmark]) -> list[Benchmark]:
    return [*benchmarks.values(), *(benchmarks[name] for name in custom_names(bundle, reserved_names()))]


def _is_of(family: Benchmark, name: str) -> bool:
    return name == family.name or name in family.catalogue.selections


def reserved_names() -> dict[str, str]:
    """{reserved name: meaning in ``--tasks``}. No custom benchmark can have these names."""
    names = {"all": "everything in the bundle", JudgeBenchmark.name: "the prompts of `lbx judge`"}
    for name, family in BENCHMARKS.items():
        names |= dict.fromkeys((name, *family.catalogue.selections), "a built-in benchmark")
    return names | dict.fromkeys((*EXPORT_FORMATS, *IMPORT_FORMATS), "a format of `lbx export` or `lbx import`")


def _match_tasks(bundle: Bundle, name: str, families: Sequence[Benchmark]) -> list[Task]:
    if name == "all":
        return _all_tasks(bundle, families)
    benchmark, _, pattern = name.partition("/")
    family = next((candidate for candidate in families if _is_of(candidate, benchmark)), None)
    if family is None or (pattern and benchmark != family.name):
        raise _unknown_task_error(bundle, name, families)
    names: Sequence[str] | None = family.catalogue.selections.get(benchmark)
    if pattern:
        task_names = family.catalogue.names or [task.name for task in family.tasks(bundle)]
        names = [task for task in task_names if fnmatchcase(task, pattern)]
        names = names or ([pattern] if family.catalogue.accepts(pattern) else [])
        if not names:
            raise _unknown_task_error(bundle, name, families)
    tasks = [task for task in family.tasks(bundle, names) if names is None or task.name in names]
    if not tasks:
        raise _no_tasks_error(bundle, family, name, names)
    return tasks


def _no_tasks_error(bundle: Bundle, family: Benchmark, name: str, names: Sequence[str] | None) -> UsageError:
    if needs_model(family) and BENCHMARKS[family.name].tasks(bundle, names):
        return UsageError(
            f"All standard tasks of {name} are longer than the model's context window.",
            fix="Name the tasks to run them nevertheless, or shorter ones if the family has them, or use a model or a "
            "card with a larger context window.",
        )
    return _missing_data_error(bundle, family, name)


def _missing_data_error(bundle: Bundle, family: Benchmark, name: str) -> UsageError:
    return UsageError(
        f"The bundle at {bundle.root} does not contain the data of {name}.",
        fix="Bundle the data on a connected machine.",
        command=family.data.bundle_command,
    )


def _unknown_task_error(bundle: Bundle, name: str, families: Sequence[Benchmark]) -> UsageError:
    names = ["all"]
    lacking: list[UsageError] = []
    for family in families:
        present_tasks = {task.name for task in family.tasks(bundle)}
        selections = [key for key, tasks in family.catalogue.selections.items() if present_tasks.intersection(tasks)]
        names += (
            [family.name, *selections, *(f"{family.name}/{task}" for task in sorted(present_tasks))]
            if present_tasks
            else []
        )
        if name in family.catalogue.names and name not in present_tasks:
            lacking.append(_missing_data_error(bundle, family, f"{family.name}/{name}"))
    near = get_close_matches(name, names, n=3)
    # "qasper" differs from "longbench/qasper" in many letters, but is probably meant.
    same_task = [full for full in names if full.partition("/")[2] == name]
    same_task += [f"{family.name}/{name}" for family in families if family.catalogue.accepts(name)]
    near = list(dict.fromkeys(same_task + near))
    if lacking and not near:
        return lacking[0]
    return UsageError(
        f'There is no task "{name}".',
        fix=f"Did you mean {' or '.join(near)}?" if near else "",
        command=as_command("lbx", "tasks", "--bundle", bundle.root),
    )
