"""An import in one call, as `lbx import` makes it, but for the scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lbx.exchange import Imported, understand, write_predictions
from lbx.store import Store


def import_predictions(store: Store, format_name: str, path: Path, **how: Any) -> Imported:
    done = write_predictions(store, understand(format_name, path, **how))
    store.finish_run(done.run_id, "done")
    return done
