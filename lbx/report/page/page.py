"""Results file as one HTML page: findings, tables, charts, and the answers to browse.

The page is self-contained: its content security policy allows only its own style and script, by their hashes, and
blocks all requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import PurePath

from lbx.base.commands import as_command
from lbx.base.version import __version__
from lbx.base.visible import one_line
from lbx.report.labels import headline
from lbx.report.page import answers
from lbx.report.page.boards import boards
from lbx.report.page.findings import failures, findings, settings
from lbx.report.page.html import Html, Section, cut, rendered, run_name, tag
from lbx.report.page.sections import of_report
from lbx.report.page.source import Source
from lbx.report.reports import ON_A_PAGE, REPORTS
from lbx.report.shapes import ALL, ReportQuery
from lbx.report.svg import symbol_styles
from lbx.store import Store
from lbx.store.runs import check_runs

MOST_BYTES = 5_000_000
CHARS = 400
_REST = 50_000
"""Upper bound in bytes of the page's frame, controls and names."""
_LEAST_FOR_ANSWERS = 500_000


def pieces(
    store: Store | None, query: ReportQuery = ALL, *, names: Sequence[str] = (), chars: int = CHARS
) -> list[str]:
    """Render the page of a results file in pieces, together under 5 MB for any file.

    Args:
        store: None for published figures only.
        names: Reports to include; by default all, and the answers.
        chars: Maximum number of characters of each answer's texts.

    Raises:
        UsageError: A run does not exist, or a report requested by name refuses the query.
        StoreError: The file cannot be read.
    """
    if store is not None:
        check_runs(store, query.runs)
    source = Source(store, query)
    sections = _named(source, names) if names else _all(source)
    body = [section.html() for section in sections]
    if store is not None and source.runs and not names:
        size = sum(len(part.encode()) for part in [*body, _style(), _asset("page.js")])
        browser = _answers(store, source, chars, max(MOST_BYTES - _REST - size, _LEAST_FOR_ANSWERS))
        if browser:
            sections.append(browser)
            body.append(browser.html())
    return _page(source, sections, body, names)


def _named(source: Source, names: Sequence[str]) -> list[Section]:
    sections = [section for name in names if (section := of_report(source, name, whole=len(names) > 1))]
    return sections or [Section(names[0], REPORTS[names[0]].title, [tag("p", REPORTS[names[0]].empty)])]


def _all(source: Source) -> list[Section]:
    if not source.runs and not source.rows("judge_results"):
        empty = "This file has no runs yet. Add one with `lbx run -o FILE` or `lbx import -o FILE`."
        return [Section("empty", "Nothing to report", [tag("p", empty)])]
    of_reports = (boards(source) if name == "board" else of_report(source, name) for name in ON_A_PAGE)
    made = [findings(source), *of_reports, failures(source), settings(source) if source.runs else None]
    return [section for section in made if section]


def _page(source: Source, sections: Sequence[Section], body: Sequence[Html], names: Sequence[str]) -> list[str]:
    style, script = _style(), _asset("page.js")
    shown = rendered(
        "page.html",
        title=headline(": ".join(filter(None, (source.file, ", ".join(names)))), source.progress),
        moment=str(source.store.snapshot) if source.store and source.store.snapshot else "",
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        version=__version__,
        runs=list(source.runs.values()),
        run_name=run_name,
        sections=sections,
        body=body,
    )
    return [*shown, "\n"]


def _asset(name: str) -> Html:
    return Html(files(__package__).joinpath(name).read_text("utf-8"))


def _style() -> Html:
    return _asset("page.css") + Html(symbol_styles())


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


# The answers


def _answers(store: Store, source: Source, chars: int, room: int) -> Section | None:
    runs = list(source.runs.values())
    packed = answers.packed(store, [run.run_id for run in runs], chars=chars, most_bytes=room)
    if not packed.answers:
        return None
    names = {
        "runs": [one_line(cut(run.run_id, 200)) for run in runs],
        "labels": [one_line(run.label) for run in runs],
        "tasks": packed.tasks,
        "marks": answers.WORDS,
        "columns": {name: answers.BITS.get(name, 0) for name in packed.columns},
        "lost": f"(not in this page; `{as_command('lbx', 'show', PurePath(source.file), 'ID', '--full')}` prints it)",
    }
    data = {f"column-{name}": Html(column) for name, column in packed.columns.items()}
    shown = rendered(
        "answers.html",
        carried=_carried(packed, chars),
        labels=names["labels"],
        tasks=packed.tasks,
        marks=answers.WORDS,
        data={"names": Html(json.dumps(names).replace("<", "\\u003c")), **data},
    )
    return Section("answers", "Answers", [Html("".join(shown))])


def _carried(packed: answers.Packed, chars: int) -> str:
    summary = f"{packed.carried:,} answers with their scores and marks"
    if packed.carried < packed.answers:
        summary += f", of {packed.answers:,}: more would not fit"
    if packed.texts == packed.carried:
        return f"{summary}; texts are cut to {chars:,} characters."
    return (
        f"{summary}. {packed.texts:,} of them have texts, cut to {chars:,} characters, so that the page stays "
        "under 5 MB: failed answers, answers that changed between runs, marked answers and the lowest scores first, "
        "then a fixed sample of the rest."
    )
