"""Every report in every format, of every kind of file: a table or a sentence, never a traceback, never "nan"."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from rich.cells import cell_len

from lbx.base.errors import LbxError
from lbx.base.records import Sample
from lbx.exchange.importing import parse_predictions, write_predictions
from lbx.opinions.rating_rows import RatingRow
from lbx.report import overview, page
from lbx.report.format import render
from lbx.report.format.sheets import Sheet
from lbx.report.format.table_cells import without_intervals
from lbx.report.format.terminal import lines
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report, reports_of, write_parquet
from lbx.results import GenerationRow, RunRow, SampleRow, Store, Table
from tests.command_line import Done, Lbx
from tests.judged_rounds import BASELINE, SCALE, Said, add_judge, add_ratings, always_first, calibration, like_gpt4
from tests.made_depth import F16, add_depth, depth_pair
from tests.report.made_runs import Answer, add_run, trec

NASTY = (
    "a<b>|c&d\\e%f_{g}~#$^",
    "模型 中文",
    "نموذج",
    "x\x1b[31m\u202e\n[bold]",
    "`code` [l](http://e.example) *",
    "=1+1",
)
Make = Callable[[Store], object]


def _qasper(outputs: Sequence[str | None], document: str | None = None) -> list[Answer]:
    return [
        (Sample("longbench", "qasper", f"{n}", document or f"text {n}", "?", ("one two",), "en", 900 * n + 1), output)
        for n, output in enumerate(outputs)
    ]


def _still_going(store: Store) -> None:
    store.begin_run(RunRow("r", "model", "hf", "1", {}, "digest", {}, {}, "0.1", task_samples={"longbench/trec": 9}))
    for n, (one, output) in enumerate(trec(2, 3, 1)):
        row = GenerationRow("r", *one.key, output=output, error=None if output else "it broke")
        store.write(samples=[SampleRow(one, n)], generations=[row])


def _names(store: Store) -> None:
    for n, name in enumerate(NASTY):
        add_run(store, f"{n}{name}", [*trec(n % 2, 2), *_qasper([name])], model=name)


def _imports(store: Store, shared: Callable[[str], Path], folder: Path) -> None:
    (folder / "llama3").mkdir(parents=True)
    for task in ("trec", "passage_count", "lsht"):
        shutil.copy(shared(f"data/predictions/longbench/llama3-8b-instruct/{task}.jsonl"), folder / "llama3")
    for name, path, model in (
        ("longbench_v2", shared("data/predictions/longbench_v2/oneshot.jsonl"), "gpt-4o-mini"),
        ("longbench", folder / "llama3", "llama3-8b-instruct"),
    ):
        done = write_predictions(store, parse_predictions(name, path, model=model))
        store.finish_run(done.run_id, "done")


def _judged(store: Store) -> None:
    for model in ("claude-100k", "gpt4-32k", "llama2-13b-chat-4k", "turbo-16k-0613"):
        asked = [
            Sample("leval", "narrative_qa", f"q{n}", f"{n // 8}", "Who?", ("He did",), "en", 900) for n in range(8)
        ]
        run = "published-" + model
        add_run(store, run, [(one, f"{model} says {n}") for n, one in enumerate(asked)], model=model)
    add_judge(store, "fit", calibration(like_gpt4), model="a <b>judge</b>")
    add_judge(store, NASTY[3], calibration(always_first), family=["published-gpt4-32k"])
    alone = (replace(one.round, against_run_id=None) for one in calibration(like_gpt4, 8))
    add_judge(store, "rates", [Said(one, "[[4]]") for one in alone if one.answer_first], rubric=SCALE)
    rated = [
        RatingRow("s", n, rater, "published-" + model, score=float(1 + (n + len(model) + len(rater)) % 5))
        for n in range(60) for rater in ("ann", "robert") for model in ("claude-100k", "gpt4-32k")
    ]  # fmt: skip
    add_ratings(store, "s", "score", rated)
    pairs = [
        RatingRow("p", n, rater, "published-claude-100k", against_run_id=BASELINE, verdict=verdict)
        for n, verdict in enumerate(("answer", "against", "tie", "both_bad")) for rater in ("ann", NASTY[0])
    ]  # fmt: skip
    add_ratings(store, "p", "pair", pairs, 4)


FILES: dict[str, Make] = {
    "empty": lambda store: None,
    "probably a run": _still_going,
    "one sample": lambda store: add_run(store, "r", trec(1, 1)),
    "one document": lambda store: add_run(store, "r", _qasper(["one", "two", "three"], "the same")),
    "all failed": lambda store: [add_run(store, name, trec(0, 0, failed=7)) for name in ("a", "b")],
    "all alike": lambda store: [add_run(store, name, trec(0, 8)) for name in ("a", "b")],
    "all right": lambda store: [add_run(store, name, trec(8, 8)) for name in ("a", "b")],
    "several": lambda store: [add_run(store, n, [*trec(3, 9), *_qasper(["one", "", "two", None])]) for n in ("a", "b")],
    "36 runs": lambda store: add_run(store, "r", trec(1, 3), model="a-model-of-7-billions"),
    "names": _names,
    "judged": _judged,
    "compared by position": lambda store: [
        add_depth(store, depth_pair("<b>q4", reference=NASTY[0]), depth_pair(NASTY[3], F16), texts=range(count))
        for count in (2, 7)
    ],
    "NaN": lambda store: [add_run(store, name, trec(3, 9)) for name in ("a", "b")],
}


@pytest.fixture(scope="module", params=[*FILES, "imports"])
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("every")
    path = folder / "r.duckdb"
    with Store(path) as store:
        if request.param == "imports":
            _imports(store, request.getfixturevalue("shared"), folder)
        else:
            FILES[request.param](store)
    if request.param == "NaN":
        with duckdb.connect(str(path)) as connection:
            for table in ("scores", "numbers"):
                connection.execute(f"UPDATE {table} SET score = 'nan'::DOUBLE WHERE run_id = 'a'")
            connection.execute("UPDATE numbers SET official = 'nan'::DOUBLE WHERE kind = 'task' AND run_id = 'a'")
            connection.execute("UPDATE numbers SET official = '-inf'::DOUBLE WHERE kind = 'group' AND run_id = 'a'")
            connection.execute("UPDATE generations SET prefill_s = 'nan'::DOUBLE")
    if request.param == "36 runs":
        with duckdb.connect(str(path)) as connection:
            for table in ("runs", "generations", "scores", "numbers"):
                copied = f"SELECT {table}.* REPLACE (run_id || copy AS run_id) FROM {table}, range(35) AS copies(copy)"
                connection.execute(f"INSERT INTO {table} {copied}")
    return path


def _wanted(name: str, store: Store) -> ReportQuery:
    runs = [str(run) for (run,) in store.query("SELECT run_id FROM runs ORDER BY 1").rows]
    baseline = runs[0] if name in ("changes", "comparison") and len(runs) > 1 else ""
    return ReportQuery(baseline=baseline, expected_models=("llama",) if name == "expected" else ())


@pytest.fixture(scope="module")
def tables(file: Path) -> list[tuple[str, Table]]:
    """The reports that the file can be asked for; the others say why not."""
    found = []
    with Store(file, read_only=True) as store:
        for name in REPORTS:
            try:
                table = read_report(store, name, _wanted(name, store))
            except LbxError as refused:
                assert refused.cause and name in ("changes", "comparison", "expected"), name
                continue
            sure = any(column.endswith("low") for column in table.columns)
            found += [(name, table), *([(name, without_intervals(REPORTS[name], table))] if sure else [])]
    return found


def _sheets(name: str, table: Table, *, in_text: bool = False) -> list[Sheet]:
    return [*REPORTS[name].sheets(table, in_text=in_text)]


def _is_clean(text: str) -> None:
    assert not re.search(r"(?<![\w.-])(?:nan|inf|-inf|None|NULL)(?![\w-])", text), text[:2000]
    assert not set(text) & {"\x1b", "\u202e", "\x07"}


def test_for_people(tables: list[tuple[str, Table]]) -> None:
    for name, table in tables:
        for width in (80, 160, None):
            shown = [line.text for one in _sheets(name, table, in_text=True) for line in lines(one, width)]
            _is_clean("\n".join(shown))
            assert width is None or max(cell_len(line.replace("\u200e", "")) for line in shown) <= width
            if not table.rows:
                assert " ".join(REPORTS[name].empty.split()) in " ".join(" ".join(shown).split())
        plain = "\n".join(line.text for one in _sheets(name, table) for line in lines(one, 80, ascii_only=True))
        assert plain.isascii()
        for one in _sheets(name, table):
            text = render.markdown(one)
            _is_clean(text)
            assert text.startswith("## ") and len(text.splitlines()) > 1
            rows = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("|")]
            assert len(set(rows)) <= 1
        document = "".join(render.latex_pieces(_sheets(name, table)))
        _is_clean(document)
        assert document.endswith("\\end{document}\n")


def test_for_programs(tables: list[tuple[str, Table]]) -> None:
    for name, table in tables:
        text = "".join(render.json_pieces(table.columns, table.rows))
        rows = json.loads(text, parse_constant=pytest.fail)
        assert [list(row) for row in rows] == [list(table.columns)] * len(table.rows), name
        text = "".join(render.csv_pieces(table.columns, table.rows))
        _is_clean(text)
        found = list(csv.reader(io.StringIO(text)))
        assert found[0] == list(table.columns) and {len(row) for row in found} == {len(table.columns)}
        assert len(found) == len(table.rows) + 1


def test_in_parquet(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    with Store(file, read_only=True, allowed_files=[out]) as store:
        for name in ("paper", "task_scores", "failures"):
            table = read_report(store, name)
            assert write_parquet(store, name, ReportQuery(), out) == len(table.rows), name
            assert duckdb.sql(f"FROM '{out}'").columns == list(table.columns)


def test_the_first_screen_has_one_average_of_everything_with_its_name(tmp_path: Path) -> None:
    """The paper's, which weighs categories, and no mean of the tasks beside it."""
    kinds = ({"difficulty": level, "length": "short", "domain": "Law"} for level in ("easy", "hard") * 3)
    choices = [
        (Sample("longbench_v2", "mcq", f"{n}", f"{n}", "?", ("A",), meta=meta), "(A)") for n, meta in enumerate(kinds)
    ]
    with Store(tmp_path / "r.duckdb") as store:
        add_run(store, "r", [*choices, *trec(2, 5), *_qasper(["one", "two", "no"])])
        made = overview.sheets(store, ReportQuery(), tmp_path / "r.duckdb")
    heads = [column.heading for one in made for column in one.columns]
    assert heads.count("score") == heads.count("score is") == 1
    assert not {"overall", "average"} & set(heads)
    (board,) = (one for one in made if one.title.startswith("Leaderboard"))
    at = [column.name for column in board.columns].index("score_of")
    assert [row[at] for row in board.rows] == ["mean of categories", "mean of questions"]
    assert any(one.title == "The paper's averages: longbench_v2" and len(one.columns) > 2 for one in made)


