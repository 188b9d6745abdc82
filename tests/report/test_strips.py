"""Strips of scores by length: what is shown of few answers and cut prompts, and up to where a run works."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from lbx.benchmarks.ruler.aggregates import metrics_of
from lbx.report.draw import figures as drawings
from lbx.report.format import render
from lbx.report.format.sheets import Sheet
from lbx.report.format.terminal import lines
from lbx.report.page import pieces
from lbx.report.page.source import PageSource
from lbx.report.query import ALL, ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.results import Store
from tests.page_parts import EVIL, Page
from tests.report.made_answers import Answer, make
from tests.report.test_effective_context import answers, spread

KEPT, FALLEN = spread(0.82, 40), spread(0.32, 40)


def rows_of(path: Path, **wanted: Any) -> list[dict[str, Any]]:
    with Store(path, read_only=True) as store:
        return read_report(store, "effective_context", ReportQuery(**wanted)).dicts()


def sheets_of(path: Path, *, in_text: bool) -> list[Sheet]:
    with Store(path, read_only=True) as store:
        table = read_report(store, "effective_context", ALL)
    return [*REPORTS["effective_context"].sheets(table, in_text=in_text)]


def page_of(path: Path) -> str:
    with Store(path, read_only=True) as store:
        return "".join(pieces(store))


def few_of_many_tasks(number: int = 3, run: str = "a") -> list[Answer]:
    """As of RULER: every task has every length, but only so many questions."""
    return [
        Answer(
            f"{length} {at}",
            {metrics_of(task)[0]: float(at > 0)},
            run=run,
            benchmark="ruler",
            task=task,
            length=length,
            unit="tokens",
            values={"original_tokens": length, "truncated": False},
        )
        for length in (4096, 16_384, 131_072)
        for task in (f"vt_{length}", f"cwe_{length}", f"fwe_{length}")
        for at in range(number)
    ]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A run that falls from 16k on, one whose prompts are cut there, and few answers at the longest length."""
    rows: list[Answer] = []
    for run, long, cut in (("a", FALLEN, False), ("b", KEPT, True)):
        rows += answers("qasper", {3000: KEPT, 6000: KEPT}, run=run)
        rows += answers("qasper", {9000: long}, run=run, cut=cut)
        rows += answers("qasper", {20_000: [0.5] * 4}, run=run)
    return make(tmp_path / "mixed.duckdb", rows)


def test_every_length_is_shown_and_few_answers_claim_nothing(tmp_path: Path) -> None:
    rows = rows_of(make(tmp_path / "r.duckdb", few_of_many_tasks()))
    assert [(row["length_up_to"], row["n"], row["doubt"], row["verdict"]) for row in rows] == [
        (length, 9, "few", "not compared") for length in (4096, 16_384, 131_072)
    ]
    assert [row["score"] for row in rows] == pytest.approx([2 / 3] * 3)
    assert {row["works_to"] for row in rows} == {"needs 10 questions a length, has 3"}
    assert {(row["tasks"], row["effective"], row["kept_to"], row["lost_from"]) for row in rows} == {
        (3, None, None, None)
    }


def test_a_length_without_some_of_the_tasks_is_not_shown(tmp_path: Path) -> None:
    """A score over other tasks would be no score of this row."""
    rows = [
        *answers("qasper", {3000: KEPT, 6000: KEPT, 9000: [0.1] * 5}),
        *answers("musique", {3000: KEPT, 6000: KEPT, 20_000: [0.9] * 20}),
    ]
    shown = rows_of(make(tmp_path / "r.duckdb", rows))
    assert [row["length_up_to"] for row in shown] == [4096, 8192]
    assert {row["works_to"] for row in shown} == {"≥ 8k"}
    assert {row["left_out"] for row in shown} == {"25 answers at 16k and 32k"}
    (sheet,) = sheets_of(tmp_path / "r.duckdb", in_text=True)
    note = (
        "longbench, prompt tokens: not shown, because not every task has enough samples at every length: 25 answers at "
        "16k and 32k. length_curve has every length of each task."
    )
    assert note in sheet.notes
    section = page_of(tmp_path / "r.duckdb").partition('<section id="effective_context"')[2].partition("<details>")[0]
    assert note in section, "without a click"


