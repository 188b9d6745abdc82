"""The page, without a browser: its parts, its size, its policy, and that any text comes through as text."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from pathlib import Path

import duckdb
import pytest

from lbx.base.errors import LbxError
from lbx.base.records import Sample
from lbx.report import page
from lbx.report.page import answer_data
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, reports_on_page
from lbx.report.rows.board import BOARDS
from lbx.results import Store
from tests.command_line import Lbx
from tests.page_parts import EVIL, NAMES, SPELLED, Page, results_file, style_and_script
from tests.report.made_runs import add_run, trec

HIDDEN = {*map(chr, range(32)), *map(chr, range(127, 160)), *"\u200b\u202e\u2066\ufeff\U000e0041"} - {"\n", "\t"}


def made(path: Path, **options: object) -> str:
    with Store(path, read_only=True) as store:
        return "".join(page.pieces(store, **options))  # type: ignore[arg-type]


def sound(text: str) -> Page:
    """The page, after what holds for every one."""
    assert len(text.encode()) < 5_000_000
    assert not HIDDEN & set(text)
    found = Page(text)
    assert len(found.ids()) == len(set(found.ids()))
    for tag, attributes in found.tags:
        assert tag not in ("img", "iframe", "object", "embed", "link", "base", "image", "use", "audio", "video"), tag
        assert not [n for n in attributes if n in ("style", "src", "srcset", "action") or n.startswith("on")], (
            attributes
        )
        assert (attributes.get("href") or "#").startswith("#")
    assert [a.get("type") for tag, a in found.tags if tag == "script"].count(None) == 1
    sums = (base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in style_and_script(text))
    style, script = sums
    assert [a["content"] for tag, a in found.tags if a.get("http-equiv") == "Content-Security-Policy"] == [
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; img-src blob:; "
        "base-uri 'none'; form-action 'none'"
    ]
    assert not re.search(r"(?i:\bnan\b)|\b(inf|None|NULL)\b", found.text), found.text
    return found


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results_file(tmp_path_factory.mktemp("page") / "r.duckdb", iterations=2)


def test_a_page_has_its_sections_in_order(two: Path) -> None:
    found = sound(made(two))
    held = found.headings()
    wanted = [
        "scores", "effective_context", "leaderboard", "paper", "board", "task_scores", "decision",
        "comparison", "length_curve",
        "truncation_effect", "truncation", "cost", "guards", "failures", "runs",
        *(name for name in held if name.startswith("run-")), "notes", "answers",
    ]  # fmt: skip
    assert [name for name in wanted if name in held] == held
    assert {"scores", "leaderboard", "paper", "length_curve", "guards", "runs", "answers"} <= set(held)
    links = [a["href"] for tag, a in found.tags if tag == "a" and a.get("class") != "skip"]
    assert links[:2] == ["#scores", "#answers"] and sorted(links) == sorted(f"#{name}" for name in held)
    landmarks = [tag for tag, _ in found.tags if tag in ("h1", "main", "header", "aside", "nav")]
    assert landmarks == ["header", "h1", "aside", "nav", "main"]
    assert "ab" * 32 in found.text, "the bundle's digest"


def test_what_stands_out_is_said(two: Path) -> None:
    text = made(two)
    said = Page(text[text.index('id="scores"') : text.index('id="leaderboard"')]).text
    assert "second leads longbench" in said
    assert "Failed answers of longbench: second on 4 (score between 52.8 and 61.1) and first on 4" in said
    assert "the card caught fire answer" in said


def test_who_leads_counts_what_is_missing_and_did_the_same_tasks(tmp_path: Path) -> None:
    with Store(tmp_path / "r.duckdb") as store:
        qasper = [(Sample("longbench", "qasper", f"{n}", f"{n}", "?", ("yes",), "en", 9), "yes") for n in range(12)]
        add_run(store, "half", trec(25, 28, failed=28), model="half")
        add_run(store, "whole", trec(33, 56), model="whole")
        add_run(store, "both", [*trec(56, 56), *qasper], model="both")
    text = made(tmp_path / "r.duckdb")
    said = Page(text[text.index('id="scores"') : text.index('id="leaderboard"')]).text
    assert "whole comes first on longbench, 1 task, with 58.9" in said
    assert "both scores 100.0" in said
    assert "half comes" not in said


@pytest.mark.parametrize(
    ("right", "wanted"),
    [
        ((40, 40, 40), "m0, m1 and m2 share the first place on longbench with 80.0."),
        ((40, 40, 2), "m0 and m1 share the first place on longbench with 80.0."),
        ((40, 40, 38), "m0 and m1 share the first place on longbench with 80.0; m2 (76.0) may be as good."),
        ((40, 38, 2), "m0 comes first on longbench with 80.0; m1 (76.0) may be as good."),
        ((45, 20, 20), "m0 leads longbench with 90.0."),
        ((0, 0), "m0 and m1 share the first place on longbench with 0.0."),
        ((40,) * 6, "m0, m1, m2 and 3 more share the first place on longbench with 80.0."),
    ],
)
def test_nobody_leads_in_a_tie(tmp_path: Path, right: tuple[int, ...], wanted: str) -> None:
    with Store(tmp_path / "r.duckdb") as store:
        for n, count in enumerate(right):
            add_run(store, f"r{n}", trec(count, 50), model=f"m{n}")
    text = made(tmp_path / "r.duckdb")
    said = Page(text[text.index('id="scores"') : text.index('id="leaderboard"')]).text
    assert wanted in re.sub(r" \[[^]]*\]", "", said), said


def test_who_did_other_tasks_is_not_led(tmp_path: Path) -> None:
    """As many tasks are not the same ones."""
    with Store(tmp_path / "r.duckdb") as store:
        qasper = [(Sample("longbench", "qasper", f"{n}", f"{n}", "?", ("yes",), "en", 9), "yes") for n in range(12)]
        add_run(store, "a", trec(40, 50), model="a")
        add_run(store, "b", qasper, model="b")
    text = made(tmp_path / "r.duckdb")
    said = Page(text[text.index('id="scores"') : text.index('id="leaderboard"')]).text
    assert "a scores 80.0" in said and "on longbench, 1 task (trec)." in said
    assert "b scores 100.0" in said and "on longbench, 1 task (qasper)." in said


def test_the_best_of_a_paper_s_line_is_that_of_all_runs(tmp_path: Path) -> None:
    """Runs stand in tables of eight; a line that one run alone has, has no best."""
    qasper = [(Sample("longbench", "qasper", f"{n}", f"{n}", "?", ("yes",), "en", 9), "yes") for n in range(12)]
    with Store(tmp_path / "r.duckdb") as store:
        for n, right in enumerate((9, 8, 7, 6, 5, 4, 3, 2, 10, 10)):
            add_run(store, f"r{n}", [*trec(right, 12), *(qasper if n == 9 else [])], model=f"m{n}")
    text = made(tmp_path / "r.duckdb")
    tables = [part for part in text.split("<table>") if part.startswith("<caption>Official numbers: longbench")]
    bold = [re.findall(r'<td class="[^"]*best">(\d+)', part) for part in tables]
    assert bold == [["83", "83"], []]


def test_every_answer_is_there_with_its_score_and_marks(two: Path) -> None:
    found = sound(made(two)).answers()
    with Store(two, read_only=True) as store:
        rows = store.query(
            "SELECT g.run_id, g.benchmark || '/' || g.task, g.sample_id, g.iteration, s.score, "
            "coalesce(g.output, g.error), coalesce(reasoning, ''), finish_reason = 'length' AS cut FROM generations g "
            "LEFT JOIN scores s USING (run_id, benchmark, task, sample_id, iteration)"
        ).rows
    held = {(row[0], row[1], row[2], row[3]): row[4:] for row in rows}
    assert len(found) == len(held) == 96
    for answer in found:
        score, output, reasoning, cut = held[answer["run"], answer["task"], answer["id"], answer["iteration"]]
        assert answer["score"] == (None if score is None else pytest.approx(score, abs=5e-5))
        assert (answer["output"], answer["reasoning"]) == (output, reasoning)
        assert ("failed" in answer["marks"]) == (score is None)
        assert ("answer at its limit" in answer["marks"]) == bool(cut)
        assert answer["question"] == f"question {int(answer['id'][-3:])}"
        assert answer["references"] == [f"reference {int(answer['id'][-3:])}"]
    order = [(a["task"], a["id"], a["iteration"], a["run"] == "first") for a in found]
    assert order == sorted(order), "the best run is first"


def test_outputs_that_are_the_same_are_known_as_such(tmp_path: Path) -> None:
    path = results_file(tmp_path / "r.duckdb", ["a", "b", "c"], ["qasper"], 4, failed=())
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE generations SET output = 'x' WHERE run_id <> 'b'")
    for sample in range(4):
        a, b, c = (x["alike"] for x in sound(made(path)).answers() if x["id"] == f"qasper-{sample:03d}")
        assert a == c != b


def test_texts_are_cut(tmp_path: Path) -> None:
    path = results_file(tmp_path / "r.duckdb", output="wort" * 250_000, samples=3, failed=())
    text = made(path, chars=100)
    assert len(text) < 300_000
    for answer in sound(text).answers():
        assert answer["output"].startswith("wort" * 25 + "… [")
        assert len(answer["output"]) < 140
    assert "cut to 100 characters" in Page(text).text
    assert {x["output"][:1] for x in sound(made(path, chars=0)).answers()} == {"…"}


def test_documents_do_not_travel(two: Path) -> None:
    text = made(two)
    assert "document 0 of" not in text
    assert not [a for a in Page(text).answers() if "document 0 of" in str(a)]


def test_what_does_not_fit_is_chosen_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that no compression makes small, many times as many as there is room for."""
    path = results_file(tmp_path / "r.duckdb", samples=300, tasks=["qasper"], failed=range(0, 300, 50))
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "UPDATE generations SET output = md5(run_id || sample_id) || md5(sample_id || run_id) WHERE error IS NULL"
        )
        connection.execute("UPDATE scores SET score = 1 WHERE sample_id > 'qasper-100'")
    with Store(path, read_only=True) as store:
        packed = answer_data.pack_answers(store, ["first", "second"], chars=400, most_bytes=16_000)
    assert sum(map(len, packed.columns.values())) <= 16_000
    assert (packed.answers, packed.answers_in_page) == (600, 600)
    assert 50 < packed.texts < 500
    monkeypatch.setattr("lbx.report.page.page._LEAST_FOR_ANSWERS", 16_000)
    monkeypatch.setattr("lbx.report.page.page.MOST_BYTES", 0)
    first, again = made(path), made(path)
    assert first == again
    found = Page(first).answers()
    kept = [a for a in found if a["output"] is not None]
    assert f"{len(kept):,} of them have texts" in Page(first).text
    assert all(a["output"] is not None for a in found if a["marks"] == ["failed"])
    lost = [a for a in found if a["output"] is None and a["score"] is not None]
    spread: dict[str, list[float]] = {}
    for answer in found:
        spread.setdefault(answer["id"], []).append(answer["score"] or 0)
    changed = {name for name, scores in spread.items() if len(set(scores)) > 1}
    assert len([a for a in kept if a["id"] in changed]) >= len([a for a in kept if a["id"] not in changed]) / 2
    assert lost


