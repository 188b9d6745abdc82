"""Imports beside what a bundle knows: how many answers there should be, and which document a question is about."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.benchmarks.registry import BENCHMARKS
from lbx.exchange.importing import parse_predictions, write_predictions
from lbx.results import Store
from lbx.results.scoring.scores import Rescoring, rescore
from tests.command_line import Lbx
from tests.exchange.import_parts import bundle_of
from tests.judge_parts import make_home

lbx = Lbx()
NUMBERS = ("task_results", "length_results", "group_results", "benchmark_results")


def v2_row(number: int) -> dict[str, str]:
    """One question of LongBench v2; two ask about each document."""
    texts = {name: f"{name} {number}" for name in ("_id", "question", *(f"choice_{letter}" for letter in "ABCD"))}
    kind = {"domain": "Single-Document QA", "sub_domain": "Legal", "difficulty": "easy", "length": "short"}
    return texts | kind | {"answer": "AB"[number % 2], "context": f"document {number // 2}"}


ROWS = [v2_row(number) for number in range(6)]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return bundle_of(tmp_path / "bundle", {"THUDM/LongBench-v2:data.json": json.dumps(ROWS).encode()}).root


@pytest.fixture
def answers(write_lines: Callable[..., Path]) -> Callable[[str, Sequence[dict[str, str]]], Path]:
    def write(name: str, rows: Sequence[dict[str, str]]) -> Path:
        said = {"response": "The correct answer is (A)", "pred": "A"}
        told = [{**said, **{key: row[key] for key in row if key != "context"}} for row in rows]
        return write_lines(name, [{**row, "judge": row["answer"] == "A"} for row in told])

    return write


def imported(path: Path, output: Path, *more: object) -> None:
    done = lbx("import", "longbench_v2", path, "--model-name", path.stem, "--name", path.stem, "-o", output, *more)
    assert done.returncode == 0, done.stderr


def numbers(output: Path) -> dict[str, list[tuple[object, ...]]]:
    with Store(output, read_only=True) as store:
        return {name: store.query(f"FROM {name} ORDER BY ALL").rows for name in NUMBERS}


def test_a_part_that_is_imported_with_a_bundle_stays_a_part(tmp_path: Path, bundle: Path, answers: Callable) -> None:
    out = tmp_path / "results.duckdb"
    for name, rows in (("part", ROWS[:2]), ("whole", ROWS)):
        imported(answers(f"{name}.jsonl", rows), out, "--bundle", bundle)
    imported(answers("alone.jsonl", ROWS[:2]), out)
    with Store(out, read_only=True) as store:
        heads = "SELECT run_id, score, official, partial, coverage FROM task_scores WHERE headline ORDER BY run_id"
        assert store.query(heads).rows == [
            ("alone", 0.5, 50.0, False, None),  # of a file alone nobody knows that it is a part
            ("part", 0.5, None, True, "2 of 6"),
            ("whole", 0.5, 50.0, False, None),
        ]
        shown = store.query("SELECT DISTINCT run FROM paper WHERE official IS NOT NULL ORDER BY ALL").rows
        assert shown == [("alone",), ("whole",)]
        assert store.query("SELECT count(*) FROM group_results WHERE run_id = 'part' AND official > 0").rows == [(0,)]


def test_an_exported_part_comes_back_as_one(tmp_path: Path) -> None:
    """``lbx run --limit``, ``lbx export``, ``lbx import --bundle``."""
    home, out = make_home(lbx, tmp_path), tmp_path / "results.duckdb"
    what = ("--bundle", home / "b", "--model", home / "x.toml", "--tasks", "leval/multidoc_qa", "--limit", 4)
    assert (done := lbx("run", *what, "--name", "made", "-o", out, "--no-plan")).returncode == 0, done.stderr
    assert lbx("export", "leval", out, "--run", "made", "-o", tmp_path / "pred").returncode == 0
    back = (
        "import",
        "leval",
        tmp_path / "pred",
        "--model-name",
        "x",
        "--name",
        "back",
        "--bundle",
        home / "b",
        "-o",
        out,
    )
    assert (done := lbx(*back)).returncode == 0, done.stderr
    with Store(out, read_only=True) as store:
        found = store.query("SELECT run_id, official, coverage, partial FROM task_scores ORDER BY run_id").rows
    assert found == [("back", None, "4 of 9", True), ("made", None, "4 of 9", True)]


def test_numbers_are_as_sure_as_if_the_documents_had_always_been_known(
    tmp_path: Path, bundle: Path, answers: Callable
) -> None:
    """A later import that knows which question is about which document, or a merge with one, makes them anew."""
    out, other, merged = (tmp_path / f"{name}.duckdb" for name in ("results", "other", "merged"))
    first, second = answers("first.jsonl", ROWS), answers("second.jsonl", ROWS[:5])
    imported(first, out)
    imported(second, other, "--bundle", bundle)
    assert lbx("merge", out, other, "-o", merged).returncode == 0
    backwards = tmp_path / "backwards.duckdb"
    assert lbx("merge", other, out, "-o", backwards).returncode == 0
    imported(second, out, "--bundle", bundle)
    for file in (out, merged, backwards):
        before = numbers(file)
        with Store(file) as store:
            sure = "SELECT run_id, clusters, cluster_by FROM task_scores WHERE headline ORDER BY run_id"
            assert store.query(sure).rows == [("first", 4, "sample"), ("second", 3, "document")], file
            rescore(store, Rescoring(BENCHMARKS))
        assert numbers(file) == before, file


def test_what_only_a_judge_reads_need_not_be_in_the_file(tmp_path: Path, write_lines: Callable[..., Path]) -> None:
    """As in L-Eval's published files, which hold the questions that have a score."""
    asked = [("Who?", "Ann", "f1"), ("What?", "tea", "f1"), ("Why?", "so", "LLM")]
    rows = [
        {"instructions": [question], "outputs": [answer], "input": question, "source": "", "evaluation": mark}
        for question, answer, mark in asked
    ]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    bundle = bundle_of(tmp_path / "bundle", {"L4NLP/LEval:LEval/Generation/scientific_qa.jsonl": data}).root
    said = [
        {"query": question, "gt": answer, "m_pred": answer, "evaluation": mark}
        for question, answer, mark in asked
        if mark == "f1"
    ]
    out = tmp_path / "results.duckdb"
    for some in (said[:1], said):
        file = write_lines(f"part{len(some)}/scientific_qa.pred.jsonl", some)
        done = lbx(
            "import",
            "leval",
            file.parent,
            "--model-name",
            "m",
            "--name",
            f"r{len(some)}",
            "-o",
            out,
            "--bundle",
            bundle,
        )
        assert done.returncode == 0, done.stderr
    with Store(out, read_only=True) as store:
        found = store.query("SELECT run_id, official, coverage FROM task_scores ORDER BY 1").rows
    assert found == [("r1", None, "1 of 3"), ("r2", 100.0, "2 of 3")]


def test_what_a_killed_command_told_of_documents_counts_when_it_is_repeated(
    tmp_path: Path, bundle: Path, answers: Callable
) -> None:
    """It was killed between its last commit and the numbers of the run before, which knew no documents."""
    out, first, second = tmp_path / "results.duckdb", answers("first.jsonl", ROWS), answers("second.jsonl", ROWS)
    imported(first, out)
    with Store(out) as store:
        how = {"model": "second", "run_id": "second", "bundle": Bundle(bundle)}
        write_predictions(store, parse_predictions("longbench_v2", second, **how))
    imported(second, out, "--bundle", bundle)
    with Store(out, read_only=True) as store:
        sure = "SELECT run_id, clusters, cluster_by FROM task_scores WHERE headline ORDER BY run_id"
        assert store.query(sure).rows == [("first", 3, "document"), ("second", 3, "document")]