def test_a_benchmark_of_ones_own_has_no_paper(tmp_path: Path) -> None:
    samples = [(Sample("mine", f"t_{code}", f"{n}", f"{n}", "?", ("yes",), code, 9, meta={"metrics": ["f1"]}), "yes")
               for code in ("de", "en") for n in range(5)]  # fmt: skip
    with Store(tmp_path / "r.duckdb") as store:
        add_run(store, "r", samples)
        titles = [one.title for one in overview.sheets(store, ReportQuery(), tmp_path / "r.duckdb")]
        text = "".join(page.pieces(store))
    assert "Averages: mine" in titles
    assert "paper" not in " ".join(titles)
    assert "papers' tables" not in text.replace("&#39;", "'")


def test_the_overview(file: Path) -> None:
    with Store(file, read_only=True) as store:
        made = overview.sheets(store, ReportQuery(), file)
    shown = [line.text for one in made for line in lines(one, 80)]
    _is_clean("\n".join(shown))
    assert 2 <= len(shown) <= overview.SCREEN, "\n".join(shown)
    assert max(cell_len(line.replace("\u200e", "")) for line in shown) <= 80


def test_a_page(file: Path) -> None:
    done = Lbx()("report", file, "--format", "html")
    assert done.returncode == 0 and (
        not done.stderr or done.stderr.startswith("The report comparison is left out: 36 runs")
    )
    assert "<html" in done.stdout and not re.search(r">(?:nan|None|-?inf)<", done.stdout)


