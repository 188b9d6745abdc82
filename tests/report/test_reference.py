"""Published figures beside runs, in the four shapes of CSV."""

from __future__ import annotations

from pathlib import Path

import pytest

from lbx.errors import UsageError
from lbx.report.reference import beside, read_reference
from lbx.store import Table

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
    rows = beside(PAPER, read_reference(path), ["m"]).dicts()
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
        ("benchmark,model,task,score_percent\nlongbench,M\n", "line 2: None is not a number"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(UsageError, match=what):
        beside(PAPER, read_reference(path), ["m"])


def test_missing_file_and_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_reference(tmp_path / "no.csv")
    with pytest.raises(UsageError, match="has no model 'x'"):
        beside(PAPER, {"M": {}}, ["x"])
