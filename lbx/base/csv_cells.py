"""Cells of CSV files that open as text in a spreadsheet: no text runs as a formula (CSV injection)."""

from __future__ import annotations

import re

from lbx.base.visible import visible

_FORMULA = re.compile(r"\t|\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""Allows leading white space, because spreadsheets skip it before a formula."""


def escape_formula(text: str) -> str:
    """Escape a text like ``visible``, and prefix possible spreadsheet formulas, except numbers, with an apostrophe."""
    escaped = visible(text)
    return f"'{escaped}" if _FORMULA.match(escaped) and not _is_number(escaped) else escaped


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
