"""Recognition of files of other evaluation programs that were given to `lbx import` under another format's name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from lbx.base.errors import UsageError
from lbx.base.inputs import SMALL, open_input
from lbx.base.visible import as_command
from lbx.benchmarks.registry import IMPORT_FORMATS
from lbx.exchange.field import imported_lm_eval, imported_opencompass

_MODULES = {imported_lm_eval.NAME: imported_lm_eval, imported_opencompass.NAME: imported_opencompass}

_TITLES = {
    imported_lm_eval.NAME: "output of lm-evaluation-harness",
    imported_opencompass.NAME: "predictions of OpenCompass",
    "inspect": "a log of Inspect",
    "every_eval_ever": "an Every Eval Ever record",
}
_REASONS = {
    "inspect": "a log of Inspect has a task, a prompt and a scorer of its own, so its answers belong to no benchmark "
    "of lbx",
    "every_eval_ever": "Every Eval Ever records scores of any benchmark, and its answers have no documents, lengths or "
    "classes to score them with",
}
"""Reasons why lbx does not import a format that it knows."""
_OTHER_NAMES = {
    "inspect_ai": "inspect", "inspect_log": "inspect", "eee": "every_eval_ever", "lm-eval": "lm_eval",
    "lmeval": "lm_eval", "lm_evaluation_harness": "lm_eval", "lm-evaluation-harness": "lm_eval",
}  # fmt: skip
_ZIP = b"PK"
_INSPECT_FILE = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d[^_]*_[^_]*_[^_]*\.json")
_EEE_FILE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}(_samples\.jsonl|\.json)")


def refuse_field_format(name: str) -> None:
    """Raise UsageError for another spelling of a harness, or for a format that is only exported."""
    meant = _OTHER_NAMES.get(name.lower(), name)
    if meant in _REASONS:
        _refuse_import(meant)
    if meant != name and meant in IMPORT_FORMATS:
        raise UsageError(f"There is no prediction format {name!r}.", fix=f"Did you mean {meant}?")


def refuse_field_files(format_name: str, path: Path, model: str) -> None:
    """Raise UsageError if a path has another program's files, with the command that imports them."""
    if format_name in _MODULES and path.is_file() and _MODULES[format_name].is_output_file(path):
        return
    found = _recognise(path)
    if found is None or found == format_name:
        return
    if found in _REASONS:
        _refuse_import(found, path)
    raise UsageError(
        f"{path} contains {_TITLES[found]}, and no file in the format {format_name}.",
        fix=f"Import it as {found}:",
        command=as_command("lbx", "import", found, path, "--model", model or "NAME", "-o", "RESULTS"),
    )


def _refuse_import(name: str, path: Path | None = None) -> NoReturn:
    cause = f"{path} contains {_TITLES[name]}, which cannot be imported" if path else f"{name} cannot be imported"
    raise UsageError(
        f"{cause}: {_REASONS[name]}.",
        fix=f"Import files of an official script, or of {' or '.join(IMPORT_FORMATS)}.",
    )


def _recognise(path: Path) -> str | None:
    """Return the format of a harness's folder or file; None if it is none of these."""
    if path.is_dir():
        with suppress(OSError):
            return _recognise_folder(path)
    if path.is_file():
        with suppress(OSError):
            return _recognise_file(path)
    return None


def _recognise_folder(folder: Path) -> str | None:
    names = [entry.name for entry in folder.iterdir()]
    if imported_lm_eval.is_output_folder(folder):
        return imported_lm_eval.NAME
    if imported_opencompass.is_output_folder(folder):
        return imported_opencompass.NAME
    if any(name.endswith(".eval") or _INSPECT_FILE.fullmatch(name) for name in names):
        return "inspect"
    if any(_EEE_FILE.fullmatch(name) for name in names) or any(folder.glob("data/*/*/*/*_samples.jsonl")):
        return "every_eval_ever"
    return None


def _recognise_file(path: Path) -> str | None:
    with open_input(path) as file:
        start = file.read(len(_ZIP))
        if not start.startswith((_ZIP, b"{")):
            return None
        start += file.readline(SMALL)
        if path.suffix == ".eval" and start.startswith(_ZIP):
            return "inspect"
        if path.suffix == ".json" and start.startswith(b"{"):
            start += file.read(SMALL)
    values: object = None
    with suppress(ValueError, RecursionError):  # other problems are reported by the format's own reader
        values = json.loads(start)
    return _recognise_values(values) if isinstance(values, dict) else None


def _recognise_values(values: Mapping[str, object]) -> str | None:
    if imported_lm_eval.is_samples_row(values) or {"results", "configs", "n-shot"} <= values.keys():
        return imported_lm_eval.NAME
    if imported_opencompass.is_prediction_file(values):
        return imported_opencompass.NAME
    if {"schema_version", "evaluation_id"} <= values.keys():
        return "every_eval_ever"
    return "inspect" if {"version", "status", "eval"} <= values.keys() else None
