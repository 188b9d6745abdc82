"""Judges and people in reports: calibration, doubts, agreement, and no judge among evaluated models."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

import pytest
from scipy import stats

from lbx.base.errors import UsageError
from lbx.base.records import Sample
from lbx.benchmarks.registry import BENCHMARKS
from lbx.cluster.merge import merge
from lbx.opinions.fitness import fitness
from lbx.opinions.rating_rows import RatingRow
from lbx.opinions.reports import judge_notes
from lbx.report.draw.figures import figures
from lbx.report.page import pieces
from lbx.report.page.source import PageSource
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.report.rows import paper as papers
from lbx.results import GenerationRow, RunRow, SampleRow, Store
from lbx.results.scoring.adding_up import add_up
from lbx.results.scoring.scores import Rescoring, rescore, score_rows
from tests.judged_rounds import (
    BASELINE,
    CALIBRATION,
    SCALE,
    Said,
    add_judge,
    add_ratings,
    always_first,
    both_orders,
    calibration,
    fastchat_rounds,
    like_gpt4,
)
from tests.report.made_runs import add_run, trec

CLAUDE = "published-claude-100k"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "r.duckdb") as made:
        yield made


def published(store: Store, questions: int = 96) -> None:
    """The published answers as runs."""
    family = BENCHMARKS["leval"]
    tasks = ["narrative_qa" if n < 48 else "scientific_qa" for n in range(questions)]
    samples = [Sample("leval", task, f"q{n}", f"{n // 8}", "Who?", ("He",), "en", 9) for n, task in enumerate(tasks)]
    texts = {f"published-{model}": f"{model} says {{}}" for model in CALIBRATION} | {
        BASELINE: "turbo says at length {}"
    }
    for run, text in texts.items():
        store.begin_run(
            RunRow(run, run.removeprefix("published-"), "import", "1", {}, "digest", {"run": run}, {}, "0.1")
        )
        outputs = [text.format(n) for n in range(questions)]
        store.write(
            samples=[SampleRow(one, n) for n, one in enumerate(samples)],
            generations=[GenerationRow(run, *one.key, output=outputs[n]) for n, one in enumerate(samples)],
            scores=[
                row
                for n, one in enumerate(samples)
                for row in score_rows(run, one.key, family, family.score(one, outputs[n]))
            ],
        )
        add_up(store, run, family)
        store.finish_run(run, "done")


# Calibration


def test_a_judge_that_judges_as_gpt4_is_fit(store: Store) -> None:
    add_judge(store, "j", calibration(like_gpt4))
    found = fitness(store, "j")
    assert found.verdict == "fit", found.why
    assert [round(100 * row.win_rate) for row in found.rows] == [61, 54, 43]
    assert all(row.low < row.gpt4 < row.high and (row.questions, row.rounds) == (96, 192) for row in found.rows)


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (always_first, "its win rate of claude-100k against turbo-16k-0613 is 50.0 [50.0, 50.0], GPT-4's 60.9"),
        (lambda m, n: like_gpt4(m, n) if n % 9 else ("?", "?"), "22 of 192 texts on claude-100k have no verdict"),
        (lambda m, n: like_gpt4(m, n)[::-1], "it ranks llama2-13b-chat-4k above claude-100k"),
        (lambda m, n: like_gpt4("gpt4-32k", n + 5), "its win rate of claude-100k"),
    ],
)  # fmt: skip
def test_a_judge_that_contradicts_gpt4_is_unfit(
    store: Store, verdicts: Callable[[str, int], tuple[str, str]], said: str
) -> None:
    add_judge(store, "j", calibration(verdicts))
    found = fitness(store, "j")
    assert found.verdict == ("unfit" if said != "its win rate of claude-100k" else found.verdict), found.why
    assert said in found.why or found.verdict == "fit"


def test_claude_and_gpt4_may_change_places(store: Store) -> None:
    """GPT-4's own win rates of the two lie within one another's intervals."""
    other = {"claude-100k": "gpt4-32k", "gpt4-32k": "claude-100k"}
    add_judge(store, "j", calibration(lambda model, n: like_gpt4(other.get(model, model), n)))
    assert fitness(store, "j").verdict == "fit"


def test_part_of_a_calibration_is_none(store: Store) -> None:
    add_judge(store, "j", [one for one in calibration(like_gpt4) if one.round.run_id == CLAUDE])
    assert str(fitness(store, "j")) == (
        "not calibrated: it has not judged the published answers of gpt4-32k and llama2-13b-chat-4k"
    )
    add_judge(store, "k", calibration(like_gpt4, 40), model="another")
    assert "only 40 of claude-100k" in fitness(store, "k").why
    rated = replace(next(calibration(like_gpt4)).round, against_run_id=None)
    add_judge(store, "own", [Said(rated, "[[4]]")], rubric=SCALE)
    assert "no judgements by the rubric" in fitness(store, "own").why


def test_a_calibration_holds_for_other_runs_of_the_same_judge(store: Store) -> None:
    """Not for another model, nor by another rubric."""
    add_judge(store, "calibration", calibration(like_gpt4))
    one = replace(next(calibration(like_gpt4)).round, run_id="mine")
    add_judge(store, "j", [Said(one, "[[A]]")])
    add_judge(store, "other", [Said(one, "[[A]]")], model="another")
    add_judge(store, "rates", [Said(replace(one, against_run_id=None), "[[4]]")], rubric=SCALE)
    verdicts = {name: fitness(store, name).verdict for name in ("j", "other", "rates")}
    assert verdicts == {"j": "fit", "other": "not calibrated", "rates": "not calibrated"}


# Every report that uses a judge says what is to be thought of it


def test_reports_say_what_is_to_be_thought_of_a_judge(store: Store) -> None:
    published(store)
    add_judge(store, "bad", calibration(always_first), family=[CLAUDE])
    rows = read_report(store, "judge_results").dicts()
    assert {(row["judge_id"], row["label_judge"]) for row in rows} == {("bad", "the judge (judge: pairs)")}
    assert {row["fitness"] for row in rows} == {"unfit"} and all("GPT-4" in row["why"] for row in rows)
    assert {row["caution"] for row in rows if row["run_id"] == CLAUDE} == {"same family"}
    (bias, *_) = read_report(store, "judge_bias").dicts()
    assert (
        bias["fitness"] == "unfit" and bias["first_share"] == 1 and bias["first_p"] < 1e-9 and bias["consistency"] == 0
    )
    assert bias["longer_share"] == 0.5
    paper = read_report(store, "paper")
    of_judge = [row for row in paper.dicts() if row["table"] == "judge"]
    assert len(of_judge) == 3 and all(
        row["fitness"].startswith("the judge (judge: pairs) is unfit: ") for row in of_judge
    )
    assert all(row["official"] == 50 for row in of_judge)
    (sheet,) = [one for one in papers.sheets(paper) if "judges' win rates" in one.title]
    assert any(note.startswith("the judge (judge: pairs) is unfit: ") for note in sheet.notes)
    page = "".join(pieces(store))
    assert page.count("is <b>unfit</b>") == 1 and page.count("the judge (judge: pairs) is unfit: ") == 1
    assert 'id="judge_results"' in page and 'id="judge_bias"' in page


def test_a_judges_ratings_stand_in_the_paper_with_their_scale(store: Store) -> None:
    """Those of the questions of one mark, too."""
    published(store)
    rated = [
        replace(one.round, run_id=CLAUDE, against_run_id=None, marks=("LLM",) if n // 2 % 2 else ("human",))
        for n, one in enumerate(calibration(like_gpt4, 48))
        if one.round.run_id == CLAUDE
    ]
    add_judge(store, "j", [Said(one, f"[[{3 + n % 5 % 3}]]") for n, one in enumerate(rated)], rubric=SCALE)
    rows = [row for row in read_report(store, "paper").dicts() if row["line"].endswith("rating")]
    assert {row["line"] for row in rows} == {
        "judge j: rating", "judge j, llm questions: rating", "judge j, human questions: rating"
    }  # fmt: skip
    for row in rows:
        assert 3 < row["low"] < row["official"] < row["high"] < 5, row


def test_ratings_stand_in_the_paper_with_their_scale(store: Store) -> None:
    published(store)
    scores = [4.0, 5.0, 4.0, 4.0, 4.0, 5.0, 5.0, 5.0, 4.0, 3.0, 3.0, 4.0, 4.0, 3.0, 3.0, 4.0] * 3
    add_ratings(
        store, "people", "score", [RatingRow("people", n, "ann", CLAUDE, score=one) for n, one in enumerate(scores)]
    )
    (row,) = [row for row in read_report(store, "paper").dicts() if row["table"] == "people_rating"]
    assert row["official"] == 4.0 and 3.2 < row["low"] < 4.0 < row["high"] < 4.8
    (group,) = [row for row in read_report(store, "group_scores").dicts() if row["grouping"] == "people"]
    assert (group["score"], group["official"], group["n"], group["name"]) == (0.75, 4.0, 48, "people")
    (made,) = [row for row in read_report(store, "rating_results").dicts() if row["task"] is None]
    assert (made["mean"], made["mean_low"], made["mean_high"]) == (
        4.0,
        pytest.approx(row["low"]),
        pytest.approx(row["high"]),
    )


# A judge is no evaluated model


def test_a_judge_stands_in_no_table_of_scores(store: Store) -> None:
    published(store, 8)
    add_run(store, "mine", trec(3, 9), model="judge's twin")
    broken = Said(next(calibration(like_gpt4)).round, error="it broke", iteration=1)
    add_judge(store, "j", [*calibration(like_gpt4, 8), broken], model="judge's twin")
    for name, report in REPORTS.items():
        try:
            table = read_report(store, name, ReportQuery(baseline="mine" if name in ("changes", "comparison") else ""))
        except UsageError:
            assert name == "expected"
            continue
        benchmarks = {row.get("benchmark") for row in table.dicts()}
        runs = {row.get(one) for row in table.dicts() for one in ("run_id", "run_a", "run_b")}
        if name not in ("judge_results", "judge_bias", "failures", "cost"):
            assert "judge" not in benchmarks, (name, report.title)
            assert "j" not in runs, name
    (failure,) = read_report(store, "failures").dicts()
    assert (failure["benchmark"], failure["mode"]) == ("judge", "judge")
    (twin,) = [row for row in read_report(store, "leaderboard").dicts() if row["run_id"] == "mine"]
    assert twin["differs_in"] is None
    assert 'data-run="5"' not in "".join(pieces(store))  # five runs, from 0


def test_a_file_of_a_judge_alone(store: Store, shared: Callable[[str], Path]) -> None:
    add_judge(store, "gpt-4", fastchat_rounds(shared("data/judgements/fastchat/gpt-4_pair.jsonl")))
    (row,) = read_report(store, "judge_results").dicts()
    assert (round(row["win_rate"], 6), round(row["win_rate_agreeing"], 6)) == (0.506803, 0.513699)
    assert row["low"] < 0.45 and row["high"] > 0.55 and row["fitness"] == "not calibrated"
    lean = read_report(store, "judge_bias").dicts()[0]
    assert lean["first_p"] < 0.001 and lean["first_share_low"] > 0.5
    assert "50.7" in "".join(pieces(store)) and not read_report(store, "leaderboard").rows


# Adding up


def numbers(store: Store) -> dict[tuple[str, str], float]:
    return {(row["run_id"], row["name"]): row["official"] for row in store.query(
        "SELECT * FROM group_results WHERE \"grouping\" IN ('judge', 'people')"
    ).dicts()}  # fmt: skip


def test_adding_up_a_benchmark_leaves_what_judges_say(store: Store) -> None:
    published(store)
    add_judge(store, "j", calibration(like_gpt4))
    add_ratings(store, "s", "score", [RatingRow("s", 0, "ann", CLAUDE, score=4.0)])
    before = numbers(store)
    assert {name for _, name in before} == {f"j vs {BASELINE}", "s"} and len(before) == 4
    add_up(store, CLAUDE, BENCHMARKS["leval"])
    assert numbers(store) == before
    rescore(store, Rescoring(BENCHMARKS, [CLAUDE]))
    assert numbers(store) == before
    rescore(store, Rescoring(BENCHMARKS))
    assert numbers(store) == before
    assert [row["official"] for row in read_report(store, "paper").dicts() if row["table"] == "judge"]


def test_changed_answers_drop_what_was_said_of_them(store: Store) -> None:
    published(store)
    add_judge(store, "j", calibration(like_gpt4))
    key = ("leval", "narrative_qa", "q0")
    store.write(generations=[GenerationRow(CLAUDE, *key, 0, output="quite another")])
    assert not store.query(f"SELECT * FROM group_results WHERE run_id = '{CLAUDE}'").rows
    add_up(store, CLAUDE, BENCHMARKS["leval"])
    (row,) = store.query(f"SELECT n FROM group_results WHERE run_id = '{CLAUDE}' AND \"grouping\" = 'judge'").rows
    assert row == (190,)


def test_scored_again_where_an_opponent_changed(store: Store) -> None:
    published(store)
    add_judge(store, "j", calibration(like_gpt4))
    store.write(generations=[GenerationRow(BASELINE, "leval", "narrative_qa", "q0", 0, output="quite another")])
    rescore(store, Rescoring(BENCHMARKS))
    counts = store.query("SELECT n FROM group_results WHERE \"grouping\" = 'judge'").rows
    assert counts == [(190,)] * 3


def test_merged_files_have_all_that_was_said(tmp_path: Path) -> None:
    """Two halves of a judge's work, and two raters, each in a file of their own."""
    said, paths = list(calibration(like_gpt4)), [tmp_path / "a.duckdb", tmp_path / "b.duckdb"]
    for half, path in enumerate(paths):
        with Store(path) as store:
            published(store)
            add_judge(store, "j", said[half::2])
            rating = RatingRow("s", 0, f"rater {half}", CLAUDE, score=3.0 + half)
            add_ratings(store, "s", "score", [replace(rating, created_at=datetime(2026, 1, 1, tzinfo=UTC))])
            assert {row[0] for row in store.query("SELECT n FROM group_results WHERE \"grouping\" = 'judge'").rows} == {
                96
            }
    merge(paths, tmp_path / "all.duckdb", None, update=False)
    with Store(tmp_path / "all.duckdb", read_only=True) as store:
        assert {row[0] for row in store.query("SELECT n FROM group_results WHERE \"grouping\" = 'judge'").rows} == {192}
        assert numbers(store)[CLAUDE, "s"] == 3.5
        assert fitness(store, "j").verdict == "fit"