def test_answers_that_repeat_their_reference_take_little_room(tmp_path: Path) -> None:
    sizes = []
    for name, reference in (("with", "output"), ("without", "''")):
        path = results_file(tmp_path / f"{name}.duckdb", ["first"], samples=300, tasks=["qasper"], failed=())
        with duckdb.connect(str(path)) as connection:
            connection.execute("UPDATE generations SET output = md5(sample_id) || md5(sample_id || 'again')")
            connection.execute(
                f'UPDATE samples SET "references" = [{reference}] FROM generations AS g '
                "WHERE g.sample_id = samples.sample_id"
            )
        with Store(path, read_only=True) as store:
            packed = answer_data.pack_answers(store, ["first"], chars=400, most_bytes=1_000_000)
        sizes.append(sum(map(len, packed.columns.values())))
    assert sizes[0] < 1.2 * sizes[1]


def test_any_text_comes_through_as_text(tmp_path: Path) -> None:
    path = results_file(tmp_path / "r.duckdb", [EVIL, *NAMES], [EVIL[:20], *NAMES], 3, output=EVIL, benchmark=EVIL[:20])
    found = sound(made(path))
    labels = {text for row in found.cells for text in row}
    assert SPELLED in labels
    assert set(NAMES) <= labels
    outputs = {a["output"] for a in found.answers()}
    assert any(text.startswith(SPELLED) for text in outputs)
    assert {a["run"] for a in found.answers()} == {SPELLED, *NAMES}


