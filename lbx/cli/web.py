"""Whether there can be pages."""

from __future__ import annotations

from lbx.base.errors import LbxError


def check_web() -> None:
    """Raise LbxError where the libraries of pages are not installed."""
    try:
        import lbx.web  # noqa: F401
    except ImportError as exc:
        raise LbxError(
            f"Pages need libraries that are not installed ({exc}).",
            fix="Install lbx[web].",
            command="pip install 'lbx[web]'",
        ) from exc
