"""``lbx models``, separate from ``lbx doctor``: it loads neither benchmarks nor NumPy, and starts in half the time."""

from __future__ import annotations

import json

from lbx.backends.listing import ListedModel, list_models
from lbx.base.layout import Bundle
from lbx.base.units import size
from lbx.cli.measure_options import Models
from lbx.cli.output import answer_json, note
from lbx.cli.tables import show_table
from lbx.report.sheets import plain_columns
from lbx.store import Table


def show_models(options: Models) -> None:
    models = list_models(Bundle(options.bundle) if options.bundle else None)
    if options.as_json:
        answer_json(json.dumps([one.to_json() for one in models], ensure_ascii=False, indent=2))
        return
    if not models:
        note("No models found: models/, this folder and the bundle (--bundle) contain neither a card nor weights.")
        return
    columns = ["model", "backend", "context window", "size", "weights"]
    show_table("", plain_columns(Table(columns, [_row(one) for one in models])))
    for one in models:
        if one.problem and not one.needs_bundle:
            note(f"{one.name}: {one.problem}")
    if waiting := [one.name for one in models if one.needs_bundle]:
        note(f"Pass --bundle DIR: these models need weights from a bundle: {', '.join(waiting)}.")


def _row(one: ListedModel) -> tuple[str, ...]:
    window = "unknown" if one.context_window is None else f"{one.context_window:,}"
    backend = f"{one.backend} (embeds)" if one.embeds else one.backend or "unknown"
    return one.name, backend, window, "-" if one.size_bytes is None else size(one.size_bytes), one.state
