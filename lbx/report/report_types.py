"""Definitions of the judges' reports."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lbx.base.columns import Column
from lbx.report.query import ReportQuery

if TYPE_CHECKING:
    from lbx.results import Table

__all__ = ["ReportDefinition", "ReportQuery"]


@dataclass(frozen=True, slots=True)
class ReportDefinition:
    """Definition of a report; see ``lbx.report.report.Report``."""

    title: str
    order: str
    columns: Sequence[Column]
    pivot: tuple[str, Column] | None = None
    rows: str = ""
    run_columns: Sequence[str] = ("run_id",)
    notes: "Callable[[Table], Sequence[str]] | None" = None
    empty: str = "This file has no rows for the report."
    says: Callable[[Mapping[str, Any]], bool] | None = None
    takes: Collection[str] = ()
    reads: Literal["answers", "numbers", "coverage"] = "answers"
    page: int = 0
