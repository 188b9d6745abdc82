"""Python errors that may be caused by values in a results file, and their message.

Results files are untrusted. The types of their columns are checked (``lbx.store.contents``), but the JSON in them is
parsed by the code that needs it, and may have any form.
"""

from __future__ import annotations

import traceback
from pathlib import Path

from lbx.base.errors import LbxError, StoreError

VALUE_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_JSON_TYPES = (dict, list, str, int, float, type(None))

files_read: set[Path] = set()
"""Results files read by this process; cleared when a command begins."""


def stored_value_error(error: BaseException) -> LbxError | None:
    """Convert an error that stored values may have caused; None for other errors, which are bugs of lbx."""
    if not files_read or not isinstance(error, VALUE_ERRORS) or not _may_come_from_stored_values(error):
        return None
    return StoreError(
        f"{unreadable_values()[:-1]} ({type(error).__name__}: {error}).",
        fix="If only lbx wrote them, this is a bug: please report it with the traceback printed by --debug.",
    )


def unreadable_values() -> str:
    """Return the message without the text of the error, which may quote confidential values."""
    return f"Values in {', '.join(sorted(map(str, files_read)))} cannot be read."


def _may_come_from_stored_values(error: BaseException) -> bool:
    if isinstance(error, AttributeError) and not isinstance(error.obj, _JSON_TYPES):
        return False
    frames = traceback.walk_tb(error.__traceback__)  # backends receive prompts, not stored JSON
    return not any(str(frame.f_globals.get("__name__")).startswith("lbx.backends.") for frame, _ in frames)
