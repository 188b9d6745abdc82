"""``lbx models``, separate from ``lbx doctor``: it loads neither benchmarks nor NumPy, and starts in half the time."""

from __future__ import annotations

import json

from lbx.backends.weights import ListedModel, list_models
from lbx.base.bundle_folder import Bundle
from lbx.base.units import format_size
from lbx.cli.measure_options import ModelsOptions
from lbx.cli.output import answer_json, note
from lbx.cli.table_output import show_table
from lbx.report.format.sheets import plain_columns
from lbx.results import Table


def show_models(options: ModelsOptions) -> None:
    models = list_models(Bundle(options.bundle) if options.bundle else None)
    if options.as_json:
        answer_json(json.dumps([model.to_json() for model in models], ensure_ascii=False, indent=2))
        return
    if not models:
        note("No models found: models/, this folder and the bundle (--bundle) contain neither a card nor weights.")
        return
    columns = ["model", "backend", "context window", "size", "weights"]
    show_table("", plain_columns(Table(columns, [_row(model) for model in models])))
    for model in models:
        if model.problem and not model.not_in_bundle:
            note(f"{model.name}: {model.problem}")
    if not (absent := [model for model in models if model.not_in_bundle]):
        return
    if options.bundle is None:
        names = ", ".join(model.name for model in absent)
        note(f"Pass --bundle DIR: these models need weights from a bundle: {names}.")
        return
    sources = ", ".join(f"{model.name} ({model.not_in_bundle})" for model in absent)
    note(f"Without weights in the bundle {options.bundle} (add the source to a recipe): {sources}.")


def _row(model: ListedModel) -> tuple[str, ...]:
    window = "unknown" if model.context_window is None else f"{model.context_window:,}"
    backend = f"{model.backend} (embeds)" if model.embeds else model.backend or "unknown"
    return model.name, backend, window, "-" if model.size_bytes is None else format_size(model.size_bytes), model.state
