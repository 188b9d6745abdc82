"""Selection of the tasks of ``--tasks``, by names and patterns such as ``lveval/*_16k``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import UsageError
from lbx.base.records import Task
from lbx.base.visible import as_command
from lbx.benchmarks.base.benchmark import Benchmark, needs_model
from lbx.benchmarks.registry import BENCHMARKS, available_benchmarks, bundled_tasks


def select_tasks(bundle: Bundle, names: Sequence[str], benchmarks: Mapping[str, Benchmark] | None = None) -> list[Task]:
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
    families = available_benchmarks(bundle, benchmarks or BENCHMARKS)
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


def model_families(bundle: Bundle, names: Sequence[str]) -> list[Benchmark]:
    """Find the named families with samples that depend on the model. Unknown names are left to ``select_tasks``.

    Args:
        names: see ``select_tasks``.
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


def _is_of(family: Benchmark, name: str) -> bool:
    return name == family.name or name in family.catalogue.selections


def _match_tasks(bundle: Bundle, name: str, families: Sequence[Benchmark]) -> list[Task]:
    if name == "all":
        return bundled_tasks(bundle, families)
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
