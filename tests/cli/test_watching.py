"""What is seen of a run while it goes on: a bar on a terminal, lines in a log, memory, and what went wrong."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lbx.base.errors import BackendError
from lbx.base.listener import Listener
from lbx.cli import progress as progress_line
from lbx.cli.progress import RunBar
from lbx.results import GenerationRow, RunRow, Store
from lbx.running import monitor
from lbx.running.monitor import ProgressTracker, RunMonitor, record_sessions

RUN = RunRow("r1", "demo", "scripted", "1", {}, "digest", {}, {"cores": 2}, "0.1")
PATIENCE_S = 30.0


def row(**values: object) -> GenerationRow:
    return GenerationRow("r1", "needle", "single_en", "s1", 0, **values)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "_TICK_S", 0.01)
    monkeypatch.setattr(monitor, "LOG_SECONDS", 0.03)
    monkeypatch.setattr(progress_line, "RUN_LOG_SECONDS", 0.03)


@pytest.mark.usefixtures("hurried")
def test_lines_come_while_nothing_is_heard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "x.log"
    with RunBar() as bar, RunMonitor(ProgressTracker(None, 4), bar, log) as progress:
        until(lambda: log.exists() and len(log.read_text().splitlines()) > 1)
        progress.count_sample(row(prompt_tokens=100, cached_tokens=40, output_tokens=5))
        progress.count_sample(row(error="out of memory"))
        progress.count_tokens(65)
    last = log.read_text().splitlines()[-1]
    assert "50%, 2 of 4 samples (1 failed)" in last
    assert re.search(r"\d (MiB|GiB) of memory, needle/single_en$", last)
    assert progress.peak_bytes > 1 << 20
    assert last.split(" ", 2)[2] in capsys.readouterr().err


def test_a_log_is_there_as_soon_as_a_run_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "_TICK_S", 0.01)
    log = tmp_path / "x.log"
    with RunBar() as bar, RunMonitor(ProgressTracker(None, 4), bar, log):
        until(lambda: log.exists() and bool(log.read_text()))
        assert len(log.read_text().splitlines()) == 1, "the next line comes a minute later"


@pytest.mark.usefixtures("hurried")
def test_a_log_that_goes_away_ends_no_run(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with RunMonitor(ProgressTracker(None, 1), Listener(), folder / "x.log") as progress:
        until((folder / "x.log").exists)
        (folder / "x.log").unlink()
        folder.rename(tmp_path / "elsewhere")
        progress.count_sample(row())
    assert progress.tracker.finished_samples == 1


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt, "interrupted"), (BackendError("gone"), "failed"), (None, "done")]
)
def test_a_session_says_how_it_ended(tmp_path: Path, error: type[BaseException] | None, status: str) -> None:
    def go() -> None:
        watch = RunMonitor(ProgressTracker(None, 2), Listener())
        with record_sessions(store, [RUN], None, watch, answer_counts=[0], workers=3, load_s=0.5, spec={"lbx_run": 1}):
            watch.count_sample(row(prompt_tokens=100, cached_tokens=40, output_tokens=5, prefill_s=2.0, decode_s=1.0))
            assert store.query("SELECT status FROM sessions").rows == [("running",)]
            if error is not None:
                raise error

    with Store(tmp_path / "results.duckdb") as store:
        store.begin_run(RUN)
        if error is None:
            go()
        else:
            with pytest.raises((KeyboardInterrupt, BackendError)):
                go()
        (found,) = store.query("SELECT * FROM sessions").dicts()
    assert (found["status"], found["workers"], found["answered"], found["computed_tokens"]) == (status, 3, 1, 65)
    assert (found["prefill_s"], found["decode_s"], found["planned_samples"]) == (2.0, 1.0, None)
    assert found["finished_at"] >= found["started_at"]


def test_runs_that_are_made_together_begin_at_one_time(tmp_path: Path) -> None:
    """Their seconds count once in estimates of later runs, and all of them are said to go on."""
    rows = [RUN, replace(RUN, run_id="r2")]
    with Store(tmp_path / "results.duckdb") as store:
        for one in rows:
            store.begin_run(one)
        watch = RunMonitor(ProgressTracker(None, 2), Listener())
        with record_sessions(
            store, rows, None, watch, answer_counts=[3, 4], workers=0, load_s=0.5, spec={"lbx_run": 1}
        ):
            found = store.query("SELECT count(DISTINCT started_at), list(done_before ORDER BY run_id) FROM sessions")
            assert found.rows == [(1, [3, 4])]
