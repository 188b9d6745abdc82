"""What reports read: marks counted, papers' tables labelled and ordered."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lbx.base.errors import UsageError
from lbx.base.records import Sample
from lbx.benchmarks.longbench.benchmark import LongBench
from lbx.report.format import render
from lbx.report.format.table_cells import cells, sheet
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.results import GenerationRow, SampleRow, ScoreRow, Store
from lbx.results.scoring.reading import add_missing_numbers
from lbx.results.views import MODE_OF_RUN
from tests.made_numbers import group_row, task_row
from tests.results.store_rows import RUN

TASK = ("longbench", "qasper")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "results.duckdb") as opened:
        yield opened


def begin(store: Store, run_id: str, model: str = "demo", **settings: Any) -> None:
    store.begin_run(dataclasses.replace(RUN, run_id=run_id, model=model, settings={"seed": 0, **settings}))


def put(store: Store, generations: Mapping[str, Mapping[str, Any]], scores: Mapping[str, Mapping[str, Any]]) -> None:
    """Rows of run r1 by sample, with all that these say of them."""
    samples = [SampleRow(Sample(*TASK, name, name, "", ("x",)), place) for place, name in enumerate(generations)]
    store.write(
        samples=samples,
        generations=[GenerationRow("r1", *TASK, name, 0, **values) for name, values in generations.items()],
        scores=[
            ScoreRow("r1", *TASK, name, 0, "f1", 2, **{"score": 1.0, "extracted": None, "headline": True, **values})
            for name, values in scores.items()
        ],
    )
    add_missing_numbers(store)


SOUND = {
    "output": "x",
    "finish_reason": "stop",
    "truncated": False,
    "tokens_cut": 0,
    "stop_in_reasoning": False,
    "reasoning_tokens": 0,
    "bos_tokens": 1,
}
MARKED: dict[str, dict[str, Any]] = {
    "sound": SOUND,
    "closed": SOUND | {"reasoning": "so", "reasoning_closed": True},
    "empty": {"error": "nothing is left", "error_type": "EmptyPromptError"},
    "failed": {"error": "no memory", "error_type": "BackendError"},
    "unclosed": SOUND | {"finish_reason": "length", "reasoning_closed": False},
    "unclosed by eos": SOUND | {"reasoning_closed": False},
    "sound, too": SOUND,
    "blank": SOUND | {"output": " \n\u3000"},
    "blank behind reasoning": SOUND | {"output": "", "reasoning": "B", "reasoning_closed": True},
    "blank, unclosed": SOUND | {"output": "", "reasoning": "so", "reasoning_closed": False},
    "long": SOUND | {"finish_reason": "length"},
    "long after reasoning": SOUND | {"finish_reason": "length", "reasoning_closed": True},
    "stop": SOUND | {"stop_in_reasoning": True, "reasoning_closed": True},
    "bos": SOUND | {"bos_tokens": 2},
    "no bos": SOUND | {"bos_tokens": 0},
    "cut": SOUND | {"truncated": True, "tokens_cut": 7},
    "kept": SOUND | {"truncated": True, "tokens_cut": 30, "reference_cut": False},
    "lost": SOUND | {"truncated": True, "tokens_cut": 100, "reference_cut": True},
    "imported": {"output": "x"},
    "imported error": {"error": "timeout", "error_type": "imported"},
}


def test_every_mark_is_counted_once(store: Store) -> None:
    begin(store, "r1")
    answered = [name for name, row in MARKED.items() if "error" not in row]
    scores: dict[str, dict[str, Any]] = {name: {} for name in answered}
    scores["sound"] = {"score": 0.0, "error": "the official script would divide by zero"}
    scores["cut"] = {"partial": "no embedding model"}
    scores["kept"], scores["lost"] = {"extracted": ""}, {"extracted": "B"}
    scores["closed"], scores["sound, too"] = {"loose": True}, {"loose": False}
    put(store, MARKED, scores)
    (row,) = store.query("SELECT * FROM guards").dicts()
    assert {name: row[name] for name in row if name not in ("run_id", "model", "backend", "benchmark", "task")} == {
        "n": 20,
        "empty_prompts": 1,
        "failed": 2,
        "doubled_bos": 1,
        "reasoning_unclosed": 3,
        "answers_cut": 2,
        "empty_answers": 2,
        "stop_in_reasoning": 1,
        "truncated": 3,
        "tokens_cut": 137,
        "reference_cut": 1,
        "official_errors": 1,
        "unextracted": 1,
        "loose_matches": 1,
        "partial": 1,
        "lacks": "no embedding model",
        "mode": None,
        "question_changed": 0,
    }
    (shown,) = read_report(store, "task_scores").dicts()
    assert shown["partial"] is True
    assert shown["marks"] == (
        "prompt empty 5%; failed 10%; doubled BOS 5%; reasoning unclosed 15%; answer at its limit 10%; "
        "answer empty 10%; stop string in reasoning 5%; prompt cut 15%; reference cut away 5%; "
        "official script stops 5%; nothing extracted 5%; loose match 5%; "
        "partial: no embedding model"
    )
    (cut,) = read_report(store, "truncation").dicts()
    assert (cut["n"], cut["truncated"], cut["mean_tokens_cut"]) == (17, 3, 137 / 3)


def test_what_an_import_does_not_say_is_no_mark(store: Store) -> None:
    begin(store, "r1")
    put(store, {"a": {"output": "x"}, "b": {"output": "y"}}, {"a": {}, "b": {"score": 0.0}})
    (row,) = store.query("SELECT * FROM guards").dicts()
    unknown = {
        "doubled_bos", "reasoning_unclosed", "answers_cut", "stop_in_reasoning", "truncated", "tokens_cut",
        "reference_cut", "loose_matches",
    }  # fmt: skip
    assert {name for name in row if row[name] is None} == {*unknown, "lacks", "mode"}
    assert {row[name] for name in row if isinstance(row[name], int) and name != "n"} == {0}
    table = read_report(store, "task_scores")
    assert table.dicts()[0]["marks"] is None
    assert "marks" not in render.markdown(sheet(REPORTS["task_scores"], table))


def test_only_the_headline_is_marked_and_only_headline_errors_count(store: Store) -> None:
    begin(store, "r1")
    put(store, {"a": MARKED["long"]}, {"a": {}})
    more = ScoreRow("r1", *TASK, "a", 0, "rouge", 2, 0.0, None, headline=False, error="stops", partial="half")
    store.write(scores=[more])
    add_missing_numbers(store)
    (row,) = read_report(store, "guards").dicts()
    assert (row["official_errors"], row["partial"], row["lacks"]) == (0, 0, None)
    marks = {row["metric"]: (row["marks"], row["partial"]) for row in read_report(store, "task_scores").dicts()}
    assert marks == {"f1": ("answer at its limit 100%", True)}, "no number of the task is made of the other metric"


# How a run asked


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        ({}, None),
        ({"chat": True, "sampling": "official", "model_sampling": None, "context_window": 8192}, None),
        ({"thinking": True, "thinking_tokens": 512}, "thinking"),
        ({"thinking_tokens": 512}, "thinking"),
        ({"thinking": False}, "no thinking"),
        ({"thinking_tokens": 512, "reasoning_effort": "low"}, "thinking effort low"),
        ({"cot": True}, "cot"),
        ({"no_context": True}, "no context"),
        ({"rag": 4, "retriever": "bm25"}, "rag 4"),
        ({"thinking": True, "cot": True, "rag": 16}, "thinking cot rag 16"),
        ({"imported": "longbench", "files": {"a": 1}}, None),
    ],
)
def test_modes(store: Store, settings: dict[str, Any], mode: str | None) -> None:
    begin(store, "r1", **settings)
    reasoned = {"reasoning_tokens": 9, "reasoning_closed": True} if mode and mode.startswith("thinking") else {}
    put(store, {"a": SOUND | reasoned}, {"a": {}})
    store.write_results([group_row("r1", "longbench", "overall", "all", 1, 1.0, official=100.0, metric_version=2)])
    for view in ("leaderboard", "task_scores", "group_scores", "guards", "length_curve", "truncation"):
        table = read_report(store, view)
        assert [row["mode"] for row in table.dicts()] == [mode], view
        if view != "guards":  # which has no fault to show
            assert f"| {'demo' if mode is None else f'demo ({mode})'} |" in render.markdown(sheet(REPORTS[view], table))
    assert [row["run"] for row in read_report(store, "paper").dicts()] == [
        "demo" if mode is None else f"demo ({mode})"
    ] * 2


@pytest.mark.parametrize(
    ("thinking", "answers", "mode"),
    [
        (True, [], "thinking"),
        (True, [{"error": "no memory"}], "thinking"),
        (True, [{"output": "imported"}], "thinking"),
        (True, [SOUND, SOUND], "no thinking"),
        (True, [SOUND, SOUND | {"reasoning_tokens": 0, "reasoning_closed": True}], "thinking"),
        (True, [SOUND | {"reasoning_tokens": 7}], "thinking"),
        (True, [SOUND | {"prompt_source": "x/LongBench-Pro (question_thinking)"}], "thinking"),
        (True, [SOUND | {"prompt_source": "x/LongBench-Pro (question_nonthinking)"}], "no thinking"),
        (False, [SOUND, SOUND | {"reasoning_tokens": 9, "reasoning_closed": True}], "no thinking"),
        (False, [SOUND, SOUND | {"reasoning_tokens": 33, "reasoning_closed": False}], "thinking"),
        (None, [SOUND | {"reasoning_tokens": 99}], None),
    ],
)
def test_whether_a_run_reasoned_is_said_by_its_answers(
    store: Store, thinking: bool | None, answers: list[dict[str, Any]], mode: str | None
) -> None:
    begin(store, "r1", thinking=thinking)
    begin(store, "r2", thinking=True, seed=1)
    put(store, {str(number): row for number, row in enumerate(answers)}, {})
    found = store.query(f"SELECT {MODE_OF_RUN} FROM runs r WHERE run_id = 'r1'").rows
    assert found == [(mode,)]


# The papers' tables


def numbers(store: Store, run_id: str, tasks: list[str], groups: Mapping[str, float | None]) -> None:
    """A run's numbers of LongBench, E tasks with their buckets; a score is its place in known_tasks."""
    known = LongBench.catalogue.names
    results = []
    for task in tasks:
        place = known.index(task)
        metrics = ["f1", "f1/0-4k", "f1/4-8k"] if task.endswith("_e") else ["f1", "f1_unlimited"]
        results += [
            task_row(
                run_id, "longbench", task, metric, 5, place / 100, official=float(place) + position / 10,
                metric_version=2, headline=position == 0, position=position, task_position=place,
                in_paper=metric != "f1_unlimited",
            )
            for position, metric in enumerate(metrics)
        ]  # fmt: skip
    store.write_results(
        [
            *results,
            *(
                group_row(run_id, "longbench", *name.split("/"), 5, 0.5, official=official, position=position)  # type: ignore[call-arg]
                for position, (name, official) in enumerate(groups.items())
            ),
        ]
    )


