"""The first table of a page: all scores, best runs first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lbx.base.records import Sample
from lbx.report import page
from lbx.report.page.source import PageSource
from lbx.report.query import ALL
from lbx.report.ranks import ranked_runs
from lbx.results import Store
from tests.page_parts import EVIL, SPELLED, Page, results_file
from tests.report.made_runs import add_run, trec


def first_section(path: Path) -> str:
    with Store(path, read_only=True) as store:
        text = "".join(page.pieces(store))
    return text[text.index('id="scores"') : text.index('id="effective_context"')]


def table_rows(section: str) -> list[list[str]]:
    rows = Page(section[section.index("<table>") : section.index("</table>")]).cells
    return [[cell.strip() for cell in row] for row in rows]


def qasper(count: int, right: int) -> list[tuple[Sample, str]]:
    samples = [Sample("longbench", "qasper", f"{n}", f"{n}", "?", ("yes",), "en", 9) for n in range(count)]
    return [(sample, "yes" if n < right else "no") for n, sample in enumerate(samples)]


def test_all_scores_are_in_one_table_with_the_average_first(tmp_path: Path) -> None:
    path = results_file(tmp_path / "r.duckdb", samples=40, failed=())
    head, *rows = table_rows(first_section(path))
    assert head[:2] == ["run", "longbench average"]
    assert {"qasper", "hotpotqa"} < set(head)
    assert [row[0] for row in rows] == ["second", "first"]
    with Store(path, read_only=True) as store:
        scores = dict(store.query("SELECT run_id, score FROM leaderboard").rows)
        tasks = dict(store.query("SELECT run_id, score FROM task_scores WHERE task = 'qasper'").rows)
    for run, average, *others in rows:
        cells = dict(zip(head[2:], others, strict=True))
        assert average.startswith(f"{100 * scores[run]:.1f} ["), "the interval follows"
        assert cells["qasper"].startswith(f"{100 * tasks[run]:.1f} [")


def test_an_average_over_some_of_the_tasks_has_an_asterisk(tmp_path: Path) -> None:
    with Store(tmp_path / "r.duckdb") as store:
        add_run(store, "a", [*trec(40, 50), *qasper(12, 6)], model="a")
        add_run(store, "b", trec(45, 50), model="b")
    section = first_section(tmp_path / "r.duckdb")
    averages = {row[0]: row[1] for row in table_rows(section)[1:]}
    assert "*" in averages["b"] and "*" not in averages["a"]
    assert "only some of the tasks" in section
    assert "1 of 2 tasks" in section


def test_the_only_task_of_a_benchmark_is_its_average(tmp_path: Path) -> None:
    with Store(tmp_path / "r.duckdb") as store:
        add_run(store, "a", trec(40, 50), model="a")
    assert "trec" not in table_rows(first_section(tmp_path / "r.duckdb"))[0]


@pytest.mark.parametrize(
    ("right", "shades"),
    [((10, 30, 50), ["h9 best", "h5", "h0"]), ((48, 49, 50), ["h9 best", "h8", "h7"])],
    ids=["the lowest is the lightest", "close scores look alike"],
)
def test_cells_are_shaded_by_their_distance_from_the_best(
    tmp_path: Path, right: tuple[int, ...], shades: list[str]
) -> None:
    with Store(tmp_path / "r.duckdb") as store:
        for n, count in enumerate(right):
            add_run(store, f"r{n}", trec(count, 50), model=f"m{n}")
    section = first_section(tmp_path / "r.duckdb")
    assert re.findall(r'<td class="average (h\d(?: best)?)"', section) == shades


def test_averages_of_several_benchmarks_come_first(tmp_path: Path) -> None:
    path = results_file(tmp_path / "r.duckdb", tasks=["lcc", "repobench-p"])
    results_file(path, ["first", "second"], ["one", "two"], benchmark="own")
    head = table_rows(first_section(path))[0]
    assert head[1:3] == ["longbench average", "own average"]


def test_equal_printed_scores_are_equally_bold(tmp_path: Path) -> None:
    """The script, which has only the printed numbers, shades the cells anew when runs are hidden."""
    with Store(tmp_path / "r.duckdb") as store:
        for name, right, count in (("a", 2, 3), ("b", 667, 1000), ("c", 1, 3)):
            add_run(store, name, trec(right, count), model=name)
    section = first_section(tmp_path / "r.duckdb").partition("<table>")[2]
    assert section.count(">66.7") == section.count('class="average h9 best"') == 2


def test_a_column_of_equal_scores_has_no_shade(tmp_path: Path) -> None:
    path = results_file(tmp_path / "r.duckdb", score=0.5, failed=())
    assert not re.search(r'<td class="[^"]*\bh\d', first_section(path))


def test_a_switch_per_group_of_columns_works_without_a_script(tmp_path: Path) -> None:
    section = first_section(results_file(tmp_path / "r.duckdb", tasks=["lcc", "repobench-p"]))
    switches = re.findall(r'<input type="checkbox" class="(\w+)" value="[^"]+"( checked)?> ([^<]+)</label>', section)
    assert [(name, bool(checked)) for _, checked, name in switches] == [
        ("95% intervals and places", False),
        ("categories of longbench", True),
        ("tasks of longbench", False),
    ]
    for css_class, _, _ in switches[1:]:
        assert re.search(rf'<th [^>]*class="{css_class}"', section)


def test_a_run_has_the_colour_of_its_place(tmp_path: Path) -> None:
    """Places are of the benchmark with the most runs; runs without a score there follow."""
    path = tmp_path / "r.duckdb"
    with Store(path) as store:
        add_run(store, "low", trec(10, 50), model="low")
        add_run(store, "high", trec(40, 50), model="high")
    results_file(path, ["other"], ["needle"], benchmark="own")
    results_file(path, ["failing"], ["qasper"], 3, failed=range(3))
    with Store(path, read_only=True) as store:
        assert ranked_runs(store) == ["high", "low", "failing", "other"]
        runs = PageSource(store, ALL).runs
    assert [run.mark for run in runs.values()] == [0, 1, 2, 3]
    assert list(runs) == ["high", "low", "failing", "other"]


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    path = results_file(tmp_path / "r.duckdb", [EVIL, "plain"])
    section = first_section(path)
    assert "<b onload" not in section
    assert SPELLED in {row[0] for row in table_rows(section)}


def test_findings_name_a_cause_once_for_all_runs(tmp_path: Path) -> None:
    path = results_file(tmp_path / "r.duckdb", [f"run-{n}" for n in range(6)])
    section = Page(first_section(path)).text
    assert section.count("the card caught fire") == 1
    assert "Failed answers of longbench: " in section and "and 3 more" in section


@pytest.mark.parametrize(("iterations", "said"), [(1, "6 of 12 samples"), (2, "6 of 24 answers")])
def test_a_score_over_a_part_of_the_answers_says_so_in_print(tmp_path: Path, iterations: int, said: str) -> None:
    """In the cell, which paper shows, and in the sentences."""
    counts = {"longbench/trec": 12}
    with Store(tmp_path / "r.duckdb") as store:
        add_run(store, "a", trec(6, 12), model="a", counts=counts)
        add_run(store, "b", trec(3, 6), model="b", counts=counts, settings={"iterations": iterations})
    section = first_section(tmp_path / "r.duckdb")
    averages = {row[0]: row[1] for row in table_rows(section)[1:]}
    assert said in averages["b"]
    assert " of 12" not in averages["a"]
    assert "over a part of the answers" in section
