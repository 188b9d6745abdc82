"""Published figures beside runs, in the four shapes of CSV."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.errors import UsageError
from lbx.benchmarks.babilong import LENGTHS as BABILONG_LENGTHS
from lbx.benchmarks.helmet.tasks import CATEGORIES as HELMET_CATEGORIES
from lbx.benchmarks.helmet.tasks import LENGTHS as HELMET_LENGTHS
from lbx.benchmarks.longbench_pro.paper_tables import CATEGORIES
from lbx.benchmarks.longbench_v2 import DOMAINS
from lbx.benchmarks.registry import BENCHMARKS
from lbx.benchmarks.ruler.aggregates import EFFECTIVE, LABELS
from lbx.benchmarks.ruler.benchmark import HEADINGS
from lbx.report.query import ReportQuery
from lbx.report.rows.reference import (
    PublishedModel,
    PublishedScore,
    add_published_rows,
    load_published,
    read_reference,
    select_published,
    table,
)
from lbx.results import Table

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
            "longbench_v2,M,14B,37.4,42.7,34.1,47.2,33.0,29.06",
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
    rows = add_published_rows(PAPER, select_published(read_reference(path), BENCHMARKS, ["m"])).dicts()
    assert [(r["line"], r["official"]) for r in rows if r["run"].startswith("M") and r["run"].endswith("*")] == [
        (line, value)
    ]
    assert len(rows) == len(PAPER.rows) + 1


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "has an unknown layout"),
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
    with pytest.raises(UsageError, match="No published model of longbench matches 'x'"):
        select_published([PublishedModel("longbench", "M", "")], ["longbench"], ["x"])


@pytest.mark.parametrize(
    ("printed", "unit"), [("28.2", 0.1), ("28.20", 0.01), ("28", 1), ("1e2", 100), ("0.4992", 1e-4), ("-0.5", 0.1)]
)
def test_a_figure_is_as_exact_as_it_is_printed(tmp_path: Path, printed: str, unit: float) -> None:
    path = tmp_path / "published.csv"
    path.write_text(f"benchmark,model,qasper\nlongbench,M,{printed}\n", "utf-8")
    (one,) = read_reference(path)
    assert one.scores == {"qasper": (float(printed), pytest.approx(unit))}


V2 = "benchmark,model,overall,easy,hard,short,medium,long\n"
SCRAMBLED = """longbench_v2,Qwen2.5-14B (w/ CoT),37.4,42.8,42.7,50.8,34.1,37.9
longbench_v2,Qwen2.5-14B,29.0,35.5,33.0,41.3,29.0,29.0
longbench_v2,Gemini-2.0-Flash-Exp (w/ CoT),48.6,45.7,52.5,49.4,46.2,43.4
longbench_v2,Gemini-2.0-Flash-Exp,46.6,44.6,42.3,49.8,42.3,44.6
"""
"""A fork's README: figures of two runs, one after the other, under the columns of one."""


def test_rows_that_contradict_themselves_are_marked(tmp_path: Path) -> None:
    path = tmp_path / "published.csv"
    path.write_text(f"{V2}{SCRAMBLED}longbench_v2,right,60,70,53.8,62,60,56.7\n", "utf-8")
    *scrambled, right = read_reference(path)
    said = [one.doubt for one in scrambled]
    assert said == [
        "overall 37.4 is outside the range of its parts, 42.7 to 42.8",
        "overall 29 is outside the range of its parts, 33 to 35.5",
        "overall 48.6 is not the mean of its parts, 49.9",
        "overall 46.6 is outside the range of its parts, 42.3 to 44.6",
    ]
    assert right.doubt is None
    wanted = ReportQuery(references=[path], models=["qwen"])
    assert {row["doubt"] for row in table(None, wanted).dicts()} == set(said[:2])
    shown = [row["run"] for row in add_published_rows(PAPER, scrambled[:1]).dicts() if row["run"] != "mine"]
    assert shown == [f"Qwen2.5-14B (w/ CoT)* ({said[0]})"]