def lines(store: Store, *runs: str) -> tuple[list[str], list[list[str]]]:
    columns, body = cells(REPORTS["paper"], read_report(store, "paper", ReportQuery(runs=runs)))
    return [column.heading for column in columns], body


def test_the_paper_s_order_holds_for_runs_of_different_tasks(store: Store) -> None:
    begin(store, "r1")
    begin(store, "r2", cot=True)
    numbers(store, "r1", ["hotpotqa", "lcc"], {"category/multi-document QA": None, "overall/all": 1.0})
    numbers(
        store, "r2", ["narrativeqa", "qasper", "hotpotqa", "qasper_e"],
        {"category/single-document QA": 3.0, "category/multi-document QA": 4.0, "overall/all": 5.0},
    )  # fmt: skip
    head, body = lines(store)
    assert head == ["benchmark", "task", "demo", "demo (cot)"]
    assert [row[1] for row in body] == [
        "narrativeqa",
        "qasper",
        "hotpotqa",
        "lcc",
        "qasper_e",
        "qasper_e, 0-4k",
        "qasper_e, 4-8k",
        "category single-document QA: average",
        "category multi-document QA: average",
        "overall: average",
    ]
    place = LongBench.catalogue.names.index("hotpotqa")
    assert body[2] == ["longbench", "hotpotqa", str(place), str(place)]
    assert body[3][2:] == [str(LongBench.catalogue.names.index("lcc")), ""]
    assert body[8][2:] == ["", "4"], "a group without an official number is left out"
    tasks = [row["task"] for row in read_report(store, "task_scores").dicts() if row["headline"]]
    assert tasks == ["narrativeqa", "qasper", "hotpotqa", "hotpotqa", "lcc", "qasper_e"]


