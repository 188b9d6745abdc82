"""What scores were paid with."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from lbx.report.format.table_cells import sheet
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.results import SessionRow, Store
from lbx.results.file.sessions import store_sessions
from tests.judged_rounds import PAIR, add_judge, calibration, like_gpt4
from tests.report.made_answers import Answer, make

BEGUN = datetime(2026, 3, 2, 6, tzinfo=UTC)


def lines_of(path: Path, **wanted: Any) -> dict[tuple[str, str | None], dict[str, Any]]:
    """{(run, task): the line}; the task is None for all together."""
    with Store(path, read_only=True) as store:
        return {(row["run_id"], row["task"]): row for row in read_report(store, "cost", ReportQuery(**wanted)).dicts()}


def answer(name: str, score: float, seconds: float = 2.0, **how: Any) -> Answer:
    """1,000 tokens of prompt, 400 of them shared, three quarters of the seconds for them; 50 tokens of answer."""
    values = {"prompt_tokens": 1000, "cached_tokens": 400, "output_tokens": 50}
    values |= {"prefill_s": 0.75 * seconds, "decode_s": 0.25 * seconds}
    return Answer(name, {"f1": score}, document=name, **{"values": values, **how})


def sessions(path: Path, *rows: SessionRow) -> Path:
    with Store(path) as store:
        store_sessions(store, rows)
    return path


def session(run: str = "a", number: int = 1, workers: int = 0, **values: Any) -> SessionRow:
    default = {"hardware": {"threads": 4}, "wall_s": 1800.0, "prefill_s": 30.0, "decode_s": 10.0, "status": "done"}
    return SessionRow(run, number, workers, **{"started_at": BEGUN, "spec": {"seed": 1}, **default, **values})


def test_speeds_and_what_was_saved(tmp_path: Path) -> None:
    line = lines_of(make(tmp_path / "r.duckdb", [answer(f"q{at}", 0.5) for at in range(10)]))["a", "qasper"]
    assert (line["prompt_tokens"], line["cached_tokens"], line["output_tokens"]) == (10_000, 4000, 500)
    assert line["prefill_tokens_s"] == pytest.approx(600 / 1.5)
    assert line["decode_tokens_s"] == pytest.approx(50 / 0.5)
    assert line["cached_share"] == pytest.approx(0.4)
    assert line["seconds_saved"] == pytest.approx(4000 / 400)
    assert (line["seconds_per_answer"], line["measured"]) == (pytest.approx(2.0), 10)
    assert line["tokens_per_correct"] == pytest.approx(650 / 0.5)
    assert line["seconds_per_correct"] == pytest.approx(4.0)
    assert line["seconds_per_correct_low"] is None, "all alike"
    assert (line["hours"], line["untimed_sessions"]) == (None, None)


def test_what_a_correct_answer_costs_has_the_interval_of_a_ratio(tmp_path: Path) -> None:
    random = np.random.default_rng(11)
    scores, seconds = random.uniform(0.2, 1.0, 50), random.uniform(1, 3, 50)
    rows = [answer(f"q{at}", s, c) for at, (s, c) in enumerate(zip(scores.tolist(), seconds.tolist(), strict=True))]
    line = lines_of(make(tmp_path / "r.duckdb", rows))["a", "qasper"]
    ratio = seconds.sum() / scores.sum()
    # The textbook's variance of a ratio estimator (Cochran, Sampling Techniques, 6.4).
    variance = (
        np.var(seconds, ddof=1) + ratio**2 * np.var(scores, ddof=1) - 2 * ratio * np.cov(seconds, scores)[0, 1]
    ) / (50 * scores.mean() ** 2)
    spread = np.exp(stats.t.ppf(0.975, 49) * np.sqrt(variance) / ratio)
    found = [line[f"seconds_per_correct{end}"] for end in ("", "_low", "_high")]
    assert found == pytest.approx([ratio, ratio / spread, ratio * spread], rel=1e-9)


@pytest.mark.long("200 draws to show what the exact interval above says")
def test_the_interval_of_a_price_holds_it(tmp_path: Path) -> None:
    """Right or wrong at 30%, 60 questions: of 200 draws at least 180 intervals hold the price of 2 / 0.3 seconds."""
    random = np.random.default_rng(2)
    rows = [
        answer(f"q{at}", float(random.random() < 0.3), float(random.gamma(4, 0.5)), run=f"run {draw:03}")
        for draw in range(200)
        for at in range(60)
    ]
    found = [line for (_, task), line in lines_of(make(tmp_path / "r.duckdb", rows)).items() if task]
    held = sum(line["seconds_per_correct_low"] < 2 / 0.3 < line["seconds_per_correct_high"] for line in found)
    assert len(found) == 200 and held >= 180


def test_all_tasks_are_added_up(tmp_path: Path) -> None:
    rows = [answer(f"q{at}", 1.0) for at in range(3)]
    rows += [answer(f"m{at}", 0.5, 8.0, task="musique") for at in range(2)]
    found = lines_of(make(tmp_path / "r.duckdb", rows))
    assert list(found) == [("a", None), ("a", "qasper"), ("a", "musique")]
    assert found["a", None]["seconds_per_correct"] == pytest.approx((3 * 2 + 2 * 8) / 4)
    assert found["a", None]["score"] == pytest.approx(0.75), "tasks count alike"


@pytest.mark.parametrize("first", ["qasper", "musique"])
def test_a_document_is_paid_by_all_tasks_that_read_it(tmp_path: Path, first: str) -> None:
    """Prompts of 1,000 and 3,000 tokens on each document: the later one finds 900 of its tokens in the KV cache."""
    rows = []
    for at in range(4):
        for task, prompt in (("qasper", 1000), ("musique", 3000)):
            cached = 0 if task == first else 900
            how = {"prompt_tokens": prompt, "cached_tokens": cached, "output_tokens": 50, "decode_s": 1.0}
            values = {**how, "prefill_s": (prompt - cached) / 100}
            rows.append(Answer(f"{task}{at}", {"f1": 1.0}, task=task, document=f"document {at}", values=values))
    found = lines_of(make(tmp_path / "r.duckdb", rows))
    assert found["a", "qasper"]["tokens_per_correct"] == pytest.approx(3100 / 4 + 50)
    assert found["a", "musique"]["tokens_per_correct"] == pytest.approx(3100 * 3 / 4 + 50)
    assert found["a", "qasper"]["prefill_s"] == pytest.approx(4 * 31 / 4)
    assert found["a", "qasper"]["cached_share"] == pytest.approx(found["a", "musique"]["cached_share"])
    assert found["a", None]["tokens_per_correct"] == pytest.approx((3100 + 100) / 2)


def test_hours_are_those_of_the_hardware(tmp_path: Path) -> None:
    rows = [answer("q", 1.0), answer("m", 1.0, 6.0, task="musique")]
    for number, (hardware, workers, hours, of) in enumerate([
        ({"threads": 4}, 0, 2.0, "core"),
        ({"threads": 4}, 3, 6.0, "core"),
        ({"gpu": "H200", "threads": 4}, 2, 1.0, "GPU"),
        ({"gpu": "H200", "devices": ["cuda:0", "cuda:1"]}, 0, 1.0, "GPU"),
        ({"gpu": "H200", "devices": ["CUDA0"], "n_gpu_layers": -1, "threads": 4}, 0, 0.5, "GPU"),
        ({"n_gpu_layers": -1, "threads": 4}, 0, 2.0, "core"),
        ({"url": "http://127.0.0.1"}, 0, None, None),
    ]):  # fmt: skip
        path = make(tmp_path / f"{number}.duckdb", rows)
        found = lines_of(sessions(path, session(hardware=hardware, workers=workers)))
        assert (found["a", None]["hours"], found["a", None]["hours_of"]) == (hours, of), hardware
        if hours:
            assert found["a", "qasper"]["hours"] == pytest.approx(hours / 4), "by the model's seconds"
            assert found["a", "musique"]["hours"] == pytest.approx(hours * 3 / 4)


def test_runs_made_together_share_their_time_and_killed_sessions_are_told(tmp_path: Path) -> None:
    path = make(tmp_path / "r.duckdb", [answer("q", 1.0, run=run) for run in "abc"])
    sessions(
        path,
        session("a", 1, prefill_s=20.0, decode_s=10.0),
        session("b", 1, prefill_s=8.0, decode_s=2.0),
        session("b", 2, spec={"seed": 2}, started_at=BEGUN.replace(hour=8)),
        session("c", 1, spec=None),
        session("c", 2, spec=None, wall_s=None, status="killed"),
    )
    found = lines_of(path)
    assert [found[run, None]["hours"] for run in "abc"] == pytest.approx([1.5, 0.5 + 2, 2])
    assert [found[run, None]["untimed_sessions"] for run in "abc"] == [0, 0, 1]
    with Store(path, read_only=True) as store:
        notes = sheet(REPORTS["cost"], read_report(store, "cost")).notes
    assert any("Hours of 1 run are a lower bound" in note for note in notes)


def test_runs_that_nothing_beats_are_marked(tmp_path: Path) -> None:
    prices = {"good": (0.9, 4.0), "cheap": (0.5, 1.0), "both": (0.9, 4.0), "dear": (0.9, 5.0), "poor": (0.4, 1.0)}
    rows = [answer("q", score, cost, run=run) for run, (score, cost) in prices.items()]
    rows += [answer("q", 0.1, 9.0, run="other", task="musique"), Answer("q", {"f1": 1.0}, run="unknown")]
    found = lines_of(make(tmp_path / "r.duckdb", rows))
    assert {run: line["unbeaten"] for (run, task), line in found.items() if task is None} == {
        "good": True, "cheap": True, "both": True, "dear": False, "poor": False, "other": True, "unknown": None,
    }  # fmt: skip
    assert all(line["unbeaten"] is None for (_, task), line in found.items() if task)


def test_what_nobody_measured_is_unknown(tmp_path: Path) -> None:
    path = make(tmp_path / "r.duckdb", [Answer(f"q{at}", {"f1": 0.5}) for at in range(5)])
    line = lines_of(path)["a", "qasper"]
    measured = {name: value for name, value in line.items() if name.endswith(("_s", "_share", "_saved", "_correct"))}
    assert set(measured.values()) == {None}
    with Store(path, read_only=True) as store:
        made = sheet(REPORTS["cost"], read_report(store, "cost"))
    assert not made.rows
    (said,) = made.notes
    assert said.startswith("Left out: 2 rows of model a, without these values")
    assert made.columns, "as of any table without rows"


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [answer("q", 1.0)],
        [answer("q", 0.0), answer("r", 0.0)],
        [answer("q", float("nan"))],
        [answer("q", 1.0, 0.0)],
    ],
    ids=["empty", "one sample", "nothing correct", "nan", "no time at all"],
)
def test_odd_files_have_words(tmp_path: Path, rows: list[Answer]) -> None:
    with Store(make(tmp_path / "r.duckdb", rows), read_only=True) as store:
        made = sheet(REPORTS["cost"], read_report(store, "cost"))
    texts = " ".join(text for row in made.rows for text in row)
    assert "nan" not in texts and "inf" not in texts
    assert bool(made.rows) == bool(rows)


def test_a_judge_costs_and_is_no_evaluated_model(tmp_path: Path) -> None:
    path = make(tmp_path / "r.duckdb", [answer(f"q{at}", 0.5) for at in range(3)])
    with Store(path) as store:
        add_judge(store, "j", calibration(like_gpt4, 4))
        store.query(
            "UPDATE generations SET prompt_tokens = 600, cached_tokens = 200, output_tokens = 10, prefill_s = 3, "
            "decode_s = 1 WHERE run_id = 'j'"
        )
        ((rounds,),) = store.query("SELECT count(*) FROM generations WHERE run_id = 'j'").rows
    sessions(path, session("j", hardware={"threads": 4}))
    found = lines_of(path)
    assert {run for run, _ in found} == {"a", "j"}
    line = found["j", PAIR.name]
    assert (line["benchmark"], line["mode"], line["n"], line["measured"]) == ("judge", "judge", rounds, rounds)
    assert (line["prompt_tokens"], line["output_tokens"]) == (600 * rounds, 10 * rounds)
    assert (line["prefill_tokens_s"], line["seconds_per_answer"]) == (pytest.approx(400 / 3), pytest.approx(4))
    assert (line["hours"], line["hours_of"]) == (pytest.approx(2.0), "core")
    nothing = ("score", "low", "high", "unbeaten", "seconds_per_correct", "tokens_per_correct")
    assert [line[name] for name in nothing] == [None] * len(nothing)
    assert found["a", None]["unbeaten"] is True
    assert [run for run, _ in lines_of(path, runs=["j"])] == ["j"]
    assert {run for run, _ in lines_of(path, runs=["a"])} == {"a"}
