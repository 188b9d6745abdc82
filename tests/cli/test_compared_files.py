"""Comparison with a run of another results file: two revisions of a dataset, and two scorings of the same answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_new_rules import ROWS, Revision, edited, first, model, rescored, results, revision, run
from tests.command_line import Done, Lbx, fails

__all__ = ["first", "model", "results", "revision"]


def compared(lbx: Lbx, file: Path, other: Path, *more: object) -> dict[str, list[dict[str, Any]]]:
    done = lbx.ok("report", file, "comparison", "--baseline-file", other, *more, "--format", "json")
    tables: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    assert tables.keys() == {"comparison", "revisions"}
    return tables


def kinds(tables: dict[str, list[dict[str, Any]]], task: str) -> dict[str, int]:
    (row,) = [row for row in tables["revisions"] if row["task"] == task]
    return {name: value for name, value in row.items() if isinstance(value, int) and value}


def asked(lbx: Lbx, bundle: Path, model: Path, path: Path) -> Path:
    lbx.ok(*run(bundle, model, path, "--name", "m"))
    return path


def test_equal_questions_of_two_revisions_are_compared(
    lbx: Lbx, results: Path, revision: Revision, model: Path, tmp_path: Path
) -> None:
    """Rows are in another order with other ids; one is new, one gone, one has another question, one a reference."""
    qa = [*reversed(ROWS["qa"][1:]), {**ROWS["qa"][0], "id": "q9", "document": "House 9 is red."}]
    qa = [{**row, "id": f"r{row['id']}" if row["id"] in ("q1", "q2") else row["id"]} for row in qa]
    qa[0] |= {"references": ["blue"]}  # q5
    qa[1] |= {"question": "Which one?"}  # q4
    other = asked(lbx, revision(qa=qa), model, tmp_path / "new.duckdb")
    tables = compared(lbx, other, results)
    assert kinds(tables, "qa") == {
        "paired": 3, "only_in_baseline": 1, "only_in_file": 1, "changed": 1, "references_changed": 1,
    }  # fmt: skip
    assert kinds(tables, "pick") == {"paired": 3}
    (row,) = [row for row in tables["comparison"] if row["task"] == "qa"]
    assert (row["n"], row["run_b"], row["same_outputs"]) == (3, "m", 1), "the model knows the ids r1 and r2 by no key"
    assert row["run_a"].endswith("in results.duckdb")
    assert row["caution"] is None


def test_a_changed_template_is_refused(
    lbx: Lbx, results: Path, revision: Revision, model: Path, tmp_path: Path
) -> None:
    bundle = revision(('{document}\\n{question}"\nno', '{document}\\n\\n{question}"\nno'))
    other = asked(lbx, bundle, model, tmp_path / "new.duckdb")
    report = ("report", other, "comparison", "--baseline-file", results)
    fails(lbx(*report), 2, "6 prompts with other instructions", "--allow-different-settings")
    assert "6 prompts with other instructions" in lbx.ok(*report, "--allow-different-settings").stdout


def test_the_same_answers_scored_twice_are_all_compared(
    lbx: Lbx, results: Path, revision: Revision, model: Path
) -> None:
    qa = edited("qa", 5, question="Which one?")
    qa[0] = {**qa[0], "references": ["blue"]}
    bundle = revision(('"exact_match"', '"contains"'), qa=qa)
    output, _ = rescored(lbx, results, bundle)
    for _ in range(2):
        tables = compared(lbx, output, results)
        (row,) = [row for row in tables["comparison"] if row["task"] == "qa"]
        assert (row["n"], row["score_a"], row["score_b"], row["same_outputs"]) == (5, 1.0, 0.8, 5)
        assert row["caution"] == (
            "the same answers scored twice (town/qa: exact_match in the first run, contains in the second)"
        )
        assert kinds(tables, "qa") == {"paired": 5, "changed": 1, "references_changed": 1, "rules_changed": 4}
        (row,) = [row for row in tables["comparison"] if row["task"] == "pick"]
        assert (row["n"], row["difference"]) == (3, 0)
        lbx.ok(*run(bundle, model, output))  # the answer to a changed question is no answer to the earlier one
    tables = compared(lbx, results, output)
    (row,) = [row for row in tables["comparison"] if row["task"] == "qa"]
    assert (row["n"], row["score_a"], row["score_b"]) == (5, 0.8, 1.0)


def test_another_run_next_to_a_rescored_run_is_compared_by_equal_rules(
    lbx: Lbx, results: Path, revision: Revision, model: Path
) -> None:
    bundle = revision(qa=edited("qa", 5, references=["blue"]))
    output, _ = rescored(lbx, results, bundle)
    other = model.with_name("other.toml")
    other.write_text(model.read_text().replace('"m"', '"other"'))
    lbx.ok(*run(bundle, other, output, "--name", "o"))
    tables = compared(lbx, output, results)
    counts = {row["run_b"]: row["n"] for row in tables["comparison"] if row["task"] == "qa"}
    assert sorted(counts.values()) == [5, 6] and counts["o"] == 5
    names = {row["run_b"]: row["run_a"].partition("results.duckdb")[2] for row in tables["comparison"]}
    assert sorted(names.values()) == ["", ", same answers"] and names["o"] == ""
    assert [row["paired"] for row in tables["revisions"] if row["task"] == "qa"] == [5, 6]
    changed = [row["references_changed"] for row in tables["revisions"] if row["task"] == "qa"]
    assert changed == [1, 1], "as many as `lbx score` says, although the same answers are paired"
    fails(lbx("report", results, "comparison", "--baseline-file", output), 2, "Pass one with --baseline: m-scr")


def test_equal_questions_with_other_references_are_ambiguous(
    lbx: Lbx, revision: Revision, model: Path, tmp_path: Path
) -> None:
    def twice(*references: str) -> list[dict[str, Any]]:
        return [{**ROWS["qa"][0], "id": f"d{n}", "references": [text]} for n, text in enumerate(references)]

    same = asked(lbx, revision(qa=twice("red", "blue", "red")), model, tmp_path / "a.duckdb")
    moved = asked(lbx, revision(qa=twice("blue", "red", "red")), model, tmp_path / "b.duckdb")
    edited_twice = asked(lbx, revision(qa=twice("green", "yellow", "red")), model, tmp_path / "c.duckdb")
    assert kinds(compared(lbx, moved, same), "qa") == {"paired": 3}
    assert kinds(compared(lbx, edited_twice, same), "qa") == {"paired": 1, "ambiguous": 2}


def test_every_format_shows_the_comparison(lbx: Lbx, results: Path, revision: Revision, model: Path) -> None:
    output, _ = rescored(lbx, results, revision(qa=edited("qa", 5, references=["blue"])))
    report = ("report", output, "comparison", "--baseline-file", results)
    said = lbx.ok(*report).stdout
    assert "Only paired questions are compared." in said and "the same answers scored twice" in said
    for name in ("markdown", "latex", "html"):
        assert "paired" in lbx.ok(*report, "--format", name).stdout
    lines = lbx.ok("report", output, "revisions", "--baseline-file", results, "--format", "csv").stdout.splitlines()
    assert len(lines) == 3 and len(lbx.ok(*report, "--format", "csv").stdout.splitlines()) > 2
    lbx.ok(*report, "--format", "parquet", "-o", output.with_suffix(".parquet"))
    (change,) = json.loads(lbx.ok("report", output, "changes", "--baseline-file", results, "--format", "json").stdout)[
        "changes"
    ]
    assert (change["sample_id"], change["difference"]) == ("q5", -1)


def test_unusable_files_are_refused(lbx: Lbx, results: Path, first: Path, tmp_path: Path) -> None:
    def report(*words: object) -> Done:
        return lbx("report", results, *words)

    copy = tmp_path / "copy.duckdb"
    copy.write_bytes(results.read_bytes())
    fails(report("comparison", "--baseline-file", tmp_path / "no.duckdb"), 1, "does not exist")
    fails(report("comparison", "--baseline-file", results), 2, "is the file itself")
    fails(report("comparison", "--baseline-file", copy, "--baseline", "x"), 2, "No run 'x' in", "copy.duckdb")
    fails(report("--baseline-file", copy), 2, "Name one of the reports comparison, changes, revisions")
    fails(report("leaderboard", "--baseline-file", copy), 2, "Name one of the reports")
    assert "Name it with --baseline-file" in report("revisions").stdout
    (tmp_path / "text.duckdb").write_text("no results")
    fails(report("comparison", "--baseline-file", tmp_path / "text.duckdb"), 1, "is not a results file")
    assert "same outputs" in report("comparison", "--baseline-file", copy).stdout


def test_imports_without_questions_cannot_be_paired(lbx: Lbx, tmp_path: Path) -> None:
    (tmp_path / "pred").mkdir()
    rows = [{"pred": "a", "answers": [f"a{n}"], "all_classes": None, "length": 3} for n in range(3)]
    (tmp_path / "pred" / "qasper.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name in ("a", "b"):
        lbx.ok("import", "longbench", tmp_path / "pred", "--model-name", name, "-o", tmp_path / f"{name}.duckdb")
    done = lbx("report", tmp_path / "a.duckdb", "comparison", "--baseline-file", tmp_path / "b.duckdb")
    fails(done, 2, "cannot be paired by content", "3 questions have an unknown document", "--bundle")


@pytest.mark.parametrize("without", [0, 1, (0, 1)])
def test_files_without_texts_are_compared_in_the_same_way(
    lbx: Lbx, results: Path, revision: Revision, model: Path, tmp_path: Path, without: object
) -> None:
    qa = edited("qa", 5, question="Which one?")
    qa[0] = {**qa[0], "references": ["blue"]}
    output, _ = rescored(lbx, results, revision(qa=qa))
    files = [output, results]
    for n in without if isinstance(without, tuple) else (without,):
        target = tmp_path / f"bare-{n}" / files[n].name
        target.parent.mkdir()
        lbx.ok("runs", "extract", files[n], "--without-texts", "-o", target)
        files[n] = target
    assert compared(lbx, *files) == compared(lbx, output, results)
    fails(lbx("score", target, "--bundle", revision(), "-o", tmp_path / "x.duckdb"), 1, "removed all texts")
