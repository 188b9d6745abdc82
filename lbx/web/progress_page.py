"""Page of `lbx browse` with the progress of each run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lbx.base.units import duration
from lbx.store.runs import RunState, run_states
from lbx.web.answer_list import ListQuery, first_line
from lbx.web.pages import page
from lbx.web.results_source import ResultsSource, answer_link, run_labels


def progress_page(source: ResultsSource, request: Request) -> Response:
    """Respond with the state of each run."""
    with source.connect(request) as (store, values):
        labels = run_labels(store)
        states = run_states(store, source.runs)
    return page("progress.html", **values, rows=[_row(state, labels) for state in states])


def _row(state: RunState, labels: Mapping[str, str]) -> dict[str, Any]:
    run = ListQuery({"run": state.run_id})
    failure = state.last_failure
    return {
        "id": state.run_id,
        "label": labels.get(state.run_id, state.run_id),
        "state": state.state,
        "answers": state.answers,
        "total": state.total,
        "percent": None if not state.total else int(100 * state.answers / state.total),
        "failures": state.failures,
        "pace": _pace(state.per_minute),
        "left": "" if state.left_s is None else duration(state.left_s),
        "newest": f"{state.newest_at:%Y-%m-%d %H:%M:%S}" if state.newest_at else "",
        "error": first_line(state.last_error)[:300],
        "link": run.link(),
        "failed_link": run.link(mark="failed"),
        "error_link": answer_link(failure, {"list-run": state.run_id, "list-mark": "failed"}) if failure else "",
    }


def _pace(per_minute: float | None) -> str:
    """Answers per minute, or per hour if they are few, in words."""
    if per_minute is None:
        return ""
    return f"{per_minute:,.3g} per minute" if per_minute >= 1 else f"{60 * per_minute:,.3g} per hour"
