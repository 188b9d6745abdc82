"""Renderer of the HTML page of a results file, with findings, tables, charts, and answers to browse.

The page is self-contained. The content security policy allows only the page's style and script, by hashes, and blocks
all requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import PurePath

from lbx.base.version import __version__
from lbx.base.visible import as_command, one_line
from lbx.report.draw.card import MOST_SENTENCES
from lbx.report.draw.figures import CHART_STYLE, MOST_RUNS, figures
from lbx.report.draw.svg import symbol_styles
from lbx.report.format.labels import headline
from lbx.report.page import answer_data
from lbx.report.page.findings import decisions, failures, leading_sentences, pair_sentences, remarks, settings
from lbx.report.page.html import (
    Html,
    Note,
    Section,
    html,
    part,
    render,
    run_name,
    tag,
    truncate_text,
)
from lbx.report.page.run_sections import run_sections
from lbx.report.page.sections import report_section, scoreboard_part, switch_styles
from lbx.report.page.source import RUN_ANCHOR, PageRun, PageSource
from lbx.report.query import ALL, ReportQuery
from lbx.report.report import PagePlace
from lbx.report.reports import REPORTS, load_report, reports_on_page
from lbx.report.rows.card import CARD, first_rows
from lbx.results import Store
from lbx.results.file.texts import removal_notice
from lbx.results.read.runs import check_runs
from lbx.results.scoring.score_columns import read_scores

MOST_BYTES = 5_000_000
CHARS = 400
_REST = 50_000
"""Upper bound of the size of the page's frame and controls, in bytes."""
_USES_OF_A_NAME = 6
"""Number of times that the page contains the name of a run: choice of runs, filters and data of answers."""
_LEAST_FOR_ANSWERS = 500_000
_SIZES = ((400, True), (100, True), (25, True), (25, False))
"""Pairs (maximum number of rows of a table, whether sections show figures). The page uses the first that fits."""
_GROUPS = {
    "": ("scores", "answers"),
    "Scores": (),
    "Judges and people": (),
    "Length": (),
    "Cost and faults": ("failures",),
    "About": ("runs", "notes"),
}
"""{group in the contents: sections that are no reports}. The group of a report is ``PagePlace.group``."""
_MANY_ROWS = 1000
"""Number of task scores above which a page shows fewer rows of each report."""
_MOST_REMARKS = 5
_MOST_DECISIONS = 4
_SCRIPTS = (
    "dom", "diff", "state", "folds", "tables", "take", "charts", "runs", "columns", "answers", "answer", "sides",
    "links", "pairs", "keys", "start",
)  # fmt: skip
"""Files of ``script/`` in the order of the page's script."""
_INDENT = re.compile(r"^ *(?://.*\n)?", re.MULTILINE)


def pieces(
    store: Store | None,
    query: ReportQuery = ALL,
    *,
    names: Sequence[str] = (),
    chars: int = CHARS,
    notice: str = "",
) -> list[str]:
    """Render the page of a results file in pieces, together under 5 MB for any file.

    Args:
        store: The results file, or None for published scores only.
        names: Reports to include. The default is all reports, and the answers.
        chars: Maximum number of characters of each answer's texts.
        notice: Sentence about the file for the top of the page.

    Raises:
        UsageError: A run does not exist, or a report requested by name refuses the query.
        StoreError: The file cannot be read.
    """
    if store is not None:
        check_runs(store, query.runs)
        if not names:
            read_scores(store, query.runs, outputs=True)  # once, for all reports
    source = PageSource(store, query)
    if names:
        sections = _sections_by_name(source, names)
        body = [section.html() for section in sections]
    else:
        few_rows = len(source.rows("task_scores")) <= _MANY_ROWS
        for most_rows, has_figures in _SIZES[0 if few_rows else 1 :]:
            source.most_rows = most_rows
            sections = _all_sections(source, has_figures=has_figures)
            body = [section.html() for section in sections]
            if sum(len(part.encode()) for part in body) < MOST_BYTES - _LEAST_FOR_ANSWERS - _REST:
                break
    if store is not None and source.runs and not names:
        names_of_runs = [html(_name(run) + run.label) for run in source.runs.values()]
        size = sum(len(part.encode()) for part in [*body, _style(), _script(), *_USES_OF_A_NAME * names_of_runs])
        browser = _answer_section(store, source, chars, max(MOST_BYTES - _REST - size, _LEAST_FOR_ANSWERS))
        if browser:
            sections.append(browser)
            body.append(browser.html())
    return _page(source, sections, body, names, notice)


