"""Fifty cells, each a run on a benchmark or a task: one number in the page, the terminal, Markdown, CSV and browse."""

from __future__ import annotations

import csv
import html
import io
import random
import re
from collections.abc import Iterator, Mapping
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from lbx.report import page
from lbx.report.format import render
from lbx.report.format.table_cells import sheet
from lbx.report.format.terminal import lines
from lbx.report.reports import REPORTS, read_report
from lbx.results import Store, Table
from lbx.web.browsing import BrowsingPages
from tests.consistency.printed import from_html, from_markdown, from_text
from tests.gallery_files import MODELS, Sizes, results_file
from tests.page_parts import Page
from tests.web.sites import client_of, site_of

CELLS = 50
SIZES = Sizes(longbench=4, v2=6, ruler=2, ruler_lengths=(4096, 16384), needle=2, leval=2)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results_file(tmp_path_factory.mktemp("cells") / "r.duckdb", MODELS[:3], SIZES, last_answers=120)


@pytest.fixture(scope="module")
def client(results: Path) -> Iterator[TestClient]:
    with site_of(BrowsingPages(results).routes) as site:
        yield client_of(site)


def _printed(name: str, table: Table, page_text: str) -> dict[str, list[str]]:
    """{place: the printed scores, in the order of the rows}"""
    view = REPORTS[name]
    at = [column.name for column in sheet(view, table).columns].index("score")
    (text,) = from_text("\n".join(line.text for line in lines(sheet(view, table), ascii_only=True)))
    (markdown,) = from_markdown(render.markdown(sheet(view, table)))
    rows = list(csv.DictReader(io.StringIO("".join(render.csv_pieces(table.columns, table.rows)))))
    # On the page a table a benchmark; columns that are alike in all rows are in the caption.
    title = view.title.split(" (")[0]
    grids = {grid.title: grid for grid in from_html(page_text)}
    on_page = {
        benchmark: iter([line[grid.heads.index("score")] for line in grid.lines])
        for benchmark in dict.fromkeys(row["benchmark"] for row in table.dicts())
        if (grid := grids[f"{title}: {benchmark}"])
    }
    return {
        "terminal": [line[at] for line in text.lines],
        "Markdown": [line[at] for line in markdown.lines],
        "CSV": [f"{100 * float(row['score']):.2f}" for row in rows],
        "page": [next(on_page[row["benchmark"]]) for row in table.dicts()],
    }


def _rounded(value: float, printed: str) -> bool:
    """Whether a printed score is the value at the digits that it has."""
    number = re.match(r"[\d.]+", printed)
    return bool(number) and abs(float(number[0]) - 100 * value) <= 0.5001 * 10.0 ** -len(number[0].partition(".")[2])


def _browsed(client: TestClient, run: str, task: str) -> list[str]:
    """The scores of a run's answers to a task in the list of answers, highest first."""
    query = urlencode({"run": run, "task": task, "sort": "-score"})
    text, scores = client.get(f"/?{query}").text, []
    while True:
        scores += re.findall(r'<tr data-scope[^>]*><td class="number">([^<]*)</td>', text)
        following = re.search(r'data-key="f" href="([^"]*)"', text)
        if not following:
            return scores
        text = client.get(html.unescape(following[1]).removeprefix(client.base_url.path.rstrip("/"))).text


def _answers_of(page_text: str) -> Mapping[tuple[str, str], list[str]]:
    """{(run, task): the scores of the page's answers as its script prints them, highest first}"""
    scores: dict[tuple[str, str], list[float | None]] = {}
    for one in Page(page_text).answers():
        scores.setdefault((one["run"], one["task"]), []).append(one["score"])
    return {
        key: [
            "" if score is None else str(Decimal(round(10_000 * score) / 100).quantize(Decimal("0.1"), ROUND_HALF_UP))
            for score in sorted(values, key=lambda score: (score is None, -(score or 0)))
        ]
        for key, values in scores.items()
    }


def test_a_cell_is_the_same_number_everywhere(results: Path, client: TestClient) -> None:
    with Store(results, read_only=True) as store:
        tables = {name: read_report(store, name) for name in ("leaderboard", "task_scores")}
        page_text = "".join(page.pieces(store))
    candidates: list[tuple[dict[str, Any], dict[str, str]]] = []
    for name, table in tables.items():
        printed = _printed(name, table, page_text)
        rows = zip(table.dicts(), *printed.values(), strict=True)
        candidates += [(row, dict(zip(printed, texts, strict=True))) for row, *texts in rows]
    chosen = random.Random(54).sample(candidates, min(CELLS, len(candidates)))
    assert len(chosen) == CELLS
    answers = _answers_of(page_text)
    for row, texts in chosen:
        for place, text in texts.items():
            assert _rounded(row["score"], text), (place, text, row)
        if "task" in row and row["headline"]:
            key = (row["run_id"], f"{row['benchmark']}/{row['task']}")
            assert _browsed(client, *key) == answers[key], row


def test_both_count_the_same_answers(results: Path, client: TestClient) -> None:
    with Store(results, read_only=True) as store:
        n_answers = sum(map(len, _answers_of("".join(page.pieces(store))).values()))
        ((every,),) = store.query("SELECT count(*) FROM generations").rows
    assert f'<span id="count">{n_answers:,} answers' in client.get("/").text
    assert n_answers < every and f'<span id="count">{every:,} answers' in client.get("/?judges=yes").text
