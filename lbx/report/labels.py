"""Labels for the judges' reports."""

from lbx.report.format.labels import Row, labels

__all__ = ["Row", "labels"]