def _sections_by_name(source: PageSource, names: Sequence[str]) -> list[Section]:
    sections = [
        section for name in names if (section := report_section(source, name, has_other_sections=len(names) > 1))
    ]
    return sections or [Section(names[0], REPORTS[names[0]].title, [tag("p", REPORTS[names[0]].empty)])]


def _all_sections(source: PageSource, *, has_figures: bool) -> list[Section]:
    if not source.runs and not source.rows("judge_results"):
        of_models = [report_section(source, name, has_figures=has_figures) for name in _places()]
        if sections := [section for section in of_models if section]:
            return sections
        empty = "This file has no runs yet. Add one with `lbx run -o FILE` or `lbx import -o FILE`."
        return [Section("empty", "Nothing to report", [tag("p", empty)])]
    # The first section has all scores with shades, like the map of many runs by tasks.
    is_shown = {"section": True, "few runs": len(source.runs) <= MOST_RUNS}
    places = _places()
    of_reports = (
        report_section(source, name, has_figures=has_figures and is_shown[place.figures])
        for name, place in places.items()
    )
    candidates = [*of_reports, failures(source), settings(source) if source.runs else None, *run_sections(source)]
    sections = [
        replace(section, is_collapsible=not (section.name in places and places[section.name].is_open))
        for section in _with_each_note_once([section for section in candidates if section])
    ]
    return [_first_section(source), *sorted(sections, key=lambda section: section.is_collapsible)]


def _first_section(source: PageSource) -> Section:
    """Build the first section: the card, all scores, decisions, remarkable results."""
    sentences, points, decided = leading_sentences(source), remarks(source), decisions(source)
    n_first = len(first_rows(source.rows(CARD.name)))
    n_on_card = min(n_first, MOST_SENTENCES)
    compared = {row["benchmark"] for row in source.rows("decision")} if decided else set()
    others = [sentence for benchmark, sentence in sentences[n_on_card:n_first] if benchmark not in compared]
    others += [sentence for _, sentence in sentences[n_first:]]
    card_texts = [sentence for _, sentence in sentences[:n_on_card]]
    parts = [
        *(part("card", figure.title, Html(figure.svg), card_texts) for figure in figures(source, CARD.name)),
        scoreboard_part(source),
        part("remarks", "decisions", "Decision", decided, _MOST_DECISIONS) if decided else None,
        part("remarks", "findings", "Findings", [*points, *others], _MOST_REMARKS),
    ]
    return Section("scores", "Scores", list(filter(None, parts)))


def _with_each_note_once(sections: Sequence[Section]) -> list[Section]:
    """Move notes that occur in several sections to a separate section."""
    counts = Counter(part for section in sections for part in section.parts if isinstance(part, Note))
    common = [note for note, count in counts.items() if count > 1]
    if not common:
        return list(sections)
    remaining = [replace(section, parts=[part for part in section.parts if part not in common]) for section in sections]
    return [*remaining, Section("notes", "Notes on the tables", common)]