def test_an_opponents_changed_answer_counts_no_more_in_anybodys_numbers(store: Store) -> None:
    """`lbx run --retry-empty` adds up the opponent alone."""
    published(store)
    add_judge(store, "j", calibration(like_gpt4))
    store.write(generations=[GenerationRow(BASELINE, "leval", "narrative_qa", "q0", 0, output="quite another")])
    assert not store.query("SELECT * FROM group_results WHERE \"grouping\" = 'judge'").rows
    add_up(store, BASELINE, BENCHMARKS["leval"])
    assert store.query("SELECT n FROM group_results WHERE \"grouping\" = 'judge'").rows == [(190,)] * 3


def test_judged_runs_have_marks_of_their_own_on_a_page_of_their_judge(store: Store) -> None:
    published(store)
    add_judge(store, "one", calibration(like_gpt4))
    source = PageSource(store, ReportQuery(runs=("one",)))
    assert not source.runs, "a judge is no run of a page, and the judged ones are left out"
    (chart,) = figures(source, "judge_results")
    marks = re.findall(r'<g class="row c\d r(\d+)">', chart.svg)
    assert len({*marks}) == len(marks) == len(CALIBRATION)


# Agreement


def test_agreement_of_judges_and_people(store: Store) -> None:
    published(store)
    add_judge(store, "one", calibration(like_gpt4))
    add_judge(store, "twin", calibration(like_gpt4), model="twin")
    add_judge(store, "coin", calibration(always_first), model="coin")
    ratings = [
        RatingRow("people", n, rater, CLAUDE, against_run_id=BASELINE,
                  verdict="answer" if like_gpt4("claude-100k", n) == ("[[A]]", "[[B]]") else "against")
        for n in range(96) for rater in ("ann", "bob", "cy") if (n + len(rater)) % 4
    ]  # fmt: skip
    add_ratings(store, "people", "pair", ratings)
    found = {
        (row["first"], row["second"]): row for row in read_report(store, "agreement").dicts() if row["task"] is None
    }
    alike = found["one", "twin"]
    assert (alike["n"], alike["percent"], alike["kappa"], alike["alpha"], alike["tau"]) == (576, 1.0, 1.0, 1.0, 1.0)
    chance = found["coin", "one"]
    assert chance["percent"] == 0.5 and abs(chance["kappa"]) < 1e-9 and chance["tau"] is None
    people = found["one", "majority of people"]
    assert (people["between"], people["percent"], people["kappa"]) == ("judge and people", 1.0, 1.0)
    assert found["ann", "bob"]["kappa"] == 1.0
    assert found["all 3 raters of people", None]["alpha"] == 1.0


