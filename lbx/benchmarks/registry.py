"""Registry of benchmark families. Importing it loads every family."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from lbx.base.bundle_folder import Bundle
from lbx.base.records import Task
from lbx.benchmarks.babilong import Babilong
from lbx.benchmarks.base.benchmark import Benchmark, ScoringRules
from lbx.benchmarks.base.rubric import Rubric, TextMaker
from lbx.benchmarks.graphwalks import GraphWalks
from lbx.benchmarks.helmet.benchmark import Helmet
from lbx.benchmarks.infinitebench import InfiniteBench
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
    "RATING_RUBRICS",
    "CustomBenchmark",
    "all_tasks",
    "available_benchmarks",
    "benchmarks_with",
    "bundled_tasks",
    "custom_names",
    "embedding_tasks",
    "format_names",
    "judged_samples",
    "longbench_harnesses",
    "official_judge",
    "official_rubric",
    "rating_rubric",
    "rating_texts",
    "reserved_names",
    "rubric_file",
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
    Needle(),
    LongBench(),
    LongBenchV2(),
    LongBenchPro(),
    LVEval(),
    LEval(),
    Ruler(),
    Mrcr(),
    GraphWalks(),
    Helmet(),
    InfiniteBench(),
    Babilong(),
)
"""{name: benchmark}. Families are registered only here."""

RATING_RUBRICS: Mapping[str, Benchmark] = {
    name: family for family in BENCHMARKS.values() for name in family.rubrics.tasks
}
"""{rubric of a family's authors, by which a judge rates single answers: the family}."""

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


def all_tasks(bundle: Bundle) -> list[Task]:
    """List all bundled tasks, family by family, then the custom benchmarks by name.

    Raises:
        BundleError: a data file is damaged, or the definition of a custom benchmark is invalid.
    """
    return bundled_tasks(bundle, available_benchmarks(bundle, BENCHMARKS))


def bundled_tasks(bundle: Bundle, families: Iterable[Benchmark]) -> list[Task]:
    """List the tasks with data in a bundle, family by family."""
    return [task for family in families if family.data.is_bundled(bundle) for task in family.tasks(bundle)]


def embedding_tasks(tasks: Iterable[Task]) -> list[str]:
    """Full names of the tasks with scores that depend half on an embedding model."""
    return [task.full_name for task in tasks if task.name in BENCHMARKS[task.benchmark].catalogue.embedding_tasks]


def format_names() -> list[str]:
    """Names of the built-in benchmarks with official prediction files that lbx reads and writes."""
    return [name for name, family in BENCHMARKS.items() if family.predictions]


def official_rubric(bundle: Bundle) -> Rubric:
    """Parse the official judge's rubric. Raises BundleError if it is missing in the bundle, or is another version."""
    family = BENCHMARKS[official_judge.BENCHMARK]
    return official_judge.parse_rubric(family.data.official_file(bundle, official_judge.SCRIPT))


def rating_rubric(bundle: Bundle, name: str) -> Rubric:
    """Parse one of ``RATING_RUBRICS``. Raises BundleError if it is missing in the bundle, or is another version."""
    parser = RATING_RUBRICS[name].rubrics.parser
    assert parser is not None
    return parser(bundle, name)


def rating_texts(bundle: Bundle, name: str) -> TextMaker:
    """Maker of texts for one of ``RATING_RUBRICS``. Raises BundleError if the bundle lacks data that it shows."""
    source = RATING_RUBRICS[name].rubrics.text_source
    assert source is not None
    return source(bundle, name)


def rubric_file(name: str, bundle: Bundle) -> Path | None:
    """Path of the file with a custom benchmark's rubric in a bundle, or None."""
    family = BENCHMARKS[name]
    return family.rubric_file(bundle) if isinstance(family, CustomBenchmark) else None


def available_benchmarks(bundle: Bundle, benchmarks: Mapping[str, Benchmark]) -> list[Benchmark]:
    """List the benchmarks that a bundle can have tasks of: the given ones, then its custom benchmarks by name."""
    return [*benchmarks.values(), *(benchmarks[name] for name in custom_names(bundle, reserved_names()))]


def reserved_names() -> dict[str, str]:
    """{reserved name: meaning in ``--tasks``}. No custom benchmark can have these names."""
    names = {"all": "everything in the bundle", JudgeBenchmark.name: "the prompts of `lbx judge`"}
    for name, family in BENCHMARKS.items():
        names |= dict.fromkeys((name, *family.catalogue.selections), "a built-in benchmark")
    return names | dict.fromkeys((*EXPORT_FORMATS, *IMPORT_FORMATS), "a format of `lbx export` or `lbx import`")
