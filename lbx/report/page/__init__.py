"""Results file as one self-contained HTML page: tables, charts, and the answers to browse."""

from lbx.report.page.page import pieces

__all__ = ["pieces"]