def test_raters_of_pairs_put_the_runs_in_the_order_of_all_their_pairs(store: Store) -> None:
    published(store, 24)
    runs = [f"published-{model}" for model in CALIBRATION] + [BASELINE]
    draw = random.Random(3)
    ratings = [
        RatingRow("people", n, rater, one, against_run_id=other, verdict=draw.choice(("answer", "against", "tie")))
        for n in range(24) for one, other in combinations(runs, 2) for rater in ("ann", "bob")
    ]  # fmt: skip
    add_ratings(store, "people", "pair", ratings, 24)
    points = {(rater, run): 0.0 for rater in ("ann", "bob") for run in runs}
    for row in ratings:
        won = {"answer": 1.0, "against": 0.0}.get(row.verdict, 0.5)
        points[row.rater, row.run_id] += won
        points[row.rater, row.against_run_id] += 1 - won
    orders = ([points[rater, run] for run in runs] for rater in ("ann", "bob"))
    (row,) = [row for row in read_report(store, "agreement").dicts() if row["second"] == "bob"]
    assert (row["n"], row["runs"]) == (24 * 6, 4)
    assert row["tau"] == pytest.approx(stats.kendalltau(*orders).statistic)


def test_people_who_rate_are_held_against_a_judge_who_compares(store: Store) -> None:
    published(store, 8)
    add_judge(
        store, "j", [one for one in calibration(lambda m, n: ("[[A]]", "[[B]]"), 8) if one.round.run_id == CLAUDE]
    )
    rated = [RatingRow("s", n, "ann", run, score=score) for n in range(8)
             for run, score in ((CLAUDE, 4.0), (BASELINE, 5.0 if n == 0 else 4.0 if n == 1 else 3.0))]  # fmt: skip
    add_ratings(store, "s", "score", rated)
    (row,) = [row for row in read_report(store, "agreement").dicts() if row["between"] == "judge and people"]
    assert (row["n"], row["percent"]) == (8, 6 / 8)


