"""A results file as one HTML page that needs nothing from elsewhere: tables, charts, and the answers to browse."""

from lbx.report.page.page import pieces

__all__ = ["pieces"]