def odd_files(folder: Path) -> dict[str, Path]:
    with Store(folder / "empty.duckdb"):
        pass
    odd = {
        "empty": folder / "empty.duckdb",
        "a run still going": results_file(folder / "going.duckdb", done=False),
        "one sample": results_file(folder / "one.duckdb", samples=1, failed=()),
        "one run": results_file(folder / "run.duckdb", runs=["alone"]),
        "all failed": results_file(folder / "failed.duckdb", failed=range(12)),
        "all alike": results_file(folder / "alike.duckdb", score=0.25, failed=()),
        "all right": results_file(folder / "right.duckdb", score=1.0, failed=()),
        "36 runs": results_file(folder / "many.duckdb", [f"model-{i:02d}" for i in range(36)], samples=3, failed=()),
        "odd names": results_file(folder / "names.duckdb", NAMES, NAMES, 3, benchmark=NAMES[0]),
        "no number": results_file(folder / "foreign.duckdb"),
        "nothing in common": results_file(results_file(folder / "two.duckdb", ["a"], ["lcc"]), ["b"], ["trec"]),
        "no answer": results_file(folder / "none.duckdb", tasks=[]),
    }
    with duckdb.connect(str(odd["no number"])) as connection:
        for table in ("scores", "numbers"):
            connection.execute(f"UPDATE {table} SET score = 'nan' WHERE task = 'qasper'")
        connection.execute("UPDATE numbers SET official = 'nan' WHERE kind = 'task'")
    return odd