def test_an_interval_has_its_number_s_unit_near_0_too(store: Store) -> None:
    begin(store, "r1")
    sure = {"low": 0.0, "high": 0.05, "se": 0.01}
    store.write_results([
        group_row("r1", "longbench_pro", "overall", "all", 9, 0.0, official=0.0, unit=1, **sure),
        group_row("r1", "longbench", "overall", "all", 9, 0.0004, official=0.0, **sure),
        task_row("r1", *TASK, "f1", 9, 0.004, **sure),
    ])  # fmt: skip
    rows = {(row["benchmark"], row["line"]): row for row in read_report(store, "paper").dicts()}
    found = {key: (row["low"], row["high"], row["se"]) for key, row in rows.items()}
    assert found == {
        ("longbench_pro", "overall: average"): (0.0, 0.05, 0.01),
        ("longbench", "overall: average"): (0.0, 5.0, 1.0),
        ("longbench", "qasper"): (None, None, None),
    }


def test_runs_of_one_model_go_by_what_differs(store: Store) -> None:
    for run_id, model, settings in (
        ("r1", "demo", {}),
        ("r2", "demo", {"seed": 1}),
        ("r3", "demo", {"cot": True}),
        ("r4", "other", {}),
    ):
        begin(store, run_id, model, **settings)
        numbers(store, run_id, ["qasper"], {})
    head, body = lines(store)
    assert head[2:] == ["demo (cot)", "demo (seed 0)", "demo (seed 1)", "other"]
    assert len(body) == 1
    assert lines(store, "r1", "r4")[0][2:] == ["demo", "other"]
    with pytest.raises(UsageError, match="No run 'r9'"):
        lines(store, "r9")


