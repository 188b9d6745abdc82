"""What the names after --tasks mean."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import UsageError
from lbx.base.records import Task
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.registry import BENCHMARKS, embedding_tasks, format_names
from lbx.options.task_selection import select_tasks

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]


@pytest.fixture
def small(make_bundle: MakeBundle) -> Bundle:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for task in ("qasper", "qasper_e", "trec"):
            archive.writestr(f"data/{task}.jsonl", "{}\n")
    row = {"input": "d", "instructions": ["a"], "outputs": ["A"], "evaluation": "exam"}
    return make_bundle(
        {
            "hub:THUDM/LongBench/data.zip": buffer.getvalue(),
            "hub:L4NLP/LEval/LEval/Exam/tpo.jsonl": json.dumps(row).encode(),
        }
    )


def names(bundle: Bundle, *wanted: str) -> list[str]:
    return [task.full_name for task in select_tasks(bundle, wanted)]


def test_names(small: Bundle) -> None:
    assert names(small, "leval") == ["leval/tpo"]
    assert names(small, "longbench") == ["longbench/qasper", "longbench/trec"]
    assert names(small, "longbench_e") == ["longbench/qasper_e"]
    assert names(small, "longbench/qasper_e", "leval/tpo") == ["longbench/qasper_e", "leval/tpo"]
    assert names(small, "longbench/trec", "longbench", "leval/tpo") == [
        "longbench/trec",
        "longbench/qasper",
        "leval/tpo",
    ]
    bundled = ["longbench/qasper", "longbench/trec", "longbench/qasper_e", "leval/tpo"]
    assert names(small, "all") == bundled, "nobody bundled the built-in needle"
    assert names(small, "needle/single_en", "all") == ["needle/single_en", *bundled], "it needs no data"
    with_files = ["longbench", "longbench_v2", "longbench_pro", "lveval", "leval"]
    later = ["mrcr", "graphwalks", "helmet", "infinitebench", "babilong"]
    assert list(BENCHMARKS) == ["needle", *with_files, "ruler", *later]
    assert format_names() == [*with_files, "ruler", "helmet", "infinitebench", "babilong"]
    assert all(benchmark.name == name for name, benchmark in BENCHMARKS.items())


def test_a_bundled_needle_is_one_of_all(make_bundle: MakeBundle) -> None:
    bundle = make_bundle({"files/needle/needle.toml": b'languages = ["en"]'})
    assert names(bundle, "all") == ["needle/single_en", "needle/multikey_en", "needle/multiquery_en"]


def test_a_bundle_without_any_benchmark(make_bundle: MakeBundle) -> None:
    bundle = make_bundle({"files/models/notes.txt": b"x"})
    with pytest.raises(UsageError, match=r"has no benchmark data.*--tasks needle"):
        select_tasks(bundle, ["all"])
    assert len(names(bundle, "needle")) == 6


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("longbench/qaspar", "longbench/qasper"),
        ("levle", "leval"),
        ("qasper", "longbench/qasper"),
        ("longbench_v3", "longbench"),
        ("needle/single_de", "needle/single_en"),
    ],
)
def test_an_unknown_name_gets_its_nearest(small: Bundle, name: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        select_tasks(small, [name])
    assert caught.value.exit_code == 2
    assert f'no task "{name}"' in str(caught.value)
    assert re_words(str(caught.value), near)
    assert f"lbx tasks --bundle {small.root}" in str(caught.value)


def re_words(text: str, near: str) -> bool:
    return near in text.replace("?", " ").split()


def test_only_what_the_bundle_holds_is_offered(make_bundle: MakeBundle) -> None:
    bundle = make_bundle({"files/needle/needle.toml": b'languages = ["en"]'})
    with pytest.raises(UsageError, match=r"does not contain the data of longbench/qasper.*bundle/longbench\.toml"):
        select_tasks(bundle, ["qasper"])
    for name in ("longbench/qaspar", "levle", "gov_reprt"):
        with pytest.raises(UsageError, match=f'no task "{name}"') as caught:
            select_tasks(bundle, [name])
        assert "Did you mean" not in str(caught.value), name


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("longbench/vcsum", "bundle/longbench.toml"),
        ("longbench_v2", "bundle/longbench_v2.toml"),
        ("leval/codeU", "bundle/leval.toml"),
    ],
)
def test_a_task_that_is_not_in_the_bundle(small: Bundle, name: str, recipe: str) -> None:
    with pytest.raises(UsageError, match=f"does not contain the data of {name}.*lbx bundle {recipe}"):
        select_tasks(small, [name])


def test_no_name_at_all(small: Bundle) -> None:
    with pytest.raises(UsageError, match="No tasks given"):
        select_tasks(small, [])


def test_what_a_family_names_is_all_that_is_known_of_it() -> None:
    with_data = [name for name, family in BENCHMARKS.items() if family.catalogue.names]
    assert with_data == [name for name in BENCHMARKS if name != "needle"]
    assert all((Path(__file__).parents[2] / BENCHMARKS[name].data.recipe).is_file() for name in with_data)
    tasks = [Task("longbench_pro", name, ("summary",), 1) for name in ("t3.1", "t4.2")]
    assert embedding_tasks([*tasks, Task("leval", "tpo", (), 1)]) == ["longbench_pro/t4.2"]


def test_a_family_has_few_members() -> None:
    members = {*vars(Benchmark), *Benchmark.__annotations__}
    assert len([name for name in members if not name.startswith("_")]) <= 27