ODD = ("empty", "a run still going", "one sample", "one run", "all failed", "all alike", "all right", "36 runs",
       "odd names", "no number", "nothing in common", "no answer")  # fmt: skip


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = odd_files(tmp_path_factory.mktemp("odd"))
    assert tuple(found) == ODD
    return found


@pytest.mark.parametrize("name", ODD)
def test_of_any_file_there_is_a_page(odd: dict[str, Path], name: str) -> None:
    found = sound(made(odd[name]))
    assert found.headings()
    if name == "empty":
        assert "This file has no runs yet." in found.text
    others = [view for view in REPORTS if view not in (*reports_on_page(), *BOARDS, "reference", "expected")]
    sound(made(odd[name], names=others))


def test_many_runs_are_lines_of_the_best_and_a_heat_map_of_their_own(odd: dict[str, Path]) -> None:
    text = made(odd["36 runs"])
    assert "The charts show the best 8 of 36 runs" in Page(text).text
    assert 'class="cell"' not in text, "the shades of the first table show the same"
    assert 'class="cell"' in made(odd["36 runs"], names=["task_scores"])


def test_a_page_of_many_runs_with_long_names_stays_small(tmp_path: Path) -> None:
    names = [f"{'长文本模型的名字' * 14}{n}" for n in range(60)]
    tasks = ["qasper", "hotpotqa", "lcc", *(f"task-{n}" for n in range(12))]
    sound(made(results_file(tmp_path / "r.duckdb", names, tasks, 2, failed=())))


