"""Signals that wait: Ctrl-C in a commit would make DuckDB abandon it, and in a pass free what llama.cpp computes in."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

LOOK_S = 0.5
"""Seconds after which a wait that may be long begins anew: a signal that comes just before a wait does not end it."""


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """SIGINT and SIGTERM that come during the block are delivered when it is over. May be nested."""
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