def test_numbers_do_not_depend_on_how_rows_lie_in_the_file(store: Store, tmp_path: Path) -> None:
    """Alpha's interval is drawn: clusters in another order were other samples."""
    draw = random.Random(7)
    ratings = [
        RatingRow(
            "people", n, rater, CLAUDE, score=float(draw.randint(1, 5)), created_at=datetime(2026, 1, 1, tzinfo=UTC)
        )
        for n in range(48)
        for rater in ("ann", "bob", "cy")
    ]
    found = []
    with Store(tmp_path / "other.duckdb") as other:
        for file, rows in ((store, ratings), (other, ratings[::-1])):
            published(file)
            add_ratings(file, "people", "score", rows)
            found.append([read_report(file, name).rows for name in ("agreement", "rating_results")])
    assert found[0] == found[1]


def test_what_is_hostile_is_text(store: Store) -> None:
    name = "</script><script>alert(1)</script>\x1b[31m\u202e"
    add_judge(
        store, name, both_orders(replace(next(calibration(like_gpt4)).round, run_id=name), "[[A]]", "[[B]]"), model=name
    )
    page = "".join(pieces(store))
    assert "alert(1)</script>" not in page and "\x1b" not in page and "\u202e" not in page
    assert json.dumps(read_report(store, "judge_results").rows, default=str)


def test_verdicts_that_a_limit_cut_off_are_told_from_others_that_lack(store: Store) -> None:
    made = enumerate(calibration(like_gpt4, 8))
    said = [replace(one, cut=at < 3, text="well" if at < 4 else one.text) for at, one in made]
    add_judge(store, "j", said)
    (note,) = [note for note in judge_notes(read_report(store, "judge_results")) if "limit" in note]
    assert note.startswith("3 texts reached their token limit before a verdict.")
    add_judge(store, "k", [replace(one, cut=False) for one in said], model="other")
    (note,) = [note for note in judge_notes(read_report(store, "judge_results")) if "limit" in note]
    assert note.startswith("3 texts")


def test_one_text_is_counted_as_one(store: Store) -> None:
    published(store)
    made = [Said(one.round, one.text) for one in calibration(like_gpt4)]
    add_judge(
        store, "j", [replace(one, cut=at < 1, text="well" if at < 1 else one.text) for at, one in enumerate(made)]
    )
    assert any(
        note.startswith("1 text reached its token limit") for note in judge_notes(read_report(store, "judge_results"))
    )
