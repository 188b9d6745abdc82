"""Exports as logs of inspect_ai, read by its own package and shown by Inspect View."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from lbx.results import Store
from tests.chromium import chromium, windows
from tests.command_line import Lbx
from tests.exchange.export_readers import told_by, tool
from tests.exchange.tool_export_parts import ODD, exported, numbers_of, odd_file
from tests.page_parts import results_file

_READ = """
import json, sys
from inspect_ai.analysis import samples_df
from inspect_ai.log import list_eval_logs, read_eval_log, read_eval_log_sample_summaries
logs = []
for info in list_eval_logs(sys.argv[1]):
    log = read_eval_log(info.name)
    head = read_eval_log(info.name, header_only=True)
    log.eval.dataset.sample_ids = None
    assert head.eval == log.eval and head.results == log.results and head.stats == log.stats
    logs.append({
        "info": [info.task, info.task_id],
        "head": head.model_dump(mode="json"),
        "samples": [sample.model_dump(mode="json") for sample in log.samples],
        "summaries": [[one.id, one.epoch, one.error] for one in read_eval_log_sample_summaries(info.name)],
    })
frame = samples_df(sys.argv[1])
print(json.dumps({"logs": logs, "rows": len(frame), "ids": frame["sample_id"].nunique()}))
"""


def read_logs(folder: Path) -> list[dict[str, Any]]:
    """The logs that Inspect lists; its tables have a row for each of their samples."""
    told = told_by(_READ, folder)
    assert told["rows"] == told["ids"] == sum(len(log["samples"]) for log in told["logs"])
    assert len(told["logs"]) == len(list(folder.glob("*.json")))
    logs: list[dict[str, Any]] = told["logs"]
    return logs


def check_numbers(results: Path, logs: list[dict[str, Any]]) -> None:
    numbers: dict[str, dict[str, dict[str, tuple[float, float | None]]]] = {}
    for log in logs:
        spec = log["head"]["eval"]
        assert spec["task"].startswith("lbx/") and log["info"][1] == spec["task_id"]
        numbers.setdefault(spec["run_id"], {})[spec["task"].removeprefix("lbx/")] = {
            score["name"]: (
                score["metrics"]["mean"]["value"],
                score["metrics"]["stderr"]["value"] if "stderr" in score["metrics"] else None,
            )
            for score in log["head"]["results"]["scores"]
        }
    assert numbers == numbers_of(results)


def test_logs_of_published_predictions_have_their_numbers(published: Path, tmp_path: Path) -> None:
    logs = read_logs(exported(published, "inspect", tmp_path))
    check_numbers(published, logs)
    assert len(logs) == 21 + 21 + 1 + 13
    assert {log["head"]["status"] for log in logs} == {"success"}


def test_logs_have_failures_iterations_reasoning_and_odd_texts(tmp_path: Path) -> None:
    results = odd_file(tmp_path / "odd.duckdb")
    logs = read_logs(exported(results, "inspect", tmp_path / "out"))
    check_numbers(results, logs)
    (log,) = (log for log in logs if log["head"]["eval"]["model"] == "org/one" and "qasper" in log["info"][0])
    head = log["head"]
    counts = {name: head["eval"]["metadata"][name] for name in ("asked", "answered", "failed", "truncated")}
    assert counts == {"asked": 24, "answered": 20, "failed": 4, "truncated": 6}
    assert head["eval"]["config"]["epochs"] == 2 and head["eval"]["packages"] == {"lbx": "1"}
    assert (head["results"]["total_samples"], head["results"]["completed_samples"]) == (24, 20)
    (score,) = head["results"]["scores"]
    assert (score["scored_samples"], score["unscored_samples"]) == (20, 4)
    assert score["metadata"]["official"] == round(100 * score["metrics"]["mean"]["value"], 2)
    assert score["metadata"]["low"] < score["metrics"]["mean"]["value"] < score["metadata"]["high"]
    assert head["stats"]["model_usage"]["org/one"]["total_tokens"] == 20 * 1010
    errors = [summary for summary in log["summaries"] if summary[2] is not None]
    assert [summary[:2] for summary in errors] == [
        [f"qasper/qasper-{number:03}", epoch] for number in (3, 5) for epoch in (1, 2)
    ]
    first, odd = log["samples"][0], log["samples"][2]
    assert first["output"]["choices"][0]["stop_reason"] == "max_tokens"
    assert first["output"]["completion"] == f"{ODD} 0 of org/one"
    assert first["messages"][1]["content"][0]["reasoning"] == "because"
    assert first["output"]["usage"]["total_tokens"] == 1010 and first["metadata"]["truncated"] is True
    assert odd["input"] == odd["messages"][0]["content"] == ODD and odd["target"] == "reference 1"
    with Store(results) as store:
        ((started_at,),) = store.query("SELECT started_at FROM runs WHERE run_id = 'org/one'").rows
    assert head["eval"]["created"] == f"{started_at.isoformat()}+00:00"


@pytest.mark.parametrize("status, shown", [("interrupted", "cancelled"), ("failed", "error"), ("running", "cancelled")])
def test_a_run_that_has_not_ended_well_is_no_success(lbx: Lbx, tmp_path: Path, status: str, shown: str) -> None:
    results = results_file(tmp_path / "r.duckdb", ("org/one",), ("qasper",), done=status == "running")
    with Store(results) as store, store.transaction() as connection:
        connection.execute("UPDATE runs SET status = ?, finished_at = NULL", [status])
    done = lbx.ok("export", "inspect", results, "-o", tmp_path / "out")
    state = "killed" if status == "running" else status
    assert "The run org/one " + {"failed": "failed"}.get(state, f"was {state}") in done.stderr
    (log,) = read_logs(tmp_path / "out")
    assert log["head"]["status"] == shown and log["head"]["eval"]["metadata"]["status"] == state


def test_inspect_view_lists_and_shows_the_logs(tmp_path: Path) -> None:
    folder, site = exported(odd_file(tmp_path / "odd.duckdb"), "inspect", tmp_path / "out"), tmp_path / "site"
    done = tool("inspect", "view", "bundle", "--log-dir", folder, "--output-dir", site)
    assert done.returncode == 0, done.stderr

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with chromium() as browser, windows(browser, refusals=True) as open_page:
            page = open_page(f"http://127.0.0.1:{server.server_port}/")
            page.get_by_text("lbx/longbench/qasper").first.wait_for()
            assert page.get_by_text("lbx/longbench/").count() == 4
            page.get_by_text("lbx/longbench/qasper").first.click()
            page.get_by_text("4 of 24 samples (17%) had errors").wait_for()
            page.get_by_text("qasper/qasper-001").first.click()
            page.get_by_text("reference 1", exact=True).first.wait_for()
            page.get_by_text("fourth 猫 1 of org/").first.wait_for()
    finally:
        server.shutdown()
        server.server_close()


def test_a_log_is_one_json_object(tmp_path: Path) -> None:
    folder = exported(odd_file(tmp_path / "odd.duckdb"), "inspect", tmp_path)
    for path in folder.glob("*.json"):
        assert list(json.loads(path.read_bytes()))[-1] == "samples"