def test_a_file_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "other.duckdb"
    Store(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE lbx_schema SET version = 999")
    for output_format in ("table", "markdown", "json", "html", "latex", "csv", "parquet"):
        command = ("report", path, "leaderboard", "-f", output_format, "-o", tmp_path / "out")
        _is_refused(Lbx()(*command), "another version of lbx")
    assert not (tmp_path / "out").exists()


def _is_refused(done: Done, words: str) -> None:
    assert done.returncode == 1 and words in " ".join(done.stderr.split()), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("failed", [0, 1])
def test_the_first_screen_offers_reports_that_have_rows(tmp_path: Path, failed: int) -> None:
    sample = Sample("needle", "single_en", "a", "a", "?", ("7",), meta={"depth": 50.0, "words": 9})
    with Store(tmp_path / "r.duckdb") as store:
        add_run(store, "r", [(sample, "7"), *([(replace(sample, sample_id="b"), None)] if failed else [])])
        *_, last = overview.sheets(store, ReportQuery(), tmp_path / "r.duckdb")
        offered = last.notes[0].partition("r.duckdb ")[2].split(" | ")
        assert "task_scores" in offered and ("failures" in offered) is bool(failed)
        assert [name for name in offered if not any(read_report(store, one).rows for one in reports_of(name))] == []
    with Store(tmp_path / "s.duckdb") as store:
        add_run(store, "r", trec(2, 5))
        *_, last = overview.sheets(store, ReportQuery(), tmp_path / "s.duckdb")
    assert " board" in last.notes[0]