def test_a_run_that_goes_on_has_a_line_without_a_number(store: Store) -> None:
    begin(store, "r1")
    put(store, {"a": SOUND}, {"a": {}})
    assert lines(store)[1] == [["longbench", "qasper", "-"]]


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ({"seed": 0}, {"seed": 1}, ("seed 0", "seed 1")),
        ({}, {"max_new_tokens": 9}, ("max_new_tokens default", "max_new_tokens 9")),
        (
            {"backend.dtype": "float32", "context_window": 512},
            {"backend.dtype": "bfloat16", "context_window": 512},
            ("dtype float32", "dtype bfloat16"),
        ),
        ({"backend.weights": "a" * 64}, {"backend.weights": "b" * 64}, ("r1", "r2")),
        ({}, {}, ("r1", "r2")),
        ({"thinking": True}, {}, (None, None)),
    ],
)
def test_twins_are_told_apart(
    store: Store, first: Mapping[str, Any], second: Mapping[str, Any], told: tuple[str | None, ...]
) -> None:
    """By the settings that differ, by name where these are none that people could read; another mode is no twin."""
    for name, settings in (("r1", first), ("r2", second)):
        begin(store, name, **settings)
        store.write(
            samples=[SampleRow(Sample(*TASK, "a", "a", "", ("x",)), 0)],
            generations=[GenerationRow(name, *TASK, "a", 0, **SOUND)],
            scores=[ScoreRow(name, *TASK, "a", 0, "f1", 2, 1.0, None, headline=True)],
        )
    add_missing_numbers(store)
    for view in ("leaderboard", "task_scores"):
        assert store.query(f"SELECT differs_in FROM {view} ORDER BY run_id").rows == [(one,) for one in told]
        assert len({row["label"] for row in read_report(store, view).dicts()}) == 2


