"""Published figures beside runs, in the four shapes of CSV."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.longbench_pro_groups import CATEGORIES
from lbx.benchmarks.longbench_v2 import DOMAINS
from lbx.errors import UsageError
from lbx.report.reference import Figure, beside, chosen, published, read_reference
from lbx.store import Table

ROOT = Path(__file__).parents[2]
PAPER = Table(
    ["run", "run_id", "benchmark", "line", "official", "part", "place", "position"],
    [
        ("mine", "r1", "longbench", "qasper", 40.0, 0, 1, 0),
        ("mine", "r1", "lveval", "cmrc_mixup_16k", 30.0, 0, 2, 0),
        ("mine", "r1", "longbench_v2", "overall: accuracy", 28.2, 1, 0, 0),
        ("mine", "r1", "longbench_pro", "length 8k: average", 0.5, 1, 0, 0),
    ],
)


@pytest.mark.parametrize(
    ("header", "row", "line", "value"),
    [
        ("benchmark,source,model,task,score_percent", "longbench,2023,M,qasper,43.3", "qasper", 43.3),
        ("benchmark,model,dataset,level,score_percent", "lveval,M,cmrc_mixup,16k,1.5", "cmrc_mixup_16k", 1.5),
        (
            "benchmark,model,params,overall,easy,hard,short,medium,long",
            "longbench_v2,M,14B,37.4,42.8,42.7,50.8,34.1,37.9",
            "overall: accuracy",
            37.4,
        ),
        (
            "benchmark,model,source,params,hotpotqa,qasper",
            "longbench,M,a table,7B,,43.3",
            "qasper",
            43.3,
        ),
        (
            "benchmark,model,mode,context_limit,dimension,value,score",
            "longbench_pro,M,thinking,1,token_length,8k,0.59",
            "length 8k: average",
            0.59,
        ),
    ],
)
def test_shapes(tmp_path: Path, header: str, row: str, line: str, value: float) -> None:
    path = tmp_path / "published.csv"
    path.write_text(f"{header}\n{row}\n", "utf-8")
    rows = beside(PAPER, chosen(read_reference(path), BENCHMARKS, ["m"])).dicts()
    assert [(r["line"], r["official"]) for r in rows if r["run"].startswith("M") and r["run"].endswith("*")] == [
        (line, value)
    ]
    assert len(rows) == len(PAPER.rows) + 1


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "none of the shapes"),
        ("benchmark,model,task,score_percent\nlongbench,M,qasper,high\n", "line 2: 'high' is not a number"),
        ("benchmark,model,qasper,trec\nlongbench,M,1,x\n", "line 2: 'x' is not a number"),
        ("benchmark,model,task,score_percent\nlongbench,M\n", "line 2: None is not a number"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(UsageError, match=what):
        read_reference(path)


def test_missing_file_and_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_reference(tmp_path / "no.csv")
    with pytest.raises(UsageError, match="has no model 'x'"):
        chosen([Figure("longbench", "qasper", "M", 1.0, "")], ["longbench"], ["x"])


def _lines(name: str) -> set[str]:
    """Lines of the report paper that figures of a benchmark can stand on."""
    family = BENCHMARKS[name]
    groups = {
        "longbench_v2": {
            "overall", "difficulty easy", "difficulty hard", "length short", "length medium", "length long",
            *(f"domain {domain}" for domain in DOMAINS),
            *(f"sub_domain {domain}: {part}" for domain, parts in DOMAINS.items() for part in parts),
        },
        "longbench_pro": {"overall", *(f"{by} {name}" for by, names in CATEGORIES.items() for name in names)},
    }  # fmt: skip
    metric = {"longbench_v2": "accuracy", "longbench_pro": "average"}.get(name)
    tries = {f"overall: {kind}@{n}" for kind in ("bon", "pass") for n in (1, 2, 3)}
    averages = {"closed: exact_match", "open: f1", "open: rouge1", "open: rouge2", "open: rougeL"}
    judged = {f"judge {judge} against turbo-16k-0613: win rate" for judge in ("gpt-4", "gpt-3.5")}
    return {*family.known_tasks, *(f"{group}: {metric}" for group in groups.get(name, ())), *tries, *averages, *judged}


def test_the_figures_of_the_package() -> None:
    found = published()
    assert {one.benchmark for one in found} == {"longbench", "longbench_v2", "longbench_pro", "lveval", "leval"}
    for one in found:
        assert one.line in _lines(one.benchmark), one
        assert one.source and one.model, one
        assert 0 <= one.figure <= (1 if one.benchmark == "longbench_pro" else 100), one
    models = {name: {one.model for one in found if one.benchmark == name} for name in {one.benchmark for one in found}}
    assert {name: len(some) for name, some in models.items()} == {
        "longbench": 15, "longbench_v2": 68, "longbench_pro": 80, "lveval": 11, "leval": 20
    }  # fmt: skip
    assert len({one[:3] for one in found}) == len(found), "a model has two figures on one line"
    assert {"Human", "Random", "Experts"} <= models["longbench_v2"]
    readme = (resources.files("lbx.report") / "published/README.md").read_text("utf-8")
    assert all(f"| {name}.csv |" in readme for name in models)


def test_the_packages_figures_are_those_that_were_copied(shared: Callable[[str], Path]) -> None:
    """LongBench v2's leaderboard has twins, which are told apart by their dates here alone."""
    mine = {one[:3]: one.figure for one in published()}
    renamed = {"README_ZH 2023-07": " [2023-07]", "repository README 2025-01": ""}
    for name in ("longbench", "longbench_pro", "lveval"):
        for one in read_reference(shared(f"reference/{name}.csv")):
            model, _, source = one.model.partition(" [")
            model += renamed[source.rstrip("]")] if source else ""
            assert mine[one.benchmark, one.line, model] == pytest.approx(one.figure, abs=5e-7), one
    by_value = {(one.line, one.figure) for one in published() if one.benchmark == "longbench_v2"}
    assert {(one.line, one.figure) for one in read_reference(shared("reference/longbench_v2.csv"))} <= by_value


def test_they_are_in_the_wheel(tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(wheel).namelist()
    assert {path.name for path in (ROOT / "lbx/report/published").iterdir()} == {
        name.rpartition("/")[2] for name in names if name.startswith("lbx/report/published/")
    }
