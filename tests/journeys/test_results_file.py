"""Months of a results file, by its commands: run, judge, rate, rename, share, attest, score anew, compare, hand on."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.command_line import Lbx
from tests.exchange import test_every_eval_ever as every_eval_ever
from tests.exchange import test_inspect_log as inspect_log
from tests.exchange import test_lm_eval_export as lm_eval
from tests.exchange.tool_export_parts import exported
from tests.opinions.rated_file import rate_all

DEFINITION = """
name = "town"
[rubric]
name = "stars"
kind = "score"
user = "{question} {answer}"
rating = "[[{rating}]]"
low = 1
high = 5
[[task]]
name = "qa"
data = "qa.jsonl"
metrics = ["METRIC"]
prompt = "{document}\\n{question}"
max_new_tokens = 8
"""
HOUSES = 12
REPORTS = ("leaderboard", "guards", "cost", "judge_results", "rating_results", "agreement")
REVISED = {3: {"question": "What colour has 3?"}, 5: {"references": ["green"]}}
SECRETS = (b"Which colour is", b"House 1 is red", b"it is scarlet")


class Team:
    """A folder with the results file of a team."""

    def __init__(self, lbx: Lbx, folder: Path) -> None:
        self.lbx, self.folder, self.results = lbx, folder, folder / "results.duckdb"

    def bundle(self, name: str, changes: Mapping[int, dict[str, Any]], metric: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        lines = [
            {"id": f"q{n}", "document": f"House {n} is red.", "question": f"Which colour is {n}?", "references": "red"}
            | changes.get(n, {})
            for n in range(HOUSES)
        ]
        (folder / "benchmark.toml").write_text(DEFINITION.replace("METRIC", metric))
        (folder / "qa.jsonl").write_text("\n".join(map(json.dumps, lines)))
        return self.lbx.unpacked(folder / "benchmark.toml", folder)

    def model(self, name: str, answers: Mapping[str, str]) -> Path:
        """The card of a model that gives these answers; "*" is for all other questions."""
        lines = [{"key": key, "text": text} for key, text in answers.items()]
        (self.folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
        path = self.folder / f"{name}.toml"
        path.write_text(
            f'name = "org/{name}"\nbackend = "scripted"\ncontext_window = 4000\n[weights]\npath = "{name}.jsonl"\n'
        )
        return path

    def ask(self, bundle: Path, model: Path, name: str, results: Path | None = None) -> None:
        what = ("--bundle", bundle, "--model", model, "--tasks", "town", "--name", name, "--no-plan")
        self.lbx.ok("run", *what, "-o", results or self.results)

    def json(self, *arguments: object) -> Any:
        return json.loads(self.lbx.ok(*arguments, "--json").stdout)

    def reports(self, results: Path) -> dict[str, str]:
        return {name: self.lbx.ok("report", results, name, "--format", "json").stdout for name in REPORTS}

    def compare(self, results: Path, other: Path, *options: object) -> tuple[dict[str, Any], dict[str, Any]]:
        """The rows of the task of the reports revisions and comparison."""
        what = ("comparison", "--baseline-file", other, "--baseline", "baseline", "--format", "json")
        tables = json.loads(self.lbx.ok("report", results, *what, *options).stdout)
        (pairs,) = tables["revisions"]
        (comparison,) = [row for row in tables["comparison"] if row["task"] == "qa"]
        return pairs, comparison

    def runs(self, results: Path) -> dict[str, dict[str, Any]]:
        return {run["run_id"]: run for run in self.json("runs", results)["runs"]}


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Team:
    return Team(Lbx(), tmp_path_factory.mktemp("team"))


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("no ssh-keygen here, which signs: install OpenSSH's client")
    path = tmp_path_factory.mktemp("keys") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture(scope="module")
def lived(team: Team) -> Path:
    """Two runs and a failed attempt that are judged, rated, renamed, annotated and cleared away."""
    bundle = team.bundle("old", {}, "exact_match")
    right = {f"town/qa/q{n}": "red" for n in range(8)}
    team.ask(bundle, team.model("good", {**right, "*": "it is scarlet"}), "first")
    team.ask(bundle, team.model("bad", {"*": "blue"}), "second")
    team.ask(bundle, team.model("typo", {"*": "rde"}), "attempt")
    judge = team.model("umpire", {"*": "[[4]]"})
    what = ("--bundle", bundle, "--judge", judge, "--name", "umpire")
    team.lbx.ok("judge", team.results, *what, "--run", "first", "--run", "second", "--no-plan")
    rate_all(team.results, "ann", 4)
    team.lbx.ok("rate", team.results, "--collect")
    return team.results


def test_renamed_noted_and_removed(team: Team, lived: Path) -> None:
    before = team.reports(lived)
    team.lbx.ok("runs", "rename", lived, "first", "baseline")
    team.lbx.ok("runs", "note", lived, "baseline", "Params=7B")
    team.lbx.ok("runs", "remove", lived, "attempt", "--with-dependents", "--vacuum")
    runs = team.runs(lived)
    assert {run: row["kind"] for run, row in runs.items()} == {
        "baseline": "model",
        "second": "model",
        "umpire": "judge",
    }
    assert runs["baseline"]["facts"] == {"Params": "7B"}
    assert (runs["baseline"]["answers"], runs["umpire"]["answers"]) == (HOUSES, 2 * HOUSES)
    judged = [row for row in json.loads(before["judge_results"]) if row["run_id"] != "attempt"]
    after = json.loads(team.reports(lived)["judge_results"])
    renamed = [{**row, "run_id": "baseline"} if row["run_id"] == "first" else row for row in judged]
    assert sorted(map(json.dumps, after)) == sorted(map(json.dumps, renamed))


def test_shared_without_texts_and_attested(team: Team, lived: Path, key: Path) -> None:
    trust = ("--trust", key.with_suffix(".pub"))
    team.lbx.ok("attest", lived, "--sign", key)
    assert team.json("verify", lived, *trust)["result"] == "verified"
    shared = team.folder / "shared.duckdb"
    team.lbx.ok("runs", "extract", lived, "--without-texts", "-o", shared)
    assert team.json("runs", "texts", shared)["texts"] == []
    assert not [secret for secret in SECRETS if secret in shared.read_bytes()]
    assert team.reports(shared) == team.reports(lived)
    attestation = ("--attestation", f"{lived}.attestation.jsonl.gz")
    assert team.json("verify", shared, *trust, *attestation)["result"] == "verified"
    forged = team.folder / "forged.duckdb"
    shutil.copy(shared, forged)
    with duckdb.connect(str(forged)) as connection:
        connection.execute("UPDATE scores SET score = 1 WHERE run_id = 'second' AND sample_id = 'q4'")
    done = team.lbx("verify", forged, *trust, *attestation, "--json")
    (change,) = json.loads(done.stdout)["changes"]
    assert (done.returncode, change["table"], change["key"]["sample_id"]) == (1, "scores", "q4")


def test_scored_by_a_new_rule(team: Team, lived: Path) -> None:
    bundle, rescored = team.bundle("rule", REVISED, "contains"), team.folder / "rescored.duckdb"
    team.lbx.ok("score", lived, "--bundle", bundle, "-o", rescored)
    pairs, comparison = team.compare(rescored, lived, "--run", "baseline")
    assert (pairs["paired"], pairs["changed"]) == (HOUSES - 1, 1), "the same answers pair, whatever their references"
    assert (comparison["n"], comparison["same_outputs"]) == (HOUSES - 1, HOUSES - 1)
    listed = json.loads(team.lbx.ok("show", rescored, "--mark", "question changed", "--json").stdout)
    assert [row["sample"] for row in listed] == ["town/qa/q3"] * 2


def test_compared_across_revisions(team: Team, lived: Path) -> None:
    bundle, asked = team.bundle("revised", REVISED, "exact_match"), team.folder / "asked.duckdb"
    team.ask(bundle, team.folder / "bad.toml", "later", asked)
    pairs, comparison = team.compare(asked, lived)
    assert (pairs["paired"], pairs["changed"], pairs["references_changed"]) == (HOUSES - 2, 1, 1)
    assert comparison["n"] == HOUSES - 2


def test_handed_to_other_tools(team: Team, lived: Path) -> None:
    models = team.folder / "models.duckdb"
    team.lbx.ok("runs", "extract", lived, "-o", models)
    team.lbx.ok("runs", "remove", models, "umpire", "--with-dependents")
    folders = {form: exported(models, form, team.folder / form) for form in ("every_eval_ever", "inspect", "lm_eval")}
    every_eval_ever.validate(folders["every_eval_ever"])
    every_eval_ever.check_numbers(models, folders["every_eval_ever"])
    inspect_log.check_numbers(models, inspect_log.read_logs(folders["inspect"]))
    lm_eval.check_numbers(models, folders["lm_eval"])
