"""Predictions and judgements in the official files' formats: in from elsewhere, and out to the official scorers."""

from lbx.exchange.exporting import Exported, export, write_files
from lbx.exchange.importing import Imported, Understood, published_run, understand, write_predictions
from lbx.exchange.judge_export import export_judgements
from lbx.exchange.judged_export import export_judged
from lbx.exchange.judgements import JudgeRun, understand_judgements, write_judgements

__all__ = [
    "Exported",
    "Imported",
    "JudgeRun",
    "Understood",
    "export",
    "export_judged",
    "export_judgements",
    "published_run",
    "understand",
    "understand_judgements",
    "write_files",
    "write_judgements",
    "write_predictions",
]
