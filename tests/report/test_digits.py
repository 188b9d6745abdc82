"""Every number that people read has a shape: a value and its interval have as many decimals, and none has sixteen."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import duckdb
import pytest

from lbx.base.errors import LbxError
from lbx.base.records import Sample, Score
from lbx.benchmarks.registry import BENCHMARKS
from lbx.opinions.rating_rows import RatingRow
from lbx.report import overview
from lbx.report.format import render
from lbx.report.format.digits import short_length
from lbx.report.format.sheets import Sheet
from lbx.report.format.table_cells import sheet
from lbx.report.format.terminal import lines
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.report.rows import paper as papers
from lbx.results import GenerationRow, RunRow, SampleRow, Store
from lbx.results.scoring.aggregation import aggregate_scores
from lbx.results.scoring.scores import score_rows
from tests.command_line import Lbx
from tests.judged_rounds import add_judge, add_ratings, always_first, calibration, like_gpt4
from tests.made_depth import add_depth
from tests.report.made_runs import add_run
from tests.scored_parts import TASKS, made_sample, made_scores

QUESTIONS = 47
"""Of a prime number no mean has an end in decimals."""
NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?"
INTERVAL = re.compile(rf"({NUMBER}) (?:(?:±|\+/-) ({NUMBER})|\[({NUMBER}), ({NUMBER})\])")
UNROUNDED = re.compile(r"\d\.\d*[1-9]\d{4,}|[1-9]\.\d{5,}")
EXPONENT = re.compile(r"\d\.?\d*e[+-]?\d+")
WHOLE_OR_MORE = re.compile(r"\d+\.\d{3,}")
SMALL = re.compile(r"[-+]?0\.\d+")
TEXTS = ("p", "p_holm", "first_p", "longer_p")
"""Columns of three decimals: what is below 0.001 is said so."""


def _runs(store: Store) -> None:
    for at, run in enumerate(("one", "two")):
        asked = {"run_id": run, "temperature": 0.1 * at}
        store.begin_run(RunRow(run, "model", "hf", "1", {}, "digest", asked, {}, "0.1"))
        chance = random.Random(at)
        for benchmark, tasks in TASKS.items():
            samples = [made_sample(benchmark, task, number) for task in tasks for number in range(QUESTIONS)]
            store.write(
                samples=[SampleRow(sample, place) for place, sample in enumerate(samples)],
                generations=[
                    GenerationRow(
                        run, *one.key, output=f"so {chance.randrange(9)}", prompt_tokens=chance.randrange(900, 9000),
                        cached_tokens=chance.randrange(300), output_tokens=chance.randrange(1, 40),
                        prefill_s=chance.random(), decode_s=chance.random() / 7, truncated=chance.random() < 0.3,
                        tokens_cut=7, original_tokens=chance.choice((3000, 5000, 12000)), reference_cut=False,
                        finish_reason="stop",
                    )
                    for one in samples
                ],
                scores=[
                    row
                    for one in samples
                    for row in score_rows(run, one.key, BENCHMARKS[benchmark], _scores(one, chance))
                ],
            )  # fmt: skip
            aggregate_scores(store, run, BENCHMARKS[benchmark])
        store.finish_run(run, "done")


def _scores(sample: Sample, chance: random.Random) -> list[Score]:
    values = made_scores(sample, chance)
    if "loyalty" in values:
        values["exact_match"] = (values["loyalty"] + values["fact"]) / 2
    return [Score(metric, value) for metric, value in values.items()]


def _judged(store: Store) -> None:
    for model in ("claude-100k", "gpt4-32k", "llama2-13b-chat-4k", "turbo-16k-0613"):
        asked = [
            Sample("leval", "narrative_qa", f"q{n}", f"{n // 8}", "Who?", ("He did",), "en", 900) for n in range(8)
        ]
        add_run(store, f"published-{model}", [(one, f"{model} {n}") for n, one in enumerate(asked)], model=model)
    add_judge(store, "fit", calibration(like_gpt4))
    add_judge(store, "first", calibration(always_first))
    rated = [
        RatingRow("s", n, rater, "published-" + model, score=float(1 + (n + len(model) + len(rater)) % 5))
        for n in range(53) for rater in ("ann", "robert") for model in ("claude-100k", "gpt4-32k")
    ]  # fmt: skip
    add_ratings(store, "s", "score", rated, 53)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("digits") / "r.duckdb"
    with Store(file) as store:
        _runs(store)
        _judged(store)
        add_depth(store)
    with duckdb.connect(str(file)) as connection:
        connection.execute("""
            INSERT INTO sessions BY NAME
            SELECT 'one' AS run_id, 1 AS session, now()::TIMESTAMP AS started_at, now()::TIMESTAMP AS finished_at,
                   'done' AS status, 1 AS workers, 12345.678912 AS estimated_s, 1000.0 / 3 AS wall_s,
                   2.0 / 3 AS prefill_s, '{"cores": 3}' AS hardware, 1234567 AS computed_tokens, 77 AS output_tokens;
        """)
    return file


@pytest.fixture(scope="module")
def shown(path: Path) -> dict[str, list[Sheet]]:
    """The tables of every report, with and without intervals."""
    return dict(_shown(path))


def _shown(path: Path) -> Iterator[tuple[str, list[Sheet]]]:
    with Store(path, read_only=True) as store:
        for name in REPORTS:
            wanted = {"expected": {"expected_models": ["Qwen2.5-7B"]}, "comparison": {"runs": ["one", "two"]}}.get(
                name, {}
            )
            wanted = {"runs": ["one", "two"]} if name == "changes" else wanted
            for alone in (False, True):
                try:
                    table = read_report(
                        store, name, ReportQuery(without_intervals=alone, allow_different_settings=True, **wanted)
                    )
                except LbxError:
                    assert name == "expected"
                    continue
                made = papers.sheets(table) if name == "paper" and table.rows else [sheet(REPORTS[name], table)]
                yield f"{name}{' alone' if alone else ''}", made
        yield "overview", overview.sheets(store, ReportQuery(), path)


def check(text: str, where: str) -> int:
    """That the numbers of a text have the right shape; how many intervals there are."""
    assert not UNROUNDED.search(text), (where, text)
    found = INTERVAL.findall(text)
    for numbers in found:
        decimals = {len(one.partition(".")[2]) for one in numbers if one}
        assert len(decimals) == 1, (where, text)
    return len(found)


def test_the_file_has_something_for_every_report(shown: dict[str, list[Sheet]]) -> None:
    lacking = {name for name, sheets in shown.items() if not any(one.rows for one in sheets)}
    assert lacking <= {"failures", "failures alone", "needles", "needles alone", "expected", "expected alone",
                       "board_leval_gpt4", "board_leval_gpt4 alone", "board_leval_gpt35", "board_leval_gpt35 alone",
                       "harness", "harness alone", "revisions", "revisions alone", "flips", "flips alone",
                       }  # fmt: skip


def test_every_cell_has_its_digits(shown: dict[str, list[Sheet]]) -> None:
    intervals = 0
    for name, sheets in shown.items():
        for one in sheets:
            for row in one.rows:
                for column, text in zip(one.columns, row, strict=True):
                    where = f"{name}, {column.name}: {text}"
                    intervals += check(text, where)
                    if column.kind == "text" or column.name in TEXTS:
                        continue
                    assert not EXPONENT.search(text), where
                    if column.kind in ("quantity", "ratio"):
                        continue
                    more = [number for number in WHOLE_OR_MORE.findall(text) if not SMALL.fullmatch(number)]
                    assert not more, f"more than two decimals: {where}"
    assert intervals > 500


def test_every_format_has_them(shown: dict[str, list[Sheet]]) -> None:
    for name, sheets in shown.items():
        for one in sheets:
            for width in (80, None):
                check("\n".join(line.text for line in lines(one, width)), name)
            check(render.markdown(one), name)
        check("".join(render.latex_pieces(sheets)), name)


def test_the_page_has_them(path: Path) -> None:
    page = Lbx()("report", path, "--format", "html", "--baseline", "one", "--allow-different-settings").stdout
    page = re.sub(r"<(style|script)\b.*?</\1>", "", page, flags=re.DOTALL)
    cells = [unescape(text) for text in re.findall(r">([^<>]+)<", page)]
    assert sum(check(text, "page") for text in cells) > 300


def test_the_list_of_answers_has_them(path: Path) -> None:
    said = Lbx()("show", path, "--run", "one", "--rows", "999").stdout
    assert re.search(r" 0\.\d{4}\b", said)
    check(said, "show")


def test_published_answers_have_them(imports: Path) -> None:
    """L-Eval's script prints four decimals and more: they stood in the paper's tables."""
    with Store(imports, read_only=True) as store:
        raw = [row["official"] for row in read_report(store, "paper").dicts() if row["benchmark"] == "leval"]
        for name in ("paper", "task_scores", "group_scores", "board_leval_rouge", "board_leval_f1", "leaderboard"):
            for alone in (False, True):
                table = read_report(store, name, ReportQuery(without_intervals=alone))
                made = papers.sheets(table) if name == "paper" else [sheet(REPORTS[name], table)]
                for one in made:
                    for row in one.rows:
                        for column, text in zip(one.columns, row, strict=True):
                            check(text, name)
                            assert column.kind == "text" or not re.search(r"[1-9]\d*\.\d{3,}", text), (name, text)
    assert any(len(repr(number)) > 6 for number in raw), "so the file has it"


def test_programs_have_every_digit(path: Path) -> None:
    with Store(path, read_only=True) as store:
        scores = {
            (row["run_id"], row["task"], row["metric"]): row["score"]
            for row in read_report(store, "task_scores").dicts()
        }
        estimates = read_report(store, "estimates").dicts()
    rows = json.loads(Lbx()("report", path, "task_scores", "-f", "json").stdout)
    assert {(row["run_id"], row["task"], row["metric"]): row["score"] for row in rows} == scores
    assert (estimates[0]["estimated_s"], estimates[0]["wall_s"]) == (12345.678912, pytest.approx(1000 / 3, abs=1e-9))


def test_lengths_of_ticks() -> None:
    lengths = (0, 512, 1000, 1024, 4096, 4097, 98_304, 128_000, 131_072, 1 << 20)
    assert [short_length(length) for length in lengths] == [
        "0", "512", "1,000", "1k", "4k", "4,097", "96k", "128,000", "128k", "1M",
    ]  # fmt: skip