def test_a_row_without_some_parts_is_not_judged() -> None:
    scores = {"overall: accuracy": PublishedScore(90.0, 0.1), "difficulty easy: accuracy": PublishedScore(10.0, 0.1)}
    assert PublishedModel("longbench_v2", "M", "", scores=scores).doubt is None
    pro = {"overall: average": 0.9, "language Chinese: average": 0.4, "language English: average": 0.8}
    one = PublishedModel(
        "longbench_pro", "M", "", scores={line: PublishedScore(value, 0.1) for line, value in pro.items()}
    )
    assert one.doubt is None, "one digit: 0.85 lies between 0.35 and 0.85"
    finer = PublishedModel(
        "longbench_pro", "M", "", scores={line: PublishedScore(value, 1e-6) for line, value in pro.items()}
    )
    assert finer.doubt == "overall 0.9 is outside the range of its parts, 0.4 to 0.8"


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
        "babilong": {f"length {length}" for length in BABILONG_LENGTHS},
        "ruler": {"overall", *(f"length {label}" for label in LABELS.values())},
        "helmet": {f"{name} {label}" for name in ("length", *HELMET_CATEGORIES) for label in HELMET_LENGTHS},
    }  # fmt: skip
    averages_of = ("longbench_pro", "ruler", "helmet", "babilong")
    metric = {"longbench_v2": "accuracy", **dict.fromkeys(averages_of, "average")}.get(name)
    tries = {f"overall: {kind}@{n}" for kind in ("bon", "pass") for n in (1, 2, 3)}
    averages = {"closed: exact_match", "open: f1", "open: rouge1", "open: rouge2", "open: rougeL"}
    rouge = {f"{task}, {one}" for task in family.catalogue.names for one in ("rouge1", "rouge2", "rougeL")}
    judged = {f"judge {judge} against turbo-16k-0613: win rate" for judge in ("gpt-4", "gpt-3.5")}
    return {
        *family.catalogue.names,
        *(f"{group}: {metric}" for group in groups.get(name, ())),
        *tries,
        *averages,
        *rouge,
        *judged,
        *(f"overall: {metric}" for metric in HEADINGS),
    }


def test_the_figures_of_the_package() -> None:
    found = load_published()
    for one in found:
        assert one.source and one.model and one.scores, one
        assert one.scores.keys() <= _lines(one.benchmark), one
        assert one.doubt is None, one
        highest = 1 if one.benchmark == "longbench_pro" else 100
        tokens = f"overall: {EFFECTIVE}"  # a length, no score
        assert all(0 <= figure.value <= highest for line, figure in one.scores.items() if line != tokens), one
    names = [(one.benchmark, one.model) for one in found]
    assert Counter(benchmark for benchmark, _ in names) == {
        "longbench": 15, "longbench_v2": 68, "longbench_pro": 80, "lveval": 11, "leval": 20, "ruler": 45,
        "helmet": 12,
        "babilong": 3,
        "infinitebench": 7,
    }  # fmt: skip
    assert len(set(names)) == len(names), "a model stands twice"
    assert {("longbench_v2", name) for name in ("Human", "Random", "Experts")} <= set(names)
    folder = ROOT / "lbx/benchmarks/published"
    readme = (folder / "README.md").read_text("utf-8")
    assert all(f"| {name}.csv |" in readme for name, _ in names)
    assert sum(len(file.read_bytes()) for file in folder.glob("*.csv")) < 72_000


def test_the_packages_figures_are_those_that_were_copied(shared: Callable[[str], Path]) -> None:
    mine = {(one.benchmark, one.model): one for one in load_published()}
    renamed = {"README_ZH 2023-07": " [2023-07]", "repository README 2025-01": ""}
    for name in ("longbench", "longbench_pro", "lveval"):
        for one in read_reference(shared(f"reference/{name}.csv")):
            model, _, source = one.model.partition(" [")
            model += renamed[source.rstrip("]")] if source else ""
            own = mine[one.benchmark, model]
            assert {line: own.scores[line].value for line in one.scores} == pytest.approx(
                {line: figure.value for line, figure in one.scores.items()}, abs=5e-7
            ), one
            assert own.about.get("context") == one.about.get("context"), one


def test_every_row_of_the_leaderboard_that_was_copied_is_there(shared: Callable[[str], Path]) -> None:
    """Two models of one name are told apart by their dates; Human and Random stand once."""
    mine = [(one.model, one.about, one.scores) for one in load_published() if one.benchmark == "longbench_v2"]
    for one in read_reference(shared("reference/longbench_v2.csv")):
        assert one.doubt is None
        lone = {"Human (w/ CoT)": "Human", "Random (w/ CoT)": "Random"}
        name = lone.get(one.model, one.model)
        twins = [about for model, about, scores in mine if model.partition(" [")[0] == name and scores == one.scores]
        assert len(twins) == 1, one
        assert twins[0].items() >= one.about.items(), one


def test_they_are_in_the_wheel(tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(wheel).namelist()
    files = [*(ROOT / "lbx/benchmarks/published").iterdir()]
    assert len(files) == 10
    assert {path.relative_to(ROOT).as_posix() for path in files} <= set(names)
