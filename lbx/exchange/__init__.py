"""Predictions in the official files' formats: in from elsewhere, and out to the official scorers."""

from lbx.exchange.exporting import Exported, export
from lbx.exchange.importing import Imported, Understood, understand, write_predictions

__all__ = ["Exported", "Imported", "Understood", "export", "understand", "write_predictions"]