def test_each_benchmark_s_charts_have_its_own_best_runs(tmp_path: Path) -> None:
    """Nine runs of one benchmark score more than the two of another."""
    path = results_file(tmp_path / "r.duckdb", [f"good{n}" for n in range(9)], ["trec"], 6, score=1.0)
    results_file(path, ["bad", "worse"], ["task"], 6, score=0.2, benchmark="own")
    text = made(path)
    curves = text[text.index('id="length_curve"') : text.index('id="truncation_effect"')]
    assert "The charts show the best 8 of 9 runs" in Page(curves).text
    assert "own/task, prompt tokens" in re.findall("<figcaption>(.*?)</figcaption>", curves)


def test_a_page_of_some_runs(two: Path) -> None:
    found = sound(made(two, query=ReportQuery(runs=["second"])))
    assert {a["run"] for a in found.answers()} == {"second"}
    assert "first" not in {cell for row in found.cells for cell in row}
    with pytest.raises(LbxError, match="third"):
        made(two, query=ReportQuery(runs=["third"]))


def test_the_command_writes_it(two: Path, tmp_path: Path) -> None:
    lbx, out = Lbx(), tmp_path / "report.html"
    done = lbx("report", two, "--format", "html", "-o", out, "--chars", 5)
    assert (done.returncode, done.stdout) == (0, "")
    assert "cut to 5 characters" in sound(out.read_text("utf-8")).text
    assert sound(lbx("report", two, "leaderboard", "--format", "html").stdout).headings() == ["leaderboard"]


def test_a_long_table_says_where_it_ends(monkeypatch: pytest.MonkeyPatch, two: Path) -> None:
    monkeypatch.setattr("lbx.report.page.page._SIZES", ((2, True),))
    found = Page(made(two))
    assert "The first 1 row of each run, 2 of 4 rows." in found.text
    assert "`lbx report FILE task_scores -f csv` has all." in found.text


def test_failures_for_different_reasons_are_not_the_same_answer(tmp_path: Path) -> None:
    path = results_file(tmp_path / "r.duckdb", ["a", "b", "c"], ["qasper"], 4)
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE generations SET error = 'another' WHERE error IS NOT NULL AND run_id = 'b'")
    with Store(path, read_only=True) as store:
        column = answer_data.pack_answers(store, ["a", "b", "c"], chars=400, most_bytes=100_000).columns["alike"]
    a, b, c = memoryview(gzip.decompress(base64.b64decode(column))).cast("H").tolist()[-3:]
    assert a == c != b


def test_a_megabyte_without_a_space_is_a_word_among_others(tmp_path: Path) -> None:
    path = results_file(tmp_path / "r.duckdb", ["m" * 1_000_000], samples=2, output="x" * 1_000_000, failed=())
    sound(made(path))


def test_a_run_without_any_effective_length_stands_beside_one_that_has_some(tmp_path: Path) -> None:
    """Of the former no length is known: the page ended with a TypeError."""

    def answers(task: str, each: int) -> list[tuple[Sample, str]]:
        meta = {"all_classes": ["Abbreviation", "City"]}
        return [
            (Sample("longbench", task, f"{length}-{at}", f"{length}-{at}", "?", ("City",), length=length, meta=meta),
             "City" if at % 3 else "Abbreviation")
            for length in (100, 5_000, 9_000)
            for at in range(each)
        ]  # fmt: skip

    with Store(tmp_path / "r.duckdb") as store:
        add_run(store, "many", answers("trec", 60))
        add_run(store, "few", answers("trec", 4), model="few")
    sound(made(tmp_path / "r.duckdb"))
