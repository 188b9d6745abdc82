"""The papers' tables: where each benchmark's numbers stand, the best of a column, LongBench-E's relative curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lbx.base.number import NumberKey, group_number, task_number
from lbx.base.records import Sample
from lbx.report.format import render
from lbx.report.format.labels import number_label
from lbx.report.format.sheets import Sheet
from lbx.report.reports import read_report
from lbx.report.rows.paper import KEY, failures, paper_numbers, sheets, with_table_positions
from lbx.results import Store, Table
from tests.report.made_runs import add_run, trec
from tests.scored_parts import made_sample

NAMES = ["run", "run_id", "benchmark", "line", "official", "part", "place", "position", "low", "high", "method", KEY]


def paper(benchmark: str, *numbers: tuple[str, NumberKey, float | None], run_id: str = "r") -> Table:
    """Rows of the report, of (run, number, official figure)."""
    rows: list[tuple[Any, ...]] = [
        (run, f"{run_id}-{run}", benchmark, number_label(key), official, int(key.kind == "group"), at, 0, None, None,
         None, replace(key, benchmark=benchmark))
        for at, (run, key, official) in enumerate(numbers)
    ]  # fmt: skip
    return with_table_positions(Table(NAMES, rows))


def texts(made: Sequence[Sheet]) -> dict[str, list[list[str]]]:
    """{title: headings and rows}."""
    return {sheet.title: [[c.heading for c in sheet.columns], *map(list, sheet.rows)] for sheet in made}


@pytest.mark.parametrize(
    ("benchmark", "number", "title", "row", "column"),
    [
        ("longbench", task_number("qasper"), "LongBench: tasks", "", "qasper"),
        (
            "longbench",
            group_number("category", "synthetic", metric="average"),
            "LongBench: all languages, by category",
            "",
            "synthetic",
        ),
        (
            "longbench",
            group_number("category_zh", "synthetic", metric="average"),
            "LongBench: Chinese and code, by category",
            "",
            "synthetic",
        ),
        (
            "longbench",
            group_number("language", "zh", metric="average"),
            "LongBench: Chinese and code, by category",
            "",
            "overall",
        ),
        (
            "longbench",
            group_number("overall", metric="average"),
            "LongBench: all languages, by category",
            "",
            "overall",
        ),
        (
            "longbench",
            group_number("category_e", "summarization", metric="4-8k"),
            "LongBench-E: categories by length in words",
            "summarization",
            "4-8k",
        ),
        (
            "longbench",
            group_number("overall_e", metric="8k+"),
            "LongBench-E: categories by length in words",
            "overall",
            "8k+",
        ),
        ("longbench", task_number("trec_e", "0-4k"), "LongBench-E: tasks by length in words", "trec_e", "0-4k"),
        (
            "longbench_v2",
            group_number("length", "short", metric="accuracy"),
            "LongBench v2: difficulty and length",
            "accuracy",
            "short",
        ),
        (
            "longbench_v2",
            group_number("overall", metric="compensated"),
            "LongBench v2: difficulty and length",
            "compensated",
            "overall",
        ),
        (
            "longbench_v2",
            group_number("domain", "Multi-Document QA", metric="accuracy"),
            "LongBench v2: domains",
            "accuracy",
            "Multi-Document QA",
        ),
        (
            "longbench_pro",
            group_number("overall", metric="bon@3"),
            "LongBench Pro: overall, iterations, best of n, pass@n",
            "",
            "bon@3",
        ),
        (
            "longbench_pro",
            group_number("difficulty", "Extreme", metric="average"),
            "LongBench Pro: difficulty",
            "average",
            "Extreme",
        ),
        (
            "longbench_pro",
            group_number("primary_task", "T1. Retrieval & Ranking", metric="bon@2"),
            "LongBench Pro: primary tasks",
            "bon@2",
            "T1. Retrieval & Ranking",
        ),
        ("lveval", task_number("cmrc_mixup_16k"), "LV-Eval: datasets by length level", "cmrc_mixup", "16k"),
        (
            "lveval",
            group_number("length", "16k", metric="average"),
            "LV-Eval: datasets by length level",
            "average",
            "16k",
        ),
        (
            "lveval",
            group_number("dataset", "cmrc_mixup", metric="average"),
            "LV-Eval: datasets by length level",
            "cmrc_mixup",
            "average",
        ),
        ("leval", task_number("coursera"), "L-Eval: closed-ended tasks (exact match)", "", "coursera"),
        (
            "leval",
            group_number("closed", metric="exact_match"),
            "L-Eval: closed-ended tasks (exact match)",
            "",
            "average",
        ),
        ("leval", task_number("financial_qa"), "L-Eval: open-ended tasks (F1)", "", "financial_qa"),
        ("leval", group_number("open", metric="rouge2"), "L-Eval: open-ended tasks (ROUGE)", "rouge2", "average"),
        ("leval", task_number("news_summ"), "L-Eval: open-ended tasks (ROUGE)", "geometric mean", "news_summ"),
        ("handbook", group_number("overall", metric="average"), "handbook: overall", "average", "overall"),
        ("needle", task_number("single_en"), "needle: tasks", "", "single_en"),
    ],
)
def test_every_number_has_its_place(benchmark: str, number: NumberKey, title: str, row: str, column: str) -> None:
    found = texts(sheets(paper(benchmark, ("a", number, 12.5))))
    head = ["of", "run", column] if row else ["run", column]
    assert found == {title: [head, [*([row] if row else []), "a", "12.5"]]}


def test_all_figures_that_leval_prints_of_a_task_stand_in_its_tables(tmp_path: Path) -> None:
    tasks = [made_sample("leval", task, number) for task in ("gov_report_summ", "sci_fi") for number in range(4)]
    said = ("they were right [fact: True]", "here", "here and there", "")
    with Store(tmp_path / "results.duckdb") as store:
        add_run(store, "r", [(one, said[place % len(said)]) for place, one in enumerate(tasks)])
        numbers = store.query("SELECT task, metric, official FROM task_scores").rows
        found = texts(sheets(read_report(store, "paper")))
    # Its interval says how many digits a number has.
    official = {(task, metric): pytest.approx(number, abs=0.5) for task, metric, number in numbers}
    rouge = ("geometric_mean", "rouge1", "rouge2", "rougeL")
    table = found["L-Eval: open-ended tasks (ROUGE)"]
    at = table[0].index("gov_report_summ")
    assert {row[0]: float(row[at].split(" ")[0]) for row in table[1:]} == {
        metric.replace("_", " "): official["gov_report_summ", metric] for metric in rouge
    }
    heading, row = found["L-Eval: closed-ended tasks (exact match)"]
    assert {"sci_fi", "sci_fi, loyalty", "sci_fi, fact"} <= set(heading)
    assert float(row[heading.index("sci_fi, loyalty")].split(" ")[0]) == official["sci_fi", "loyalty"]


def test_runs_are_rows_and_the_best_is_bold() -> None:
    table = paper(
        "longbench",
        ("b", task_number("qasper"), 10.0),
        ("a", task_number("qasper"), 20.0),
        ("a", task_number("trec"), 5.0),
        ("b", task_number("trec"), 5.0),
        ("a", task_number("lcc"), 1.0),
    )
    (one,) = sheets(table)
    assert texts([one])[one.title] == [["run", "qasper", "trec", "lcc"], ["a", "20", "5", "1"], ["b", "10", "5", ""]]
    assert one.best == {(0, 1), (0, 2), (1, 2)}, "both where they are alike, none where there is one run"
    assert "| a | **20** | **5** | 1 |" in render.markdown(one)


def test_runs_of_one_name_stay_two_and_published_ones_are_marked() -> None:
    rows = [
        (name, run, "longbench", "qasper", score, 0, 0, 0, None, None, None, task_number("qasper"))
        for name, run, score in (("m", "r1", 1.0), ("m", "r2", 2.0), ("GPT*", None, 43.3))
    ]
    (one,) = sheets(with_table_positions(Table(NAMES, rows)))
    assert [list(row) for row in one.rows] == [["GPT*", "43.3"], ["m", "1"], ["m", "2"]]
    assert list(one.notes) == ["* published elsewhere"]


def test_lines_of_the_view_are_the_labels_of_its_numbers(tmp_path: Path) -> None:
    names = [("leval", "gov_report_summ"), ("longbench_v2", "mcq")]
    samples = [made_sample(*name, number) for name in names for number in range(3)]
    with Store(tmp_path / "r.duckdb") as store:
        add_run(store, "r", [(one, "The correct answer is (A)") for one in samples])
        rows = paper_numbers(store, ()).dicts()
    assert {row[KEY].kind for row in rows} == {"task", "group"} and any(row[KEY].metric for row in rows)
    assert [number_label(row[KEY]) for row in rows] == [row["line"] for row in rows]


def test_rows_keep_their_columns_and_say_their_place() -> None:
    table = paper(
        "longbench_v2",
        ("a", group_number("overall", metric="accuracy"), 28.2),
        ("a", task_number("mcq", "easy"), 30.0),
    )
    assert list(table.columns) == [*NAMES, "table", "row", "column"]
    first, second = table.dicts()
    assert (first["table"], first["row"], first["column"]) == ("overall", "accuracy", "overall")
    assert (second["table"], second["official"]) == (None, 30.0), "the groups say the same"


def test_a_number_that_is_not_official_says_why(tmp_path: Path) -> None:
    mark = "-: no official number"
    for counts, wanted in (({"longbench/trec": 9}, True), ({"longbench/trec": 5}, False)):
        with Store(tmp_path / f"{wanted}.duckdb") as store:
            add_run(store, "r", trec(2, 5), counts=counts)
            (made,) = sheets(read_report(store, "paper"))
        assert made.rows[0][1].startswith("-") is wanted
        assert any(note.startswith(mark) and "no score for some" in note for note in made.notes) is wanted


def test_a_paper_says_what_its_numbers_leave_out(tmp_path: Path) -> None:
    """LongBench v2's script drops failed samples; a length all of which failed has no column."""
    meta = {"domain": "d", "difficulty": "easy", "choices": dict.fromkeys("ABCD", "x")}
    answers = [
        (
            Sample(
                "longbench_v2", "mcq", f"{at}", f"document {at}", "?", ("A",), length=9, meta=meta | {"length": length}
            ),
            output,
        )
        for at, (length, output) in enumerate([("short", "The correct answer is (A)"), ("short", None), ("long", None)])
    ]
    with Store(tmp_path / "r.duckdb") as store:
        add_run(store, "r", answers)
        table = read_report(store, "paper")
        add_run(store, "whole", answers[:1])
        assert len(failures(store, read_report(store, "paper"))) == 1, "whole has none"
        (note,) = failures(store, table)
    assert note == (
        "model, longbench_v2: official numbers leave out its 2 failed samples; "
        "groups with only failed samples are not shown."
    )
    (overall,) = sheets(table, [note])
    assert "long" not in {column.heading for column in overall.columns} >= {"overall", "short"}
    assert overall.notes[-1] == note
