"""Inputs from public reports, in ../shared/cases, each run by the real commands against its expected result."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Done, Lbx

Shared = Callable[[str], Path]


class Case:
    """One folder of ../shared/cases, copied to where commands may write."""

    def __init__(self, lbx: Lbx, source: Path, folder: Path) -> None:
        self.lbx = lbx
        self.folder = folder / source.name
        shutil.copytree(source, self.folder, copy_function=shutil.copyfile)

    def bundle(self) -> Done:
        return self.lbx("bundle", self.folder / "benchmark.toml", "-o", self.folder / "out")

    def call(self, *words: object) -> str:
        done = self.lbx(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def unpack(self) -> tuple[str, Path]:
        """Bundle the case's benchmark: its name, and the unpacked bundle."""
        bundled = self.bundle()
        assert bundled.returncode == 0, bundled.stderr
        name = tomllib.loads((self.folder / "benchmark.toml").read_text("utf-8"))["name"]
        unpacked = self.folder / "unpacked"
        self.call("unpack", self.folder / "out" / f"{name}.tar", "--allow-unsigned", "--to", unpacked)
        return name, unpacked

    def card(self, more: str = "", answers: str = "answers.json") -> Path:
        """A model that gives the scripted answers."""
        path = self.folder / "model.toml"
        path.write_text(f'name = "m"\nbackend = "scripted"\n[weights]\npath = "{answers}"\n{more}', "utf-8")
        return path

    def run(self) -> dict[str, dict[str, Any]]:
        """Bundle the benchmark and run it with the scripted answers: {sample id: {column: value, metric: score}}."""
        name, unpacked = self.unpack()
        self.call("run", "--bundle", unpacked, "--model", self.card(), "--tasks", name, "--no-plan", "-o", self.results)
        return self.stored()

    @property
    def results(self) -> Path:
        return self.folder / "results.duckdb"

    def stored(self) -> dict[str, dict[str, Any]]:
        rows = self.query("SELECT * FROM generations ORDER BY ALL")
        found = {row["sample_id"]: row for row in rows}
        for row in self.query("SELECT sample_id, metric, score, extracted FROM newest_scores"):
            found[row["sample_id"]][row["metric"]] = row["score"]
            found[row["sample_id"]][f"{row['metric']}_extracted"] = row["extracted"]
        return found

    def query(self, sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.call("sql", self.results, sql, "--format", "json"))
        return rows


def scores(metric: str, expected: dict[str, float]) -> Callable[[Case], None]:
    """The case runs, and its samples have these scores."""

    def check(case: Case) -> None:
        answers = case.run()
        assert {sample: answers[sample][metric] for sample in expected} == expected

    return check


def float_id(case: Case) -> None:
    """An id that a data frame wrote as 1.0 is read as it is written."""
    (case.folder / "answers.json").write_text('{"*": "r"}')
    assert case.run()["1.0"]["f1"] == 1.0


def refused(*words: str) -> Callable[[Case], None]:
    """`lbx bundle` refuses the case and names the cause."""

    def check(case: Case) -> None:
        done = case.bundle()
        said = " ".join(done.stderr.split())
        assert done.returncode == 2, said
        assert "Traceback" not in said
        for word in words:
            assert word in said, said

    return check


CASES: dict[str, Callable[[Case], None]] = {
    "mc-explained": scores(
        "accuracy",
        dict.fromkeys(["explains", "answer-colon", "ruled-out", "zh", "letter-first", "boxed"], 1.0),
    ),
    "mc-gap-jsonl": refused("quiz.jsonl, line 1", "'b' is empty", "'c'"),
    "mc-index": refused("quiz.jsonl, line 3", "'3'", "position"),
    "list-jsonl": refused("t.jsonl, line 2", "JSON list"),
    "em-a": scores(
        "exact_match",
        dict.fromkeys(["A-plain", "A-dot", "A-newline", "B-dot", "plus", "plus-dot"], 1.0)
        | dict.fromkeys(["A-wrong", "minus-said", "decimal", "percent"], 0.0),
    ),
    "float-id": float_id,
    "csv-sepline": scores("f1", {"1": 1.0}),
    "csv-trailing-comma": scores("f1", {"1": 1.0}),
    "csv-comma-in-header": scores("f1", {"1": 1.0}),
}


@pytest.fixture(scope="module")
def lbx() -> Lbx:
    return Lbx()


@pytest.mark.parametrize("name", CASES)
def test_case_has_its_expected_result(name: str, lbx: Lbx, shared: Shared, tmp_path: Path) -> None:
    CASES[name](Case(lbx, shared("cases") / name, tmp_path))
