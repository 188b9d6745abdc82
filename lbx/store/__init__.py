"""Results files. The only package that imports duckdb, when a file is opened, since most commands do not open any."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lbx.store.rows import GenerationRow as GenerationRow
    from lbx.store.rows import GroupRow as GroupRow
    from lbx.store.rows import ResultRow as ResultRow
    from lbx.store.rows import RunRow as RunRow
    from lbx.store.rows import SampleRow as SampleRow
    from lbx.store.rows import ScoreRow as ScoreRow
    from lbx.store.rows import SessionRow as SessionRow
    from lbx.store.rows import Table as Table
    from lbx.store.store import Store as Store

_ROWS = ("GenerationRow", "GroupRow", "ResultRow", "RunRow", "SampleRow", "ScoreRow", "SessionRow", "Table")
_MODULES = {**dict.fromkeys(_ROWS, "rows"), "Store": "store"}
__all__ = [*_MODULES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'lbx.store' has no attribute {name!r}")
    return getattr(importlib.import_module(f"lbx.store.{_MODULES[name]}"), name)
