"""HTML page of a results file, self-contained, with tables, charts, and answers to browse."""

from lbx.report.page.page import pieces

__all__ = ["pieces"]