def _page(
    source: PageSource, sections: Sequence[Section], body: Sequence[Html], names: Sequence[str], notice: str
) -> list[str]:
    style, script = _style(), _script()
    html_parts = render(
        "page.html",
        title=headline(": ".join(filter(None, (source.file, ", ".join(names)))), source.progress),
        moment=source.store.snapshot.describe_state() if source.store and source.store.snapshot else "",
        notice=notice,
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        version=__version__,
        runs=list(source.runs.values()),
        run_name=run_name,
        name_of=_name,
        contents=_contents(sections) if len(sections) > 1 else [],
        body=body,
        pairs="" if names else Html(_as_json(pair_sentences(source))),
    )
    return [*html_parts, "\n"]


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def _contents(sections: Sequence[Section]) -> list[tuple[str, list[Section]]]:
    """Group sections for the list of contents. Sections outside of all groups follow."""
    # The sections of runs are linked from the names of runs.
    by_name = {section.name: section for section in sections if not section.name.startswith(RUN_ANCHOR)}
    places = sorted(_places().items(), key=lambda item: not item[1].is_open)
    names_of = {
        group: [*(name for name, place in places if place.group == group), *names] for group, names in _GROUPS.items()
    }
    groups = [(group, [by_name.pop(name) for name in names if name in by_name]) for group, names in names_of.items()]
    return [(group, members) for group, members in [*groups, ("", list(by_name.values()))] if members]


def _places() -> dict[str, PagePlace]:
    """Places of the reports on the page of a whole file, in the page's order."""
    return {name: place for name in reports_on_page() if (place := load_report(name).page)}


def _name(run: PageRun) -> str:
    """Name of a run in links to the page."""
    return one_line(truncate_text(run.run_id, 200))


def _asset(name: str) -> Html:
    return Html(files(__package__).joinpath(name).read_text("utf-8"))


def _script() -> Html:
    """Join the files of the script, without indents and lines of comments."""
    return Html(_INDENT.sub("", "\n".join(_asset(f"script/{name}.js") for name in _SCRIPTS)))


def _style() -> Html:
    return Html(CHART_STYLE) + _asset("page.css") + _asset("answers.css") + Html(symbol_styles() + switch_styles())


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _answer_section(store: Store, source: PageSource, chars: int, room: int) -> Section | None:
    runs = list(source.runs.values())
    page_answers = answer_data.pack_answers(store, [run.run_id for run in runs], chars=chars, most_bytes=room)
    if not page_answers.answers:
        return None
    names = {
        "runs": [_name(run) for run in runs],
        "labels": [one_line(run.label) for run in runs],
        "tasks": page_answers.tasks,
        "marks": answer_data.WORDS,
        "columns": {name: answer_data.BITS.get(name, 0) for name in page_answers.columns},
        "mark_names": answer_data.MARK_NAMES,
        "show": as_command("lbx", "show", PurePath(source.file)),
        "browse": as_command("lbx", "browse", PurePath(source.file)),
    }
    data = {f"column-{name}": Html(column) for name, column in page_answers.columns.items()}
    html_parts = render(
        "answers.html",
        carried=" ".join(filter(None, (_summary(page_answers, chars), removal_notice(store)))),
        runs=list(zip(names["runs"], names["labels"], strict=True)),
        tasks=answer_data.group_tasks(page_answers.tasks),
        marks=answer_data.WORDS,
        data={"names": Html(_as_json(names)), **data},
    )
    return Section("answers", "Answers", [Html("".join(html_parts))])


def _summary(page_answers: answer_data.PackedAnswers, chars: int) -> str:
    summary = f"{page_answers.answers_in_page:,} answers with their scores and marks"
    if page_answers.answers_in_page < page_answers.answers:
        summary += f", of {page_answers.answers:,}: more would not fit"
    if page_answers.texts == page_answers.answers_in_page:
        return f"{summary}; texts are cut to {chars:,} characters."
    return (
        f"{summary}. {page_answers.texts:,} of them have texts, cut to {chars:,} characters, so that the page stays "
        "under 5 MB: failed answers, answers that changed between runs, marked answers and the lowest scores first, "
        "then a fixed sample of the rest."
    )
