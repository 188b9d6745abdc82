"""Sessions: what was expected and what came, also of those that were killed; and what the next one learns from them."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lbx.options.asking import LENGTH_OPTIONS as ALIKE
from lbx.report.format import render
from lbx.report.format.table_cells import sheet
from lbx.report.reports import REPORTS, read_report
from lbx.results import RunRow, SessionRow, Store
from lbx.results.file.sessions import answer_lengths, history, next_session, store_sessions
from tests.results.store_rows import RUN, generation, sample

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TRUTH: dict[str, Any] = {
    "status": "done",
    "answered": 4,
    "failed": 1,
    "prompt_tokens": 9_000,
    "computed_tokens": 5_040,
    "output_tokens": 40,
    "wall_s": 30.0,
    "prefill_s": 20.0,
    "decode_s": 5.0,
    "peak_memory_bytes": 1 << 20,
}


def session(number: int = 1, run: RunRow = RUN, **changes: object) -> SessionRow:
    began = START + timedelta(hours=number)
    made = SessionRow(run.run_id, number, 0, run.hardware, planned_samples=5, estimated_s=20.0, started_at=began)
    return dataclasses.replace(made, **changes)


def ended(number: int = 1, run: RunRow = RUN, **changes: object) -> SessionRow:
    began = session(number, run)
    return dataclasses.replace(began, **TRUTH | {"finished_at": began.started_at + timedelta(minutes=1)} | changes)


def keep_answered(store: Store, *rows: SessionRow) -> None:
    """Store sessions with an answer each."""
    store_sessions(store, rows)
    answers = [
        dataclasses.replace(
            generation(
                sample_id=f"of {row.session}", prompt_tokens=9_000, output_tokens=40, prefill_s=20.0, decode_s=5.0
            ),
            run_id=row.run_id,
            created_at=row.started_at,
        )
        for row in rows
    ]
    store.write(samples=[sample(one.sample_id) for one in answers], generations=answers)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with Store(tmp_path / "results.duckdb") as opened:
        opened.begin_run(RUN)
        yield opened


def test_estimate_and_truth_stand_side_by_side(store: Store) -> None:
    assert next_session(store, "r1") == 1
    store_sessions(store, [session()])
    (row,) = store.query("SELECT * FROM estimates").dicts()
    assert (row["status"], row["samples"], row["wall_s"], row["ratio"]) == ("unfinished", 0, None, None)
    store_sessions(store, [ended()])
    (row,) = read_report(store, "estimates").dicts()
    assert (row["planned_samples"], row["samples"], row["ratio"]) == (5, 5, 1.5)
    assert (row["computed_prompt_tokens"], row["tokens_per_s"]) == (5_000, 168.0)
    assert row["started_at"] == datetime(2026, 3, 1, 13)
    shown = render.markdown(sheet(REPORTS["estimates"], read_report(store, "estimates")))
    assert "| 1.5 |" in shown


def test_a_killed_session_says_so(store: Store) -> None:
    store_sessions(store, [session()])
    assert next_session(store, "r1") == 2
    store_sessions(store, [ended(2, status="interrupted")])
    assert next_session(store, "r1") == 3
    found = store.query("SELECT session, status, finished_at IS NULL, ratio FROM estimates ORDER BY ALL").rows
    assert found == [(1, "killed", True, None), (2, "interrupted", False, None)], "half a session has no ratio"


def test_of_a_killed_session_its_answers_are_known(store: Store) -> None:
    """Those that were committed from its beginning to the next one's."""
    store_sessions(store, [session(1, status="killed"), session(2)])
    times = [session(number).started_at + timedelta(minutes=5) for number in (1, 1, 2)]
    store.write(generations=[generation(sample_id=f"s{n}", created_at=time) for n, time in enumerate(times)])
    found = read_report(store, "estimates").dicts()
    assert [(row["status"], row["samples"], row["output_tokens"]) for row in found] == [
        ("killed", 2, None),
        ("unfinished", 1, None),
    ]
    shown = render.markdown(sheet(REPORTS["estimates"], read_report(store, "estimates")))
    assert "| killed | 0 | 5 | 2 | - | - | - | - | 20 | - | - | - |" in shown


def test_the_next_run_learns(store: Store) -> None:
    rows = [
        dataclasses.replace(
            generation(
                sample_id=f"s{n}",
                prompt_tokens=1_000 * n,
                cached_tokens=0,
                output_tokens=10 * n,
                prefill_s=2.0 * n,
                decode_s=1.0,
            ),
            created_at=START + timedelta(hours=1, seconds=30),
        )
        for n in (1, 2)
    ]
    outside = dataclasses.replace(rows[0], sample_id="s9", created_at=START, output_tokens=30)
    store.write(samples=[sample(row.sample_id) for row in [*rows, outside]], generations=[*rows, outside])
    assert history(store, RUN, workers=0) is None
    store_sessions(store, [ended(), session(2), ended(3, computed_tokens=100)])
    found = history(store, RUN, workers=0)
    assert found is not None
    assert found.sessions == [("r1", 1)], "one that is running or was too short says nothing"
    assert (found.wall_s, found.longest_prompt, found.answer_count) == (30.0, 2_000, 2)
    assert found.prefill == [(2.0, 1_000, 500_000), (4.0, 2_000, 2_000_000)], "by length of the prompt"
    assert found.decode == [(1.0, 10, 10_050), (1.0, 20, 40_200)]
    assert answer_lengths(store, RUN, ALIKE) == {"needle/single_en": 20.0}


@pytest.mark.parametrize(
    "other",
    [
        {"model": "another"},
        {"backend": "hf"},
        {"hardware": {"cores": 64}},
        {"settings": {**RUN.settings, "backend.flash_attention": True}},
        {"settings": {**RUN.settings, "batching": False}},
    ],
)
def test_another_machine_or_model_learns_nothing(store: Store, other: dict[str, Any]) -> None:
    keep_answered(store, ended())
    assert history(store, RUN, workers=0) is not None
    assert history(store, dataclasses.replace(RUN, **other), workers=0) is None
    assert history(store, RUN, workers=2) is None


def test_other_tasks_and_another_network_do_not_matter(store: Store) -> None:
    keep_answered(store, ended())
    alike = dataclasses.replace(
        RUN, run_id="r2", hardware={**RUN.hardware, "network": "none"}, settings={**RUN.settings, "limit": 3}
    )
    assert history(store, alike, workers=0) is not None


def test_the_newest_sessions_count_and_runs_made_together_once(store: Store) -> None:
    twin = dataclasses.replace(RUN, run_id="r2")
    store.begin_run(twin)
    keep_answered(store, *(ended(number, wall_s=float(number)) for number in (1, 2, 3, 4)))
    found = history(store, RUN, workers=0)
    assert found is not None
    assert [number for _, number in found.sessions] == [4, 3, 2]
    keep_answered(store, ended(5, wall_s=50.0), dataclasses.replace(ended(5, run=twin), wall_s=50.0))
    found = history(store, RUN, workers=0)
    assert found is not None
    assert (found.wall_s, found.prefill_s) == (54.0, 60.0)


def test_answers_asked_for_otherwise_say_nothing_of_length(store: Store) -> None:
    store.write(samples=[sample()], generations=[generation(output_tokens=12)])
    assert answer_lengths(store, RUN, ALIKE) == {"needle/single_en": 12.0}
    assert answer_lengths(store, dataclasses.replace(RUN, settings={"seed": 0, "thinking": True}), ALIKE) == {}
