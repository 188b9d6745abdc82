"""The card: who leads, how sure that is and how far it works, in a picture that can be read at half size."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lbx.base.records import Sample
from lbx.benchmarks.registry import BENCHMARKS
from lbx.report import page
from lbx.report.draw.card import HEIGHT, WIDTH
from lbx.report.draw.figures import figures, light_style, svg_file
from lbx.report.draw.svg import text_width
from lbx.report.format.table_cells import sheet
from lbx.report.page.source import PageSource
from lbx.report.query import ALL
from lbx.report.reports import REPORTS, read_report
from lbx.results import Store
from lbx.results.scoring.aggregation import aggregate_scores
from tests.command_line import Lbx
from tests.report.made_answers import Answer, make
from tests.report.made_runs import add_run, trec

LONG = "a-model-with-a-very-long-name-" * 4
ARABIC, CHINESE = "نموذج-لغوي-كبير-للنصوص-الطويلة", "通义千问2.5-14B-指令版-长文本-通义千问"
SVG = "{http://www.w3.org/2000/svg}"


def _file(path: Path, models: tuple[str, ...], benchmarks: int = 1) -> Path:
    with Store(path) as store:
        for at, model in enumerate(models):
            needle = [
                Sample("needle", "single_en", f"{n}", f"d{n}", "?", ("42",), "en", 64_000, meta={"depth": 0.5})
                for n in range(12 if benchmarks > 1 else 0)
            ]
            others = [(sample, "42" if n > at else "no") for n, sample in enumerate(needle)]
            add_run(store, f"run {at}", [*trec(40 - at, 50), *others], model=model)
    return path


def _sentences(path: Path) -> list[str]:
    with Store(path, read_only=True) as store:
        return list(sheet(REPORTS["card"], read_report(store, "card")).notes)


def _card(path: Path) -> ElementTree.Element:
    with Store(path, read_only=True) as store:
        return ElementTree.fromstring(svg_file("card", figures(PageSource(store, ALL), "card")))


def test_a_sentence_says_who_leads_and_who_may_be_as_good(tmp_path: Path) -> None:
    said = _sentences(_file(tmp_path / "r.duckdb", ("one", "two", "three", "four", "five"), 2))
    texts = [text for text in said if "comes first" in text]
    assert [re.search(r" on (\w+) ", text)[1] for text in texts] == ["needle", "longbench"], "the longest texts first"
    assert re.fullmatch(
        r"one comes first on longbench with 80\.0 \[.+\]; two \(78\.0\), three \(76\.0\) and 2 more may be as good\.",
        texts[1],
    )
    assert said[-1].startswith("Source: 310 answers to 62 questions") and said[-1].endswith("not attested.")


def test_it_says_to_which_length_the_leader_works(tmp_path: Path) -> None:
    answers = [
        Answer(f"{length} {n}", {"f1": float(n % 10 < right)}, length=length, document=f"{length} {n}",
               values={"original_tokens": length, "truncated": False})
        for length, right in ((4000, 9), (16_000, 9), (64_000, 2)) for n in range(40)
    ]  # fmt: skip
    path = make(tmp_path / "r.duckdb", answers)
    with Store(path) as store:
        aggregate_scores(store, "a", BENCHMARKS["longbench"])
    with Store(path, read_only=True) as store:
        (row,) = read_report(store, "card").dicts()
    assert (row["works_to"], row["longest"]) == (16_384, 65_536)
    assert row["reach"] == "16k of 64k tokens"
    assert "and works to 16k of 64k tokens." in " ".join(_sentences(path))


@pytest.mark.parametrize("models", [("one",), (LONG + "1", LONG + "2", ARABIC, CHINESE, "e", "f", "g", "h", "i")])
def test_all_of_it_is_in_the_picture_and_large_enough(tmp_path: Path, models: tuple[str, ...]) -> None:
    card = _card(_file(tmp_path / "r.duckdb", models, 2))
    assert (card.get("width"), card.get("height")) == (f"{WIDTH:g}", f"{HEIGHT:g}") == ("1200", "630")
    for text in card.iter(f"{SVG}text"):
        words = "".join(text.itertext())
        width, x = text_width(words, 20.0), float(text.get("x", 0))
        left = {"end": x - width, "middle": x - width / 2}.get(text.get("text-anchor", ""), x)
        size = 30 if text.get("class") == "card-title" else 20
        assert left >= 0 and left + width * size / 20 <= WIDTH * 1.02, words
        assert 0 < float(text.get("y", 0)) <= HEIGHT
    sizes = {int(size) for size in re.findall(r"svg \.card-\w+ \{ font: (?:600 )?(\d+)px", light_style())}
    assert min(sizes) >= 20
    if len(models) > 6:
        assert "and 3 more" in "".join(card.itertext())


def test_names_are_no_markup(tmp_path: Path) -> None:
    card = _card(_file(tmp_path / "r.duckdb", ("<b onload=1>", "&amp;")))
    assert not list(card.iter("b")) and "<b onload=1>" in "".join(card.itertext())


def test_the_page_begins_with_it_and_says_nothing_twice(tmp_path: Path) -> None:
    with Store(_file(tmp_path / "r.duckdb", ("one", "two", "three")), read_only=True) as store:
        text = "".join(page.pieces(store))
    body = text[text.index("<main") :]
    assert body.index('class="card"') < body.index('class="scores"')
    assert body[body.index("</figure>") : body.index('id="leaderboard-title"')].count("comes first on") == 1


@pytest.mark.parametrize(("state", "said"), [("", "not attested"), ("attested, unsigned", "attested, unsigned")])
def test_it_says_whether_the_file_is_attested(tmp_path: Path, state: str, said: str) -> None:
    with Store(_file(tmp_path / "r.duckdb", ("one",)), read_only=True) as store:
        (row,) = read_report(store, "card", replace(ALL, attestation=state)).dicts()
    assert REPORTS["card"].notes is not None
    assert (row["attestation"] or "not attested") == said


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("markdown", "| longbench | "),
        ("latex", "one comes first on longbench"),
        ("svg", 'width="1200" height="630"'),
        ("json", '"alike_runs": ["run 1"]'),
        ("table", "two"),
        ("csv", "run 1"),
    ],
)
def test_every_format_has_it(tmp_path: Path, name: str, wanted: str) -> None:
    path = _file(tmp_path / "r.duckdb", ("one", "two"))
    done = Lbx()("report", path, "card", "--format", name)
    assert done.returncode == 0, done.stderr
    assert wanted in done.stdout.replace("\n", " ")


def test_parquet_has_it(tmp_path: Path) -> None:
    done = Lbx()(
        "report", _file(tmp_path / "r.duckdb", ("one", "two")), "card", "-f", "parquet", "-o", tmp_path / "c.parquet"
    )
    assert done.returncode == 0, done.stderr


def test_without_intervals_it_has_scores_only(tmp_path: Path) -> None:
    done = Lbx()("report", _file(tmp_path / "r.duckdb", ("one", "two")), "card", "--no-interval")
    assert "one comes first on longbench with 80.0; two (78.0) may be as good." in done.stdout, done.stderr
