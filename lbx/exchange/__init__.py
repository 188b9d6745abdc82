"""Predictions in the official files' formats: in from elsewhere, and out to the official scorers."""

from lbx.exchange.exporting import Exported, export, write_files
from lbx.exchange.importing import Imported, Understood, understand, write_predictions
from lbx.exchange.published import published_names, published_run

__all__ = [
    "Exported",
    "Imported",
    "Understood",
    "export",
    "published_names",
    "published_run",
    "understand",
    "write_files",
    "write_predictions",
]
