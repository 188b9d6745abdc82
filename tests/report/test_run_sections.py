"""Sections of the page about one run: what they show, and where they are linked."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from lbx.report import page
from lbx.results import Store
from tests.command_line import Lbx
from tests.page_parts import EVIL, SPELLED, results_file


def made(path: Path) -> str:
    with Store(path, read_only=True) as store:
        return "".join(page.pieces(store))


def section_of(text: str, label: str) -> str:
    """The section whose title names the run, up to the next section."""
    (found,) = re.findall(
        rf"<section[^>]*><details[^>]*><summary><h2[^>]*>Model: {label}</h2>.*?</section>", text, re.S
    )
    return found


def test_a_name_in_the_first_table_leads_to_its_section(tmp_path: Path) -> None:
    text = made(results_file(tmp_path / "r.duckdb"))
    anchors = re.findall(r'<a href="#(run-[^"]*)">', text)
    assert anchors == ["run-second", "run-first"] and all(f'id="{anchor}"' in text for anchor in anchors)
    assert "run-first" not in re.findall(r"<nav.*?</nav>", text, re.S)[0]


def test_anchors_of_runs_are_words_and_differ(tmp_path: Path) -> None:
    names = ["a b", "A/B", "a-b-2", EVIL, "通义千问", "!"]
    text = made(results_file(tmp_path / "r.duckdb", names))
    anchors = re.findall(r'<a href="#(run-[^"]*)">', text)
    assert len({*anchors}) == len(names) and all(text.count(f'id="{anchor}"') == 1 for anchor in anchors)
    assert {"run-a-b", "run-通义千问", "run-untitled"} <= {*anchors}
    assert all(re.fullmatch(r"run-[\w-]+", anchor) for anchor in anchors)


def test_the_weakest_tasks_and_lowest_answers_are_shown(tmp_path: Path) -> None:
    path = results_file(tmp_path / "r.duckdb", samples=20)
    text = made(path)
    first, second = section_of(text, "first"), section_of(text, "second")
    with Store(path, read_only=True) as store:
        scores = {
            (run, task): score
            for run, task, score in store.query("SELECT run_id, task, score FROM task_scores WHERE headline").rows
        }
    for task in ("qasper", "hotpotqa"):
        behind = 100 * (scores["first", task] - scores["second", task])
        assert behind < 0 and f"<td>{behind:+.1f}</td>" in first
    assert "farthest behind" not in second
    lowest = re.findall(r"<article><p><b>([\d.]+)</b> longbench/(\w+/[\w-]+)</p>", first)
    assert len(lowest) == 3 and [float(score) for score, _ in lowest] == sorted(float(score) for score, _ in lowest)
    assert lowest[0][0] == "0.0" and "bundle digest" in first


def test_a_file_without_texts_shows_no_answers(tmp_path: Path) -> None:
    path = results_file(tmp_path / "r.duckdb")
    Lbx().ok("runs", "extract", path, "-o", tmp_path / "bare.duckdb", "--without-texts")
    bare = section_of(made(tmp_path / "bare.duckdb"), "first")
    assert "Lowest answers" not in bare and "farthest behind" in bare


def test_a_hostile_name_comes_through_as_text(tmp_path: Path) -> None:
    text = made(results_file(tmp_path / "r.duckdb", runs=(EVIL, "second"), output=EVIL))
    assert escape(SPELLED) in text and "<b onload" not in text
