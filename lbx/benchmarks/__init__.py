"""The benchmark families that lbx knows, and how ``--tasks`` names their tasks."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from lbx.benchmarks.base import Benchmark
from lbx.benchmarks.leval import LEval
from lbx.benchmarks.longbench import LongBench
from lbx.benchmarks.longbench_pro import LongBenchPro
from lbx.benchmarks.longbench_v2 import LongBenchV2
from lbx.benchmarks.lveval import LVEval
from lbx.benchmarks.needle import Needle
from lbx.errors import UsageError
from lbx.layout import Bundle
from lbx.records import Task

BENCHMARKS: dict[str, Benchmark] = {
    "needle": Needle(),
    "longbench": LongBench(),
    "longbench_v2": LongBenchV2(),
    "longbench_pro": LongBenchPro(),
    "lveval": LVEval(),
    "leval": LEval(),
}

KNOWN_TASKS: dict[str, tuple[str, ...]] = {
    "longbench": LongBench.known_tasks,
    "longbench_v2": LongBenchV2.known_tasks,
    "longbench_pro": LongBenchPro.known_tasks,
    "lveval": LVEval.known_tasks,
    "leval": LEval.known_tasks,
}
"""What each family has, whether or not a bundle holds its data; needle makes its own."""

RECIPES: dict[str, str] = {
    "longbench": "bundle/longbench.toml",
    "longbench_v2": "bundle/longbench_v2.toml",
    "longbench_pro": "bundle/longbench_pro.toml",
    "lveval": "bundle/lveval.toml",
    "leval": "bundle/leval.toml",
}

LONGBENCH_E = "longbench_e"
"""A name for longbench's E tasks. They ask 13 of the 21 again on other documents, so "longbench" leaves them out."""


def select(bundle: Bundle, names: Sequence[str]) -> list[Task]:
    """The tasks that the names mean, each once, in the order they were named.

    Args:
        bundle: what there is.
        names: of "all" (whatever was bundled), a family ("leval", "longbench_e") or a task ("leval/tpo"), which may be
            a pattern ("lveval/*_16k").

    Raises:
        UsageError: a name is unknown, or its data is not in the bundle.
        BundleError: a data file is damaged.
    """
    chosen: dict[str, Task] = {}
    for name in names:
        for task in _meant(bundle, name):
            chosen.setdefault(task.full_name, task)
    if not chosen and not names:
        raise UsageError("No task is named.", fix='Name some, or "all".', command=f"lbx tasks --bundle {bundle.root}")
    if not chosen:
        raise UsageError(
            f"The bundle at {bundle.root} holds no benchmark's data.",
            fix="Bundle some on a connected machine, or name the built-in needle, which needs none: --tasks needle.",
        )
    return list(chosen.values())


def everything(bundle: Bundle) -> list[Task]:
    """All tasks that were bundled, family by family.

    Raises:
        BundleError: a data file is damaged.
    """
    return [task for family in BENCHMARKS.values() if family.bundled(bundle) for task in family.tasks(bundle)]


def _meant(bundle: Bundle, name: str) -> list[Task]:
    if name == "all":
        return everything(bundle)
    family, _, wanted = name.partition("/")
    if name == LONGBENCH_E:
        family = "longbench"
    if family not in BENCHMARKS:
        raise _unknown(bundle, name)
    benchmark = BENCHMARKS[family]
    if wanted:
        known = KNOWN_TASKS.get(family) or [task.name for task in benchmark.tasks(bundle)]
        named = [task for task in known if fnmatchcase(task, wanted)]
        if not named:
            raise _unknown(bundle, name)
    elif family == "longbench":
        named = [task for task in KNOWN_TASKS[family] if task.endswith("_e") == (name == LONGBENCH_E)]
    else:
        named = list(KNOWN_TASKS.get(family, ()))
    found = [task for task in benchmark.tasks(bundle, named or None) if not named or task.name in named]
    if not found:
        raise UsageError(
            f"The bundle at {bundle.root} does not hold the data of {name}.",
            fix="Bundle it on a connected machine.",
            command=f"lbx bundle {RECIPES[family]}",
        )
    return found


def _unknown(bundle: Bundle, name: str) -> UsageError:
    names = ["all", LONGBENCH_E, *BENCHMARKS]
    names += [f"{family}/{task}" for family, tasks in KNOWN_TASKS.items() for task in tasks]
    names += [task.full_name for task in BENCHMARKS["needle"].tasks(bundle)]
    near = get_close_matches(name, names, n=3)
    # "qasper" alone is far from "longbench/qasper" in letters, but it is what was meant.
    near = list(dict.fromkeys([full for full in names if full.partition("/")[2] == name] + near))
    return UsageError(
        f'There is no task "{name}".',
        fix=f"Did you mean {' or '.join(near)}?" if near else "",
        command=f"lbx tasks --bundle {bundle.root}",
    )