def test_answers_has_a_row_for_each_answer_with_all_that_people_ask_for(store: Store) -> None:
    begin(store, "r1", cot=True)
    begin(store, "r2")
    of = Sample(*TASK, "a", "document", "Who?", ("Ann", "Anne"), "en", 1200)
    other = Sample(*TASK, "b", "document", "When?", ("in 1999",), "en", 700)
    store.write(
        samples=[SampleRow(of, 0), SampleRow(other, 1)],
        generations=[
            GenerationRow("r1", *TASK, "a", 0, output="Ann", prompt_tokens=900, original_tokens=1300, truncated=True,
                          output_tokens=2, finish_reason="stop", reasoning="hm"),
            GenerationRow("r1", *TASK, "a", 1, output="Bob"),
            GenerationRow("r1", *TASK, "b", 0, error="it broke"),
            GenerationRow("r2", *TASK, "b", 0, output="1999"),
            GenerationRow("r2", "judge", "rubric", "x", 0, output="[[A]]"),
        ],
        scores=[
            ScoreRow("r1", *TASK, "a", 0, "f1", 2, 1.0, None, headline=True),
            ScoreRow("r1", *TASK, "a", 0, "other", 2, 0.5, None, headline=False),
            ScoreRow("r1", *TASK, "a", 1, "f1", 2, 0.0, None, headline=True),
        ],
    )  # fmt: skip
    names = "model, mode, run_id, task, question, reference, output, score, prompt_tokens, output_tokens, length"
    assert store.query(f"SELECT {names} FROM answers ORDER BY run_id, sample_id, iteration").rows == [
        ("demo", "cot", "r1", "qasper", "Who?", "Ann | Anne", "Ann", 1.0, 900, 2, 1200),
        ("demo", "cot", "r1", "qasper", "Who?", "Ann | Anne", "Bob", 0.0, None, None, 1200),
        ("demo", "cot", "r1", "qasper", "When?", "in 1999", None, None, None, None, 700),
        ("demo", None, "r2", "qasper", "When?", "in 1999", "1999", None, None, None, 700),
    ]
    held = store.query("SELECT DISTINCT reference_answers->>'$[1]' FROM answers WHERE sample_id = 'a'").rows
    assert held == [("Anne",)]
    assert store.query("SELECT metric, error FROM answers WHERE error IS NOT NULL").rows == [(None, "it broke")]


def test_the_longest_prompt_stands_as_it_was_sent_too(store: Store) -> None:
    begin(store, "r1")
    put(store, {
        "a": SOUND | {"truncated": True, "original_tokens": 9000, "prompt_tokens": 3500, "tokens_cut": 5500},
        "b": SOUND | {"original_tokens": 3600, "prompt_tokens": 3600},
    }, {})  # fmt: skip
    (row,) = read_report(store, "truncation").dicts()
    assert (row["longest_prompt"], row["longest_prompt_sent"]) == (9000, 3600)
    columns, rows = cells(REPORTS["truncation"], read_report(store, "truncation"))
    shown = dict(zip([column.heading for column in columns], rows[0], strict=True))
    assert shown["longest prompt"] == "9,000" and shown["as sent"] == "3,600"
