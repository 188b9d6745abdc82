"""Registry of reports, and functions that read them by name.

Names are known without loading the reports, for ``lbx report --help`` and shell completion.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from lbx.base.errors import UsageError
from lbx.base.tables import suggest_names
from lbx.report.query import ALL, ReportQuery

if TYPE_CHECKING:
    from lbx.report.report import Report
    from lbx.results import Store, Table

_OBJECTS = (
    "report.rows.card:CARD",
    "report.rows.leaderboard:LEADERBOARD",
    "report.rows.task_scores:TASK_SCORES",
    "report.rows.paper:PAPER",
    "report.rows.group_scores:GROUP_SCORES",
    "report.rows.guards:GUARDS",
    "report.rows.length_curve:LENGTH_CURVE",
    "report.rows.truncation:TRUNCATION",
    "report.rows.truncation_effect:TRUNCATION_EFFECT",
    "report.rows.effective_context:EFFECTIVE_CONTEXT",
    "report.rows.suites:SUITES",
    "report.rows.needles:NEEDLES",
    "report.rows.cost:COST",
    "report.rows.failures:FAILURES",
    "report.rows.estimates:ESTIMATES",
    "report.rows.decision:DECISION",
    "report.rows.comparison:COMPARISON",
    "report.rows.changes:CHANGES",
    "report.rows.depth_parity:DEPTH_PARITY",
    "report.rows.formats:FORMATS",
    "report.rows.flips:FLIPS",
    "report.rows.revisions:REVISIONS",
    "report.rows.reference:REFERENCE",
    "report.rows.harness:HARNESS",
    "report.rows.expected:EXPECTED",
    "opinions.reports:JUDGE_RESULTS",
    "opinions.reports:JUDGE_BIAS",
    "opinions.reports:RATING_RESULTS",
    "opinions.reports:AGREEMENT",
    "report.rows.board:BOARD",
)
"""Reports in the order of the help, as "module:object". The object is the report's name in upper case."""
_PLACES = {place.partition(":")[2].lower(): place for place in _OBJECTS}
NAMES = tuple(_PLACES)
"""Names of all reports."""


@cache
def load_report(name: str) -> Report:
    """Import the definition of a report of ``NAMES``."""
    module, _, attribute = _PLACES[name].partition(":")
    report: Report = getattr(import_module(f"lbx.{module}"), attribute)
    return report


class _Tables(Mapping[str, "Report"]):
    """Mapping of names to reports of one table each. The sections of a report replace the report."""

    def __getitem__(self, name: str) -> Report:
        owner = name if name in _PLACES else next((known for known in _PLACES if name.startswith(f"{known}_")), "")
        if not owner:
            raise KeyError(name)
        return _tables_of(owner)[name]

    def __iter__(self) -> Iterator[str]:
        return (name for owner in _PLACES for name in _tables_of(owner))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@cache
def _tables_of(name: str) -> Mapping[str, Report]:
    report = load_report(name)
    return report.sections() if report.sections else {name: report}


REPORTS: Mapping[str, Report] = _Tables()


def reports_of(view: str) -> list[str]:
    """Names of the tables of a report, or of the section with this name. Raises UsageError if it is unknown."""
    if view in _PLACES:
        return list(_tables_of(view))
    if view not in REPORTS:
        tables = [name for name in REPORTS if name not in _PLACES]
        raise UsageError(f"There is no report {view!r}.", fix=suggest_names(view, [*_PLACES, *tables]))
    return [view]


def listed_name(name: str) -> str:
    """Name in ``NAMES`` of a report, or of the report of a section."""
    return name if name in _PLACES else REPORTS[name].section_of


def reports_with(option: str) -> list[str]:
    """Names of the reports that take an option."""
    takers = (name for name, report in REPORTS.items() if option in report.takes)
    return list(dict.fromkeys(map(listed_name, takers)))


def reports_on_page() -> list[str]:
    """Names of the reports on the page of a whole file, in the page's order."""
    return _names_in_order(lambda report: report.page.order if report.page else 0)


def default_reports() -> list[str]:
    """Names of the reports that an output file contains by default, in order."""
    return _names_in_order(lambda report: report.default)


def recommended_reports() -> list[str]:
    """Names of the reports that the overview recommends, in order."""
    return _names_in_order(lambda report: report.next_step)


def _names_in_order(position_of: Callable[[Report], int]) -> list[str]:
    positions = {name: position for name in NAMES if (position := position_of(load_report(name)))}
    return sorted(positions, key=positions.__getitem__)


def check_options(names: Collection[str], options: Iterable[str]) -> None:
    """Raise UsageError if an option applies to none of the reports ``names``."""
    for option in options:
        if option == "--run" and not any(REPORTS[name].run_columns for name in names):
            raise UsageError(f"The report {', '.join(names)} is not about runs.", fix="Omit --run.")
        takers = reports_with(option)
        if takers and not {*takers} & {*map(listed_name, names)}:
            *first, last = takers
            who = f"reports {', '.join(first)} and {last} take" if first else f"report {last} takes"
            fix = f"Name {'one of them' if first else 'it'}, or omit {option}. `lbx sql` selects rows of any view."
            raise UsageError(f"Only the {who} {option}.", fix=fix)


def has_number_reports(names: Collection[str]) -> bool:
    """Whether any of the reports reads numbers, which are stored at the end of a run."""
    return any(REPORTS[name].reads != "answers" for name in names)


def read_report(store: Store | None, name: str, query: ReportQuery = ALL, among: Collection[str] = ()) -> Table:
    """Read the rows of a report by name (see ``Report.read``)."""
    return REPORTS[name].read(store, query, among)


def write_parquet(store: Store, name: str, query: ReportQuery, path: Path) -> int:
    """Write the rows of a report by name to a parquet file (see ``Report.write_parquet``)."""
    return REPORTS[name].write_parquet(store, query, path)
