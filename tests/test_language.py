"""The counters of ``tools/language.py`` find what they are for. `just lint` compares the project with their limits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import language

PLAIN = '''"""Merge runs of several files."""

def merge_runs(files):
    """Return the merged run."""
    # The order of files decides which run wins.
    raise ValueError("Give at least two results files with --results.")
'''
ODD = '''"""What nobody says."""

class Found:
    """Parts, and their places; one that has no sample."""
    kept: int

def most(across):
    """Largest count, or 0 if it is missing."""

def _told(made, paths):
    """Merge runs."""
    # lies beside it
    raise ValueError("There is no such file, and nothing was done.")
'''


def project(folder: Path, **sources: str) -> Path:
    for name, source in sources.items():
        module = folder / "lbx" / f"{name}.py"
        module.parent.mkdir(exist_ok=True)
        module.write_text(source)
    (folder / "docs").mkdir()
    (folder / "docs" / "page.md").write_text("Run the model.\n\n```text\nwhat nobody counts\n```\n\nIt says nothing.\n")
    (folder / "README.md").write_text("# lbx\n")
    return folder


def test_plain_code_has_no_findings(tmp_path: Path) -> None:
    findings = language.find_all(project(tmp_path, merging=PLAIN))
    assert {kind: findings.count(kind) for kind in language.LIMITS if kind != "pages"} == dict.fromkeys(
        set(language.LIMITS) - {"pages"}, 0
    )


def test_each_kind_is_counted_where_it_is(tmp_path: Path) -> None:
    findings = language.find_all(project(tmp_path, told=ODD))
    count = {kind: len(lines) for kind, lines in findings.lines.items() if lines}
    assert count == {
        "docstrings": 5, "messages": 2, "pages": 2, "function": 1, "parameter": 1, "field": 1, "class": 1, "module": 1,
        "have": 1, "general": 2, "semicolon": 1, "pronoun": 2, "vague": 2,
    }  # fmt: skip
    assert findings.lines["function"] == ["lbx/told.py:10: _told"]
    assert findings.lines["vague"] == ["lbx/told.py:7: function most", "lbx/told.py:7: parameter across"]
    assert findings.lines["semicolon"][0].startswith("lbx/told.py:4: ';' in ")
    assert findings.count("docstrings") == pytest.approx(5 / 24 * 10_000)
    assert findings.count("have") == pytest.approx(1 / 21 * 10_000)
    assert findings.count("semicolon") == 1


@pytest.mark.parametrize("name", ["made", "_kept", "rows_found", "RunAsked", "_Shown", "beside", "merged"])
def test_a_participle_at_the_end_is_no_noun(name: str) -> None:
    assert language.is_participle(name)


@pytest.mark.parametrize("name", ["stored_answer", "embed", "failed", "red", "QuantisedFolder", "n_truncated", "cells"])
def test_nouns_flags_and_words_of_the_field_are_fine(name: str) -> None:
    assert not language.is_participle(name)


def test_a_class_name_of_two_modules_is_a_duplicate(tmp_path: Path) -> None:
    sources = {"a": "class Line:\n    pass\n", "b": "Line = dict\n", "c": "LINE = 3\nclass Page:\n    pass\n"}
    findings = language.find_all(project(tmp_path, **sources))
    assert findings.lines["duplicate"] == ["Line: lbx/a.py:1, lbx/b.py:1"]


def test_a_count_above_its_limit_fails_in_changed_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = "".join(f"class Run{number}Found:\n    pass\n" for number in range(language.LIMITS["class"]))
    last = f"lbx/runs.py:{2 * language.LIMITS['class'] + 1}: Kept"
    root = project(tmp_path, runs=names)
    (root / "docs" / "page.md").unlink()
    assert language.main(["--root", str(root)]) == 0
    git = ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t"]
    subprocess.run([*git, "init", "-q"], check=True)
    (root / "lbx" / "runs.py").write_text(names + "class Kept:\n    pass\n")
    assert language.main(["--root", str(root)]) == 1
    said = capsys.readouterr().out
    assert "Above the limit: class. Findings: python -m tools.language --list class" in said
    assert said.splitlines()[-1] == last
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "all"], check=True)
    assert language.main(["--root", str(root)]) == 0, "nobody has to mend what others wrote"
    capsys.readouterr()
    assert language.main(["--root", str(root), "--list", "class"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == last
