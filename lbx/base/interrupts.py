"""Deferred signals: Ctrl-C would make DuckDB abandon a commit, and free llama.cpp's buffers during a forward pass."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

POLL_INTERVAL_S = 0.5
"""Seconds after which a long wait is restarted, because a signal that arrives just before a wait does not end it."""


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Defer SIGINT and SIGTERM until the end of the block. May be nested."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals never reach other threads
        return
    waiting: list[int] = []
    handlers = {number: signal.signal(number, lambda number, _: waiting.append(number)) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for caught in dict.fromkeys(waiting):
            signal.raise_signal(caught)
