"""Results files. duckdb is imported at the first access to ``Store``, because most commands open no results file.

Outside this package, only ``lbx.base.database`` and ``lbx.opinions.rating_rows`` import duckdb.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lbx.results.file.store import Store as Store
    from lbx.results.rows import DepthPairRow as DepthPairRow
    from lbx.results.rows import DepthRow as DepthRow
    from lbx.results.rows import GenerationRow as GenerationRow
    from lbx.results.rows import RunRow as RunRow
    from lbx.results.rows import SampleRow as SampleRow
    from lbx.results.rows import ScoreRow as ScoreRow
    from lbx.results.rows import SessionRow as SessionRow
    from lbx.results.rows import Table as Table

_ROWS = ("DepthPairRow", "DepthRow", "GenerationRow", "RunRow", "SampleRow", "ScoreRow", "SessionRow", "Table")
_MODULES = {**dict.fromkeys(_ROWS, "rows"), "Store": "file.store"}
__all__ = [*_MODULES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'lbx.results' has no attribute {name!r}")
    return getattr(importlib.import_module(f"lbx.results.{_MODULES[name]}"), name)
