"""Pages, whose libraries need not be installed."""

from __future__ import annotations

import importlib
from typing import Any

from lbx.base.errors import LbxError
from lbx.cli.loading import resolve


def of_web(name: str) -> Any:
    """What "room.module:name" means, which needs the libraries of pages. Raises LbxError: they are not installed."""
    try:
        importlib.import_module("lbx.web")
    except ImportError as exc:
        raise LbxError(
            f"Pages need libraries that are not installed ({exc}).",
            fix="Install lbx[web].",
            command="pip install 'lbx[web]'",
        ) from exc
    return resolve(name)