def test_omissions_name_the_runs_that_have_them(tmp_path: Path) -> None:
    rows: list[Answer] = [
        *answers("qasper", {3000: KEPT, 6000: KEPT}, run="whole"),
        *answers("musique", {3000: KEPT, 6000: KEPT}, run="whole"),
    ]
    for at in range(4):
        rows += answers("qasper", {3000: KEPT, 6000: KEPT, 20_000: [0.5] * (at + 1)}, run=f"run {at}")
        rows += answers("musique", {3000: KEPT, 6000: KEPT}, run=f"run {at}")
    (sheet,) = sheets_of(make(tmp_path / "r.duckdb", rows), in_text=True)
    (note,) = (note for note in sheet.notes if "not shown" in note)
    assert "length: 1 answer at 32k (model run 0); 2 answers at 32k (model run 1); " in note
    assert note.endswith("(model run 2); 1 more (see the CSV). length_curve has every length of each task.")


@pytest.mark.parametrize(
    ("rows", "wanted", "words"),
    [
        (answers("qasper", {3000: KEPT, 6000: KEPT, 9000: FALLEN}), {}, "8k"),
        (answers("qasper", {3000: KEPT, 6000: KEPT}), {}, "≥ 8k"),
        (answers("qasper", {3000: KEPT, 6000: KEPT}), {"keep_score": 0.9}, "less than 4k"),
        (answers("qasper", {3000: KEPT, 6000: KEPT}, cut=True), {}, "prompts cut from 4k"),
        (answers("qasper", {3000: KEPT, 6000: KEPT}, cut=None), {}, "prompts may be cut"),
        ([*answers("qasper", {3000: KEPT}), *answers("qasper", {6000: KEPT}, cut=True)], {}, "4k, prompts cut from 8k"),
        (answers("qasper", {3000: [0.0] * 40, 6000: [0.0] * 40}), {}, "like guessing from 4k"),
        (answers("qasper", {3000: KEPT[:12], 6000: KEPT[:12]}), {}, "needs 30 questions a length, has 12"),
        (answers("qasper", {3000: KEPT}), {}, "only one length"),
        ([*answers("qasper", {500: KEPT, 2000: KEPT}), *answers("musique", {600: KEPT})], {}, "≥ 2k"),
    ],
)
def test_words_for_where_a_run_stops_working(
    tmp_path: Path, rows: Iterable[Answer], wanted: dict[str, Any], words: str
) -> None:
    assert {row["works_to"] for row in rows_of(make(tmp_path / "r.duckdb", rows), **wanted)} == {words}


def test_a_strip_in_text_is_shaded_and_ends_where_the_run_does(mixed: Path) -> None:
    (sheet,) = sheets_of(mixed, in_text=True)
    assert [column.heading for column in sheet.columns][:6] == ["model", "4k", "8k", "16k", "32k", "works to"]
    assert [row[1:6] for row in sheet.rows] == [
        ["█  82 ", "█  82┃", "░  32 ", "f  50 ", "8k"],
        ["█  82 ", "█  82┃", "c  82 ", "f  50 ", "8k, prompts cut from 16k"],
        ["40 ", "40 ", "40 ", "4 ", ""],
    ]
    shown = [line.text for line in lines(sheet, 80)]
    assert max(map(len, shown)) <= 80
    assert "f: fewer than 10 answers to at least one task; c: more than 5% of the prompts cut" in " ".join(shown)
    plain = "\n".join(line.text for line in lines(sheet, 80, ascii_only=True))
    assert plain.isascii() and re.search(r"82 +82\| +32 +f  50 +8k", plain)


def test_a_strip_of_long_names_has_all_lengths_on_80_columns(tmp_path: Path) -> None:
    name = "Phi-3.5-mini-instruct-128k-onnx-int4-rtn-block-32"
    path = make(tmp_path / "r.duckdb", few_of_many_tasks(run=name))
    (sheet,) = sheets_of(path, in_text=True)
    shown = [line.text for line in lines(sheet, 60)]
    assert sum(line.endswith("works to") for line in shown) == 1 and max(map(len, shown)) <= 60


def test_a_strip_in_other_formats_has_intervals(mixed: Path) -> None:
    (sheet,) = sheets_of(mixed, in_text=False)
    assert sheet.rows[1][1:5] == ["82.0 ± 3.2", "82.0 ± 3.2", "82.0 ± 3.2 (cut)", "50.0 (all alike) (few)"]
    assert "| answers | 40 | 40 | 40 | 4 |" in render.markdown(sheet)
    assert r"\scriptsize $\pm$ 3.2 (cut)" in "".join(render.latex_pieces([sheet]))


def test_the_longest_benchmark_comes_first(tmp_path: Path) -> None:
    rows = [*answers("qasper", {3000: KEPT, 6000: KEPT}), *answers("qasper", {3000: KEPT}, benchmark="other")]
    sheets = sheets_of(make(tmp_path / "r.duckdb", [*rows, *few_of_many_tasks()]), in_text=True)
    assert [sheet.title for sheet in sheets] == [
        f"Effective context: {name} (percent, by prompt tokens)" for name in ("ruler", "longbench")
    ]
    assert "Left out, with answers at only one length: other (prompt tokens)." in sheets[-1].notes


def test_the_page_has_the_strips_behind_the_scores(mixed: Path, tmp_path: Path) -> None:
    text = page_of(mixed)
    assert Page(text).headings()[:2] == ["scores", "effective_context"]
    section = text[text.index('<section id="effective_context"') :]
    strip = section[: section.index("</table>")]
    classes = [re.findall(r'<td class="([^"]*)" title', row) for row in strip.split("<tr")[2:4]]
    assert [of_row[:4] for of_row in classes] == [
        ["h8", "h8 end", "h3", "h5 hatched"],
        ["h8", "h8 end", "h8 hatched", "h5 hatched"],
    ]
    assert "95% interval [78.8, 85.2]; 40 answers; prompts were cut" in strip
    assert strip.count('>82.0<span class="interval"> ± 3.2</span></td>') == 5
    assert '>50.0<span class="interval"> (all alike)</span></td>' in strip
    assert '<th scope="row">answers</th><td>40</td><td>40</td><td>40</td><td>4</td>' in strip


def test_ruler_with_few_questions_is_on_the_first_screen(tmp_path: Path) -> None:
    text = page_of(make(tmp_path / "r.duckdb", few_of_many_tasks()))
    assert "needs 10 questions a length, has 3" in text[: text.index('class="fold"')]


def test_a_strip_of_hostile_names_is_text(tmp_path: Path) -> None:
    rows = [*answers(EVIL, {3000: KEPT, 6000: KEPT}, run=EVIL, benchmark=EVIL)]
    path = make(tmp_path / "r.duckdb", rows)
    assert "<b onload" not in page_of(path)
    with Store(path, read_only=True) as store:
        drawn = drawings.figures(PageSource(store, ALL), "effective_context")
    ElementTree.fromstring(drawings.svg_file(EVIL, drawn))


def test_a_drawn_strip_has_hatches_thick_ends_and_words(mixed: Path) -> None:
    with Store(mixed, read_only=True) as store:
        (figure,) = drawings.figures(PageSource(store, ALL), "effective_context")
    assert figure.svg.count('class="hatch"') == 3 and figure.svg.count('class="edge"') == 2
    assert "8k, prompts cut from 16k" in re.findall(r"<text[^>]*>([^<]*)", figure.svg)
